"""No false alarm and no fault let through, over drawn shapes, strides, data and orders of adding.

`COMPARE_DRAWS` and `COMPARE_KERNEL_DRAWS` set how many examples the two kinds of test draw.
"""

import os

import numpy as np
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from compare.accuracy import agree, exact, judge
from compare.pair import Bound, Implementation, Reference
from compare.pairs import matmul as matmul_pair
from compare.pairs import matmul_probes
from compare.pairs import softmax as softmax_pair
from compare.pairs.common import FAMILIES
from compare.selftest.correct import away, base_two, cut, cut_to_float32, flush, rounded_to_tf32
from triton_impl.matmul import Config, matmul
from triton_impl.softmax import softmax

DRAWS = int(os.environ.get("COMPARE_DRAWS", "500"))
KERNEL_DRAWS = int(os.environ.get("COMPARE_KERNEL_DRAWS", "50"))
QUIET = {
    "deadline": None,
    "derandomize": "COMPARE_DRAWS" not in os.environ,
    "suppress_health_check": list(HealthCheck),
    "database": None,
}
drawn = settings(max_examples=DRAWS, **QUIET)
drawn_kernels = settings(max_examples=KERNEL_DRAWS, **QUIET)

SPECIAL = np.array(
    [0, -0.0, 2.0**-149, -(2.0**-127), 2.0**-126, 1, -1, 1 + 2.0**-23, 1 + 2.0**-11, 1e-20, 3e18,
     1e30, 3.4028235e38, -3.4028235e38, np.inf, -np.inf, np.nan],
    np.float32,
)  # fmt: skip


@st.composite
def numbers(draw, rows, cols):
    """float32 of a drawn scale, some of them replaced by numbers that break things."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    exponents = draw(st.sampled_from([(0, 0), (-3, 3), (-60, 60), (-149, -120), (50, 70)]))
    scale = np.float32(2) ** rng.integers(*exponents, (rows, cols), endpoint=True).astype(
        np.float32
    )
    with np.errstate(over="ignore"):
        array = rng.standard_normal((rows, cols), np.float32) * scale
    if draw(st.booleans()):
        array = np.abs(array)
    if draw(st.integers(0, 3)) == 0 and array.size:
        last = draw(st.sampled_from([14, 17]))  # with or without infinities and NaN
        spots = rng.integers(0, array.size, draw(st.integers(1, 4)))
        array.reshape(-1)[spots] = SPECIAL[rng.integers(0, last, spots.size)]
    return array


@st.composite
def trees(draw, width):
    """An order of adding: a permutation, and whether it goes in turn, in pairs or by slices."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    order = draw(
        st.sampled_from([np.arange(width), np.arange(width)[::-1], rng.permutation(width)])
    )
    return order, draw(st.sampled_from(["turn", "pairs", "slices"])), draw(st.integers(1, 16))


def add_up(terms, tree, keep):
    """The sum over the first axis in the order of `tree`; `keep` is what a register does to it."""
    order, how, size = tree
    terms = [keep(terms[k]) for k in order]
    if how == "slices":
        parts = [terms[k : k + size] for k in range(0, len(terms), size)]
        terms = [add_up(part, (range(len(part)), "turn", 1), keep) for part in parts]
    while len(terms) > 1:
        if how == "pairs":
            paired = [keep(a + b) for a, b in zip(terms[::2], terms[1::2], strict=False)]
            terms = paired + terms[2 * len(paired) :]
        else:
            terms = [keep(terms[0] + terms[1]), *terms[2:]]
    return terms[0]


def kept(x):
    return x


def fused_in_turn(a, b, tree, keep):
    """Products that are not rounded by themselves, as fma adds them."""
    total = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for k in tree[0]:
        exact_product = a[:, k, None].astype(np.float64) * b[k]
        total = keep((total + exact_product).astype(np.float32))
    return total


@drawn
@given(st.data())
def test_no_correct_product_is_rejected(data):
    m, n, k = (
        data.draw(st.integers(1, top), label) for top, label in ((4, "m"), (4, "n"), (40, "k"))
    )
    a, b = data.draw(numbers(m, k)), data.draw(numbers(k, n))
    tree, keep = data.draw(trees(k)), data.draw(st.sampled_from([kept, flush]))
    precision = data.draw(st.sampled_from(["ieee", "tf32"]))
    cast = data.draw(st.sampled_from([cut, rounded_to_tf32, away])) if precision == "tf32" else kept
    with np.errstate(all="ignore"):
        left, right = cast(keep(a)), cast(keep(b))
        if data.draw(st.booleans()):
            got = fused_in_turn(left, right, tree, keep)
        elif precision == "tf32":  # the sum of a step is cut, as a tensor core cuts it
            terms = [left[:, j, None].astype(np.float64) * right[j] for j in range(k)]
            got = add_up(terms, tree, lambda x: cut_to_float32(x).astype(np.float64))
            got = got.astype(np.float32)
        else:
            got = add_up([left[:, j, None] * right[j] for j in range(k)], tree, keep)
    shape = (m, n, k)
    reference = matmul_pair.reference({"a": a, "b": b}, shape, 1)
    facts = {"d": 2.0**-10 if cast is cut else 2.0**-11}
    mine = Implementation("mine", "cuda", "none:none", precision=precision, facts=facts)
    bounds = matmul_pair.bounds(reference, mine, "", shape)
    found = judge(got, reference, bounds)
    assert found.ok, found.reasons
    assert agree("other", got, got, reference, bounds, bounds).verdict == "identical"


@drawn
@given(st.data())
def test_no_correct_softmax_is_rejected(data):
    rows, cols = data.draw(st.integers(1, 4), "rows"), data.draw(st.integers(1, 70), "cols")
    with np.errstate(over="ignore"):
        x = data.draw(numbers(rows, cols)) * np.float32(data.draw(st.sampled_from([1, 30])))
    tree, keep = data.draw(trees(cols)), data.draw(st.sampled_from([kept, flush]))
    with np.errstate(all="ignore"):
        t = keep(keep(x) - keep(x).max(axis=1, keepdims=True))
        fast = data.draw(st.booleans())
        e = keep(base_two(t) if fast else np.exp(t))
        total = keep(add_up(list(e.T), tree, keep))[:, None]
        got = keep(e / total) if data.draw(st.booleans()) else keep(e * keep(np.float32(1) / total))
    facts = {"c_e": 4.0, "c_t": 2.35} if fast else {"c_e": 5.04, "c_t": 1.0}
    reference = softmax_pair.reference({"x": x}, x.shape, 1)
    mine = Implementation("mine", "cuda", "none:none", facts=facts)
    found = judge(got, reference, softmax_pair.bounds(reference, mine, "", x.shape))
    assert found.ok, found.reasons


@drawn
@given(st.data())
def test_a_wrong_element_is_always_caught_and_named(data):
    rows, cols = data.draw(st.integers(1, 20)), data.draw(st.integers(1, 3000))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    value = rng.standard_normal((rows, cols))
    allowed = np.abs(rng.standard_normal((rows, cols))) * data.draw(
        st.sampled_from([0, 1e-6, 1e-3])
    )
    got = value.astype(np.float32)
    allowed += np.abs(got - value)
    at = data.draw(st.integers(0, rows - 1)), data.draw(st.integers(0, cols - 1))
    kind = data.draw(st.sampled_from(["nan", "inf", "over"]))
    if kind == "over":
        got[at] = np.float32(value[at] + 1.01 * allowed[at] + 1e-6)
    else:
        got[at] = np.nan if kind == "nan" else np.inf
    found = judge(got, Reference(value), [Bound("b", allowed, "", "")])
    assert not found.ok and found.fault_count == 1
    assert found.worst.index == found.faults[0].index == at
    assert sum(found.ulp.values()) == rows * cols - (kind != "over")


@drawn
@given(st.data())
def test_two_right_outputs_always_agree(data):
    count = data.draw(st.integers(1, 200))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    value = rng.standard_normal(count)
    widths = [np.abs(rng.standard_normal(count)) + 1e-6 for _ in range(2)]
    sides = [[Bound("b", width, "", "")] for width in widths]
    outputs = [(value + rng.uniform(-0.999, 0.999, count) * width).astype("f4") for width in widths]
    reference = Reference(value)
    for output, bounds in zip(outputs, sides, strict=True):
        assert judge(output, reference, bounds).ok
    found = agree("other", outputs[0], outputs[1], reference, sides[0], sides[1])
    assert found.verdict in ("identical", "within tolerance") and found.share <= 1
    assert found.equal == int((outputs[0] == outputs[1]).sum())


@settings(drawn, max_examples=max(1, DRAWS // 10))
@given(st.data())
def test_probes_have_one_answer_in_every_order(data):
    m, n, k = (data.draw(st.integers(1, top)) for top in (5, 5, 300))
    precision = data.draw(st.sampled_from(["ieee", "tf32"]))
    tree = data.draw(trees(k))
    for probe in matmul_probes.probes((m, n, k), precision, data.draw(st.integers(0, 99))):
        a, b = (probe.inputs[name] for name in "ab")
        if precision == "tf32":
            a, b = data.draw(st.sampled_from([cut, rounded_to_tf32, away]))(a), cut(b)
        got = add_up([a[:, j, None] * b[j] for j in range(k)], tree, kept)
        assert exact(got, probe.want, probe.name).passed


# -- the kernels, under the interpreter -----------------------------------------------------------


@st.composite
def laid_out(draw, array, unit_columns):
    """A torch tensor with the array's numbers, drawn strides and offset, NaN in all the gaps."""
    rows, cols = array.shape
    step = 1 if unit_columns else draw(st.integers(1, 3))
    turned = not unit_columns and draw(st.booleans())
    inner, outer = (rows, cols) if turned else (cols, rows)
    stride = step * inner + draw(st.integers(0, 5))
    offset = draw(st.integers(0, 5))
    storage = torch.full((offset + stride * outer + step,), float("nan"))
    strides = (step, stride) if turned else (stride, step)
    view = storage.as_strided((rows, cols), strides, offset)
    view.copy_(torch.from_numpy(np.array(array)))
    return view


def own(pair, name):
    return next(i for i in pair.implementations if i.name == name)


@drawn_kernels
@given(st.data())
def test_the_softmax_kernel_is_right_on_everything(data):
    shape = data.draw(st.integers(0, 5), "rows"), data.draw(st.integers(1, 300), "cols")
    family = data.draw(st.sampled_from(FAMILIES))
    x = softmax_pair.inputs(shape, family, data.draw(st.integers(0, 9)))["x"]
    reference = softmax_pair.reference({"x": x}, shape, 1)
    out = data.draw(laid_out(np.full(shape, np.float32(7)), True))
    assert softmax(data.draw(laid_out(x, True)), out) is out
    bounds = softmax_pair.bounds(reference, own(softmax_pair.PAIR, "softmax"), family, shape)
    found = judge(out.numpy(), reference, bounds)
    assert found.ok, found.reasons
    for probe in softmax_pair.probes(shape, "ieee", 1):
        got = softmax(torch.from_numpy(probe.inputs["x"])).numpy()
        assert exact(got, probe.want, probe.name).passed


@drawn_kernels
@given(st.data())
def test_the_matmul_kernel_is_right_on_everything(data):
    m, n, k = (data.draw(st.integers(0, 50), name) for name in "mnk")
    family = data.draw(st.sampled_from(FAMILIES))
    arrays = matmul_pair.inputs((m, n, k), family, data.draw(st.integers(0, 9)))
    block = st.sampled_from([16, 32])
    config = Config(
        data.draw(block), data.draw(block), data.draw(block), data.draw(st.integers(1, 3)), 4, 2
    )
    out = data.draw(laid_out(np.full((m, n), np.float32(7)), False))
    a, b = (data.draw(laid_out(arrays[name], False)) for name in "ab")
    with np.errstate(all="ignore"):
        matmul(a, b, out, precision="ieee", config=config)
    reference = matmul_pair.reference(arrays, (m, n, k), 1)
    bounds = matmul_pair.bounds(reference, own(matmul_pair.PAIR, "matmul ieee"), family, (m, n, k))
    found = judge(out.numpy(), reference, bounds)
    assert found.ok, found.reasons
    for probe in matmul_probes.probes((m, n, k), "ieee", 1):
        operands = [torch.from_numpy(probe.inputs[name]) for name in "ab"]
        got = matmul(*operands, precision="ieee", config=config).numpy()
        assert exact(got, probe.want, probe.name).passed
