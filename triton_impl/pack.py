"""Operands of a product, packed: rounded to tf32, in the order in which K will be added, along K.

Rounding is to nearest, ties to even, as cuBLAS does it; a tensor core by itself cuts its operands.
Cost: 8 bytes of traffic an element.
"""

import torch
import triton
import triton.language as tl

BLOCK = 64  # side of a packed tile


@triton.jit
def round_to_tf32(x):
    # To nearest, ties to even, 13 bits off. NaN and
    # infinity pass as they are: the carry would
    # turn CUDA's NaN 0x7FFFFFFF into -0.
    bits = x.to(tl.uint32, bitcast=True)
    finite = (bits & 0x7FFFFFFF) < 0x7F800000
    near = bits + 0xFFF + ((bits >> 13) & 1)
    near = near & 0xFFFFE000
    near = tl.where(finite, near, bits)
    return near.to(tl.float32, bitcast=True)


@triton.jit
def pack_kernel(
    in_ptr,
    out_ptr,
    gather_ptr,
    rows,
    places,
    in_row,
    in_k,
    out_row,
    out_k,
    BLOCK: tl.constexpr,
    GATHER: tl.constexpr,
    ROUND: tl.constexpr,
):
    # This program owns one square tile: rows of A
    # or columns of B against places of K. Bytes
    # moved: 8 an element.
    lanes = tl.arange(0, BLOCK).to(tl.int64)
    row = tl.program_id(0) * BLOCK + lanes
    place = tl.program_id(1) * BLOCK + lanes
    inside = place < places
    mask = (row < rows)[:, None] & inside[None, :]
    at = place
    if GATHER:
        ptrs = gather_ptr + place
        at = tl.load(ptrs, mask=inside, other=-1)
    in_ptrs = in_ptr + row[:, None] * in_row
    in_ptrs += at[None, :] * in_k
    known = mask & (at >= 0)[None, :]
    x = tl.load(in_ptrs, mask=known, other=0.0)
    if ROUND:
        x = round_to_tf32(x)
    out_ptrs = out_ptr + row[:, None] * out_row
    out_ptrs += place[None, :] * out_k
    tl.store(out_ptrs, x, mask=mask)


def pack(x: torch.Tensor, *, rounded: bool, places: torch.Tensor | None = None) -> torch.Tensor:
    """`x` (rows, K), float32, any strides, as a contiguous float32 matrix.

    `rounded` rounds it to tf32. `places`, int64 on x's device, names the k of every column of the
    result, -1 for a column of zeros; None keeps K as it is.
    """
    rows, columns = x.shape[0], x.shape[1] if places is None else len(places)
    out = x.new_empty((rows, columns))
    if rows and columns:
        pack_kernel[(triton.cdiv(rows, BLOCK), triton.cdiv(columns, BLOCK))](
            x,
            out,
            x if places is None else places,
            rows,
            columns,
            *x.stride(),
            *out.stride(),
            BLOCK=BLOCK,
            GATHER=places is not None,
            ROUND=rounded,
        )
    return out
