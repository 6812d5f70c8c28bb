"""What paired times mean: centre, interval, verdict, when to stop, and which records are whose.

Pure functions of numbers. A round launches every implementation once, in an order of its own, so
column i of a (rounds, implementations) array is one implementation and a row is one round.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from compare.results import Sample

TRIM = 0.1  # a tenth off either end: the middle 80 % is left
RESAMPLES = 1000  # bootstrap draws; their 2.5 % and 97.5 % points have a noise of 4 % of the width
CONFIDENCE = 0.95
LEAST = 0.005  # nothing is called FASTER or SLOWER by less: the most that an A/A run may be off
FEWEST, MOST = 40, 4000  # rounds
STARVED = 10  # rounds that are enough where the budget is spent: kernels of many milliseconds
MOST_RECORDS = 20_000  # device records in one block: 5 MB of CUPTI's, under one buffer


class Voided(Exception):
    """A recording that can't be cut: the sentence says where it departs from the launch order."""


def centre(values: np.ndarray) -> np.ndarray:
    """Mean of the middle 80 % along the first axis; of all where there are fewer than 10."""
    cut = int(TRIM * len(values))
    return np.sort(values, axis=0)[cut : len(values) - cut].mean(axis=0)


def summarise(us: np.ndarray, span: np.ndarray | None = None, kernels: int = 1) -> Sample:
    """One implementation's times (rounds,), us, as a Sample; `span` where kernels != 1."""
    q1, median, q3 = np.percentile(us, [25, 50, 75])
    whole = None if span is None or kernels == 1 else float(centre(span))
    return Sample(float(centre(us)), float(q1), float(median), float(q3), len(us), kernels, whole)


@dataclass(frozen=True)
class Interval:
    """A ratio of times and its 95 % interval."""

    value: float
    low: float
    high: float

    @property
    def width(self) -> float:
        return (self.high - self.low) / self.value


def draws(rounds: int, seed: int) -> np.ndarray:
    """RESAMPLES draws of `rounds` round numbers with replacement, each sorted: (draws, rounds).

    Sorted as 16-bit numbers, since numpy sorts those by radix: a trimmed mean of a sorted sample
    then needs no sort of its own, for any number of ratios.
    """
    drawn = np.random.default_rng(seed).integers(0, rounds, (RESAMPLES, rounds), dtype=np.uint16)
    drawn.sort(axis=1, kind="stable")
    return drawn


def interval(left: np.ndarray, right: np.ndarray, drawn: np.ndarray) -> Interval:
    """Time of `left` / time of `right` (rounds,), with its interval over resampled rounds.

    The middle-80 % mean of the within-round log ratios, so that (a, b) is exactly 1 / (b, a);
    percentile bootstrap (Efron and Tibshirani, An Introduction to the Bootstrap, ch. 13).
    """
    logs = np.sort(np.log(left / right))
    cut = int(TRIM * len(logs))
    means = logs[drawn[:, cut : len(logs) - cut]].mean(axis=1)
    tail = 50 * (1 - CONFIDENCE)
    low, high = np.percentile(means, [tail, 100 - tail])
    return Interval(*(float(np.exp(x)) for x in (centre(logs), low, high)))


def tick(durations: np.ndarray) -> int | None:
    """The step of the clock in ns, from many durations in whole ns; None where none shows.

    Durations that differ by at most 2 ns are one value (the driver rounds); the smallest step
    between values that are no rarity is the tick if 95 % of the durations are multiples of it.
    """
    values, counts = np.unique(np.asarray(durations, np.int64), return_counts=True)
    groups = np.split(np.arange(len(values)), np.flatnonzero(np.diff(values) > 2) + 1)
    common = [g for g in groups if counts[g].sum() >= max(2, 0.01 * counts.sum())]
    if len(common) < 3:
        return None
    middles = np.array([np.average(values[g], weights=counts[g]) for g in common])
    step = round(float(np.diff(middles).min()))
    off = np.abs(durations - np.round(durations / step) * step)
    return step if step > 4 and np.mean(off <= 2) >= 0.95 else None


def margin(control: Interval, tick_ns: float | None, us: float) -> float:
    """The share below which no difference is called: as far as the A/A control's interval reaches
    from 1, at least LEAST, at least a quarter of a tick of the shorter time."""
    reach = max(abs(control.low - 1), abs(control.high - 1))
    return max(reach, LEAST, (tick_ns or 0) / 4 / (1000 * us))


def verdict(ratio: Interval, floor: float, wanted: float) -> tuple[str, str]:
    """FASTER, SLOWER, SAME or UNDECIDED, said of the ratio's numerator, and why it is undecided.

    `floor` is the margin below which nothing is called, `wanted` the width that sampling aims at:
    an interval that lies wholly within the larger of both around 1 is SAME.
    """
    if ratio.high < 1 - floor:
        return "FASTER", ""
    if ratio.low > 1 + floor:
        return "SLOWER", ""
    same = max(floor, wanted)
    if 1 - same <= ratio.low and ratio.high <= 1 + same:
        return "SAME", ""
    return "UNDECIDED", f"the interval reaches into the noise floor of {100 * floor:.1g} %"


def decide(
    sums: Interval, spans: float, floor: float, wanted: float, shortest: float | None, longer: float
) -> tuple[str, str]:
    """The verdict on two implementations, with what takes it back.

    `sums` is the ratio of the kernels' own times, `spans` that of first start to last end;
    `shortest` the time of the shortest kernel the card runs and `longer` the longer of the two, us.
    """
    said, why = verdict(sums, floor, wanted)
    if shortest is not None and longer < 2 * shortest:
        return (
            "UNDECIDED",
            f"launch-bound: both take under twice the shortest kernel, {shortest:.1f} us",
        )
    if (said == "FASTER" and spans > 1) or (said == "SLOWER" and spans < 1):
        return "UNDECIDED", "the gaps between its kernels reverse it: see the span"
    return said, why


def stopping(narrow: bool, rounds: int, wanted: float, spent: float, budget: float) -> str:
    """Why sampling stops now; "" where it goes on.

    `narrow`: every pair's interval is at most `wanted` wide and the A/A control's at most half of
    that, so that the floor is known better than what is held against it. Times in seconds.
    """
    if rounds >= FEWEST and narrow:
        return f"every interval within {100 * wanted:g} %"
    if rounds >= MOST:
        return f"after {MOST:,} rounds"
    if rounds >= STARVED and spent >= budget:
        return f"at the budget of {budget:g} s"
    return ""


def next_rounds(
    done: int, round_seconds: float, records: int, left_seconds: float, least_seconds: float = 0.02
) -> int:
    """Rounds of the next block: at least 20 ms of them, as many as are there already, no more than
    the budget and one buffer of records hold. `records` is how many one round makes."""
    long_enough = int(np.ceil(least_seconds / round_seconds))
    wanted = max(done, long_enough, FEWEST - done)
    affordable = max(int(left_seconds / round_seconds), STARVED - done, long_enough, 1)
    return max(1, min(wanted, affordable, MOST_RECORDS // records, MOST - done or 1))


def cut(
    names: np.ndarray,
    starts: np.ndarray,
    ends: np.ndarray,
    sequence: np.ndarray,
    lists: Sequence[Sequence[int]],
) -> tuple[np.ndarray, np.ndarray]:
    """Sums and spans, ns, of every launch of `sequence`, from device records sorted by start.

    `names` are numbers of kernel names (records,), `sequence` numbers of launches in launch order,
    and `lists[i]` the names that launch i makes when it runs alone. Voided where a count or a name
    does not fit.
    """
    lengths = np.array([len(kernels) for kernels in lists])[sequence]
    if not len(sequence) or lengths.min() < 1:
        raise Voided("a launch leaves no device record")
    expected = np.concatenate([np.asarray(lists[i]) for i in sequence])
    if len(names) != len(expected):
        raise Voided(f"{len(names):,} device records where {len(expected):,} were expected")
    if (wrong := np.flatnonzero(names != expected)).size:
        raise Voided(f"device record {wrong[0]:,} of {len(names):,} is of another kernel")
    first = np.concatenate(([0], np.cumsum(lengths)[:-1]))
    sums = np.add.reduceat(ends - starts, first)
    spans = np.maximum.reduceat(ends, first) - starts[first]
    return sums.astype(np.float64), spans.astype(np.float64)


SLOWDOWN = {  # NVML's clock event reasons under which a block is dropped
    0x08: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}
POWER_CAP = 0x04  # a card at its power limit: both sides alike, so noted and kept


@dataclass(frozen=True)
class CardState:
    """What NVML says of the card now: SM clock in MHz, clock event reasons, other processes."""

    clock_mhz: int = 0
    reasons: int = 0
    others: int = 0


def slowed(*states: CardState | None) -> str:
    """The slowdown that the card was under, "" for none."""
    bits = 0
    for state in states:
        bits |= state.reasons if state else 0
    return ", ".join(word for bit, word in SLOWDOWN.items() if bits & bit)


def state_notes(states: Sequence[CardState]) -> tuple[str, ...]:
    """What a reader must know of the card during a recording."""
    notes = []
    clocks = [state.clock_mhz for state in states if state.clock_mhz]
    if clocks and min(clocks) < 0.95 * max(clocks):
        notes.append(f"the SM clock moved between {min(clocks):,} and {max(clocks):,} MHz")
    if any(state.reasons & POWER_CAP for state in states):
        notes.append("the card was at its power limit")
    if others := max((state.others for state in states), default=0):
        notes.append(f"{others} other process{'es' if others > 1 else ''} on the card")
    return tuple(notes)


def refuse_cold(us: float, bytes_moved: int, dram_bytes_per_s: float) -> str:
    """A cold figure above the card's theoretical DRAM bandwidth is an error of measurement."""
    rate = bytes_moved / us * 1e6
    if dram_bytes_per_s and rate > dram_bytes_per_s:
        return f"not cold: {rate / 1e9:,.0f} GB/s, DRAM gives {dram_bytes_per_s / 1e9:,.0f}"
    return ""


def refuse_warm(bytes_touched: int, l2_bytes: int) -> str:
    """Warm is claimed where inputs and output fit in half the L2."""
    return "" if 2 * bytes_touched <= l2_bytes else "does not fit L2"
