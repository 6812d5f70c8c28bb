"""Device time that can be trusted: paired, cold and warm, with its own noise floor.

All implementations of a group are timed together. A round launches each once, in a fresh seeded
order; the first is registered twice: how far its two times differ is the floor (an A/A control).
Cold: a buffer of twice the L2 is rewritten before each launch. What is decided is in `paired`, what
touches the card in `recorder`.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from compare.results import Clock, Ratio, Recording, Timing
from compare.timing import paired
from compare.timing.peaks import CardFacts as CardFacts
from compare.timing.peaks import card_facts as card_facts

WARM_UP_S = 0.15  # clocks have settled by then
BUDGET_S = 0.6  # of sampling, for each of cold and warm
MOST_DROPPED = 5  # blocks under slowdown, after which the card is too hot to be timed


@dataclass(frozen=True)
class Launch:
    """`call()` enqueues one run on the current stream. Kernels are compiled, arrays made.

    `bytes_moved` is the least that the call reads and writes, where that is not the operation's.
    """

    name: str
    call: Callable[[], Any]
    bytes_moved: int | None = None


class Recorder(Protocol):
    """How launches become times. `add` gives a reason where it can't time one; `block` gives sums
    and spans (rounds, launches) in us, a column for each added launch, or raises Voided."""

    method: str
    no_cold: str  # why it has no cold figures; "" where it has
    reason: str  # why it is not the better method; "" where it is
    start_seconds: float
    shortest_us: float | None

    def add(self, launch: Launch) -> str: ...
    def kernels(self, name: str) -> tuple[str, ...]: ...
    def records(self, cold: bool) -> int: ...
    def block(self, orders: Sequence[np.ndarray], cold: bool) -> tuple[np.ndarray, np.ndarray]: ...
    def state(self) -> paired.CardState | None: ...
    def wait(self) -> None: ...
    def close(self) -> None: ...


@dataclass(frozen=True)
class Series:
    """What one state gave, or why it gave nothing: sums and spans (rounds, launches) in us, the
    ratio of the A/A control, and those of the pairs."""

    refused: str = ""
    sums: np.ndarray = field(default_factory=lambda: np.empty((0, 0)))
    spans: np.ndarray = field(default_factory=lambda: np.empty((0, 0)))
    control: paired.Interval | None = None
    ratios: Mapping[tuple[str, str], paired.Interval] = field(default_factory=dict)
    tick: int | None = None
    stopped: str = ""
    dropped: int = 0
    states: tuple[paired.CardState, ...] = ()

    @property
    def floor(self) -> float | None:
        return None if self.control is None else abs(self.control.value - 1)


def measure(
    launches: Sequence[Launch],
    *,
    pairs: Sequence[tuple[str, str]],
    card: CardFacts,
    bytes_touched: int,
    bytes_moved: int,
    interval: float = 0.01,
    budget_s: float = BUDGET_S,
    seed: int = 0,
    recorder: Recorder | None = None,
) -> Recording:
    """Times the launches together, on the current stream, and compares the pairs (name, against).

    `bytes_touched` are those of inputs and output, which decide whether warm can be claimed;
    `bytes_moved` the least that the operation reads and writes, which checks a cold figure.
    `interval` is the width of a ratio's 95 % interval at which sampling stops, `budget_s` the
    seconds after which it stops anyway, for each of cold and warm. Closes the recorder.
    """
    started = time.perf_counter()
    if recorder is None:
        from compare.timing.recorder import open_recorder

        recorder = open_recorder(card)
    with contextlib.closing(recorder):
        round_s = warm_up(launches, recorder)
        refused = {launch.name: why for launch in launches if (why := recorder.add(launch))}
        timed = [launch for launch in launches if launch.name not in refused]
        for launch in timed[:1]:
            recorder.add(Launch(f"{launch.name} (A/A control)", launch.call))
        names = [launch.name for launch in timed] + ["(A/A control)"]
        wanted = [pair for pair in pairs if not refused.keys() & set(pair)]
        notes = [recorder.reason]
        too_large = paired.refuse_warm(bytes_touched, card.l2_bytes)
        if recorder.no_cold and too_large:  # a graph's launches back to back are all there is
            notes.append("inputs and output do not fit L2, so warm is not from L2 alone")
            too_large = ""
        series = {}
        for state, reason in (("cold", recorder.no_cold), ("warm", too_large)):
            reason = reason or ("" if timed else "nothing can be timed")
            series[state] = (
                Series(reason)
                if reason
                else sample(recorder, names, wanted, state, interval, budget_s, round_s, seed)
            )
        wrong = impossible(series["cold"], timed, bytes_moved, card)
        kernels = {name: recorder.kernels(name) for name in names[:-1]}
    seen = [state for each in series.values() for state in each.states]
    notes += paired.state_notes(seen) if seen else ("clocks and slowdowns were not read",)
    return Recording(
        clock_of(recorder, series, tuple(filter(None, notes)), time.perf_counter() - started),
        {
            launch.name: Timing(no_cold=refused[launch.name], no_warm=refused[launch.name])
            if launch.name in refused
            else timing_of(
                names.index(launch.name), series, kernels[launch.name], wrong.get(launch.name, "")
            )
            for launch in launches
        },
        tuple(
            ratio_of(pair, names, state, each, interval, recorder.shortest_us)
            for state, each in series.items()
            for pair in each.ratios
            if state == "warm" or not wrong.keys() & set(pair)
        ),
    )


def warm_up(launches: Sequence[Launch], recorder: Recorder) -> float:
    """Runs everything for WARM_UP_S, at least twice. The seconds that one round takes."""
    started, rounds = time.perf_counter(), 0
    while (spent := time.perf_counter() - started) < WARM_UP_S or rounds < 2:
        for launch in launches:
            launch.call()
        recorder.wait()
        rounds += 1
    return spent / rounds


def sample(
    recorder: Recorder,
    names: Sequence[str],
    pairs: Sequence[tuple[str, str]],
    state: str,
    wanted: float,
    budget_s: float,
    round_s: float,
    seed: int,
) -> Series:
    """Blocks of rounds until the intervals are narrow enough or the budget is spent.

    `names` are the recorder's columns: the first implementation leads, its A/A control is last.
    """
    cold = state == "cold"
    random = np.random.default_rng((seed, cold))
    sums, spans = np.empty((2, 0, len(names)))
    states: list[paired.CardState] = []
    dropped = voided = 0
    started = time.perf_counter()
    while True:
        left = budget_s - (time.perf_counter() - started)
        count = paired.next_rounds(len(sums), round_s, recorder.records(cold), left)
        orders = [random.permutation(len(names)) for _ in range(count)]
        before, began = recorder.state(), time.perf_counter()
        try:
            block = recorder.block(orders, cold)
        except paired.Voided as error:
            voided += 1
            if voided == 2:
                return Series(f"can't be cut: {error}", dropped=dropped, states=tuple(states))
            continue
        round_s = (time.perf_counter() - began) / count
        after = recorder.state()
        if reason := paired.slowed(before, after):
            dropped += 1
            if dropped == MOST_DROPPED:
                return Series(f"card slowed: {reason}", dropped=dropped, states=tuple(states))
            continue
        states += [seen for seen in (before, after) if seen]
        sums, spans = np.concatenate((sums, block[0])), np.concatenate((spans, block[1]))
        drawn = paired.draws(len(sums), seed)
        control = paired.interval(sums[:, 0], sums[:, -1], drawn)
        ratios = {}
        if narrow := control.width <= wanted / 2:  # else the pairs' intervals are not worth asking
            ratios = ratios_of(sums, names, pairs, drawn)
        stop = paired.stopping(
            narrow and all(ratio.width <= wanted for ratio in ratios.values()),
            len(sums),
            wanted,
            time.perf_counter() - started,
            budget_s,
        )
        if stop:
            ratios = ratios or ratios_of(sums, names, pairs, drawn)
            ticks = paired.tick(np.rint(1000 * sums[:, [0, -1]]).astype(np.int64).ravel())
            return Series("", sums, spans, control, ratios, ticks, stop, dropped, tuple(states))


def ratios_of(
    sums: np.ndarray, names: Sequence[str], pairs: Sequence[tuple[str, str]], drawn: np.ndarray
) -> dict[tuple[str, str], paired.Interval]:
    columns = dict(zip(names, sums.T, strict=True))
    return {(a, b): paired.interval(columns[a], columns[b], drawn) for a, b in pairs}


def impossible(
    series: Series, launches: Sequence[Launch], bytes_moved: int, card: CardFacts
) -> dict[str, str]:
    """Launches whose cold figure can't be, and why."""
    if series.control is None:
        return {}
    times = paired.centre(series.sums)[: len(launches)]
    reasons = {
        launch.name: paired.refuse_cold(
            float(us),
            bytes_moved if launch.bytes_moved is None else launch.bytes_moved,
            card.dram_bytes_per_s,
        )
        for launch, us in zip(launches, times, strict=True)
    }
    return {name: reason for name, reason in reasons.items() if reason}


def ratio_of(
    pair: tuple[str, str],
    names: Sequence[str],
    state: str,
    series: Series,
    wanted: float,
    shortest: float | None,
) -> Ratio:
    """Time of the first / time of the second, with its verdict."""
    columns = [list(names).index(name) for name in pair]
    if series.control is None:
        raise ValueError(f"{state} has no control, so {pair[0]} can not be held against {pair[1]}")
    sums, us = series.ratios[pair], paired.centre(series.sums[:, columns])
    left, right = series.spans[:, columns].T
    spans = float(np.exp(paired.centre(np.log(left / right))))
    floor = paired.margin(series.control, series.tick, float(us.min()))
    said, why = paired.decide(sums, spans, floor, wanted, shortest, float(us.max()))
    return Ratio(*pair, state, sums.value, sums.low, sums.high, said, why)


def timing_of(
    column: int, series: Mapping[str, Series], kernels: tuple[str, ...], wrong: str
) -> Timing:
    """One implementation's times, or the reasons; `wrong` is why its cold figure can't be."""
    cold, warm = (
        paired.summarise(each.sums[:, column], each.spans[:, column], len(kernels) or 1)
        if each.control
        else None
        for each in (series["cold"], series["warm"])
    )
    no_cold = wrong or series["cold"].refused
    return Timing(None if wrong else cold, warm, no_cold, series["warm"].refused, kernels)


def clock_of(
    recorder: Recorder, series: Mapping[str, Series], notes: tuple[str, ...], seconds: float
) -> Clock:
    """How the group was timed."""
    cold, warm = series["cold"], series["warm"]
    clocks = [s.clock_mhz for each in series.values() for s in each.states if s.clock_mhz]
    return Clock(
        recorder.method,
        cold.floor,
        warm.floor,
        warm.tick or cold.tick,
        max(len(cold.sums), len(warm.sums)),
        "; ".join(f"{state} {each.stopped}" for state, each in series.items() if each.stopped),
        cold.dropped + warm.dropped,
        seconds,
        recorder.start_seconds,
        notes,
        len(cold.sums),
        len(warm.sums),
        (min(clocks), max(clocks)) if clocks else None,
    )
