"""Time, on a recorder that plays a card: what is sampled, dropped, refused and said."""

from __future__ import annotations

import numpy as np
import pytest

from compare import timing
from compare.results import from_json, to_json
from compare.timing import paired

CARD = timing.CardFacts(0, "NVIDIA H200", (9, 0), 132, 60 << 20, 1980, 4.814e12, "GPU-0")


def nothing():
    pass


class Played:
    """A recorder whose launches take the times it is told, with noise; `events` come first."""

    method, no_cold, reason, start_seconds, shortest_us = "CUPTI", "", "", 0.03, 0.8

    def __init__(self, us, noise=0.02, events=(), states=(), refuses=(), gap=0.0):
        self.us, self.noise, self.gap = us, noise, gap
        self.events, self.states, self.refuses = list(events), list(states), refuses
        self.added, self.rounds, self.closed = [], 0, False
        self.random = np.random.default_rng(7)

    def add(self, launch):
        if launch.name in self.refuses:
            return "needs CUPTI"
        self.added.append(launch.name.replace(" (A/A control)", ""))
        return ""

    def kernels(self, name):
        return ("first", "second") if self.gap and name == "slow" else ("kernel",)

    def records(self, cold):
        return len(self.added) * (1 + cold)

    def block(self, orders, cold):
        if self.events and (event := self.events.pop(0)):
            raise paired.Voided(event)
        self.rounds += len(orders)
        times = np.array([self.us[name] * (1.5 if cold else 1) for name in self.added])
        sums = times * self.random.lognormal(0, self.noise, (len(orders), len(times)))
        spans = sums + self.gap * np.array([name == "slow" for name in self.added])
        return sums, spans

    def state(self):
        return self.states.pop(0) if self.states else paired.CardState(1980)

    def wait(self):
        pass

    def close(self):
        self.closed = True


def play(recorder, *, touched=1 << 20, moved=1 << 20, budget_s=60, **more):
    launches = [timing.Launch(name, nothing) for name in recorder.us]
    names = list(recorder.us)
    wanted = [(names[0], name) for name in names[1:]]
    return timing.measure(
        launches,
        pairs=wanted,
        card=CARD,
        bytes_touched=touched,
        bytes_moved=moved,
        budget_s=budget_s,
        recorder=recorder,
        **more,
    )


@pytest.fixture(autouse=True)
def no_clock(monkeypatch):
    """How many rounds are played depends on nothing that this machine does meanwhile."""
    monkeypatch.setattr(timing, "WARM_UP_S", 0)
    monkeypatch.setattr(
        paired, "next_rounds", lambda done, *ignored: min(done or 40, paired.MOST - done)
    )


def test_a_group_is_timed_cold_and_warm_with_its_floor():
    recorder = Played({"fast": 4.0, "slow": 8.0, "again": 4.0})
    found = play(recorder, seed=11)
    assert recorder.closed
    assert found.timings["slow"].warm.us == pytest.approx(8, rel=0.01)
    assert found.timings["slow"].cold.us == pytest.approx(12, rel=0.01)
    assert {(r.against, r.state): r.verdict for r in found.ratios} == {
        ("slow", "cold"): "FASTER",
        ("slow", "warm"): "FASTER",
        ("again", "cold"): "SAME",
        ("again", "warm"): "SAME",
    }
    assert found.clock.floor_cold < 0.005 and found.clock.floor_warm < 0.005
    assert "cold every interval within 1 %" in found.clock.stopped
    assert found.clock.rounds_cold + found.clock.rounds_warm == recorder.rounds
    assert found.clock.clock_mhz == (1980, 1980)
    assert from_json(type(found), to_json(found)) == found


def test_noise_is_sampled_longer_and_the_budget_ends_it():
    quiet = play(Played({"fast": 4.0, "slow": 8.0}, noise=0.001))
    noisy = play(Played({"fast": 4.0, "slow": 8.0}, noise=0.05))
    assert quiet.clock.rounds < noisy.clock.rounds
    endless = play(Played({"fast": 4.0, "slow": 4.04}, noise=1.0), budget_s=0)
    assert "cold at the budget of 0 s" in endless.clock.stopped
    assert endless.ratios[0].verdict == "UNDECIDED" and endless.ratios[0].reason


def test_the_control_alone_keeps_sampling_until_the_floor_is_known():
    wide = timing.measure(
        [timing.Launch("a", nothing)],
        pairs=(),
        card=CARD,
        bytes_touched=0,
        bytes_moved=0,
        budget_s=60,
        recorder=Played({"a": 4.0}, noise=0.05),
    )
    assert wide.clock.rounds_cold > 1000  # 5 % of noise: 4 * 0.05 * 1.4 / sqrt(n) < 0.5 %
    assert wide.ratios == ()


def test_a_voided_recording_is_repeated_once_and_then_refused():
    once = play(Played({"a": 4.0, "b": 8.0}, events=["7 device records where 8 were expected"]))
    assert once.timings["a"].cold is not None
    twice = play(Played({"a": 4.0, "b": 8.0}, events=["one", "two"]))
    assert twice.timings["a"].cold is None and twice.timings["a"].no_cold == "can't be cut: two"
    assert twice.timings["a"].warm is not None
    assert {ratio.state for ratio in twice.ratios} == {"warm"}


def test_a_block_under_slowdown_is_dropped_whole_and_counted():
    cool, hot = paired.CardState(1980), paired.CardState(1100, 0x20)
    recorder = Played({"a": 4.0, "b": 8.0}, states=[cool, hot])
    found = play(recorder)
    assert found.clock.dropped_blocks == 1
    assert found.clock.rounds_cold + found.clock.rounds_warm < recorder.rounds
    refused = play(Played({"a": 4.0, "b": 8.0}, states=[hot] * 10))
    assert refused.timings["a"].no_cold == "card slowed: software thermal slowdown"
    assert refused.clock.dropped_blocks == timing.MOST_DROPPED


def test_an_impossible_cold_figure_is_refused_and_warm_kept():
    found = play(Played({"a": 4.0, "b": 40.0, "c": 40.0}), moved=1 << 26)
    assert found.timings["a"].cold is None and "not cold" in found.timings["a"].no_cold
    assert found.timings["a"].warm is not None and found.timings["b"].cold is not None
    assert {ratio.state for ratio in found.ratios} == {"warm"}  # both are against a


def test_a_launch_that_moves_other_bytes_says_so():
    launches = [timing.Launch("a", nothing), timing.Launch("copy", nothing, bytes_moved=1 << 20)]
    found = timing.measure(
        launches,
        pairs=[("copy", "a")],
        card=CARD,
        bytes_touched=0,
        bytes_moved=1 << 26,
        budget_s=60,
        recorder=Played({"a": 40.0, "copy": 4.0}),
    )
    assert found.timings["copy"].cold is not None and found.timings["a"].cold is not None


def test_warm_is_not_claimed_of_what_does_not_fit():
    found = play(Played({"a": 40.0, "b": 80.0}), touched=48 << 20)
    assert found.timings["a"].warm is None and found.timings["a"].no_warm == "does not fit L2"
    assert found.clock.floor_warm is None and found.clock.rounds_warm == 0


def test_a_span_that_reverses_the_sum_leaves_it_undecided():
    found = play(Played({"slow": 4.0, "other": 5.0}, gap=9.0))
    warm = next(ratio for ratio in found.ratios if ratio.state == "warm")
    assert warm.verdict == "UNDECIDED" and "span" in warm.reason
    assert found.timings["slow"].warm.kernels == 2
    assert found.timings["slow"].warm.span == pytest.approx(13, rel=0.01)
    assert found.timings["other"].warm.span is None


def test_without_cupti_every_implementation_has_one_method_and_no_cold():
    recorder = Played({"a": 4.0, "b": 8.0, "library": 3.0}, refuses=("library",))
    recorder.method, recorder.no_cold = "CUDA graph", "needs CUPTI"
    recorder.reason = "another profiler holds CUPTI: run without it"
    found = play(recorder, touched=48 << 20)
    assert found.clock.method == "CUDA graph" and recorder.reason in found.clock.notes
    assert found.timings["a"].no_cold == "needs CUPTI" and found.timings["a"].warm is not None
    assert any("do not fit L2" in note for note in found.clock.notes)
    assert found.timings["library"].warm is None
    assert found.timings["library"].no_warm == "needs CUPTI"
    assert [(ratio.against, ratio.state) for ratio in found.ratios] == [("b", "warm")]


def test_orders_are_fresh_in_each_round_and_repeat_with_the_seed():
    seen = []

    class Watching(Played):
        def block(self, orders, cold):
            seen.append([tuple(order) for order in orders])
            return super().block(orders, cold)

    play(Watching({"a": 4.0, "b": 8.0}, noise=0.001), seed=5)
    assert len(set(seen[0])) == 6  # every order of a, b and the control
    first = seen[0][:30]
    seen.clear()
    play(Watching({"a": 4.0, "b": 8.0}, noise=0.001), seed=5)
    assert seen[0][:30] == first
