"""The pair `softmax`: the softmax of every row, float32, ROWS x COLS.

out[r, c] = exp(x[r, c] - max(x[r])) / sum(exp(x[r] - max(x[r])))
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from compare.inputs import Stream
from compare.order.twins import RECORDED
from compare.pair import Arrays, Bound, Cost, Implementation, Pair, Probe, Reference, Shape
from compare.pairs.common import (
    EVERY,
    FAMILIES,
    FLT_MAX,
    SPECIAL,
    TINY,
    U,
    check_data,
    scaled_tolerance,
)

NAME = "softmax"
EPS = 2.0**-23
DEPTH = "sum_depth"  # the fact that says how many additions are on any path of the sum at most
HUGE = 1e300  # 2^24 columns in an unknown order: nothing but zeros can be judged
OFFSET = 0.05  # added a row, so that a kernel that keeps exp's argument unshifted overflows
OFFSET_ROWS = 2048  # after which it starts again: 102.35 at most


def check_shape(shape: Shape) -> None:
    """ValueError with one sentence where `shape` is not ROWSxCOLS with at least one column."""
    if len(shape) != 2:
        text = "x".join(map(str, shape))
        raise ValueError(f"softmax wants a shape ROWSxCOLS, got {text}; for example 2048x1024")
    if shape[0] < 0 or shape[1] < 1:
        raise ValueError(
            f"softmax wants at least 0 rows and 1 column, got {shape[0]}x{shape[1]}; a row without "
            "columns has no softmax"
        )


def inputs(shape: Shape, data: str, seed: int) -> Arrays:
    """`x`, float32, ROWS x COLS, of one family of data."""
    check_data(NAME, data)
    stream = Stream(NAME, shape, data, seed)
    rows, cols = shape
    row = np.arange(rows)
    marked = row[::EVERY]  # the rows that hold something special
    x = stream.normal("x", shape, scale=3 if data == "spread" else 1)
    growing = ((row % OFFSET_ROWS) * OFFSET).astype(np.float32)[:, None]
    one_each = stream.integers("column", 0, cols - 1, (rows,))
    if data == "equal":
        x[:] = 0
    elif data == "positive":
        np.abs(x, out=x)
    elif data == "cancelling":
        half = cols // 2
        x[:, half : 2 * half] = -x[:, :half]
    elif data == "wide":
        x *= np.float32(2) ** (row % 41 - 20).astype(np.float32)[:, None]
    elif data == "offsets":
        far = np.array([0, 1e4, -1e4, 1e8, -1e8, 1e30, -1e30], np.float32)
        return {"x": 8 * x + far[row % far.size][:, None]}
    elif data == "subnormal":
        x = -80 - 24 * stream.uniform("x", shape)
        x[row, one_each] = 0
        return {"x": x}
    elif data == "overflow":
        steps = np.array([FLT_MAX, -FLT_MAX, 3e38, -3e38, 0], np.float32)
        return {"x": steps[stream.integers("x", 0, steps.size - 1, shape)]}
    x += growing
    if data == "spike":
        x[:, 700 * cols // 1024] += 120
    elif data == "minus-inf":
        lost = stream.integers("lost", 0, 3, shape) == 0
        lost[row, one_each] = False
        x[lost] = -np.inf
    elif data == "minus-inf-rows":
        x[marked] = -np.inf
    elif data in ("plus-inf", "nan"):
        x[marked, one_each[marked]] = SPECIAL[data]
    return {"x": x}


def reference(arrays: Arrays, shape: Shape, seed: int) -> Reference:
    """float64 softmax; scale `spread` is (|t| + W) softmax, t = x - max, W = sum(softmax |t|)."""
    with np.errstate(all="ignore"):  # -inf - -inf and 0 * inf are meant
        t = arrays["x"].astype(np.float64)
        t -= t.max(axis=1, keepdims=True)
        value = np.exp(t)
        value /= value.sum(axis=1, keepdims=True)
        np.abs(t, out=t)
        t[value == 0] = 0
        weight = np.einsum("rc,rc->r", value, t)[:, None]
        t += weight
        t *= value
    sums = np.where(np.isnan(weight[:, 0]), np.nan, 1.0)
    largest = float(np.max(weight, initial=0.0, where=np.isfinite(weight)))
    return Reference(value, {"spread": t, "weight": largest}, row_sums=sums)


def bounds(
    ref: Reference, implementation: Implementation, data: str, shape: Shape
) -> Sequence[Bound]:
    """The theorem that gates, and the length-scaled tolerance that informs."""
    facts: Mapping[str, Any] = implementation.facts
    cols = shape[1]
    c_e, c_t = (facts.get(name, TL_EXP[name]) for name in ("c_e", "c_t"))
    depth = declared_depth(implementation, cols)
    fixed = 2 * c_e + depth + 5
    # Every factor (1 + e) of the error is counted once in x; together they are below 1 / (1 - x).
    # ref > 0 in float64 only down to t = -745.
    x = U * (fixed + c_t * (745 + ref.scales["weight"]))
    grown = U / (1 - x) if x < 1 else HUGE
    allowed = ref.scales["spread"] * (c_t * grown)
    allowed += ref.value * (fixed * grown)
    allowed += TINY
    theorem = Bound(
        "error bound",
        allowed,
        f"|got - ref| <= u (2 c_e + c_t (|t| + W) + D + 5) ref + 2^-126, u = 2^-24, c_e = {c_e:g}, "
        f"c_t = {c_t:g}, D = {depth}, t = x - max(x), W = sum(ref |t|), divided by 1 - {x:.2g} for "
        "the products of errors",
        "first-order error analysis: c_e and c_t from the CUDA C++ Programming Guide's tables of "
        "expf and __expf, D additions at most on any path of the sum, a division of 2 ULP",
        note=""
        if DEPTH in facts or depth < 2
        else f"declares no {DEPTH}: its bound adds a whole row in turn",  # the same at every shape
    )
    return theorem, scaled_tolerance(ref.value, 1e-5, EPS, cols)


def probes(shape: Shape, precision: str, seed: int) -> Sequence[Probe]:
    """Rows of 2^p equal numbers among -inf and among numbers 1000 below: 2^-p and 0, exactly."""
    rows, cols = shape
    if not rows:
        return ()
    stream = Stream(NAME, shape, "probe", seed)
    row = np.arange(rows)
    powers = (row + cols.bit_length() - 1) % cols.bit_length()
    order = np.argsort(stream.words("order", cols), kind="stable")
    start = stream.integers("start", 0, cols - 1, (rows,))
    # The first row's numbers lie in the last columns, the second's in the first ones; the others'
    # are a run of a shuffled row.
    rank = np.empty(cols, np.int64)
    rank[order] = np.arange(cols)
    chosen = (rank[None, :] - start[:, None]) % cols < (1 << powers)[:, None]
    chosen[0] = np.arange(cols) >= cols - (1 << powers[0])
    if rows > 1:
        chosen[1] = np.arange(cols) < 1 << powers[1]
    top = stream.integers("top", -64, 64, (rows, 1)).astype(np.float32)
    low = np.where(row % 2 == 0, -np.inf, -1000).astype(np.float32)[:, None]
    want = np.where(chosen, np.ldexp(np.float32(1), -powers)[:, None], np.float32(0))
    what = "lost, doubled or foreign columns, a wrong row maximum, a sum that is not all of the row"
    return (Probe("equal parts", {"x": np.where(chosen, top, top + low)}, want, what),)


def cost(shape: Shape) -> Cost:
    """One read and one write of the matrix; maximum, difference, exponential, sum, quotient."""
    count = math.prod(shape)
    return Cost(4 * count, 4 * count, 5 * count)


def torch_softmax(x: Any, out: Any) -> None:
    """torch's own softmax of every row, into `out`."""
    import torch

    torch.softmax(x, dim=1, out=out)


def declared_depth(implementation: Implementation, cols: int) -> int:
    """`facts["sum_depth"]`, a number or a function of the columns; COLS where it is not declared,
    and more where few threads add."""
    declared = implementation.facts.get(DEPTH, cols)
    depth = declared(cols) if callable(declared) else declared
    options = implementation.options
    if "num_warps" in options or "rows" in options:  # a row may be left to one of the warps
        warps = options.get("num_warps", 1) if options.get("rows", 1) == 1 else 1
        depth += -(-cols // (32 * warps))
    return min(depth, cols)


BLOCK, LOOP = 32768, 16384  # columns a Triton program holds at most; in a loop


def triton_depth(cols: int) -> int:
    """Longest chain of additions in the Triton kernels, each rescaling of a running sum included.

    A thread adds its values (8 to 32; the interpreter's numpy adds 16 in turn), then a tree. In the
    loop every step may also multiply the sum by an exponential: c_e + 2 roundings.
    """
    if cols <= BLOCK:
        width = 1 << max(cols - 1, 0).bit_length()
        return max(16, width // 1024) + width.bit_length()
    steps = -(-cols // LOOP)
    return steps * 8 + 7 + 16 + LOOP.bit_length()


def rows_depth(cols: int) -> int:
    """256 threads add their columns in turn, then fold their sums in 8 steps."""
    return -(-cols // 256) + 8


def onepass_depth(cols: int) -> int:
    """Values in turn, then 10 shuffles. A long row's sum is rescaled at every step by an expf."""
    if cols > BLOCK:
        return 4 * -(-cols // 1024) + 17
    threads = min(1024, max(32, -(-cols // 256) * 32))
    return 4 * next(n for n in (1, 2, 4, 8) if 4 * n * threads >= cols) + 10


def _triton_story(shape: Shape, on_card: bool) -> Sequence[tuple[str, str]]:
    from triton_impl.softmax import warps  # imports triton, which a run has anyway

    if on_card:
        return (("one row belongs to", f"1 program of {warps(shape[1])} warps"),)
    read = "once" if shape[1] <= BLOCK else "twice"
    return (
        ("one row belongs to", "1 program"),
        ("barriers", "none written"),
        ("a row is read", read),
    )


def _rows_story(shape: Shape, on_card: bool) -> Sequence[tuple[str, str]]:
    owner = ("one row belongs to", "1 block of 256 threads")
    if on_card:
        return (owner,)
    return owner, ("barriers", "5 written, 19 run by each thread"), ("a row is read", "three times")


def _held_traffic(shape: Shape) -> Mapping[str, int]:
    """A row is read once where registers hold it, else twice, and written once."""
    walk, reads = 4 * math.prod(shape), 1 if shape[1] <= BLOCK else 2
    return {"load": reads * walk, "scale and store": walk}


def _rows_traffic(shape: Shape) -> Mapping[str, int]:
    """Three walks over the row; the last one writes as it reads."""
    walk = 4 * math.prod(shape)
    return {"row max": walk, "exp and sum": walk, "scale and store": 2 * walk}


def words(case: Any) -> Sequence[str]:
    """What a results.Case can't say in figures."""
    if not case.bits_count:
        here = "here one exp is numpy's, the other the C library's"
        words = (f"bit for bit is a question for a card: {here}",)
        return words if case.verdict == "MATCH" else ()
    if case.cuda == "softmaxRows" and case.row("softmax_onepass") is not None:
        return ("softmaxRows is the teaching kernel; softmax_onepass is what an expert writes",)
    return ()


def _onepass_story(shape: Shape, on_card: bool) -> Sequence[tuple[str, str]]:
    from cuda_ref.softmax_onepass import plan

    return (("one row belongs to", f"1 block of {plan(shape[1])[1]} threads"),)


# Where an exponential's error is at most c_e + c_t |t| in units of u, the rounding of t included.
# expf is off by 1 ULP (2 u) at most, __expf and tl.exp by 2 + 1.173 |t| ULP (the guide's table);
# numpy's exp, which the interpreter calls, by 2.52 ULP, hence tl.exp's 5.04.
EXPF = {"c_e": 2.0, "c_t": 1.0}
FAST_EXPF = {"c_e": 4.0, "c_t": 2.35}
TL_EXP = {"c_e": 5.04, "c_t": 2.35}
ROWS = ("softmaxRows", "softmaxRows, fast", "softmax_onepass")


def _twin(
    name: str, twin_of: str, facts: Mapping[str, float], **ingredients: str
) -> Implementation:
    """Triton with another's exponential, division and order of adding: it claims the very bits."""
    return Implementation(
        name,
        "triton",
        "triton_impl.softmax_twin:softmax_twin",
        options=ingredients,
        kernel="softmax_twin",
        needs=("card",),
        twin_of=twin_of,
        facts={**facts, "sum_depth": rows_depth, "recorded": RECORDED},
        story=lambda shape, on_card: (("one row belongs to", "1 program of 8 warps"),),
        traffic=_rows_traffic,
    )


PAIR = Pair(
    name=NAME,
    summary="softmax of every row",
    dims=("ROWS", "COLS"),
    data=FAMILIES,
    precisions=("ieee",),
    implementations=(
        Implementation(
            "softmax",
            "triton",
            "triton_impl.softmax:softmax",
            counterparts=ROWS,
            split=("x",),
            facts={**TL_EXP, "sum_depth": triton_depth},
            configs=tuple(
                {"num_warps": warps, "rows": rows}
                for rows in (1, 2, 4)
                for warps in (1, 2, 4, 8, 16, 32)
            ),
            story=_triton_story,
            traffic=_held_traffic,
        ),
        _twin("softmax, CUDA bits", "softmaxRows", EXPF, exp="libdevice", div="rn"),
        _twin("softmax, fast bits", "softmaxRows, fast", TL_EXP, exp="tl", div="tl"),
        Implementation(
            "softmaxRows",
            "cuda",
            "cuda_ref.softmax:softmax_rows",
            arrays="cupy",
            kernel="softmaxRows, precise build",
            facts={**EXPF, "sum_depth": rows_depth},
            story=_rows_story,
            traffic=_rows_traffic,
        ),
        Implementation(
            "softmaxRows, fast",
            "cuda",
            "cuda_ref.softmax:softmax_rows",
            arrays="cupy",
            options={"fast_math": True},
            kernel="softmaxRows, fast-math build",
            needs=("card",),
            facts={**FAST_EXPF, "sum_depth": rows_depth},
            story=_rows_story,
            traffic=_rows_traffic,
        ),
        Implementation(
            "softmax_onepass",
            "cuda",
            "cuda_ref.softmax_onepass:softmax_onepass",
            arrays="cupy",
            facts={**EXPF, "sum_depth": onepass_depth},
            story=_onepass_story,
            traffic=_held_traffic,
        ),
        Implementation(
            "torch.softmax",
            "library",
            "compare.pairs.softmax:torch_softmax",
            label="torch",
            # its order of adding is not documented
            facts={"c_e": 4.0, "c_t": 1.0, "sum_depth": lambda cols: cols},
        ),
    ),
    shapes=lambda on_card: ((2048, 1024),),
    check_shape=check_shape,
    inputs=inputs,
    output_shape=lambda shape: shape,
    reference=reference,
    bounds=bounds,
    cost=cost,
    probes=probes,
    words=words,
    transcendental=True,
    copy_of="x",
)
