"""Float32 arrays element by element: bits, distances in ULP, shares of what is allowed.

Large arrays are walked in pieces that stay in the cache: a pass over memory costs more than the
arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

PIECE = 1 << 17  # elements judged at a time: few enough for a cache, enough for threads
SIGN_OFF = np.int32(0x7FFFFFFF)
SMALLEST_NORMAL = np.int32(0x00800000)  # the bits of 2^-126


def hex_bits(value: float) -> str:
    """The float32 bits of `value` as `0x3f800000`."""
    with np.errstate(over="ignore"):
        return f"0x{int(np.float32(value).view(np.uint32)):08x}"


def ulp_distance(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """How many float32 lie between two arrays, float64, 0 where they are equal.

    Magnitudes below 2^-126 count as zero of their sign, since either side may flush them. NaN has
    no distance: what stands there means nothing.
    """
    distance = _ordinal(one).astype(np.float64)
    distance -= _ordinal(other)
    return np.abs(distance, out=distance)


def _ordinal(array: np.ndarray) -> np.ndarray:
    bits = np.ascontiguousarray(array, np.float32).view(np.int32)
    rank = np.bitwise_and(bits, SIGN_OFF)
    np.maximum(rank, SMALLEST_NORMAL, out=rank)
    rank -= SMALLEST_NORMAL
    sign = bits >> 31  # 0 or -1, so that the next line negates without a branch
    rank ^= sign
    rank -= sign
    return rank


def bucket_counts(distance: np.ndarray) -> np.ndarray:
    """Counts of 0, 1, 2-3, 4-7, .. of whole, not negative float64; index = bit length."""
    exponent = distance.view(np.int64) >> 52
    exponent -= 1022  # of 1.0 the biased exponent is 1023; of 0.0 it is 0
    return np.bincount(np.maximum(exponent, 0, out=exponent), minlength=34)


def buckets(counts: np.ndarray) -> dict[str, int]:
    names = ["0", "1", *(f"{2**k}-{2 ** (k + 1) - 1}" for k in range(1, len(counts)))]
    return {name: int(n) for name, n in zip(names, counts, strict=False) if n}


def pieces(count: int) -> Iterator[slice]:
    return (slice(at, min(at + PIECE, count)) for at in range(0, count, PIECE))


def flat(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    return np.ascontiguousarray(np.broadcast_to(array, shape)).reshape(-1)


def shares(distance: np.ndarray, allowed: np.ndarray) -> np.ndarray:
    """distance / allowed; 0 where nothing is off, inf where nothing sensible is allowed."""
    share = distance / allowed
    if math.isnan(share.max()):
        share[np.isnan(share)] = np.inf
        share[distance == 0] = 0
    return share


def unfit(got: np.ndarray, shape: tuple[int, ...] | None) -> str:
    """Why an output can't be compared at all: another dtype or shape; empty where it can."""
    is_ = f"{got.dtype} {'x'.join(map(str, got.shape)) or 'scalar'}"
    if got.dtype != np.float32 or (shape is not None and got.shape != shape):
        want = "" if shape is None else f" {'x'.join(map(str, shape))}"
        return f"the output is {is_}; float32{want} was asked for"
    return ""
