"""float32 as a tensor core takes it: 11 bits, cut or rounded."""

from __future__ import annotations

import numpy as np


def to_tf32(array: np.ndarray) -> np.ndarray:
    """float32 rounded to tf32, to nearest, ties to even; NaN and infinity as they are."""
    bits = np.ascontiguousarray(array, np.float32).view(np.uint32)
    near = (bits + np.uint32(0xFFF) + ((bits >> np.uint32(13)) & np.uint32(1))) & np.uint32(
        0xFFFFE000
    )
    special = (bits & np.uint32(0x7FFFFFFF)) >= np.uint32(0x7F800000)
    return np.where(special, bits, near).view(np.float32)


def cut_to_tf32(array: np.ndarray) -> np.ndarray:
    """float32 with the last 13 bits off, as a tensor core cuts what it is given."""
    bits = np.ascontiguousarray(array, np.float32).view(np.uint32)
    return (bits & np.uint32(0xFFFFE000)).view(np.float32)
