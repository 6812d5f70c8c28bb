"""Why the same kernel has many times: one launch, timed in every usual way, each explained."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from compare.results import Rung, Sample
from compare.timing import Launch, measure
from compare.timing.peaks import CardFacts

ISSUES = 300  # calls whose mean is the host's time: fewer than the driver's queue holds


def explain(
    launch: Launch,
    *,
    card: CardFacts,
    bytes_touched: int,
    bytes_moved: int,
    first_call_s: float | None = None,
    seed: int = 0,
) -> tuple[Rung, ...]:
    """The ladder of one launch, on the current stream. `first_call_s` is what its first call in
    this process took, where that was measured."""
    from compare.timing import empty
    from compare.timing.recorder import GraphRecorder

    empties = [Launch(f"empty {name}", call) for name, call in empty.launchers().items()]
    time_all = partial(measure, pairs=(), card=card, seed=seed)
    timings = time_all([launch], bytes_touched=bytes_touched, bytes_moved=bytes_moved).timings
    alone = timings[launch.name]
    nothing = time_all(empties, bytes_touched=0, bytes_moved=0).timings
    graph = GraphRecorder(card, "")
    graphs = time_all([launch], bytes_touched=0, bytes_moved=0, recorder=graph).timings[launch.name]
    rungs = [
        of(alone.cold, alone.no_cold, "device, cold", "the kernel alone, inputs in DRAM"),
        of(alone.warm, alone.no_warm, "device, warm", "the kernel alone, inputs in L2"),
        of(graphs.warm, graphs.no_warm, "CUDA graph", "launches back to back: adds the gaps"),
        Rung(
            "do_bench",
            bench(launch.call),
            "events around a cold launch: adds the events and what the queue waits for the host",
        ),
        Rung(
            "host issue",
            issue(launch.call),
            "Python to queue: hidden while the device is busy, the whole time when it is not",
        ),
    ]
    for each in empties:
        warm, no_warm = nothing[each.name].warm, nothing[each.name].no_warm
        rungs.append(
            of(warm, no_warm, each.name, "one block that does nothing: the device's floor")
        )
        rungs.append(
            Rung(
                f"{each.name}, host", issue(each.call), "what its launcher costs without arguments"
            )
        )
    if first_call_s is not None:
        why = "compiling or loading the kernel, once a process"
        rungs.append(Rung("first call", 1e6 * first_call_s, why))
    return tuple(rungs)


def of(sample: Sample | None, reason: str, name: str, why: str) -> Rung:
    return Rung(name, None, reason) if sample is None else Rung(name, sample.us, why)


def issue(call: Callable[[], Any]) -> float:
    """Host time of one call, us: from Python to the queue, the device not waited for."""
    import torch

    torch.cuda.synchronize()
    started = time.perf_counter()
    for _ in range(ISSUES):
        call()
    spent = time.perf_counter() - started
    torch.cuda.synchronize()
    return 1e6 * spent / ISSUES


def bench(call: Callable[[], Any]) -> float:
    """Median of triton.testing.do_bench, us."""
    from triton.testing import do_bench

    return 1000 * float(do_bench(call, return_mode="median"))
