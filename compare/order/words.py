"""Orders of adding in words: regular trees by name, where two part, and what to guess first."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from compare.order.tree import Plan, Tree, cut, halves, pairwise, plan, tree


def describe(order: Tree, noun: str = "k") -> str:
    """One phrase for an order: "two interleaved halves in groups of 8, each a running sum, ..."."""
    if order.terms < 2:
        return "one term, nothing to add"
    if order.fused == 1:
        return _binary(order, noun, 1)
    return _fused(order, noun)


def _fused(order: Tree, noun: str) -> str:
    """An order whose additions take in several terms at once."""
    width, found = order.fused, plan_or_none(order)
    if found is None:
        return "fused additions that join several partial sums"
    if len(found.chains) == 1 and len(found.groups[0]) == 1:
        return f"all {order.terms} at once"
    sizes = [len(chain) for chain in sorted(found.chains)]
    whole, groups = contract(order)
    ends = np.cumsum(sizes).tolist()
    starts = [end - size for end, size in zip(ends, sizes, strict=True)]
    contiguous = [tuple(range(*edge)) for edge in zip(starts, ends, strict=True)]
    in_turn = tuple((0, other) for other in range(1, len(sizes)))
    if sorted(found.chains) == contiguous and found.adds == in_turn:
        words = _binary(cut(order.terms, 1, 1), noun, 1)
        words = words if len(sizes) == 1 else f"{_sizes_words(sizes)}, each a running sum, "
        words += f"then {_fold_words(len(sizes), (), 'slice')}" if len(sizes) > 1 else ""
    elif {len(group) for group in groups[:-1]} == {width}:
        words = _binary(whole, noun, width, order.terms)
    else:
        words = _odd(found)
    first = found.groups[0][0]
    alone = f", first the {first} that are left over" if first < width < sizes[0] else ""
    return f"{words}; {width} are added at once{alone}"


def _binary(order: Tree, noun: str, unit: int, terms: int = 0) -> str:
    """The words of a tree of two-part additions over groups of `unit` terms."""
    terms = terms or order.terms
    if found := as_cut(order):
        ways, group, distances = found
        return _cut_words(terms, ways, group * unit, distances, noun)
    if order == pairwise(order.terms):
        return (
            "numpy's pairwise sum: halves down to 128 at most, there 8 running sums folded in pairs"
        )
    if blocks := _blocks(order):
        return _block_words(order, blocks, noun, unit)
    return _odd(plan_or_none(order), unit)


def as_cut(order: Tree) -> tuple[int, int, tuple[int, ...]] | None:
    """What `tree.cut` wants beside the number of terms to give this order; None where it can't."""
    for ways, group in _cuts(order):
        for distances in _folds(order, ways, group):
            if cut(order.terms, ways, group, distances) == order:
                return ways, group, distances
    return None


def _cuts(order: Tree) -> Iterator[tuple[int, int]]:
    """(ways, group) that the chain of term 0 hints at, then the widths of thread blocks."""
    yield 1, 1
    chains = plan(order).chains
    chain = next(chain for chain in chains if 0 in chain)
    breaks = (at for at in range(1, len(chain)) if chain[at] != chain[at - 1] + 1)
    run = next(breaks, len(chain))
    if len(chain) < 3:  # every term by itself: the two meet by the fold
        yield order.terms, 1
    if run == len(chain):
        yield -(-order.terms // run), run
    elif chain[run] % run == 0:
        yield chain[run] // run, run
    yield from ((1 << bit, 1) for bit in range(5, 11) if 1 << bit < order.terms)
    yield order.terms, 1


def _folds(order: Tree, ways: int, group: int) -> Iterator[tuple[int, ...]]:
    yield ()
    if ways > 1:
        yield halves(ways)
        yield halves(ways)[::-1]
        distances = _distances(order, ways, group)
        if sorted(distances) == sorted(halves(ways)):
            yield distances


def _distances(order: Tree, ways: int, group: int) -> tuple[int, ...]:
    """On term 0's way to the sum, the number of the first running sum each addition takes in."""
    lane = [term // group % ways for term in range(order.terms)]
    inside, out = 0, []
    for index, node in enumerate(order.nodes):
        lane.append(min(lane[p] for p in node))
        if inside in node:
            taken = min(lane[p] for p in node if p != inside)
            out += [taken] if taken else []
            inside = order.terms + index
    return tuple(out)


def _cut_words(terms: int, ways: int, group: int, distances: tuple[int, ...], noun: str) -> str:
    if ways == 1:
        listed = ", ".join(map(str, range(terms))) if terms < 5 else f"0, 1, 2 .. {terms - 1}"
        return f"one running sum over {noun}{' =' if noun == 'k' else 's'} {listed}"
    count = "two" if ways == 2 else str(ways)
    if group == 1 and ways >= terms:
        return f"{noun}s {_fold_words(ways, distances, noun)}"
    if ways * group >= terms and group > 1:
        rest = terms - (ways - 1) * group
        last = f" (the last of {rest})" if rest != group else ""
        what, name = f"{count} slices of {group}{last}", "slice"
    elif group == 1:
        what, name = f"{count} running sums of every {_ordinal(ways)} {noun}", "sum"
        return f"{what}, then {_fold_words(ways, distances, name)}"
    else:
        kind = "halves" if ways == 2 else "parts"
        what, name = f"{count} interleaved {kind} in groups of {group}", "part"
    return f"{what}, each a running sum, then {_fold_words(ways, distances, name)}"


def _ordinal(number: int) -> str:
    if number == 2:
        return "second"
    teens = number % 100 in (11, 12, 13)
    return f"{number}{'th' if teens else {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th')}"


def _fold_words(ways: int, distances: tuple[int, ...], noun: str) -> str:
    if not distances:
        listed = " + ".join(map(str, range(ways))) if ways < 5 else f"0 + 1 + .. + {ways - 1}"
        return "added" if ways == 2 else f"{noun} {listed}"
    if len(distances) == 1:
        return "added"
    if distances == halves(ways):
        return f"folded by halves {distances[0]} .. 1"
    if distances == halves(ways)[::-1]:
        return f"folded in pairs at distance 1, 2 .. {distances[-1]}"
    return f"folded at distance {', '.join(map(str, distances))}"


def _blocks(order: Tree) -> list[tuple[int, list[int]]]:
    """(node, its terms) of contiguous blocks that are added first to last; [] without any."""
    members: dict[int, list[int]] = {}
    for index, node in enumerate(order.nodes):
        parts = [members.get(p, [p]) for p in node]
        members[order.terms + index] = sorted(itertools.chain(*parts))
    found: list[tuple[int, list[int]]] = []
    here = order.terms + len(order.nodes) - 1
    while here >= order.terms:
        left, right = order.nodes[here - order.terms][:2]
        terms = members.get(right, [right])
        before = members.get(left, [left])
        if (
            len(terms) < 2
            or terms[0] != before[-1] + 1
            or before[-1] - before[0] != len(before) - 1
        ):
            break
        found.append((right, terms))
        here = left
    if not found:
        return []
    return [(here, members.get(here, [here])), *reversed(found)]


def _sizes_words(sizes: list[int]) -> str:
    """`16 slices of 64 (the last of 40)`, or the sizes themselves where they differ."""
    if len(set(sizes[:-1])) == 1 and sizes[-1] <= sizes[0]:
        last = f" (the last of {sizes[-1]})" if sizes[-1] != sizes[0] else ""
        return f"{'two' if len(sizes) == 2 else len(sizes)} slices of {sizes[0]}{last}"
    shown = ", ".join(map(str, sizes[:6])) + (" .." if len(sizes) > 6 else "")
    return f"{len(sizes)} slices of unequal sizes ({shown})"


def _block_words(order: Tree, blocks: list[tuple[int, list[int]]], noun: str, unit: int) -> str:
    what = _sizes_words([len(terms) * unit for _, terms in blocks])
    inner = {
        _binary(tree(len(terms), _renumbered(order, node, terms)), noun, unit)
        for node, terms in blocks
        if len(terms) == len(blocks[0][1]) and len(terms) > 1
    }
    each = "a running sum" if _all_runs(order, blocks) else " or ".join(sorted(inner)[:2])
    return f"{what}, each {each}, then {_fold_words(len(blocks), (), 'slice')}"


def _all_runs(order: Tree, blocks: list[tuple[int, list[int]]]) -> bool:
    return all(
        tree(len(terms), _renumbered(order, node, terms)) == cut(len(terms), 1, 1)
        for node, terms in blocks
        if len(terms) > 1
    )


def _renumbered(order: Tree, root: int, terms: list[int]) -> list[list[int]]:
    """The nodes below `root` with its terms numbered from 0."""
    names = {term: position for position, term in enumerate(terms)}
    below, stack = set(), [root]
    while stack:
        number = stack.pop()
        if number >= order.terms:
            below.add(number)
            stack += order.nodes[number - order.terms]
    out: list[list[int]] = []
    for number in sorted(below):
        out.append([names[p] for p in order.nodes[number - order.terms]])
        names[number] = len(terms) + len(out) - 1
    return out


def contract(order: Tree) -> tuple[Tree, list[tuple[int, ...]]]:
    """The tree over the groups that fused additions take in, and the terms of each group."""
    groups: list[tuple[int, ...]] = []
    for node in order.nodes:
        if leaves := tuple(p for p in node if p < order.terms):
            groups.append(leaves)
    groups.sort()
    place = {group: index for index, group in enumerate(groups)}
    names: dict[int, int] = {}
    nodes: list[list[int]] = []
    for index, node in enumerate(order.nodes):
        leaves = tuple(p for p in node if p < order.terms)
        parts = [names[p] for p in node if p >= order.terms]
        parts += [place[leaves]] if leaves else []
        if len(parts) == 1:
            names[order.terms + index] = parts[0]
        else:
            nodes.append(parts)
            names[order.terms + index] = len(groups) + len(nodes) - 1
    return tree(len(groups), nodes), groups


def plan_or_none(order: Tree) -> Plan | None:
    try:
        return plan(order)
    except ValueError:
        return None


def _odd(found: Plan | None, unit: int = 1) -> str:
    if found is None:
        return "fused additions that join several partial sums"
    if len(found.chains) == 1:
        shown = ", ".join(str(term * unit) for term in found.chains[0][:5])
        return f"one running sum in the order {shown} .."
    sizes = [len(chain) * unit for chain in found.chains]
    span = str(sizes[0]) if min(sizes) == max(sizes) else f"{min(sizes)} to {max(sizes)}"
    return f"{len(sizes)} running sums of {span}, added in an order of their own"
