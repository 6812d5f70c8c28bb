"""Integer operands whose products and sums never round: a matmul's exact probes.

All partial sums stay below 2^24, where every integer is a float32, so the answer is the same in any
order and on any unit that keeps its precision's promise. Host products in float32 are exact too.
Above `WHOLE` operations one factor is an outer product, so that the answer costs no matmul.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from compare.inputs import Stream
from compare.pair import Probe, Shape

EXACT = 2**24
WHOLE = 2e11  # operations up to which a host multiplies whole matrices
TF32_BITS, IEEE_BITS = 11, 12  # a tf32 significand, and one bit more
TF32_SHIFT = 20  # factors of 2^20 and 2^-20 leave fp16's range, and tf32's not
WHOLE_BF16 = 255  # of bf16x3 a product of two remainders is dropped: whole in bf16, it has none
KEPT = 4096  # odd 12-bit integers that a column adds at most: below 2^24


def probes(shape: Shape, precision: str, seed: int) -> Sequence[Probe]:
    """`cover`, `width a` and `width b` at this shape; none where a size is 0."""
    m, n, k = shape
    most = WHOLE_BF16 if precision == "bf16x3" else 1023
    limit = min(most, math.isqrt(EXACT // k)) if k else 0
    if not (m and n and limit):
        return ()
    stream = Stream("matmul", shape, f"probe {precision}", seed)
    return cover(stream, limit), width(stream, "a", precision), width(stream, "b", precision)


def cover(stream: Stream, limit: int) -> Probe:
    """No zero anywhere, magnitudes up to `limit`, at most sqrt(2^24 / K): every product counts."""
    m, n, k = stream.shape
    what = "a lost, doubled or exchanged k, a wrong tile, a lane past the edge"
    a = stream.choice("cover a", _signed(1, limit), (m, k))
    if _thin(stream.shape):
        part = math.isqrt(limit)
        down = stream.choice("cover down", _signed(1, limit // part), (k, 1))
        along = stream.choice("cover along", _signed(1, part), (1, n))
        return Probe("cover", {"a": a, "b": down * along}, (a @ down) * along, what)
    b = stream.choice("cover b", _signed(1, limit), (k, n))
    return Probe("cover", {"a": a, "b": b}, a @ b, what)


def width(stream: Stream, side: str, precision: str) -> Probe:
    """Odd integers of 12 bits (tf32: 11) in one operand, -1, 0 and 1 in the other.

    For tf32 the odd integers are times 2^20 and the others times 2^-20: fp16 has not the range and
    bf16 not the width, while cut and rounded tf32 keep every bit.
    """
    m, n, k = stream.shape
    tf32 = precision == "tf32"
    bits = TF32_BITS if tf32 else IEEE_BITS
    odd = _signed(2 ** (bits - 1) + 1, 2**bits - 1, 2)
    wide = stream.choice(f"{side} wide", odd, (m, k) if side == "a" else (k, n))
    kept = np.zeros(k, np.float32)
    kept[stream.some(f"{side} kept", k, KEPT)] = 1
    if side == "a":
        narrow, want = _narrow(stream, "b", kept, wide)
    else:
        narrow, want = _narrow(stream, "a", kept, wide)
    if tf32:
        wide *= np.float32(2.0**TF32_SHIFT)
        narrow *= np.float32(2.0**-TF32_SHIFT)
    arrays = {"a": wide, "b": narrow} if side == "a" else {"a": narrow, "b": wide}
    what = "operands or results of fewer bits or a smaller range than the precision has"
    return Probe(f"width {side}", arrays, want, what)


def _narrow(
    stream: Stream, side: str, kept: np.ndarray, wide: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The operand of -1, 0 and 1 on `side`, and the product with the `wide` one."""
    m, n, k = stream.shape
    sign = _signed(1, 1)
    if _thin(stream.shape):
        inner = stream.choice(f"{side} inner", sign, (k,)) * kept
        if side == "b":
            along = stream.choice("b along", sign, (1, n))
            return inner[:, None] * along, (wide @ inner)[:, None] * along
        down = stream.choice("a down", sign, (m, 1))
        return down * inner, down * (inner @ wide)
    values = np.array([-1, 0, 1], np.float32)
    if side == "b":
        narrow = stream.choice("b narrow", values, (k, n))
        narrow *= kept[:, None]
        return narrow, wide @ narrow
    narrow = stream.choice("a narrow", values, (m, k))
    narrow *= kept
    return narrow, narrow @ wide


def _signed(low: int, high: int, step: int = 1) -> np.ndarray:
    """float32 low, low + step .. high of either sign."""
    magnitudes = np.arange(low, high + 1, step, dtype=np.float32)
    return np.concatenate([-magnitudes, magnitudes])


def _thin(shape: Sequence[int]) -> bool:
    return 2.0 * math.prod(shape) > WHOLE
