"""What paired times mean: every rule, without a card."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from compare.timing import paired, peaks

CARD = peaks.CardFacts(0, "NVIDIA H200", (9, 0), 132, 60 << 20, 1980, 4.814e12, "GPU-0")
NOISE = np.random.default_rng(3)


# -- centre, interval, tick, verdict ----------------------------------------------------------


def test_centre_is_the_mean_of_the_middle_80_percent():
    from scipy.stats import trim_mean

    values = NOISE.gamma(2, size=(137, 3))
    assert paired.centre(values) == pytest.approx(trim_mean(values, 0.1))
    assert paired.centre(np.array([1.0, 1, 1, 1, 1, 1, 1, 1, 1, 1000])) == 1


def test_bootstrap_interval_agrees_with_scipy():
    from scipy.stats import bootstrap, trim_mean

    left, right = NOISE.lognormal(0.2, 0.05, 300), NOISE.lognormal(0, 0.05, 300)
    got = paired.interval(left, right, paired.draws(300, seed=1))
    want = bootstrap(
        (np.log(left / right),),
        lambda x, axis: trim_mean(x, 0.1, axis=axis),
        n_resamples=4000,
        method="percentile",
        rng=np.random.default_rng(2),
    ).confidence_interval
    width = want.high - want.low
    assert np.log([got.low, got.high]) == pytest.approx([want.low, want.high], abs=0.08 * width)
    assert got.value == pytest.approx(np.exp(0.2), rel=0.02)


def test_interval_covers_as_often_as_it_says():
    drawn = paired.draws(80, seed=5)
    inside = 0
    for _ in range(300):
        ratio = paired.interval(NOISE.lognormal(0, 0.04, 80), NOISE.lognormal(0, 0.04, 80), drawn)
        inside += ratio.low <= 1 <= ratio.high
    assert 0.90 < inside / 300 < 0.985


def test_a_ratio_turned_over_is_its_inverse():
    left, right = NOISE.lognormal(0, 0.1, 90), NOISE.lognormal(0.3, 0.1, 90)
    drawn = paired.draws(90, 0)
    there, back = paired.interval(left, right, drawn), paired.interval(right, left, drawn)
    assert there.value == pytest.approx(1 / back.value, rel=1e-12)


def test_draws_are_sorted_resamples_of_every_round():
    drawn = paired.draws(50, seed=0)
    assert drawn.shape == (paired.RESAMPLES, 50)
    assert (np.diff(drawn.astype(int), axis=1) >= 0).all()
    assert np.bincount(drawn.ravel(), minlength=50).std() < 0.05 * paired.RESAMPLES


@pytest.mark.parametrize("step", [32, 40, 1024])
def test_tick_is_found_although_the_driver_rounds(step):
    steps = np.rint(NOISE.normal(113, 2, 2000))
    durations = (steps * step + NOISE.integers(-1, 2, 2000)).astype(int)
    assert paired.tick(durations) == step


def test_no_tick_where_none_shows():
    assert paired.tick(np.rint(NOISE.normal(300_000, 5_000, 2000)).astype(int)) is None
    assert paired.tick(np.full(100, 3584)) is None
    combs = np.concatenate([32 * np.arange(100, 110), 32 * np.arange(100, 110) + 11])
    assert paired.tick(np.tile(combs, 50)) is None  # steps of 11 and 21 are no clock


def test_verdict_is_never_called_below_the_floor():
    def said(low, high, floor=0.005):
        return paired.verdict(paired.Interval((low + high) / 2, low, high), floor, 0.01)[0]

    assert said(0.43, 0.44) == "FASTER"
    assert said(2.0, 2.1) == "SLOWER"
    assert said(0.998, 1.003) == "SAME"
    assert said(0.992, 1.004) == "SAME"  # as narrow as was wanted
    assert said(0.990, 0.9949) == "FASTER"
    assert said(0.990, 0.9949, floor=0.01) == "SAME"  # the same figures, a floor of 1 %
    assert said(1.006, 1.02, floor=0.01) == "UNDECIDED"
    assert said(0.97, 1.03) == "UNDECIDED"
    assert said(0.5, 0.6, floor=0.6) == "SAME"


def test_margin_holds_the_control_the_tick_and_a_least():
    quiet = paired.Interval(1.0, 0.999, 1.001)
    assert paired.margin(quiet, 32, 100) == paired.LEAST
    assert paired.margin(quiet, None, 100) == paired.LEAST
    assert paired.margin(paired.Interval(1.0, 0.99, 1.02), 32, 100) == pytest.approx(0.02)
    assert paired.margin(paired.Interval(1.0, 0.97, 1.02), 32, 100) == pytest.approx(0.03)
    assert paired.margin(quiet, 32, 0.8) == pytest.approx(0.01)  # 8 ns of 800


def test_a_verdict_that_the_span_would_reverse_is_undecided():
    faster = paired.Interval(0.8, 0.79, 0.81)
    assert paired.decide(faster, 0.9, 0.005, 0.01, 0.8, 9.0)[0] == "FASTER"
    assert paired.decide(faster, 1.1, 0.005, 0.01, 0.8, 9.0)[0] == "UNDECIDED"
    slower = paired.Interval(1.25, 1.24, 1.26)
    assert paired.decide(slower, 0.9, 0.005, 0.01, 0.8, 9.0)[0] == "UNDECIDED"
    assert paired.decide(slower, 1.1, 0.005, 0.01, 0.8, 9.0)[0] == "SLOWER"


def test_two_launch_bound_kernels_have_no_winner():
    faster = paired.Interval(0.8, 0.79, 0.81)
    said, why = paired.decide(faster, 0.8, 0.005, 0.01, 0.8, 1.5)
    assert said == "UNDECIDED" and "launch-bound" in why
    assert paired.decide(faster, 0.8, 0.005, 0.01, 0.8, 1.7)[0] == "FASTER"
    assert paired.decide(faster, 0.8, 0.005, 0.01, None, 1.5)[0] == "FASTER"


# -- stopping ---------------------------------------------------------------------------------


def test_sampling_stops_at_the_interval_the_budget_or_the_cap():
    assert paired.stopping(True, 200, 0.01, 0.1, 0.5) == "every interval within 1 %"
    assert paired.stopping(True, paired.FEWEST - 1, 0.01, 0.1, 0.5) == ""
    assert paired.stopping(False, 200, 0.01, 0.1, 0.5) == ""
    assert "budget" in paired.stopping(False, paired.STARVED, 0.01, 0.5, 0.5)
    assert paired.stopping(False, paired.STARVED - 1, 0.01, 9.0, 0.5) == ""
    assert "4,000 rounds" in paired.stopping(False, paired.MOST, 0.01, 0.1, 0.5)


def test_blocks_last_20_ms_and_keep_to_the_budget_and_the_buffer():
    assert paired.next_rounds(0, 0.0001, 8, 0.5) == 200  # 20 ms
    assert paired.next_rounds(200, 0.0001, 8, 0.5) == 200  # twice as many in all
    assert paired.next_rounds(1000, 0.0001, 8, 0.05) == 500  # what the budget still holds
    assert paired.next_rounds(0, 0.1, 8, 0.5) == paired.STARVED  # large kernels: few rounds
    assert paired.next_rounds(0, 0.00001, 40, 0.5) == paired.MOST_RECORDS // 40
    assert paired.next_rounds(3900, 0.0001, 4, 9.0) == 100  # the cap


# -- cutting of records -----------------------------------------------------------------------

LISTS = [[0], [1, 2], [9]]  # one kernel; two kernels; the flush


def test_records_are_cut_along_the_launch_order():
    names = np.array([9, 1, 2, 9, 0])
    starts = np.array([0, 100, 130, 200, 300])
    ends = np.array([90, 120, 160, 290, 307])
    sums, spans = paired.cut(names, starts, ends, np.array([2, 1, 2, 0]), LISTS)
    assert sums.tolist() == [90, 50, 90, 7]
    assert spans.tolist() == [90, 60, 90, 7]


@pytest.mark.parametrize(
    "names, says",
    [
        ([9, 1, 2, 9], "4 device records where 5"),
        ([9, 1, 2, 9, 0, 0], "6 device records where 5"),
        ([9, 1, 2, 9, 1], "record 4 of 5 is of another kernel"),
        ([9, 2, 1, 9, 0], "record 1 of 5 is of another kernel"),
    ],
)
def test_a_count_or_a_name_that_does_not_fit_voids_the_recording(names, says):
    times = np.arange(len(names))
    with pytest.raises(paired.Voided, match=says):
        paired.cut(np.array(names), times, times, np.array([2, 1, 2, 0]), LISTS)


# -- what is refused --------------------------------------------------------------------------


def test_cold_above_dram_bandwidth_is_refused_and_warm_above_half_the_l2():
    assert paired.refuse_cold(5.46, 1 << 24, 4.8e12) == ""
    assert "not cold: 5,592 GB/s, DRAM gives 4,800" in paired.refuse_cold(3.0, 1 << 24, 4.8e12)
    assert paired.refuse_cold(3.0, 1 << 24, 0) == ""  # an unknown card refuses nothing
    assert paired.refuse_warm(30 << 20, 60 << 20) == ""
    assert paired.refuse_warm((30 << 20) + 1, 60 << 20) == "does not fit L2"


def test_slowdowns_are_told_from_a_power_limit():
    cool, hot = paired.CardState(1980, 0), paired.CardState(1200, 0x40)
    assert paired.slowed(cool, hot) == "hardware thermal slowdown"
    assert paired.slowed(hot, cool) == "hardware thermal slowdown"
    assert paired.slowed(cool, paired.CardState(1900, paired.POWER_CAP), None) == ""
    notes = paired.state_notes([cool, replace(hot, reasons=paired.POWER_CAP, others=1)])
    assert len(notes) == 3 and "1,200 and 1,980 MHz" in notes[0] and "1 other process " in notes[2]


def test_peaks_know_what_they_do_not_know():
    assert peaks.peak_flops(CARD, "ieee") == pytest.approx(66.9e12, rel=0.001)
    assert peaks.peak_flops(CARD, "tf32x3") == pytest.approx(peaks.peak_flops(CARD, "tf32") / 3)
    assert peaks.peak_flops(replace(CARD, capability=(13, 0)), "ieee") is None
    assert peaks.peak_flops(CARD, "fp4") is None
    assert peaks.bandwidth_share(CARD, 1 << 24, 5.46) == pytest.approx(0.638, abs=0.001)
    assert peaks.bandwidth_share(replace(CARD, dram_bytes_per_s=0), 1 << 24, 5.46) is None
