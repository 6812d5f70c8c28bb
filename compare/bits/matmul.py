"""`bits matmul`: rounding of the operands and order of K, and what each of them alone does."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from compare.bits.evidence import spelled
from compare.bits.lab import Lab, predicted, products
from compare.blackbox import BlackBox
from compare.device import Broken
from compare.findings import Asked, Bits, Ingredient, Prediction, Variant
from compare.order import Products
from compare.order.formula import parting
from compare.order.tree import Tree, cut, plan
from compare.order.twins import order_of, prepare_matmul, tile
from compare.order.words import as_cut
from compare.pair import Implementation, Prepared, Shape
from compare.report.words import equal_words
from compare.tf32 import cut_to_tf32, to_tf32

FULL, TF32, TILED = "cublas COMPUTE_32F", "cublas FAST_TF32", "matmul_tiled"
TARGETS = (FULL, TF32, TILED)
HEADINGS = ("operands", "order of K")
NUMPY = "numpy A @ B"
INGREDIENTS = (
    Ingredient(
        "operands",
        "what the multiplier is given",
        (
            ("matmul ieee", "float32 as it is"),
            (FULL, "float32 as it is"),
            ("matmul tf32", "11 bits, cut by the tensor core"),
            (TF32, "11 bits, rounded to nearest even"),
            (TILED, "float32 as it is"),
        ),
    ),
    Ingredient(
        "order",
        "in which the products are added",
        (
            ("triton", "one running sum"),
            ("cublas", "its own choice at every shape"),
            (TILED, "one running sum"),
        ),
    ),
)
HOST_SIDE = 64  # of the product that an interpreted or emulated kernel is asked about


def build(lab: Lab) -> Bits:
    """Everything that can be said here; steps and mixtures need a card."""
    started = time.perf_counter()
    m, n, k = lab.shape
    asked_at = lab.shape if lab.machine.on_card else (min(m, HOST_SIDE), min(n, HOST_SIDE), k)
    asked = ask_all(lab, asked_at)
    steps: tuple[Variant, ...] = ()
    mixtures: tuple[Variant, ...] = ()
    ingredients: tuple[Ingredient, ...] = INGREDIENTS
    notes = [f"{name}: {why}" for name in TARGETS if (why := lab.lacks(lab.named(name)))]
    present = [name for name in TARGETS if not lab.lacks(lab.named(name))]
    if lab.machine.on_card and len(present) == len(TARGETS) and min(lab.shape):
        targets = {name: lab.output(lab.named(name)) for name in TARGETS}
        shown = ("matmul ieee", "matmul tf32", TILED)
        ingredients = spelled(lab, INGREDIENTS, {name: lab.named(name) for name in shown})
        mixtures = every_mixture(lab, targets, notes)
        steps = step_by_step(lab, targets, notes)
    elif min(lab.shape):
        mixtures = rounded_here(lab)
    others = [name for name in (FULL, TF32, TILED, NUMPY) if name in lab.trees]
    first = "matmul ieee"
    return Bits(
        "matmul",
        lab.shape,
        lab.data,
        lab.seed,
        {},
        ingredients,
        asked,
        k,
        "product",
        asked_at="x".join(map(str, asked_at)) if asked_at != lab.shape else "",
        parts=tuple(
            parting(first, lab.trees[first], name, lab.trees[name])
            for name in others
            if first in lab.trees and lab.trees[first] != lab.trees[name]
        ),
        predictions=predictions(lab),
        steps=steps,
        step_target=TF32,
        mixtures=mixtures,
        headings=HEADINGS,
        targets=TARGETS,
        in_words=tuple(explain(mixtures)) if len(mixtures) == 6 else (),
        notes=tuple(notes),
        seconds=time.perf_counter() - started,
        more={"cuts": {name: as_cut(tree) for name, tree in lab.trees.items() if tree.fused == 1}},
    )


def ask_all(lab: Lab, shape: Shape) -> tuple[Asked, ...]:
    """The order of every implementation that can run here, twins with the plan they carry."""
    m, n, k = shape
    asked = []

    def question(run: Callable[..., np.ndarray]) -> Products:
        return Products(run, m, k, n)

    for implementation in lab.pair.implementations:
        ready = implementation
        if implementation.prepare and not lab.lacks(implementation):
            try:
                made = prepared(lab, implementation, shape)
                ready = replace(implementation, options={**implementation.options, **made.options})
            except (ValueError, Broken) as error:
                blank = Asked(implementation.label or "triton", implementation.name)
                asked.append(replace(blank, reason=str(error)))
                continue
        asked.append(lab.ask(ready, shape, question))
    m, n, k = lab.shape
    asked.append(lab.answer(Asked("numpy", NUMPY), Products(np.matmul, m, k, n), (), "k"))
    return tuple(asked)


def prepared(lab: Lab, implementation: Implementation, shape: Shape) -> Prepared:
    """What a twin learns of its counterpart at this shape. ValueError: why it can't."""
    if implementation.prepare is None:
        return Prepared({})
    twin_of = lab.named(implementation.twin_of)
    return implementation.prepare(box(lab, twin_of, shape), box(lab, implementation, shape), shape)


def box(lab: Lab, implementation: Implementation, shape: Shape) -> BlackBox:
    m, n, k = shape
    inputs = {"a": (m, k), "b": (k, n)}
    return BlackBox(lab.machine, implementation, inputs, (m, n), lab.processes)


def twin(precision: str, **options: Any) -> Implementation:
    entry = "triton_impl.matmul_twin:matmul_twin"
    chosen = {"precision": precision, **options}
    return Implementation("twin", "triton", entry, options=chosen, precision=precision)


def carried(lab: Lab, name: str, notes: list[str]) -> Any:
    """The order found for `name` as the kernel takes it; one running sum where that can't be."""
    if name not in lab.trees:
        return None
    try:
        return order_of(plan(lab.trees[name]), lab.trees[name].fused)
    except ValueError as error:
        notes.append(f"{name}'s order can't be carried: {error}")
        return None


def every_mixture(
    lab: Lab, targets: Mapping[str, np.ndarray], notes: list[str]
) -> tuple[Variant, ...]:
    """Rounding of the operands x order of K, against all three."""
    full, tf32 = (carried(lab, name, notes) for name in (FULL, TF32))
    config = tile(*lab.shape[:2])
    rows = [
        ("float32", "one sum", twin("ieee")),
        ("float32", "COMPUTE_32F's", twin("ieee", order=full)),
        ("11 bits, cut", "one sum", twin("tf32", rounded=False, config=config)),
        ("11 bits, cut", "FAST_TF32's", twin("tf32", rounded=False, order=tf32, config=config)),
        ("11 bits, rounded", "one sum", twin("tf32", config=config)),
        ("11 bits, rounded", "FAST_TF32's", twin("tf32", order=tf32, config=config)),
    ]
    made = [lab.variant("", (one, two), which, targets) for one, two, which in rows]
    return tuple(lab.time(made, [which for _, _, which in rows]))


def step_by_step(
    lab: Lab, targets: Mapping[str, np.ndarray], notes: list[str]
) -> tuple[Variant, ...]:
    """From the shipped tf32 kernel to FAST_TF32's bits."""
    shipped = lab.named("matmul tf32")
    order = carried(lab, TF32, notes)
    steps = [
        ("Triton as shipped", ("cut", "one running sum"), shipped),
        (
            "+ operands rounded to nearest even",
            ("rounded", "one running sum"),
            twin("tf32", config=tile(*lab.shape[:2])),
        ),
    ]
    try:
        made = prepare_matmul(
            box(lab, lab.named(TF32), lab.shape), box(lab, twin("tf32"), lab.shape), lab.shape
        )
        last = twin(**{"precision": "tf32", **made.options})
        if last.precision == "ieee":
            notes.append(f"{TF32}: asked TF32, ran FP32; its operands are multiplied as they are")
    except ValueError as error:
        notes.append(str(error))
        last = twin("tf32", order=order)
    steps.append(("+ cuBLAS's order of K", ("rounded", "cuBLAS's"), last))
    variants = [lab.variant(words, choice, which, targets) for words, choice, which in steps]
    return tuple(lab.time(variants, [which for _, _, which in steps]))


def predictions(lab: Lab) -> tuple[Prediction, ...]:
    """Pairs of different orders, added on the CPU; the share seen where both ran on a card."""
    if not min(lab.shape) or not all(np.isfinite(x).all() for x in lab.inputs.values()):
        return ()
    terms = products(lab.inputs, lab.shape, lab.seed)
    made = []
    for one, other in (("matmul ieee", FULL), ("matmul ieee", TILED), ("matmul ieee", NUMPY)):
        if one not in lab.trees or other not in lab.trees or lab.trees[one] == lab.trees[other]:
            continue
        seen = None
        if lab.machine.on_card and other != NUMPY:
            outputs = [lab.output(lab.named(name)).view(np.int32) for name in (one, other)]
            seen = float(np.mean(outputs[0] == outputs[1]))
        if found := predicted(lab, one, other, terms, seen):
            made.append(found)
    return tuple(made)


def explain(mixtures: Sequence[Variant]) -> list[str]:
    """The mixtures in words: what order and rounding do, alone and together."""
    share = {
        (variant.choice, target): equal_share(variant.share(target))
        for variant in mixtures
        for target in TARGETS
    }
    full = (("float32", "one sum"), FULL), (("float32", "COMPUTE_32F's"), FULL)
    choices = (("cut", "one sum"), ("rounded", "one sum"), ("cut", "FAST_TF32's"))
    tf32 = [share[(f"11 bits, {how}", order), TF32] for how, order in choices]
    both = share[("11 bits, rounded", "FAST_TF32's"), TF32]
    return [
        f"Against COMPUTE_32F the order of K is all there is: {share[full[0]]} with one running "
        f"sum, {share[full[1]]} in the order found.",
        f"Against FAST_TF32 rounding and order count: {tf32[0]} with neither, {tf32[1]} with the "
        f"operands rounded, {tf32[2]} in its order, {both} with both.",
        f"Against matmul_tiled: {share[('float32', 'one sum'), TILED]} with one running sum.",
    ]


def equal_share(share: float) -> str:
    return equal_words(round(share * 10**9), 10**9)


def recorded_prediction(
    lab: Lab, cuts: Mapping[str, Any], seen: float | None, where: str
) -> tuple[Prediction, ...]:
    """The prediction from orders recorded on a card, for a machine that has none."""
    names = ("matmul ieee", FULL)
    if not all(cuts.get(name) for name in names):
        return ()
    trees: dict[str, Tree] = {}
    for name in names:
        ways, group, distances = cuts[name]
        trees[name] = cut(lab.shape[2], ways, group, tuple(distances))
    if trees[FULL] == trees["matmul ieee"]:
        return ()
    known = Lab.__new__(Lab)  # only its trees are read
    known.trees = trees
    terms = products(lab.inputs, lab.shape, lab.seed)
    found = predicted(known, *names, terms, seen, where)
    return (found,) if found else ()


def rounded_here(lab: Lab) -> tuple[Variant, ...]:
    """What cutting or rounding the operands alone does to the error; the sums are float64's."""
    a, b = lab.inputs["a"], lab.inputs["b"]
    scale = float(np.max(np.abs(lab.reference.value), initial=0.0)) or 1.0

    made = []
    for words, change in (("11 bits, cut", cut_to_tf32), ("11 bits, rounded", to_tf32)):
        got = change(a).astype(np.float64) @ change(b).astype(np.float64)
        error = float(np.max(np.abs(lab.reference.select(got) - lab.reference.value))) / scale
        made.append(Variant("", (words, "exact sums"), (), error, float("nan")))
    return tuple(made)
