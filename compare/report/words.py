"""Numbers in words, the same on every screen."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence

WIDTH = 100


def shape_words(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape))


def microseconds(us: float | None) -> str:
    """Three figures: 6.40, 13.2, 404, 1,234."""
    if us is None:
        return "."
    return f"{us:.2f}" if us < 9.995 else f"{us:.1f}" if us < 99.95 else f"{us:,.0f}"


def rate(flops: int, us: float) -> str:
    """TFLOP/s, three figures."""
    tera = flops / us / 1e6
    return f"{tera:.1f} TFLOP/s" if tera < 99.95 else f"{tera:.0f} TFLOP/s"


def error_words(error: float) -> str:
    return "." if math.isnan(error) else f"{error:.1e}"


def percent(share: float) -> str:
    """A share as a percentage of two figures; never 0 % or 100 % unless it is."""
    hundred = 100 * share
    if math.isnan(share):
        return "."
    if hundred > 9999:
        return "> 9,999 %"
    if hundred == 0 or hundred >= 9.95:
        text = f"{hundred:.0f}"
        if text == "100" and share != 1:
            return "99.9 %" if share < 1 else "100.1 %"
        return f"{text} %"
    return f"{hundred:.1f} %" if hundred >= 0.095 else f"{hundred:.1g} %"


def equal_words(equal: int, total: int) -> str:
    """How many bits are equal: "all equal", "29.3 %", "0.0017 %", "99.9999 %"."""
    if equal == total:
        return "all equal"
    hundred = 100 * equal / total
    if hundred > 99.9:  # as many nines as it takes not to say 100 %
        digits = max(1, math.floor(-math.log10((total - equal) / total) - 2 + 1e-9))
        return f"{100 * equal * 10**digits // total / 10**digits:.{digits}f} %"
    if equal == 0:
        return "0 %"
    return f"{hundred:.1f} %" if hundred >= 0.1 else f"{hundred:.2g} %"


def rule(left: str, right: str = "") -> str:
    """A line across the screen with a title and, at its end, a name."""
    left = f"-- {left} "
    right = f" {right} --" if right else ""
    return left + "-" * max(2, WIDTH - 2 - len(left) - len(right)) + right


def clip(text: str, width: int) -> str:
    """At most `width` characters; what is cut from the middle is shown as two dots."""
    if len(text) <= width:
        return text
    head = (width - 2) * 2 // 3
    return text[:head] + ".." + text[len(text) - (width - 2 - head) :]


def wrap(text: str, indent: int, width: int = WIDTH) -> list[str]:
    """Lines of at most `width` columns; those after the first are indented."""
    return textwrap.wrap(text, width, subsequent_indent=" " * indent, break_on_hyphens=False)
