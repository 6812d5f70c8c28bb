"""Correct kernels of many kinds, none of which may be rejected: other orders of adding, other
exponentials, operands cut or rounded to tf32, flushed small numbers, every family of data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from compare.pair import Implementation, Shape
from compare.pairs.common import FAMILIES, TINY
from compare.selftest.planted import cut_to_tf32

LONG = {"softmax": (128, 1024), "matmul": (96, 64, 1024)}  # the length of a sum is what matters
Sum = Callable[[np.ndarray, np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Correct:
    """A right kernel on one family of data, and what its bounds need to know of it."""

    what: str
    pair: str
    shape: Shape
    precision: str
    data: str
    kernel: Callable[..., None]
    facts: Mapping[str, Any]

    def implementation(self) -> Implementation:
        return Implementation(
            self.what,
            "cuda",
            self.kernel,
            arrays="cupy",
            precision=self.precision,
            facts=self.facts,
        )


def in_turn(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """k = 0, 1, 2 .. into one running float32 sum."""
    total = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for k in range(a.shape[1]):
        total += a[:, k, None] * b[k]
    return total


def backwards(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return in_turn(a[:, ::-1], b[::-1])


def sliced(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Slices of K summed by themselves, then added first to last, as a split-K kernel does."""
    step = max(1, a.shape[1] // 16)
    parts = [a[:, k : k + step] @ b[k : k + step] for k in range(0, a.shape[1], step)]
    return np.add.reduce(parts) if parts else in_turn(a, b)


def in_pairs(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Halves of K, halved again: the shortest chains."""
    if a.shape[1] <= 8:
        return in_turn(a, b)
    half = a.shape[1] // 2
    return in_pairs(a[:, :half], b[:half]) + in_pairs(a[:, half:], b[half:])


def once_rounded(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (a.astype(np.float64) @ b.astype(np.float64)).astype(np.float32)


def library(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a @ b


def flushing(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Operands, products and sums below 2^-126 become zero, as `-ftz=true` makes them."""
    a, b = flush(a), flush(b)
    total = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for k in range(a.shape[1]):
        total = flush(total + flush(a[:, k, None] * b[k]))
    return total


def flush(x: np.ndarray) -> np.ndarray:
    return np.where(np.abs(x) < TINY, np.float32(0), x)


def tensor_core(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Groups of 8 products added at once; the running sum is cut, not rounded, to float32."""
    total = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for k in range(0, a.shape[1], 8):
        group = a[:, k : k + 8].astype(np.float64) @ b[k : k + 8].astype(np.float64)
        total = cut_to_float32(total + group)
    return total


def cut_to_float32(x: np.ndarray) -> np.ndarray:
    nearest = x.astype(np.float32)
    beyond = np.abs(nearest.astype(np.float64)) > np.abs(x)
    return np.where(beyond, np.nextafter(nearest, np.float32(0)), nearest)


def rounded_to_tf32(x: np.ndarray, away: bool = False) -> np.ndarray:
    """To 11 bits, nearest, ties to even or away from zero; NaN and infinities stay as they are."""
    bits = np.ascontiguousarray(x).view(np.int32)
    step = np.int32(0x1000) if away else np.int32(0xFFF) + ((bits >> 13) & 1)
    return np.where(np.isfinite(x), ((bits + step) & ~0x1FFF).view(np.float32), x)


def cut(x: np.ndarray) -> np.ndarray:
    return np.where(np.isfinite(x), cut_to_tf32(x), x)


def away(x: np.ndarray) -> np.ndarray:
    return rounded_to_tf32(x, away=True)


IEEE: Mapping[str, Sum] = {
    "added in turn": in_turn,
    "added backwards": backwards,
    "16 slices of K": sliced,
    "added in pairs": in_pairs,
    "rounded once, from float64": once_rounded,
    "numpy's own order": library,
    "small numbers flushed": flushing,
}
CASTS: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {
    "operands cut": cut,
    "operands rounded to even": rounded_to_tf32,
    "operands rounded away": away,
}
SUMS: Mapping[str, Sum] = {"sums cut": tensor_core, "sums in turn": in_turn, "flushed": flushing}


def matmuls() -> Iterator[tuple[str, str, Callable[..., None], Mapping[str, Any]]]:
    def writing(cast: Callable[[np.ndarray], np.ndarray] | None, add: Sum) -> Callable[..., None]:
        def kernel(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
            with np.errstate(all="ignore"):
                out[...] = add(cast(a), cast(b)) if cast else add(a, b)

        return kernel

    for what, add in IEEE.items():
        yield what, "ieee", writing(None, add), {}
    for how, cast in CASTS.items():
        facts = {"d": 2.0**-10 if how == "operands cut" else 2.0**-11}
        for what, add in SUMS.items():
            yield f"{how}, {what}", "tf32", writing(cast, add), facts


def base_two(t: np.ndarray) -> np.ndarray:
    """exp as tl.exp and __expf do it: 2^(t log2 e) with the product rounded to float32."""
    return np.exp2((t * np.float32(1.4426950408889634)).astype(np.float64)).astype(np.float32)


def softmaxes() -> Iterator[tuple[str, Callable[..., None], Mapping[str, Any]]]:
    def row_in_turn(e: np.ndarray) -> np.ndarray:
        return np.add.accumulate(e, axis=1)[:, -1:]

    def threads(e: np.ndarray) -> np.ndarray:
        padded = np.pad(e, ((0, 0), (0, -e.shape[1] % 256))).reshape(e.shape[0], -1, 256)
        total = np.add.reduce(np.swapaxes(padded, 0, 1))
        while total.shape[1] > 1:
            half = total.shape[1] // 2
            total = total[:, :half] + total[:, half:]
        return total

    def writing(exp: Any, add: Any, divide: Any) -> Callable[..., None]:
        def kernel(x: np.ndarray, out: np.ndarray) -> None:
            with np.errstate(all="ignore"):
                e = exp(x - x.max(axis=1, keepdims=True))
                out[...] = divide(e, add(e))

        return kernel

    def by_reciprocal(e: np.ndarray, s: np.ndarray) -> np.ndarray:
        return e * (np.float32(1) / s)

    def flushed(e: np.ndarray, s: np.ndarray) -> np.ndarray:
        return flush(flush(e) / s)

    tree = {"sum_depth": lambda n: -(-n // 256) + 8}
    precise, fast = {"c_e": 5.04, "c_t": 1.0}, {"c_e": 4.0, "c_t": 2.35}
    yield "added in turn", writing(np.exp, row_in_turn, np.divide), precise
    yield "256 threads, folded by halves", writing(np.exp, threads, np.divide), {**precise, **tree}
    yield "by the reciprocal", writing(np.exp, threads, by_reciprocal), {**precise, **tree}
    yield "2^(t log2 e), flushed", writing(base_two, threads, flushed), {**fast, **tree}


def correct(small: Mapping[str, Shape]) -> Iterator[Correct]:
    """Every right kernel: on all families of data at `small` shapes, on few at LONG ones."""
    for data in FAMILIES:
        for what, precision, kernel, facts in matmuls():
            yield Correct(what, "matmul", small["matmul"], precision, data, kernel, facts)
    for what, precision, kernel, facts in matmuls():
        if "flushed" in what:  # no number of this data is small enough
            continue
        yield Correct(f"{what}, long", "matmul", LONG["matmul"], precision, "random", kernel, facts)
    for data in FAMILIES:
        for what, kernel, facts in softmaxes():
            yield Correct(what, "softmax", small["softmax"], "ieee", data, kernel, facts)
    for what, kernel, facts in softmaxes():
        for data in ("random", "spike"):
            yield Correct(f"{what}, long", "softmax", LONG["softmax"], "ieee", data, kernel, facts)
