"""Matrix product, block model, operands rounded to tf32 on their way: nothing is packed before.

`matmul_twin` for a Triton whose tensor descriptors round what they load (3.7 and newer).
The product is taken the other way round, C^T = B^T A^T: A comes by a rounding descriptor and lies
along K, as a tf32 `wgmma` wants its second operand; B is rounded in registers, which is where its
first operand may be. The order of every sum stays what it was.
"""

import torch
import triton
import triton.language as tl

from .matmul_twin import Order
from .pack import round_to_tf32


@triton.jit
def descriptor_kernel(
    a_desc,
    b_ptr,
    c_ptr,
    begin_ptr,
    end_ptr,
    m,
    n,
    stride_bk,
    stride_bn,
    stride_chain,
    stride_cm,
    stride_cn,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
):
    # This program owns one tile of one chain's sum,
    # and holds it transposed.
    pid = tl.program_id(0)
    chain = tl.program_id(1).to(tl.int64)
    tiles_m = tl.cdiv(m, BLOCK_M)
    tiles_n = tl.cdiv(n, BLOCK_N)
    per_group = GROUP_M * tiles_n
    first_m = (pid // per_group) * GROUP_M
    rows = min(tiles_m - first_m, GROUP_M)
    tile_m = first_m + (pid % per_group) % rows
    tile_n = (pid % per_group) // rows
    begin = tl.load(begin_ptr + chain)
    end = tl.load(end_ptr + chain)
    row = tile_m * BLOCK_M
    offs_m = tl.arange(0, BLOCK_M).to(tl.int64)
    offs_n = tl.arange(0, BLOCK_N).to(tl.int64)
    offs_m += row
    offs_n += tile_n * BLOCK_N
    offs_k = tl.arange(0, BLOCK_K).to(tl.int64)
    in_m = offs_m[None, :] < m
    in_n = offs_n[:, None] < n
    b_ptrs = b_ptr + begin * stride_bk
    b_ptrs += offs_k[None, :] * stride_bk
    b_ptrs += offs_n[:, None] * stride_bn
    acc = tl.zeros((BLOCK_N, BLOCK_M), tl.float32)
    # A descriptor counts in 32 bits.
    first = begin.to(tl.int32)
    last = end.to(tl.int32)
    for start in range(first, last, BLOCK_K):
        # Past the edges of A the descriptor gives
        # zeros; it has rounded what it gives.
        a = a_desc.load([row, start])
        in_k = offs_k < last - start
        mask = in_n & in_k[None, :]
        b = tl.load(b_ptrs, mask=mask, other=0.0)
        b = round_to_tf32(b)
        acc = tl.dot(
            b,
            tl.trans(a),
            acc,
            input_precision="tf32",
        )
        b_ptrs += BLOCK_K * stride_bk
    c_ptrs = c_ptr + chain * stride_chain
    c_ptrs += offs_m[None, :] * stride_cm
    c_ptrs += offs_n[:, None] * stride_cn
    tl.store(c_ptrs, acc, mask=in_m & in_n)


def descriptors_round() -> bool:
    """Whether this Triton's tensor descriptors can round to tf32 what they load."""
    from triton.tools.tensor_descriptor import TensorDescriptor

    return "round_f32_to_tf32" in getattr(TensorDescriptor, "__dataclass_fields__", {})


def unfit(a: torch.Tensor, order: Order, block_k: int) -> str:
    """Why a descriptor can't take A in this order; "" where it can."""
    if not descriptors_round():
        return f"tensor descriptors of Triton {triton.__version__} do not round to tf32"
    if a.stride(1) != 1 or a.stride(0) % 4 or a.data_ptr() % 16:
        return "a descriptor wants A along K, its rows a multiple of 16 bytes apart"
    ends = zip(order.begin, order.end, strict=True)
    inner = [end - begin for begin, end in ends if end != a.shape[1]]
    if order.gather is not None or any(length % block_k for length in inner):
        return f"a descriptor wants chains of whole steps of {block_k}"
    return ""


def launch(
    a: torch.Tensor,
    b: torch.Tensor,
    sums: torch.Tensor,
    tables: tuple[torch.Tensor, torch.Tensor],
    config: tuple[int, ...],
) -> None:
    """Every chain of `tables` (begin, end) into `sums` (chains, M, N); A must not be `unfit`."""
    from triton.tools.tensor_descriptor import TensorDescriptor

    block_m, block_n, block_k, group_m, num_warps, num_stages = config
    m, n = a.shape[0], b.shape[1]
    descriptor = TensorDescriptor.from_tensor(a, [block_m, block_k], round_f32_to_tf32=True)
    descriptor_kernel[(triton.cdiv(m, block_m) * triton.cdiv(n, block_n), len(tables[0]))](
        descriptor,
        b,
        sums,
        *tables,
        m,
        n,
        *b.stride(),
        *sums.stride(),
        BLOCK_M=block_m,
        BLOCK_N=block_n,
        BLOCK_K=block_k,
        GROUP_M=group_m,
        num_warps=num_warps,
        num_stages=num_stages,
        enable_fp_fusion=True,
    )
