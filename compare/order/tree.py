"""The order of a sum as a tree: which terms are added first, and what that changes.

A `Tree` is canonical (addition is commutative, so the parts of a node are sorted by their first
term): two trees are equal exactly when they add in the same order. Nothing here runs a kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Tree:
    """`nodes[i]` holds the parts of number `terms + i`: numbers below `terms` are terms, others
    are earlier nodes; the last node is the sum. A node of more than two parts is one fused
    addition, rounded once, as a tensor core does it."""

    terms: int
    nodes: tuple[tuple[int, ...], ...]

    @property
    def fused(self) -> int:
        """The most terms that join a running sum in one addition; 1 where none is fused."""
        if all(len(node) == 2 for node in self.nodes):
            return 1
        joined = [sum(p < self.terms for p in node) for node in self.nodes]
        later = [n for n, node in zip(joined, self.nodes, strict=True) if n < len(node)]
        return max(later or joined)


@dataclass(frozen=True)
class Plan:
    """A tree as work for a kernel: each chain is a running sum over its terms in that order; then
    for every (into, other) of `adds`, sum `into` becomes `into` + `other`. Sum 0 is the result.
    `groups` says how many terms of a chain each addition takes in: ones, where none is fused."""

    chains: tuple[tuple[int, ...], ...]
    adds: tuple[tuple[int, int], ...]
    groups: tuple[tuple[int, ...], ...]

    @property
    def plain(self) -> bool:
        """Whether it is one running sum from the first term to the last, in even groups."""
        if len(self.chains) > 1 or list(self.chains[0]) != sorted(self.chains[0]):
            return False
        return len(set(self.groups[0][:-1])) <= 1


def tree(terms: int, nodes: Sequence[Sequence[int]], root: int | None = None) -> Tree:
    """The canonical tree of `nodes` (numbered as in `Tree`, in any order); a node of a single part
    stands for that part. `root` is the last node where not given."""
    root = terms + len(nodes) - 1 if root is None else root
    first: dict[int, int] = {}
    parts: dict[int, list[int]] = {}
    stack = [(root, False)]
    while stack:  # children before parents, without recursion: a running sum is as deep as long
        number, done = stack.pop()
        if number < terms:
            first[number] = number
        elif done:
            parts[number] = sorted(nodes[number - terms], key=first.__getitem__)
            first[number] = first[parts[number][0]]
        else:
            stack.append((number, True))
            stack.extend((part, False) for part in nodes[number - terms])
    names: dict[int, int] = {}
    out: list[tuple[int, ...]] = []
    stack = [(root, False)]
    while stack:
        number, done = stack.pop()
        if number < terms:
            names[number] = number
        elif not done:
            stack.append((number, True))
            stack.extend((part, False) for part in reversed(parts[number]))
        elif len(parts[number]) == 1:
            names[number] = names[parts[number][0]]
        else:
            out.append(tuple(names[part] for part in parts[number]))
            names[number] = terms + len(out) - 1
    return Tree(terms, tuple(out))


class Builder:
    """Nodes on the way to a tree. `None` stands for a sum of nothing."""

    def __init__(self, terms: int) -> None:
        self.terms = terms
        self.nodes: list[list[int]] = []

    def add(self, *parts: int | None) -> int | None:
        present = [part for part in parts if part is not None]
        if len(present) < 2:
            return present[0] if present else None
        self.nodes.append(present)
        return self.terms + len(self.nodes) - 1

    def run(self, parts: Sequence[int | None]) -> int | None:
        """First to last, one running sum."""
        total = None
        for part in parts:
            total = self.add(total, part)
        return total

    def fold(self, parts: Sequence[int | None], distances: Sequence[int]) -> int | None:
        """At each distance d, part i takes in part i + d wherever bit d of i is not set."""
        held = list(parts)
        for distance in distances:
            for index in range(len(held)):
                if not index & distance and index + distance < len(held):
                    held[index] = self.add(held[index], held[index + distance])
                    held[index + distance] = None
        return self.run(held)

    def tree(self, root: int | None) -> Tree:
        return tree(self.terms, self.nodes, root)


def halves(count: int) -> tuple[int, ...]:
    """Distances of a fold of `count` parts by halves: 128, 64 .. 1 for 256."""
    return tuple(1 << bit for bit in reversed(range((count - 1).bit_length())))


def cut(terms: int, ways: int, group: int, distances: Sequence[int] = ()) -> Tree:
    """Terms dealt in groups of `group` to `ways` running sums in turn; the sums are then folded at
    `distances`, or added first to last where there are none.

    One running sum is `ways=1`; contiguous slices of s have `group=s` and as many ways as slices.
    """
    build = Builder(terms)
    lanes: list[list[int]] = [[] for _ in range(ways)]
    for term in range(terms):
        lanes[term // group % ways].append(term)
    sums = [build.run(lane) for lane in lanes]
    return build.tree(build.fold(sums, distances))


def slices(sizes: Sequence[int]) -> Tree:
    """Contiguous slices of these sizes, each a running sum, added first to last."""
    build = Builder(sum(sizes))
    ends = np.cumsum(sizes).tolist()
    sums = [build.run(range(end - size, end)) for size, end in zip(sizes, ends, strict=True)]
    return build.tree(build.run(sums))


def pairwise(terms: int) -> Tree:
    """numpy's sum of a contiguous row: halves down to 128 terms, there eight running sums folded
    in pairs, then what is left over one by one (numpy/_core/src/umath/loops_utils.h.src)."""
    build = Builder(terms)

    def part(start: int, count: int) -> int | None:
        if count < 8:
            return build.run(range(start, start + count))
        if count <= 128:
            whole = count - count % 8
            lanes = [build.run(range(start + lane, start + whole, 8)) for lane in range(8)]
            total = build.fold(lanes, (1, 2, 4))
            return build.run([total, *range(start + whole, start + count)])
        left = count // 2 - count // 2 % 8
        return build.add(part(start, left), part(start + left, count - left))

    return build.tree(part(0, terms))


def restrict(order: Tree, terms: int) -> Tree:
    """The order of the first `terms` of an order whose other terms are zero."""
    build, names = Builder(terms), {term: term for term in range(terms)}
    last: int | None = 0 if terms == 1 else None
    for index, node in enumerate(order.nodes):
        last = build.add(*(names.get(part) for part in node))
        if last is not None:
            names[order.terms + index] = last
    return build.tree(last)


def plan(order: Tree) -> Plan:
    """The chains and additions of a tree. ValueError where a fused addition joins several sums."""
    width = order.fused
    chains: list[list[int]] = []
    groups: list[list[int]] = []
    adds: list[tuple[int, int]] = []
    held: dict[int, tuple[int, bool]] = {}  # node -> (its chain, whether it is that chain alone)

    def chain(members: Sequence[int]) -> int:
        # What starts a chain may be a single term and the first whole group in one addition.
        first = len(members) - width if len(members) > width else 0
        sizes = [first, len(members) - first] if width > 1 else [1] * len(members)
        chains.append(list(members))
        groups.append([size for size in sizes if size])
        return len(chains) - 1

    for index, node in enumerate(order.nodes):
        leaves = [part for part in node if part < order.terms]
        inner = [held[part] for part in node if part >= order.terms]
        if len(node) > 2 and len(inner) > 1:
            raise ValueError(f"one fused addition joins {len(inner)} partial sums")
        if not inner:
            result = (chain(leaves), True)
        elif len(inner) == 1 and inner[0][1]:
            chains[inner[0][0]] += leaves
            groups[inner[0][0]] += [len(leaves)] if width > 1 else [1] * len(leaves)
            result = inner[0]
        else:
            into, other = (inner[0][0], inner[1][0] if len(inner) == 2 else chain(leaves))
            adds.append((into, other))
            result = (into, False)
        held[order.terms + index] = result
    if not order.nodes:
        chain(range(order.terms))
    root = held[order.terms + len(order.nodes) - 1][0] if order.nodes else 0
    swap = {0: root, root: 0}  # the result is sum 0
    for lists in (chains, groups):
        lists[0], lists[root] = lists[root], lists[0]
    return Plan(
        tuple(map(tuple, chains)),
        tuple((swap.get(a, a), swap.get(b, b)) for a, b in adds),
        tuple(map(tuple, groups)),
    )


def add(order: Tree, terms: np.ndarray) -> np.ndarray:
    """Sums of the rows of `terms` (samples, order.terms) in this order; float32.

    Give float64 products to model fused multiply-adds: a product that joins a running sum is then
    not rounded before, as on the card. A fused addition is modelled by `fuse`.
    """
    held: dict[int, np.ndarray] = {}
    for index, node in enumerate(order.nodes):
        parts = [
            held.pop(part) if part >= order.terms else terms[:, part].astype(np.float64)
            for part in node
        ]
        if len(parts) > 2:
            held[order.terms + index] = fuse(np.stack(parts))
            continue
        if all(part < order.terms for part in node):  # the first product of a chain is rounded
            parts[0] = parts[0].astype(np.float32).astype(np.float64)
        held[order.terms + index] = (parts[0] + parts[1]).astype(np.float32).astype(np.float64)
    root = held[order.terms + len(order.nodes) - 1] if order.nodes else terms[:, 0]
    return root.astype(np.float32)


def fuse(parts: np.ndarray) -> np.ndarray:
    """Sum over the first axis as a tensor core forms it: every addend is aligned to the largest one
    and cut there, two bits below float32's last; so is the sum (Fasi, Higham, Mikaitis, Pranesh,
    PeerJ Computer Science 7:e330, 2021; how many bits are kept differs between units)."""
    _, exponent = np.frexp(np.abs(parts).max(axis=0))
    total = np.ldexp(np.trunc(np.ldexp(parts, 26 - exponent)).sum(axis=0), exponent - 26)
    near = total.astype(np.float32)
    over = np.abs(near) > np.abs(total)
    return np.where(over, np.nextafter(near, np.float32(0)), near).astype(np.float64)


def predict(one: Tree, other: Tree, terms: np.ndarray) -> float:
    """The share of rows of `terms` whose sums in the two orders have equal bits."""
    return float(np.mean(add(one, terms).view(np.int32) == add(other, terms).view(np.int32)))


def joins(order: Tree) -> list[tuple[int, ...]]:
    """For every term, the earlier terms that its sum holds when it enters: () starts a new sum.

    Given as (lowest, highest, count) of the earlier terms.
    """
    low = np.arange(order.terms + len(order.nodes))
    members: dict[int, np.ndarray] = {}
    out: list[tuple[int, ...]] = [()] * order.terms
    for index, node in enumerate(order.nodes):
        sets = [members.pop(part, np.array([low[part]])) for part in node]
        for position, part in enumerate(node):
            if part < order.terms:
                others = np.concatenate([s for p, s in enumerate(sets) if p != position])
                earlier = others[others < part]
                if len(earlier):
                    out[part] = (int(earlier.min()), int(earlier.max()), len(earlier))
        members[order.terms + index] = np.concatenate(sets)
    return out


def part(one: Tree, other: Tree) -> int | None:
    """The first term at which the two orders do different things; None where they are the same."""
    if one == other:
        return None
    pairs = zip(joins(one), joins(other), strict=True)
    return next((term for term, (a, b) in enumerate(pairs) if a != b), one.terms)
