"""One launch of a kernel with every access looked at: what its threads did, and what was wrong."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .places import Places, extent, is_guard, lines_of, of_others, shared_symbols
from .run import STOPPED, EmulatedKernel

# The names and orders of diagnose.h.
KINDS = ("race", "unwritten", "outside", "misaligned", "diverged", "missed", "stray lane")
LOGGED = (
    "global read", "global write", "global atomic",
    "shared read", "shared write", "shared atomic", "barrier",
)  # fmt: skip
VERBS = ("reads", "writes", "adds to")
RECORD = np.dtype(
    [
        ("address", "u8"),
        ("pc", "u4"),
        ("interval", "u4"),
        ("thread", "u2"),
        ("kind", "u1"),
        ("bytes", "u1"),
    ],
    align=True,
)
REPORT = np.dtype(
    [("address", "i8"), ("kind", "u4"), ("count", "u4"), ("block", "u4")]
    + [("pc", "u4", 2), ("thread", "u2", 2), ("skipped", "u2", 2)]
    + [("access", "u1", 2), ("bytes", "u1", 2)],
    align=True,
)


@dataclass(frozen=True)
class Access:
    """One thread's part in a finding: the source line, and how often it had passed the barrier that
    was skipped (0 where none was)."""

    line: int
    thread: int
    verb: str = ""
    skipped: int = 0


@dataclass(frozen=True)
class Finding:
    """One thing that a kernel must not do, at its first place, `count` times in the launch.

    `first` came before `second` in this run; `second` is None where one thread is at fault. `place`
    is the element as C writes it, for example "scratch[128]"; `beyond` says what it is outside of.
    """

    kind: str
    block: int
    place: str
    first: Access
    second: Access | None = None
    count: int = 1
    beyond: str = ""

    def sentence(self) -> str:
        """What is wrong, with lines and threads."""
        a, b = self.first, self.second
        if self.kind == "race" and b is not None:
            return (
                f"race: line {a.line} (thread {a.thread}) {a.verb} {self.place}, line {b.line} "
                f"(thread {b.thread}) {b.verb} it, and no barrier between"
            )
        if self.kind == "diverged" and b is not None:
            return (
                f"divergent barrier: thread {a.thread} waits at line {a.line}, "
                f"thread {b.thread} at line {b.line}"
            )
        if self.kind == "missed" and b is not None:
            return (
                f"divergent barrier: thread {a.thread} waits at line {a.line}, "
                f"thread {b.thread} returned without it"
            )
        if self.kind == "stray lane" and b is not None:
            return (
                f"line {a.line} (thread {a.thread}) takes the value of thread {b.thread}, "
                "which is not part of the shuffle"
            )
        what = {
            "unwritten": "which no thread has written",
            "outside": f"outside {self.beyond}",
            "misaligned": "at an address that is no multiple of its size",
        }
        told = what.get(self.kind, "and waits for threads that never come")
        return f"line {a.line} (thread {a.thread}) {a.verb} {self.place}, {told}".replace(" ,", ",")


@dataclass(frozen=True)
class Trace:
    """What one launch did.

    `log` holds the accesses and barriers of one block in the order they ran, a numpy structured
    array: `kind` (an index into LOGGED), `line`, `thread`, `address` (of a barrier: which written
    one), `bytes`, `pc`, `interval` (block barriers released before it). `lost` counts what no
    longer fitted. `ended` is False where a finding stopped the launch.
    """

    findings: tuple[Finding, ...]
    log: np.ndarray
    lost: int
    ended: bool


def trace(
    source: str,
    name: str,
    grid: Sequence[int],
    block: Sequence[int],
    args: Sequence[Any],
    shared_mem: int = 0,
    *,
    label: str = "kernel.cu",
    options: Sequence[str] = (),
    skip_barrier: int = -1,
    logged_block: int = 0,
) -> Trace:
    """Runs kernel `name` of `source`, traced; the arrays in `args` are written as by any launch.

    KernelError: as EmulatedKernel, and where binutils (addr2line, readelf) is missing.
    """
    kernel = EmulatedKernel(source, name, label=label, options=options, traced=True)
    arrays = [extent(argument) for argument in args if isinstance(argument, np.ndarray)]
    symbols = shared_symbols(kernel.path, of_others(source, name))
    variables, guards = ([s[1:] for s in symbols if is_guard(s[0]) == i] for i in (False, True))
    kept = [addresses(part) for part in (arrays, variables, guards)]  # read while it runs
    counts, bases = (ctypes.c_longlong * 3)(), (ctypes.c_ulonglong * 3)()
    tables = (ctypes.c_void_p * 2)()
    library = kernel.library
    with kernel.lock:
        library.cuda_trace_begin(
            (ctypes.c_void_p * 3)(*map(ctypes.addressof, kept)),
            (ctypes.c_int * 3)(len(arrays), len(variables), len(guards)),
            ctypes.c_longlong(logged_block),
        )
        failure, where = kernel.launch(grid, block, args, shared_mem, skip_barrier)
        library.cuda_trace_end(counts, bases, tables)
        reports = table(tables[0], counts[0], REPORT)
        records = table(tables[1], counts[1], RECORD)
    places = Places(kernel, source, args, list(bases), shared_mem)
    is_access = records["kind"] < LOGGED.index("barrier")
    by_access = reports["kind"] < KINDS.index("diverged")
    by_access |= reports["kind"] == KINDS.index("stray lane")
    pcs = np.unique(np.concatenate([records["pc"][is_access], reports["pc"][by_access].ravel()]))
    lines = lines_of(kernel.path, pcs)
    log = with_lines(records, lines, is_access)
    findings = once([finding(report, lines, places) for report in reports])
    if failure and failure != STOPPED:
        findings.append(stuck(kernel, failure, where))
    return Trace(tuple(findings), log, int(counts[2]), ended=not failure)


def addresses(ranges: Sequence[tuple[int, int]]) -> ctypes.Array[ctypes.c_ulonglong]:
    """The ends of `ranges` one after another, as C wants them."""
    return (ctypes.c_ulonglong * (2 * len(ranges) + 1))(*(end for each in ranges for end in each))


def once(findings: Sequence[Finding]) -> list[Finding]:
    """`findings` with each kind and pair of lines once: one line may have several instructions."""
    first: dict[tuple[Any, ...], Finding] = {}
    for found in findings:
        key = found.kind, found.first.line, found.second and found.second.line
        count = first[key].count + found.count if key in first else found.count
        first[key] = replace(first.get(key, found), count=count)
    return list(first.values())


def stuck(kernel: EmulatedKernel, failure: int, where: list[int]) -> Finding:
    """A launch that could not go on, in the words of the call without a trace."""
    return Finding("stuck", where[2], kernel.failed(failure, where), Access(where[1], where[0]))


def with_lines(records: np.ndarray, lines: Mapping[int, int], is_access: np.ndarray) -> np.ndarray:
    """`records` with a source line each; a barrier's record holds its line already."""
    names = [name for name in RECORD.names or () if name]
    log = np.empty(len(records), [(name, RECORD[name]) for name in names] + [("line", "i4")])
    for name in names:
        log[name] = records[name]
    log["line"] = records["pc"]
    pcs, index = np.unique(records["pc"][is_access], return_inverse=True)
    log["line"][is_access] = np.array([lines[int(pc)] for pc in pcs], int)[index]
    return log


def finding(report: np.void, lines: Mapping[int, int], places: Places) -> Finding:
    kind = KINDS[report["kind"]]
    at_lines = kind in ("diverged", "missed")
    first, second = (
        Access(
            int(report["pc"][i]) if at_lines else lines[int(report["pc"][i])],
            int(report["thread"][i]),
            VERBS[report["access"][i]],
            int(report["skipped"][i]),
        )
        for i in (0, 1)
    )
    both = kind in ("race", "diverged", "missed", "stray lane")
    accessed = kind in ("race", "unwritten", "outside", "misaligned")
    address, size = int(report["address"]), int(report["bytes"][1])
    place = places.name(address, size) if accessed else ""
    beyond = places.beyond(address) if kind == "outside" else ""
    block, count = int(report["block"]), int(report["count"])
    return Finding(kind, block, place, first, second if both else None, count, beyond)


def table(address: int | None, count: int, kind: np.dtype) -> np.ndarray:
    """A copy of `count` C structs at `address`."""
    if not address or not count:
        return np.zeros(0, kind)
    return np.frombuffer(ctypes.string_at(address, count * kind.itemsize), kind)
