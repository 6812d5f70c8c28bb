"""Row softmax, thread model: 256 threads share one row.

out[r, c] = exp(x[r, c] - max(x[r])) / sum(exp(x[r] - max(x[r]))), float32, rows x columns.

One block owns one row and walks it three times; thread t owns columns t, t + 256, t + 512 .. The
maximum and the sum go through shared memory, 256 values folded by halves 128 .. 1, behind five
written barriers. Cost: three reads and one write of every element, 16 bytes. `softmax_rows.cu`.

Reproduces `softmaxRows` of day 47.
"""

from pathlib import Path
from typing import Any

import numpy as np

from .kernel import Launch, card_of, matrix, module_of, output, strides

SOURCE = Path(__file__).with_name("softmax_rows.cu")
KERNEL = "softmaxRows"
THREADS = 256  # THREADS in softmax_rows.cu
FAST_MATH = ("--use_fast_math",)  # expf becomes __expf, / an approximate division


def softmax_rows(x: Any, out: Any = None, *, fast_math: bool = False) -> Any:
    """Softmax of every row of `x`, float32 (rows, columns), column stride 1, any row stride.

    CuPy arrays run on their card, in CuPy's current stream; numpy arrays on the emulator, where
    `fast_math` gives the precise build's bits. Writes `out` (same shape and dtype, column stride 1,
    may be `x`) and returns it; allocates it where None. No rows is an empty answer without a
    launch. ValueError: another dtype or rank, no columns, a column stride other than 1, an `out`
    that does not fit or lies on another card. KernelError: no compiler, or a source that does not
    compile.
    """
    x, y, out = checked_rows(x, out)
    launch(x, y, fast_math=fast_math)()
    return out


def launch(x: Any, out: Any, *, fast_math: bool = False) -> Launch:
    """The launch that `softmax_rows` makes for arrays that fit: one block a row."""
    options = FAST_MATH if fast_math else ()
    return Launch(SOURCE, KERNEL, (x.shape[0],), (THREADS,), row_arguments(x, out), options)


def row_arguments(x: Any, out: Any) -> tuple[Any, ...]:
    """What both softmax kernels take: in_ptr, out_ptr, in_stride, out_stride, n_cols."""
    return x, out, strides(x)[0], strides(out)[0], np.int32(x.shape[1])


def checked_rows(x: Any, out: Any) -> tuple[Any, Any, Any]:
    """`x`, the array to write, and what to return: `out` itself, or the new array. ValueError."""
    library = module_of(x, out)
    with card_of(x, out):
        x = matrix("x", library.asarray(x))
        if x.shape[1] == 0:
            raise ValueError(
                "softmax of rows without columns has no value; give at least one column"
            )
        out = output(out, x.shape, library)
        y = library.asarray(out)
    for name, array in (("x", x), ("out", y)):
        if x.shape[0] and x.shape[1] > 1 and strides(array)[1] != 1:
            raise ValueError(
                f"{name} has column stride {strides(array)[1]}; softmax wants 1: copy it with "
                "ascontiguousarray first"
            )
    return x, y, out
