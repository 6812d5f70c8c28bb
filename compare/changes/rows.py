"""What changed in one implementation: verdict, output bits, machine code, error and time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from compare.accuracy.elements import ulp_distance
from compare.results import Case, Row

KINDS = ("bits", "code", "error", "time")
COPY = "device copy"
# Two processes place their buffers elsewhere, and that alone moved a kernel by up to 2.6 % on an
# H200 (six copies of one kernel, each with an output of its own). Nothing below it is told.
PLACE = 0.03
WORSE_ERROR = 1.01  # an error that grew by less is the same
NUMBERS = ("registers", "stack", "shared", "instructions", "threads")
HASHES = ("sha",)
Outputs = Callable[[str], np.ndarray | None]  # sha256 -> the output, where it is at hand


@dataclass(frozen=True)
class Change:
    """One thing about an implementation. `moved` where it is not as before; `worse` where that
    counts towards the exit code, if its kind was asked for."""

    kind: str  # of KINDS, or "verdict"
    what: str
    before: str
    after: str
    said: str
    moved: bool = True
    worse: bool = True


def verdict_change(old: Row, new: Row) -> Change | None:
    right = [row.accuracy is None or row.accuracy.ok for row in (old, new)]
    if right[0] == right[1]:
        return None
    was, now = ("right" if ok else "WRONG" for ok in right)
    return Change("verdict", "verdict", was, now, "MENDED" if right[1] else "BROKEN", worse=False)


def unsteady(row: Row) -> bool:
    return any(note.startswith("not deterministic") for note in row.notes)


def bits_change(old: Row, new: Row, outputs: Outputs = lambda sha: None) -> Change | None:
    """The output's bits by their hash; elements are counted where both outputs are at hand."""
    if not old.output or not new.output:
        return None
    cells = old.output[:4], new.output[:4]
    if old.output == new.output:
        return Change("bits", "output bits", *cells, "same", moved=False)
    if unsteady(old) and unsteady(new):
        said = "not deterministic, neither before nor after"
        return Change("bits", "output bits", *cells, said, moved=False)
    arrays = outputs(old.output), outputs(new.output)
    if arrays[0] is not None and arrays[1] is not None and arrays[0].shape == arrays[1].shape:
        return Change("bits", "output bits", *cells, counted(arrays[0], arrays[1]))
    return Change("bits", "output bits", *cells, f"CHANGED{known_of_bits(old, new)}")


def counted(old: np.ndarray, new: np.ndarray) -> str:
    """`CHANGED, 41 % equal, 3 ULP at most`, of two float32 outputs."""
    unlike = old.view(np.int32) != new.view(np.int32)
    count, total = int(unlike.sum()), old.size
    finite = unlike & np.isfinite(old) & np.isfinite(new)
    far = int(ulp_distance(old[finite], new[finite]).max()) if finite.any() else 0
    share = f"{count:,} of {total:,} elements"
    if count > total // 1000:
        share = f"{100 * (total - count) / total:.3g} % equal"
    return f"CHANGED: {share}, {far} ULP at most"


def known_of_bits(old: Row, new: Row) -> str:
    """What two reports without outputs can still say: a share that holds for certain.

    Each changed element leaves at most one class of distance from the reference and enters one, so
    at least half of what the classes gained and lost together has changed.
    """
    if old.accuracy is None or new.accuracy is None:
        return ""
    one, two = old.accuracy.ulp, new.accuracy.ulp
    least = sum(abs(one.get(k, 0) - two.get(k, 0)) for k in {*one, *two}) // 2
    total = sum(one.values())
    return f": {least:,} of {total:,} elements at least" if least and total else ""


def error_change(old: Row, new: Row) -> Change | None:
    """max |got - ref| / max |ref|, where the bits moved it."""
    if old.accuracy is None or new.accuracy is None:
        return None
    before, after = old.accuracy.error, new.accuracy.error
    if not (math.isfinite(before) and math.isfinite(after)):
        return None
    cells = f"{before:.1e}", f"{after:.1e}"
    if before == after:
        return None
    grew, fell = after > WORSE_ERROR * before, before > WORSE_ERROR * after
    said = "within tolerance" if new.accuracy.ok else "BEYOND TOLERANCE"
    said = f"{'larger, ' if grew else 'smaller, ' if fell else ''}{said}"
    return Change("error", "error", *cells, said, moved=grew or fell, worse=grew)


def code_change(old: Mapping[str, Any], new: Mapping[str, Any]) -> Change | None:
    """Machine code of all kernels that an implementation launches, as `results.Row.code` has it."""
    if not old or not new:
        return None
    moves = [move for kernel in old if kernel in new for move in numbers(old[kernel], new[kernel])]
    for kernels, side in (
        ([k for k in old if k not in new], "gone"),
        ([k for k in new if k not in old], "new"),
    ):
        moves += [(f"kernel {kernel}", side, "") for kernel in kernels]
    hashes = [
        [facts.get(name, "") for facts in side.values() for name in HASHES] for side in (old, new)
    ]
    was, now = ((each[0] if each else "")[:4] for each in hashes)
    if moves:
        said = ", ".join(f"{name} {a} -> {b}" if b else f"{name} {a}" for name, a, b in moves)
        return Change("code", "machine code", was, now, said)
    if hashes[0] == hashes[1]:
        return Change("code", "machine code", was, now, "same", moved=False)
    return Change("code", "machine code", was, now, "other instructions, the same counts")


def numbers(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """What differs between two `compilers.Code` in plain values: name, before, after."""
    for name in NUMBERS:
        if name in old and name in new and old[name] != new[name]:
            yield "spilled bytes" if name == "stack" else name, f"{old[name]:,}", f"{new[name]:,}"
    one, two = (side.get("counts", {}) for side in (old, new))
    for name in dict.fromkeys((*one, *two)):
        if one.get(name, 0) != two.get(name, 0):
            yield name, f"{one.get(name, 0):,}", f"{two.get(name, 0):,}"


@dataclass(frozen=True)
class Relative:
    """Time of one row / time of a yardstick, and how far it may be off, as |log|."""

    value: float
    slack: float


def relative(case: Case, name: str, yardstick: str, state: str) -> Relative | None:
    """The recorded ratio with its interval, else that of the two times; None without them."""
    floor = getattr(case.clock, f"floor_{state}", None) or 0.0
    for ratio in case.ratios:
        if (ratio.name, ratio.against, ratio.state) == (name, yardstick, state):
            return Relative(ratio.value, floor + math.log(ratio.high / ratio.low) / 2)
    rows = case.row(name), case.row(yardstick)
    samples = [getattr(row.timing, state) if row and row.timing else None for row in rows]
    if samples[0] is None or samples[1] is None:
        return None
    return Relative(samples[0].us / samples[1].us, floor)


def yardsticks(case: Case, name: str) -> list[str]:
    """The device copy and the libraries of the same recording."""
    library = [row.name for row in case.rows if row.language == "library"]
    return [other for other in (COPY, *library) if other != name and case.row(other)]


def time_change(old: Case, new: Case, name: str, spread: float | None = None) -> Change | None:
    """Time beyond both recordings' noise, against every yardstick that both have, or SAME.

    A yardstick that itself became slower moves its own ratio alone; so all must agree.
    """
    for state in ("cold", "warm"):
        shifts = []
        for other in yardsticks(new, name):
            one, two = (relative(case, name, other, state) for case in (old, new))
            if one and two:
                limit = max(PLACE if spread is None else spread, one.slack + two.slack)
                shifts.append((other, one, two, math.log(two.value / one.value), limit))
        if shifts:
            break
    else:
        return None
    other, one, two, shift, limit = shifts[0]
    cells = f"{one.value:.3g}", f"{two.value:.3g}"
    what = f"time / {short(new, other)}" + ("" if state == "cold" else ", warm")
    floor = f"(floor {100 * math.expm1(limit):.1f} %)"
    if all(move > most for *_, move, most in shifts):
        return Change("time", what, *cells, f"SLOWER by {100 * math.expm1(shift):.0f} % {floor}")
    if all(move < -most for *_, move, most in shifts):
        said = f"FASTER by {-100 * math.expm1(shift):.0f} % {floor}"
        return Change("time", what, *cells, said, worse=False)
    return Change("time", what, *cells, f"SAME {floor}", moved=False, worse=False)


def short(case: Case, name: str) -> str:
    row = case.row(name)
    return {"device copy": "copy"}.get(name, "cuBLAS" if row and row.label == "cublas" else name)
