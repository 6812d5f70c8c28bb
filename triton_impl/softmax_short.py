"""Softmax of short rows, block model: one program owns a block of rows.

For rows so short that one of them leaves a program's threads idle. The block is a value of
`BLOCK_ROWS` x `BLOCK_COLS`, and both reductions go along its columns. Cost: every element is read
once and written once, by fewer programs than there are rows.
"""

import triton
import triton.language as tl


@triton.jit
def softmax_short_kernel(
    in_ptr,
    out_ptr,
    in_stride,
    out_stride,
    n_cols,
    n_rows,
    BLOCK_COLS: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
):
    # This program owns rows BLOCK_ROWS * pid and
    # the BLOCK_ROWS - 1 after it.
    # [load]
    # Lanes past the last row or column hold -inf.
    pid = tl.program_id(0).to(tl.int64)
    rows = pid * BLOCK_ROWS
    rows += tl.arange(0, BLOCK_ROWS)
    cols = tl.arange(0, BLOCK_COLS)
    in_rows = rows[:, None] < n_rows
    mask = in_rows & (cols[None, :] < n_cols)
    x_ptrs = in_ptr + rows[:, None] * in_stride
    x = tl.load(
        x_ptrs + cols,
        mask=mask,
        other=-float("inf"),
    )
    # [row max]
    row_max = tl.max(x, axis=1)
    # [exp and sum]
    e = tl.exp(x - row_max[:, None])
    row_sum = tl.sum(e, axis=1)
    # [scale and store]
    y_ptrs = out_ptr + rows[:, None] * out_stride
    tl.store(
        y_ptrs + cols,
        e / row_sum[:, None],
        mask=mask,
    )
