"""The verdict on an output: against its float64 reference, its counterpart, and exact answers.

Pure numpy on host arrays. NaN and infinities are compared first, as positions; what is left is held
against the bounds of its pair, element by element. A NaN where none belongs is beyond every bound.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from compare.accuracy.elements import buckets, flat, hex_bits, pieces, shares, ulp_distance, unfit
from compare.accuracy.walk import Walk
from compare.pair import Bound, Reference
from compare.results import Accuracy, Agreement, Check, Element


def judge(
    got: np.ndarray,
    reference: Reference,
    bounds: Sequence[Bound],
    counterpart: np.ndarray | None = None,
) -> Accuracy:
    """The whole verdict on one float32 output; `counterpart` only stands beside its elements."""
    value = reference.value
    reason = unfit(got, value.shape if reference.index is None else None)
    if not reason:
        try:
            got = reference.select(got)
        except IndexError:
            reason = f"the output has only {'x'.join(map(str, got.shape))} elements"
    reason = reason or unfit(got, value.shape)
    if reason:
        return _refused(reason, value.size)
    if counterpart is not None:
        counterpart = reference.select(counterpart)
    walk = Walk(got, value, bounds)
    with np.errstate(all="ignore"):
        for piece in pieces(value.size):
            walk.take(piece)
        checks = [walk.positions(), *walk.checks()]
        if reference.row_sums is not None and value.size:
            checks.append(_row_sums(got, reference.row_sums, bounds))
    gating = [check for check in checks if check.gates]
    element = walk.element(counterpart)
    return Accuracy(
        ok=all(check.passed for check in gating),
        error=_ratio(walk.max_abs, walk.max_ref),
        max_abs=walk.max_abs,
        frobenius=_ratio(math.sqrt(walk.square), math.sqrt(walk.square_ref)),
        share=max((c.share for c in gating if c.share is not None), default=0.0),
        checks=tuple(checks),
        reasons=tuple(f"{check.name}: {check.reason}" for check in gating if not check.passed),
        worst=element(walk.worst) if walk.worst is not None else None,
        faults=tuple(element(index) for index in walk.faults),
        fault_count=walk.fault_count,
        specials={name: count for name, count in walk.specials.items() if count},
        ulp=buckets(walk.ulp),
        max_ulp=walk.max_ulp,
        covered=value.size,
    )


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else (0.0 if part == 0 else math.inf)


def _refused(reason: str, size: int) -> Accuracy:
    check = Check("shape and dtype", False, reason=reason)
    inf = math.inf
    return Accuracy(False, inf, inf, inf, inf, (check,), (reason,), fault_count=size)


def _row_sums(got: np.ndarray, want: np.ndarray, bounds: Sequence[Bound]) -> Check:
    """Rows whose sum is promised: off by no more than the sum of their elements' bounds."""
    name = "row sums"
    formula = "|sum of got - sum of ref| <= sum of the elements' bounds"
    allowed = np.zeros_like(want)
    if gating := [bound.allowed for bound in bounds if bound.gates]:
        allowed = np.broadcast_to(gating[0], got.shape).sum(axis=1)
    off = got.sum(axis=1, dtype=np.float64) - want
    distance = np.abs(off)
    distance[~np.isfinite(want)] = 0  # a row that holds NaN is judged by its elements alone
    share = shares(distance, allowed)
    worst = int(share.argmax())
    passed = bool(share[worst] <= 1)
    reason = ""
    if not passed:
        by = distance[worst]
        way = f"too {'large' if off[worst] > 0 else 'small'} by {by:.3g}"
        reason = (
            f"{int((share > 1).sum()):,} of {want.size:,} rows, the worst is row {worst}, "
            f"{'NaN' if math.isnan(by) else way}, allowed {allowed[worst]:.3g}"
        )
    return Check(name, passed, float(share[worst]), reason, formula, "the triangle inequality")


def agree(
    counterpart: str,
    got: np.ndarray,
    other: np.ndarray,
    reference: Reference,
    bounds: Sequence[Bound],
    other_bounds: Sequence[Bound],
) -> Agreement:
    """Two outputs held against each other: `identical`, `within tolerance` or `differ`.

    Two NaN are equal whatever their bits; zeros of different sign are not. Within tolerance is
    |got - other| <= the sum of both sides' tightest gating bounds, over the part that the reference
    covers, with NaN and infinities in the same places (or where the order of adding decides).
    """
    if reason := unfit(got, None) or unfit(other, got.shape):
        raise ValueError(f"outputs can't be compared with {counterpart}: {reason}")
    one, two = flat(got, got.shape), flat(other, got.shape)
    equal, max_ulp, first = 0, 0, None
    for piece in pieces(one.size):
        a, b = one[piece], two[piece]
        unlike = a.view(np.int32) != b.view(np.int32)
        if not unlike.any():
            equal += a.size
            continue
        unlike &= ~(np.isnan(a) & np.isnan(b))
        equal += a.size - int(unlike.sum())
        if first is None and unlike.any():
            first = piece.start + int(unlike.argmax())
        finite = np.isfinite(a) & np.isfinite(b) & unlike
        if finite.any():
            max_ulp = max(max_ulp, int(ulp_distance(a[finite], b[finite]).max()))
    share = 0.0 if first is None else _triangle(got, other, reference, bounds, other_bounds)
    verdict = "identical" if first is None else "within tolerance" if share <= 1 else "differ"
    element = None
    if first is not None:
        index = tuple(int(i) for i in np.unravel_index(first, got.shape))
        mine, theirs = float(one[first]), float(two[first])
        element = Element(index, mine, theirs, math.nan, hex_bits(mine), hex_bits(theirs))
    return Agreement(counterpart, verdict, equal, one.size, max_ulp, share, element)


def _triangle(
    got: np.ndarray,
    other: np.ndarray,
    reference: Reference,
    bounds: Sequence[Bound],
    other_bounds: Sequence[Bound],
) -> float:
    """The largest |got - other| / (allowed + other's allowed)."""
    shape = reference.value.shape
    one, two = (flat(reference.select(array), shape) for array in (got, other))
    sides = [[b for b in side if b.gates] for side in (bounds, other_bounds)]
    if not all(sides):
        return math.inf
    allowed = [[flat(b.allowed, shape) for b in side] for side in sides]
    masks = [flat(b.undecided, shape) for side in sides for b in side if b.undecided is not None]
    largest = 0.0
    with np.errstate(all="ignore"):
        for piece in pieces(one.size):
            a, b = one[piece], two[piece]
            distance = np.abs(a.astype(np.float64) - b)
            if not math.isfinite(distance.max()):
                same = (a == b) | (np.isnan(a) & np.isnan(b))
                for mask in masks:
                    same |= mask[piece] & ~(np.isfinite(a) & np.isfinite(b))
                distance[same] = 0
                distance[np.isnan(distance)] = np.inf
            limit = np.zeros_like(distance)
            for side in allowed:
                limit += np.minimum.reduce([array[piece] for array in side])
            largest = max(largest, float(shares(distance, limit).max()))
    return largest


def exact(got: np.ndarray, want: np.ndarray, name: str) -> Check:
    """A probe's answer: every element equal to the float32 `want`; only the sign of a zero is free,
    since a sum of zeros has the sign that its order gives it."""
    formula, source = "got = want, bit for bit", "no operation of the probe rounds"
    reason = unfit(got, want.shape)
    if not reason:
        unlike = got != want
        if not unlike.any():
            return Check(name, True, 0.0, "", formula, source)
        index = tuple(int(i) for i in np.unravel_index(int(unlike.argmax()), want.shape))
        reason = (
            f"{int(unlike.sum()):,} of {want.size:,} elements, first at {index}: got "
            f"{float(got[index]):.9g}, want {float(want[index]):.9g}"
        )
    return Check(name, False, math.inf, reason, formula, source)
