"""In which order an implementation adds: asked of it as a black box, and put together as a tree.

A product is taken apart by FPRev's construction (see `questions`), a softmax by dividing its
columns three ways. Both ask many questions a launch, n log n for a regular tree, fewer where
a guess is right. The answers must fit each other, or there is no tree to tell.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from compare.order.questions import Mixed as Mixed
from compare.order.questions import Products as Products
from compare.order.questions import Softmax as Softmax
from compare.order.questions import Unreadable as Unreadable
from compare.order.tree import Tree, cut, halves, pairwise, restrict, tree

PIVOTS = 8  # asked at once for one undivided set of terms: fewer rounds, still n log n questions
TRIES = 2  # at keeping to elements of one order
MOST_TERMS = 1 << 20  # counts stay exact in float32


@dataclass(frozen=True)
class Found:
    """An order, what it took to find it, and whether it was only confirmed (a guess given)."""

    tree: Tree
    questions: int
    launches: int
    share: float = 1.0  # of the elements of the output, those that add in this order


def find(ask: Products | Softmax, guesses: Iterable[Tree] = (), *, trusting: bool = False) -> Found:
    """The order behind `ask`: the first guess that it confirms, else found from nothing.

    Elements of a product that add in another order than the first one are told apart before its
    order is asked; `trusting`, only where answers contradict each other, for a caller who then
    tries the order on every element. Unreadable where the answers contradict each other all the
    same, or for more than 2^20 terms.
    """
    if ask.terms > MOST_TERMS:
        raise Unreadable(f"{ask.terms} terms are more than can be counted exactly ({MOST_TERMS})")
    if ask.terms < 2:
        return Found(Tree(ask.terms, ()), 0, 0)
    known = list(guesses)

    def order() -> Tree:
        return next((guess for guess in known if ask.holds(guess)), None) or build(ask)

    if isinstance(ask, Softmax):
        return Found(order(), ask.questions, ask.launches)
    found = None
    if trusting:
        with contextlib.suppress(Unreadable):
            found = order()
    for seed in range(TRIES) if found is None else ():
        ask.narrow(seed)
        try:
            found = order()
            break
        except Mixed:
            if seed == TRIES - 1:
                raise
    assert found is not None  # the last try ends with an order or an exception
    return Found(found, ask.questions, ask.launches, ask.share)


def guesses(terms: int) -> Iterator[Tree]:
    """Orders worth asking for by name before one is looked for from nothing."""
    yield cut(terms, 1, 1)
    yield cut(terms, 256, 1, halves(256))
    yield pairwise(terms)
    yield restrict(pairwise(1 << (terms - 1).bit_length()), terms)  # a block whose tail is zero
    yield cut(terms, terms, 1, halves(terms)[::-1])
    yield cut(terms, 8, 1, halves(8))  # torch on a host: eight lanes of a vector register
    yield cut(terms, 128, 4, (16, 8, 4, 2, 1, 64, 32))  # 4 columns a lane, shuffles, then 4 warps


def build(ask: Products | Softmax) -> Tree:
    """The order from nothing. Unreadable where the answers contradict each other or fit no tree."""
    if isinstance(ask, Products):
        return _from_sizes(ask)
    found = _from_triples(ask)
    if not ask.holds(found):
        raise Unreadable("the answers fit no order of adding two numbers at a time")
    return found


def _from_sizes(ask: Products) -> Tree:
    """FPRev's construction. A pivot's sizes order all other terms along its way to the sum; those
    of equal size are what one addition takes in: one partial sum, or several where it is fused."""
    terms, random = ask.terms, np.random.default_rng(0)
    nodes: list[list[int]] = [[]]  # node 0 gets the root as its single part
    rows: dict[int, tuple[np.ndarray, np.ndarray]] = {}  # pivot -> the terms asked about, sizes
    open_sets: list[tuple[np.ndarray, int, int]] = [(np.arange(terms), terms + 1, 0)]
    while open_sets:
        _ask_pivots(ask, [members for members, _, _ in open_sets], rows, random)
        work, open_sets = open_sets, []
        while work:
            members, limit, into = work.pop()
            if len(members) == 1:
                nodes[into].append(int(members[0]))
                continue
            pivot = next((int(m) for m in members if int(m) in rows), None)
            if pivot is None:
                open_sets.append((members, limit, into))
                continue
            about, answers = rows[pivot]
            sizes = answers[np.searchsorted(about, members)]
            if (sizes > limit).any():
                raise Unreadable("two answers contradict each other: this is no tree")
            path, held = pivot, 1
            for size in np.unique(sizes[(sizes > 0) & (sizes < limit)]):
                joined = members[sizes == size]
                held += len(joined)
                if held != size:
                    raise Unreadable(f"a partial sum of {size} terms was found to hold {held}")
                nodes.append([path])
                work.append((joined, int(size), len(nodes) - 1))
                path = terms + len(nodes) - 1
            nodes[into].append(path)
            if (sizes == limit).any():
                work.append((members[sizes == limit], limit, into))
    return tree(terms, nodes, terms)


def _ask_pivots(
    ask: Products,
    sets: Sequence[np.ndarray],
    rows: dict[int, tuple[np.ndarray, np.ndarray]],
    random: np.random.Generator,
) -> None:
    """Asks up to PIVOTS pivots of every set about the rest of it, many sets a launch."""
    batch: list[tuple[np.ndarray, np.ndarray]] = []

    def flush() -> None:
        if not batch:
            return
        pivots = np.concatenate([chosen for _, chosen in batch])
        others = np.concatenate([members for members, _ in batch])
        sizes, line, start = ask.sizes(pivots, others), 0, 0
        for members, chosen in batch:
            for pivot in chosen:
                rows[int(pivot)] = (members, sizes[line, start : start + len(members)].copy())
                line += 1
            start += len(members)
            ask.questions += len(members) * len(chosen)
        batch.clear()

    for members in sets:
        if len(members) > 1:
            count = min(PIVOTS, len(members) - 1, ask.rows)
            if sum(len(chosen) for _, chosen in batch) + count > ask.rows:
                flush()
            batch.append((members, random.choice(members, count, replace=False)))
    flush()


def _from_triples(ask: Softmax) -> Tree:
    """Two terms i and j of a set divide the others: those that meet i first, those that meet j
    first, and those that come after both; each part is then a smaller set."""
    terms, random = ask.terms, np.random.default_rng(0)
    nodes: list[list[int]] = [[]]
    # A set is [(term that stands for it, number)], and the node that gets its sum as a part.
    sets: list[tuple[list[tuple[int, int]], int]] = [([(t, t) for t in range(terms)], 0)]
    while sets:
        asked, i, j, k = [], [], [], []
        for members, into in sets:
            if len(members) <= 2:
                nodes[into] += [number for _, number in members]
                continue
            picked = random.choice(len(members), 2, replace=False)
            one, two = (members[p] for p in picked)
            rest = [m for p, m in enumerate(members) if p not in picked]
            asked.append((one, two, rest, into))
            i += [one[0]] * len(rest)
            j += [two[0]] * len(rest)
            k += [term for term, _ in rest]
        if not asked:
            break
        first, second, third = np.array(i), np.array(j), np.array(k)
        with_two = ask.first(first, second, third)
        with_one = ask.first(second, first, third)
        if (with_one & with_two).any():
            raise Unreadable("two answers contradict each other: this is no tree")
        sets, start = [], 0
        for one, two, rest, into in asked:
            lines = np.s_[start : start + len(rest)]
            start += len(rest)
            near: list[list[tuple[int, int]]] = [[one], [two], []]
            for member, a, b in zip(rest, with_one[lines], with_two[lines], strict=True):
                near[0 if a else 1 if b else 2].append(member)
            base = terms + len(nodes)
            nodes += [[], [], [base, base + 1]]
            sets += [(near[0], len(nodes) - 3), (near[1], len(nodes) - 2)]
            sets.append(([(one[0], base + 2), *near[2]], into))
    return tree(terms, nodes, terms)
