"""The selftest itself: it catches, it rejects nothing right, and it can fail."""

import numpy as np
import pytest
import torch

from compare import selftest
from compare.selftest.correct import Correct
from compare.selftest.planted import BOUND, COVER, POSITIONS, Planted, in_matmul


@pytest.fixture(scope="module")
def outcome():
    return selftest.run()


def test_every_fault_is_caught_by_the_check_that_is_named_for_it(outcome):
    assert [trial for trial in outcome.of(planted=True) if not trial.ok] == []
    assert outcome.skipped == () and outcome.ok


def test_no_correct_result_is_rejected(outcome):
    right = outcome.of(planted=False)
    assert [(t.what, t.data, t.reason) for t in right if not t.ok] == []
    assert len({trial.data for trial in right}) == 14


FAULTS = {
    (
        "matmul",
        "ieee",
    ): """last K block of 32 dropped; last k dropped; first k counted twice; two rows
        of B exchanged; one 64x64 tile replaced by another; last row not written; one element off by
        1 % of the largest; one element NaN; inputs in bf16; inputs in fp16; output in fp16; tf32
        (truncated) offered as ieee; tf32 (rounded) offered as ieee; K tail unmasked; group order
        without min; one program too few; wrong row stride on a padded input; output read before it
        is written; stale output of the run before; output of another shape; output of another
        dtype; an input changed; a fence overwritten; 32-bit offsets past 2^31; beta other than
        zero""",
    (
        "matmul",
        "tf32",
    ): """last K block of 32 dropped; last k dropped; first k counted twice; two rows
        of B exchanged; one 64x64 tile replaced by another; last row not written; one element off by
        1 % of the largest; one element NaN; inputs in bf16; accumulation in fp16""",
    (
        "softmax",
        "ieee",
    ): """all zeros; uniform 1 / COLS; maximum not subtracted; sum misses the last 32
        columns; sum misses the last column; rows shifted by one; columns rolled by one; output in
        fp16; exponentials in bf16; pad lanes add exp(0 - max); last row not written; one element
        NaN; sum off by 1e-4; a thread's maximum used as the row's; masked load without other;
        barrier 1 of softmaxRows missing; barrier 5 of softmaxRows missing""",
}


@pytest.mark.parametrize("pair, precision", FAULTS)
def test_the_faults_of_the_project_are_all_planted(outcome, pair, precision):
    planted = {
        trial.what
        for trial in outcome.of(planted=True)
        if (trial.pair, trial.precision) == (pair, precision)
    }
    wanted = {" ".join(what.split()) for what in FAULTS[pair, precision].split(";")}
    assert wanted <= planted


def test_the_usual_tolerance_would_let_some_pass(outcome):
    loose = {(t.precision, t.what) for t in outcome.of(planted=True) if t.loose}
    assert {("tf32", "last k dropped"), ("tf32", "inputs in bf16")} <= loose
    assert all("NaN" not in what for _, what in loose)


def test_the_screen_has_a_row_for_every_fault(outcome):
    lines = selftest.lines(outcome)
    assert max(map(len, lines)) <= 100
    assert sum(line.endswith(" caught") for line in lines) == len(outcome.of(planted=True))
    assert not any("MISSED" in line or "REJECTED" in line for line in lines)
    count = len(outcome.of(planted=True))
    assert lines[-1].startswith(f"{count} of {count} faults caught, 0 of ")
    assert lines[-1].endswith("exit 0")


def test_faults_planted_around_a_launcher_of_tensors_are_caught_too():
    stands = selftest.Stands(selftest.Machine("host", selftest.Seen()))
    planted = in_matmul(torch.matmul, "ieee", arrays="torch")
    missed = [fault.what for fault in planted if not selftest.plant(stands, fault).ok]
    assert planted and missed == []


def right(a, b, out):
    out[...] = a @ b


def wrong(a, b, out):
    out[...] = a @ b
    out[0, 0] += 1000


@pytest.fixture
def only(monkeypatch):
    """Leaves a selftest with one fault and one correct result of the test's own."""

    def put(fault, kernel):
        small = {"shape": (8, 8, 16), "data": "random", "precision": "ieee", "pair": "matmul"}
        monkeypatch.setattr(
            selftest, "all_planted", lambda: [Planted("it", kernel=fault, check=BOUND, **small)]
        )
        monkeypatch.setattr(selftest, "in_barriers", lambda: [])
        monkeypatch.setattr(
            selftest, "correct", lambda _: [Correct("that", kernel=kernel, facts={}, **small)]
        )

    return put


def test_a_fault_that_no_check_catches_is_an_exit_of_1(only):
    only(right, right)
    lines, code = selftest.command(None)
    assert code == 1 and lines[-1].startswith("0 of 1 faults caught, 0 of 1")
    assert any(line.endswith("MISSED") for line in lines)


def test_a_correct_result_that_is_rejected_is_an_exit_of_1(only):
    only(wrong, wrong)
    lines, code = selftest.command(None)
    assert code == 1 and lines[-1].startswith(
        "1 of 1 faults caught, 1 of 1 correct results rejected"
    )
    assert any(line.startswith("    REJECTED on random: ") for line in lines)


def test_a_fault_must_be_caught_by_the_check_that_is_named():
    stands = selftest.Stands(selftest.Machine("host", selftest.Seen()))
    named = {"what": "it", "pair": "matmul", "kernel": wrong, "shape": (8, 8, 16)}
    assert selftest.plant(stands, Planted(check=COVER, **named)).ok
    elsewhere = selftest.plant(stands, Planted(check=POSITIONS, **named))
    assert not elsewhere.ok and "error bound" in elsewhere.failed


def test_without_a_compiler_what_needs_it_is_named(only, monkeypatch):
    only(wrong, right)

    def no_compiler():
        raise selftest.KernelError("no C++ compiler")

    monkeypatch.setattr(selftest, "in_barriers", no_compiler)
    lines, code = selftest.command(None)
    assert code == 0 and "  not run   a barrier missing: no C++ compiler" in lines
    assert np.isfinite(selftest.run().seconds)
