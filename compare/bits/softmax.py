"""`bits softmax`: exponential, division and order of adding, and what each of them alone does."""

from __future__ import annotations

import itertools
import time

import numpy as np

from compare.bits.evidence import spelled
from compare.bits.lab import Lab, against
from compare.findings import Asked, Bits, Ingredient, Prediction, Variant
from compare.order import Softmax, guesses
from compare.order.formula import parting
from compare.order.tree import add
from compare.pair import Implementation

PRECISE, FAST = "softmaxRows", "softmaxRows, fast"
TARGETS = (PRECISE, FAST)
HEADINGS = ("exp", "div", "sum")
OPTIONS = {"exp": ("tl", "libdevice"), "div": ("tl", "rn"), "order": ("tl", "cuda")}
INGREDIENTS = (
    Ingredient(
        "exp",
        "the exponential",
        (("softmax", "tl.exp"), (PRECISE, "expf"), (FAST, "__expf")),
    ),
    Ingredient("div", "the division", (("softmax", "/"), (PRECISE, "/"), (FAST, "__fdividef"))),
    Ingredient(
        "sum",
        "the order of adding",
        (
            ("softmax", "tl.sum"),
            (PRECISE, "256 sums, folded by halves"),
            (FAST, "256 sums, folded by halves"),
        ),
    ),
)
STEPS = (
    ("Triton as shipped", None),
    ("in 256-wide chunks, as CUDA's threads walk", (0, 0, 0)),
    ("+ CUDA's exp        (libdevice.exp)", (1, 0, 0)),
    ("+ CUDA's division   (tl.div_rn)", (1, 1, 0)),
    ("+ CUDA's order      (the tree, written out)", (1, 1, 1)),
)
HOST_ROWS = 128  # questions a launch where every row costs the host time
CHUNKED = "Triton in 256-wide chunks"


def twin(choice: tuple[int, ...]) -> Implementation:
    """The Triton kernel with this choice of ingredients: 0 Triton's, 1 CUDA's."""
    picked = zip(OPTIONS.items(), choice, strict=True)
    options = {name: values[which] for (name, values), which in picked}
    bounds = {"c_e": 4.0, "c_t": 2.35, "sum_depth": lambda n: -(-n // 256) + 8}
    name = CHUNKED if not any(choice) else f"twin {choice}"
    entry = "triton_impl.softmax_twin:softmax_twin"
    return Implementation(name, "triton", entry, options=options, facts=bounds)


def build(lab: Lab) -> Bits:
    """Everything that can be said here; steps and mixtures need a card."""
    started = time.perf_counter()
    asked = ask_all(lab)
    steps: tuple[Variant, ...] = ()
    mixtures: tuple[Variant, ...] = ()
    predictions: tuple[Prediction, ...] = ()
    ingredients: tuple[Ingredient, ...] = INGREDIENTS
    missing = tuple(name for name in TARGETS if lab.lacks(lab.named(name)))
    if lab.machine.on_card and not missing:
        targets = {name: lab.output(lab.named(name)) for name in TARGETS}
        ingredients = spelled(lab, INGREDIENTS, {n: lab.named(n) for n in ("softmax", *TARGETS)})
        steps = step_by_step(lab, targets)
        mixtures = every_mixture(lab, targets)
        predictions = predict_order(lab, targets)
    pairs = [(name, PRECISE) for name in ("softmax", CHUNKED) if name in lab.trees]
    return Bits(
        "softmax",
        lab.shape,
        lab.data,
        lab.seed,
        {},
        ingredients,
        asked,
        lab.shape[1],
        "column",
        parts=tuple(
            parting(one, lab.trees[one], other, lab.trees[other], "column")
            for one, other in pairs
            if other in lab.trees
        ),
        predictions=predictions,
        steps=steps,
        step_target=PRECISE,
        mixtures=mixtures,
        headings=HEADINGS,
        targets=TARGETS,
        notes=tuple(f"{name}: {lab.lacks(lab.named(name))}" for name in missing),
        seconds=time.perf_counter() - started,
    )


def ask_all(lab: Lab) -> tuple[Asked, ...]:
    """The order of every implementation, and of numpy's sum on this machine."""
    cols = lab.shape[1]
    rows = max(lab.shape[0], 64) if lab.machine.on_card else HOST_ROWS
    known = list(guesses(cols)) if cols > 1 else []
    asked = []
    own = [i for i in lab.pair.implementations if i.twin_of or i.language != "triton"]
    first = [i for i in lab.pair.implementations if i not in own]
    chunked = [twin((0, 0, 0))] if lab.machine.on_card else []
    for implementation in (*first, *chunked, *own):
        asked.append(
            lab.ask(
                implementation,
                (rows, cols),
                lambda run: Softmax(run, rows, cols),
                known,
                "column",
            )
        )

    def numpy_softmax(x: np.ndarray) -> np.ndarray:
        e = np.exp(x - x.max(axis=1, keepdims=True))
        return e / e.sum(axis=1, keepdims=True)

    question = Softmax(numpy_softmax, rows, cols)
    asked.append(lab.answer(Asked("numpy", "sum on this machine"), question, known, "column"))
    return tuple(asked)


def step_by_step(lab: Lab, targets: dict[str, np.ndarray]) -> tuple[Variant, ...]:
    """From the shipped kernel to the precise build's bits, one ingredient at a time, timed."""
    implementations = [lab.named("softmax") if c is None else twin(c) for _, c in STEPS]
    variants = [
        lab.variant(words, sides(choice or (0, 0, 0)), implementation, targets)
        for (words, choice), implementation in zip(STEPS, implementations, strict=True)
    ]
    return tuple(lab.time(variants, implementations))


def sides(choice: tuple[int, ...]) -> tuple[str, ...]:
    return tuple(("Triton", "CUDA")[which] for which in choice)


def every_mixture(lab: Lab, targets: dict[str, np.ndarray]) -> tuple[Variant, ...]:
    """All eight, against both builds."""
    return tuple(
        lab.variant("", sides(choice), twin(choice), targets)
        for choice in itertools.product((0, 1), repeat=3)
    )


def predict_order(lab: Lab, targets: dict[str, np.ndarray]) -> tuple[Prediction, ...]:
    """What the order alone does: both trees, added on the CPU over numpy's exponentials and
    divided, against the kernel that differs from the precise build in nothing else."""
    if CHUNKED not in lab.trees or PRECISE not in lab.trees:
        return ()
    x = lab.inputs["x"]
    if not np.isfinite(x).all():
        return ()
    e = np.exp(x - x.max(axis=1, keepdims=True))
    results = [e / add(lab.trees[name], e)[:, None] for name in (CHUNKED, PRECISE)]
    share = against("", *results).share
    seen = against("", lab.output(twin((1, 1, 0))), targets[PRECISE]).share
    where = "with CUDA's exp and division on both sides"
    return (Prediction(CHUNKED, PRECISE, share, seen, len(x), where),)
