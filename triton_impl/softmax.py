"""Row softmax, block model: one program owns one row.

out[r, c] = exp(x[r, c] - max(x[r])) / sum(exp(x[r] - max(x[r]))), float32, rows x columns.

The row is one value, `BLOCK_COLS` wide, that the compiler spreads over the program's threads; both
reductions are one call, and no barrier is written. Cost: every element is read once and written
once. A row that one program can't hold takes `softmax_long`: two reads and one write.

Reproduces, in the block model, `softmaxRows` of day 47.
"""

import torch
import triton
import triton.language as tl

from triton_impl.softmax_long import BLOCK_COLS as LONG_BLOCK_COLS
from triton_impl.softmax_long import softmax_long_kernel
from triton_impl.softmax_short import softmax_short_kernel

MAX_BLOCK_COLS = 32768  # 1,024 threads of 32 values: the widest row that stays in registers


@triton.jit
def softmax_kernel(
    in_ptr,
    out_ptr,
    in_stride,
    out_stride,
    n_cols,
    BLOCK_COLS: tl.constexpr,
):
    # This program owns row `row`, whole.
    # [load]
    # x is the row: BLOCK_COLS numbers, one name.
    # Its tail lanes hold -inf, which loses every
    # maximum and adds exp(-inf) = 0 to the sum.
    # Bytes moved: 4 a column, once.
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK_COLS)
    mask = cols < n_cols
    x = tl.load(
        in_ptr + row * in_stride + cols,
        mask=mask,
        other=-float("inf"),
    )
    # [row max]
    # One number. The compiler folds the block:
    # within a thread, a warp, then across warps.
    row_max = tl.max(x, axis=0)
    # [exp and sum]
    # e is as wide as x; nothing is read again.
    e = tl.exp(x - row_max)
    row_sum = tl.sum(e, axis=0)
    # [scale and store]
    # Bytes moved: 4 a column, once.
    tl.store(
        out_ptr + row * out_stride + cols,
        e / row_sum,
        mask=mask,
    )


def block_cols(n_cols: int) -> int:
    """Columns that one program holds at a time: a power of two, all of the row where it fits."""
    return triton.next_power_of_2(n_cols) if n_cols <= MAX_BLOCK_COLS else LONG_BLOCK_COLS


def warps(n_cols: int) -> int:
    """Warps a program: 8 values a thread, 4 to 32 warps (4 at 1,024 columns suits an H200)."""
    return min(32, max(4, block_cols(n_cols) // 256))


def softmax(
    x: torch.Tensor,
    out: torch.Tensor | None = None,
    *,
    num_warps: int | None = None,
    rows: int = 1,
) -> torch.Tensor:
    """Softmax of every row of `x`, float32 (rows, columns), column stride 1, any row stride.

    Writes `out` (same shape and dtype, column stride 1) and returns it; allocates it where None.
    `rows` is how many rows a program owns, a power of two; more than one takes `softmax_short`. No
    rows of data is an empty answer without a launch. ValueError: another dtype or rank, no columns,
    a column stride other than 1, an `out` that does not fit.
    """
    if x.dtype != torch.float32 or x.dim() != 2:
        raise ValueError(f"softmax takes a 2-D float32 tensor, got {x.dim()}-D {x.dtype}")
    n_rows, n_cols = x.shape
    if n_cols == 0:
        raise ValueError("softmax of rows without columns has no value; give at least one column")
    if rows < 1 or rows & (rows - 1) or (rows > 1 and n_cols > MAX_BLOCK_COLS):
        raise ValueError(
            f"rows={rows} must be a power of two, and 1 above {MAX_BLOCK_COLS} columns"
        )
    out = torch.empty_like(x, memory_format=torch.contiguous_format) if out is None else out
    if out.shape != x.shape or out.dtype != x.dtype or out.device != x.device:
        raise ValueError(
            f"out must be float32 {n_rows}x{n_cols} on {x.device}, got {out.dtype} "
            f"{'x'.join(map(str, out.shape))} on {out.device}"
        )
    for name, array in (("x", x), ("out", out)):
        if n_rows and n_cols > 1 and array.stride(1) != 1:
            raise ValueError(
                f"{name} has column stride {array.stride(1)}; softmax wants 1: copy it with "
                ".contiguous() first"
            )
    if n_rows == 0:
        return out
    numbers = (x, out, x.stride(0), out.stride(0), n_cols)
    resources = {
        "BLOCK_COLS": block_cols(n_cols),
        "num_warps": num_warps or warps(n_cols),
        "enable_fp_fusion": True,  # said, since its default differs between versions of Triton
    }
    with torch.cuda.device_of(x):  # Triton launches on the current card
        if rows > 1:
            grid = (triton.cdiv(n_rows, rows),)
            softmax_short_kernel[grid](*numbers, n_rows, BLOCK_ROWS=rows, **resources)
        elif n_cols > MAX_BLOCK_COLS:
            softmax_long_kernel[(n_rows,)](*numbers, **resources)
        else:
            softmax_kernel[(n_rows,)](*numbers, **resources)
    return out
