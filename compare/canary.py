"""Four small kernels that Triton's interpreter must get right before its results are believed.

Some pairs of Triton and numpy don't work together: 3.6.0 with numpy 2.4.6 fails at any loop with a
run-time bound; others returned zeros or ignored `other`. One sentence beats a report full of NO
MATCH.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def copy_kernel(in_ptr, out_ptr, n, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    tl.store(out_ptr + cols, tl.load(in_ptr + cols, mask=cols < n), mask=cols < n)


@triton.jit
def masked_sum_kernel(in_ptr, out_ptr, n, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    tl.store(out_ptr, tl.sum(tl.load(in_ptr + cols, mask=cols < n, other=0.0), axis=0))


@triton.jit
def loop_kernel(in_ptr, out_ptr, n, BLOCK: tl.constexpr):
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        total += tl.load(in_ptr + cols, mask=cols < n, other=0.0)
    tl.store(out_ptr, tl.sum(total, axis=0))


@triton.jit
def dot_kernel(in_ptr, out_ptr, n, BLOCK: tl.constexpr):
    rows, cols = tl.arange(0, BLOCK)[:, None], tl.arange(0, BLOCK)[None, :]
    x = tl.load(in_ptr + rows * BLOCK + cols)
    tl.store(out_ptr + rows * BLOCK + cols, tl.dot(x, x, input_precision="ieee"))


def fault() -> str:
    """What the interpreter gets wrong here, "" where it gets all four right."""
    ramp = torch.arange(1, 257, dtype=torch.float32)
    square = ramp.reshape(16, 16) % 5
    cases = (
        ("a copy", copy_kernel, ramp[:6], 6, 8, ramp[:6]),
        ("a masked sum", masked_sum_kernel, torch.ones(256), 16, 256, torch.tensor([16.0])),
        ("a loop with a run-time bound", loop_kernel, ramp, 256, 64, torch.tensor([32896.0])),
        ("tl.dot", dot_kernel, square, 16, 16, square @ square),
    )
    for name, kernel, x, n, block, want in cases:
        out = torch.full_like(want, float("nan"))
        try:
            kernel[(1,)](x, out, n, BLOCK=block)
        except Exception as error:  # noqa: BLE001 - whatever it raises, it can't be used
            return f"{name} raises {type(error).__name__}"
        if not torch.equal(out, want):
            return f"{name} gives a wrong result"
    return ""
