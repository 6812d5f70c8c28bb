"""The command line as a user types it: screens, exit codes, one sentence for every mistake."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from compare import run as runs
from compare import system
from compare.cli import main
from compare.machine import Card, Seen
from compare.results import Report, from_json, read_json, to_json

ROOT = Path(__file__).resolve().parent.parent


def call(capsys, *argv):
    code = main(list(argv))
    out, err = capsys.readouterr()
    return code, out, err


def refused(capsys, *argv):
    """Exit 2, nothing on stdout, one line on stderr: that line."""
    code, out, err = call(capsys, *argv)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1 and "Traceback" not in err
    return err


def test_run_on_a_machine_without_a_card(capsys, tmp_path):
    path = tmp_path / "run.json"
    code, out, err = call(
        capsys, "run", "softmax", "--cpu", "--shape", "5x300", "--json", str(path)
    )
    assert code == 0, out + err
    assert "this run shows right or wrong, never time" in out
    assert "MATCH    all 1,500 elements within tolerance" in out
    assert "exit 0" in " ".join(out.rstrip().splitlines()[-2:])
    report = read_json(path)
    assert report.exit_code == 0 and report.schema == 1
    assert report.cases[0].row("softmax").accuracy.ok
    assert [entry.name for entry in tmp_path.iterdir()] == ["run.json"]


def test_run_is_the_default_command(capsys):
    code, out, _ = call(capsys, "softmax", "--cpu", "--shape", "2x3")
    assert code == 0 and "softmax 2x3" in out


def test_matmul_in_the_precision_that_a_card_alone_has(capsys):
    code, out, _ = call(capsys, "matmul", "--cpu", "--shape", "8x8x8", "--precision", "tf32")
    assert code == 1
    assert "not run  needs a card" in out


@pytest.mark.parametrize("shape", ("0x5", "1x1"))
def test_the_smallest_softmaxes(capsys, shape):
    assert call(capsys, "softmax", "--cpu", "--shape", shape)[0] == 0


@pytest.mark.parametrize("shape", ("0x3x4", "3x0x4", "3x4x0", "1x1x1"))
def test_the_smallest_products(capsys, shape):
    code, out, err = call(capsys, "matmul", "--cpu", "--precision", "ieee", "--shape", shape)
    assert code == 0, out + err


def test_markdown_for_a_pull_request(capsys, tmp_path):
    path = tmp_path / "run.md"
    code, _, _ = call(capsys, "softmax", "--cpu", "--shape", "2x3", "--md", str(path))
    text = path.read_text()
    assert code == 0 and "| softmaxRows" in text and "exit 0" in text


def test_a_link_is_followed_and_what_is_no_file_is_written_as_it_is(capsys, tmp_path):
    target, link = tmp_path / "target.md", tmp_path / "link.md"
    target.write_text("old")
    link.symlink_to(target)
    call(capsys, "softmax", "--cpu", "--shape", "2x3", "--md", str(link))
    assert link.is_symlink() and "softmaxRows" in target.read_text()
    code, _, _ = call(capsys, "softmax", "--cpu", "--shape", "2x3", "--md", "/dev/null")
    assert code == 0 and not Path("/dev/null").is_file()


def test_a_file_that_fails_at_last_does_not_take_the_report_along(capsys):
    code, out, _ = call(capsys, "softmax", "--cpu", "--shape", "2x3", "--md", "/dev/full")
    assert code == 2
    assert "MATCH" in out and "/dev/full can't be written" in out


def test_one_side_alone_shows_its_error(capsys):
    code, out, _ = call(capsys, "softmax", "--cpu", "--shape", "2x3", "--only", "softmax")
    assert code == 0 and "RIGHT    softmax: error" in out


def test_explain_prints_formula_and_source_of_every_bound(capsys):
    _, out, _ = call(
        capsys, "matmul", "--cpu", "--precision", "ieee", "--shape", "4x4x4", "--explain"
    )
    assert "|got - ref| <=" in out and "Higham" in out and "(informs)" in out


def test_sweep_has_a_row_for_every_config(capsys):
    code, out, _ = call(
        capsys, "sweep", "matmul", "--cpu", "--shape", "8x8x8", "--precision", "ieee"
    )
    assert code == 0
    assert out.count("config=") == 3 and "matmul_tiled" in out


def test_a_swept_row_is_repeated_by_its_config(capsys):
    code, out, _ = call(
        capsys, "softmax", "--cpu", "--shape", "4x8", "--config", "num_warps=2;rows=4"
    )
    assert code == 0 and "MATCH" in out


def test_a_swept_row_says_what_its_code_takes():
    from compare.results import Row
    from compare.sweep import code_words

    code = {"softmax_kernel": {"registers": 22, "stack": 16, "shared": 1024}}
    row = Row("x", "triton", "triton", "ieee", code=code)
    assert code_words(row) == "22 regs, 16 B stack, 1,024 B"


def test_list_names_everything(capsys):
    code, out, _ = call(capsys, "list")
    assert code == 0
    for word in ("softmaxRows", "matmul_tiled", "cublas", "tf32", "spike", "ROWSxCOLS", "MxNxK"):
        assert word in out


def test_doctor(capsys):
    code, out, _ = call(capsys, "doctor")
    assert "torch" in out and "compiler" in out
    assert code in (0, 2)


def test_no_screen_is_wider_than_100_columns(capsys):
    for argv in (["list"], ["doctor"], ["softmax", "--cpu", "--shape", "2x3", "--explain"]):
        _, out, _ = call(capsys, *argv)
        assert max(map(len, out.splitlines())) <= 100, argv


@pytest.mark.parametrize(
    "argv, words",
    (
        (["softmx"], "did you mean 'softmax'"),
        (["--only", "softmaxRow"], "'softmaxRows'"),
        (["--precision", "tf23"], "'tf32'"),
        (["--precision", ""], "--precision is empty"),
        (["softmax", "--precision", "bf16x3"], "precision 'bf16x3' is unknown"),
        (["--data", "spick"], "'spike'"),
        (["--shape", "12"], "a shape is written as"),
        (["--shape", "axb"], "does not parse"),
        (["--shape", "64x256..2"], "does not grow"),
        (["softmax", "--shape", "3x0"], "at least 0 rows and 1 column"),
        (["softmax", "--shape", "3x4x5"], "softmax ROWSxCOLS"),
        (["matmul", "--shape", "500000x500000x4"], "bytes"),
        (["matmul", "--config", "config=wide"], "does not parse"),
        (["softmax", "--config", "colour=3"], "num_warps, rows"),
        (["softmax", "--only", "matmul ieee"], "did you mean"),
        (["--json", "/nowhere/x.json"], "no folder /nowhere"),
        (["--json", "/"], "it is a folder"),
        (["--frobnicate"], "--frobnicate"),
        (["--seed", "-1"], "--seed -1 is negative"),
        (["softmax", "matmul", "--shape", "4x64"], "--shape does not fit matmul"),
        (["softmax", "matmul", "--precision", "tf32"], "--precision does not fit softmax"),
        (["show", "no-such"], "h200"),
        (["show", "no-such.json"], "there is no file no-such.json"),
        (["--shap", "2x3"], "--shap"),
        (["sweep"], "PAIR"),
    ),
)
def test_a_mistake_is_one_sentence(capsys, argv, words):
    assert words in refused(capsys, *(argv if argv[0] in ("show", "sweep") else [*argv, "--cpu"]))


def test_a_required_card_that_is_not_there(capsys, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert "--require-card" in refused(capsys, "--require-card")


def test_a_variable_that_triton_would_ignore(capsys, monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "2")
    assert "TRITON_INTERPRET='2'" in refused(capsys, "softmax")


def test_a_card_that_torch_cannot_use_is_exit_2_and_nothing_is_written(
    capsys, monkeypatch, tmp_path
):
    card = Card("NVIDIA A100", (8, 0))
    seen = Seen(
        versions={
            "torch": "2.11.0",
            "triton": "3.6.0",
            "numpy": "2",
            "tabulate": "0",
            "cupy": "14",
        },
        cupy_packages=("cupy-cuda13x",),
        cards=(card,),
        driver="535.104.05",
        driver_cuda=(12, 2),
        torch_cuda="13.0",
    )
    monkeypatch.setattr(system, "observe", lambda cards=True: seen)
    path = tmp_path / "run.json"
    sentence = refused(capsys, "--json", str(path))
    for fact in ("NVIDIA A100", "535.104.05", "12.2", "13.0", "cupy-cuda13x"):
        assert fact in sentence
    assert not path.exists()
    code, out, _ = call(capsys, "doctor")
    assert code == 2 and "CANNOT USE THIS CARD" in out and "--cpu" in out


def test_a_broken_interpreter_is_one_sentence_with_both_versions(capsys, monkeypatch):
    from compare import canary

    monkeypatch.setattr(canary, "fault", lambda: "a loop raises TypeError")
    sentence = refused(capsys, "softmax", "--cpu", "--shape", "2x3")
    assert "a loop raises TypeError" in sentence
    for name in ("triton", "numpy"):
        assert f"{name} {system.version(name)}" in sentence


def planted(monkeypatch, value):
    """The Triton launcher with one element of its output replaced."""
    import triton_impl.softmax as module

    right = module.softmax

    def wrong(x, out=None, **options):
        y = right(x, out, **options)
        y[-1, -1] = value
        return y

    monkeypatch.setattr(module, "softmax", wrong)


def test_a_planted_nan_is_exit_1_and_saved(capsys, monkeypatch, tmp_path):
    planted(monkeypatch, float("nan"))
    folder = tmp_path / "failed"
    argv = ("softmax", "--cpu", "--shape", "3x4", "--save", str(folder))
    code, out, _ = call(capsys, *argv)
    assert code == 1
    assert "NO MATCH" in out and "nan" in out and "(2, 3)" in out
    saved = {path.name for path in folder.iterdir()}
    assert {"softmax-3x4-ieee-x.npy", "softmax-3x4-ieee-out-softmax.npy"} <= saved
    assert np.isnan(np.load(folder / "softmax-3x4-ieee-out-softmax.npy")[2, 3])
    again = (folder / "softmax-3x4-ieee.txt").read_text()
    assert "run softmax --shape=3x4 --precision=ieee --data=random --seed=20260901" in again


def test_a_run_that_is_interrupted_prints_what_is_there(capsys, monkeypatch):
    from compare import workbench

    first = workbench.run_case
    calls = []

    def interrupted(runner, request):
        calls.append(request)
        if len(calls) > 1:
            raise KeyboardInterrupt
        return first(runner, request)

    monkeypatch.setattr(workbench, "run_case", interrupted)
    code, out, _ = call(capsys, "softmax", "--cpu", "--shape", "2x3", "--shape", "3x3")
    assert code == 1
    assert "interrupted: 1 of 2 cases are complete" in out


def test_a_sweep_that_is_interrupted_says_so(capsys, monkeypatch):
    from compare import workbench

    def interrupted(runner, request):
        raise KeyboardInterrupt

    monkeypatch.setattr(workbench, "run_case", interrupted)
    code, out, _ = call(capsys, "sweep", "softmax", "--cpu", "--shape", "2x3")
    assert code == 1 and "interrupted" in out


PROCESS = """
import sys, types
from compare import caches, cli
torch = types.SimpleNamespace(cuda=types.SimpleNamespace(is_initialized=lambda: {used}))
torch.cuda.synchronize = lambda: {alive} or exec("raise RuntimeError")
sys.modules["torch"] = torch
import atexit
atexit.register(print, "exit functions ran")
folder = caches.temporary("NAME")
cli.main = lambda: print(folder) or {code}
cli.entry()
"""


@pytest.mark.parametrize("used, alive", ((False, True), (True, True), (True, False)))
@pytest.mark.parametrize("code", (0, 1, 3))
def test_a_process_ends_with_its_code_and_without_its_folders(used, alive, code):
    """Of a card's context that is lost nothing is taken down: that prints tracebacks."""
    program = PROCESS.format(used=used, alive=alive, code=code)
    ran = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    folder, *rest = ran.stdout.splitlines()
    assert ran.returncode == code and not ran.stderr
    assert rest == ["exit functions ran"] * (alive or not used)
    assert not Path(folder).exists()


def test_a_report_survives_json(capsys, tmp_path):
    path = tmp_path / "run.json"
    call(capsys, "softmax", "--cpu", "--shape", "2x3", "--json", str(path))
    again = from_json(Report, json.loads(path.read_text()))
    assert to_json(again) == to_json(read_json(path)) == json.loads(path.read_text())
    code, out, _ = call(capsys, "show", str(path))
    assert code == 0 and "softmax 2x3" in out


@pytest.mark.parametrize(
    "text, words",
    (("{", "is not JSON"), ("[]", "no report"), ('{"schema": 99}', "schema 99"),
     ('{"schema": 1}', "no whole report"), ('{"schema": 1, "x": 1}', "no field 'x'")),
)  # fmt: skip
def test_a_file_that_is_no_report(capsys, tmp_path, text, words):
    path = tmp_path / "bad.json"
    path.write_text(text)
    assert words in refused(capsys, "show", str(path))


def test_shapes_over_a_range_double():
    assert runs.parse_shapes("8x256..2048") == [(8, 256), (8, 512), (8, 1024), (8, 2048)]
    assert runs.parse_shapes("2x3") == [(2, 3)]


def test_the_module_runs_from_another_folder_and_ends_quietly_in_a_pipe(tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    listed = subprocess.run(
        f"{sys.executable} -m compare list | head -1",
        shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert listed.stdout.startswith("softmax") and listed.stderr == ""
