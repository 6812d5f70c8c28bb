"""Public reports of kernels that went wrong, each with the right value from IEEE arithmetic.

The link beside a test is the report. Every test runs on the host (Triton's interpreter and the
emulator); those that ask `place` also run on a card with `-m gpu`, and some run there alone.
"""

import importlib.util
import math
import os
import subprocess
import sys
import types
import weakref
from pathlib import Path

import numpy as np
import pytest
import torch
from compiling import chosen, needs_emulator, needs_nvrtc

from compare import caches, compiled, device, memory
from compare.accuracy import judge
from compare.inputs import sha256
from compare.machine import Machine, Refusal, Seen
from compare.pair import Implementation
from compare.pairs import matmul as matmul_pair
from compare.pairs import softmax as softmax_pair
from cuda_ref import kernel
from cuda_ref.matmul_tiled import matmul_tiled
from cuda_ref.softmax import softmax_rows
from cuda_ref.softmax_onepass import softmax_onepass
from triton_impl import matmul as triton_matmul
from triton_impl.matmul_twin import matmul_twin
from triton_impl.softmax import softmax as triton_softmax

NAN, INF = float("nan"), float("inf")
FLT_MAX = float(np.finfo(np.float32).max)
SOFTMAXES = {
    "triton": triton_softmax,
    "softmaxRows": softmax_rows,
    "softmax_onepass": softmax_onepass,
}
gpu = pytest.mark.gpu
seed = 20260901


@pytest.fixture(params=("host", pytest.param("card", marks=gpu)))
def place(request):
    return request.param


@pytest.fixture(params=SOFTMAXES)
def softmax(request, place):
    """A softmax of a numpy array where the test runs."""
    return lambda x: call(request.param, SOFTMAXES[request.param], place, [x])


@pytest.fixture(params=("triton ieee", "triton tf32", "matmul_tiled"))
def matmul(request, place):
    """A matmul of numpy arrays where the test runs."""
    language, _, precision = request.param.partition(" ")
    if language == "triton":
        return lambda a, b, config=0: call("triton", triton(precision, config), place, [a, b])
    return lambda a, b, config=0: call("cuda", matmul_tiled, place, [a, b])


def triton(precision, config=0):
    chosen = triton_matmul.CONFIGS[config] if isinstance(config, int) else config
    return lambda a, b, out=None: triton_matmul.matmul(
        a, b, out, precision=precision, config=chosen
    )


def call(name, launcher, place, arrays):
    """Runs a launcher on copies that keep the arrays' strides; a numpy array comes back."""
    if place == "host":
        if name == "triton":
            return launcher(*(torch.from_numpy(array) for array in arrays)).numpy()
        return launcher(*arrays)
    if name == "triton":
        return launcher(*(on_card(a) for a in arrays)).cpu().numpy()
    cupy = pytest.importorskip("cupy")
    return cupy.asnumpy(launcher(*(cupy.from_dlpack(on_card(a)) for a in arrays)))


def on_card(array):
    """A torch tensor on the card with the strides of `array`."""
    strides = [stride // 4 for stride in array.strides]
    size = (
        1 + sum((n - 1) * s for n, s in zip(array.shape, strides, strict=True)) if array.size else 0
    )
    base = torch.zeros(size, device="cuda")
    view = base.as_strided(array.shape, strides)
    return view.copy_(torch.from_numpy(np.ascontiguousarray(array)))


def f32(rows):
    return np.array(rows, np.float32)


def sound(pair, name, got, arrays, shape, data="", precision="ieee"):
    """The pair's own verdict on an output of its implementation `name`."""
    reference = pair.reference(arrays, shape, seed)
    implementation = next(i for i in pair.implementations if i.name == name)
    return judge(got, reference, pair.bounds(reference, implementation, data, shape))


# -- softmax --------------------------------------------------------------------------------------


def test_a_row_of_minus_infinity_is_nan(softmax):
    """github.com/pytorch/pytorch/issues/25110"""
    x = f32([[-INF] * 3, [0, 1, 2]])
    got = softmax(x)
    assert np.isnan(got[0]).all()
    np.testing.assert_allclose(got[1], [0.09003057, 0.24472848, 0.66524094], rtol=1e-6)
    found = sound(softmax_pair.PAIR, "softmax", got, {"x": x}, x.shape)
    assert found.ok and found.specials == {"nan": 3}


def test_plus_infinity_makes_the_row_nan(softmax):
    """github.com/pytorch/pytorch/issues/6864"""
    x = f32([[0, INF, 0], [INF, INF, 1], [-INF, INF, NAN]])
    got = softmax(x)
    assert np.isnan(got).all()
    assert sound(softmax_pair.PAIR, "softmax", got, {"x": x}, x.shape).specials == {"nan": 9}


def test_a_maximum_of_a_thread_is_not_the_row_s(softmax):
    """github.com/Infatoshi/cuda-course/issues/10"""
    x = np.zeros((1, 1024), np.float32)
    x[0, 700] = 50
    got = softmax(x)[0]
    assert got[700] == 1
    np.testing.assert_allclose(np.delete(got, 700), 1.9287498e-22, rtol=1e-5)


@pytest.mark.parametrize(
    "row, want",
    (
        ([1e8, 1e8 + 8, 1e8 + 16], [1.1249742e-07, 3.3535008e-04, 0.99966455]),
        ([1e30, 1e30, -1e30], [0.5, 0.5, 0]),
        ([FLT_MAX, -FLT_MAX], [1, 0]),
        ([-1e4, -1e4 + 1, -1e4 + 2], [0.0900306, 0.2447285, 0.6652410]),
        ([1e9, 1e9 + 1, 1e9 + 2], [1 / 3, 1 / 3, 1 / 3]),  # equal once they are float32
        ([-3.0e38, -3.2e38], [1, 0]),  # a maximum that starts from -1e38 is wrong
    ),
)
def test_huge_numbers_have_a_softmax(softmax, row, want):
    """github.com/vllm-project/vllm/issues/56578 and github.com/chainer/chainer/pull/2877"""
    np.testing.assert_allclose(softmax(f32([row]))[0], want, rtol=1e-6)


@pytest.mark.parametrize("cols", (1, 2, 3, 5, 127, 129, 257, 781, 1000, 1023, 1025))
def test_any_number_of_columns(softmax, cols):
    """github.com/triton-lang/triton/issues/3722"""
    x = softmax_pair.inputs((3, cols), "random", seed)["x"]
    got = softmax(x)
    assert np.abs(got.sum(axis=1, dtype=np.float64) - 1).max() < 2e-6
    assert sound(softmax_pair.PAIR, "softmax", got, {"x": x}, x.shape).ok


def test_lanes_past_the_row_hold_minus_infinity(softmax):
    """github.com/triton-lang/triton/issues/737"""
    got = softmax(f32([[-5, -6, -7]]))
    np.testing.assert_allclose(got[0], [0.66524096, 0.24472847, 0.09003057], rtol=1e-6)


@pytest.mark.parametrize("cols", (65536, 65537, 131072, 131073, 262144))
def test_rows_longer_than_a_program_holds(softmax, cols, place):
    """github.com/pytorch/pytorch/issues/192528"""
    if place == "host" and cols not in (65537, 131072):
        pytest.skip("two of the five are enough for the host")
    x = softmax_pair.inputs((4, cols), "spread", seed)["x"]
    got = softmax(x)
    assert np.abs(got.sum(axis=1, dtype=np.float64) - 1).max() < 1e-5
    assert sound(softmax_pair.PAIR, "softmax", got, {"x": x}, x.shape).ok


def test_no_rows_is_an_empty_answer(softmax):
    """github.com/triton-lang/triton/pull/10464"""
    x = np.zeros((0, 1024), np.float32)
    got = softmax(x)
    assert got.shape == (0, 1024)
    assert sound(softmax_pair.PAIR, "softmax", got, {"x": x}, x.shape).ok


def test_a_transposed_input_is_refused_or_copied_and_never_misread(place):
    """github.com/tracel-ai/burn/issues/4815 and github.com/cupy/cupy/issues/9233"""
    x = np.arange(12, dtype=np.float32).reshape(3, 4).T
    want = [0.00032932, 0.01798028, 0.98169035]
    for name, launcher in SOFTMAXES.items():
        with pytest.raises(ValueError, match="column stride"):
            call(name, launcher, place, [x])
        got = call(name, launcher, place, [np.ascontiguousarray(x)])
        np.testing.assert_allclose(got, [want] * 4, rtol=1e-5)


def test_columns_cut_from_a_wider_array(softmax):
    """github.com/cupy/cupy/issues/7267 and github.com/triton-lang/triton/issues/8926"""
    wide = (np.arange(24, dtype=np.float32) / 10).reshape(4, 6)
    got = softmax(wide[:, 3:])
    np.testing.assert_allclose(got, [[0.3006096, 0.3322250, 0.3671654]] * 4, rtol=1e-6)


@pytest.mark.parametrize("name", SOFTMAXES)
def test_an_offset_pointer_gives_the_bits_of_an_aligned_one(name, place):
    """github.com/triton-lang/triton/issues/1330"""
    x = softmax_pair.inputs((4, 1024), "random", seed)["x"]
    if place == "host":
        shifted = np.zeros(1 + x.size, np.float32)
        shifted[1:] = x.reshape(-1)
        pair = [call(name, SOFTMAXES[name], place, [a]) for a in (x, shifted[1:].reshape(x.shape))]
    else:
        base = torch.zeros(1 + x.size, device="cuda")
        base[1:] = torch.from_numpy(x.reshape(-1))
        made = [on_card(x), base[1:].view(x.shape)]
        if name != "triton":
            cupy = pytest.importorskip("cupy")
            pair = [cupy.asnumpy(SOFTMAXES[name](cupy.from_dlpack(a))) for a in made]
        else:
            pair = [SOFTMAXES[name](a).cpu().numpy() for a in made]
    same = sha256(pair[0]) == sha256(pair[1])
    # softmax_onepass owns its columns in quads where it can, so its order of adding may change.
    assert same or name == "softmax_onepass"
    assert all(sound(softmax_pair.PAIR, "softmax", got, {"x": x}, x.shape).ok for got in pair)


def test_the_exponential_is_judged_by_its_own_error(softmax):
    """github.com/triton-lang/triton/issues/5692"""
    x = np.linspace(-80, 0, 1024, dtype=np.float32)[None]
    got = softmax(x)
    reference = softmax_pair.reference({"x": x}, x.shape, seed).value
    assert np.abs(got / reference - 1).max() < 1e-5
    assert sound(softmax_pair.PAIR, "softmax", got, {"x": x}, x.shape).ok


@pytest.mark.parametrize("rows", (pytest.param(70_000, marks=gpu),))
def test_more_rows_than_a_grid_has_in_y(rows):
    """github.com/triton-lang/triton/issues/3299"""
    x = np.tile(f32([0, 1, 2, 3]), (rows, 1))
    for name, launcher in SOFTMAXES.items():
        got = call(name, launcher, "card", [x])
        assert np.array_equal(got, np.tile(got[0], (rows, 1))) and abs(got[0].sum() - 1) < 1e-6


def test_a_row_that_is_broadcast(softmax, place):
    """github.com/triton-lang/triton/issues/5480"""
    x = np.broadcast_to(f32([1, 2, 3]), (3, 3))
    if place == "host":
        x = np.lib.stride_tricks.as_strided(f32([1, 2, 3]), (3, 3), (0, 4))
    else:
        x = np.ascontiguousarray(x)
    np.testing.assert_allclose(softmax(x), [[0.09003057, 0.24472848, 0.66524094]] * 3, rtol=1e-6)


def test_reads_stay_inside_a_guarded_array(place):
    """github.com/triton-lang/triton/issues/10336"""
    for name, launcher in SOFTMAXES.items():
        guarded = np.full(15 + 128, NAN, np.float32)
        guarded[64:79] = np.arange(15)
        got = call(name, launcher, place, [guarded[64:79].reshape(3, 5)])
        assert np.isfinite(got).all()


@gpu
@pytest.mark.parametrize("name", SOFTMAXES)
def test_five_hundred_launches_give_one_hash(name):
    """github.com/karpathy/llm.c/pull/282: a barrier too few after the first reduction"""
    x = softmax_pair.inputs((2048, 1024), "random", seed)["x"]
    tensor = on_card(x)
    if name != "triton":
        tensor = pytest.importorskip("cupy").from_dlpack(tensor)
    first = SOFTMAXES[name](tensor)
    first = torch.from_dlpack(first).clone()
    for _ in range(500):
        assert torch.equal(torch.from_dlpack(SOFTMAXES[name](tensor)), first)


@gpu
def test_fast_math_is_another_kernel():
    """github.com/cupy/cupy/issues/9576"""
    x = softmax_pair.inputs((256, 1024), "spread", seed)["x"]
    precise = call("cuda", softmax_rows, "card", [x])
    fast = call("cuda", lambda a: softmax_rows(a, fast_math=True), "card", [x])
    assert not np.array_equal(precise, fast)
    for name, got in (("softmaxRows", precise), ("softmaxRows, fast", fast)):
        assert sound(softmax_pair.PAIR, name, got, {"x": x}, x.shape).ok


# -- matmul ---------------------------------------------------------------------------------------


def normal(m, n, k):
    return matmul_pair.inputs((m, n, k), "random", seed)


def test_the_tail_of_k_is_masked(matmul):
    """github.com/triton-lang/triton/issues/630"""
    a, b = guarded_ones(3, 33), guarded_ones(33, 2)
    one, two = matmul(a, b), matmul(a, b)
    assert np.array_equal(one, np.full((3, 2), 33)) and np.array_equal(one, two)


def guarded_ones(rows, cols):
    """Ones between 64 NaN on either side."""
    buffer = np.full(rows * cols + 128, NAN, np.float32)
    buffer[64:-64] = 1
    return buffer[64:-64].reshape(rows, cols)


def test_one_row_one_k(matmul):
    """github.com/triton-lang/triton/issues/934"""
    got = matmul(f32([[3]]), np.arange(128, dtype=np.float32)[None])
    assert np.array_equal(got, 3 * np.arange(128)[None])


def test_odd_sizes(place):
    """github.com/triton-lang/triton/issues/8899"""
    m, n, k = (511, 1024, 96) if place == "card" else (127, 160, 96)
    arrays = normal(m, n, k)
    config = triton_matmul.Config(128, 32, 64, 8, 4, 2)
    for name, launcher in (("triton", triton("ieee", config)), ("cuda", matmul_tiled)):
        got = call(name, launcher, place, [arrays["a"], arrays["b"]])
        assert sound(matmul_pair.PAIR, "matmul ieee", got, arrays, (m, n, k), "random").ok
        size = np.abs(arrays["a"]).astype(np.float64) @ np.abs(arrays["b"]).astype(np.float64)
        wanted = arrays["a"].astype(np.float64) @ arrays["b"].astype(np.float64)
        assert (np.abs(got - wanted) / size).max() < 1e-6


def test_an_output_full_of_nan_is_overwritten(place):
    """github.com/flashinfer-ai/flashinfer/issues/4724"""
    eye, out = np.eye(20, dtype=np.float32), np.full((20, 20), NAN, np.float32)
    if place == "host":
        torch_out = torch.from_numpy(out.copy())
        triton("ieee")(torch.from_numpy(eye), torch.from_numpy(eye), torch_out)
        outs = [torch_out.numpy(), matmul_tiled(eye, eye, out.copy())]
    else:
        cupy = pytest.importorskip("cupy")
        from cuda_ref.gemm_ex import gemm_ex

        torch_out = torch.from_numpy(out).cuda()
        triton("ieee")(on_card(eye), on_card(eye), torch_out)
        outs = [torch_out.cpu().numpy()]
        for launcher in (matmul_tiled, full(gemm_ex)):
            filled = cupy.asarray(out)
            launcher(cupy.asarray(eye), cupy.asarray(eye), filled)
            outs.append(cupy.asnumpy(filled))
    assert all(np.array_equal(got, eye) for got in outs)


def full(gemm_ex, compute_type="CUBLAS_COMPUTE_32F"):
    return lambda a, b, out=None: gemm_ex(a, b, out, compute_type=compute_type)


RECTANGLES = (
    f32([[1, 2, 3, 4], [5, 6, 7, 8]]),
    f32([[1, 0, 2], [0, 1, 2], [1, 1, 0], [2, 0, 1]]),
    [[12, 5, 10], [28, 13, 30]],
)


def test_rectangles_are_not_turned(matmul):
    """github.com/pranjalssh/fast.cu/pull/14"""
    a, b, want = RECTANGLES
    assert np.array_equal(matmul(a, b), want)


@gpu
@pytest.mark.parametrize("compute_type", ("CUBLAS_COMPUTE_32F", "CUBLAS_COMPUTE_32F_FAST_TF32"))
def test_cublas_is_asked_for_the_swapped_product(compute_type):
    """github.com/pranjalssh/fast.cu/pull/14"""
    from cuda_ref.gemm_ex import gemm_ex

    a, b, want = RECTANGLES
    for left in (a, np.asfortranarray(a)):
        got = call("cuda", full(gemm_ex, compute_type), "card", [left, b])
        assert np.array_equal(got, want)


def test_offsets_pass_two_to_the_31(place):
    """github.com/databricks/megablocks/pull/185"""
    size, shape, strides = 2**31 + 32, (3, 16), (2**30, 1)
    if place == "host":
        with open("/proc/meminfo", encoding="ascii") as lines:
            free = next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable"))
        if free < 2**20:
            pytest.skip("the pages that are touched need 1 GiB free")
    base = torch.empty(size, device="cuda" if place == "card" else "cpu")  # pages untouched
    a = base.as_strided(shape, strides)
    for row in range(3):
        a[row] = row + 1
    want = np.repeat([[16], [32], [48]], 16, axis=1)
    b = torch.ones((16, 16), device=base.device)
    assert np.array_equal(triton("ieee")(a, b).cpu().numpy(), want)
    if place == "host":
        strided = np.lib.stride_tricks.as_strided(base.numpy(), shape, (4 * strides[0], 4))
        assert np.array_equal(matmul_tiled(strided, np.ones((16, 16), np.float32)), want)
        softmaxes = [softmax_rows(strided), triton_softmax(a).numpy()]
        assert all(np.array_equal(got, np.full(shape, 1 / 16)) for got in softmaxes)
        return
    cupy = pytest.importorskip("cupy")
    assert np.array_equal(matmul_tiled(cupy.from_dlpack(a), cupy.ones((16, 16), "f")).get(), want)
    assert np.array_equal(triton_softmax(a).cpu().numpy(), np.full(shape, 1 / 16))


@pytest.mark.parametrize("precision", ("bf16x3", "fp32", "", "TF32"))
def test_an_unknown_precision_is_one_sentence(precision, place):
    """github.com/triton-lang/triton/pull/7592"""
    if precision in triton_matmul.PRECISIONS:
        pytest.skip(f"{precision} is offered")
    eye = np.eye(16, dtype=np.float32)
    with pytest.raises(ValueError, match=f"precision '{precision}'"):
        call("triton", triton(precision), place, [eye, eye])


@pytest.mark.parametrize("config", range(len(triton_matmul.CONFIGS)))
def test_the_grouped_order_reaches_every_tile(config):
    """github.com/triton-lang/triton/issues/3310: min() in both modes"""
    cut = triton_matmul.CONFIGS[config]
    m = cut.block_m * (cut.group_m + 1) + 1  # a last group of two rows of tiles
    a = np.arange(1, m + 1, dtype=np.float32)[:, None] % 1024
    b = np.arange(1, 2 * cut.block_n + 2, dtype=np.float32)[None]
    got = call("triton", triton("ieee", config), "host", [a, b])
    assert np.array_equal(got, a * b)


@gpu
@pytest.mark.parametrize(
    "name", ("matmul ieee", "matmul tf32", "cublas COMPUTE_32F", "cublas FAST_TF32")
)
def test_ieee_is_full_float32_and_tf32_is_not(name, monkeypatch):
    """github.com/triton-lang/triton/issues/1800 and github.com/cupy/cupy/pull/3810"""
    monkeypatch.setitem(os.environ, "CUPY_TF32", "1")  # an environment variable decides nothing
    shape = (256, 256, 1024)
    arrays = matmul_pair.inputs(shape, "random", seed)
    implementation = next(i for i in matmul_pair.PAIR.implementations if i.name == name)
    kind = "triton" if implementation.language == "triton" else "cuda"
    launcher = implementation.function()
    got = call(
        kind, lambda a, b: launcher(a, b, **implementation.options), "card", [*arrays.values()]
    )
    wanted = arrays["a"].astype(np.float64) @ arrays["b"].astype(np.float64)
    error = np.abs(got - wanted).max()
    low, high = (0, 1e-3) if implementation.precision == "ieee" else (5e-3, 0.3)
    assert low <= error < high
    assert sound(matmul_pair.PAIR, name, got, arrays, shape, "random").ok


@gpu
def test_the_math_mode_does_not_leak():
    """github.com/cupy/cupy/pull/1493"""
    from cuda_ref.gemm_ex import gemm_ex

    arrays = list(normal(512, 512, 512).values())
    ieee = full(gemm_ex)
    alone = call("cuda", ieee, "card", arrays)
    call("cuda", full(gemm_ex, "CUBLAS_COMPUTE_32F_FAST_TF32"), "card", arrays)
    assert np.array_equal(call("cuda", ieee, "card", arrays), alone)


@gpu
@pytest.mark.parametrize(
    "name", ("matmul ieee", "cublas COMPUTE_32F", "cublas FAST_TF32", "matmul tf32")
)
def test_a_long_k_keeps_its_bound_and_its_bits(name):
    """github.com/triton-lang/triton/issues/2897 and github.com/cupy/cupy/issues/4676"""
    shape = (16, 16, 65536)
    arrays = matmul_pair.inputs(shape, "random", seed)
    implementation = next(i for i in matmul_pair.PAIR.implementations if i.name == name)
    kind = "triton" if implementation.language == "triton" else "cuda"
    launcher = implementation.function()

    def once():
        run = lambda a, b: launcher(a, b, **implementation.options)  # noqa: E731
        return call(kind, run, "card", [*arrays.values()])

    outputs = [once() for _ in range(20)]
    assert len({sha256(got) for got in outputs}) == 1
    assert sound(matmul_pair.PAIR, name, outputs[0], arrays, shape, "random").ok


@gpu
def test_a_large_ieee_block_is_slow_and_right():
    """github.com/triton-lang/triton/issues/5572"""
    arrays = list(normal(512, 512, 512).values())
    blocks = [
        triton_matmul.Config(32, 32, 32, 8, 4, 2),
        triton_matmul.Config(128, 128, 32, 8, 8, 2),
    ]
    outputs = [call("triton", triton("ieee", block), "card", arrays) for block in blocks]
    for got in outputs:
        named = dict(zip("ab", arrays, strict=True))
        assert sound(matmul_pair.PAIR, "matmul ieee", got, named, (512,) * 3, "random").ok


# -- judging --------------------------------------------------------------------------------------


@pytest.mark.parametrize("want, ok", ((NAN, True), (0.0, False)))
def test_nan_on_both_sides_agrees_only_where_it_belongs(want, ok):
    """github.com/onnxsim/onnxsim/issues/1285"""
    x = {"a": f32([[want], [1]]), "b": f32([[1]])}
    got = f32([[NAN], [1]])
    found = sound(matmul_pair.PAIR, "matmul ieee", got, x, (2, 1, 1))
    assert found.ok is ok and not math.isnan(found.error)
    assert found.specials == ({"nan": 1} if ok else {})


# -- precision ------------------------------------------------------------------------------------


def test_bf16_operands_are_refused(place):
    """github.com/triton-lang/triton/issues/10176"""
    where = "cuda" if place == "card" else "cpu"
    half, full = (torch.ones((16, 16), dtype=d, device=where) for d in (torch.bfloat16, None))
    for a, b, name in ((half, full, "a"), (full, half, "b")):
        for launcher in (triton("ieee"), lambda a, b: matmul_twin(a, b, precision="ieee")):
            with pytest.raises(ValueError, match=rf"float32 tensors, {name} is 2-D torch.bfloat16"):
                launcher(a, b)


@pytest.mark.parametrize("arch", ("sm_80", "sm_90", "sm_100"))
@pytest.mark.parametrize("precision", ("ieee", "tf32"))
def test_only_a_tf32_product_has_instructions_of_the_tensor_core(precision, arch):
    """github.com/triton-lang/triton/issues/10176"""
    one = chosen(matmul_pair.PAIR, f"matmul {precision}")[0]
    a, b, c = (512, 256), (256, 384), (512, 384)
    for config in one.configs:
        cut = Implementation("cut", "triton", one.entry, options={**one.options, **config})
        (built,) = compiled.build([cut], {"a": a, "b": b}, c, arch)
        (code,) = built.codes
        assert (code.counts["tensor core"] > 0) == (precision == "tf32")
        assert bool(code.broken) == (precision == "tf32")  # `cut` claims ieee


UPCAST = """
import triton
import triton.language as tl


@triton.jit
def kernel(a_ptr, b_ptr, c_ptr, k, BLOCK: tl.constexpr, PRECISION: tl.constexpr):
    at = tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK, BLOCK), tl.float32)
    for start in range(0, k, BLOCK):
        a = tl.load(a_ptr + at[:, None] * k + start + at[None, :])
        b = tl.load(b_ptr + (start + at[:, None]) * BLOCK + at[None, :])
        a = a.to(tl.bfloat16).to(tl.float32)
        acc = tl.dot(a, b, acc, input_precision=PRECISION)
    tl.store(c_ptr + at[:, None] * BLOCK + at[None, :], acc)


def ieee(a, b, out):
    kernel[(1,)](a, b, out, a.shape[1], BLOCK=64, PRECISION="ieee")


def tf32(a, b, out):
    kernel[(1,)](a, b, out, a.shape[1], BLOCK=64, PRECISION="tf32")
"""


@pytest.mark.parametrize("arch", ("sm_80", "sm_90"))
def test_a_kernel_that_upcasts_an_operand_is_held_to_what_it_claims(tmp_path, arch):
    """github.com/triton-lang/triton/issues/10176: whatever this Triton makes of it is told"""
    path = tmp_path / "upcast.py"
    path.write_text(UPCAST, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("upcast", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for launcher in (module.ieee, module.tf32):
        one = Implementation("upcast", "triton", launcher)  # claims ieee
        (built,) = compiled.build([one], {"a": (64, 512), "b": (512, 64)}, (64, 64), arch)
        (code,) = built.codes
        assert bool(code.counts["tensor core"]) == bool(code.broken)
        assert code.broken or launcher is module.ieee


def test_tf32x3_has_a_bound_of_its_own():
    """github.com/triton-lang/triton/issues/4603: what one tf32 product loses is not forgiven"""
    shape = (32, 32, 2048)
    arrays = matmul_pair.inputs(shape, "random", seed)
    cut = [(x.view(np.uint32) & 0xFFFFE000).view(np.float32) for x in arrays.values()]
    once = (cut[0].astype(np.float64) @ cut[1].astype(np.float64)).astype(np.float32)
    exact = (arrays["a"].astype(np.float64) @ arrays["b"].astype(np.float64)).astype(np.float32)
    for precision, ok in (("tf32", True), ("tf32x3", False), ("ieee", False)):
        name = f"matmul {precision}"
        assert sound(matmul_pair.PAIR, name, once, arrays, shape, "random").ok is ok
        assert sound(matmul_pair.PAIR, name, exact, arrays, shape, "random").ok


# -- cards and their memory -----------------------------------------------------------------------


def test_arrays_of_two_devices_are_refused(monkeypatch):
    """github.com/triton-lang/triton/issues/2441 and github.com/cupy/cupy/pull/5496"""
    near, far = torch.ones(16, 16), torch.ones(16, 16, device="meta")
    for launcher in (triton("ieee"), lambda a, b: matmul_twin(a, b, precision="ieee")):
        with pytest.raises(ValueError, match="a is on cpu and b on meta; put both on one card"):
            launcher(near, far)
    with pytest.raises(ValueError, match=r"out must be float32 16x16 on cpu, .* on meta"):
        triton_softmax(near, far)

    class OnCard:
        __cuda_array_interface__ = None

    arrays = [OnCard(), OnCard()]
    monkeypatch.setattr(kernel, "_card", arrays.index)
    launch = kernel.Launch(softmax_pair.__file__, "k", (1,), (1,), (*arrays, np.int32(1)))
    for refused in (lambda: kernel.card_of(*arrays), launch):
        with pytest.raises(ValueError, match="live apart, on cards 0 and 1: pass all on one card"):
            refused()
    with pytest.raises(ValueError, match="pass all on the card or all on the host"):
        kernel.card_of(np.zeros(1), arrays[0])


CARD = Machine("card", Seen())
TORCH_SAYS = "CUDA out of memory. Tried to allocate 66.00 GiB. GPU 0 has a total capacity of .."
CUPY_SAYS = "Out of memory allocating 70,866,960,384 bytes (allocated so far: 0 bytes)."


@pytest.mark.parametrize("said", (TORCH_SAYS, CUPY_SAYS, "CUBLAS_STATUS_ALLOC_FAILED"))
def test_memory_that_the_other_allocator_keeps_is_given_back_once(monkeypatch, said):
    """github.com/cupy/cupy/issues/7556 and github.com/explosion/thinc/pull/180"""
    done, held = [], []

    class Block:
        """What a launch had allocated before it failed."""

    def work():
        block = Block()
        held.append(weakref.ref(block))
        done.append("tried")
        if len(done) < 3:
            raise RuntimeError(said)
        return 7

    def give_back(machine):
        assert held[-1]() is None  # else the allocator could not have it back
        done.append("given back")

    monkeypatch.setattr(memory, "give_back", give_back)
    assert memory.with_room(CARD, work) == 7
    assert done == ["tried", "given back", "tried"]
    done.clear()
    with pytest.raises(RuntimeError):  # a host has no such allocators
        memory.with_room(Machine("host", Seen()), work)
    assert done == ["tried"]
    with pytest.raises(ZeroDivisionError):
        memory.with_room(CARD, lambda: 1 / 0)
    assert done == ["tried"]


def test_both_allocators_give_back(monkeypatch):
    """github.com/cupy/cupy/issues/7678"""
    done = []
    pool = types.SimpleNamespace(free_all_blocks=lambda: done.append("cupy"))
    fake = types.SimpleNamespace(
        cuda=types.SimpleNamespace(Device=lambda card: torch.inference_mode()),
        get_default_memory_pool=lambda: pool,
    )
    monkeypatch.setitem(sys.modules, "cupy", fake)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: done.append("torch"))
    memory.give_back(CARD)
    assert done == ["torch", "cupy"]


def test_a_repetition_without_memory_goes_on_from_the_first_output(monkeypatch):
    """github.com/cupy/cupy/issues/7556"""
    calls = []

    def short(x, out):
        calls.append(1)
        if len(calls) == 3:
            raise RuntimeError(CUPY_SAYS)
        out[:] = 2 * x

    x = f32([[1, 2], [3, 4]])
    bench = device.Bench(Machine("host", Seen()), {"x": x}, x.shape)
    monkeypatch.setattr(bench, "machine", CARD)
    monkeypatch.setattr(bench, "wait", lambda: None)
    monkeypatch.setattr(memory, "give_back", lambda machine: None)
    one = Implementation("short", "triton", short)
    assert np.array_equal(bench.run(one), 2 * x)
    assert bench.repeat(one, 4) == 4 and len(calls) == 1 + 2 + 4


@pytest.mark.parametrize(
    "said, asked",
    (
        (TORCH_SAYS, "66.00 GiB asked for, "),
        (CUPY_SAYS, "70,866,960,384 bytes asked for, "),
        ("Triton Error [CUDA]: out of memory", ""),
    ),
)
def test_a_want_of_memory_has_its_sizes(monkeypatch, said, asked):
    """github.com/cupy/cupy/issues/7678"""
    x = f32([[1, 2]])
    bench = device.Bench(Machine("host", Seen()), {"x": x}, x.shape)
    monkeypatch.setattr(bench, "machine", CARD)
    monkeypatch.setattr(bench, "wait", lambda: None)
    monkeypatch.setattr(memory, "give_back", lambda machine: None)
    monkeypatch.setattr(device, "memory_free", lambda machine: 1234567)

    def starved(x, out):
        raise RuntimeError(said)

    with pytest.raises(device.Broken) as told:
        bench.run(Implementation("starved", "triton", starved))
    assert str(told.value) == (
        f"out of memory on the card: {asked}1,234,567 bytes free; choose a smaller --shape or "
        "free the card"
    )


# -- folders that can't be written ----------------------------------------------------------------


def homeless(tmp_path, *argv):
    """A command where no home folder is, and what it left in the temporary one."""
    unset = ("TRITON_CACHE_DIR", "TRITON_HOME", "CUPY_CACHE_DIR", "XDG_CACHE_HOME")
    env = {name: value for name, value in os.environ.items() if name not in unset}
    ran = subprocess.run(
        [sys.executable, "-m", "compare", *argv],
        cwd=Path(__file__).resolve().parent.parent,
        env={**env, "HOME": "/proc", "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "Traceback" not in ran.stderr and "No such file" not in ran.stdout
    assert list(tmp_path.glob("triton-vs-cuda-*")) == []
    return ran.stdout


@needs_emulator
def test_a_run_without_a_home(tmp_path, place):
    """github.com/cupy/cupy/issues/2296"""
    said = homeless(tmp_path, "run", "softmax", "--shape", "8x64", *["--cpu"] * (place == "host"))
    assert "MATCH" in said and "NO MATCH" not in said


@needs_nvrtc
def test_kernels_are_compiled_without_a_home(tmp_path):
    """github.com/cupy/cupy/issues/2296: CuPy fails when it is imported, Triton when it compiles"""
    said = homeless(tmp_path, "compiled", "softmax", "--shape", "8x64")
    registers = next(line for line in said.splitlines() if "registers a thread" in line)
    assert len(registers.split()) == 3 + 3  # of softmax, softmaxRows and its fast-math build
    assert "not installed" not in said


def test_no_folder_at_all_names_the_variable(monkeypatch):
    """github.com/DiamondLightSource/httomo/issues/243"""
    monkeypatch.setenv("HOME", "/proc")
    for name in ("TRITON_HOME", *caches.VARIABLES.values()):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(caches.tempfile, "tempdir", "/proc/none")
    with pytest.raises(Refusal, match="folder can be written: set TRITON_CACHE_DIR to one that"):
        caches.ensure()
    monkeypatch.setenv("TRITON_CACHE_DIR", "/chosen")
    with pytest.raises(Refusal, match="folder can be written: set CUPY_CACHE_DIR to one that can"):
        caches.ensure()
    assert os.environ["TRITON_CACHE_DIR"] == "/chosen"
