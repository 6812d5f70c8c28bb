"""The screen of `list`."""

from __future__ import annotations

from collections.abc import Iterable

from compare.pair import Pair
from compare.report.words import shape_words, wrap


def lines(pairs: Iterable[Pair]) -> list[str]:
    """Every pair with its shapes, precisions, data and implementations."""
    out: list[str] = []
    for pair in pairs:
        card, host = (", ".join(map(shape_words, pair.shapes(on))) for on in (True, False))
        out += wrap(f"{pair.name:<12}{pair.summary}", 12)
        out += wrap(
            f"  shape     {'x'.join(pair.dims)}; by default {card} on a card, {host} without", 12
        )
        more = f"; by name {', '.join(pair.more_precisions)}, all" if pair.more_precisions else ""
        out += wrap(f"  precision {', '.join(pair.precisions)}{more}", 12)
        out += wrap(f"  data      {', '.join(pair.data)}", 12)
        for implementation in pair.implementations:
            needs = "needs a card" if "card" in implementation.needs else ""
            twin = f"claims {implementation.twin_of}'s bits" if implementation.twin_of else ""
            label = implementation.label or implementation.language
            named = f"{label:<8}{implementation.name:<28}{implementation.precision:<7}"
            out.append(f"  {named}{needs:<14}{twin}".rstrip())
        out.append("")
    return out[:-1]
