"""Orders of adding written out, shortened, and the place where two of them part."""

from __future__ import annotations

from compare.order.tree import Tree, joins, part
from compare.order.words import plan_or_none


def formula(order: Tree) -> str:
    """The sum written out, shortened: [..] is a running sum from left to right."""
    found = plan_or_none(order)
    if found is None or order.terms < 2:
        return ""
    if found.plain:
        return f"((p0 + p1) + p2) .. + p{order.terms - 1}" if order.terms > 3 else "(p0 + p1) .."
    chains = sorted(found.chains)
    shown = [_bracket(chain) for chain in chains]
    if len(shown) > 3:
        shown = [*shown[:2], "..", shown[-1]]
    return " + ".join(shown)


def _bracket(chain: tuple[int, ...]) -> str:
    if list(chain) == list(range(chain[0], chain[0] + len(chain))):
        return f"[p{chain[0]} .. p{chain[-1]}]" if len(chain) > 2 else _listed(chain)
    return _listed(chain)


def _listed(chain: tuple[int, ...]) -> str:
    shown = ", ".join(f"p{term}" for term in chain[:3])
    return f"[{shown} ..]" if len(chain) > 3 else f"[{shown}]"


def parting(name: str, order: Tree, other_name: str, other: Tree, noun: str = "product") -> str:
    """One sentence: the first term at which two orders do different things, and what each does."""
    term = part(order, other)
    if term is None:
        return "both add in the same order"
    if order.fused != other.fused:
        counts = [f"{n} at once" if n > 1 else "one by one" for n in (order.fused, other.fused)]
        return f"{name} adds its {noun}s {counts[0]}, {other_name} {counts[1]}"
    if term == order.terms:
        return "both form the same running sums and add those in different orders"
    one, two = joins(order)[term], joins(other)[term]
    return f"they part at {noun} {term}: {name} {_joined(one)}, {other_name} {_joined(two)}"


def _joined(earlier: tuple[int, ...]) -> str:
    if not earlier:
        return "starts a new sum with it"
    low, high, count = earlier
    if count == 1:
        return f"adds it to {low}"
    if count == high - low + 1:
        return f"adds it to the sum of {low} .. {high}"
    return f"adds it to a sum of {count} of {low} .. {high}"
