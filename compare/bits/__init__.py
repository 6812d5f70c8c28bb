"""The command `bits`: why the bits of two languages differ, and in which order each side adds."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib import import_module, resources
from typing import Any

from compare import run as runs
from compare.bits.lab import Lab
from compare.device import stream
from compare.facts import machine_facts
from compare.findings import Asked, Bits, Variant
from compare.results import from_json, to_json, write_text

KNOWN = ("softmax", "matmul")


def command(
    wish: runs.Wish, progress: Callable[[str], None], path: str = ""
) -> tuple[list[str], int]:
    """The screen and the exit code; `path` gets everything as JSON. Raises Refusal."""
    from compare.report import bits as report

    found = build(wish, progress)
    if path:
        write_text(path, json.dumps(to_json(found), indent=1, allow_nan=False) + "\n")
    return report.lines(found), found.exit_code


def build(wish: runs.Wish, progress: Callable[[str], None] = lambda text: None) -> Bits:
    """Asks, runs and explains one pair at one shape. Raises Refusal."""
    if len(wish.pairs) != 1 or wish.pairs[0] not in KNOWN:
        named = " ".join(wish.pairs) or "none"
        raise runs.Refusal(2, f"bits takes apart one of {' or '.join(KNOWN)}; {named} was given")
    machine, pairs, shapes, _ = runs.plan(wish)
    machine = runs.prepare(machine)
    pair = pairs[0]
    shape = tuple(shapes[0] if shapes else pair.shapes(machine.on_card)[-1])
    parts: Any = import_module(f"compare.bits.{pair.name}")
    with stream(machine):
        family = wish.data or pair.data[0]
        lab = Lab(machine, pair, shape, family, wish.seed, progress, runs.PROCESSES)
        found: Bits = parts.build(lab)
        if not machine.on_card:
            found = with_recorded(on_host(found), lab, parts)
    facts = machine_facts(machine)
    code = 1 if any(note.split(": ")[0] in found.targets for note in found.notes) else 0
    code = code if machine.on_card else 0
    told = bool(found.mixtures) and bool(found.mixtures[0].against)
    words = tuple(explain(found)) if told and not found.recorded else found.in_words
    return replace(found, machine=facts, in_words=words, exit_code=code)


def record(folder: str, progress: Callable[[str], None] = lambda text: None) -> None:
    """Asks, runs and times on this card what a machine without one shows as recorded."""
    from compare.bits import precisions

    for pair in KNOWN:
        command(runs.Wish(pairs=(pair,), require_card=True), progress, f"{folder}/{pair}.json")
    precisions.command(runs.Wish(require_card=True), progress, f"{folder}/precisions.json")


def with_recorded(found: Bits, lab: Lab, parts: Any) -> Bits:
    """A host's answer with the steps, mixtures and prediction of a card that were recorded."""
    known = recorded(found.pair)
    if known is None:
        return found
    card = f"on an {known.machine['card_name'].removeprefix('NVIDIA ')}"
    at = "" if known.shape == found.shape else f" at {'x'.join(map(str, known.shape))}"
    name = f"{card} (recorded{at}, triton {known.machine['versions']['triton']})"
    made: dict[str, Any] = {
        "recorded": name,
        "ingredients": known.ingredients,
        "in_words": known.in_words,
        "steps": known.steps,
        "step_target": known.step_target,
    }
    if not found.mixtures:
        made["mixtures"] = known.mixtures
    if known.shape == found.shape:
        made["asked"] = with_cards(found.asked, known.asked, f"{card} (recorded)")
        kernels = [part for part in known.parts if "numpy" not in part]
        made["parts"] = tuple(f"{card} (recorded) {part}" for part in kernels)
    if hasattr(parts, "recorded_prediction") and known.shape == found.shape:
        seen = next((p.seen for p in known.predictions if p.other == parts.FULL), None)
        where = name.replace(" (", ", ").rstrip(")")
        more = parts.recorded_prediction(lab, known.more.get("cuts", {}), seen, where)
        made["predictions"] = (*more, *found.predictions)
    return replace(found, **made)


def on_host(found: Bits) -> Bits:
    """The answer of a machine without a card, in which nobody takes numpy's order for a kernel's:
    the interpreter adds with numpy, and torch on a CPU adds as no card does."""
    interpreted = {a.name for a in found.asked if a.label == "triton" and not a.reason}

    def said(name: str) -> str:
        return f"{name} (interpreter)" if name in interpreted else name

    ran = {"triton": "under the interpreter", "torch": "on the CPU"}
    return replace(
        found,
        asked=tuple(
            replace(a, same_as=said(a.same_as), where="" if a.reason else ran.get(a.label, ""))
            for a in found.asked
        ),
        parts=tuple(f"under the interpreter {part}" for part in found.parts),
        predictions=tuple(
            replace(p, one=said(p.one), other=said(p.other)) for p in found.predictions
        ),
    )


def with_cards(here: Sequence[Asked], there: Sequence[Asked], where: str) -> tuple[Asked, ...]:
    """What was asked here, and under it what a card's order was recorded to be, where the one here
    is another's or could not be asked."""
    known = {asked.name: replace(asked, where=where, same_as="") for asked in there}
    told: list[Asked] = []
    for asked in here:
        card = known.get(asked.name)
        wanted = card is not None and not card.reason and (asked.reason or asked.where)
        told += [] if wanted and asked.reason else [asked]
        told += [card] if card and wanted else []
    return tuple(told)


def recorded(pair: str) -> Bits | None:
    """The answer that was recorded on a card and ships with the package."""
    file = resources.files("compare") / "recorded" / "bits" / f"{pair}.json"
    if not file.is_file():
        return None
    return from_json(Bits, json.loads(file.read_text(encoding="utf-8")))


def explain(found: Bits) -> list[str]:
    """The mixtures in words: for every target, which ingredients it takes, what each alone does."""
    lines = list(found.in_words)
    if not lines:
        lines = [explain_target(found.mixtures, found.headings, name) for name in found.targets]
    worst = max(variant.allowed for variant in found.mixtures)
    count = {6: "six", 8: "eight"}.get(len(found.mixtures), str(len(found.mixtures)))
    if worst <= 1:
        lines.append(
            f"All {count} stay within {100 * worst:.2g} % of the allowed error: none of them is "
            "wrong."
        )
    return lines


def explain_target(mixtures: Sequence[Variant], headings: Sequence[str], target: str) -> str:
    """One target's sentence, for ingredients that each are Triton's or CUDA's."""
    shares = {variant.choice: variant.share(target) for variant in mixtures}
    size = len(headings)

    def changed(*which: int) -> float:
        return shares[tuple("CUDA" if i in which else "Triton" for i in range(size))]

    enough = [
        which
        for count in range(size + 1)
        for which in itertools.combinations(range(size), count)
        if changed(*which) == 1
    ]
    if not enough:
        return f"Against {target} no mixture has all its bits; the nearest has " + share_words(
            max(shares.values())
        )
    least = enough[0]
    names = [headings[i] for i in least]
    if not least:
        return f"Against {target} nothing has to change."
    if len(least) == 1:
        return f"Against {target} {names[0]} is the whole difference."
    missing = ", ".join(
        f"{headings[i]} {share_words(changed(*(j for j in least if j != i)))}" for i in least
    )
    alone = ", ".join(f"{headings[i]} {share_words(changed(i))}" for i in least)
    return (
        f"Against {target} it takes {', '.join(names[:-1])} and {names[-1]} together. "
        f"With one of them missing: {missing}. With one alone: {alone}."
    )


def share_words(share: float) -> str:
    from compare.report.words import equal_words

    return equal_words(round(share * 1e9), 10**9)
