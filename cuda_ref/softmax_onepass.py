"""Row softmax, thread model, as an expert writes it: one read, the row in registers.

out[r, c] = exp(x[r, c] - max(x[r])) / sum(exp(x[r] - max(x[r]))), float32, rows x columns.

One block owns one row and keeps it in registers, 8 values a thread where the row allows. Warps fold
by shuffles, the block by one barrier a fold. Cost: one read and one write of every element, 8
bytes. Rows of more than 32,768 columns take `softmaxLooping`: two reads. `softmax_onepass.cu`.
"""

from pathlib import Path
from typing import Any

from .kernel import Launch
from .softmax import checked_rows, row_arguments

SOURCE = Path(__file__).with_name("softmax_onepass.cu")
MAX_THREADS = 1024
MAX_COLS = 32 * MAX_THREADS  # 32 registers a thread hold the row
PIECES = (1, 2, 4, 8)  # the N for which softmax_onepass.cu has a softmaxOnePass<N>


def plan(n_cols: int) -> tuple[str, int]:
    """The kernel for rows of `n_cols` columns and its threads a block, a multiple of 32.

    8 values a thread (two 128-bit loads in flight) keep 2048 blocks of 1,024 columns resident at
    once on 132 SMs; a row too long for 1,024 such threads gets 16 or 32 values a thread.
    """
    if n_cols > MAX_COLS:
        return "softmaxLooping", MAX_THREADS
    threads = min(MAX_THREADS, max(32, -(-n_cols // 256) * 32))
    pieces = next(n for n in PIECES if 4 * n * threads >= n_cols)
    return f"softmaxOnePass{pieces}", threads


def softmax_onepass(x: Any, out: Any = None) -> Any:
    """Softmax of every row of `x`, float32 (rows, columns), column stride 1, any row stride.

    CuPy arrays run on their card, in CuPy's current stream; numpy arrays on the emulator. Writes
    `out` (same shape and dtype, column stride 1, may be `x`) and returns it; allocates it where
    None. No rows is an empty answer without a launch. ValueError: another dtype or rank, no
    columns, a column stride other than 1, an `out` that does not fit or lies on another card.
    KernelError: no compiler, or a source that does not compile.
    """
    x, y, out = checked_rows(x, out)
    launch(x, y)()
    return out


def launch(x: Any, out: Any) -> Launch:
    """The launch that `softmax_onepass` makes for arrays that fit: one block a row."""
    name, threads = plan(x.shape[1])
    return Launch(SOURCE, name, (x.shape[0],), (threads,), row_arguments(x, out))
