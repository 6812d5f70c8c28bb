"""Fences, poison, unchanged inputs, split rows: a rule that is broken is found."""

import numpy as np
import pytest

from compare.device import FENCE, Bench, Broken, stream
from compare.machine import Machine, Seen
from compare.pair import Implementation

HOST = Machine("host", Seen())
X = np.arange(12, dtype=np.float32).reshape(3, 4)


def bench():
    return Bench(HOST, {"x": X}, (3, 4))


def made(function, **more):
    return Implementation("made", "triton", function, **more)


def double(x, out):
    out[:] = 2 * x


def test_a_right_launcher_gives_its_output():
    assert np.array_equal(bench().run(made(double)), 2 * X)


def test_both_kinds_of_array_are_the_same_memory():
    one = bench()
    (tensor, _), (array, _) = one.arguments("torch"), one.arguments("cupy")
    assert isinstance(array, np.ndarray)
    assert tensor.data_ptr() == array.ctypes.data
    assert array.ctypes.data % 256 == 0 and FENCE % 256 == 0


def test_what_is_not_written_is_told():
    def part(x, out):
        out[:2] = x[:2]

    with pytest.raises(Broken, match="4 of 12 elements were never written"):
        bench().run(made(part))


def test_the_output_of_the_run_before_does_not_help():
    one = bench()
    one.run(made(double))
    with pytest.raises(Broken, match="12 of 12"):
        one.run(made(lambda x, out: None))


@pytest.mark.parametrize("name, at", (("x", -1), ("x", 12), ("output", -1), ("output", 12)))
def test_a_write_outside_is_found(name, at):
    one = bench()
    buffer = one.output if name == "output" else one.inputs[name]

    def outside(x, out):
        double(x, out)
        buffer.words[FENCE // 4 + at] = 0

    with pytest.raises(Broken, match=f"the fence around {name}"):
        one.run(made(outside))


def test_a_changed_input_is_found_and_mended():
    def spoil(x, out):
        double(x, out)
        x[1, 1] = 7

    one = bench()
    with pytest.raises(Broken, match="changed its input x"):
        one.run(made(spoil))
    assert np.array_equal(one.run(made(double)), 2 * X)


def test_what_one_spoiled_is_not_the_nexts():
    one = bench()

    def wild(x, out):
        double(x, out)
        one.output.words[FENCE // 4 - 1] = 0

    def changes_and_fails(x, out):
        x[0, 0] = 9
        raise RuntimeError("half way")

    for bad in (wild, changes_and_fails):
        with pytest.raises(Broken):
            one.run(made(bad))
        assert np.array_equal(one.run(made(double)), 2 * X)


def test_one_fences_nan_does_not_mend_another():
    """An off-by-one kernel carries the input's fence into the output's."""
    one = bench()

    def one_too_far(x, out):
        double(x, out)
        at = FENCE // 4 + 12
        one.output.words[at] = one.inputs["x"].words[at]

    with pytest.raises(Broken, match="the fence around output"):
        one.run(made(one_too_far))


def test_an_exception_becomes_one_sentence():
    def fail(x, out):
        raise TypeError("this is\nlong")

    with pytest.raises(Broken, match=r"^TypeError: this is$"):
        bench().run(made(fail))


@pytest.mark.parametrize("rows", (0, 1, 63, 64, 65, 200, 512))
def test_split_rows_give_every_row(rows):
    x = np.random.default_rng(0).standard_normal((rows, 5), np.float32)
    whole = np.ones((2, 2), np.float32)
    one = Bench(HOST, {"x": x, "w": whole}, (rows, 5))

    def scaled(x, w, out):
        out[:] = x * w.sum()

    assert np.array_equal(one.run(made(scaled, split=("x",)), processes=3), 4 * x)


def test_an_error_in_one_part_is_told():
    def fails_late(x, out):
        if x[0, 0] > 100:
            raise ValueError("late rows")
        out[:] = x

    x = np.arange(400, dtype=np.float32).reshape(200, 2)
    with pytest.raises(Broken, match="late rows"):
        Bench(HOST, {"x": x}, (200, 2)).run(made(fails_late, split=("x",)), processes=2)


def test_a_host_has_no_stream_to_enter():
    with stream(HOST):
        pass
