"""One block of a CUDA kernel, run on the emulator with every access looked at.

The launch is the launcher's own, cut to its first block: what that block's threads read, wrote and
waited for. Nothing here needs a card; it needs a C++ compiler and binutils.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from compare.compiled.compilers import watch_cuda
from compare.pair import Implementation

SHARED = "shared"  # the array's name where an access is of shared memory
OUTPUT = "output"  # and of the launcher's last array; the inputs are "input 0", "input 1" ..


@dataclass(frozen=True)
class Block:
    """What the first block of a launch did.

    `log` has one record an access or a wait, in the order they ran: `kind` ("global read", "global
    write", "shared read", "shared write", "barrier" ..), `thread`, `line` of the source, `interval`
    (the block's barriers before it), `array` and `element`, which counts from the array's start; in
    shared memory it counts four bytes each from the lowest address that was touched.
    """

    file: str
    kernel: str
    threads: int
    log: np.ndarray


def run(
    implementation: Implementation,
    arrays: Sequence[np.ndarray],
    *,
    source: str = "",
    block: Sequence[int] = (),
) -> Block:
    """Runs the first block of what `implementation` launches on `arrays` (inputs, then output).

    `source` replaces the kernel's file and `block` its size, for a kernel cut to what can be seen.
    KernelError where this machine can't; ValueError where nothing was launched.
    """
    from cuda_ref.emulator.trace import LOGGED, trace

    with watch_cuda(dry=True) as seen:
        implementation.function()(*arrays, **implementation.options)
    if not seen:
        raise ValueError(f"{implementation.name} launches nothing at this shape")
    launch, path = seen[0], Path(seen[0].file)
    block = tuple(block) or launch.block
    found = trace(
        source or path.read_text(encoding="utf-8"),
        launch.name,
        (1,),
        block,
        launch.args,
        launch.shared_mem,
        label=path.name,
        options=launch.options,
    )
    log = _named(found.log, np.array(LOGGED, object), arrays, launch.args)
    return Block(path.name, launch.name, int(np.prod(block)), log)


def counts(block: Block) -> Mapping[str, int]:
    """Executed by the block's threads together; of barriers, by each thread."""
    kinds, numbers = np.unique(block.log["kind"].astype(str), return_counts=True)
    found = {str(kind): int(number) for kind, number in zip(kinds, numbers, strict=True)}
    waits = found.pop("barrier", 0) // block.threads
    return {"barriers, each thread": waits} | {f"{kind}s": n for kind, n in found.items()}


def who(block: Block, kind: str, array: str, element: int) -> int | None:
    """The first thread with such an access, None where there is none."""
    log = block.log
    chosen = (log["kind"] == kind) & (log["array"] == array) & (log["element"] == element)
    threads = log["thread"][chosen]
    return int(threads[0]) if threads.size else None


def barriers(block: Block) -> list[tuple[int, int]]:
    """The written barriers of the block: (line, how often a thread runs it), by line."""
    lines = block.log["line"][block.log["kind"] == "barrier"]
    found, ran = np.unique(lines, return_counts=True)
    return [
        (int(line), int(number) // block.threads) for line, number in zip(found, ran, strict=True)
    ]


def _named(
    records: np.ndarray, kinds: np.ndarray, arrays: Sequence[np.ndarray], args: Sequence[Any]
) -> np.ndarray:
    """The emulator's records, with the array and the element of every address."""
    fields: list[Any] = [("kind", object), ("array", object)]
    fields += [(name, "i8") for name in ("thread", "line", "interval", "element")]
    log = np.zeros(len(records), fields)
    log["kind"], log["array"] = kinds[records["kind"]], ""
    for name in ("thread", "line", "interval"):
        log[name] = records[name]
    address = records["address"].astype(np.int64)
    is_shared = np.array([str(kind).startswith("shared") for kind in kinds])[records["kind"]]
    is_global = np.array([str(kind).startswith("global") for kind in kinds])[records["kind"]]
    for argument in args:
        if isinstance(argument, np.ndarray):
            first = argument.ctypes.data
            inside = is_global & (first <= address) & (address < first + argument.nbytes)
            log["array"][inside] = _name_of(argument, arrays)
            log["element"][inside] = (address[inside] - first) // argument.itemsize
    if is_shared.any():
        log["array"][is_shared] = SHARED
        log["element"][is_shared] = (address[is_shared] - address[is_shared].min()) // 4
    return log


def _name_of(argument: np.ndarray, arrays: Sequence[np.ndarray]) -> str:
    for index, array in enumerate(arrays):
        if np.shares_memory(argument, array):
            return OUTPUT if index == len(arrays) - 1 else f"input {index}"
    return "another"
