"""What only a card can show: the whole report, cuBLAS, streams, errors in the middle."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

pytestmark = pytest.mark.gpu
ROOT = Path(__file__).resolve().parent.parent


def compare(*argv, **environment):
    env = {**os.environ, **environment}
    command = [sys.executable, "-m", "compare", *argv]
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    path = tmp_path_factory.mktemp("run") / "run.json"
    ran = compare("--json", str(path))
    print(ran.stdout)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stderr == ""
    return json.loads(path.read_text())


def case_of(report, pair, precision="ieee", at=0):
    found = [c for c in report["cases"] if (c["pair"], c["precision"]) == (pair, precision)]
    return found[at]


def row_of(case, name):
    return next(row for row in case["rows"] if row["name"] == name)


def share(row, counterpart):
    found = next(a for a in row["agreements"] if a["counterpart"] == counterpart)
    return found["equal"] / found["total"]


def test_every_pair_matches_and_has_its_times(report):
    assert all(case["verdict"].startswith("MATCH") for case in report["cases"])
    for pair, precision in (("softmax", "ieee"), ("matmul", "ieee"), ("matmul", "tf32")):
        case = case_of(report, pair, precision)
        for name in (case["triton"], case["cuda"]):
            row = row_of(case, name)
            assert row["timing"]["cold"]["us"] > 0 and row["runs"] == 20
            assert row["accuracy"]["ok"] and len(row["output"]) == 64
        assert case["clock"]["method"] == "CUPTI"
    assert row_of(case_of(report, "softmax"), "device copy")["timing"]["cold"]["us"] > 0


def test_our_own_kernels_machine_code_stands_in_the_report(report):
    for pair, name in (
        ("softmax", "softmax"),
        ("softmax", "softmaxRows"),
        ("matmul", "matmul ieee"),
    ):
        (code,) = row_of(case_of(report, pair), name)["code"].values()
        assert code["registers"] > 0 and len(code["sha"]) >= 16 and not code["broken"]


def test_ieee_products_are_equal_in_every_bit(report):
    case = case_of(report, "matmul", "ieee")
    assert tuple(case["shape"]) == (2048, 2048, 2048)
    assert share(row_of(case, "matmul ieee"), "cublas COMPUTE_32F") == 1


def test_tf32_is_less_exact_than_ieee_and_faster(report):
    ieee, tf32 = (row_of(case_of(report, "matmul", p), f"matmul {p}") for p in ("ieee", "tf32"))
    assert tf32["accuracy"]["error"] > 50 * ieee["accuracy"]["error"]
    assert tf32["timing"]["cold"]["us"] < ieee["timing"]["cold"]["us"]


def test_softmax_with_8_warps_has_the_bits_that_are_known(tmp_path):
    """About 29 % of softmaxRows' precise build's bits and 73 % of its fast one's."""
    path = tmp_path / "run.json"
    ran = compare("softmax", "--config", "num_warps=8;rows=1", "--json", str(path))
    assert ran.returncode == 0, ran.stdout + ran.stderr
    row = row_of(case_of(json.loads(path.read_text()), "softmax"), "softmax")
    assert 0.25 < share(row, "softmaxRows") < 0.36
    assert 0.68 < share(row, "softmaxRows, fast") < 0.79


def test_a_config_that_does_not_fit_is_a_row_and_the_rest_is_complete():
    ran = compare(
        "matmul", "--shape", "512x512x512", "--precision", "ieee",
        "--config", "config=256,128,128,8,8,4",
    )  # fmt: skip
    assert ran.returncode == 1
    assert "bytes of shared memory, this card has" in ran.stdout
    assert "cublas COMPUTE_32F" in ran.stdout and "Traceback" not in ran.stdout + ran.stderr


def test_a_context_that_is_lost_in_the_middle_names_the_culprit(tmp_path):
    """The Triton side writes far outside; what follows is not run and the report is whole."""
    program = """
import sys
import triton_impl.softmax as module
from compare.cli import entry

def wild(x, out=None, **options):
    kernel = module.softmax_kernel  # rows 2^40 elements apart: none but the first is there
    kernel[(len(x),)](x, out, 1 << 40, out.stride(0), x.shape[1], BLOCK_COLS=256)

module.softmax = wild
sys.argv = ["compare", "softmax", "--shape", "64x256", "--shape", "65x256"]
entry()
"""
    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert "outside its arrays" in ran.stdout
    assert "context lost after softmax" in ran.stdout
    assert "Traceback" not in ran.stderr


def test_cupy_missing_is_a_column_with_its_reason(tmp_path):
    program = """
import sys
from compare import system
system.cupy_packages = lambda: ()
from compare.cli import main
sys.exit(main(["softmax", "--shape", "64x256"]))
"""
    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert "CuPy is not installed: pip install '.[cuda13]'" in ran.stdout
    assert "% of allowed" in ran.stdout


def test_the_interpreter_may_be_asked_for_on_a_machine_with_a_card():
    ran = compare("softmax", "--shape", "3x5", TRITON_INTERPRET="1")
    assert "CARD NOT USED" in ran.stdout or "does not work here" in ran.stderr


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


COMPUTE_TYPES = ("CUBLAS_COMPUTE_32F", "CUBLAS_COMPUTE_32F_FAST_TF32")


@pytest.mark.parametrize("compute_type", COMPUTE_TYPES)
@pytest.mark.parametrize("layout", ("rows", "columns", "padded"))
@pytest.mark.parametrize("m, n, k", ((1, 1, 1), (3, 2, 33), (129, 65, 96), (1, 128, 1), (64, 1, 7)))
def test_gemm_ex_of_any_shape_and_layout(m, n, k, layout, compute_type):
    import cupy

    from cuda_ref.gemm_ex import gemm_ex

    def placed(x):
        if layout == "columns":
            return cupy.asfortranarray(cupy.asarray(x))
        if layout == "padded":
            wide = cupy.full((x.shape[0], x.shape[1] + 5), cupy.nan, np.float32)
            wide[:, : x.shape[1]] = cupy.asarray(x)
            return wide[:, : x.shape[1]]
        return cupy.asarray(x)

    a, b = numbers(m, k), numbers(k, n, seed=1)
    out = cupy.full((m, n), cupy.nan, np.float32)  # beta = 0 must not read it
    assert gemm_ex(placed(a), placed(b), out, compute_type=compute_type) is out
    want = a.astype(np.float64) @ b.astype(np.float64)
    tolerance = 1e-5 if compute_type.endswith("32F") else 1e-2
    assert np.abs(out.get() - want).max() <= tolerance * max(1, np.abs(want).max())


def test_gemm_ex_of_nothing_makes_no_call():
    import cupy

    from cuda_ref.gemm_ex import gemm_ex

    for m, n, k in ((0, 3, 4), (3, 0, 4), (3, 4, 0)):
        out = cupy.full((m, n), cupy.nan, np.float32)
        a, b = cupy.ones((m, k), np.float32), cupy.ones((k, n), np.float32)
        assert (gemm_ex(a, b, out, compute_type=COMPUTE_TYPES[0]).get() == 0).all()


def test_gemm_ex_refuses_in_one_sentence():
    import cupy

    from cuda_ref.gemm_ex import gemm_ex

    a = cupy.ones((4, 4), np.float32)
    for words, call in (
        ("unknown", lambda: gemm_ex(a, a, compute_type="CUBLAS_COMPUTE_16F")),
        ("float64", lambda: gemm_ex(a.astype(np.float64), a, compute_type=COMPUTE_TYPES[0])),
        ("4 columns and b 3 rows", lambda: gemm_ex(a, a[:3], compute_type=COMPUTE_TYPES[0])),
        ("strides", lambda: gemm_ex(a[::2, ::2], a[:2], compute_type=COMPUTE_TYPES[0])),
        ("out must be", lambda: gemm_ex(a, a, a[:2], compute_type=COMPUTE_TYPES[0])),
    ):
        with pytest.raises(ValueError, match=words):
            call()


def test_the_precision_is_the_calls_own_whatever_the_environment_says(tmp_path):
    """CUPY_TF32 changes cupy.matmul; gemm_ex is asked for a compute type at every call."""
    plain, forced = tmp_path / "plain.json", tmp_path / "forced.json"
    argv = ("matmul", "--shape", "256x256x1024", "--precision", "ieee", "--json")
    assert compare(*argv, str(plain)).returncode == 0
    assert compare(*argv, str(forced), CUPY_TF32="1").returncode == 0
    hashes = [
        row_of(json.loads(path.read_text())["cases"][0], "cublas COMPUTE_32F")["output"]
        for path in (plain, forced)
    ]
    assert hashes[0] == hashes[1]


def test_the_math_mode_is_restored_after_an_error(monkeypatch):
    import cupy
    from cupy.cuda import cublas, device

    from cuda_ref.gemm_ex import gemm_ex

    handle = device.get_cublas_handle()
    tf32 = 3  # CUBLAS_TF32_TENSOR_OP_MATH, which CuPy does not name
    cublas.setMathMode(handle, tf32)
    try:
        a = cupy.ones((8, 8), np.float32)

        def fails(*arguments):
            raise RuntimeError("the call")

        monkeypatch.setattr(cublas, "gemmEx", fails)
        with pytest.raises(RuntimeError, match="the call"):
            gemm_ex(a, a, compute_type=COMPUTE_TYPES[0])
        assert cublas.getMathMode(handle) == tf32
    finally:
        cublas.setMathMode(handle, cublas.CUBLAS_DEFAULT_MATH)


def test_launchers_run_on_the_callers_stream():
    """On a stream that a long kernel holds, nothing has happened when the launcher returns."""
    import cupy

    from cuda_ref.softmax import softmax_rows
    from triton_impl.softmax import softmax

    x = torch.from_numpy(numbers(64, 256)).cuda()
    outs = {name: torch.zeros_like(x) for name in ("triton", "cuda")}
    softmax(x, outs["triton"])
    softmax_rows(cupy.from_dlpack(x), cupy.from_dlpack(outs["cuda"]))
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    for out in outs.values():
        assert abs(float(out.abs().sum()) - 64) < 1e-3  # loads what is asked below, too
        out.zero_()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream), cupy.cuda.Stream.from_external(stream):
        torch.cuda._sleep(1_000_000_000)
        softmax(x, outs["triton"])
        softmax_rows(cupy.from_dlpack(x), cupy.from_dlpack(outs["cuda"]))
        busy = not stream.query()
    with torch.cuda.stream(torch.cuda.Stream()):
        untouched = all(float(out.abs().sum()) == 0 for out in outs.values())
    stream.synchronize()
    assert busy and untouched
    assert all(abs(float(out.sum()) - 64) < 1e-3 for out in outs.values())
