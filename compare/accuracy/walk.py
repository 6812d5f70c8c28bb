"""One way through an output, piece by piece: everything that a verdict needs to know of it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from compare.accuracy.elements import bucket_counts, flat, hex_bits, shares, ulp_distance
from compare.pair import Bound
from compare.results import Check, Element

FAULTS = 5  # how many faulty elements are kept


class Walk:
    """What is gathered on the way through an output, piece by piece."""

    def __init__(self, got: np.ndarray, value: np.ndarray, bounds: Sequence[Bound]) -> None:
        self.shape = value.shape
        self.got = flat(got, self.shape)
        self.value = flat(value, self.shape)
        self.bounds = bounds
        self.allowed = [flat(bound.allowed, self.shape) for bound in bounds]
        open_ = [b.undecided for b in bounds if b.gates and b.undecided is not None]
        self.undecided = flat(np.logical_or.reduce(open_), self.shape) if open_ else None
        self.max_abs = self.max_ref = self.square = self.square_ref = 0.0
        self.ulp = np.zeros(34, np.int64)
        self.max_ulp = 0
        self.worst: int | None = None
        self.worst_share = -1.0
        self.faults: list[int] = []
        self.fault_count = 0
        self.faulty_rows: set[int] = set()
        self.specials: Counter[str] = Counter()
        self.misplaced = 0
        self.first_misplaced = 0
        self.share = [0.0] * len(bounds)
        self.beyond = [0] * len(bounds)
        self.first_beyond = [0] * len(bounds)

    def take(self, piece: slice) -> None:
        got, value = self.got[piece], self.value[piece]
        distance = got - value
        np.abs(distance, out=distance)
        faulty = None
        whole: slice | np.ndarray = slice(None)
        if not math.isfinite(distance.max()):
            whole, faulty = self._special(piece, distance)
        finite = value if faulty is None else value[np.isfinite(value)]
        if finite.size:
            self.max_ref = max(self.max_ref, float(finite.max()), -float(finite.min()))
            self.square_ref += float(np.einsum("i,i", finite, finite))
        self.max_abs = max(self.max_abs, float(distance.max()))
        self.square += float(np.einsum("i,i", distance, distance))
        ulp = ulp_distance(got, value.astype(np.float32))[whole]
        if ulp.size:
            self.ulp += bucket_counts(ulp)
            self.max_ulp = max(self.max_ulp, int(ulp.max()))
        for i, (bound, allowed) in enumerate(zip(self.bounds, self.allowed, strict=True)):
            share = shares(distance, allowed[piece])
            largest = float(share.max())
            self.share[i] = max(self.share[i], largest)
            if bound.gates and largest > self.worst_share:
                self.worst, self.worst_share = piece.start + int(share.argmax()), largest
            if largest > 1:
                over = share > 1
                if not self.beyond[i]:
                    self.first_beyond[i] = piece.start + int(over.argmax())
                self.beyond[i] += int(over.sum())
                if bound.gates:
                    faulty = over if faulty is None else faulty | over
        if faulty is not None and faulty.any():
            found = np.flatnonzero(faulty)
            self.fault_count += found.size
            if len(self.shape) == 2:
                self.faulty_rows.update(np.unique((found + piece.start) // self.shape[1]).tolist())
            self.faults += [piece.start + int(k) for k in found[: FAULTS - len(self.faults)]]

    def _special(self, piece: slice, distance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Settles NaN and infinities: `distance` becomes 0 where they agree, inf where they do not.

        Returns which elements have a distance in ULP, and which are misplaced.
        """
        got, value = self.got[piece], self.value[piece]
        want = value.astype(np.float32)
        nan = np.isnan(got) & np.isnan(want)
        inf = np.isinf(got) & (got == want)
        settled = nan | inf
        self.specials.update(nan=int(nan.sum()), inf=int(inf.sum()))
        if self.undecided is not None:
            open_ = self.undecided[piece] & ~settled
            for name, what in (("nan", np.isnan(got)), ("inf", np.isinf(got))):
                self.specials[f"undecided {name}"] += int((open_ & what).sum())
            settled |= open_ & ~np.isfinite(got)
        distance[settled] = 0
        misplaced = ~np.isfinite(distance)
        distance[misplaced] = np.inf
        if misplaced.any():
            if not self.misplaced:
                self.first_misplaced = piece.start + int(misplaced.argmax())
            self.misplaced += int(misplaced.sum())
        return np.isfinite(got) & np.isfinite(want), misplaced

    def positions(self) -> Check:
        name = "NaN and infinity"
        if not self.misplaced:
            return Check(name, True)
        where = f"{self.misplaced:,} of {self.value.size:,} elements"
        return Check(name, False, math.inf, f"{where} where the reference has none or another"
                     f", {self._told(self.first_misplaced)}")  # fmt: skip

    def checks(self) -> Iterator[Check]:
        for i, bound in enumerate(self.bounds):
            reason = ""
            if self.beyond[i]:
                where = f"{self.beyond[i]:,} of {self.value.size:,} elements beyond the bound"
                allowed = self.allowed[i][self.first_beyond[i]]
                told = f"{self._told(self.first_beyond[i])}, allowed {allowed:.3g}"
                reason = f"{where}{self._right_rows() if bound.gates else ''}, {told}"
            yield Check(bound.name, not self.beyond[i], self.share[i], reason, bound.formula,
                        bound.source, bound.gates)  # fmt: skip

    def _right_rows(self) -> str:
        """How many rows are right: whether a fault is a row's own or everywhere."""
        rows = self.shape[0] if len(self.shape) == 2 else 0
        if rows < 2:
            return ""
        right = rows - len(self.faulty_rows)
        return f", {right:,} of {rows:,} rows are right" if right else ", no row is right"

    def _index(self, at: int) -> tuple[int, ...]:
        return tuple(int(i) for i in np.unravel_index(at, self.shape))

    def _told(self, at: int) -> str:
        got, want = float(self.got[at]), float(self.value[at])
        return f"first at {self._index(at)}: got {got:.9g}, want {want:.9g}"

    def element(self, counterpart: np.ndarray | None) -> Callable[[int], Element]:
        gating = [a for a, bound in zip(self.allowed, self.bounds, strict=True) if bound.gates]

        def make(at: int) -> Element:
            index = self._index(at)
            got, want = float(self.got[at]), float(self.value[at])
            other = None if counterpart is None else float(counterpart[index])
            allowed = min((float(a[at]) for a in gating), default=math.inf)
            bits = "" if other is None else hex_bits(other)
            return Element(index, got, want, allowed, hex_bits(got), hex_bits(want), other, bits)

        return make
