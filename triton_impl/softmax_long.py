"""Softmax of a long row, block model: one program owns one row, a block of it at a time.

For rows that don't fit one program's registers. The first walk keeps, in every lane, the maximum of
the columns that the lane has met and the sum of their exponentials less that maximum, rescaled
whenever the maximum grows (the online softmax of Milakov and Gimelshein, arXiv 1805.02867). The
second walk reads the row again and writes it. Cost: every element is read twice and written once.
"""

import triton
import triton.language as tl

BLOCK_COLS = 16384  # columns that a program holds at a time: 16 a thread with 32 warps


@triton.jit
def softmax_long_kernel(
    in_ptr,
    out_ptr,
    in_stride,
    out_stride,
    n_cols,
    BLOCK_COLS: tl.constexpr,
):
    # This program owns row `row`, of which it
    # holds BLOCK_COLS columns at a time. Lane i
    # keeps the maximum and the sum of columns
    # i, i + BLOCK_COLS, i + 2 * BLOCK_COLS ..
    row = tl.program_id(0).to(tl.int64)
    in_row = in_ptr + row * in_stride
    out_row = out_ptr + row * out_stride
    cols = tl.arange(0, BLOCK_COLS)
    lane_max = tl.full((BLOCK_COLS,), -float("inf"), tl.float32)
    lane_sum = tl.zeros((BLOCK_COLS,), tl.float32)
    # A lane that has met only -inf keeps a sum of
    # zero: -inf less itself would be NaN, so its
    # shift is zero instead.
    for start in range(0, n_cols, BLOCK_COLS):
        mask = cols < n_cols - start
        x = tl.load(
            in_row + start + cols,
            mask=mask,
            other=-float("inf"),
        )
        new_max = tl.maximum(lane_max, x)
        shift = tl.where(new_max == -float("inf"), 0.0, new_max)
        lane_sum = lane_sum * tl.exp(lane_max - shift) + tl.exp(x - shift)
        lane_max = new_max
    row_max = tl.max(lane_max, axis=0)
    lane_sum *= tl.exp(lane_max - row_max)
    row_sum = tl.sum(lane_sum, axis=0)
    # The second read of the row; then the write.
    for start in range(0, n_cols, BLOCK_COLS):
        mask = cols < n_cols - start
        x = tl.load(in_row + start + cols, mask=mask)
        y = tl.exp(x - row_max) / row_sum
        tl.store(out_row + start + cols, y, mask=mask)
