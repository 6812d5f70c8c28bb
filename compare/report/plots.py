"""Plots as SVG text: pure functions of numbers, each with a title and its figures in words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

WIDTH, HEIGHT = 460, 300
LEFT, RIGHT, TOP, BOTTOM = 78, 446, 14, 250
LEGEND = 18  # height of a line of it


@dataclass(frozen=True)
class Series:
    """A name, whose side it is ("b" block, "t" thread, "o" other) and points, both axes above 0."""

    name: str
    side: str
    points: tuple[tuple[float, float], ...]


def plot(
    title: str, series: Sequence[Series], x_label: str, y_label: str, *, joined: bool = False
) -> Markup:
    """Points on two logarithmic axes, named by letters; `joined` draws each series as a line."""
    shown = [s for s in series if s.points]
    xs = [x for s in shown for x, _ in s.points]
    ys = [y for s in shown for _, y in s.points]
    if not xs:
        return Markup("")
    low_x, high_x = span(xs)
    low_y, high_y = span(ys)

    def at(x: float, y: float) -> tuple[float, float]:
        along = (math.log10(x) - low_x) / (high_x - low_x)
        up = (math.log10(y) - low_y) / (high_y - low_y)
        return LEFT + along * (RIGHT - LEFT), BOTTOM - up * (BOTTOM - TOP)

    parts = [line(LEFT, BOTTOM, RIGHT, BOTTOM, "axis"), line(LEFT, TOP, LEFT, BOTTOM, "axis")]
    for value in ticks(low_x, high_x):
        x, _ = at(value, 10**low_y)
        parts += [line(x, TOP, x, BOTTOM, "grid"), text(x, BOTTOM + 16, number(value), "middle")]
    for value in ticks(low_y, high_y):
        _, y = at(10**low_x, value)
        parts += [line(LEFT, y, RIGHT, y, "grid"), text(LEFT - 6, y + 4, number(value), "end")]
    parts.append(text((LEFT + RIGHT) / 2, BOTTOM + 36, x_label, "middle"))
    middle = (TOP + BOTTOM) / 2
    turned = f' transform="rotate(-90 13 {middle:.1f})"'
    parts.append(text(13, middle, y_label, "middle", extra=turned))
    for index, one in enumerate(shown):
        places = [at(x, y) for x, y in one.points]
        if joined:
            path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
            dash = ' stroke-dasharray="6 4"' if one.side == "t" else ""
            parts.append(f'<polyline class="edge {one.side}" fill="none" points="{path}"{dash}/>')
        parts += [mark(x, y, one.side) for x, y in places]
        x, y = places[-1]
        parts.append(text(x + 8, y - 6, letter(index), "start", f"bold {one.side}"))
        down = BOTTOM + 58 + index * LEGEND
        parts.append(mark(LEFT + 4, down - 4, one.side))
        parts.append(text(LEFT + 16, down, f"{letter(index)}  {one.name}", "start"))
    told = f"{x_label}; {y_label}. " + "; ".join(
        f"{s.name}: " + ", ".join(f"{number(x)}; {number(y)}" for x, y in s.points) for s in shown
    )
    return wrapped(title, told, BOTTOM + 58 + len(shown) * LEGEND, parts)


def bars(title: str, rows: Sequence[tuple[str, str, float]], unit: str) -> Markup:
    """One bar a row: a name, whose side it is, a value from 0 up."""
    most = max((value for _, _, value in rows), default=0)
    if not most:
        return Markup("")
    parts, start, step = [], 150, 26
    for index, (name, side, value) in enumerate(rows):
        y = 8 + index * step
        wide = max(1.0, value / most * (WIDTH - start - 70))
        parts.append(text(start - 8, y + 14, name, "end"))
        parts.append(
            f'<rect class="{side}" x="{start}" y="{y}" width="{wide:.1f}" height="18" rx="2"/>'
        )
        parts.append(text(start + wide + 6, y + 14, f"{value:.3g}", "start"))
    told = "; ".join(f"{name}: {value:.3g} {unit}" for name, _, value in rows)
    return wrapped(title, told, 12 + len(rows) * step, parts)


def fold(
    title: str, leaf: str, levels: Sequence[Sequence[tuple[int, int]]], width: int, side: str
) -> Markup:
    """A fold from the top down: `width` partial results, then for each level which other one each
    takes in, as (who, whose). A result that nobody holds any more has no circle."""
    gap = (WIDTH - 40) / max(1, width - 1)
    height = 46

    def place(index: int, level: int) -> tuple[float, float]:
        return 20 + index * gap, 34 + level * height

    radius = min(5.0, gap / 2.6)
    parts = [text(WIDTH / 2, 14, leaf, "middle")]
    for level, joins in enumerate(levels):
        for who, whose in joins:
            x, y = place(who, level + 1)
            for a, b in (place(who, level), place(whose, level)):
                ends = f'x1="{a:.1f}" y1="{b:.1f}" x2="{x:.1f}" y2="{y:.1f}"'
                parts.append(f'<line class="edge {side}" {ends} opacity="0.55"/>')
    rows = [list(range(width)), *[sorted({who for who, _ in joins}) for joins in levels]]
    for level, held in enumerate(rows):
        for index in held:
            x, y = place(index, level)
            parts.append(f'<circle class="{side}" cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}"/>')
    told = "; ".join(
        f"level {level + 1}: " + ", ".join(f"{who} takes in {whose}" for who, whose in joins)
        for level, joins in enumerate(levels)
    )
    return wrapped(title, told, 34 + len(levels) * height + 20, parts)


def span(values: Sequence[float]) -> tuple[float, float]:
    """Decades, or parts of one, that hold the values with a margin."""
    low, high = math.log10(min(values)), math.log10(max(values))
    margin = max(0.15, (high - low) * 0.12)
    return low - margin, high + margin


def ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 times powers of ten within the span; powers alone where there are many."""
    powers = range(math.floor(low), math.ceil(high) + 1)
    steps = (1,) if high - low > 2.5 else (1, 2, 5)
    found = [step * 10.0**power for power in powers for step in steps]
    return [value for value in found if low <= math.log10(value) <= high]


def number(value: float) -> str:
    if 0.01 <= value < 1e5:
        return f"{value:,.4g}"
    return f"{value:.1e}"


def letter(index: int) -> str:
    return chr(ord("A") + index % 26)


def mark(x: float, y: float, side: str) -> str:
    """A circle for the block side, a square for the thread side, a triangle for the rest."""
    if side == "b":
        return f'<circle class="b" cx="{x:.1f}" cy="{y:.1f}" r="5"/>'
    if side == "t":
        return f'<rect class="t" x="{x - 5:.1f}" y="{y - 5:.1f}" width="10" height="10"/>'
    points = f"{x:.1f},{y - 6:.1f} {x - 6:.1f},{y + 5:.1f} {x + 6:.1f},{y + 5:.1f}"
    return f'<polygon class="o" points="{points}"/>'


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def text(x: float, y: float, words: str, anchor: str, kind: str = "", extra: str = "") -> str:
    bold = ' font-weight="700"' if "bold" in kind else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="13"{bold}{extra}>'
        f"{escape(words)}</text>"
    )


def wrapped(title: str, told: str, height: float, parts: Sequence[str]) -> Markup:
    """The SVG element: what is drawn, its title, and its figures for those who can't see it."""
    return Markup(
        f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" xmlns="http://www.w3.org/2000/svg">'
        f"<title>{escape(title)}</title><desc>{escape(told)}</desc>{''.join(parts)}</svg>"
    )
