"""Host bits: raw PCG64 words turned into float32 by exact arithmetic, and their sha256.

A `Stream` is keyed by (pair, shape, data, seed); each named input of it has words of its own, so
one input keeps its bits when another is added. numpy promises the words of PCG64, not the values
of its distributions, which is why none of those is used.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

CHUNK = 1 << 15  # words made at a time: they stay in the L2 cache
NORMAL_SCALE = (
    113512 * 2.0**-40
)  # sqrt(3) * 2^-24 to 17 bits: a sum of four uniforms has variance 1/3
NORMAL_LIMIT = 3.47  # no value of `normal` is larger


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
        """float32 of mean 0, variance `scale`^2 and bell shape, none beyond 3.47 * `scale`.

        Four 24-bit uniforms are summed and centred as integers (26 bits and a sign); the product
        with the 17-bit factor is exact in float64, so the only rounding is the last, to float32,
        where `scale` is a power of two or a small integer.
        """
        out = np.empty(tuple(shape), np.float32)
        flat = out.reshape(-1)
        generator = self._generator(name)
        mask = np.uint64(0xFFFFFF)
        for start in range(0, flat.size, CHUNK // 2):
            piece = flat[start : start + CHUNK // 2]
            words = generator.random_raw(2 * piece.size)
            pairs = ((words >> np.uint64(40)) + ((words >> np.uint64(16)) & mask)).astype(np.int32)
            total = pairs[0::2] + pairs[1::2] - np.int32(2 * 0xFFFFFF)
            piece[...] = total * (NORMAL_SCALE * scale)
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
