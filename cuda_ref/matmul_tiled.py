"""Matrix product, thread model: 256 threads share one 16 x 16 tile of C.

C[m, n] = sum over k of A[m, k] * B[k, n], float32 in and out, any layout.

One block owns one tile; each thread owns one element of it and one running sum over k = 0, 1, 2 ..,
one fma a term. Each step stages a tile of A and a tile of B in shared memory between two barriers,
so each element of A or B is read once a tile: 8 bytes of traffic for 32 operations a thread.
`matmul_tiled.cu`.
"""

from pathlib import Path
from typing import Any

import numpy as np

from .kernel import Launch, card_of, matrix, module_of, output, strides

SOURCE = Path(__file__).with_name("matmul_tiled.cu")
KERNEL = "matmulTiled"
TILE = 16  # TILE in matmul_tiled.cu


def matmul_tiled(a: Any, b: Any, out: Any = None) -> Any:
    """A (M, K) times B (K, N), float32, any strides; writes and returns `out` (M, N), float32.

    CuPy arrays run on their card, in CuPy's current stream; numpy arrays on the emulator, with the
    same bits. Any of M, N, K may be 0 (K = 0 gives zeros) and launches nothing. ValueError: another
    dtype or rank, shapes that do not fit, arrays on two cards, more than 2^31 - 1 tiles.
    KernelError: no compiler, or a source that does not compile.
    """
    library = module_of(a, b, out)
    with card_of(a, b, out):
        a, b = matrix("a", library.asarray(a)), matrix("b", library.asarray(b))
        if a.shape[1] != b.shape[0]:
            raise ValueError(
                f"a has {a.shape[1]} columns and b {b.shape[0]} rows; they must be equal"
            )
        (m, k), n = a.shape, b.shape[1]
        out = output(out, (m, n), library)
        c = library.asarray(out)
        if k == 0:
            c[...] = 0
        else:
            launch(a, b, c)()
    return out


def launch(a: Any, b: Any, out: Any) -> Launch:
    """The launch that `matmul_tiled` makes for arrays that fit: one block a tile of `out`."""
    (m, k), n = a.shape, b.shape[1]
    tiles = -(-m // TILE) * -(-n // TILE)
    if tiles > 2**31 - 1:
        raise ValueError(f"out of {m}x{n} has {tiles:,} tiles; a grid holds {2**31 - 1:,}")
    sizes = np.int32(m), np.int32(n), np.int32(k)
    arguments = (a, b, out, *sizes, *strides(a), *strides(b), *strides(out))
    return Launch(SOURCE, KERNEL, (tiles,), (TILE, TILE), arguments)
