"""Questions about the order of a sum, put to a black box: no source is read.

Products, after FPRev (Xie, Gao, Wang, Xue, "Revealing Floating-Point Accumulation Orders in
Software/Hardware Implementations", USENIX ATC 2025, arXiv 2411.00442): one product is +M, one -M,
all others 1. Whatever is added to a sum that holds an M is lost, so the result counts the terms
outside the smallest partial sum that holds both masks: its size is the answer. M enters by A and -M
by B, so one launch of an M x N product asks about M pivots and N others, every pair of them.

Softmax adds positive terms only. An entry of 0 at i (a term of 1), entries of d = ln(0.75 * 2^-24)
at j and k, -inf elsewhere (terms of zero): 1 + 0.75 * 2^-24 rounds to 1, 1 + 1.5 * 2^-24 does not.
So y[i] < 1 exactly when j and k meet before either meets i. Every row is another question.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from compare.order.tree import Tree

MASK = np.float32(2.0**60)  # exact in tf32 and bf16; 1 is lost beside it, and so is 2^24
TINY = np.float32(math.log(0.75 * 2.0**-24))
# Half-way between two tf32 numbers, above an even and above an odd one: what comes out tells how
# the multiplier rounds what it is given.
TIES = (1 + 2.0**-11, 1 + 3 * 2.0**-11)
OPERANDS: dict[tuple[float, ...], str] = {
    TIES: "as they are",
    (1.0, 1 + 2.0**-9): "to nearest even",
    (1 + 2.0**-10, 1 + 2.0**-9): "to nearest away",
    (1.0, 1 + 2.0**-10): "cut",
}
NARROWING = 16  # questions that tell elements of different orders apart


class Unreadable(ValueError):
    """The answers describe no tree: the sentence says what contradicts it."""


class Mixed(Unreadable):
    """Elements of one output add in different orders; those like [0, 0] can be asked alone."""


class Products:
    """Asks a product of shape (m, k, n). `multiply` takes float32 (m, k) and (k, n) host arrays."""

    def __init__(
        self, multiply: Callable[[np.ndarray, np.ndarray], np.ndarray], m: int, k: int, n: int
    ) -> None:
        self.turned = m > n  # pivots lie along the shorter side, others along the longer one
        self.multiply, self.terms = multiply, k
        self.shape = min(m, n), max(m, n)
        self.at = np.arange(self.shape[0]), np.arange(self.shape[1])  # elements that are asked
        self.questions = self.launches = 0

    @property
    def rows(self) -> int:
        return len(self.at[0])

    @property
    def cols(self) -> int:
        return len(self.at[1])

    @property
    def share(self) -> float:
        """Of the output's elements, those whose order is asked: 1, or less once narrowed."""
        return self.rows * self.cols / (self.shape[0] * self.shape[1])

    def _launch(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        self.launches += 1
        return self.multiply(b.T.copy(), a.T.copy()).T if self.turned else self.multiply(a, b)

    def _count(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """One launch. `left` (pivots, k) and `right` (k, others) are repeated over all elements
        that are asked, where equal questions must have equal answers."""
        asked_rows = np.arange(self.rows) % len(left)
        asked_cols = np.arange(self.cols) % right.shape[1]
        rows, cols = (np.zeros(size, np.int64) for size in self.shape)
        rows[self.at[0]], cols[self.at[1]] = asked_rows, asked_cols
        got = self._launch(_picked(left, rows=rows), _picked(right, cols=cols))
        got = _picked(got, *self.at)
        answer = got[: len(left), : right.shape[1]]
        if not np.array_equal(got, _picked(answer, asked_rows, asked_cols)):
            raise Mixed("elements of one output are added in different orders")
        return answer

    def narrow(self, seed: int = 0) -> None:
        """Keeps to the rows and columns whose elements answer as element [0, 0] does: the same
        questions are put to all elements at once."""
        random = np.random.default_rng(seed)
        same = np.ones(self.shape, bool)
        for number in range(NARROWING):
            # Every other pair is a near one: orders part inside a block, or only between blocks.
            reach = min(self.terms - 1, 4 << number % 4) if number % 2 else self.terms - 1
            i = int(random.integers(self.terms))
            j = (i + 1 + int(random.integers(reach))) % self.terms
            left = np.ones((self.shape[0], self.terms), np.float32)
            right = np.ones((self.terms, self.shape[1]), np.float32)
            right[i], right[j] = MASK, -MASK
            got = self._launch(left, right)
            same &= got == got[0, 0]
        rows = np.flatnonzero(same[:, 0])
        self.at = rows, np.flatnonzero(same[rows].all(axis=0))

    def _sizes(self, outside: np.ndarray) -> np.ndarray:
        bad = ~((outside >= 0) & (outside <= self.terms - 2) & (outside == np.floor(outside)))
        if bad.any():
            value = outside[bad].flat[0]
            raise Unreadable(f"a count of terms came out as {value:g} of {self.terms}")
        return self.terms - outside.astype(np.int64)

    def sizes(self, pivots: np.ndarray, others: np.ndarray) -> np.ndarray:
        """(pivots, others): terms in the smallest partial sum that holds both; 0 for itself."""
        out = np.empty((len(pivots), len(others)), np.int64)
        for top in range(0, len(pivots), self.rows):
            some = pivots[top : top + self.rows]
            left = np.ones((len(some), self.terms), np.float32)
            left[np.arange(len(some)), some] = MASK
            for start in range(0, len(others), self.cols):
                part = others[start : start + self.cols]
                right = np.ones((self.terms, len(part)), np.float32)
                right[part, np.arange(len(part))] = -MASK
                answer, same = self._count(left, right), some[:, None] == part[None, :]
                sizes = self._sizes(np.where(same, 0, answer))
                block = np.s_[top : top + len(some), start : start + len(part)]
                out[block] = np.where(same, 0, sizes)
        return out

    def pairs(self, ones: np.ndarray, others: np.ndarray) -> np.ndarray:
        """As `sizes`, for a list of pairs: both masks enter by the same operand."""
        out = np.empty(len(ones), np.int64)
        left = np.ones((1, self.terms), np.float32)
        for start in range(0, len(ones), self.cols):
            plus, minus = ones[start : start + self.cols], others[start : start + self.cols]
            right = np.ones((self.terms, len(plus)), np.float32)
            right[plus, np.arange(len(plus))] = MASK
            right[minus, np.arange(len(plus))] = -MASK
            out[start : start + len(plus)] = self._sizes(self._count(left, right)[0])
        self.questions += len(ones)
        return out

    def operands(self) -> tuple[str, str]:
        """What is done to A's and B's numbers before they are multiplied: "as they are", or tf32
        (11 bits) "to nearest even", "to nearest away" or "cut"."""
        words = []
        for side in (0, 1):
            got = []
            for value in TIES:
                a = np.zeros((self.shape[0], self.terms), np.float32)
                b = np.zeros((self.terms, self.shape[1]), np.float32)
                a[:, 0], b[0] = (value, 1) if side == 0 else (1, value)
                got.append(float(self._launch(a, b)[0, 0]))
            words.append(OPERANDS.get(tuple(got), f"to {got[0]!r} and {got[1]!r} (unknown)"))
        return (words[1], words[0]) if self.turned else (words[0], words[1])

    def holds(self, guess: Tree) -> bool:
        """Whether this is the order: one question a part of every addition. Where no addition is
        fused that leaves no other tree possible: each node is the smallest that holds its parts."""
        size, rep = _sizes_and_terms(guess)
        pairs = [(rep[node[0]], rep[part]) for node in guess.nodes for part in node[1:]]
        wants = [size[guess.terms + i] for i, node in enumerate(guess.nodes) for _ in node[1:]]
        if not pairs:
            return True
        ones, others = np.array(pairs).T
        some = np.random.default_rng(0).choice(
            len(pairs), min(len(pairs), self.cols), replace=False
        )
        if (self.pairs(ones[some], others[some]) != np.array(wants)[some]).any():
            return False
        return bool((self.pairs(ones, others) == np.array(wants)).all())


class Softmax:
    """Asks a softmax over `terms` columns. `run` takes and gives float32 (rows, terms)."""

    def __init__(self, run: Callable[[np.ndarray], np.ndarray], rows: int, terms: int) -> None:
        self.run, self.rows, self.terms = run, rows, terms
        self.questions = self.launches = 0

    def first(self, i: np.ndarray, j: np.ndarray, k: np.ndarray) -> np.ndarray:
        """For every question, whether terms j and k meet before either meets i."""
        out = np.empty(len(i), bool)
        for start in range(0, len(i), self.rows):
            piece = np.s_[start : start + self.rows]
            count = len(i[piece])
            lines = np.arange(count)
            x = np.full((self.rows, self.terms), -np.inf, np.float32)
            x[:, 0] = 0.0  # rows that ask nothing
            x[:count, 0] = -np.inf
            x[lines, j[piece]] = TINY
            x[lines, k[piece]] = TINY
            x[lines, i[piece]] = 0.0
            y = self.run(x)[lines, i[piece]]
            if not ((y > 0.999) & (y <= 1)).all():
                raise Unreadable(f"a term of 1 came out as {y.min():g}")
            out[piece] = y < 1
            self.launches += 1
        self.questions += len(i)
        return out

    def holds(self, guess: Tree) -> bool:
        """Whether this is the order: one question an inner edge. Triples that tell every inner edge
        of a binary tree apart leave no other tree possible (Steel, J. Classification 9, 1992)."""
        _, rep = _sizes_and_terms(guess)
        asked = []
        for node in guess.nodes:
            for part in node:
                if part >= guess.terms:
                    a, b = (rep[p] for p in guess.nodes[part - guess.terms][:2])
                    asked.append((rep[next(p for p in node if p != part)], a, b))
        if any(len(node) > 2 for node in guess.nodes):
            return False
        if not asked:
            return True
        questions = np.array(asked)
        some = np.random.default_rng(0).choice(len(asked), min(len(asked), 64), replace=False)
        return bool(self.first(*questions[some].T).all() and self.first(*questions.T).all())


def _picked(
    array: np.ndarray, rows: np.ndarray | None = None, cols: np.ndarray | None = None
) -> np.ndarray:
    """These rows and columns of a matrix; no copy along a side that is wanted as it is."""
    for axis, index in enumerate((rows, cols)):
        if index is not None and not np.array_equal(index, np.arange(array.shape[axis])):
            array = np.take(array, index, axis)
    return array


def _sizes_and_terms(order: Tree) -> tuple[list[int], list[int]]:
    """For every term and node: how many terms it holds, and the first of them."""
    size, rep = [1] * order.terms, list(range(order.terms))
    for node in order.nodes:
        size.append(sum(size[part] for part in node))
        rep.append(rep[node[0]])
    return size, rep
