from pathlib import Path

import numpy as np
import triton
import triton.language as tl

from compare.userpair import Implementation, pair
from cuda_ref.kernel import Launch


@triton.jit
def kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.load(x_ptr + at, mask=at < n) + tl.load(y_ptr + at, mask=at < n)
    tl.store(out_ptr + at, total, mask=at < n)


def add_triton(x, y, out):
    kernel[(triton.cdiv(len(out), 1024),)](x, y, out, len(out), BLOCK=1024)


def add_cuda(x, y, out):
    source, blocks = Path(__file__).with_name("vector_add.cu"), -(-len(out) // 256)
    Launch(source, "add", (blocks,), (256,), (x, y, out, np.int32(len(out))))()


PAIR = pair(
    "vector_add",
    inputs={"x": "N", "y": "N"},
    output="N",
    shapes="100000",
    reference=lambda x, y: x + y,  # of float64
    additions=1,
    implementations=[
        Implementation("add_triton", "triton", add_triton),
        Implementation("add_cuda", "cuda", add_cuda, arrays="cupy"),
    ],
)
