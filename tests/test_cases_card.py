"""Public reports that only a card can answer, some of them only two cards.

The link beside a test is the report. Reports that a host can answer, too, are in `test_cases`.
"""

import json
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

from compare import compiled
from compare.accuracy import judge
from compare.device import Bench, Broken, stream
from compare.machine import Machine, Refusal, Seen
from compare.memory import give_back
from compare.pair import Implementation
from compare.pairs import matmul as matmul_pair
from compare.pairs import softmax as softmax_pair
from cuda_ref.gemm_ex import gemm_ex
from cuda_ref.kernel import Launch
from cuda_ref.matmul_tiled import matmul_tiled
from cuda_ref.softmax import softmax_rows
from cuda_ref.softmax_onepass import softmax_onepass
from triton_impl import matmul as triton_matmul
from triton_impl import softmax as triton_softmax
from triton_impl.matmul_twin import Order, matmul_twin
from triton_impl.softmax_twin import softmax_twin

pytestmark = pytest.mark.gpu
two_cards = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two cards")
ROOT = Path(__file__).resolve().parent.parent
SEED = 20260901
SHAPES = {"softmax": (64, 1000), "matmul": (64, 96, 80)}
IEEE, TF32 = ({"precision": p, "config": triton_matmul.CONFIGS[0]} for p in ("ieee", "tf32"))
HALVES = Order((0, 40), (40, 80), ((0, 1),), tuple(range(80)))  # packs both, joins two sums
LAUNCHERS = {  # name -> library of its arrays, launcher, other arguments: all of the project's own
    "softmax": ("torch", triton_softmax.softmax, {}),
    "softmax, short rows": ("torch", triton_softmax.softmax, {"rows": 4}),
    "softmax_twin": ("torch", softmax_twin, {"exp": "libdevice", "div": "rn"}),
    "matmul": ("torch", triton_matmul.matmul, IEEE),
    "matmul_twin": ("torch", matmul_twin, {"precision": "ieee", "order": HALVES}),
    "matmul_twin, tf32": ("torch", matmul_twin, {"precision": "tf32"}),
    "softmax_rows": ("cupy", softmax_rows, {}),
    "softmax_onepass": ("cupy", softmax_onepass, {}),
    "matmul_tiled": ("cupy", matmul_tiled, {}),
    "gemm_ex": ("cupy", gemm_ex, {"compute_type": "CUBLAS_COMPUTE_32F"}),
    "gemm_ex, tf32": ("cupy", gemm_ex, {"compute_type": "CUBLAS_COMPUTE_32F_FAST_TF32"}),
}


@pytest.fixture
def cupy():
    return pytest.importorskip("cupy")


def python(program, *argv):
    """A program in a process of its own: this one has opened card 0."""
    command = [sys.executable, "-c", program, *argv]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def relative(got, want):
    """The error in the Frobenius norm."""
    return np.linalg.norm(got - want) / np.linalg.norm(want)


# -- precision ------------------------------------------------------------------------------------


def upcast(rows, cols, seed):
    """Positive float32 that bf16 holds exactly: a tensor core multiplies them without an error."""
    drawn = np.random.default_rng(seed).integers(128, 256, (rows, cols))
    return (drawn / 256).astype(np.float32)


@pytest.mark.parametrize("config", range(len(triton_matmul.CONFIGS)))
def test_upcast_operands_are_added_in_full_float32(config):
    """github.com/triton-lang/triton/issues/10176

    Every product is exact, so only the sum tells who added: one running sum in float32 has one
    right value, and a tensor core, which cuts its running sum, another.
    """
    a, b = upcast(64, 4096, 1), upcast(4096, 64, 2)
    want = np.zeros((64, 64), np.float32)
    for k in range(4096):
        want += a[:, k : k + 1] * b[k]
    placed = [torch.from_numpy(x).cuda() for x in (a, b)]
    outputs, texts = {}, {}
    for options in (IEEE, TF32):
        options = {**options, "config": triton_matmul.CONFIGS[config]}
        name = options["precision"]
        outputs[name] = triton_matmul.matmul(*placed, **options).cpu().numpy()
        one = Implementation(name, "triton", triton_matmul.matmul, options=options, precision=name)
        call = lambda o=options: triton_matmul.matmul(*placed, **o)  # noqa: E731
        major, minor = torch.cuda.get_device_capability()
        launched = compiled.watch(one, call, f"sm_{major}{minor}")
        (code,) = compiled.read(launched).codes
        assert code.broken == ""
        assert (code.counts["tensor core"] > 0) == (name == "tf32")
        texts[name] = launched.seen[0][0].asm["ptx"]
    assert np.array_equal(outputs["ieee"], want)
    assert not np.array_equal(outputs["tf32"], want)
    assert "tf32" not in texts["ieee"] and "tf32" in texts["tf32"]


def test_tf32x3_is_as_exact_as_ieee():
    """github.com/triton-lang/triton/issues/4603 and github.com/triton-lang/triton/pull/4934"""
    if "tf32x3" not in triton_matmul.known_precisions():
        pytest.skip("this Triton has no tf32x3")
    shape = (512, 512, 2048)
    arrays = matmul_pair.inputs(shape, "random", SEED)
    want = arrays["a"].astype(np.float64) @ arrays["b"].astype(np.float64)
    placed = [torch.from_numpy(arrays[name]).cuda() for name in "ab"]
    config = triton_matmul.CONFIGS[1]
    ieee, split, tf32 = (
        relative(triton_matmul.matmul(*placed, precision=p, config=config).cpu().numpy(), want)
        for p in ("ieee", "tf32x3", "tf32")
    )
    assert split < 4 * ieee and split < 5e-7
    assert tf32 > 100 * split  # three products, not one


def test_a_run_of_tf32x3_is_held_to_a_bound_of_its_own(tmp_path):
    """github.com/pytorch/pytorch/pull/133090"""
    path = tmp_path / "run.json"
    argv = ("matmul", "--precision", "tf32x3", "--shape", "1024x1024x2048", "--json", str(path))
    ran = python("import sys; from compare.cli import main; sys.exit(main(sys.argv[1:]))", *argv)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    report = json.loads(path.read_text())
    assert report["machine"]["versions"]["triton"] in ran.stdout
    rows = {row["name"]: row["accuracy"] for row in report["cases"][0]["rows"]}
    split, full = rows["matmul tf32x3"], rows["cublas COMPUTE_32F"]
    assert split["ok"] and split["error"] < 4 * full["error"]
    assert any("d = 2^-19" in check["formula"] for check in split["checks"])


# -- two cards ------------------------------------------------------------------------------------


ON_ONE = """
import sys
from compare.cli import main
code = main(sys.argv[1:])
import cupy, torch
used = [torch.cuda.max_memory_allocated(card) for card in (0, 1)]
for card in (0, 1):
    with cupy.cuda.Device(card):
        used.append(cupy.get_default_memory_pool().total_bytes())
print(torch.cuda.current_device(), *used, file=sys.stderr)
sys.exit(code)
"""


@two_cards
@pytest.mark.parametrize(
    "words",
    (
        ("softmax", "--shape", "64x1000"),
        ("matmul", "--precision", "ieee", "--shape", "256x256x1024"),
    ),
    ids=("softmax", "matmul"),
)
def test_a_run_on_the_second_card_touches_that_one_alone(tmp_path, words):
    """github.com/cupy/cupy/issues/6569 and github.com/triton-lang/triton/issues/5205"""
    path = tmp_path / "run.json"
    ran = python(ON_ONE, "run", *words, "--device", "1", "--json", str(path))
    assert ran.returncode == 0, ran.stdout + ran.stderr
    last = ran.stderr.splitlines()[-1]
    torch_now, torch_0, torch_1, cupy_0, _ = map(int, last.split())
    assert torch_now == 0  # CuPy stays on card 1: to go back it would open card 0
    assert torch_1 > 0 and (torch_0, cupy_0) == (0, 0)
    report = json.loads(path.read_text())
    machine, case = report["machine"], report["cases"][0]
    assert machine["card_index"] == 1
    assert machine["card_uuid"] == str(torch.cuda.get_device_properties(1).uuid)
    rows = {row["name"]: row for row in case["rows"]}
    for name in (case["triton"], case["cuda"]):
        assert rows[name]["accuracy"]["ok"] and rows[name]["timing"]["cold"]["us"] > 0


def current(cupy):
    return torch.cuda.current_device(), cupy.cuda.runtime.getDevice()


@two_cards
@pytest.mark.parametrize("pair", (softmax_pair.PAIR, matmul_pair.PAIR), ids=lambda pair: pair.name)
def test_both_libraries_stay_on_the_card_that_was_asked_for(cupy, pair):
    """github.com/cupy/cupy/issues/7466"""
    machine, shape = Machine("card", Seen(), device=1), SHAPES[pair.name]
    arrays = pair.inputs(shape, "random", SEED)
    reference = pair.reference(arrays, shape, SEED)
    with stream(machine):
        bench = Bench(machine, arrays, pair.output_shape(shape))
        for one in pair.implementations:
            function, seen = one.function(), []

            def call(*given, function=function, seen=seen, **options):
                seen.append(current(cupy))
                function(*given, **options)
                seen.append(current(cupy))

            got = bench.run(
                Implementation(one.name, one.language, call, arrays=one.arrays, options=one.options)
            )
            assert set(seen) == {(1, 1)} and current(cupy) == (1, 1)
            assert judge(got, reference, pair.bounds(reference, one, "random", shape)).ok
    assert current(cupy) == (0, 0)


def placed(cupy, library, array, card):
    if library == "torch":
        return torch.from_numpy(array).to(f"cuda:{card}")
    with cupy.cuda.Device(card):
        return cupy.asarray(array)


def case_of(name):
    """The inputs and the shape of the output of a launcher, with its right answer and its error."""
    pair = softmax_pair.PAIR if "softmax" in name else matmul_pair.PAIR
    shape = SHAPES[pair.name]
    arrays = pair.inputs(shape, "random", SEED)
    reference = pair.reference(arrays, shape, SEED).value
    error = 0.05 if "tf32" in name else 1e-4
    return list(arrays.values()), reference, error


def host(array):
    return array.cpu().numpy() if isinstance(array, torch.Tensor) else array.get()


def card(array):
    return array.device.index if isinstance(array, torch.Tensor) else array.device.id


@two_cards
@pytest.mark.parametrize("given", (False, True), ids=("allocates", "out"))
@pytest.mark.parametrize("name", LAUNCHERS)
def test_a_launcher_goes_where_its_arrays_are(cupy, name, given):
    """github.com/cupy/cupy/pull/5496 and github.com/triton-lang/triton/issues/2441"""
    library, launcher, options = LAUNCHERS[name]
    arrays, reference, error = case_of(name)
    ins = [placed(cupy, library, array, 1) for array in arrays]
    blank = np.full(reference.shape, np.nan, np.float32)
    out = placed(cupy, library, blank, 1) if given else None
    assert current(cupy) == (0, 0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        got = launcher(*ins, out, **options)
    assert not [w for w in caught if "Peer access" in str(w.message)]
    assert current(cupy) == (0, 0)
    assert card(got) == 1 and (not given or got is out)
    assert np.abs(host(got) - reference).max() < error


@two_cards
@pytest.mark.parametrize("name", LAUNCHERS)
def test_arrays_on_two_cards_are_refused(cupy, name):
    """github.com/cupy/cupy/issues/1389"""
    library, launcher, options = LAUNCHERS[name]
    arrays, reference, _ = case_of(name)
    blank = np.full(reference.shape, np.nan, np.float32)
    for odd in range(len(arrays) + 1):  # each array in turn lies on card 0, then the others do
        for one, rest in ((0, 1), (1, 0)):
            cards = [one if index == odd else rest for index in range(len(arrays) + 1)]
            made = zip((*arrays, blank), cards, strict=True)
            *ins, out = (placed(cupy, library, array, where) for array, where in made)
            with pytest.raises(ValueError) as refused:
                launcher(*ins, out, **options)
            assert "card" in str(refused.value) or "cuda:" in str(refused.value)
            assert "\n" not in str(refused.value)
            assert np.isnan(host(out)).all() and current(cupy) == (0, 0)


@two_cards
def test_a_user_s_launch_goes_where_its_arrays_are(cupy, tmp_path):
    """github.com/cupy/cupy/issues/3991"""
    source = tmp_path / "double.cu"
    source.write_text(
        'extern "C" __global__ void twice(const float* x, float* y) '
        "{ y[threadIdx.x] = 2 * x[threadIdx.x]; }"
    )
    x = placed(cupy, "cupy", np.arange(32, dtype=np.float32), 1)
    y, elsewhere = (placed(cupy, "cupy", np.zeros(32, np.float32), where) for where in (1, 0))
    Launch(source, "twice", (1,), (32,), (x, y))()
    assert y.get().tolist() == list(range(0, 64, 2))
    with pytest.raises(ValueError, match="live apart, on cards 0 and 1: pass all on one card"):
        Launch(source, "twice", (1,), (32,), (x, elsewhere))()


def test_a_host_s_tensor_in_a_launch_is_one_sentence():
    """github.com/linkedin/Liger-Kernel/issues/1303"""

    def stray(x, out):
        kernel = triton_softmax.softmax_kernel
        kernel[(len(x),)](x.cpu(), out, x.stride(0), out.stride(0), x.shape[1], BLOCK_COLS=64)

    machine = Machine("card", Seen())
    with stream(machine):
        bench = Bench(machine, {"x": np.ones((8, 64), np.float32)}, (8, 64))
        with pytest.raises(Broken, match="a tensor is not on the current card: put all of them on"):
            bench.run(Implementation("stray", "triton", stray))
        right = bench.run(Implementation("right", "triton", triton_softmax.softmax))
    assert np.array_equal(right, np.full((8, 64), 1 / 64))


# -- two allocators -------------------------------------------------------------------------------


X = np.arange(64, dtype=np.float32)


@pytest.fixture
def card_0(cupy):
    """The machine, inside its stream, and its free bytes once both allocators keep nothing."""
    machine = Machine("card", Seen())
    with stream(machine):
        give_back(machine)
        yield machine, torch.cuda.mem_get_info()[0]
        give_back(machine)


def kept_by_cupy(cupy, size):
    block = cupy.cuda.alloc(size)
    del block
    assert cupy.get_default_memory_pool().free_bytes() >= size


def kept_by_torch(cupy, size):
    block = torch.empty(size, dtype=torch.uint8, device="cuda")
    del block
    assert torch.cuda.memory_reserved() - torch.cuda.memory_allocated() >= size


def hungry(cupy, library, size):
    """Doubles its input, and needs `size` bytes to do it."""

    def call(x, out):
        if library == "torch":
            room = torch.empty(size, dtype=torch.uint8, device="cuda")
        else:
            room = cupy.empty(size, cupy.uint8)
        room[:1] = 0
        out[:] = 2 * x

    return Implementation(f"hungry {library}", "cuda", call, arrays=library)


def test_the_arrays_of_a_case_find_what_cupy_keeps(cupy, card_0):
    """github.com/cupy/cupy/issues/7556"""
    machine, free = card_0
    kept_by_cupy(cupy, int(0.7 * free))
    count = int(0.5 * free) // 4
    assert Bench(machine, {"x": X}, (count,)).output.tensor.numel() == count


@pytest.mark.parametrize("keeper, library", ((kept_by_cupy, "torch"), (kept_by_torch, "cupy")))
def test_each_side_finds_what_the_other_one_keeps(cupy, card_0, keeper, library):
    """github.com/explosion/thinc/pull/180 and github.com/cupy/cupy/issues/7678"""
    machine, free = card_0
    bench = Bench(machine, {"x": X}, X.shape)
    one = hungry(cupy, library, int(0.5 * free))
    for work in (lambda: bench.run(one), lambda: bench.repeat(one, 3)):
        give_back(machine)
        keeper(cupy, int(0.7 * free))
        work()
    assert np.array_equal(bench.fetch(), 2 * X)


@pytest.mark.parametrize("library", ("torch", "cupy"))
def test_a_side_without_memory_says_how_much_and_the_other_goes_on(cupy, card_0, library):
    """github.com/cupy/cupy/issues/7678"""
    machine, free = card_0
    bench = Bench(machine, {"x": X}, X.shape)
    words = r"^out of memory on the card: [\d.,]+ \w+ asked for, [\d,]+ bytes free; choose a"
    with pytest.raises(Broken, match=words):
        bench.run(hungry(cupy, library, 2 * free))
    other = "cupy" if library == "torch" else "torch"
    assert np.array_equal(bench.run(hungry(cupy, other, int(0.5 * free))), 2 * X)


def test_arrays_that_do_not_fit_are_refused_in_one_sentence(card_0):
    """github.com/cupy/cupy/issues/7556"""
    machine, free = card_0
    with pytest.raises(Refusal, match=r"^out of memory on the card: .* bytes free; choose") as told:
        Bench(machine, {"x": X}, (2 * free // 4,))
    assert told.value.code == 2 and "\n" not in str(told.value)
