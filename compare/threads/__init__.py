"""What every CUDA thread did, and what each barrier is for: a .cu text on the emulator, traced.

Takes a source, a launch and data; returns plain results and knows no pair. Counts are of the first
block. A barrier is studied by passing through it: the rest of the kernel stays as it is, so what
collides then is what the barrier kept apart.
"""

from __future__ import annotations

import ctypes
import math
import mmap
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from compare.threads.warps import BARRIER, WarpAccess, warp_accesses
from cuda_ref.emulator.build import without_comments
from cuda_ref.emulator.places import extent
from cuda_ref.emulator.trace import LOGGED, Finding, Trace, trace


@dataclass(frozen=True)
class Tally:
    """How many of the output's rows came out wrong; `wrong` is None where `why` it is not known."""

    wrong: int | None
    of: int
    what: str = "rows wrong"  # or "elements wrong"; "changed" where nobody knows the right answer
    why: str = ""

    def words(self) -> str:
        return "." if self.wrong is None else f"{self.wrong:,}"


@dataclass(frozen=True)
class Data:
    """One kind of input: fresh arguments for a launch, and a tally of what the launch left there.

    A tally against the first run, the kernel as it stands, means nothing where that had a fault;
    `first_run` then says why it is not known. "" where the tally is against a right answer.
    """

    name: str
    arguments: Callable[[], tuple[Any, ...]]
    tally: Callable[[tuple[Any, ...]], Tally]
    first_run: str = ""


@dataclass(frozen=True)
class Count:
    """One kind of action in the first block: in sum, of its first and last thread, on average."""

    what: str  # a name of LOGGED
    total: int
    first: int
    last: int
    mean: float


@dataclass(frozen=True)
class Barrier:
    """One written __syncthreads(): how often thread 0 ran it, what happens when it is not there.

    `collisions` are findings that the kernel as it stands does not have; there is a tally for each
    kind of data. `ended` is False where the launch could not go on.
    """

    line: int
    runs: int
    collisions: tuple[Finding, ...]
    tallies: tuple[Tally, ...]
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
    tallies: tuple[Tally, ...]  # of the kernel as it stands
    barriers: tuple[Barrier, ...]

    @property
    def clean(self) -> bool:
        """Whether the kernel as it stands has nothing against it."""
        return not self.findings and not any(tally.wrong for tally in self.tallies)


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

    def run(skip: int) -> tuple[list[Trace], tuple[Tally, ...]]:
        traces, tallies = [], []
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
            tallies.append(kind.tally(args))
        return traces, tuple(tallies)

    def known(tallies: Sequence[Tally]) -> tuple[Tally, ...]:
        return tuple(
            replace(tally, wrong=None, why=kind.first_run) if findings and kind.first_run else tally
            for kind, tally in zip(data, tallies, strict=True)
        )

    traces, tallies = run(-1)
    findings, log = distinct(traces), traces[0].log
    ended = all(one.ended for one in traces)
    old = {signature(finding) for finding in findings}
    barriers = []
    for index, line in enumerate(barrier_lines(source, log) if ended else ()):
        without, tallies_without = run(index)
        new = tuple(f for f in distinct(without) if signature(f) not in old)
        runs = int(((log["kind"] == BARRIER) & (log["address"] == index) & first(log)).sum())
        end = all(one.ended for one in without)
        barriers.append(Barrier(line, runs, new, known(tallies_without), end))
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
        known(tallies),
        tuple(barriers),
    )


def placed(args: Sequence[Any]) -> tuple[Any, ...]:
    """`args` with all memory copied to the start of a page, aligned as a card's allocator does it.

    What is copied is the array that owns the memory: a view keeps its offset in it, its shape and
    its strides, and two views of one array still share their bytes. Pages of their own lie far from
    shared memory: the array nearest to an access outside is the one that was meant.
    """
    arrays = {id(a): a for a in args if isinstance(a, np.ndarray)}
    rooms = [
        (first, last, room_of(first, last))
        for first, last in spans(each for a in arrays.values() for each in (a, owner(a)))
    ]
    copies: dict[int, np.ndarray] = {}
    for key, array in arrays.items():
        low, high = extent(array)
        start, room = next((f, room) for f, last, room in rooms if f <= low and high <= last)
        offset = array.ctypes.data - start
        copies[key] = np.ndarray(array.shape, array.dtype, room, offset, array.strides)
    return tuple(copies.get(id(argument), argument) for argument in args)


def owner(array: np.ndarray) -> np.ndarray:
    """The array at the root of the views that `array` is one of."""
    root, base = array, array.base
    while base is not None:
        root = base if isinstance(base, np.ndarray) else root
        base = getattr(base, "base", None)
    return root


def spans(arrays: Iterable[np.ndarray]) -> list[tuple[int, int]]:
    """The memory of `arrays`, first byte and the one after the last; what shares a byte is one."""
    found: list[tuple[int, int]] = []
    for first, last in sorted(map(extent, arrays)):
        if found and first < found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], last)
        else:
            found.append((first, last))
    return found


def room_of(first: int, last: int) -> mmap.mmap:
    """Pages that start with a copy of the bytes from `first` up to `last`."""
    room = mmap.mmap(-1, max(1, last - first))
    room.write(ctypes.string_at(first, last - first))
    return room


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
