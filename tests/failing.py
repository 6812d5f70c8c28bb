"""One right softmax among twelve that go wrong, each in a way of its own."""

import sys
from pathlib import Path

import torch
import triton
import triton.language as tl

from compare.pair import Implementation
from cuda_ref.kernel import Launch

PAIR = "softmax"
HERE = Path(__file__).parent


@triton.jit
def kernel(x_ptr, out_ptr, n_cols, shift, BLOCK: tl.constexpr):
    start = tl.program_id(0).to(tl.int64) * n_cols
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + start + cols, mask=cols < n_cols, other=-float("inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_ptr + start + cols + shift, e / tl.sum(e, axis=0), mask=cols < n_cols)


@triton.jit
def kernel_unknown(x_ptr, out_ptr, n_cols, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    tl.store(out_ptr + cols, tl.no_such_thing(x_ptr, cols), mask=cols < n_cols)


def launched(x, out, shift):
    kernel[(x.shape[0],)](x, out, x.shape[1], shift, BLOCK=triton.next_power_of_2(x.shape[1]))


def right(x, out):
    launched(x, out, 0)


def strays(x, out):
    launched(x, out, 1 << 40)


def shifted(x, out):
    right(x, out)
    launched(x, out, 1)
    right(x[:1], out[:1])


def list_grid(x, out):
    kernel[[x.shape[0]]](x, out, x.shape[1], 0, BLOCK=triton.next_power_of_2(x.shape[1]))


def unknown(x, out):
    kernel_unknown[(1,)](x, out, x.shape[1], BLOCK=16)


def hangs(x, out):
    Launch(HERE / "failing.cu", "hangs", (1,), (1,), (x, out))()


def cuda_strays(x, out):
    Launch(HERE / "failing.cu", "strays", (1,), (32,), (x, out))()


def cuda_wrong(x, out):
    Launch(HERE / "failing_compile.cu", "wrong", (1,), (32,), (x, out))()


def no_extern_c(x, out):
    Launch(HERE / "failing_name.cu", "plain", (1,), (32,), (x, out))()


def too_large(x, out):
    torch.ones(1 << 46, device=x.device)


def double(x, out):
    return torch.softmax(x.double(), dim=1)


def raises(x, out):
    return {"rows": 0}["cols"]


def spoils(x, out):
    right(x, out)
    x.zero_()


def exits(x, out):
    sys.exit(3)


IMPLEMENTATIONS = [
    Implementation("right", "triton", right),
    Implementation("strays", "triton", strays),
    Implementation("shifted", "triton", shifted),
    Implementation("list_grid", "triton", list_grid),
    Implementation("unknown", "triton", unknown),
    Implementation("hangs", "cuda", hangs, arrays="cupy"),
    Implementation("cuda_strays", "cuda", cuda_strays, arrays="cupy"),
    Implementation("cuda_wrong", "cuda", cuda_wrong, arrays="cupy"),
    Implementation("no_extern_c", "cuda", no_extern_c, arrays="cupy"),
    Implementation("too_large", "library", too_large),
    Implementation("double", "library", double),
    Implementation("raises", "library", raises),
    Implementation("spoils", "triton", spoils),
    Implementation("exits", "library", exits),
]
