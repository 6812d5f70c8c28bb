"""What every CUDA thread did, and what each barrier is for: a .cu text on the emulator, traced.

Takes a source, a launch and data; returns plain results and knows no pair. Counts are of the first
block. A barrier is studied by passing through it: the rest of the kernel stays as it is, so what
collides then is what the barrier kept apart. Sectors are the 32-byte pieces that a warp's access
touches; a bank conflict is a second pass over the 32 banks of shared memory, 4 bytes wide each.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cuda_ref.emulator.build import without_comments
from cuda_ref.emulator.places import extent
from cuda_ref.emulator.trace import LOGGED, Finding, Trace, trace

WARP = 32
SECTOR = 32  # bytes
BANKS = 32  # each 4 bytes wide


@dataclass(frozen=True)
class Data:
    """One kind of input: fresh arguments for a launch, and how many of `rows` came out wrong."""

    name: str
    arguments: Callable[[], tuple[Any, ...]]
    rows: int
    wrong: Callable[[tuple[Any, ...]], int]


@dataclass(frozen=True)
class Count:
    """One kind of action in the first block: in sum, of its first and last thread, on average."""

    what: str  # a name of LOGGED
    total: int
    first: int
    last: int
    mean: float


@dataclass(frozen=True)
class WarpAccess:
    """The accesses of whole warps at one line: what they took and what would have been enough.

    `cost` and `fewest` are sectors (global) or passes over the banks (shared), per access.
    """

    what: str
    line: int
    bytes: int  # a thread
    accesses: int
    lanes: float  # on average
    cost: float
    fewest: float


@dataclass(frozen=True)
class Barrier:
    """One written __syncthreads(): how often thread 0 ran it, what happens when it is not there.

    `collisions` are findings that the kernel as it stands does not have; `wrong` counts rows for
    each kind of data. `ended` is False where the launch could not go on.
    """

    line: int
    runs: int
    collisions: tuple[Finding, ...]
    wrong: tuple[int, ...]
    ended: bool = True


@dataclass(frozen=True)
class Study:
    """All that the screen `threads` shows."""

    label: str
    kernel: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    unit: str  # what one block owns, in words
    counts: tuple[Count, ...]
    accesses: tuple[WarpAccess, ...]
    lost: int  # accesses of the first block that the log had no room for
    findings: tuple[Finding, ...]  # of the kernel as it stands
    ended: bool
    data: tuple[str, ...]
    rows: tuple[int, ...]
    wrong: tuple[int, ...]  # of the kernel as it stands
    barriers: tuple[Barrier, ...]

    @property
    def clean(self) -> bool:
        """Whether the kernel as it stands has nothing against it."""
        return not self.findings and not any(self.wrong)


def study(
    source: str,
    kernel: str,
    grid: Sequence[int],
    block: Sequence[int],
    data: Sequence[Data],
    *,
    shared_mem: int = 0,
    label: str = "kernel.cu",
    options: Sequence[str] = (),
    unit: str = "the first block",
) -> Study:
    """Traces the kernel as it stands, then without each of its barriers, on every kind of data.

    Findings are looked for on all of `data`. KernelError: as `trace`.
    """

    def run(skip: int) -> tuple[list[Trace], tuple[int, ...]]:
        traces, wrong = [], []
        for kind in data:
            args = placed(kind.arguments())
            traces.append(
                trace(
                    source,
                    kernel,
                    grid,
                    block,
                    args,
                    shared_mem,
                    label=label,
                    options=options,
                    skip_barrier=skip,
                )
            )
            wrong.append(kind.wrong(args))
        return traces, tuple(wrong)

    traces, wrong = run(-1)
    findings, log = distinct(traces), traces[0].log
    ended = all(one.ended for one in traces)
    known = {signature(finding) for finding in findings}
    barriers = []
    for index, line in enumerate(barrier_lines(source, log) if ended else ()):
        without, wrong_without = run(index)
        new = tuple(f for f in distinct(without) if signature(f) not in known)
        runs = int(((log["kind"] == BARRIER) & (log["address"] == index) & first(log)).sum())
        end = all(one.ended for one in without)
        barriers.append(Barrier(line, runs, new, wrong_without, end))
    return Study(
        label,
        kernel,
        tuple(grid),
        tuple(block),
        unit,
        counts(log, math.prod(block)),
        warp_accesses(log),
        traces[0].lost,
        findings,
        ended,
        tuple(kind.name for kind in data),
        tuple(kind.rows for kind in data),
        wrong,
        tuple(barriers),
    )


def placed(args: Sequence[Any]) -> tuple[Any, ...]:
    """`args` with every array copied to a multiple of 256 bytes, where a card's allocator puts it.

    Shapes and strides are kept, and an array that is passed twice stays one.
    """
    copies: dict[int, np.ndarray] = {}
    for array in args:
        if isinstance(array, np.ndarray) and id(array) not in copies:
            first, last = extent(array)
            room = np.empty(last - first + 256, np.uint8)
            offset = -room.ctypes.data % 256 + array.ctypes.data - first
            copy = np.ndarray(array.shape, array.dtype, room.data, offset, array.strides)
            copy[...] = array
            copies[id(array)] = copy
    return tuple(copies.get(id(argument), argument) for argument in args)


BARRIER = LOGGED.index("barrier")


def first(log: np.ndarray) -> np.ndarray:
    return log["thread"] == 0


def signature(finding: Finding) -> tuple[Any, ...]:
    """What makes two findings the same one: the kind and the lines."""
    return finding.kind, finding.first.line, finding.second and finding.second.line


def distinct(traces: Sequence[Trace]) -> tuple[Finding, ...]:
    """The findings of several launches, each kind and pair of lines once, in order.

    A read of what nobody has written yet is left out where the same line has a race: the race says
    which write it should have waited for.
    """
    found: dict[tuple[Any, ...], Finding] = {}
    for one in traces:
        for finding in one.findings:
            found.setdefault(signature(finding), finding)
    raced = {f.first.line for f in found.values() if f.kind == "race"}
    raced |= {f.second.line for f in found.values() if f.kind == "race" and f.second}
    return tuple(f for f in found.values() if f.kind != "unwritten" or f.first.line not in raced)


def barrier_lines(source: str, log: np.ndarray) -> list[int]:
    """The line of each written __syncthreads(): as it ran, else as the text has it."""
    text = without_comments(source)
    written = [
        text.count("\n", 0, m.start()) + 1 for m in re.finditer(r"\b__syncthreads\s*\(", text)
    ]
    ran = log[log["kind"] == BARRIER]
    for index, line in zip(ran["address"].tolist(), ran["line"].tolist(), strict=True):
        written += [0] * (index + 1 - len(written))
        written[index] = line
    return written


def counts(log: np.ndarray, threads: int) -> tuple[Count, ...]:
    """How often each thread of the first block did each kind of thing; what never happens is out,
    but for plain reads and writes and barriers."""
    always = ("global read", "global write", "shared read", "shared write", "barrier")
    result = []
    for code, what in enumerate(LOGGED):
        each = np.bincount(log["thread"][log["kind"] == code], minlength=threads)
        if each.any() or what in always:
            total = int(each.sum())
            result.append(Count(what, total, int(each[0]), int(each[-1]), total / threads))
    return tuple(result)


def warp_accesses(log: np.ndarray) -> tuple[WarpAccess, ...]:
    """Every line's global and shared accesses, put together warp by warp.

    The lanes of one access are those at the same instruction for the same time, as when a warp runs
    in step.
    """
    log = log[log["kind"] != BARRIER]
    if not log.size:
        return ()
    turn = occurrence(log)
    warp = log["thread"] // WARP
    order = np.lexsort((log["thread"], turn, warp, log["pc"]))
    log, turn, warp = log[order], turn[order], warp[order]
    keys = np.stack([log["pc"], warp, turn], axis=1)
    starts = np.flatnonzero(np.r_[True, (keys[1:] != keys[:-1]).any(axis=1)])
    found: dict[tuple[str, int, int], list[tuple[int, int, int]]] = {}
    for lanes in np.split(log, starts[1:]):
        what, size = LOGGED[lanes["kind"][0]], int(lanes["bytes"][0])
        cost = sectors(lanes) if what.startswith("global") else passes(lanes)
        found.setdefault((what, int(lanes["line"][0]), size), []).append((len(lanes), *cost))
    return tuple(
        WarpAccess(what, line, size, len(each), *(float(v) for v in np.mean(each, axis=0)))
        for (what, line, size), each in sorted(found.items(), key=lambda item: item[0][1])
    )


def occurrence(log: np.ndarray) -> np.ndarray:
    """For each record, how often its thread was at its instruction before."""
    order = np.lexsort((np.arange(log.size), log["thread"], log["pc"]))
    pc, thread = log["pc"][order], log["thread"][order]
    new = np.r_[True, (pc[1:] != pc[:-1]) | (thread[1:] != thread[:-1])]
    start = np.maximum.accumulate(np.where(new, np.arange(log.size), 0))
    result = np.empty(log.size, np.int64)
    result[order] = np.arange(log.size) - start
    return result


def sectors(lanes: np.ndarray) -> tuple[int, int]:
    """The 32-byte sectors that one warp's access touches, and the fewest that could hold it."""
    size = lanes["bytes"][0]
    firsts = np.unique(lanes["address"])
    touched = np.unique(np.r_[firsts // SECTOR, (firsts + np.uint64(size - 1)) // SECTOR])
    return len(touched), -(-len(firsts) * int(size) // SECTOR)


def passes(lanes: np.ndarray) -> tuple[int, int]:
    """How often one warp's access goes over the banks of shared memory, and the fewest.

    Lanes that read one word share a pass. 8 bytes a lane move by half warps, 16 by quarters.
    """
    words = max(1, int(lanes["bytes"][0]) // 4)
    part = lanes["thread"] % WARP // (WARP // words)
    total = 0
    for group in np.unique(part):
        base = lanes["address"][part == group] // 4
        touched = np.unique(np.concatenate([base + np.uint64(i) for i in range(words)]))
        total += int(np.bincount((touched % BANKS).astype(np.int64)).max())
    return total, len(np.unique(part))
