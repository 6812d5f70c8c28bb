"""The three CUDA kernels, right for every shape: on the emulator, and on a card where marked."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from cuda_ref import kernel, matmul_tiled, softmax, softmax_onepass
from cuda_ref.emulator.build import KernelError, without_comments

ROOT = Path(__file__).resolve().parent.parent
F = np.float32
INF, NAN = np.inf, np.nan
SOFTMAX = {
    "softmaxRows": softmax.softmax_rows,
    "softmax_onepass": softmax_onepass.softmax_onepass,
}
each_softmax = pytest.mark.parametrize("run", SOFTMAX.values(), ids=SOFTMAX)


def normal(*shape, seed=3):
    return np.random.default_rng(seed).standard_normal(shape).astype(F)


def right(x):
    """float64 softmax of every row."""
    with np.errstate(all="ignore"):
        e = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
        return e / e.sum(axis=1, keepdims=True)


def check(got, x):
    """Within 4e-6 of the right answer, relatively, beside the smallest normal number."""
    want = right(x)
    assert got.shape == x.shape and got.dtype == F
    assert (np.isnan(got) == np.isnan(want)).all()
    off = np.abs(got - want) - 4e-6 * want - 2.0**-126
    assert not (off > 0).any(), f"row, column {np.unravel_index(off.argmax(), off.shape)}"


COLS = (1, 2, 3, 5, 31, 32, 33, 127, 255, 256, 257, 781, 1000, 1023, 1024, 1025, 4096, 4100, 8192,
        16381, 16388, 32768, 32769, 40000, 65537)  # fmt: skip


@each_softmax
@pytest.mark.parametrize("cols", COLS)
def test_softmax_of_any_number_of_columns(run, cols):
    x = normal(3, cols) * F(3)
    check(run(x), x)


@pytest.mark.parametrize(
    "cols, plan",
    (
        (1, ("softmaxOnePass1", 32)),
        (128, ("softmaxOnePass1", 32)),
        (129, ("softmaxOnePass2", 32)),
        (1000, ("softmaxOnePass2", 128)),
        (1024, ("softmaxOnePass2", 128)),
        (8192, ("softmaxOnePass2", 1024)),
        (8193, ("softmaxOnePass4", 1024)),
        (16384, ("softmaxOnePass4", 1024)),
        (32768, ("softmaxOnePass8", 1024)),
        (32769, ("softmaxLooping", 1024)),
    ),
)
def test_the_one_pass_kernel_and_block_follow_the_row(cols, plan):
    assert softmax_onepass.plan(cols) == plan


def test_every_row_fits_the_registers_of_its_plan():
    for cols in range(1, softmax_onepass.MAX_COLS + 1, 7):
        name, threads = softmax_onepass.plan(cols)
        assert threads % 32 == 0 and 4 * int(name.removeprefix("softmaxOnePass")) * threads >= cols


@each_softmax
def test_rows_at_any_stride_and_any_alignment(run):
    """softmaxRows keeps its bits; the one-pass kernel moves single floats and adds in another order
    where a row is not a multiple of 16 bytes."""
    x = normal(6, 1024)
    want = run(x)
    room = np.full((6, 1100), NAN, F)
    shifted, out = room[:, 1:1025], np.full((6, 1200), NAN, F)
    shifted[:] = x
    back = out[:, 3:1027]
    assert run(shifted, back) is back
    assert (np.abs(back - want) <= (1e-6 if run is SOFTMAX["softmax_onepass"] else 0) * want).all()
    assert np.isnan(np.delete(out, slice(3, 1027), axis=1)).all(), "columns beside the row"
    assert np.isnan(np.delete(room, slice(1, 1025), axis=1)).all()
    check(run(x[::-2]), x[::-2])
    check(run(np.broadcast_to(x[:1], (3, 1024))), np.broadcast_to(x[:1], (3, 1024)))


@each_softmax
def test_in_place(run):
    x = normal(4, 300)
    want = run(x)
    assert (run(x, x) == want).all()


@each_softmax
@pytest.mark.parametrize(
    "row",
    (
        (-INF, -INF, -INF), (0, INF, 0), (INF, INF, 1), (-INF, INF, NAN), (0, NAN, 1), (NAN,) * 3,
        (-INF, 0, 1), (0, -INF, -INF), (1e8, 1e8 + 8, 1e8 + 16), (1e30, 1e30, -1e30),
        (3.4028235e38, -3.4028235e38, 0), (-3.0e38, -3.2e38, -INF), (-3.4028235e38, -INF, -INF),
    ),
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("width", (3, 1024, 33000))
def test_infinities_nan_and_huge_values(run, row, width):
    """The row alone; at the ends of a row of 1,024; and in one that no block can hold."""
    fill = -INF if width > 3 else 0
    x = np.full((2, width), fill, F)
    x[0, 0], x[0, -2], x[0, -1] = row
    x[1] = 0
    check(run(x), x)


@each_softmax
def test_the_maximum_is_the_rows_not_a_threads(run):
    x = np.zeros((1, 1024), F)
    x[0, 700] = 50
    got = run(x)[0]
    assert got[700] == 1 and np.allclose(np.delete(got, 700), 1.9287498e-22, rtol=1e-6)


@each_softmax
def test_no_rows_no_launch_and_no_columns_no_value(run):
    assert run(np.empty((0, 5), F)).shape == (0, 5)
    with pytest.raises(ValueError, match="without columns has no value"):
        run(np.empty((5, 0), F))


@each_softmax
@pytest.mark.parametrize(
    "x, out, said",
    (
        (np.zeros((2, 3)), None, "x must be 2-D float32, got 2-D float64"),
        (np.zeros(3, F), None, "x must be 2-D float32, got 1-D"),
        (np.zeros((4, 3), F).T, None, "x has column stride 3; softmax wants 1"),
        (np.zeros((2, 3), F), np.zeros((2, 4), F), "out must be float32 2x3, got float32 2x4"),
        (np.zeros((2, 3), F), np.zeros((2, 3)), "out must be float32 2x3, got float64 2x3"),
        (np.zeros((2, 3), F), np.zeros((3, 2), F).T, "out has column stride 2"),
        ([[1.0]], None, "pass numpy or CuPy arrays, not list"),
    ),
)
def test_softmax_says_what_it_can_not_take(run, x, out, said):
    with pytest.raises(ValueError, match=said):
        run(x, out)


def test_softmax_rows_adds_as_documented():
    """256 running sums of every 256th column, folded by halves; each element then divided."""
    x = normal(8, 1000)
    e = np.zeros((8, 1024), F)
    # The emulator's own expf, element by element: a row (v, max) gives e / (e + 1), so ask instead
    # for the bits of e through a row whose sum is a power of two.
    m = x.max(axis=1, keepdims=True)
    e[:, :1000] = exponentials(x - m)
    sums = np.zeros((8, 256), F)
    for step in range(4):
        sums += e[:, 256 * step : 256 * step + 256]
    width = 128
    while width:
        sums = sums[:, :width] + sums[:, width : 2 * width]
        width //= 2
    want = e[:, :1000] / sums
    assert softmax.softmax_rows(x).tobytes() == want.tobytes()


def exponentials(t):
    """expf of the C library, as the emulator calls it."""
    from cuda_ref.emulator.run import EmulatedKernel

    source = 'extern "C" __global__ void e(float* x) { int i = blockIdx.x * 8 + threadIdx.x;' \
        " x[i] = expf(x[i]); }"  # fmt: skip
    t = np.ascontiguousarray(t)
    EmulatedKernel(source, "e")((t.size // 8,), (8,), (t,))
    return t


SHAPES = ((1, 1, 1), (16, 16, 16), (17, 15, 33), (1, 100, 7), (100, 1, 50), (64, 48, 128),
          (511, 96, 40))  # fmt: skip


def chain(a, b):
    """One fma a term over k = 0, 1, 2 ..: a float64 product of two floats is exact, and a float64
    sum of it and a float is rounded to float32 as an fma would, but for rare double roundings."""
    acc = np.zeros((a.shape[0], b.shape[1]), F)
    for p in range(a.shape[1]):
        acc = (a[:, p, None].astype(np.float64) * b[p] + acc).astype(F)
    return acc


@pytest.mark.parametrize("m, n, k", SHAPES)
def test_matmul_tiled_is_one_running_sum_over_k(m, n, k):
    a, b = normal(m, k), normal(k, n, seed=4)
    got, want = matmul_tiled.matmul_tiled(a, b), chain(a, b)
    assert got.shape == (m, n) and (got == want).mean() > 0.999
    scale = np.abs(a).astype(np.float64) @ np.abs(b)
    assert (np.abs(got - a.astype(np.float64) @ b) <= k * 2.0**-24 * scale).all()


def test_matmul_tiled_takes_any_strides():
    a, b = normal(40, 30), normal(30, 50, seed=4)
    want = matmul_tiled.matmul_tiled(a, b)
    out = np.full((2 * 50, 3 * 40), NAN, F)
    back = out[::2, ::3].T
    assert matmul_tiled.matmul_tiled(np.asfortranarray(a), b[::-1][::-1], back) is back
    assert (back == want).all() and np.isnan(out).sum() == out.size - want.size
    wide = np.broadcast_to(b[:, :1], (30, 50))
    assert (matmul_tiled.matmul_tiled(a, wide) == want[:, :1]).all()
    integers = np.arange(40 * 30, dtype=F).reshape(40, 30)
    assert (matmul_tiled.matmul_tiled(integers, np.eye(30, dtype=F)) == integers).all()


def test_matmul_tiled_of_empty_sides():
    assert matmul_tiled.matmul_tiled(np.zeros((0, 3), F), np.zeros((3, 4), F)).shape == (0, 4)
    assert matmul_tiled.matmul_tiled(np.zeros((2, 3), F), np.zeros((3, 0), F)).shape == (2, 0)
    out = np.full((2, 4), NAN, F)
    assert matmul_tiled.matmul_tiled(np.zeros((2, 0), F), np.zeros((0, 4), F), out) is out
    assert (out == 0).all()


def test_matmul_tiled_never_reads_its_output():
    a, b = normal(20, 20), normal(20, 20)
    dirty = matmul_tiled.matmul_tiled(a, b, np.full((20, 20), NAN, F))
    assert (dirty == matmul_tiled.matmul_tiled(a, b)).all()


@pytest.mark.parametrize(
    "a, b, said",
    (
        (
            np.zeros((2, 3), F),
            np.zeros((4, 2), F),
            "a has 3 columns and b 4 rows; they must be equal",
        ),
        (np.zeros((2, 3)), np.zeros((3, 2), F), "a must be 2-D float32, got 2-D float64"),
        (np.zeros((2, 3), F), np.zeros(3, F), "b must be 2-D float32, got 1-D"),
        (
            np.broadcast_to(F(0), (2**20, 1)),
            np.broadcast_to(F(0), (1, 2**20)),
            "4,294,967,296 tiles",
        ),
        (np.broadcast_to(F(0), (2**31, 1)), np.zeros((1, 1), F), "a is 2147483648x1; a side is at"),
    ),
)
def test_matmul_tiled_says_what_it_can_not_take(a, b, said, monkeypatch):
    monkeypatch.setattr(np, "empty", lambda shape, kind: np.broadcast_to(F(0), shape))
    with pytest.raises(ValueError, match=said):
        matmul_tiled.matmul_tiled(a, b)


@pytest.mark.parametrize("file", ("softmax_rows.cu", "softmax_onepass.cu", "matmul_tiled.cu"))
def test_sources_are_plain_cuda(file):
    """No headers, C names, true -inf: what NVRTC takes as it is."""
    source = (ROOT / "cuda_ref" / file).read_text(encoding="utf-8")
    text = without_comments(source)
    assert "#include" not in text and "INFINITY" not in text
    assert text.count("__global__") == text.count('extern "C" __global__')
    assert max(map(len, source.splitlines())) <= 100


def test_softmax_rows_has_exactly_five_barriers():
    text = without_comments(softmax.SOURCE.read_text(encoding="utf-8"))
    assert text.count("__syncthreads()") == 5 and "__int_as_float(0xff800000)" in text
    assert re.search(r"#define THREADS 256\b", text) and softmax.THREADS == 256
    tiles = without_comments(matmul_tiled.SOURCE.read_text(encoding="utf-8"))
    assert tiles.count("__syncthreads()") == 2
    assert f"#define TILE {matmul_tiled.TILE}" in tiles


def test_bare_python_scalars_are_refused():
    run = kernel.load(matmul_tiled.SOURCE, matmul_tiled.KERNEL, on_card=False)
    for scalar, kind in ((3, "int"), (2.0, "float"), (True, "bool")):
        with pytest.raises(
            KernelError, match=f"argument 1 of matmulTiled is a Python {kind}, {scalar}"
        ):
            run((1,), (16, 16), (np.zeros(1, F), scalar))


def test_a_kernel_is_loaded_once_per_file_name_and_options():
    names = dict(name=softmax.KERNEL, on_card=False)
    one = kernel.built(softmax.SOURCE, options=(), **names)
    assert kernel.built(softmax.SOURCE, options=(), **names) is one
    assert kernel.built(softmax.SOURCE, options=softmax.FAST_MATH, **names) is not one


def test_a_file_that_is_not_there():
    with pytest.raises(KernelError, match=r"nowhere.cu can't be read: .*No such file"):
        kernel.load(Path("nowhere.cu"), "k", on_card=False)((1,), (1,), ())


def test_where_an_array_lives_decides():
    class OnCard:
        __cuda_array_interface__ = None

    assert kernel.on_card(OnCard()) and not kernel.on_card(np.zeros(1))
    with pytest.raises(ValueError, match="the arrays live apart"):
        kernel.module_of(OnCard(), np.zeros(1))


def test_fast_math_is_the_precise_build_on_the_emulator():
    x = normal(4, 500)
    fast = softmax.softmax_rows(x, fast_math=True)
    assert fast.tobytes() == softmax.softmax_rows(x).tobytes()


def test_importing_the_launchers_imports_neither_cupy_nor_torch():
    program = "import sys, cuda_ref.softmax, cuda_ref.softmax_onepass, cuda_ref.matmul_tiled;" \
        "assert not {'cupy', 'torch', 'triton'} & set(sys.modules)"  # fmt: skip
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)


def ulp(a, b):
    return np.abs(a.view(np.int32).astype(np.int64) - b.view(np.int32)).max()


@pytest.mark.gpu
@pytest.mark.parametrize("shape", ((2048, 1024), (512, 1000), (33, 1023), (4, 40001)))
def test_softmax_on_a_card_is_a_few_ulp_from_the_emulator(shape):
    import cupy

    # The two expf differ by 2 ULP at most (1 each), which is 4 of a quotient just under a power of
    # two; the sums by 1, and the two divisions round.
    x = normal(*shape)
    for run in SOFTMAX.values():
        assert ulp(cupy.asnumpy(run(cupy.asarray(x))), run(x)) <= 6


@pytest.mark.gpu
@pytest.mark.parametrize("m, n, k", (*SHAPES, (256, 256, 1024)))
def test_matmul_tiled_on_a_card_has_the_emulators_bits(m, n, k):
    import cupy

    a, b = normal(m, k), normal(k, n, seed=4)
    on_card = cupy.asnumpy(matmul_tiled.matmul_tiled(cupy.asarray(a), cupy.asarray(b)))
    assert on_card.tobytes() == matmul_tiled.matmul_tiled(a, b).tobytes()


@pytest.mark.gpu
@each_softmax
@pytest.mark.parametrize("cols", COLS)
def test_softmax_of_any_number_of_columns_on_a_card(run, cols):
    import cupy

    x = normal(3, cols) * F(3)
    check(cupy.asnumpy(run(cupy.asarray(x))), x)


@pytest.mark.gpu
def test_views_streams_and_errors_on_a_card():
    import cupy

    room = cupy.full((6, 1100), cupy.nan, F)
    x = normal(6, 1024)
    room[:, 1:1025] = cupy.asarray(x)
    with cupy.cuda.Stream(non_blocking=True) as stream:
        got = softmax.softmax_rows(room[:, 1:1025])
        stream.synchronize()
    check(cupy.asnumpy(got), x)
    with pytest.raises(ValueError, match="column stride"):
        softmax.softmax_rows(cupy.asarray(x).T)
    with pytest.raises(KernelError, match="argument 0 of softmaxRows is a Python float"):
        kernel.load(softmax.SOURCE, softmax.KERNEL, on_card=True)((1,), (1,), (2.0,))


@pytest.mark.gpu
def test_a_symbol_that_is_not_there_on_a_card(tmp_path):
    path = tmp_path / "plain.cu"
    path.write_text("__global__ void f(float* x) {}", encoding="utf-8")
    with pytest.raises(KernelError, match=r'plain.cu has no symbol f: .* extern "C"'):
        kernel.load(path, "f", on_card=True)((1,), (1,), ())
    path.write_text("nonsense", encoding="utf-8")
    with pytest.raises(KernelError, match=r"NVRTC can't compile plain.cu"):
        kernel.load(path, "g", on_card=True)((1,), (1,), ())
