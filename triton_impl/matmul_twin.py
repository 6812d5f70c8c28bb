"""Matrix product, block model, in a given order of K: a program owns one tile of one partial sum.

C[m, n] = sum over k of A[m, k] * B[k, n], float32 in and out. Two things decide the bits of a
product, and both are choices here: whether operands are rounded to tf32 (to nearest, ties to even,
as cuBLAS does; a tensor core by itself cuts them), and in which order the products are added. An
`Order` is a list of chains, each a running sum over part of K, and the additions that join them.

One chain writes C; several write a workspace of 4 M N bytes each, which `join_kernel` adds up.
Rounding: A in registers, on its way to the multiplier; B by `pack_kernel`, which also stores it as
the multiplier wants it (a tf32 `wgmma` reads both operands along K).
"""

import weakref
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from .pack import pack, round_to_tf32

PRECISIONS = ("ieee", "tf32")
# block_m, block_n, block_k, group_m, num_warps, num_stages; the tile decides no bit of the result.
SMALL, LARGE = (64, 64, 32, 8, 4, 3), (128, 256, 32, 8, 8, 3)
JOIN = 1024  # elements of C that a program of `join_kernel` adds up
MOST_BYTES = 1 << 31  # of a workspace


@dataclass(frozen=True, eq=False)
class Order:
    """Chain i sums places begin[i] .. end[i] - 1 of K one after the other; then for every pair of
    `adds`, partial sum `into` becomes `into` + `other`. Sum 0 is the result. `gather` names the k
    in every place, -1 for a zero that fills up a group; None where place and k are the same."""

    begin: tuple[int, ...]
    end: tuple[int, ...]
    adds: tuple[tuple[int, int], ...] = ()
    gather: tuple[int, ...] | None = None

    @property
    def terms(self) -> int:
        """How many k it is an order of."""
        return max(self.end if self.gather is None else (k + 1 for k in self.gather))


@triton.jit
def chain_kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    begin_ptr,
    end_ptr,
    m,
    n,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    stride_chain,
    stride_cm,
    stride_cn,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    PRECISION: tl.constexpr,
    ROUND_A: tl.constexpr,
):
    # This program owns one tile of one chain's sum.
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
    offs_m = tl.arange(0, BLOCK_M).to(tl.int64)
    offs_n = tl.arange(0, BLOCK_N).to(tl.int64)
    offs_m += tile_m * BLOCK_M
    offs_n += tile_n * BLOCK_N
    offs_k = tl.arange(0, BLOCK_K).to(tl.int64)
    in_m = offs_m[:, None] < m
    in_n = offs_n[None, :] < n
    a_ptrs = a_ptr + begin * stride_ak
    a_ptrs += offs_m[:, None] * stride_am
    a_ptrs += offs_k[None, :] * stride_ak
    b_ptrs = b_ptr + begin * stride_bk
    b_ptrs += offs_k[:, None] * stride_bk
    b_ptrs += offs_n[None, :] * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(begin, end, BLOCK_K):
        in_k = offs_k < end - start
        mask = in_m & in_k[None, :]
        a = tl.load(a_ptrs, mask=mask, other=0.0)
        mask = in_k[:, None] & in_n
        b = tl.load(b_ptrs, mask=mask, other=0.0)
        if ROUND_A:
            a = round_to_tf32(a)
        acc = tl.dot(
            a,
            b,
            acc,
            input_precision=PRECISION,
        )
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
    c_ptrs = c_ptr + chain * stride_chain
    c_ptrs += offs_m[:, None] * stride_cm
    c_ptrs += offs_n[None, :] * stride_cn
    tl.store(c_ptrs, acc, mask=in_m & in_n)


@triton.jit
def join_kernel(
    sums_ptr,
    c_ptr,
    adds_ptr,
    n_adds,
    size,
    n,
    stride_cm,
    stride_cn,
    BLOCK: tl.constexpr,
):
    # This program owns BLOCK elements of C and the
    # same elements of every partial sum. The next
    # read of a sum may be another thread's: the
    # barrier orders it after this write. Bytes
    # moved: 12 an element and addition.
    at = tl.program_id(0).to(tl.int64) * BLOCK
    at += tl.arange(0, BLOCK)
    mask = at < size
    for step in range(n_adds):
        into = tl.load(adds_ptr + 2 * step)
        other = tl.load(adds_ptr + 2 * step + 1)
        ptrs = sums_ptr + into * size + at
        others = sums_ptr + other * size + at
        total = tl.load(ptrs, mask=mask)
        total += tl.load(others, mask=mask)
        tl.store(ptrs, total, mask=mask)
        tl.debug_barrier()
    total = tl.load(sums_ptr + at, mask=mask)
    c_ptrs = c_ptr + (at // n) * stride_cm
    c_ptrs += (at % n) * stride_cn
    tl.store(c_ptrs, total, mask=mask)


_TABLES: weakref.WeakKeyDictionary[Order, dict[torch.device, tuple[torch.Tensor, ...]]]
_TABLES = weakref.WeakKeyDictionary()


def _tables(order: Order, device: torch.device) -> tuple[torch.Tensor, ...]:
    """begin, end, adds and gather on `device`; copied there once for an order."""
    made = _TABLES.setdefault(order, {})
    if device not in made:
        lists = (
            order.begin,
            order.end,
            [number for pair in order.adds for number in pair] or [0],
            order.gather or [0],
        )
        made[device] = tuple(torch.tensor(x, dtype=torch.int64, device=device) for x in lists)
    return made[device]


def matmul_twin(
    a: torch.Tensor,
    b: torch.Tensor,
    out: torch.Tensor | None = None,
    *,
    precision: str,
    order: Order | None = None,
    config: Sequence[int] = SMALL,
    rounded: bool = True,
    descriptor: bool = False,
) -> torch.Tensor:
    """A (M, K) times B (K, N), float32, any strides, in `order` (None: one running sum over K).

    precision "tf32" rounds both operands to nearest even first, or, with `rounded=False`, leaves
    them to the tensor core, which cuts them; `descriptor=True` rounds by a tensor descriptor, not
    by a pack kernel (see `matmul_descriptor`). `config` is SMALL, LARGE or numbers of your own
    in that order. Writes and returns `out` (M, N). ValueError: an unknown precision,
    another dtype or rank, shapes, devices or an order that do not fit, a workspace above 2 GiB.
    """
    if precision not in PRECISIONS:
        raise ValueError(f"precision {precision!r} is unknown; choose {' or '.join(PRECISIONS)}")
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
    if order is None or (m and n and k == 0):
        order = _plain(k)
    if order.terms != k:
        raise ValueError(f"the order is one of {order.terms} products, the shape has {k}")
    chains = len(order.begin)
    if chains > 1 and 4 * chains * m * n > MOST_BYTES:
        raise ValueError(
            f"{chains} partial sums of {m}x{n} need {4 * chains * m * n:,} bytes of workspace, "
            f"more than {MOST_BYTES:,}"
        )
    if not (m and n):
        return out
    rounded = rounded and precision == "tf32"
    if descriptor and rounded:
        from . import matmul_descriptor

        if reason := matmul_descriptor.unfit(a, order, config[2]):
            raise ValueError(reason)
    begin, end, adds, gather = _tables(order, a.device)
    sums = out[None] if chains == 1 else out.new_empty((chains, m, n))
    with torch.cuda.device_of(a):  # Triton launches on the current card
        if descriptor and rounded:
            matmul_descriptor.launch(a, b, sums, (begin, end), tuple(config))
        else:
            places = gather if order.gather is not None else None
            if places is not None:
                a = pack(a, rounded=rounded, places=places)
            if rounded or places is not None:
                b = pack(b.T, rounded=rounded, places=places).T
            in_registers = rounded and order.gather is None
            _launch(a, b, sums, (begin, end), precision, in_registers, tuple(config))
        if chains > 1:
            join_kernel[(triton.cdiv(m * n, JOIN),)](
                sums, out, adds, len(order.adds), m * n, n, *out.stride(), BLOCK=JOIN, num_stages=1
            )
    return out


def _launch(
    a: torch.Tensor,
    b: torch.Tensor,
    sums: torch.Tensor,
    tables: tuple[torch.Tensor, torch.Tensor],
    precision: str,
    round_a: bool,
    config: tuple[int, ...],
) -> None:
    """Every chain of `tables` (begin, end) into `sums` (chains, M, N)."""
    block_m, block_n, block_k, group_m, num_warps, num_stages = config
    m, n = a.shape[0], b.shape[1]
    chain_kernel[(triton.cdiv(m, block_m) * triton.cdiv(n, block_n), len(tables[0]))](
        a,
        b,
        sums,
        *tables,
        m,
        n,
        *a.stride(),
        *b.stride(),
        *sums.stride(),
        BLOCK_M=block_m,
        BLOCK_N=block_n,
        BLOCK_K=block_k,
        GROUP_M=group_m,
        PRECISION=precision,
        ROUND_A=round_a,
        num_warps=num_warps,
        num_stages=num_stages,
        enable_fp_fusion=True,
    )


_PLAIN: dict[int, Order] = {}


def _plain(k: int) -> Order:
    """One running sum over K: the same object each time, so that its tables are copied once."""
    return _PLAIN.setdefault(k, Order((0,), (k,)))
