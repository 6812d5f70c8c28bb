"""From a pair to a verdict and an exit code, on a small pair of its own."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from compare import workbench
from compare.device import ContextLost
from compare.machine import Machine, Refusal, Seen
from compare.pair import Bound, Cost, Implementation, Pair, Probe, Reference
from compare.results import Accuracy, Agreement, Case, Check, Row
from compare.workbench import verdict

HOST = Machine("host", Seen(), missing={"card": "needs a card"})


def double(x, out):
    out[:] = 2 * x


def near(x, out):
    out.copy_(torch.nextafter(2 * x, torch.tensor(float("inf"))))


def nearby(x, out):
    out[:] = np.nextafter(2 * x, np.float32(np.inf))


def spoiled(value, at=(1, 2)):
    def launch(x, out):
        out[:] = 2 * x
        out[at] = value

    return launch


def inputs(shape, data, seed):
    return {"x": np.random.default_rng(seed).standard_normal(shape, np.float32)}


def reference(arrays, shape, seed):
    return Reference(2 * arrays["x"].astype(np.float64))


def bounds(ref, implementation, data, shape):
    return [Bound("two ULP", 2.0**-22 * np.abs(ref.value), "2 ULP", "made for this test")]


def probes(shape, precision, seed):
    x = np.ones(shape, np.float32)
    return [Probe("ones", {"x": x}, 2 * x, "anything but a doubling")]


def pair(triton=double, cuda=double, others=(), **changes):
    made = dict(
        name="doubling",
        summary="twice x",
        dims=("ROWS", "COLS"),
        data=("random",),
        precisions=("ieee",),
        implementations=(
            Implementation("left", "triton", triton, counterparts=("right",)),
            Implementation("right", "cuda", cuda, arrays="cupy"),
            *others,
        ),
        shapes=lambda on_card: ((3, 4),),
        check_shape=lambda shape: None,
        inputs=inputs,
        output_shape=lambda shape: shape,
        reference=reference,
        bounds=bounds,
        cost=lambda shape: Cost(1, 1, 1),
        probes=probes,
    )
    return Pair(**{**made, **changes})


def run(one, **asked):
    runner = workbench.Runner(HOST)
    return list(workbench.run(runner, workbench.requests([one], False, **asked)))


def test_two_that_agree_in_every_bit():
    (case,) = run(pair())
    assert case.verdict == "MATCH BIT FOR BIT"
    assert case.row("left").output == case.row("right").output != ""
    assert workbench.exit_code([case]) == 0


def test_two_that_agree_within_tolerance():
    (case,) = run(pair(triton=near, probes=lambda *which: ()))
    assert case.verdict == "MATCH"
    assert case.row("left").agreements[0].max_ulp == 1
    assert workbench.exit_code([case]) == 0


def test_an_exact_probe_rejects_what_the_tolerance_lets_through():
    (case,) = run(pair(triton=near))
    assert case.verdict == "NO MATCH"
    assert any(reason.startswith("ones:") for reason in case.row("left").accuracy.reasons)
    assert workbench.exit_code([case]) == 1


@pytest.mark.parametrize("value", (float("nan"), float("inf"), 1e3))
@pytest.mark.parametrize("side", ("triton", "cuda"))
def test_one_planted_element_fails_the_run(value, side):
    (case,) = run(pair(**{side: spoiled(value)}))
    assert case.verdict == "NO MATCH"
    name = {"triton": "left", "cuda": "right"}[side]
    assert case.row(name).accuracy.faults[0].index == (1, 2)
    assert workbench.exit_code([case]) == 1


def test_a_nan_on_both_sides_fails_although_they_agree():
    (case,) = run(pair(triton=spoiled(float("nan")), cuda=spoiled(float("nan"))))
    assert case.row("left").agreements[0].verdict == "identical"
    assert (case.verdict, workbench.exit_code([case])) == ("NO MATCH", 1)


def test_one_that_breaks_is_a_row_and_the_rest_is_complete():
    def broken(x, out):
        raise RuntimeError(
            "out of resource: shared memory, Required: 147456, Hardware limit: 101376"
        )

    third = Implementation("third", "cuda", broken, arrays="cupy")
    (case,) = run(pair(others=(third,)))
    assert case.verdict == "MATCH BIT FOR BIT"
    assert "needs 147,456 bytes" in case.row("third").accuracy.reasons[0]
    assert workbench.exit_code([case]) == 1


def test_a_missing_side_is_a_column_with_its_reason_and_exit_1():
    machine = Machine("host", Seen(), missing={"emulator": "needs a C++ compiler"})
    runner = workbench.Runner(machine)
    (case,) = workbench.run(runner, workbench.requests([pair()], False))
    assert case.row("right").skipped == case.unstated == "needs a C++ compiler"
    assert case.row("left").accuracy.ok
    assert workbench.exit_code([case]) == 1


def test_after_a_lost_context_nothing_more_is_touched(monkeypatch):
    """The rest of the case, and every later case, is named and not run."""
    from compare.device import Bench, ContextLost

    made = []

    class Dead(Bench):
        def __init__(self, *arguments):
            made.append(self)
            super().__init__(*arguments)

        def run(self, *arguments):
            raise ContextLost("illegal memory access: it read or wrote outside its arrays")

    monkeypatch.setattr(workbench, "Bench", Dead)
    runner = workbench.Runner(HOST)
    wanted = workbench.requests([pair()], False, shapes=[(3, 4), (5, 4)])
    first, second = workbench.run(runner, wanted)
    assert "the card's context is lost" in first.row("left").accuracy.reasons[0]
    assert first.row("right").skipped == second.unstated == "not run: context lost after left"
    assert len(made) == 1
    assert workbench.exit_code([first, second]) == 1


def test_a_context_lost_in_a_later_implementation_ends_probes_and_cases(monkeypatch):
    """The first was right and has probes to answer: they are not asked on a dead card."""
    from compare.device import Bench, ContextLost

    class Dies(Bench):
        dead = False

        def __init__(self, *arguments):
            assert not Dies.dead, "a dead context was touched"
            super().__init__(*arguments)

        def run(self, implementation, processes=1):
            if implementation.name == "right":
                Dies.dead = True
                raise ContextLost("illegal memory access")
            return super().run(implementation, processes)

    for module in (workbench, workbench.rows):
        monkeypatch.setattr(module, "Bench", Dies)
    runner = workbench.Runner(HOST)
    wanted = workbench.requests([pair()], False, shapes=[(3, 4), (5, 4)])
    first, second = workbench.run(runner, wanted)
    assert first.row("left").accuracy.ok and not first.row("right").accuracy.ok
    assert second.unstated == "not run: context lost after right"


def test_untimed_cases_run_first_and_all_are_given_as_asked_for():
    ran = []

    def noted(x, out):
        if x.shape[0] > 1:  # the probes' own rows are of the same shape
            ran.append(x.shape)
        double(x, out)

    shapes = ((3, 4), (2, 5))  # the first is timed
    cases = run(pair(triton=noted, shapes=lambda on_card: shapes))
    assert tuple(case.shape for case in cases) == shapes
    assert list(dict.fromkeys(ran)) == [(2, 5), (3, 4)]
    assert all(case.verdict == "MATCH BIT FOR BIT" for case in cases)


@pytest.mark.parametrize("rows, asked", ((256, 256), (257, 128)))
def test_a_long_probe_is_asked_of_its_first_rows_without_a_card_and_says_so(rows, asked):
    seen = []

    def noted(x, out):
        seen.append(len(x))
        out[:] = 2 * x + (len(x) == asked)  # wrong for the probe alone

    one = Implementation("left", "triton", noted, split=("x",), counterparts=("right",))
    right = Implementation("right", "cuda", double, arrays="cupy")
    several = pair(implementations=(one, right), probes=lambda *of: probes((rows, 4), *of[1:]))
    (case,) = run(several)
    assert seen[-1] == asked
    (reason,) = case.row("left").accuracy.reasons
    assert ("of the first 128 rows" in reason) == (rows != asked)


def test_equal_bits_under_equal_bounds_are_judged_once(monkeypatch):
    judged = []
    real = verdict.accuracy.judge
    monkeypatch.setattr(
        verdict.accuracy, "judge", lambda got, *a, **k: judged.append(got) or real(got, *a, **k)
    )
    shared = {}

    def kept(ref, implementation, data, shape):
        return shared.setdefault(shape, bounds(ref, implementation, data, shape))

    others = [
        Implementation("third", "cuda", double, arrays="cupy"),
        Implementation("off", "cuda", spoiled(9.0), arrays="cupy"),
    ]
    (case,) = run(pair(bounds=kept, others=others))
    assert len(judged) == 3  # right stands beside nothing; left and third beside it; off
    assert [case.row(name).accuracy.ok for name in ("left", "right", "third", "off")] == [
        True, True, True, False,
    ]  # fmt: skip


def test_equal_bits_under_another_bound_are_judged_by_that():
    def strict(ref, implementation, data, shape):
        allowed = (0.0 if implementation.name == "left" else 2.0**-22) * np.abs(ref.value)
        return [Bound("a bound", allowed, "0 or 2 ULP", "made for this test")]

    (case,) = run(pair(triton=near, cuda=nearby, bounds=strict, probes=lambda *asked: ()))
    assert case.row("left").output == case.row("right").output
    assert [case.row(name).accuracy.ok for name in ("left", "right")] == [False, True]


def test_an_interrupt_while_cases_are_concluded_leaves_those_that_are_complete(monkeypatch):
    real, seen = workbench.run_case, []

    def interrupted():
        raise KeyboardInterrupt

    def second(runner, request):
        seen.append(request)
        return interrupted if len(seen) == 2 else real(runner, request)

    monkeypatch.setattr(workbench, "run_case", second)
    runner = workbench.Runner(HOST)
    wanted = workbench.requests([pair()], False, shapes=[(3, 4), (5, 4), (6, 4)])
    assert [case.shape for case in workbench.run(runner, wanted)] == [(3, 4), (6, 4)]
    assert runner.stopped


def test_a_case_is_kept_before_the_next_one_runs(monkeypatch):
    saved, real = [], workbench.run_case

    def counted(runner, request):
        assert len(saved) == 2 * (request.shape == (5, 4))  # both rows of the case before
        return real(runner, request)

    monkeypatch.setattr(workbench, "run_case", counted)
    runner = workbench.Runner(HOST, save=lambda *what: saved.append(what))
    wanted = workbench.requests([pair(triton=spoiled(9.0))], False, shapes=[(3, 4), (5, 4)])
    assert len(list(workbench.run(runner, wanted))) == 2 and len(saved) == 4


class Box:
    """A black box of the implementation `bad`, which gives what it gives when it is asked."""

    bad, error = "", None

    def __init__(self, machine, implementation, *more):
        self.implementation, self.lost = implementation, False
        if isinstance(Box.error, Refusal):
            raise Box.error

    def __call__(self, *arrays):
        if self.implementation.name == Box.bad:
            self.lost = True
            raise Box.error


def learning(bad, error, monkeypatch):
    monkeypatch.setattr(workbench.rows, "BlackBox", Box)
    monkeypatch.setattr(Box, "bad", bad)
    monkeypatch.setattr(Box, "error", error)

    def ask(counterpart, own, shape):
        counterpart()
        own()

    twin = Implementation("twin", "triton", double, twin_of="right", prepare=ask)
    (case,) = run(pair(others=(twin,)), only=("left", "right", "twin"))
    return case


def test_a_twin_without_room_to_ask_is_a_row_and_the_rest_is_complete(monkeypatch):
    case = learning("", Refusal(2, "out of memory on the card"), monkeypatch)
    assert case.row("twin").skipped == "out of memory on the card"
    assert case.row("left").accuracy.ok and case.row("right").accuracy.ok


@pytest.mark.parametrize("bad", ("right", "twin"))
def test_who_lost_the_context_while_it_was_asked_is_named(monkeypatch, bad):
    case = learning(bad, ContextLost("illegal memory access"), monkeypatch)
    assert case.row("left").skipped == f"not run: context lost after {bad}"


def test_both_gates_of_a_case_may_fail():
    from compare.run import gated

    strict = pair(gates=lambda cases: [(cases[0], "one"), (cases[0], "two")])
    (case,) = run(strict)
    assert gated([strict], [case])[0].failed_gates == ("one", "two")


def test_what_no_side_can_run_here_does_not_count_beside_what_can():
    card = pair(
        implementations=(
            Implementation("left", "triton", double, needs=("card",), counterparts=("right",)),
            Implementation("right", "library", double, needs=("card",)),
        )
    )
    (idle,) = run(card)
    (case,) = run(pair())
    assert workbench.exit_code([case, idle]) == 0
    assert workbench.exit_code([idle]) == 1
    assert workbench.exit_code([]) == 1


def test_one_side_alone_may_be_asked_for():
    (case,) = run(pair(), only=("left",))
    assert case.unstated == "one side alone was asked for"
    assert workbench.exit_code([case]) == 0
    (wrong,) = run(pair(triton=spoiled(9.0)), only=("left",))
    assert (wrong.verdict, workbench.exit_code([wrong])) == ("NO MATCH", 1)


def test_a_failed_gate_is_exit_1():
    (case,) = run(pair())
    assert workbench.exit_code([replace(case, failed_gates=("no",))]) == 1


def test_the_counterpart_is_the_first_that_runs():
    lead = Implementation("left", "triton", double, counterparts=("library", "right"))
    library = Implementation("library", "library", double, needs=("card",))
    right = Implementation("right", "cuda", double, arrays="cupy")
    (case,) = run(pair(implementations=(lead, library, right)))
    assert (case.triton, case.cuda) == ("left", "right")


@pytest.mark.parametrize("split, rows", ((("x",), 128), ((), 300)))
def test_without_a_card_a_probe_asks_for_the_first_rows_where_they_are_independent(split, rows):
    asked = []

    def counted(x, out):
        asked.append(len(x))
        double(x, out)

    lead = Implementation("left", "triton", counted, counterparts=("right",), split=split)
    right = Implementation("right", "cuda", double, arrays="cupy")
    (case,) = run(pair(implementations=(lead, right)), shapes=[(300, 2)])
    assert asked == [300, rows] and case.verdict == "MATCH BIT FOR BIT"
    asked.clear()
    right = Implementation("right", "cuda", counted, arrays="cupy")  # alone, as a file's kernel is
    run(pair(implementations=(lead, right)), shapes=[(300, 2)], only=("right",))
    assert asked == [300, rows]


def test_what_a_bound_took_the_worst_of_is_told_where_another_declares_it():
    def noted(ref, implementation, data, shape):
        (found,) = bounds(ref, implementation, data, shape)
        return [replace(found, note="declares nothing" if implementation.name == "left" else "")]

    (case,) = run(pair(bounds=noted))
    assert [row.notes for row in case.rows] == [("declares nothing",), ()]
    (alone,) = run(pair(bounds=noted), only=("left",))
    assert alone.rows[0].notes == ()
    (wrong,) = run(pair(bounds=noted, triton=spoiled(9.0)))
    assert wrong.row("left").notes == ()


def test_every_hash_is_kept():
    (case,) = run(pair())
    assert len(case.inputs["x"]) == len(case.row("left").output) == 64
    (other,) = run(pair(), seed=7)
    assert other.inputs != case.inputs


def test_foreign_warnings_are_kept_and_not_printed(recwarn):
    import warnings

    def loud(x, out):
        warnings.warn("a library's own", stacklevel=1)
        double(x, out)

    runner = workbench.Runner(HOST)
    list(workbench.run(runner, workbench.requests([pair(triton=loud)], False)))
    assert any("a library's own" in text for text in runner.warnings)
    assert not recwarn.list


def test_precisions_of_a_shape_share_inputs_and_reference():
    asked = []

    def counted(arrays, shape, seed):
        asked.append(shape)
        return reference(arrays, shape, seed)

    both = pair(precisions=("ieee", "tf32"), reference=counted)
    both_sides = tuple(
        Implementation(f"{i.name} {p}", i.language, double, i.arrays, precision=p)
        for p in ("ieee", "tf32")
        for i in both.implementations
    )
    cases = run(pair(precisions=("ieee", "tf32"), reference=counted, implementations=both_sides))
    assert len(cases) == 2 and asked == [(3, 4)]


def row(name, ok=True, skipped=""):
    nan = float("nan")
    found = None if skipped else Accuracy(ok, nan, nan, nan, nan, (Check("c", ok),))
    agreement = Agreement("right", "identical", 1, 1, 0, 0.0)
    return Row(name, "triton", "triton", "ieee", skipped=skipped, accuracy=found,
               agreements=(agreement,) if name == "left" else ())  # fmt: skip


def test_verdicts_from_rows_alone():
    assert workbench.decide([row("left"), row("right")], "left", "right")[0] == "MATCH BIT FOR BIT"
    assert workbench.decide([row("left", ok=False), row("right")], "left", "right")[0] == "NO MATCH"
    missing = [row("left"), row("right", skipped="needs a card")]
    assert workbench.decide(missing, "left", "right") == ("", "needs a card")
    case = Case("p", (1,), "ieee", "random", 0, {}, tuple(missing), unstated="needs a card")
    assert workbench.exit_code([case]) == 1
