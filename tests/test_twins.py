"""The exact twins: their ingredients without a card, their bits on one."""

import numpy as np
import pytest
import torch

from compare import machine as machines
from compare.order import Unreadable
from compare.order.questions import NARROWING
from compare.order.tree import Builder, add, cut, halves, pairwise, plan, slices
from compare.order.twins import claim, kernels, order_of, prepare_matmul, prepare_tf32
from compare.pair import Implementation
from compare.pairs import matmul as matmul_pair
from compare.pairs import softmax as softmax_pair
from compare.tf32 import to_tf32
from triton_impl.matmul_descriptor import descriptors_round
from triton_impl.matmul_twin import LARGE, MOST_BYTES, SMALL, Order, matmul_twin
from triton_impl.pack import pack
from triton_impl.softmax_twin import softmax_twin

ROWS = lambda n: cut(n, 256, 1, halves(256))  # noqa: E731 - softmaxRows' order of n columns
INTERPRETED = pytest.mark.skipif(torch.cuda.is_available(), reason="the interpreter's bits")


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


@INTERPRETED
@pytest.mark.parametrize("cols", (1, 2, 100, 255, 256, 257, 1000, 5000))
def test_the_softmax_twin_adds_in_cuda_order(cols):
    x = 3 * numbers(3, cols)
    e = np.exp(x - x.max(axis=1, keepdims=True))
    want = e / (add(ROWS(cols), e) if cols > 1 else e[:, 0])[:, None]
    got = softmax_twin(torch.from_numpy(x), exp="tl", div="rn").numpy()
    np.testing.assert_array_equal(got.view(np.int32), want.view(np.int32))


@INTERPRETED
def test_the_softmax_twin_without_cuda_order_has_other_bits():
    x = torch.from_numpy(3 * numbers(20, 300))
    ours, theirs = (softmax_twin(x, exp="tl", div="rn", order=o) for o in ("tl", "cuda"))
    assert int((ours != theirs).sum()) > 0
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-30)


@INTERPRETED
def test_cuda_exponential_needs_a_card_and_says_so():
    with pytest.raises(ValueError, match="interpreter has no libdevice"):
        softmax_twin(torch.zeros(1, 4), exp="libdevice", div="rn")


def test_rows_of_a_strided_matrix_and_of_nothing():
    x = torch.from_numpy(numbers(4, 64))[:, :40]
    torch.testing.assert_close(softmax_twin(x, exp="tl", div="tl"), torch.softmax(x, 1))
    assert softmax_twin(torch.empty(0, 4), exp="tl", div="tl").shape == (0, 4)


@pytest.mark.parametrize(
    "x, words",
    (
        (torch.zeros(3), "2-D float32"),
        (torch.zeros(3, 0), "at least one column"),
        (torch.zeros(8, 3).T, "column stride"),
    ),
)
def test_softmax_refuses_in_one_sentence(x, words):
    with pytest.raises(ValueError, match=words):
        softmax_twin(x, exp="tl", div="tl")
    with pytest.raises(ValueError, match="exp 'fast' is unknown"):
        softmax_twin(torch.zeros(1, 4), exp="fast", div="tl")


SPECIAL = {
    0x7FFFFFFF: 0x7FFFFFFF,  # CUDA's NaN: a carry would make it -0
    0xFFFFFFFF: 0xFFFFFFFF,
    0x7F800001: 0x7F800001,
    0x7F800000: 0x7F800000,
    0xFF800000: 0xFF800000,
    0x7F7FFFFF: 0x7F800000,  # FLT_MAX rounds to infinity, as it should
    0x3F801000: 0x3F800000,  # a tie goes to the even neighbour: down
    0x3F803000: 0x3F804000,  # and up
    0x3F801001: 0x3F802000,
    0x3F800FFF: 0x3F800000,
    0x00000001: 0x00000000,
    0x80000000: 0x80000000,
}


def test_rounding_to_tf32_leaves_what_is_not_finite():
    given = np.array(list(SPECIAL), np.uint32).view(np.float32)
    want = list(SPECIAL.values())
    packed = pack(torch.from_numpy(given[None]), rounded=True).numpy()[0]
    assert packed.view(np.uint32).tolist() == want
    assert to_tf32(given).view(np.uint32).tolist() == want


def carry(order):
    return order_of(plan(order), order.fused)


@pytest.mark.parametrize("precision", ("ieee", "tf32"))
@pytest.mark.parametrize("shape", ((5, 7, 100), (70, 33, 96), (3, 4, 0), (0, 3, 5), (4, 1, 17)))
def test_matmul_in_any_order_is_right(shape, precision):
    m, n, k = shape
    a, b = numbers(m, k), numbers(k, n, seed=1)
    want = a.astype(np.float64) @ b.astype(np.float64)
    orders = [None]
    if k > 16:
        orders += [carry(cut(k, 1, 1)), carry(cut(k, 3, -(-k // 3))), carry(cut(k, 2, 8))]
        orders += [carry(pairwise(k)), carry(slices([k // 3, k - k // 3]))]
    for order in orders:
        out = torch.full((m, n), float("nan"))
        got = matmul_twin(
            torch.from_numpy(a), torch.from_numpy(b), out, precision=precision, order=order
        )
        assert got is out
        limit = 1e-5 if precision == "ieee" else 2e-2
        assert np.abs(got.numpy() - want).max(initial=0) <= limit * np.sqrt(k + 1)


@pytest.mark.parametrize("precision", ("ieee", "tf32"))
def test_groups_are_filled_up_with_zeros(precision):
    build = Builder(19)
    chain = build.add(build.add(0, 1, 2), *range(3, 11))
    tree = build.tree(build.add(chain, *range(11, 19)))
    order = carry(tree)
    assert order.gather == (0, 1, 2, -1, -1, -1, -1, -1, *range(3, 19))
    assert (order.begin, order.end, order.terms) == ((0,), (24,), 19)
    a, b = numbers(5, 19), numbers(19, 4, seed=1)
    got = matmul_twin(torch.from_numpy(a), torch.from_numpy(b), precision=precision, order=order)
    want = a.astype(np.float64) @ b.astype(np.float64)
    assert np.abs(got.numpy() - want).max() < (1e-5 if precision == "ieee" else 2e-2)


@pytest.mark.skipif(not descriptors_round(), reason="needs Triton 3.7 or newer")
@pytest.mark.parametrize("tree", (cut(128, 1, 1), cut(128, 2, 64), cut(120, 2, 64)))
@pytest.mark.parametrize("sides", ((64, 64), (70, 33)))
def test_rounding_by_descriptor_gives_what_packing_gives(tree, sides):
    a = torch.from_numpy(numbers(sides[0], tree.terms))
    b = torch.from_numpy(numbers(tree.terms, sides[1], seed=1))
    for operand in (a, b):
        operand[0, 1] = float("inf")
    one, two = (
        matmul_twin(a, b, precision="tf32", order=carry(tree), descriptor=way)
        for way in (True, False)
    )
    torch.testing.assert_close(one, two, rtol=1e-5, atol=1e-5, equal_nan=True)
    with np.errstate(invalid="ignore"):  # an infinity of each sign meets
        exact = to_tf32(a.numpy()).astype(np.float64) @ to_tf32(b.numpy()).astype(np.float64)
    torch.testing.assert_close(
        one.double(), torch.from_numpy(exact), rtol=1e-5, atol=1e-4, equal_nan=True
    )
    with pytest.raises(ValueError, match="whole steps of 32"):
        matmul_twin(a, b, precision="tf32", order=carry(cut(tree.terms, 2, 8)), descriptor=True)
    with pytest.raises(ValueError, match="along K"):
        matmul_twin(a[:64, :64].T, b[:64], precision="tf32", descriptor=True)


@INTERPRETED
def test_an_order_is_really_carried_out():
    """One k at a time, so that the interpreter's numpy adds nothing by itself."""
    k = 40
    a, b = numbers(6, k), numbers(k, 5, seed=1)
    terms = a[:, None, :].astype(np.float64) * b.T[None]
    for tree in (cut(k, 1, 1), cut(k, 4, 10), cut(k, 2, 8), cut(k, 8, 1, halves(8)), pairwise(k)):
        order = carry(tree) or Order((0,), (k,))
        got = matmul_twin(
            torch.from_numpy(a),
            torch.from_numpy(b),
            precision="ieee",
            order=order,
            config=(16, 16, 1, 8, 4, 1),
        )
        rounded = terms.reshape(-1, k).astype(np.float32)  # numpy rounds every product
        want = add(tree, rounded).reshape(6, 5)
        np.testing.assert_array_equal(got.numpy().view(np.int32), want.view(np.int32))


def test_matmul_refuses_in_one_sentence():
    a = torch.zeros(4, 8)
    with pytest.raises(ValueError, match="precision 'fp8' is unknown"):
        matmul_twin(a, a.T, precision="fp8")
    with pytest.raises(ValueError, match="order is one of 7 products, the shape has 8"):
        matmul_twin(a, a.T, precision="ieee", order=Order((0,), (7,)))
    with pytest.raises(ValueError, match="8 columns and b 4 rows"):
        matmul_twin(a, a, precision="ieee")
    many = MOST_BYTES // (4 * 16) + 1
    order = Order((0,) * many, (8,) * many)
    with pytest.raises(ValueError, match="bytes of workspace"):
        matmul_twin(a, a.T, precision="ieee", order=order)


def sums_in(tree):
    def multiply(a, b):
        terms = a[:, None, :].astype(np.float64) * b.T[None]
        return add(tree, terms.reshape(-1, tree.terms)).reshape(len(a), b.shape[1])

    return multiply


@pytest.mark.parametrize("tree", (cut(48, 1, 1), cut(48, 3, 16), cut(48, 2, 8)))
def test_prepare_finds_the_order_and_tries_it(tree):
    def twin(a, b, *, order, precision):
        assert precision == "ieee"
        return sums_in(tree if order == known else cut(48, 5, 1))(a, b)

    known = None
    if tree != cut(48, 1, 1):
        seen = []
        with pytest.raises(Unreadable, match="no kernel has its bits"):
            prepare_matmul(
                sums_in(tree), lambda a, b, **o: seen.append(o["order"]) or a @ b, (16, 16, 48)
            )
        known = seen[0]
        want = carry(tree)
        assert (known.begin, known.end, known.gather) == (want.begin, want.end, want.gather)
        return
    made = prepare_matmul(sums_in(tree), twin, (16, 16, 48))
    assert made.options["order"] is None
    assert "one running sum" in made.notes[0]


def test_a_product_of_two_orders_is_not_claimed():
    def mixed(a, b):
        out = sums_in(cut(48, 1, 1))(a, b)
        out[4:] = sums_in(cut(48, 3, 16))(a[4:], b)
        return out

    def twin(a, b, *, order, precision):
        return sums_in(cut(48, 3, 16) if order else cut(48, 1, 1))(a, b)

    with pytest.raises(Unreadable, match="50 % of its elements add in one order"):
        prepare_matmul(mixed, twin, (8, 8, 48))


def test_a_product_of_one_order_is_asked_once_and_tried_on_every_element():
    launches = []

    def counted(a, b):
        launches.append(a.shape)
        return sums_in(cut(48, 1, 1))(a, b)

    prepare_matmul(counted, lambda a, b, **o: sums_in(cut(48, 1, 1))(a, b), (16, 16, 48))
    assert len(launches) < NARROWING  # elements are told apart where answers contradict each other


def test_asked_for_tf32_and_ran_fp32_is_said():
    made = prepare_tf32(
        sums_in(cut(32, 1, 1)), lambda a, b, **o: sums_in(cut(32, 1, 1))(a, b), (8, 8, 32)
    )
    assert made.options["precision"] == "ieee"
    assert any("asked TF32, ran FP32" in note for note in made.notes)
    rounded = kernels(("to nearest even", "to nearest even"), 8, 8)
    assert {options["precision"] for options, _ in rounded} == {"tf32"}
    assert rounded[-1][0]["config"] == SMALL
    assert kernels(("cut", "cut"), 4096, 2048)[-1][0]["config"] == LARGE
    assert ("descriptor" in rounded[0][0]) == descriptors_round()


def twins():
    pairs = (softmax_pair.PAIR, matmul_pair.PAIR)
    return [i for pair in pairs for i in pair.implementations if i.twin_of]


def test_four_twins_claim_four_counterparts():
    assert {i.twin_of for i in twins()} == {
        "softmaxRows", "softmaxRows, fast", "cublas COMPUTE_32F", "cublas FAST_TF32",
    }  # fmt: skip
    assert all(i.needs == ("card",) for i in twins())


def test_a_claim_is_gated_only_where_it_was_recorded():
    card = machines.Card("NVIDIA H200", (9, 0))
    mine = Implementation(
        "twin",
        "triton",
        "m:f",
        twin_of="x",
        facts={"recorded": ({"arch": "sm_90", "triton": "3.6.0"},)},
    )

    def on(card, triton):
        return machines.Machine("card", machines.Seen(versions={"triton": triton}), card)

    assert claim(mine, on(card, "3.6.0")) == ""
    assert "not recorded" in claim(mine, on(card, "3.9.0"))
    assert "not recorded" in claim(mine, on(machines.Card("A100", (8, 0)), "3.6.0"))
    assert "of a card" in claim(mine, machines.Machine("host", machines.Seen()))
