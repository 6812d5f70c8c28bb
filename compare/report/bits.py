"""The screen of `bits`: a pure function of what was found."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from itertools import zip_longest

from tabulate import tabulate

from compare.findings import Asked, Bits, Prediction, Variant
from compare.report.words import error_words, microseconds, percent, shape_words, wrap

MILLIARD = 10**9
ORDER_WIDTH = 44
DATA = {"random": "random", "spread": "3 * random + 0.05 a row"}


def lines(found: Bits) -> list[str]:
    """At most 100 columns: ingredients, orders, steps, mixtures, words."""
    data = DATA.get(found.data, found.data)
    out = [
        f"WHY THE BITS DIFFER   {found.pair} {shape_words(found.shape)}, {data}     {where(found)}"
    ]
    out += ["", *ingredients(found), "", *orders(found)]
    if found.steps:
        out += ["", *steps(found)]
    if found.mixtures:
        out += ["", *mixtures(found)]
    for number, text in enumerate(found.in_words):
        out += [""] if number == 0 else []
        out += wrap(("  in words   " if number == 0 else "             ") + text, 13)
    out += [line for note in found.notes for line in wrap(f"  note       {note}", 13)]
    return out + ["", f"{found.seconds:.1f} s   exit {found.exit_code}"]


def where(found: Bits) -> str:
    versions = found.machine.get("versions", {})
    name = found.machine.get("card_name") or "no card"
    return f"{name}, triton {versions.get('triton', 'unknown')}"


def equal(share: float) -> str:
    from compare.report.words import equal_words

    return equal_words(round(share * MILLIARD), MILLIARD)


def ingredients(found: Bits) -> list[str]:
    """Each ingredient: what every side takes for it, and the PTX that says so."""
    count = {2: "two", 3: "three"}.get(len(found.ingredients), str(len(found.ingredients)))
    label = f"   {found.recorded}" if found.recorded else ""
    out = [f"  {count} things decide them{label}"]
    for item in found.ingredients:
        seen = dict(item.seen)
        rows = [[side, words, seen.get(side, "")] for side, words in item.choices]
        out.append(f"  {item.name}   {item.what}")
        text = tabulate(rows, tablefmt="plain", disable_numparse=True)
        out += [f"      {line}"[:100].rstrip() for line in text.splitlines()]
    return out


def orders(found: Bits) -> list[str]:
    """In which order every implementation adds, where two part, and what the trees predict."""
    noun = "columns" if found.noun == "column" else f"{found.noun}s"
    at = f", asked at {found.asked_at}" if found.asked_at else ""
    seconds = sum(asked.seconds for asked in found.asked)
    out = [
        f"  in which order are the {found.terms:,} {noun} added?"
        f"   asked by masks{at}, {seconds:.1f} s",
        f"  {'implementation':<34}{'order':<{ORDER_WIDTH}}{'questions':>12}",
    ]
    for asked in found.asked:
        out += order_lines(asked)
    shown: dict[str, str] = {}
    for asked in found.asked:
        if asked.formula:
            shown.setdefault(asked.formula, ", ".join(filter(None, (name_of(asked), asked.where))))
    out.append("")
    for text, name in list(shown.items())[:4]:
        out += wrap(f"  {name}  {text}", 6)
    if len(shown) > 1:
        out.append("  [..] is a running sum from left to right")
    for text in found.parts[:3]:
        out += wrap(f"  {text}", 2)
    for prediction in found.predictions:
        out += wrap(prediction_words(prediction), 13)
    return out


def name_of(asked: Asked) -> str:
    known = asked.name.lower().startswith(asked.label)
    return asked.name if known else f"{asked.label} {asked.name}"


def order_lines(asked: Asked) -> list[str]:
    """One implementation; a long order takes more lines."""
    words = asked.reason or asked.words
    if asked.same_as:
        words = f"the same tree as {asked.same_as}"
    kept = [how for how in asked.operands if how != "as they are"]
    words += f"; operands {kept[0]}, tf32" if kept else ""
    if asked.share < 1:
        words += f" ({percent(asked.share)} of the elements; the others add in another order)"
    pieces = [piece.strip() for piece in wrap(words, 0, ORDER_WIDTH)] or [""]
    names = [name_of(asked), *(f"  {line}" for line in textwrap.wrap(asked.where, 31))]
    counts = ["" if asked.reason else f"{asked.questions:,}"]
    return [
        f"  {name:<34}{piece:<{ORDER_WIDTH}}{count:>12}".rstrip()
        for name, piece, count in zip_longest(names, pieces, counts, fillvalue="")
    ]


def prediction_words(found: Prediction) -> str:
    seen = "" if found.seen is None else f"; seen: {equal(found.seen)}"
    where_words = f" ({found.seen_where})" if found.seen_where else ""
    return (
        f"  checked    the trees of {found.one} and {found.other}, added on the CPU in float32, "
        f"predict {equal(found.predicted)} of the bits equal{seen}{where_words}"
    )


def steps(found: Bits) -> list[str]:
    """One ingredient at a time: bits, distance, error, time."""
    label = f"   {found.recorded}" if found.recorded else ""
    out = [f"  step by step towards {found.step_target}{label}"]
    rows = [
        [
            number,
            step.words,
            *cells(step, found.step_target, found.pair),
            error_words(step.error),
            microseconds(step.us),
        ]
        for number, step in enumerate(found.steps)
    ]
    heads = ["", "", "bit for bit", *distance_head(found.pair), "error", "cold us"]
    return out + table(rows, heads)


def distance_head(pair: str) -> list[str]:
    return ["worst ULP"] if pair == "softmax" else []


def cells(variant: Variant, target: str, pair: str) -> list[str]:
    """Share of equal bits and, where a distance means something, the worst one."""
    held = next((a for a in variant.against if a.target == target), None)
    if held is None:
        return [".", "."] if pair == "softmax" else ["."]
    return [equal(held.share), *([str(held.max_ulp)] if pair == "softmax" else [])]


def mixtures(found: Bits) -> list[str]:
    """Every mixture of the ingredients against every target."""
    measured = bool(found.mixtures[0].against)
    label = f"   {found.recorded}" if found.recorded and measured else ""
    out = [f"  every mixture{label}"]
    timed = any(variant.us is not None for variant in found.mixtures)
    rows: list[Sequence[object]] = []
    for variant in found.mixtures:
        row: list[object] = list(variant.choice)
        for target in found.targets if measured else ():
            row += cells(variant, target, found.pair)
        row += [error_words(variant.error), percent(variant.allowed)]
        rows.append([*row, microseconds(variant.us)] if timed else row)
    heads = list(found.headings)
    for target in found.targets if measured else ():
        heads += [target.removeprefix("cublas "), *(["ULP"] if found.pair == "softmax" else [])]
    return out + table(rows, [*heads, "error", "of allowed", *(["cold us"] if timed else [])])


def table(rows: Sequence[Sequence[object]], heads: Sequence[str]) -> list[str]:
    left = ("left",) * len(heads)
    text = tabulate(
        rows, headers=list(heads), tablefmt="plain", disable_numparse=True, colalign=left
    )
    return [f"    {line}"[:100].rstrip() for line in text.splitlines()]
