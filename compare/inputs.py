"""Host bits: raw PCG64 words turned into float32 by exact arithmetic, and their sha256.

A `Stream` is keyed by (pair, shape, data, seed); each named input of it has words of its own, so
one input keeps its bits when another is added. numpy promises the words of PCG64, not the values
of its distributions, which is why none of those is used.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist

import numpy as np

CHUNK = 1 << 15  # words made at a time: they stay in the L2 cache
LEVELS = 4096  # equally likely values of each of the two parts of a normal
LEVELS_SPREAD = 0.9998397092  # standard deviation of those values
NORMAL_LIMIT = 5.14  # no value of `normal` is larger


@cache
def normal_parts() -> tuple[np.ndarray, np.ndarray]:
    """Two int32 tables (4096,) in units of 2^-22: the levels of a normal of variance 0.64, of 0.36.

    A level is the median of its part of the distribution, which `statistics` computes (Wichura's
    AS241, good to 1e-16: far less than the unit, so that every machine gets the same integers).
    """
    quantile = NormalDist().inv_cdf
    upper = [quantile((level + 0.5) / LEVELS) for level in range(LEVELS // 2, LEVELS)]
    levels = np.array([-x for x in reversed(upper)] + upper) / LEVELS_SPREAD
    large, small = (np.rint(levels * part * 2.0**22).astype(np.int32) for part in (0.8, 0.6))
    return large, small


def sha256(array: np.ndarray) -> str:
    """Hex sha256 of an array's bytes in C order."""
    return hashlib.sha256(np.ascontiguousarray(array).data).hexdigest()


@dataclass(frozen=True)
class Stream:
    """The numbers that belong to one (pair, shape, data, seed)."""

    pair: str
    shape: Sequence[int]
    data: str
    seed: int

    def _generator(self, name: str) -> np.random.PCG64:
        shape = "x".join(str(size) for size in self.shape)
        key = f"{self.pair}/{shape}/{self.data}/{self.seed}/{name}"
        return np.random.PCG64(int.from_bytes(hashlib.sha256(key.encode()).digest(), "big"))

    def words(self, name: str, count: int) -> np.ndarray:
        """`count` raw 64-bit words, uint64."""
        return self._generator(name).random_raw(count)

    def normal(self, name: str, shape: Sequence[int], scale: float = 1.0) -> np.ndarray:
        """float32 of mean 0, variance `scale`^2 and a normal's tails, none beyond 5.14 * `scale`.

        Two levels of `normal_parts`, drawn with 12 bits each, are added as integers (25 bits and a
        sign), so the only rounding is to float32 where `scale` is a power of two or a small
        integer. The fourth moment is 2.995, the sixth 14.9 (a normal's are 3 and 15).
        """
        out = np.empty(tuple(shape), np.float32)
        flat = out.reshape(-1)
        generator = self._generator(name)
        large, small = normal_parts()
        for start in range(0, flat.size, 2 * CHUNK):
            piece = flat[start : start + 2 * CHUNK]
            words = generator.random_raw((piece.size + 1) // 2)
            drawn = words.astype("<u8", copy=False).view("<u2") >> np.uint16(4)
            total = large[drawn[0::2]] + small[drawn[1::2]]
            piece[...] = total[: piece.size] * (scale * 2.0**-22)
        return out

    def choice(self, name: str, values: np.ndarray, shape: Sequence[int]) -> np.ndarray:
        """Entries of the 1-D array `values`, each as likely as the next, from 32 bits each."""
        out = np.empty(tuple(shape), values.dtype)
        flat = out.reshape(-1)
        generator = self._generator(name)
        for start in range(0, flat.size, 2 * CHUNK):
            piece = flat[start : start + 2 * CHUNK]
            words = generator.random_raw((piece.size + 1) // 2)
            index = words.astype("<u8", copy=False).view("<u4")[: piece.size].astype(np.uint64)
            index *= np.uint64(values.size)
            index >>= np.uint64(32)
            np.take(values, index.view(np.int64), out=piece, mode="clip")
        return out

    def integers(self, name: str, low: int, high: int, shape: Sequence[int]) -> np.ndarray:
        """int64 in low .. high, both included; few enough to stand in a table."""
        return self.choice(name, np.arange(low, high + 1), shape)

    def uniform(self, name: str, shape: Sequence[int]) -> np.ndarray:
        """float32 in (0, 1): odd multiples of 2^-24, exact."""
        count = int(np.prod(tuple(shape), dtype=np.int64))
        odd = (self.words(name, count) >> np.uint64(40)) | np.uint64(1)
        return (odd.astype(np.float32) * np.float32(2.0**-24)).reshape(tuple(shape))

    def some(self, name: str, count: int, wanted: int) -> np.ndarray:
        """`wanted` different indices below `count` (all where there are no more), ascending."""
        if wanted >= count:
            return np.arange(count)
        return np.sort(np.argsort(self.words(name, count), kind="stable")[:wanted])
