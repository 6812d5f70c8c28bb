"""The Triton launchers against float64: any shape, any stride, tails, edges, bad input."""

import numpy as np
import pytest
import torch

from triton_impl.matmul import CONFIGS, Config, matmul
from triton_impl.softmax import MAX_BLOCK_COLS, block_cols, softmax, warps

NAN = float("nan")


def numbers(*shape, seed=0, scale=1.0):
    generator = np.random.default_rng(seed)
    return torch.from_numpy(scale * generator.standard_normal(shape, np.float32))


def softmax64(x):
    return torch.softmax(x.double(), dim=1)


def fenced(rows, cols, gap=64):
    """A NaN-filled buffer and the rows x cols window in its middle, rows `cols + gap` apart."""
    buffer = torch.full((rows * (cols + gap) + 2 * gap,), NAN)
    window = buffer[gap:].as_strided((rows, cols), (cols + gap, 1), gap)
    return buffer, window


@pytest.mark.parametrize("cols", (1, 2, 3, 5, 127, 129, 257, 781, 1000, 1023, 1024, 1025))
def test_softmax_of_any_width_writes_its_row_and_nothing_else(cols):
    x = numbers(3, cols, scale=4)
    buffer, out = fenced(3, cols)
    assert softmax(x, out) is out
    torch.testing.assert_close(out.double(), softmax64(x), rtol=4e-6, atol=1e-38)
    assert int(buffer.isnan().sum()) == buffer.numel() - out.numel()


@pytest.mark.parametrize("cols", (MAX_BLOCK_COLS, MAX_BLOCK_COLS + 1, 65537))
def test_a_row_too_long_for_one_program_is_walked_twice(cols):
    x = numbers(2, cols, scale=3)
    x[1, -1] = 100  # the maximum comes last: every sum before it is rescaled
    torch.testing.assert_close(softmax(x).double(), softmax64(x), rtol=8e-6, atol=1e-38)


@pytest.mark.parametrize("rows", (2, 4))
@pytest.mark.parametrize("shape", ((1, 3), (5, 3), (7, 1000)))
def test_a_program_may_own_a_block_of_rows(shape, rows):
    x = numbers(*shape, scale=4)
    buffer, out = fenced(*shape)
    softmax(x, out, rows=rows)
    torch.testing.assert_close(out.double(), softmax64(x), rtol=4e-6, atol=1e-38)
    assert int(buffer.isnan().sum()) == buffer.numel() - out.numel()


def test_softmax_reads_the_rows_where_they_are():
    _, x = fenced(4, 100)
    x.copy_(numbers(4, 100))
    torch.testing.assert_close(softmax(x).double(), softmax64(x), rtol=4e-6, atol=0)


def test_which_path_runs():
    assert [block_cols(n) for n in (1, 3, 1024, 1025, 32768)] == [1, 4, 1024, 2048, 32768]
    assert block_cols(32769) < 32768
    assert [warps(n) for n in (1, 1024, 2048, 8192, 32768)] == [4, 4, 8, 32, 32]


@pytest.mark.parametrize("cols", (4, 40000))
def test_special_values_as_ieee_arithmetic_has_them(cols):
    x = numbers(5, cols)
    x[0] = -float("inf")
    x[1, 2] = float("inf")
    x[2, 3] = NAN
    x[3, :-1] = -float("inf")
    y = softmax(x)
    assert y[:3].isnan().all()
    assert y[3].tolist() == [0.0] * (cols - 1) + [1.0]
    torch.testing.assert_close(y[4:].double(), softmax64(x[4:]), rtol=4e-6, atol=0)


def test_softmax_of_no_rows_is_empty():
    assert softmax(torch.empty(0, 7)).shape == (0, 7)


@pytest.mark.parametrize(
    "call, words",
    (
        (lambda: softmax(torch.empty(3, 0)), "without columns"),
        (lambda: softmax(torch.empty(3)), "1-D"),
        (lambda: softmax(torch.empty(3, 4, dtype=torch.float64)), "float64"),
        (lambda: softmax(torch.empty(3, 4).T), "column stride 4"),
        (lambda: softmax(torch.empty(3, 4), torch.empty(4, 3)), "4x3"),
        (lambda: softmax(torch.empty(3, 4), rows=3), "power of two"),
    ),
)
def test_softmax_refuses_what_it_cannot_do_in_one_sentence(call, words):
    with pytest.raises(ValueError, match=words):
        call()


@pytest.mark.parametrize("config", CONFIGS, ids=str)
@pytest.mark.parametrize(
    "m, n, k", ((1, 128, 1), (3, 2, 33), (65, 70, 100), (129, 33, 96), (20, 20, 20))
)
def test_matmul_of_any_shape_masks_every_edge(m, n, k, config):
    _, a = fenced(m, k)
    _, b = fenced(k, n)
    a.copy_(numbers(m, k))
    b.copy_(numbers(k, n, seed=1))
    buffer, out = fenced(m, n)
    assert matmul(a, b, out, precision="ieee", config=config) is out
    torch.testing.assert_close(out.double(), a.double() @ b.double(), rtol=1e-5, atol=1e-5)
    assert int(buffer.isnan().sum()) == buffer.numel() - out.numel()


def test_matmul_takes_any_strides():
    a, b = numbers(40, 30).T, numbers(50, 40, seed=1).T
    out = torch.full((50, 30), NAN).T
    matmul(a, b, out, precision="ieee", config=CONFIGS[0])
    torch.testing.assert_close(out.double(), a.double() @ b.double(), rtol=1e-5, atol=1e-5)


def test_grouped_order_covers_every_tile_once():
    """Five tile rows in groups of two: the last group has one."""
    a, b = numbers(80, 16), numbers(16, 48, seed=1)
    out = torch.full((80, 48), NAN)
    matmul(a, b, out, precision="ieee", config=Config(16, 16, 16, group_m=2))
    torch.testing.assert_close(out.double(), a.double() @ b.double(), rtol=1e-5, atol=1e-5)


def test_exact_products():
    a = torch.tensor([[1.0, 2, 3, 4], [5, 6, 7, 8]])
    b = torch.tensor([[1.0, 0, 2], [0, 1, 2], [1, 1, 0], [2, 0, 1]])
    got = matmul(a, b, precision="ieee", config=CONFIGS[0])
    assert got.tolist() == [[12, 5, 10], [28, 13, 30]]
    row = torch.arange(128.0)[None]
    outer = matmul(torch.tensor([[3.0]]), row, precision="tf32", config=CONFIGS[0])
    assert torch.equal(outer, 3 * row)


def test_offsets_pass_two_to_the_31():
    """Rows 2^30 elements apart, in memory that is never touched between them."""
    far = torch.empty(2**31 + 32)
    a = far.as_strided((3, 16), (2**30, 1))
    a.copy_(torch.arange(1.0, 4)[:, None].expand(3, 16))
    got = matmul(a, torch.ones(16, 16), precision="ieee", config=CONFIGS[0])
    assert got[:, 0].tolist() == [16, 32, 48]


def test_a_step_in_k_passes_two_to_the_31():
    """Rows of B 2^26 elements apart: 32 of them are 2^31."""
    far = torch.empty(32 * 2**26 + 16)
    b = far.as_strided((33, 16), (2**26, 1))
    b.copy_(torch.arange(33.0)[:, None].expand(33, 16))
    got = matmul(torch.ones(1, 33), b, precision="ieee", config=CONFIGS[0])
    assert got[0].tolist() == [33 * 32 / 2] * 16


@pytest.mark.parametrize("m, n, k", ((0, 3, 4), (3, 0, 4), (3, 4, 0)))
def test_empty_products(m, n, k):
    out = torch.full((m, n), NAN)
    got = matmul(torch.ones(m, k), torch.ones(k, n), out, precision="ieee", config=CONFIGS[0])
    assert got.shape == (m, n) and (got == 0).all()


@pytest.mark.parametrize(
    "changes, words",
    (
        ({"precision": "TF32"}, "'TF32' is unknown"),
        ({"precision": ""}, "unknown"),
        ({"b": torch.ones(5, 3)}, "4 columns and b 5 rows"),
        ({"a": torch.ones(3, 4, dtype=torch.float16)}, "float16"),
        ({"out": torch.ones(3, 4)}, "3x3"),
    ),
)
def test_matmul_refuses_what_it_cannot_do_in_one_sentence(changes, words):
    call = {"a": torch.ones(3, 4), "b": torch.ones(4, 3), "precision": "ieee", "config": CONFIGS[0]}
    with pytest.raises(ValueError, match=words):
        matmul(**{**call, **changes})
