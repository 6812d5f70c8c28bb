"""The pair `matmul`: C = A B, float32, MxNxK (A is M x K, B is K x N)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from compare.inputs import Stream
from compare.order.twins import RECORDED, prepare_matmul, prepare_tf32
from compare.pair import Arrays, Bound, Cost, Implementation, Pair, Reference, Shape
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
from compare.pairs.matmul_probes import WHOLE, probes

NAME = "matmul"
TF32_OVERFLOW = 2.0**128 * (1 - 2.0**-12)  # a magnitude from here on rounds to infinity in tf32
SAMPLE = 256  # rows and columns that the reference covers where the whole would take too long
# Operands split in two or three parts of 11 or 8 bits, the smallest products left out: what is lost
# of an operand, by bits (the rest cut off; two thirds of a unit for the products), rounded up.
SPLIT = {"tf32x3": 2.0**-19, "bf16x3": 2.0**-14, "bf16x6": 2.0**-21}
TRUNCATED, ROUNDED = 2.0**-10, 2.0**-11  # relative error of an operand cut or rounded to tf32
# BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, warps, stages of triton_impl.matmul.CONFIGS, as plain values
CONFIGS = ((64, 64, 32, 8, 4, 3), (128, 128, 32, 8, 8, 3), (128, 64, 64, 8, 4, 4))


def check_shape(shape: Shape) -> None:
    """ValueError with one sentence where `shape` is not MxNxK without negative sizes."""
    text = "x".join(map(str, shape))
    if len(shape) != 3:
        raise ValueError(f"matmul wants a shape MxNxK, got {text}; for example 256x256x1024")
    if min(shape) < 0:
        raise ValueError(f"matmul wants sizes of at least 0, got {text}; for example 256x256x1024")


def inputs(shape: Shape, data: str, seed: int) -> Arrays:
    """`a` (M, K) and `b` (K, N), float32, of one family of data."""
    check_data(NAME, data)
    stream = Stream(NAME, shape, data, seed)
    m, n, k = shape
    a, b = stream.normal("a", (m, k)), stream.normal("b", (k, n))
    row, col = np.arange(m), np.arange(n)
    late = 700 * k // 1024
    two = np.float32(2)
    if data == "spread":
        a, b = 3 * a, 3 * b
    elif data == "equal":
        a[:], b[:] = 0.1, 0.7
    elif data == "spike" and k:
        a[:, late] *= 4096
    elif data == "offsets":
        a += (100 * (row % 5 - 2)).astype(np.float32)[:, None]
        b += (100 * (col % 3 - 1)).astype(np.float32)[None, :]
    elif data == "cancelling":
        half = k // 2
        a[:, half : 2 * half] = a[:, :half]
        b[half : 2 * half] = b[half : 2 * half] * two**-20 - b[:half]
    elif data == "positive":
        a, b = stream.uniform("a", (m, k)), stream.uniform("b", (k, n))
    elif data == "wide":
        a *= two ** stream.integers("a exponent", -20, 20, (m, k)).astype(np.float32)
        b *= two ** stream.integers("b exponent", -20, 20, (k, n)).astype(np.float32)
    elif data == "subnormal":
        a *= two ** np.array([-70, -130, -40], np.float32)[row % 3][:, None]
        b *= two ** np.array([-70, 0], np.float32)[col % 2][None, :]
    elif data == "overflow":
        a *= two ** np.array([62, 50, 64, 58], np.float32)[row % 4][:, None]
        b *= two**62
    elif data == "minus-inf-rows":
        a[::EVERY] = -np.inf
    elif k and data in SPECIAL:
        a[row[::EVERY], stream.integers("a place", 0, k - 1, (m,))[::EVERY]] = SPECIAL[data]
        rare = 2 * EVERY
        b[stream.integers("b place", 0, k - 1, (n,))[::rare], col[::rare]] = SPECIAL[data]
    return {"a": a, "b": b}


def reference(arrays: Arrays, shape: Shape, seed: int) -> Reference:
    """A B in float64, the whole or, above `WHOLE` operations, 256 rows by 256 columns of it.

    Scales: `size` = |A| |B| and `root` = sqrt(A^2 B^2) over what is finite; `edges` = the sums of
    |a| along a row and |b| along a column; `flushed` is True where an infinity meets a subnormal
    number (a flush turns infinity into NaN); `over` where rounding to tf32 makes an infinity.
    """
    m, n, k = shape
    a, b, index = arrays["a"], arrays["b"], None
    if 2.0 * m * n * k > WHOLE:
        stream = Stream(NAME, shape, "sample", seed)
        index = stream.some("rows", m, SAMPLE), stream.some("columns", n, SAMPLE)
        a, b = a[index[0]], b[:, index[1]]
    a64, b64 = a.astype(np.float64), b.astype(np.float64)
    with np.errstate(all="ignore"):  # 0 * inf and inf - inf are meant
        value = a64 @ b64
    np.abs(a64, out=a64)
    np.abs(b64, out=b64)
    flushed = over = None
    if not (np.isfinite(a64).all() and np.isfinite(b64).all()):
        inf, small = [(np.isinf(x), (x > 0) & (x < TINY)) for x in (a64, b64)], np.float32
        flushed = (inf[0][0].astype(small) @ inf[1][1].astype(small)) + (
            inf[0][1].astype(small) @ inf[1][0].astype(small)
        ) > 0
        for x in (a64, b64):
            x[~np.isfinite(x)] = 0
    rows, cols = a64.max(axis=1, initial=0), b64.max(axis=0, initial=0)
    if max(rows.max(initial=0), cols.max(initial=0)) >= TF32_OVERFLOW:
        over = (rows >= TF32_OVERFLOW)[:, None] | (cols >= TF32_OVERFLOW)[None, :]
    size = a64 @ b64
    edges = a64.sum(axis=1)[:, None] + b64.sum(axis=0)[None, :]
    np.multiply(a64, a64, out=a64)
    np.multiply(b64, b64, out=b64)
    root = a64 @ b64
    np.sqrt(root, out=root)
    scales = {"size": size, "root": root, "edges": edges, "flushed": flushed, "over": over}
    return Reference(value, {**scales, "made": {}}, index)


def growth(k: int, d: float) -> float:
    """g of the theorem: |got - ref| <= g |A| |B| + tiny for any data in any order.

    d = 0 is ieee: a product and its sum pass K roundings of u at most. Otherwise operands are off
    by d first, and each step of a tensor core by 4 u, since it truncates the addends that it aligns
    as well as their sum. K * 2^-53 is the reference's own.
    """
    sums = math.expm1(k * math.log1p(4 * U if d else U))
    return 2 * d + d * d + (1 + d) ** 2 * sums + k * 2.0**-53


def bounds(
    ref: Reference, implementation: Implementation, data: str, shape: Shape
) -> Sequence[Bound]:
    """The theorem, the statistical bound where the data is random, the scaled tolerance."""
    d = 0.0 if implementation.precision == "ieee" else implementation.facts.get("d", TRUNCATED)
    made = ref.scales["made"]  # implementations of one precision share their bounds' arrays
    if (d, data) not in made:
        table, eps = (1e-2, 2.0**-10) if d else (1e-5, 2.0**-23)
        random = (_statistical(ref, d, shape[2]),) if data == "random" else ()
        made[d, data] = (
            _theorem(ref, d, shape[2]),
            *random,
            scaled_tolerance(ref.value, table, eps, shape[2]),
        )
    return made[d, data]


def _theorem(ref: Reference, d: float, k: int) -> Bound:
    g = growth(k, d)
    size, flushed, over = (ref.scales[name] for name in ("size", "flushed", "over"))
    allowed = ref.scales["edges"] + 2 * k
    allowed *= TINY * (1 + g)
    allowed += g * size
    undecided = None
    if float(size.max(initial=0)) * (1 + g) >= FLT_MAX:
        undecided = size * (1 + g) + TINY >= FLT_MAX
    for mask in (flushed, over if d else None):
        if mask is not None and mask.any():
            undecided = mask if undecided is None else undecided | mask
    if d and undecided is not None:  # a unit that cuts may stop at FLT_MAX where it overflows
        allowed[undecided] = np.inf
    sums = f"(1 + {'4 ' if d else ''}u)^K - 1"
    formula = f"2d + d^2 + (1 + d)^2 ({sums}), d = 2^{math.log2(d):g}" if d else sums
    return Bound(
        "error bound",
        allowed,
        f"|got - ref| <= g |A||B| + 2^-126 (2K + sum|a| + sum|b|), u = 2^-24, K = {k}, "
        f"g = {formula} = {g:.3g}",
        "Higham, Accuracy and Stability of Numerical Algorithms, section 3.1: any data, any order; "
        "what is below 2^-126 may be flushed",
        undecided=undecided,
    )


def _statistical(ref: Reference, d: float, k: int) -> Bound:
    value, root = np.abs(ref.value), ref.scales["root"]
    if d:
        sums = k / 4 * U
        allowed = value * (2 * d + sums) + root * (4 * d + sums)
        formula = f"d (2|C| + 4 S) + (K / 4) u (|C| + S), d = 2^{math.log2(d):g}"
    else:
        allowed = value + root
        allowed *= 4 * U * math.sqrt(k)
        formula = "4 u sqrt(K) (|C| + S)"
    # What both bounds allow a flush is far below the rest here: random operands are not tiny.
    return Bound(
        "random data",
        allowed,
        f"|got - ref| <= {formula}, S = sqrt(A^2 B^2), u = 2^-24, K = {k}",
        "after Higham and Mary, SIAM J. Sci. Comput. 41(5), 2019: independent signed data alone",
    )


def cost(shape: Shape) -> Cost:
    """A and B read once, C written once, a multiplication and an addition a term."""
    m, n, k = shape
    return Cost(4 * (m * k + k * n), 4 * m * n, 2 * m * n * k)


def words(case: Any) -> Sequence[str]:
    """Why the bits of a results.Case are equal or not, as far as that is known."""
    twin = case.row(f"matmul {case.precision}, CUDA bits")
    found = next((t for t in twin.learned if t.startswith("order found: ")), "") if twin else ""
    order = found.removeprefix("order found: ")
    if case.verdict == "MATCH BIT FOR BIT" and order.startswith("one running sum"):
        return (f"both add in {order}",)
    if case.verdict == "MATCH" and case.precision == "tf32" and order:
        held = next((a for a in twin.agreements if a.counterpart.startswith("cublas")), None)
        equal = held is not None and held.verdict == "identical"
        rest = "; rounded first, every bit is equal" if equal else ""
        return (f"Triton's operands are truncated, cuBLAS rounds them{rest}",)
    if case.verdict == "MATCH" and order:
        return (f"cuBLAS adds {order}; Triton one running sum",)
    return ()


def gates(cases: Sequence[Any]) -> Sequence[tuple[Any, str]]:
    """On random data with K >= 64, Triton's tf32 is less exact than its ieee, and not slower."""
    failed = []
    for case in cases:
        other = next(
            (c for c in cases if (c.precision, c.shape, c.data) == ("ieee", case.shape, case.data)),
            None,
        )
        fit = case.precision == "tf32" and case.data == "random" and case.shape[2] >= 64
        rows = [c.row(c.triton) for c in (case, other) if c is not None and fit]
        if len(rows) < 2 or any(row is None or not row.output for row in rows):
            continue
        tf32, ieee = rows
        if not tf32.accuracy.error > ieee.accuracy.error:
            failed.append(
                (
                    case,
                    f"tf32 did not lose accuracy against ieee ({tf32.accuracy.error:.2g} and "
                    f"{ieee.accuracy.error:.2g}): one of the two did not multiply as it was asked",
                )
            )
        colds = [row.timing.cold.us for row in rows if row.timing and row.timing.cold]
        if len(colds) == 2 and not colds[0] <= colds[1]:
            slow = f"tf32 takes {colds[0]:.1f} us and ieee {colds[1]:.1f}"
            failed.append((case, f"{slow}: the tensor cores were not used"))
    return failed


def tiled_traffic(tile_m: int, tile_n: int) -> Callable[[Shape], Mapping[str, int]]:
    """Bytes of a kernel whose blocks own a tile: A once a column of tiles, B once a row of them."""

    def traffic(shape: Shape) -> Mapping[str, int]:
        m, n, k = shape
        across, down = -(-n // tile_n), -(-m // tile_m)
        return {"load": 4 * (m * k * across + k * n * down), "store": 4 * m * n}

    return traffic


def _triton(precision: str, config: tuple[int, ...], **more: Any) -> Implementation:
    return Implementation(
        f"matmul {precision}",
        "triton",
        "triton_impl.matmul:matmul",
        options={"precision": precision, "config": config},
        precision=precision,
        kernel="matmul {config[0]}x{config[1]}x{config[2]}, {config[4]} warps",
        split=("a",),
        configs=tuple({"config": numbers} for numbers in CONFIGS),
        traffic=tiled_traffic(config[0], config[1]),
        **more,
    )


COMPUTE_TYPES = {
    "COMPUTE_32F": "CUBLAS_COMPUTE_32F",
    "FAST_TF32": "CUBLAS_COMPUTE_32F_FAST_TF32",
}


def _twin(precision: str, twin_of: str, prepare: Any, **facts: float) -> Implementation:
    """Triton in the order of K found for `twin_of` at the shape: it claims the very bits."""
    return Implementation(
        f"matmul {precision}, CUDA bits",
        "triton",
        "triton_impl.matmul_twin:matmul_twin",
        options={"precision": precision},
        precision=precision,
        kernel="matmul_twin",
        needs=("card",),
        twin_of=twin_of,
        prepare=prepare,
        facts={**facts, "recorded": RECORDED},
    )


def _cublas(compute_type: str, precision: str, **more: Any) -> Implementation:
    return Implementation(
        f"cublas {compute_type}",
        "library",
        "cuda_ref.gemm_ex:gemm_ex",
        arrays="cupy",
        options={"compute_type": COMPUTE_TYPES[compute_type]},
        precision=precision,
        label="cublas",
        kernel=f"cuBLAS GemmEx {compute_type}",
        needs=("card",),
        **more,
    )


PAIR = Pair(
    name=NAME,
    summary="matrix product",
    dims=("M", "N", "K"),
    data=FAMILIES,
    precisions=("ieee", "tf32"),
    more_precisions=tuple(SPLIT),
    implementations=(
        _triton("ieee", CONFIGS[0], counterparts=("cublas COMPUTE_32F", "matmul_tiled")),
        _twin("ieee", "cublas COMPUTE_32F", prepare_matmul),
        _cublas("COMPUTE_32F", "ieee"),
        Implementation(
            "matmul_tiled",
            "cuda",
            "cuda_ref.matmul_tiled:matmul_tiled",
            arrays="cupy",
            kernel="matmul_tiled 16x16",
            traffic=tiled_traffic(16, 16),
        ),
        # The tensor core cuts operands (measured on an H200); NVIDIA says of neither side which it
        # does, so a library that was seen to round is allowed to cut too.
        _triton(
            "tf32",
            CONFIGS[2],
            needs=("card",),
            counterparts=("cublas FAST_TF32",),
            facts={"d": TRUNCATED},
        ),
        _twin("tf32", "cublas FAST_TF32", prepare_tf32, d=ROUNDED),
        _cublas("FAST_TF32", "tf32", facts={"d": TRUNCATED}),
        *(
            _triton(
                precision,
                CONFIGS[1],
                needs=("card",),
                counterparts=("cublas COMPUTE_32F",),
                facts={"d": d},
            )
            for precision, d in SPLIT.items()
        ),
    ),
    shapes=lambda on_card: (
        ((2048, 2048, 2048), (256, 256, 1024)) if on_card else ((256, 256, 1024),)
    ),
    check_shape=check_shape,
    inputs=inputs,
    output_shape=lambda shape: (shape[0], shape[1]),
    reference=reference,
    bounds=bounds,
    cost=cost,
    probes=probes,
    words=words,
    gates=gates,
    signed=True,
)
