"""A user's kernels go wrong in every way there is; each is a row, and nobody else is."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from compare import messages, run, workbench
from compare.device import Broken
from compare.inputs import sha256
from compare.pair import Implementation
from compare.userfile import isolation
from compare.userfile.isolation import Failure, answers, death

HERE = Path(__file__).parent
ROOT = HERE.parent
EVERY = {  # implementation -> what its row must say, on a host and on a card
    "strays": ("segmentation fault: it read or wrote outside", "illegal memory access: it read or"),
    "shifted": ("the fence around output is overwritten",) * 2,
    "list_grid": ("the grid is a list: Triton wants a tuple", ""),  # a card takes a list
    "unknown": ("has no attribute 'no_such_thing'",) * 2,
    "hangs": (
        "did not end within {limit} s; unless it hangs, running every thread on the CPU is slow: "
        "try --shape 1x64, or --limit 32",
        "did not end within {limit} s; --limit sets the seconds",
    ),
    "cuda_strays": ("segmentation fault: it read or wrote", "illegal memory access: it read or"),
    "cuda_wrong": ("failing_compile.cu line 2: undeclared is not declared", "undeclared"),
    "no_extern_c": ('write extern "C" before __global__',) * 2,
    "too_large": ("out of memory on this machine", "out of memory on the card"),
    "double": ("returned a float64 array of {shape} and left out unwritten",) * 2,
    "raises": ("KeyError: 'cols'",) * 2,
    "spoils": ("changed its input x",) * 2,
    "exits": ("called sys.exit(3)",) * 2,
}


def children():
    """Processes whose command is a trial's."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if b"compare.userfile.trial" in command and str(ROOT).encode() in command:
                found.append(int(entry.name))
    return found


def report_of(limit, shape, **more):
    wish = run.Wish(pairs=(str(HERE / "failing.py"),), shapes=(shape,), limit=limit, **more)
    return run.run(wish)


def look(report, limit, shape, card):
    rows = {row.name: row for row in report.cases[0].rows}
    for name, sentences in EVERY.items():
        if not sentences[card]:
            assert rows[name].accuracy.ok
            continue
        reasons = " ".join(rows[name].accuracy.reasons)
        want = sentences[card].format(limit=limit, shape=shape)
        assert want in reasons, f"{name}: {reasons}"
        assert "\n" not in reasons
        assert not rows[name].accuracy.ok and rows[name].timing is None
    assert rows["right"].accuracy.ok and rows["softmax"].accuracy.ok
    assert any("undeclared" in note for note in rows["cuda_wrong"].notes)
    assert (report.cases[0].triton, report.cases[0].cuda) == ("right", "softmaxRows")
    assert report.exit_code == 1
    return rows


def test_every_way_to_go_wrong_is_a_row():
    report = report_of(8, "4x64")
    rows = look(report, 8, "4x64", card=0)
    assert rows["softmax_onepass"].accuracy.ok and rows["right"].agreements
    assert not children()


def test_the_output_of_a_process_is_judged_here(tmp_path):
    """What was tried alone has bits, probes and agreements like any other."""
    report = report_of(60, "4x64", only=("right", "softmaxRows", "softmax"), keep=str(tmp_path))
    right, own = (report.cases[0].row(name) for name in ("right", "softmax"))
    assert right.output == own.output
    assert [c.name for c in right.accuracy.checks] == [c.name for c in own.accuracy.checks]
    assert right.agreements[0].counterpart == "softmaxRows"
    assert sha256(np.load(tmp_path / f"{right.output}.npy")) == right.output
    assert report.exit_code == 0


@pytest.mark.parametrize("during", ("trial", "case"))
def test_an_interrupted_run_keeps_what_is_there(monkeypatch, during):
    def interrupted(*given, **more):
        raise KeyboardInterrupt

    if during == "trial":
        monkeypatch.setattr(isolation, "one_process", interrupted)
        report = report_of(60, "4x64", only=("right",))
        assert not report.cases
    else:
        monkeypatch.setattr(workbench.Bench, "run", run_once(workbench.Bench.run))
        report = run.run(run.Wish(("softmax",), ("4x64",)))
        rows = report.cases[0].rows
        assert rows[0].accuracy.ok
        assert all(row.skipped for row in rows[1:])
        assert "interrupted" in rows[1].skipped
    assert report.exit_code == 1
    assert any("interrupted: 0 of 1 cases are complete" in note for note in report.notes)


def run_once(original):
    calls = []

    def once(*given, **more):
        calls.append(1)
        if len(calls) > 1:
            raise KeyboardInterrupt
        return original(*given, **more)

    return once


def test_a_process_ends_with_whoever_asked_it(tmp_path):
    """SIGKILL of the run leaves no trial behind, not even one that hangs."""
    program = (
        f"import sys; sys.path[:1] = [{str(ROOT)!r}]\nfrom compare.cli import main\n"
        f"main(['run', {str(HERE / 'failing.py')!r}, '--shape', '4x64', '--only', 'hangs'])"
    )
    outer = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 90

    def hanging():
        """Whether the kernel's library is loaded: from then on it never ends by itself."""
        return any(
            b"/triton-vs-cuda" in (Path(f"/proc/{pid}/maps").read_bytes()) for pid in children()
        )

    while not hanging() and time.monotonic() < deadline and outer.poll() is None:
        time.sleep(0.3)
    assert hanging()
    outer.send_signal(signal.SIGKILL)
    outer.wait()
    while children() and time.monotonic() < deadline:
        time.sleep(0.2)
    assert not children()


def test_the_clock_starts_anew_with_each_answer(monkeypatch):
    monkeypatch.setattr(isolation, "START", 0.1)
    reading, writing = os.pipe()

    def speak():
        for index in range(4):
            time.sleep(0.2)
            os.write(writing, b'{"row": %d}\n' % index)

    threading.Thread(target=speak).start()
    heard = []
    with pytest.raises(TimeoutError):
        for answer in answers(reading, 0.6, threading.Event()):
            heard.append(answer["row"])
    assert heard == [0, 1, 2, 3]
    os.close(writing)
    assert list(answers(reading, 0.6, threading.Event())) == []
    os.close(reading)


@pytest.mark.parametrize(
    "language, shape, on_card, sentence",
    (
        ("triton", (2048, 1024), False, "Triton's interpreter is slow: try --shape 128x1024, or"),
        ("cuda", (100, 7, 9), False, "every thread on the CPU is slow: try --shape 6x7x9, or"),
        ("triton", (1, 5), False, "Triton's interpreter is slow: try --limit 240"),
        ("triton", (2048, 1024), True, "did not end within 60 s; --limit sets the seconds"),
        ("library", (2048, 1024), False, "did not end within 60 s; --limit sets the seconds"),
    ),
)
def test_one_that_is_slow_without_a_card_is_told_a_smaller_shape(
    language, shape, on_card, sentence
):
    words = isolation.too_slow(Implementation("mine", language, print), shape, 60, on_card)
    assert sentence in words
    assert ("--limit 240" in words) is (not on_card and language != "library")


@pytest.mark.parametrize(
    "code, sentence",
    (
        (-signal.SIGSEGV, "segmentation fault: it read or wrote outside its arrays"),
        (-signal.SIGKILL, "the system killed its process, most likely for want of memory"),
        (-signal.SIGUSR1, "its process died of SIGUSR1"),
        (7, "ended its process with exit code 7"),
    ),
)
def test_a_death_in_words(code, sentence):
    assert death(code, "noise\n\nfree(): invalid pointer\n").sentence == sentence
    assert death(code, "noise\nfree(): invalid pointer\n").lines[-1] == "free(): invalid pointer"
    assert death(code, "") == Failure(sentence)


def test_another_process_goes_on_after_a_case_that_killed_one():
    """Two shapes: the first is fatal, the second is not tried in its ruins."""
    wish = run.Wish(
        pairs=(str(HERE / "failing.py"),), shapes=("4x64", "5x64"), only=("cuda_strays",)
    )
    report = run.run(wish)
    reasons = [case.rows[0].accuracy.reasons for case in report.cases]
    assert reasons == [("segmentation fault: it read or wrote outside its arrays",)] * 2


def test_a_compilers_message_is_trimmed():
    text = "at 4:20:\ndef k(x):\n    a = 1\n    b = tl.foo(a)\n        ^\nno attribute 'foo'\nmore"
    sentence, lines = messages.compilation(text)
    assert sentence == "Triton can't compile it, line 4 of the kernel: no attribute 'foo'"
    assert lines == ("    b = tl.foo(a)", "        ^")
    assert messages.trimmed("\n".join(map(str, range(20)))) == (
        "0",
        "1",
        "2",
        "3",
        ".. 16 more lines",
    )
    log = "In function f:\nk.cu:2: error: no x\n  2 | x\n"
    assert messages.trimmed(log) == ("k.cu:2: error: no x", "  2 | x")
    assert messages.told(Broken("changed its input x")) == ("changed its input x", ())


def test_a_user_may_not_take_all_memory():
    """In a process of its own, since the limit stays."""
    program = (
        f"import sys; sys.path[:1] = [{str(ROOT)!r}]\n"
        "import numpy\nfrom compare.userfile.trial import limit_memory\nlimit_memory(1 << 28)\n"
        "numpy.ones(1 << 20)\ntry: numpy.ones(1 << 27)\nexcept MemoryError: print('stopped')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "stopped\n", done.stderr


@pytest.fixture
def card_run(tmp_path):
    """`python -m compare` in a process of its own, since a test's process keeps its context."""

    def call(*words):
        return subprocess.run(
            [sys.executable, "-m", "compare", *words],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=500,
            check=False,
        )

    return call


@pytest.mark.gpu
def test_every_way_to_go_wrong_is_a_row_on_a_card(tmp_path, card_run):
    from compare.results import read_json

    path = tmp_path / "out.json"
    done = card_run(
        "run", "tests/failing.py", "--shape", "64x1024", "--limit", "15", "--json", str(path)
    )
    assert done.returncode == 1, done.stderr
    rows = look(read_json(path), 15, "64x1024", card=1)
    assert rows["right"].timing.cold.us > 0 and rows["softmax"].timing.cold.us > 0
    assert not children()
    again = card_run("run", "softmax", "--shape", "64x1024")  # the card is usable afterwards
    assert again.returncode == 0, again.stdout


@pytest.mark.gpu
def test_ten_runs_of_one_commit_changed_nothing(tmp_path, card_run):
    base = tmp_path / "base.json"
    assert card_run("run", "softmax", "--json", str(base)).returncode == 0
    for _ in range(10):
        done = card_run("run", "softmax", "--against", str(base), "--on", "bits,code,time")
        assert done.returncode == 0, done.stdout
        assert "nothing changed" in done.stdout


PLANTED = """
from tests.examples import my_softmax as base
"""


@pytest.mark.gpu
@pytest.mark.parametrize(
    "fault, shape, said",
    (
        (  # one ULP in one element, but not of the probe's rows, which hold -1000 or less
            "out[7, 3] = torch.where(x[7].min() > -100, torch.nextafter(out[7, 3], x[7, 3] + 9),"
            " out[7, 3])",
            "2048x1024",
            "1 of 2,097,152 elements, 1 ULP at most",
        ),
        (  # every 25th row done twice: 4 % more work, and a launch
            "kernel[(rows // 25,)](x, out, cols, BLOCK=triton.next_power_of_2(cols))",
            "16384x4096",
            "SLOWER by ",
        ),
    ),
)
def test_a_planted_change_is_named_on_a_card(tmp_path, card_run, fault, shape, said):
    for name in ("my_softmax.py", "my_softmax.cu"):
        (tmp_path / name).write_text((HERE / "examples" / name).read_text())
    mine, base, kept = tmp_path / "my_softmax.py", tmp_path / "base.json", tmp_path / "kept"
    words = [
        "run",
        str(mine),
        "--shape",
        shape,
        *(["--outputs", str(kept)] if "ULP" in said else []),
    ]
    assert card_run(*words, "--json", str(base)).returncode == 0
    launch = "    kernel[(rows,)](x, out, cols, BLOCK=triton.next_power_of_2(cols))\n"
    text = mine.read_text()
    assert launch in text
    text = text.replace(launch, f"{launch}    {fault}\n")
    mine.write_text(text.replace("import triton\n", "import torch\nimport triton\n", 1))
    done = card_run(*words, "--against", str(base))
    assert done.returncode == 3, done.stdout
    assert "my_triton" in done.stdout and said in " ".join(done.stdout.split())
