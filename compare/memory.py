"""The memory of a card or a host: how much there is, what a case takes, what to do without room."""

from __future__ import annotations

import gc
import os
import re
import sys
from collections.abc import Callable
from typing import TypeVar

from compare.machine import Machine
from compare.pair import Pair, Shape

T = TypeVar("T")


def with_room(machine: Machine, work: Callable[[], T]) -> T:
    """`work()`, and once more where the card had no memory for it and the allocators may have.

    Torch's and CuPy's each keep what was freed, and neither sees what the other one keeps.
    """
    try:
        return work()
    except Exception as error:
        if not (machine.on_card and out_of_memory(error)):
            raise
    give_back(machine)  # only now: the error kept alive what the launch had allocated
    return work()


def give_back(machine: Machine) -> None:
    """Both allocators return to the card what they keep for later."""
    import torch

    gc.collect()
    torch.cuda.empty_cache()
    if cupy := sys.modules.get("cupy"):
        with cupy.cuda.Device(machine.device):
            cupy.get_default_memory_pool().free_all_blocks()


def out_of_memory(error: BaseException) -> bool:
    """Whether torch, CuPy, cuBLAS or the driver says that the card's memory is used up."""
    words = f"{type(error).__name__} {error}"
    return re.search("out.?of.?memory|ALLOC_FAILED", words, re.IGNORECASE) is not None


def memory_words(error: str, free: int) -> str:
    """One sentence for a want of memory: what was asked for, where the error says it, and free."""
    asked = re.search(r"(?:Tried to allocate|allocating) ([\d.,]+ \w+)", error)
    wanted = f"{asked[1]} asked for, " if asked else ""
    return (
        f"out of memory on the card: {wanted}{free:,} bytes free; choose a smaller --shape or free "
        "the card"
    )


def memory_needed(pair: Pair, shape: Shape, on_card: bool) -> int:
    """Bytes that a case takes at most: each input twice and the output, twice more for a probe; on
    a host the reference and its scales, float64, stand beside them."""
    cost = pair.cost(shape)
    return 4 * cost.read + 4 * cost.written + (0 if on_card else 12 * cost.written)


def memory_free(machine: Machine) -> int:
    """Free bytes of the card, or of the host where there is none."""
    if machine.on_card:
        import torch

        return torch.cuda.mem_get_info(machine.device)[0]
    if sys.platform == "linux":
        with open("/proc/meminfo", encoding="ascii") as lines:
            facts = dict(line.split(":") for line in lines)
        return 1024 * int(facts["MemAvailable"].split()[0])
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
