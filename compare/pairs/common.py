"""What both pairs share: the families of data and the units of their bounds."""

from __future__ import annotations

import math

import numpy as np

from compare.pair import Bound

U = 2.0**-24  # unit roundoff of float32: half the distance from 1 to the next
TINY = 2.0**-126  # the smallest normal float32; either side may flush what is below
FLT_MAX = float(np.finfo(np.float32).max)
FAMILIES = (
    "random", "spread", "equal", "spike", "offsets", "cancelling", "positive", "wide", "subnormal",
    "minus-inf", "minus-inf-rows", "plus-inf", "nan", "overflow",
)  # fmt: skip
SPECIAL = {"minus-inf": -math.inf, "plus-inf": math.inf, "nan": math.nan}
EVERY = 8  # of so many rows, the first holds what a family with special values is about


def check_data(pair: str, data: str) -> None:
    """ValueError with one sentence where `data` is no family."""
    if data not in FAMILIES:
        raise ValueError(f"data {data!r} is unknown to {pair}; choose one of {', '.join(FAMILIES)}")


def scaled_tolerance(value: np.ndarray, table: float, eps: float, terms: int) -> Bound:
    """|got - ref| <= rtol (max |ref| + |ref|), rtol growing with the root of the terms. It informs
    and never gates: on random data it lets a lost term pass."""
    rtol = max(table, 4 * eps * math.sqrt(terms))
    allowed = np.abs(value)
    atol = rtol * float(np.max(allowed, initial=0.0, where=np.isfinite(allowed)))
    allowed *= rtol
    allowed += atol
    formula = (
        f"|got - ref| <= {atol:.3g} + {rtol:.3g} |ref|, rtol = max({table:g}, 4 * {eps:g} * "
        f"sqrt({terms})), atol = rtol max |ref|"
    )
    return Bound("scaled tolerance", allowed, formula, "a usual rule, for comparison", gates=False)
