"""What the two pairs say of themselves: right answers, bounds, probes, names."""

import math
from dataclasses import replace

import numpy as np
import pytest

from compare.accuracy import exact, judge
from compare.pair import Implementation
from compare.pairs import matmul, matmul_probes, softmax
from compare.pairs.common import FAMILIES
from compare.selftest.correct import IEEE, in_turn, rounded_to_tf32

NAN, INF, U = float("nan"), float("inf"), 2.0**-24
FLT_MAX = np.float32(np.finfo(np.float32).max)
PAIRS = (softmax.PAIR, matmul.PAIR)
PLAIN = Implementation("plain", "cuda", "none:none")
TF32 = replace(PLAIN, precision="tf32", facts={"d": matmul.TRUNCATED})


def f32(*values):
    return np.array(values, np.float32)


def products(a, b, data="", implementation=PLAIN):
    """The reference of a matmul and its bounds."""
    a, b = np.asarray(a, np.float32), np.asarray(b, np.float32)
    shape = (a.shape[0], b.shape[1], a.shape[1])
    reference = matmul.reference({"a": a, "b": b}, shape, 1)
    return reference, matmul.bounds(reference, implementation, data, shape)


def softmaxes(x, facts=None):
    x = np.asarray(x, np.float32)
    reference = softmax.reference({"x": x}, x.shape, 1)
    return reference, softmax.bounds(reference, replace(PLAIN, facts=facts or {}), "", x.shape)


# -- what a pair declares -------------------------------------------------------------------------


@pytest.mark.parametrize("pair", PAIRS)
def test_names_are_unique_and_counterparts_exist(pair):
    for precision in pair.precisions:
        mine = [i for i in pair.implementations if i.precision == precision]
        names = {i.name for i in mine}
        assert len(names) == len(mine)
        assert all(set(i.counterparts) <= names for i in mine)
    assert all(not callable(i.entry) for i in pair.implementations)  # imported when it runs


@pytest.mark.parametrize("pair", PAIRS)
def test_shapes_are_checked_with_one_sentence(pair):
    for on_card in (False, True):
        for shape in pair.shapes(on_card):
            pair.check_shape(shape)
    for wrong in ((), (3,), (1, 2, 3, 4), (-1,) * len(pair.dims)):
        with pytest.raises(ValueError, match=f"{pair.name} wants"):
            pair.check_shape(wrong)


def test_a_row_needs_a_column_and_a_product_nothing():
    with pytest.raises(ValueError, match="a row without columns has no softmax"):
        softmax.check_shape((3, 0))
    softmax.check_shape((0, 3))
    matmul.check_shape((0, 0, 0))


def test_costs_are_the_least():
    least = softmax.cost((3, 5))
    assert (least.read, least.written, least.flops) == (60, 60, 75)
    least = matmul.cost((2, 3, 5))
    assert (least.read, least.written, least.flops) == (4 * (10 + 15), 24, 60)


def test_configs_are_those_of_the_launcher():
    from triton_impl.matmul import CONFIGS

    assert tuple(tuple(config) for config in CONFIGS) == matmul.CONFIGS


# -- softmax --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "row, want",
    (
        ([0, 1, 2], [0.09003057, 0.24472848, 0.66524094]),
        ([5, 5, 5, 5], [0.25] * 4),
        ([7], [1]),
        ([1e30, 1e30, -1e30], [0.5, 0.5, 0]),
        ([FLT_MAX, -FLT_MAX], [1, 0]),
        ([0, -INF], [1, 0]),
        ([-INF, -INF], [NAN, NAN]),
        ([0, INF], [NAN, NAN]),
        ([0, NAN, -INF], [NAN, NAN, NAN]),
    ),
)
def test_softmax_reference(row, want):
    reference, _ = softmaxes([row])
    np.testing.assert_allclose(reference.value[0], want, rtol=1e-7)
    assert np.isnan(reference.row_sums[0]) == np.isnan(want[0])


def test_softmax_bound_is_its_formula():
    x = f32(0, math.log(3), -2)[None]
    reference, (bound, _) = softmaxes(x, {"c_e": 2, "c_t": 1, "sum_depth": lambda n: 2})
    t = np.abs(x[0].astype(np.float64) - float(x[0, 1]))
    weight = (reference.value[0] * t).sum()
    formula = U * (2 * 2 + 1 * (t + weight) + 2 + 5) * reference.value[0] + 2.0**-126
    np.testing.assert_allclose(bound.allowed[0], formula, rtol=1e-4)
    assert np.all(bound.allowed[0] >= formula) and bound.gates


def test_what_is_not_declared_is_taken_at_its_worst():
    assert softmax.declared_depth(PLAIN, 1000) == 1000
    mine = next(i for i in softmax.PAIR.implementations if i.name == "softmax")
    few = replace(mine, options={"num_warps": 1})
    assert softmax.declared_depth(mine, 1024) < softmax.declared_depth(few, 1024) <= 1024
    assert all(softmax.declared_depth(i, 1) == 1 for i in softmax.PAIR.implementations)


@pytest.mark.parametrize("cols", (1, 2, 255, 256, 257, 1024, 32768, 32769, 10**6))
def test_declared_depths_are_between_a_tree_and_a_chain(cols):
    for implementation in softmax.PAIR.implementations:
        depth = softmax.declared_depth(implementation, cols)
        assert math.log2(cols) <= depth <= max(cols, 1)


def test_a_million_columns_may_sum_to_a_little_off_one():
    x = np.zeros((1, 10**6), np.float32)
    reference, bounds = softmaxes(x)
    total = np.float32(0)
    got = np.full(x.shape, np.float32(1e-6) * np.float32(1 - 4e-5))
    assert judge(got, reference, bounds).ok and total == 0
    assert not judge(got, *softmaxes(x, {"sum_depth": lambda n: 30})).ok


def test_a_bound_that_is_no_use_still_rejects_nothing_right():
    reference, _ = softmaxes([[0, -1, -INF]])
    loose = softmax.bounds(reference, replace(PLAIN, facts={"c_e": 2**24}), "", (1, 3))
    assert judge(f32(0.7310586, 0.2689414, 2.0**-130)[None], reference, loose).ok
    deep = softmax.bounds(
        reference, replace(PLAIN, facts={"sum_depth": lambda n: 2**24}), "", (1, 3)
    )
    assert deep[0].allowed[0, 0] < 1e-5  # no more than COLS additions, whatever is declared


def test_probability_below_the_smallest_normal_may_be_flushed():
    reference, bounds = softmaxes([[0, -90, -104]])
    assert 0 < reference.value[0, 2] < reference.value[0, 1] < 2.0**-126
    assert judge(f32(1, 0, 0)[None], reference, bounds).ok
    assert not judge(f32(1, 3e-38, 0)[None], reference, bounds).ok


# -- matmul ---------------------------------------------------------------------------------------


def test_matmul_reference_and_its_scales():
    a, b = [[1, -2, 3], [0, 4, -5]], [[1, 2], [-3, 4], [5, -6]]
    reference, _ = products(a, b)
    assert reference.value.tolist() == [[22, -24], [-37, 46]]
    assert reference.scales["size"].tolist() == [[22, 28], [37, 46]]
    assert reference.scales["root"].tolist() == [
        [math.sqrt(1 + 36 + 225), math.sqrt(4 + 64 + 324)],
        [math.sqrt(144 + 625), math.sqrt(256 + 900)],
    ]
    assert reference.scales["edges"].tolist() == [[6 + 9, 6 + 12], [9 + 9, 9 + 12]]


@pytest.mark.parametrize(
    "k, d, g",
    (
        (0, 0, 0),
        (1, 0, U),
        (1024, 0, 1024 * U / (1 - 1024 * U)),
        (2**24, 0, math.e - 1),
        (1, 2.0**-11, 2.0**-10 + 2.0**-22 + (1 + 2.0**-11) ** 2 * 4 * U),
        (1024, 2.0**-10, 2.0**-9 + 2.0**-20 + (1 + 2.0**-10) ** 2 * 4096 * U / (1 - 4096 * U)),
    ),
)
def test_growth_is_the_theorem_and_never_above_its_usual_form(k, d, g):
    assert matmul.growth(k, d) == pytest.approx(g, rel=2e-4)
    if 4 * k * U < 1:
        assert matmul.growth(k, d) <= g * (1 + 1e-8)


def test_matmul_bounds_are_their_formulas():
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((3, 100)), rng.standard_normal((100, 2))
    reference, (theorem, random, rule) = products(a, b, "random")
    size, root = reference.scales["size"], reference.scales["root"]
    np.testing.assert_allclose(theorem.allowed, 100 * U * size, rtol=1e-5)
    np.testing.assert_allclose(random.allowed, 40 * U * (abs(reference.value) + root), rtol=1e-12)
    rtol = max(1e-5, 4 * 2.0**-23 * 10)
    np.testing.assert_allclose(
        rule.allowed, rtol * (abs(reference.value).max() + abs(reference.value)), rtol=1e-12
    )
    assert theorem.gates and random.gates and not rule.gates
    _, (_, random, rule) = products(a, b, "random", TF32)
    d, sums = 2.0**-10, 25 * U
    allowed = d * (2 * abs(reference.value) + 4 * root) + sums * (abs(reference.value) + root)
    np.testing.assert_allclose(random.allowed, allowed, rtol=1e-12)
    assert "0.0391" in rule.formula  # 4 * 2^-10 * sqrt(100)


@pytest.mark.parametrize("data", [data for data in FAMILIES if data != "random"])
def test_the_statistical_bound_is_for_random_data_alone(data):
    _, bounds = products([[1.0]], [[1.0]], data)
    assert [bound.name for bound in bounds] == ["error bound", "scaled tolerance"]


def test_no_terms_leave_nothing_to_allow():
    reference, bounds = products(np.zeros((2, 0)), np.zeros((0, 3)), "random")
    assert judge(np.zeros((2, 3), np.float32), reference, bounds).ok
    assert not judge(np.full((2, 3), np.float32(2.0**-149)), reference, bounds).ok
    assert not judge(np.full((2, 3), np.float32(NAN)), reference, bounds).ok


@pytest.mark.parametrize("shape", ((0, 3, 5), (3, 0, 5), (0, 0, 0)))
@pytest.mark.parametrize("implementation", (PLAIN, TF32))
def test_empty_products_are_right(shape, implementation):
    arrays = matmul.inputs(shape, "random", 1)
    reference = matmul.reference(arrays, shape, 1)
    bounds = matmul.bounds(reference, implementation, "random", shape)
    assert judge(np.zeros(shape[:2], np.float32), reference, bounds).ok


def test_a_sum_that_rounds_the_same_way_every_time_is_inside_the_theorem_only():
    a, b = np.full((1, 20_000), np.float32(0.1)), np.full((20_000, 1), np.float32(0.7))
    got = in_turn(a, b)
    assert judge(got, *products(a, b, "equal")).ok
    assert not judge(got, *products(a, b, "random")).ok


def test_the_worst_operands_of_tf32_are_inside_the_theorem():
    worst = np.full((1, 64), np.float32(1 + 2.0**-10 - 2.0**-23))  # cutting loses nearly 2^-10
    got = in_turn(worst * 0 + 1, worst.T * 0 + 1)
    reference, bounds = products(worst, worst.T, "positive", TF32)
    assert 0.9 < judge(got, reference, bounds).share < 1
    assert not judge(got, *products(worst, worst.T, "positive")).ok


def test_small_operands_products_and_sums_may_be_flushed():
    a, b = f32(2.0**-127, 2.0**-60)[None], f32(2.0**120, 2.0**-80)[:, None]
    for got in (f32(2.0**-7), f32(0)):  # an operand of 2^-127 may count as 0, whatever it meets
        assert judge(got[None], *products(a, b)).ok
    assert not judge(f32(2.0**-5)[None], *products(a, b)).ok


def test_overflow_is_decided_by_the_order():
    a, b = f32(2.0**100, 2.0**100, -(2.0**100))[None], f32(2.0**27, 2.0**27, 2.0**27)[:, None]
    reference, bounds = products(a, b)
    assert reference.value == 2.0**127 and bounds[0].undecided.all()
    for got in (2.0**127, INF, NAN, -INF):
        assert judge(f32(got)[None], reference, bounds).ok
    assert not judge(f32(0)[None], reference, bounds).ok  # a finite sum has not overflowed anywhere
    small, decided = products(a / 4, b)
    assert decided[0].undecided is None and not judge(f32(INF)[None], small, decided).ok


@pytest.mark.parametrize(
    "a, b, want",
    (
        ([INF, 1], [2, 3], INF),
        ([INF, 1], [-2, 3], -INF),
        ([INF, 1], [0, 3], NAN),
        ([INF, -INF], [2, 3], NAN),
        ([NAN, 1], [0, 3], NAN),
        ([-INF, FLT_MAX / 2], [1, -1], -INF),
    ),
)
def test_infinite_operands_have_one_answer(a, b, want):
    reference, bounds = products([a], np.reshape(b, (2, 1)))
    np.testing.assert_equal(reference.value[0, 0], want)
    assert judge(f32(want)[None], reference, bounds).ok
    for wrong in {INF, -INF, NAN, 0.0} - {want}:
        if not (math.isnan(want) and math.isnan(wrong)):
            assert not judge(f32(wrong)[None], reference, bounds).ok


def test_an_infinity_that_meets_a_subnormal_may_become_nan():
    reference, bounds = products([[INF, 1]], [[2.0**-130], [1]])
    for got in (INF, NAN):
        assert judge(f32(got)[None], reference, bounds).ok
    assert not judge(f32(5)[None], reference, bounds).ok


def test_rounding_to_tf32_may_overflow_and_cutting_may_not_stop_it():
    a, b = FLT_MAX * np.ones((1, 1), np.float32), np.full((1, 1), np.float32(2.0**-100))
    assert np.isinf(rounded_to_tf32(a)) and rounded_to_tf32(f32(NAN, INF))[1] == INF
    for got in (INF, FLT_MAX * 2.0**-100):
        assert judge(f32(got)[None], *products(a, b, implementation=TF32)).ok
    assert not judge(f32(INF)[None], *products(a, b)).ok


def test_above_the_limit_the_reference_covers_a_sample(monkeypatch):
    monkeypatch.setattr(matmul, "WHOLE", 1e6)
    shape = (300, 280, 64)
    arrays = matmul.inputs(shape, "random", 1)
    reference = matmul.reference(arrays, shape, 1)
    assert reference.value.shape == (256, 256) and len(set(reference.index[0])) == 256
    got = arrays["a"] @ arrays["b"]
    bounds = matmul.bounds(reference, PLAIN, "random", shape)
    assert judge(got, reference, bounds).covered == 256 * 256
    assert judge(got, reference, bounds).ok
    got[reference.index[0][5], reference.index[1][9]] += 0.1
    assert not judge(got, reference, bounds).ok


# -- probes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", (2e11, 1))  # above it, one factor is an outer product
@pytest.mark.parametrize("precision", ("ieee", "tf32", "bf16x3"))
@pytest.mark.parametrize("shape", ((1, 1, 1), (3, 5, 7), (67, 41, 131), (2, 3, 20_000)))
def test_matmul_probes_never_round(shape, precision, limit, monkeypatch):
    monkeypatch.setattr(matmul_probes, "WHOLE", limit)
    probes = matmul_probes.probes(shape, precision, 1)
    assert [probe.name for probe in probes] == ["cover", "width a", "width b"]
    for probe in probes:
        a, b = (probe.inputs[name].astype(np.float64) for name in "ab")
        assert (np.abs(a) @ np.abs(b)).max() <= 2**24  # every partial sum is a float32 integer
        assert np.array_equal(a @ b, probe.want.astype(np.float64))
        assert probe.want.dtype == probe.inputs["a"].dtype == np.float32
        both = np.concatenate([a.ravel(), b.ravel()])
        if precision == "tf32":
            assert np.array_equal(both, rounded_to_tf32(both.astype(np.float32)))
    cover, a, b = probes
    assert all(np.abs(array).min() >= 1 for array in cover.inputs.values())
    if precision == "bf16x3":  # the product of what bf16 loses of a and of b is dropped
        for probe in probes:
            a_lost, b_lost = (array - in_bf16(array) for array in probe.inputs.values())
            assert not (np.abs(a_lost) @ np.abs(b_lost)).any()
    for probe, side in ((a, "a"), (b, "b")):
        wide = np.abs(probe.inputs[side]) / (2.0**20 if precision == "tf32" else 1)
        bits = 11 if precision == "tf32" else 12
        assert np.all(wide % 2 == 1) and wide.min() > 2 ** (bits - 1) and wide.max() < 2**bits


def in_bf16(array):
    """Rounded to nearest even: 8 bits of significand are kept."""
    bits = array.view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)


def test_probes_of_nothing_are_none():
    assert matmul_probes.probes((0, 2, 3), "ieee", 1) == ()
    assert matmul_probes.probes((2, 3, 0), "ieee", 1) == ()
    assert softmax.probes((0, 5), "ieee", 1) == ()


@pytest.mark.parametrize("add", list(IEEE.values()), ids=list(IEEE))
def test_every_order_gives_the_probes_answers(add):
    for probe in matmul_probes.probes((33, 20, 300), "ieee", 1):
        assert exact(add(probe.inputs["a"], probe.inputs["b"]), probe.want, probe.name).passed


@pytest.mark.parametrize("shape", ((1, 1), (1, 7), (2, 3), (40, 1000), (64, 1024)))
def test_softmax_probe_is_exact_and_reaches_every_column(shape):
    (probe,) = softmax.probes(shape, "ieee", 1)
    x = probe.inputs["x"]
    e = np.exp(x - x.max(axis=1, keepdims=True))
    assert np.array_equal(e / e.sum(axis=1, keepdims=True), probe.want)
    assert probe.want.dtype == np.float32 and np.all(probe.want.sum(axis=1) == 1)
    assert set(np.unique(e)) <= {0, 1} and probe.want[0, -1] > 0
    if shape[0] > 10:
        assert np.all((probe.want > 0).any(axis=0)) and len(np.unique(probe.want[:, 0])) > 2
        assert np.isinf(x).any() and (x < -900).any()
        assert (probe.want == 1).any()  # a row with one number of its own


# -- gates ----------------------------------------------------------------------------------------


def case_of(precision, error, us, **more):
    from compare.results import Accuracy, Case, Row, Sample, Timing

    sample = Sample(us, us, us, us, 60)
    row = Row(
        f"matmul {precision}",
        "triton",
        "triton",
        precision,
        accuracy=Accuracy(True, error, error, error, 0.1),
        timing=Timing(cold=sample),
        output="bits",
    )
    facts = {"shape": (64, 64, 64), "data": "random", **more}
    return Case(
        "matmul", precision=precision, seed=1, inputs={}, rows=(row,), triton=row.name, **facts
    )


@pytest.mark.parametrize(
    "tf32, ieee, more, failed",
    (
        ((1e-3, 5.0), (1e-6, 9.0), {}, []),
        ((1e-6, 5.0), (1e-6, 9.0), {}, ["did not lose accuracy"]),
        ((1e-3, 9.5), (1e-6, 9.0), {}, ["the tensor cores were not used"]),
        ((NAN, 5.0), (1e-6, 9.0), {}, ["did not lose accuracy"]),
        ((1e-6, 9.5), (1e-6, 9.0), {"data": "positive"}, []),
        ((1e-6, 9.5), (1e-6, 9.0), {"shape": (64, 64, 63)}, []),
    ),
)
def test_gates_of_matmul(tf32, ieee, more, failed):
    cases = [case_of("ieee", *ieee, **more), case_of("tf32", *tf32, **more)]
    found = matmul.gates(cases)
    assert all(case is cases[1] for case, _ in found) and len(found) == len(failed)
    assert all(part in sentence for part, (_, sentence) in zip(failed, found, strict=True))
