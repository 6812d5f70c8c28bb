"""The command `bits`: what is said without a card, the words, the screen."""

import json
from dataclasses import replace

import numpy as np
import pytest

from compare import bits, run, system
from compare import machine as machines
from compare.bits import matmul as bits_matmul
from compare.bits import precisions
from compare.bits import softmax as bits_softmax
from compare.bits.lab import against, products
from compare.device import Bench, stream
from compare.findings import Against, Asked, Bits, Precisions, Prediction, Variant
from compare.machine import Refusal
from compare.pairs import softmax
from compare.report import bits as report
from compare.report import precisions as table
from compare.results import from_json, to_json

PRECISE, FAST = "softmaxRows", "softmaxRows, fast"
# Shares of MEASURED mixtures on an H200, 3 * random + 0.05 a row: exp, div, sum -> precise, fast.
MEASURED = {
    ("Triton", "Triton", "Triton"): (0.125, 0.645),
    ("Triton", "Triton", "CUDA"): (0.129, 1.0),
    ("Triton", "CUDA", "Triton"): (0.139, 0.478),
    ("Triton", "CUDA", "CUDA"): (0.148, 0.715),
    ("CUDA", "Triton", "Triton"): (0.474, 0.140),
    ("CUDA", "CUDA", "Triton"): (0.605, 0.125),
    ("CUDA", "Triton", "CUDA"): (0.713, 0.148),
    ("CUDA", "CUDA", "CUDA"): (1.0, 0.129),
}


def mixtures():
    return tuple(
        Variant("", choice, (Against(PRECISE, one, 3), Against(FAST, two, 4)), 5e-8, 0.09, 9.0)
        for choice, (one, two) in MEASURED.items()
    )


def found(**more):
    facts = {"card_name": "NVIDIA H200", "versions": {"triton": "3.6.0"}}
    asked = (
        Asked("triton", "softmax", "256 running sums", "[p0, p256 ..] + ..", 900, 4, 0.5),
        Asked("cuda", "softmaxRows", same_as="softmax", questions=900),
        Asked("cublas", "COMPUTE_32F", reason="needs a card"),
        Asked("numpy", "A @ B", "one running sum", operands=("cut", "cut"), share=0.5),
    )
    made = Bits(
        "softmax", (2048, 1024), "spread", 1, facts, (), asked, 1024, "column",
        parts=("they part at column 1: softmax starts a new sum with it, numpy adds it to 0",),
        predictions=(Prediction("softmax", "softmaxRows", 0.05, 0.0502, 4096),),
        steps=mixtures()[:2], step_target=PRECISE, mixtures=mixtures(),
        headings=("exp", "div", "sum"), targets=(PRECISE, FAST), notes=("a note",),
    )  # fmt: skip
    return replace(made, **more)


def test_the_mixtures_are_put_in_words():
    words = bits.explain(found())
    assert words[0] == (
        "Against softmaxRows it takes exp, div and sum together. With one of them missing: "
        "exp 14.8 %, div 71.3 %, sum 60.5 %. With one alone: exp 47.4 %, div 13.9 %, sum 12.9 %."
    )
    assert words[1] == "Against softmaxRows, fast sum is the whole difference."
    assert words[2].startswith("All eight stay within 9 % of the allowed error")
    wrong = tuple(replace(variant, allowed=1.5) for variant in mixtures())
    assert not any("none of them is wrong" in w for w in bits.explain(found(mixtures=wrong)))
    short = tuple(
        replace(v, against=(Against(PRECISE, 0.5, 1), Against(FAST, 0.4, 1))) for v in wrong
    )
    assert "no mixture has all its bits" in bits.explain(found(mixtures=short))[0]


def test_the_mixtures_of_a_product_are_put_in_words():
    def variant(how, order, *shares):
        held = zip(bits_matmul.TARGETS, shares, strict=True)
        return Variant("", (how, order), tuple(Against(t, s, 0) for t, s in held), 0, 0.1)

    made = (
        variant("float32", "one sum", 0.049, 0, 1),
        variant("float32", "COMPUTE_32F's", 1, 0, 0.049),
        variant("11 bits, cut", "one sum", 0, 0, 0),
        variant("11 bits, cut", "FAST_TF32's", 0, 0.000015, 0),
        variant("11 bits, rounded", "one sum", 0, 0.007, 0),
        variant("11 bits, rounded", "FAST_TF32's", 0, 1, 0),
    )
    assert bits_matmul.explain(made) == [
        "Against COMPUTE_32F the order of K is all there is: 4.9 % with one running sum, all equal "
        "in the order found.",
        "Against FAST_TF32 rounding and order count: 0 % with neither, 0.7 % with the operands "
        "rounded, 0.0015 % in its order, all equal with both.",
        "Against matmul_tiled: all equal with one running sum.",
    ]


def test_the_screen_fits_and_says_what_was_found():
    lines = report.lines(found(in_words=tuple(bits.explain(found())), recorded="on an H200"))
    assert max(map(len, lines)) <= 100
    text = " ".join(" ".join(lines).split())
    for part in (
        "WHY THE BITS DIFFER softmax 2048x1024, 3 * random + 0.05 a row NVIDIA H200, triton 3.6.0",
        "the same tree as softmax",
        "needs a card",
        "one running sum; operands cut, tf32",
        "the others add in another order)",
        "predict 5.0 % of the bits equal; seen: 5.0 %",
        "they part at column 1",
        "all equal",
        "14.8 %",
        "step by step towards softmaxRows on an H200",
    ):
        assert part in text


def test_everything_goes_into_json_and_back():
    made = found(more={"cuts": {"softmax": [1, 1, []]}})
    assert from_json(Bits, json.loads(json.dumps(to_json(made)))) == made


def test_bits_are_held_against_each_other():
    one = np.array([1, 2, np.inf, np.nan], np.float32)
    other = np.array([1, np.nextafter(np.float32(2), np.float32(3)), np.inf, np.nan], np.float32)
    assert against("x", one, other) == Against("x", 0.75, 1)
    assert against("x", one, one).share == 1
    assert against("x", np.float32([np.inf, 1]), np.float32([3, 1])) == Against("x", 0.5, 0)


def test_products_are_exact():
    inputs = {"a": np.float32([[1 + 2**-20, 3]]), "b": np.float32([[1 + 2**-20], [5]])}
    terms = products(inputs, (1, 1, 2), 0)
    assert terms.tolist() == [[(1 + 2**-20) ** 2, 15]]


@pytest.mark.parametrize("pairs", ((), ("softmax", "matmul"), ("sftmax",)))
def test_one_known_pair_is_wanted(pairs):
    with pytest.raises(Refusal, match="softmax or matmul") as refused:
        bits.build(run.Wish(pairs=pairs, cpu=True))
    assert refused.value.code == 2


@pytest.fixture(scope="module")
def host():
    return {
        "softmax": bits.build(run.Wish(pairs=("softmax",), shapes=("16x60",), cpu=True)),
        "matmul": bits.build(run.Wish(pairs=("matmul",), shapes=("16x16x96",), cpu=True)),
    }


def asked(made, name):
    return next(a for a in made.asked if a.name == name)


def test_without_a_card_orders_are_asked_for_real(host):
    made = host["softmax"]
    assert asked(made, "sum on this machine").words.startswith("numpy's pairwise sum")
    rows = asked(made, "softmaxRows")
    assert rows.reason or rows.words == "256 running sums" or "folded by halves" in rows.words
    assert asked(made, "softmaxRows, fast").reason == "needs a card"
    assert asked(host["matmul"], "cublas COMPUTE_32F").reason == "needs a card"
    assert asked(host["matmul"], "matmul ieee").questions > 0
    for screen in map(report.lines, host.values()):
        assert max(map(len, screen)) <= 100
        assert screen[-1].endswith("exit 0")


@pytest.mark.parametrize("pair", bits.KNOWN)
def test_what_was_recorded_on_a_card_is_whole_and_shown_as_that(pair, host):
    known = bits.recorded(pair)
    assert known.exit_code == 0
    assert known.steps[-1].share(known.step_target) == 1
    assert all(step.us for step in known.steps)
    assert max(map(len, report.lines(known))) <= 100
    shown = host[pair]
    assert shown.steps == known.steps
    assert shown.in_words == known.in_words
    at = "x".join(map(str, known.shape))  # not the shape that was asked about here
    assert shown.recorded.startswith(f"on an H200 (recorded at {at}, triton 3.6.0")


@pytest.mark.parametrize("pair, name", (("softmax", "softmax"), ("matmul", "matmul ieee")))
def test_the_interpreters_order_is_not_taken_for_a_kernels(pair, name, host):
    made = host[pair]
    assert asked(made, name).where == "under the interpreter"
    assert asked(made, "softmaxRows" if pair == "softmax" else "matmul_tiled").where == ""
    assert all(part.startswith("under the interpreter they part") for part in made.parts)
    text = " ".join(report.lines(made))
    assert " ".join(text.split()).count("under the interpreter") >= 2
    for p in made.predictions:
        assert name not in (p.one, p.other)


def test_a_cards_order_stands_under_that_of_the_interpreter():
    """Where it was recorded at the shape asked about; what needs a card is told in its place."""
    known = bits.recorded("softmax")
    rows = next(a for a in known.asked if a.name == "softmaxRows")
    fast = Asked("cuda", "softmaxRows, fast", reason="needs a card")
    mine = Asked("triton", "softmax", "numpy's pairwise sum", questions=3)
    here = bits.on_host(found(asked=(mine, rows, fast), parts=("they part",)))
    made = bits.with_recorded(here, None, bits_softmax)
    told = [(a.name, a.where) for a in made.asked]
    assert told == [
        ("softmax", "under the interpreter"),
        ("softmax", "on an H200 (recorded)"),
        ("softmaxRows", ""),
        ("softmaxRows, fast", "on an H200 (recorded)"),
    ]
    assert made.asked[1].words.startswith("128 interleaved parts in groups of 4")
    assert made.parts[0].startswith("on an H200 (recorded) they part at column 1")
    assert made.recorded == "on an H200 (recorded, triton 3.6.0)"
    lines = report.lines(made)
    assert max(map(len, lines)) <= 100
    at = next(n for n, line in enumerate(lines) if line.startswith("  triton softmax  "))
    assert lines[at + 1].startswith("    under the interpreter")
    elsewhere = bits.with_recorded(replace(here, shape=(16, 1024)), None, bits_softmax)
    assert [a.where for a in elsewhere.asked] == ["under the interpreter", "", ""]


def test_without_a_card_rounding_is_applied_by_the_tool_itself(host):
    cut_off, rounded = host["matmul"].mixtures
    assert (cut_off.choice[0], rounded.choice[0]) == ("11 bits, cut", "11 bits, rounded")
    assert 1e-5 < rounded.error < cut_off.error < 2e-3


def test_every_precision_is_a_row_and_what_wins_is_said():
    rows = (
        Variant("bf16x6", ("6 products", "64x64x32"), (), 3.6e-7, 0.1, 282.6),
        Variant("tf32x3", ("3 products", "128x64x32"), (), 4.1e-7, 0.1, 356.6),
        Variant("cublas COMPUTE_32F", ("float32 FMA", ""), (), 1.9e-6, 0.1, 345.9),
        Variant("ieee", ("float32 FMA", "64x64x32"), (), 1.9e-6, 0.1, 417.5),
    )
    made = Precisions((2048, 2048, 2048), {}, rows, 2 * 2048**3, (("fp8", "unknown"),))
    assert from_json(Precisions, json.loads(json.dumps(to_json(made)))) == made
    lines = table.lines(made)
    text = " ".join(" ".join(lines).split())
    assert "bf16x6 errs 5.3 times less than cuBLAS in FP32 and takes 0.82x its time: more" in text
    assert "tf32x3 errs 4.6 times less than cuBLAS in FP32 and takes 1.03x its time." in text
    assert "not run fp8: unknown" in text
    assert max(map(len, lines)) <= 100
    assert table.sentences(rows[:2]) == []


def test_the_fastest_right_config_is_shown():
    made = [
        Variant("p", ("", ""), (), 1e-7, allowed, us)
        for allowed, us in ((2.0, 1.0), (0.1, None), (0.1, 9.0), (0.1, 5.0), (float("nan"), 1.0))
    ]
    assert sorted(made, key=precisions.rank)[0] is made[3]
    assert sorted(made[:2], key=precisions.rank)[0] is made[1]


def test_without_a_card_precisions_need_one():
    made = precisions.build(run.Wish(cpu=True, precision="all"))
    assert made.exit_code == 0
    assert made.recorded or "needs a card" in table.lines(made)[-1]
    with pytest.raises(Refusal, match="about matmul"):
        precisions.build(run.Wish(pairs=("softmax",), cpu=True))


@pytest.mark.gpu
def test_bf16x6_beats_cublas_fp32_in_both():
    made = precisions.build(run.Wish(require_card=True))
    rows = {row.words: row for row in made.rows}
    assert made.exit_code == 0, made
    best, full = rows["bf16x6"], rows["cublas COMPUTE_32F"]
    assert best.error < full.error / 3
    assert best.us and full.us, made
    if made.machine["card_arch"] == "sm_90":
        assert best.us < full.us


@pytest.mark.gpu
def test_the_mixtures_on_a_card_are_those_measured_on_normal_data():
    """On numpy's normal numbers; what `--data spread` draws has shorter tails: 14.5 % for 12.5 %.

    A whole row's bits depend on its sum, so shares of 2048 rows move by a percent.
    """
    machine = run.prepare(machines.decide(system.observe()))
    random = np.random.default_rng(0)
    x = 3 * random.standard_normal((2048, 1024)) + 0.05 * np.arange(2048)[:, None]
    with stream(machine):
        bench = Bench(machine, {"x": x.astype(np.float32)}, x.shape)
        named = {i.name: i for i in softmax.PAIR.implementations}
        targets = [bench.run(named[name]) for name in (PRECISE, FAST)]
        for choice, wants in MEASURED.items():
            got = bench.run(bits_softmax.twin(tuple(int(c == "CUDA") for c in choice)))
            for target, want in zip(targets, wants, strict=True):
                share = against("", got, target).share
                assert abs(share - want) < (1e-9 if want == 1 else 0.015), (choice, share)


@pytest.mark.gpu
def test_the_last_step_on_a_card_has_every_bit():
    made = bits.build(run.Wish(pairs=("softmax",), require_card=True))
    assert made.steps[-1].share(PRECISE) == 1
    assert all(step.us for step in made.steps)
    assert asked(made, "softmaxRows").words.startswith("256 running sums of every 256th column")


@pytest.mark.gpu
def test_orders_and_their_prediction_on_a_card():
    made = bits.build(run.Wish(pairs=("matmul",), shapes=("256x256x1024",), require_card=True))
    assert asked(made, "matmul ieee").words == "one running sum over k = 0, 1, 2 .. 1023"
    assert asked(made, "cublas COMPUTE_32F").words.startswith("16 slices of 64")
    prediction = next(p for p in made.predictions if p.other == "cublas COMPUTE_32F")
    assert abs(prediction.predicted - prediction.seen) < 0.01
    assert sum(a.seconds for a in made.asked) < 60
