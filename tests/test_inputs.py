"""Host bits: pinned, exact, keyed by everything that they belong to."""

from fractions import Fraction

import numpy as np
import pytest

from compare.inputs import NORMAL_LIMIT, Stream, normal_parts, sha256
from compare.pairs import matmul, softmax
from compare.pairs.common import EVERY, FAMILIES

SEED = 20260901
STREAM = Stream("pair", (3, 4), "random", 1)
LEVELS = ["92af1bc92a8c4d85", "34652886dd7be22c"]


@pytest.mark.parametrize(
    "pair, shape, hashes",
    (
        (
            softmax.PAIR,
            (2048, 1024),
            {"x": "60530845f34c60638b203e5d711980c39c519c53d3dbad84c247d6bbedc8c73c"},
        ),
        (
            matmul.PAIR,
            (256, 256, 1024),
            {
                "a": "ee17814fe1b87347cd6de1a206b20faf545215282695ad9906ca96e1f745220b",
                "b": "b043cf104bf7af8d1fca7bd0cd45b29ee41dbfed36bcbdf96d60bfa544403322",
            },
        ),
        (
            matmul.PAIR,
            (2048, 2048, 2048),
            {
                "a": "bf6f59d03b59fe1141fe6d07806ea7f47d6c58d732cd87881c70067d0d21998c",
                "b": "f44785a8c85acd90158ff0acd326c4064d626f8edbf1fbe83a4da11e7f3ad543",
            },
        ),
    ),
)
def test_the_default_inputs_are_these_bits(pair, shape, hashes):
    arrays = pair.inputs(shape, pair.data[0], SEED)
    assert {name: sha256(array) for name, array in arrays.items()} == hashes


def test_a_sha256_is_of_the_bytes_in_c_order():
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert sha256(array.T) == sha256(np.ascontiguousarray(array.T)) != sha256(array)
    assert sha256(np.zeros((0, 3), np.float32)) == sha256(np.zeros(0))


@pytest.mark.parametrize(
    "other",
    (
        Stream("pain", (3, 4), "random", 1),
        Stream("pair", (3, 5), "random", 1),
        Stream("pair", (34,), "random", 1),
        Stream("pair", (3, 4), "spread", 1),
        Stream("pair", (3, 4), "random", 2),
    ),
)
def test_every_part_of_the_key_matters(other):
    assert not np.array_equal(STREAM.words("a", 4), other.words("a", 4))


def test_inputs_of_one_stream_do_not_share_words():
    assert not np.array_equal(STREAM.words("a", 4), STREAM.words("b", 4))
    assert np.array_equal(STREAM.words("a", 4), STREAM.words("a", 8)[:4])


def test_a_normal_is_two_levels_and_one_rounding():
    values = STREAM.normal("a", (5,), scale=3)
    words = [int(word) for word in STREAM.words("a", 3)]
    fields = [(word >> (16 * place + 4)) & 0xFFF for word in words for place in range(4)]
    large, small = normal_parts()
    for i, value in enumerate(values):
        exact = Fraction(int(large[fields[2 * i]]) + int(small[fields[2 * i + 1]]), 2**22) * 3
        assert value == np.float32(float(exact)) and Fraction(float(exact)) == exact


def test_the_levels_are_the_same_integers_everywhere():
    large, small = normal_parts()
    assert [sha256(part)[:16] for part in (large, small)] == LEVELS
    for part, variance in ((large, 0.64), (small, 0.36)):
        assert np.array_equal(part, -part[::-1]) and np.all(np.diff(part) > 0)
        assert abs((part * 2.0**-22).var() - variance) < 1e-7


def test_normals_have_a_normals_moments_and_tails():
    values = STREAM.normal("a", (1000, 1000)).astype(np.float64)
    assert abs(values.mean()) < 4e-3 and abs(values.var() - 1) < 4e-3
    assert 4.5 < np.abs(values).max() <= NORMAL_LIMIT
    assert abs((values**4).mean() - 3) < 0.03
    beyond = [np.count_nonzero(np.abs(values) > limit) for limit in (2, 3, 4)]
    assert abs(np.array(beyond) - [45500, 2700, 63]).max() < 900 and 30 < beyond[2] < 100
    assert np.count_nonzero(values == 0) < 10
    lag = (values.reshape(-1)[:-1] * values.reshape(-1)[1:]).mean()
    assert abs(lag) < 4e-3


def test_pieces_do_not_show():
    assert np.array_equal(STREAM.normal("a", (70_000,))[:50_000], STREAM.normal("a", (50_000,)))
    assert np.array_equal(
        STREAM.integers("a", 0, 9, (140_001,))[:99], STREAM.integers("a", 0, 9, (99,))
    )


def test_integers_keep_both_ends_and_are_even():
    values = STREAM.integers("a", -2, 2, (100_000,))
    counts = np.bincount(values + 2)
    assert counts.size == 5 and abs(counts - 20_000).max() < 800


def test_uniforms_are_odd_multiples_of_2_to_the_minus_24():
    values = STREAM.uniform("a", (1000,))
    assert values.dtype == np.float32 and values.min() > 0 and values.max() < 1
    assert np.all((values.astype(np.float64) * 2**24) % 2 == 1)
    assert abs(values.mean() - 0.5) < 0.04


def test_some_are_different_and_ascending():
    some = STREAM.some("a", 1000, 256)
    assert some.size == 256 and np.all(np.diff(some) > 0) and some.max() < 1000
    assert np.array_equal(STREAM.some("a", 5, 256), np.arange(5))


def test_rows_of_a_softmax_grow_by_a_twentieth():
    x = softmax.PAIR.inputs((2048, 64), "equal", SEED)["x"]
    assert np.array_equal(x[:, 0], (np.arange(2048) * 0.05).astype(np.float32))
    assert x.max() == np.float32(102.35)


@pytest.mark.parametrize("pair, shape", ((softmax.PAIR, (33, 50)), (matmul.PAIR, (33, 20, 50))))
@pytest.mark.parametrize("data", FAMILIES)
def test_every_family_is_float32_and_repeats(pair, shape, data):
    one, two = (pair.inputs(shape, data, SEED) for _ in range(2))
    for name, array in one.items():
        assert array.dtype == np.float32 and array.flags.c_contiguous
        assert sha256(array) == sha256(two[name])
    values = np.concatenate([array.reshape(-1) for array in one.values()])
    wanted = {"minus-inf": [-np.inf], "minus-inf-rows": [-np.inf], "plus-inf": [np.inf]}
    special = values[~np.isfinite(values)]
    assert np.isnan(special).all() if data == "nan" else set(special) == set(wanted.get(data, []))
    assert bool(special.size) == (data in (*wanted, "nan"))


@pytest.mark.parametrize("pair, shape", ((softmax.PAIR, (1, 1)), (matmul.PAIR, (1, 1, 1))))
@pytest.mark.parametrize("data", FAMILIES)
def test_every_family_has_a_smallest_shape(pair, shape, data):
    assert all(array.size == 1 for array in pair.inputs(shape, data, SEED).values())


@pytest.mark.parametrize("shape", ((0, 3, 2), (3, 0, 2), (3, 2, 0), (0, 0, 0)))
@pytest.mark.parametrize("data", FAMILIES)
def test_empty_operands_have_every_family(shape, data):
    m, n, k = shape
    arrays = matmul.PAIR.inputs(shape, data, SEED)
    assert arrays["a"].shape == (m, k) and arrays["b"].shape == (k, n)


def test_softmax_families_are_what_they_are_named_for():
    made = {data: softmax.PAIR.inputs((40, 1024), data, SEED)["x"] for data in FAMILIES}
    others = np.delete(made["spike"], 700, axis=1)
    assert np.all(made["spike"][:, 700] - others.max(axis=1) > 110)
    assert np.all(np.isfinite(made["minus-inf"]).any(axis=1))
    assert np.isfinite(softmax.PAIR.inputs((64, 1), "minus-inf", SEED)["x"]).all()
    assert 0.2 < np.isinf(made["minus-inf"]).mean() < 0.3
    rows = np.isinf(made["minus-inf-rows"]).all(axis=1)
    assert np.array_equal(np.flatnonzero(rows), np.arange(0, 40, EVERY))
    for data in ("plus-inf", "nan"):
        assert np.array_equal((~np.isfinite(made[data])).sum(axis=1), 1 * (np.arange(40) % 8 == 0))
    with np.errstate(over="ignore"):
        spread = made["overflow"].max(axis=1) - made["overflow"].min(axis=1)
    assert np.isinf(spread).all()
    parts = np.exp(made["subnormal"].astype(np.float64))
    assert (parts < 2.0**-126).mean() > 0.3 and np.all(made["subnormal"].max(axis=1) == 0)


def test_unknown_data_is_named_with_what_there_is():
    with pytest.raises(
        ValueError, match="data 'zeros' is unknown to softmax; choose one of random"
    ):
        softmax.PAIR.inputs((2, 2), "zeros", SEED)
