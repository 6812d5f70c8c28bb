"""The verdict, with answers worked out by hand."""

import math
import time

import numpy as np
import pytest

from compare.accuracy import agree, exact, judge
from compare.accuracy.elements import PIECE, bucket_counts, buckets, hex_bits, ulp_distance
from compare.pair import Bound, Reference

NAN, INF, U = float("nan"), float("inf"), 2.0**-24
FLT_MAX = float(np.finfo(np.float32).max)


def f32(*values):
    return np.array(values, np.float32)


def bound(allowed, name="error bound", **more):
    return Bound(name, np.asarray(allowed, np.float64), "formula", "source", **more)


def verdict(got, want, allowed, **more):
    want = np.asarray(want, np.float64)
    return judge(np.asarray(got, np.float32), Reference(want), [bound(allowed, **more)])


# -- bits and distances ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "one, other, distance",
    (
        (1.0, 1.0, 0),
        (1.0, 1.0 + 2.0**-23, 1),
        (1.0, 1.0 - 2.0**-24, 1),
        (2.0, 1.0, 2**23),
        (0.0, -0.0, 0),
        (2.0**-126, 0.0, 0),  # below the floor everything is zero
        (2.0**-149, -(2.0**-149), 0),
        (2.0**-126 + 2.0**-149, 0.0, 1),
        (2.0**-126 + 2.0**-149, -(2.0**-126) - 2.0**-149, 2),
        (-1.0, 1.0, 2 * (0x3F800000 - 0x00800000)),
        (FLT_MAX, -FLT_MAX, 2 * (0x7F7FFFFF - 0x00800000)),
    ),
)
def test_ulp_distance(one, other, distance):
    assert ulp_distance(f32(one), f32(other)) == distance == ulp_distance(f32(other), f32(one))


def test_buckets_are_powers_of_two():
    counts = bucket_counts(np.array([0, 0, 1, 2, 3, 4, 7, 8, 2**32], np.float64))
    named = {"0": 2, "1": 1, "2-3": 2, "4-7": 2, "8-15": 1, "4294967296-8589934591": 1}
    assert buckets(counts) == named


@pytest.mark.parametrize(
    "value, bits",
    ((1.0, "0x3f800000"), (-0.0, "0x80000000"), (INF, "0x7f800000"), (1e300, "0x7f800000")),
)
def test_hex_bits(value, bits):
    assert hex_bits(value) == bits


# -- the bound ------------------------------------------------------------------------------------


def test_a_result_at_its_bound_passes_and_one_beyond_fails():
    assert verdict([1.5, 2], [1, 2], [0.5, 0]).share == 1
    assert verdict([1.5, 2], [1, 2], [0.5, 0]).ok
    over = verdict([1.5, 2], [1, 2], [0.49, 0])
    assert not over.ok and over.fault_count == 1
    told = "1 of 2 elements beyond the bound, first at (0,): got 1.5, want 1, allowed 0.49"
    assert over.reasons == (f"error bound: {told}",)


def test_how_many_rows_are_right_is_told():
    """Also where an output is judged in several pieces, and where a row ends in the next one."""
    value = np.ones((3000, 100))
    got = value.astype(np.float32)
    got[::10, 1:] = 2
    (told,) = judge(got, Reference(value), [bound(value * 0.1)]).reasons
    assert "29,700 of 300,000 elements beyond the bound, 2,700 of 3,000 rows are right, " in told
    assert "no row is right, first" in judge(3 * got, Reference(value), [bound(value)]).reasons[0]
    assert "right" not in verdict([1.5, 2], [1, 2], [0.49, 0]).reasons[0]  # of one side only


def test_errors_are_as_they_are_defined():
    found = verdict([[3, 4], [0, -8]], [[3, 4.5], [0, -6]], np.ones((2, 2)))
    assert found.max_abs == 2 and found.error == 2 / 6
    assert found.frobenius == math.sqrt(0.25 + 4) / math.sqrt(9 + 20.25 + 36)
    assert found.share == 2 and not found.ok and found.covered == 4


def test_nothing_allowed_and_nothing_off_is_right():
    assert verdict([0, 5], [0, 5], [0, 0]).share == 0
    off = verdict([0, 5], [1e-30, 5], [0, 0])
    assert not off.ok and off.share == INF


def test_the_worst_element_stands_with_bits_and_counterpart():
    reference = Reference(np.array([[1.0, 2.0], [3.0, 4.0]]))
    got, other = f32(1, 2.5, 3, 4.5).reshape(2, 2), f32(1, 2, 3, 7).reshape(2, 2)
    found = judge(got, reference, [bound([[1, 1], [1, 0.25]])], counterpart=other)
    worst = found.worst
    assert (worst.index, worst.got, worst.want, worst.allowed) == ((1, 1), 4.5, 4.0, 0.25)
    assert (worst.got_bits, worst.want_bits) == ("0x40900000", "0x40800000")
    assert (worst.counterpart, worst.counterpart_bits) == (7.0, "0x40e00000")


def test_the_first_five_faults_are_kept_and_all_are_counted():
    got = np.zeros(3 * PIECE, np.float32)
    wrong = [7, PIECE - 1, PIECE, 2 * PIECE, 2 * PIECE + 1, 3 * PIECE - 1]
    got[wrong] = 1
    found = verdict(got, np.zeros(got.size), 0.5)
    assert found.fault_count == 6 and [fault.index[0] for fault in found.faults] == wrong[:5]


def test_the_tightest_of_several_bounds_decides():
    reference = Reference(np.array([1.0, 1.0]))
    loose, tight = bound([1, 1], "loose"), bound([0.1, 0.1], "tight")
    found = judge(f32(1.2, 1), reference, [loose, tight])
    assert not found.ok and [c.passed for c in found.checks] == [True, True, False]
    assert found.share == pytest.approx(2) and found.worst.allowed == 0.1
    assert found.reasons[0].startswith("tight: ")


def test_a_bound_that_informs_is_told_and_decides_nothing():
    reference = Reference(np.array([1.0]))
    found = judge(f32(1.2), reference, [bound([1]), bound([0.1], "rule", gates=False)])
    assert found.ok and found.share == pytest.approx(0.2) and not found.reasons
    assert not found.checks[-1].passed and found.fault_count == 0
    two = [bound([1, 0.1]), bound([0.01, 9], "rule", gates=False)]
    assert judge(f32(1.2, 1.05), Reference(np.ones(2)), two).worst.index == (1,)


def test_a_bound_that_is_no_number_allows_nothing():
    assert not verdict([1, 2], [1.5, 2], [NAN, NAN]).ok
    assert verdict([1, 2], [1, 2], [NAN, NAN]).ok


def test_empty_outputs_are_right():
    found = verdict(np.zeros((0, 5)), np.zeros((0, 5)), np.zeros((0, 5)))
    assert found.ok and (found.error, found.share, found.covered, found.ulp) == (0, 0, 0, {})
    sums = Reference(np.zeros((0, 5)), row_sums=np.zeros(0))
    assert judge(np.zeros((0, 5), np.float32), sums, [bound(np.zeros((0, 5)))]).ok


@pytest.mark.parametrize(
    "got, told",
    (
        (np.zeros((2, 3)), "the output is float64 2x3; float32 2x3 was asked for"),
        (np.zeros((2, 3), np.float16), "the output is float16 2x3; float32 2x3 was asked for"),
        (np.zeros((3, 2), np.float32), "the output is float32 3x2; float32 2x3 was asked for"),
        (np.zeros(6, np.float32), "the output is float32 6; float32 2x3 was asked for"),
    ),
)
def test_another_dtype_or_shape_is_no_result(got, told):
    found = judge(got, Reference(np.zeros((2, 3))), [bound(np.ones((2, 3)))])
    assert not found.ok and found.reasons == (told,) and found.checks[0].name == "shape and dtype"


def test_a_partial_reference_sees_its_rows_and_columns():
    index = np.array([1, 4]), np.array([0, 2, 5])
    whole = np.arange(36, dtype=np.float32).reshape(6, 6)
    reference = Reference(whole[np.ix_(*index)].astype(np.float64), index=index)
    allowed = [bound(np.full((2, 3), 0.1))]
    wrong = whole.copy()
    wrong[4, 5] += 1
    assert judge(whole, reference, allowed).covered == 6
    assert judge(whole, reference, allowed).ok and not judge(wrong, reference, allowed).ok
    assert judge(wrong[:4], reference, allowed).reasons == ("the output has only 4x6 elements",)


# -- NaN and infinities ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "got, want, ok",
    (
        ([NAN, 1], [NAN, 1], True),
        ([NAN, 1], [0, 1], False),
        ([0, 1], [NAN, 1], False),
        ([INF, 1], [INF, 1], True),
        ([-INF, 1], [INF, 1], False),
        ([INF, 1], [NAN, 1], False),
        ([NAN, 1], [INF, 1], False),
        ([INF, 1], [5, 1], False),
        ([5, 1], [INF, 1], False),
        ([INF, 1], [1e39, 1], True),  # what float32 makes of 1e39
    ),
)
def test_nan_and_infinities_are_compared_as_positions(got, want, ok):
    found = verdict(got, want, [1.0, 1.0])
    assert found.ok is ok and found.checks[0].name == "NaN and infinity"
    assert found.checks[0].passed is ok and found.fault_count == (0 if ok else 1)
    assert math.isinf(found.max_abs) is not ok and not math.isnan(found.error)
    if not ok:
        assert found.reasons[0].startswith("NaN and infinity: 1 of 2 elements where the reference")


def test_nan_that_belong_are_counted_and_leave_the_rest_its_error():
    found = verdict([NAN, NAN, INF, 2], [NAN, NAN, INF, 1], np.full(4, 4.0))
    assert found.specials == {"nan": 2, "inf": 1} and found.share == 0.25
    assert found.error == 1 and found.max_abs == 1 and found.ulp == {"8388608-16777215": 1}


@pytest.mark.parametrize("at", (0, PIECE - 1, PIECE, 2 * PIECE + 17))
def test_one_nan_among_many_is_found(at):
    got = np.ones(3 * PIECE, np.float32)
    got[at] = NAN
    found = verdict(got, np.ones(got.size), 100.0)
    assert not found.ok and found.fault_count == 1 and found.faults[0].index == (at,)
    assert found.worst.index == (at,) and found.worst.got_bits == "0x7fc00000"


def test_nan_fails_a_bound_that_informs_too():
    reference = Reference(np.array([1.0, 2.0]))
    checks = judge(f32(NAN, 2), reference, [bound([9, 9], "rule", gates=False)]).checks
    assert [check.passed for check in checks] == [False, False]


@pytest.mark.parametrize(
    "got, ok", ((INF, True), (-INF, True), (NAN, True), (3e38, True), (1, False))
)
def test_where_the_order_decides_only_a_wrong_finite_number_fails(got, ok):
    allowed = bound([1e37, 1], undecided=np.array([True, False]))
    found = judge(f32(got, 1), Reference(np.array([3e38, 1.0])), [allowed])
    assert found.ok is ok
    kind = "nan" if math.isnan(got) else "inf"
    assert found.specials == ({} if math.isfinite(got) else {f"undecided {kind}": 1})
    assert not judge(f32(1, NAN), Reference(np.array([1.0, 1.0])), [allowed]).ok
    beside = bound([1e37, 1], undecided=np.array([True, True]))
    assert judge(f32(got, NAN), Reference(np.array([3e38, 1.0])), [beside]).ok is ok


# -- row sums -------------------------------------------------------------------------------------


def test_row_sums_catch_what_no_element_shows():
    value = np.full((3, 1000), 1e-3)
    reference = Reference(value, row_sums=np.ones(3))
    got = value.astype(np.float32)
    got[1] *= 1 + 9e-5
    names = [c.name for c in judge(got, reference, [bound(value * 1e-4)]).checks if not c.passed]
    assert names == []
    tight = [bound(np.where(np.arange(1000) % 2, 1e-7, 1e-8) * np.ones((3, 1)))]
    found = judge(got, reference, tight)
    assert [c.name for c in found.checks if not c.passed] == ["error bound", "row sums"]
    told = next(reason for reason in found.reasons if reason.startswith("row sums"))
    assert told.startswith("row sums: 1 of 3 rows, the worst is row 1, too large by 9e-05")
    got[1] = value[1] * (1 - 9e-5)
    told = judge(got, reference, tight).reasons[-1]
    assert told.startswith("row sums: 1 of 3 rows, the worst is row 1, too small by 9.01e-05")
    got[1, 3] = NAN
    assert "the worst is row 1, NaN, allowed" in judge(got, reference, tight).reasons[-1]


def test_a_row_of_nan_has_no_sum():
    value = np.array([[NAN, NAN], [0.5, 0.5]])
    reference = Reference(value, row_sums=np.array([NAN, 1.0]))
    allowed = [bound(np.full((2, 2), 1e-6))]
    assert judge(value.astype(np.float32), reference, allowed).ok
    wrong = f32(NAN, NAN, NAN, 0.5).reshape(2, 2)
    failed = [c.name for c in judge(wrong, reference, allowed).checks if not c.passed]
    assert failed == ["NaN and infinity", "error bound", "row sums"]


# -- two outputs ----------------------------------------------------------------------------------


def together(got, other, want, allowed=0.1, **more):
    reference, side = Reference(np.asarray(want, np.float64)), [bound(np.full(len(want), allowed))]
    if more:
        side = [bound(np.full(len(want), allowed), **more)]
    return agree(
        "other", np.asarray(got, np.float32), np.asarray(other, np.float32), reference, side, side
    )


def test_identical_is_every_bit():
    found = together([1, NAN, INF], [1, -NAN, INF], [1, NAN, INF])
    assert (found.verdict, found.equal, found.total, found.share) == ("identical", 3, 3, 0)
    zeros = together([0.0], [-0.0], [0])
    assert (zeros.verdict, zeros.equal, zeros.max_ulp) == ("within tolerance", 0, 0)


def test_within_tolerance_is_the_sum_of_both_bounds():
    found = together([1, 1.125], [1, 0.875], [1, 1], allowed=0.125)
    assert (found.verdict, found.share, found.equal) == ("within tolerance", 1, 1)
    assert found.first.index == (1,) and (found.first.got, found.first.want) == (1.125, 0.875)
    assert together([1, 1.126], [1, 0.875], [1, 1], allowed=0.125).verdict == "differ"


@pytest.mark.parametrize("got, other", ((NAN, 1), (1, INF), (INF, -INF), (NAN, INF)))
def test_nan_against_anything_else_differs(got, other):
    assert together([got], [other], [1]).verdict == "differ"
    open_ = together([got], [other], [1], undecided=np.array([True]))
    assert open_.verdict == "within tolerance"


def test_an_agreement_says_how_far_apart():
    found = together([1, 1 + 3 * 2.0**-23], [1, 1], [1, 1])
    assert (found.max_ulp, found.equal, found.total) == (3, 1, 2)
    assert found.first.got_bits == "0x3f800003" and found.first.want_bits == "0x3f800000"


def test_bits_are_compared_everywhere_and_bounds_where_the_reference_is():
    index = np.array([0]), np.array([0])
    reference = Reference(np.ones((1, 1)), index=index)
    got, other = np.ones((2, 2), np.float32), np.ones((2, 2), np.float32)
    other[1, 1] = 9
    found = agree("other", got, other, reference, [bound([[1]])], [bound([[1]])])
    assert (found.verdict, found.equal, found.total) == ("within tolerance", 3, 4)


def test_without_a_bound_only_identical_is_agreement():
    reference = Reference(np.ones(1))
    assert agree("other", f32(1), f32(2), reference, [], [bound([9])]).verdict == "differ"


# -- exact answers --------------------------------------------------------------------------------


def test_an_exact_answer_has_no_tolerance():
    want = f32(1, 0, 3)
    assert exact(f32(1, -0.0, 3), want, "probe").passed  # the sign of a zero is the order's
    for wrong in (f32(1, 2.0**-149, 3), f32(1, 0, NAN), f32(1, 0, INF), f32(1, 0, 3 + 2.0**-22)):
        check = exact(wrong, want, "probe")
        assert not check.passed and check.share == INF and check.name == "probe"
    assert check.reason == "1 of 3 elements, first at (2,): got 3.00000024, want 3"
    assert "float32 3 was asked for" in exact(np.ones(3), want, "probe").reason
    assert not exact(f32(1, 0), want, "probe").passed


def test_four_million_elements_take_a_fraction_of_a_second():
    value = np.linspace(-1, 1, 2048 * 2048).reshape(2048, 2048)
    got, bounds = value.astype(np.float32), [bound(np.full(value.shape, 1e-6))] * 3
    seconds = []
    for _ in range(3):
        started = time.process_time()
        assert judge(got, Reference(value), bounds).ok
        seconds.append(time.process_time() - started)
    assert min(seconds) < 2  # 0.07 s where nothing else runs
