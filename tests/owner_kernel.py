"""A row's load as the softmax kernel does it, whose every element is asked for its own thread.

The store strides by rows as softmax's does: the compiler takes the layout of the widest access, and
a store whose addresses are all divisible by 16 would bring its own.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def owner_kernel(in_ptr, out_ptr, in_stride, n_cols, BLOCK_COLS: tl.constexpr):
    cols = tl.arange(0, BLOCK_COLS)
    mask = cols < n_cols
    row = tl.program_id(0).to(tl.int64)
    x = tl.load(in_ptr + row * in_stride + cols, mask=mask, other=0.0)
    thread = tl.inline_asm_elementwise(
        "mov.u32 $0, %tid.x;", "=r,r", [x.to(tl.int32, bitcast=True)], tl.int32, False, 1
    )
    tl.store(out_ptr + row * in_stride + cols, thread, mask=mask)


def threads_of_columns(x: torch.Tensor, *, num_warps: int) -> torch.Tensor:
    """The thread that holds each column of the first row of `x`, int32."""
    n_cols = x.shape[1]
    out = torch.empty(n_cols, dtype=torch.int32, device=x.device)
    block = triton.next_power_of_2(n_cols)
    owner_kernel[(1,)](x, out, x.stride(0), n_cols, BLOCK_COLS=block, num_warps=num_warps)
    return out
