"""The command `run matmul --precision all`: error against time of every precision, cuBLAS's too."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from importlib import resources

from compare import run as runs
from compare.bits.lab import Lab
from compare.device import Broken, stream
from compare.facts import machine_facts
from compare.findings import Precisions, Variant
from compare.pair import Implementation
from compare.results import from_json, to_json, write_text

PAIR = "matmul"
FULL, TF32 = "cublas COMPUTE_32F", "cublas FAST_TF32"
# block_m, block_n, block_k, group_m, num_warps, num_stages: the fastest right one of a precision is
# shown. The first three are the shipped kernel's, the fourth is best for three tf32 products.
CONFIGS = (
    (64, 64, 32, 8, 4, 3),
    (128, 128, 32, 8, 8, 3),
    (128, 64, 64, 8, 4, 4),
    (128, 64, 32, 8, 4, 3),
)
MULTIPLIES = {
    "ieee": "float32 FMA",
    "tf32": "tf32, operands cut",
    "tf32x3": "3 products of tf32 parts",
    "bf16x3": "3 products of bf16 parts",
    "bf16x6": "6 products of bf16 parts",
    FULL: "float32 FMA",
    TF32: "tf32, operands rounded",
}


def command(
    wish: runs.Wish, progress: Callable[[str], None], path: str = ""
) -> tuple[list[str], int]:
    """The screen and the exit code; `path` gets everything as JSON. Raises Refusal."""
    from compare.report import precisions as report

    found = build(wish, progress)
    if path:
        write_text(path, json.dumps(to_json(found), indent=1, allow_nan=False) + "\n")
    return report.lines(found), found.exit_code


def build(wish: runs.Wish, progress: Callable[[str], None] = lambda text: None) -> Precisions:
    """Runs and times all of them at one shape; without a card what was recorded is given."""
    machine, pairs, shapes, _ = runs.plan(replace(wish, pairs=wish.pairs or (PAIR,), precision=""))
    if [pair.name for pair in pairs] != [PAIR]:
        raise runs.Refusal(2, f"--precision all is a question about {PAIR}; name no other pair")
    machine = runs.prepare(machine)
    shape = tuple(shapes[0] if shapes else pairs[0].shapes(machine.on_card)[0])
    facts = machine_facts(machine)
    cost = pairs[0].cost(shape)
    if not machine.on_card:
        return without_card(Precisions(shape, facts, (), cost.flops))
    with stream(machine):
        lab = Lab(machine, pairs[0], shape, wish.data or pairs[0].data[0], wish.seed, progress)
        rows, skipped = measured(lab)
    wrong = any(not row.allowed <= 1 for row in rows)
    return Precisions(shape, facts, rows, cost.flops, skipped, exit_code=int(wrong or not rows))


def measured(lab: Lab) -> tuple[tuple[Variant, ...], tuple[tuple[str, str], ...]]:
    """The fastest right config of every precision, in the order of their errors."""
    from triton_impl.matmul import PRECISIONS, known_precisions

    tried: list[tuple[Variant, Implementation]] = []
    skipped: list[tuple[str, str]] = []
    candidates = [lab.named(FULL), lab.named(TF32)]
    for precision in PRECISIONS:
        if precision in known_precisions():
            candidates += [triton(precision, config) for config in CONFIGS]
        else:
            version = lab.machine.seen.versions.get("triton", "")
            skipped.append((precision, f"triton {version} does not know it"))
    for implementation in candidates:
        name, reason = implementation.name.split(",")[0], lab.lacks(implementation)
        config = implementation.options.get("config")
        shown = f"{config[0]}x{config[1]}x{config[2]}, {config[4]} warps" if config else ""
        try:
            if not reason:
                choice = (MULTIPLIES[name], shown)
                tried.append((lab.variant(name, choice, implementation, {}), implementation))
        except Broken as broken:
            reason = str(broken)
        if reason:
            skipped.append((implementation.name, reason))
    timed = lab.time([variant for variant, _ in tried], [which for _, which in tried])
    best: dict[str, Variant] = {}
    for variant in sorted(timed, key=rank):
        best.setdefault(variant.words, variant)
    return tuple(sorted(best.values(), key=lambda v: v.error)), tuple(skipped)


def rank(variant: Variant) -> tuple[bool, float]:
    """Right ones first, then by time; one that could not be timed comes last."""
    return not variant.allowed <= 1, math.inf if variant.us is None else variant.us


def triton(precision: str, config: tuple[int, ...]) -> Implementation:
    """The shipped kernel; a split precision is held to the bound of tf32, which it must keep."""
    return Implementation(
        f"{precision}, {config}",
        "triton",
        "triton_impl.matmul:matmul",
        options={"precision": precision, "config": config},
        precision="ieee" if precision == "ieee" else "tf32",
    )


def without_card(found: Precisions) -> Precisions:
    """The recorded figures; the interpreter multiplies in full float32 whatever is asked."""
    file = resources.files("compare") / "recorded" / "bits" / "precisions.json"
    if not file.is_file():
        return found
    known: Precisions = from_json(Precisions, json.loads(file.read_text(encoding="utf-8")))
    card = known.machine["card_name"].removeprefix("NVIDIA ")
    label = f"on an {card} (recorded, triton {known.machine['versions']['triton']})"
    return replace(known, machine=found.machine, recorded=label, exit_code=0)
