"""Row softmax, block model, with CUDA's bits: one program owns one row.

The result of a softmax is decided by three ingredients, each a choice here:
  exp  "tl" `tl.exp` (ex2.approx), "libdevice" `libdevice.exp` (the sequence that CUDA's expf is)
  div  "tl" `/` (div.full), "rn" `tl.div_rn` (rounded to nearest, CUDA's `/`)
  order  "tl" `tl.sum`, "cuda" the tree that `softmaxRows` writes out
The maximum needs no care: it is exact in any order. A row is walked in blocks of THREADS columns,
so that lane t keeps what CUDA's thread t keeps: columns t, t + 256, .. one running sum. Any length
of row; three reads, of which two hit the cache, and one write.
"""

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

THREADS = 256  # lanes, as CUDA's block has threads; the tree below halves them 8 times
EXPONENTIALS, DIVISIONS, ORDERS = ("tl", "libdevice"), ("tl", "rn"), ("tl", "cuda")


@triton.jit
def exponential(x, EXP: tl.constexpr):
    if EXP == "libdevice":
        return libdevice.exp(x)
    else:
        return tl.exp(x)


@triton.jit
def fold_halves(v, WIDTH: tl.constexpr):
    # Lane i takes in lane i + WIDTH / 2, and so on
    # down to one: the tree through CUDA's shared
    # memory. Each level is a sum of two, which has
    # one order, whatever the compiler does.
    HALF: tl.constexpr = WIDTH // 2
    v = tl.sum(tl.reshape(v, (2, HALF)), axis=0)
    if HALF > 1:
        return fold_halves(v, HALF)
    else:
        return tl.sum(v, axis=0)


@triton.jit
def softmax_twin_kernel(
    in_ptr,
    out_ptr,
    in_stride,
    out_stride,
    n_cols,
    THREADS: tl.constexpr,
    EXP: tl.constexpr,
    DIV: tl.constexpr,
    ORDER: tl.constexpr,
):
    # This program owns row `row`; lane t owns
    # columns t, t + THREADS, ..
    row = tl.program_id(0).to(tl.int64)
    x_row = in_ptr + row * in_stride
    y_row = out_ptr + row * out_stride
    lanes = tl.arange(0, THREADS)
    none = -float("inf")
    low = tl.full((THREADS,), none, tl.float32)
    for start in range(0, n_cols, THREADS):
        mask = lanes < n_cols - start
        ptrs = x_row + start + lanes
        x = tl.load(ptrs, mask=mask, other=none)
        low = tl.maximum(low, x)
    row_max = tl.max(low, axis=0)
    # A lane past the end adds exp(-inf) = 0: no
    # bit of its sum changes.
    sums = tl.zeros((THREADS,), tl.float32)
    for start in range(0, n_cols, THREADS):
        mask = lanes < n_cols - start
        ptrs = x_row + start + lanes
        x = tl.load(ptrs, mask=mask, other=none)
        sums += exponential(x - row_max, EXP)
    if ORDER == "cuda":
        row_sum = fold_halves(sums, THREADS)
    else:
        row_sum = tl.sum(sums, axis=0)
    for start in range(0, n_cols, THREADS):
        mask = lanes < n_cols - start
        ptrs = x_row + start + lanes
        x = tl.load(ptrs, mask=mask)
        e = exponential(x - row_max, EXP)
        if DIV == "rn":
            y = tl.div_rn(e, row_sum)
        else:
            y = e / row_sum
        ptrs = y_row + start + lanes
        tl.store(ptrs, y, mask=mask)


def softmax_twin(
    x: torch.Tensor,
    out: torch.Tensor | None = None,
    *,
    exp: str,
    div: str,
    order: str = "cuda",
) -> torch.Tensor:
    """Softmax of every row of `x`, float32 (rows, columns), column stride 1, from ingredients.

    Against `softmaxRows`: exp="libdevice", div="rn" gives the precise build's bits, exp="tl",
    div="tl" the fast-math build's. Writes and returns `out`. ValueError: an unknown ingredient,
    another dtype, rank or column stride, no columns, an `out` that does not fit, or libdevice.exp
    under the interpreter, which has none.
    """
    for name, value, known in (
        ("exp", exp, EXPONENTIALS),
        ("div", div, DIVISIONS),
        ("order", order, ORDERS),
    ):
        if value not in known:
            raise ValueError(f"{name} {value!r} is unknown; choose {' or '.join(known)}")
    if exp == "libdevice" and not isinstance(softmax_twin_kernel, triton.runtime.JITFunction):
        raise ValueError(
            "Triton's interpreter has no libdevice.exp: CUDA's exponential needs a card"
        )
    if x.dtype != torch.float32 or x.dim() != 2:
        raise ValueError(f"softmax takes a 2-D float32 tensor, got {x.dim()}-D {x.dtype}")
    rows, n_cols = x.shape
    if n_cols == 0:
        raise ValueError("softmax of rows without columns has no value; give at least one column")
    out = torch.empty_like(x, memory_format=torch.contiguous_format) if out is None else out
    if out.shape != x.shape or out.dtype != x.dtype or out.device != x.device:
        raise ValueError(
            f"out must be float32 {rows}x{n_cols} on {x.device}, got {out.dtype} "
            f"{'x'.join(map(str, out.shape))} on {out.device}"
        )
    for name, array in (("x", x), ("out", out)):
        if rows and n_cols > 1 and array.stride(1) != 1:
            raise ValueError(
                f"{name} has column stride {array.stride(1)}; softmax wants 1: copy it with "
                ".contiguous() first"
            )
    if rows:
        with torch.cuda.device_of(x):  # Triton launches on the current card
            softmax_twin_kernel[(rows,)](
                x,
                out,
                x.stride(0),
                out.stride(0),
                n_cols,
                THREADS=THREADS,
                EXP=exp,
                DIV=div,
                ORDER=order,
                num_warps=THREADS // 32,  # one lane a thread
                enable_fp_fusion=True,
            )
    return out
