"""Matrix product, block model: one program owns one tile of C.

C[m, n] = sum over k of A[m, k] * B[k, n], float32 in and out, accumulated in float32.

A program walks K in steps of `BLOCK_K`; the tile of C that it sums is a value, not a buffer: no
shared memory is declared and no barrier written. What the multiplier does with float32 operands is
said at every call: `ieee` multiplies them as they are, `tf32` lets the tensor core keep 11 bits of
each. Cost: 2 M N K operations; A is read N / BLOCK_N times, B M / BLOCK_M times, mostly from L2.

Reproduces, in the block model, the GemmEx call of day 44.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
import triton
import triton.language as tl

# tf32x3, bf16x3 and bf16x6 split each operand and add three or six products on the tensor cores.
PRECISIONS = ("ieee", "tf32", "tf32x3", "bf16x3", "bf16x6")


class Config(NamedTuple):
    """How a program cuts the product: its tile of C, its step in K, its order, its resources."""

    block_m: int
    block_n: int
    block_k: int
    group_m: int = 8
    num_warps: int = 4
    num_stages: int = 3

    def __str__(self) -> str:
        return f"{self.block_m}x{self.block_n}x{self.block_k}"


CONFIGS = (
    Config(64, 64, 32, group_m=8, num_warps=4, num_stages=3),
    Config(128, 128, 32, group_m=8, num_warps=8, num_stages=3),
    Config(128, 64, 64, group_m=8, num_warps=4, num_stages=4),
)


@triton.jit
def matmul_kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    m,
    n,
    k,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    stride_cm,
    stride_cn,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    PRECISION: tl.constexpr,
    WIDE: tl.constexpr,
):
    # This program owns one tile of C.
    # [tile]
    # Programs near in number are near in C: they
    # walk down GROUP_M tiles, then one to the
    # right, and share A and B in L2. The last
    # group has fewer rows.
    pid = tl.program_id(0)
    tiles_m = tl.cdiv(m, BLOCK_M)
    tiles_n = tl.cdiv(n, BLOCK_N)
    per_group = GROUP_M * tiles_n
    first_m = (pid // per_group) * GROUP_M
    rows = min(tiles_m - first_m, GROUP_M)
    tile_m = first_m + (pid % per_group) % rows
    tile_n = (pid % per_group) // rows
    # 64 bits: a row times its stride passes 2^31.
    row = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    col = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    row = row.to(tl.int64)
    col = col.to(tl.int64)
    step = tl.arange(0, BLOCK_K).to(tl.int64)
    in_m = row[:, None] < m
    in_n = col[None, :] < n
    a_ptrs = a_ptr + row[:, None] * stride_am
    a_ptrs += step[None, :] * stride_ak
    b_ptrs = b_ptr + step[:, None] * stride_bk
    b_ptrs += col[None, :] * stride_bn
    # A step in K, too, passes 2^31 at such
    # strides; only then is it made 64 bits wide.
    jump = BLOCK_K
    if WIDE:
        jump = tl.full((), BLOCK_K, tl.int64)
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, k, BLOCK_K):
        # [load]
        # a and b: BLOCK_M x BLOCK_K of A, BLOCK_K
        # x BLOCK_N of B; zero past any edge.
        left = k - start
        a = tl.load(
            a_ptrs,
            mask=in_m & (step[None, :] < left),
            other=0.0,
        )
        b = tl.load(
            b_ptrs,
            mask=(step[:, None] < left) & in_n,
            other=0.0,
        )
        # [multiply]
        # 2 BLOCK_M BLOCK_N BLOCK_K operations.
        acc = tl.dot(
            a,
            b,
            acc,
            input_precision=PRECISION,
        )
        a_ptrs += jump * stride_ak
        b_ptrs += jump * stride_bk
    # [store]
    # Bytes moved: 4 an element of C, once.
    c_ptrs = c_ptr + row[:, None] * stride_cm
    c_ptrs += col[None, :] * stride_cn
    tl.store(c_ptrs, acc, mask=in_m & in_n)


def known_precisions() -> tuple[str, ...]:
    """Those of PRECISIONS that the installed Triton has, compiled or interpreted as it is here."""
    if isinstance(matmul_kernel, triton.JITFunction):
        from triton.backends.nvidia.compiler import CUDAOptions as Options
    else:
        from triton.runtime.interpreter import InterpreterOptions as Options
    allowed = Options.allowed_dot_input_precisions
    return tuple(precision for precision in PRECISIONS if precision in allowed)


def matmul(
    a: torch.Tensor,
    b: torch.Tensor,
    out: torch.Tensor | None = None,
    *,
    precision: str,
    config: Sequence[int],
) -> torch.Tensor:
    """A (M, K) times B (K, N), float32, any strides; writes and returns `out` (M, N), float32.

    `precision` is one of PRECISIONS and has no default: Triton's own is tf32, torch's is ieee.
    `config` is a Config or its numbers in order. Any of M, N, K may be 0 (K = 0 gives zeros).
    ValueError: another dtype, rank or precision, shapes or devices that do not fit.
    """
    if precision not in PRECISIONS:
        raise ValueError(f"precision {precision!r} is unknown; choose {' or '.join(PRECISIONS)}")
    if precision not in known_precisions():
        raise ValueError(
            f"Triton {triton.__version__} has no {precision} here; it knows "
            f"{', '.join(known_precisions())}"
        )
    for name, array in (("a", a), ("b", b)):
        if array.dtype != torch.float32 or array.dim() != 2:
            raise ValueError(
                f"matmul takes 2-D float32 tensors, {name} is {array.dim()}-D {array.dtype}"
            )
    if a.shape[1] != b.shape[0]:
        raise ValueError(f"a has {a.shape[1]} columns and b {b.shape[0]} rows; they must be equal")
    if a.device != b.device:
        raise ValueError(f"a is on {a.device} and b on {b.device}; put both on one card")
    (m, k), n = a.shape, b.shape[1]
    out = torch.empty((m, n), dtype=a.dtype, device=a.device) if out is None else out
    if tuple(out.shape) != (m, n) or out.dtype != a.dtype or out.device != a.device:
        raise ValueError(
            f"out must be float32 {m}x{n} on {a.device}, got {out.dtype} "
            f"{'x'.join(map(str, out.shape))} on {out.device}"
        )
    if m and n:
        cut = Config(*config)
        tiles = triton.cdiv(m, cut.block_m) * triton.cdiv(n, cut.block_n)
        with torch.cuda.device_of(a):  # Triton launches on the current card
            matmul_kernel[(tiles,)](
                a,
                b,
                out,
                m,
                n,
                k,
                *a.stride(),
                *b.stride(),
                *out.stride(),
                BLOCK_M=cut.block_m,
                BLOCK_N=cut.block_n,
                BLOCK_K=cut.block_k,
                GROUP_M=cut.group_m,
                PRECISION=precision,
                WIDE=cut.block_k * max(a.stride(1), b.stride(0)) >= 2**31,
                num_warps=cut.num_warps,
                num_stages=cut.num_stages,
                enable_fp_fusion=True,  # said, since its default differs between versions of Triton
            )
    return out
