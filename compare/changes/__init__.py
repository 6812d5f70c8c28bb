"""What changed between two reports, implementation by implementation: a pure function of both.

Bits are compared by their sha256, machine code number by number, errors as they stand, times as
ratios to yardsticks of the same recording. Where inputs differ nothing is compared; that is said.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from compare.changes.rows import (
    Change,
    Outputs,
    bits_change,
    code_change,
    error_change,
    relative,
    time_change,
    verdict_change,
    yardsticks,
)
from compare.results import Case, Report, Row

DEFAULT = ("bits", "time")  # what makes exit code 3 unless it is asked otherwise
COPY = "device copy"


@dataclass(frozen=True, order=True)
class Key:
    """What makes two rows the same implementation on the same case."""

    pair: str
    shape: tuple[int, ...]
    precision: str
    data: str
    seed: int
    name: str

    @property
    def case(self) -> tuple[Any, ...]:
        return (self.pair, self.shape, self.precision, self.data, self.seed)


@dataclass(frozen=True)
class Held:
    """One implementation that stands in both reports."""

    key: Key
    label: str
    changes: tuple[Change, ...]

    @property
    def moved(self) -> bool:
        return any(change.moved for change in self.changes)


@dataclass(frozen=True)
class Changes:
    """Everything that was held against each other, and what could not be."""

    before: Mapping[str, str]  # versions, driver and card, by name
    after: Mapping[str, str]
    dates: tuple[str, str]
    held: tuple[Held, ...]
    apart: tuple[tuple[str, str], ...] = ()  # what was not compared, and why
    wrong: tuple[str, ...] = ()  # what is not right after
    on: tuple[str, ...] = DEFAULT
    inputs: tuple[int, int] = (0, 0)  # hashes that agree, of how many

    @property
    def counted(self) -> list[tuple[Held, Change]]:
        """The changes that make exit code 3."""
        return [
            (held, change)
            for held in self.held
            for change in held.changes
            if change.moved and change.worse and change.kind in self.on
        ]

    @property
    def exit_code(self) -> int:
        """1 where something is wrong or nothing compared, 3 where what counts changed, else 0."""
        if self.wrong or not self.held:
            return 1
        return 3 if self.counted else 0


def compare_reports(
    before: Report,
    after: Report,
    *,
    on: Collection[str] = DEFAULT,
    outputs: Outputs = lambda sha: None,
    spread: float | None = None,
) -> Changes:
    """What changed from `before` to `after`, by implementation.

    `outputs` gives an output by its sha256 where it was kept, so that elements can be counted.
    `spread` is how far ratios moved between processes of one version, as |log|; where it was not
    measured, `rowchanges.PLACE` stands for it.
    """
    olds, news = (dict(keyed(report)) for report in (before, after))
    cases = [{case_key(case): case for case in report.cases} for report in (before, after)]
    apart, wrong, held = [], [], []
    if before.machine.get("mode") != after.machine.get("mode"):
        modes = [report.machine.get("mode") for report in (before, after)]
        reason = (
            f"one ran on a {modes[0]}, the other on a {modes[1]}: bits and times are of two kinds"
        )
        apart.append(("everything", reason))
        olds, news = {}, {}
    shared = [key for key in cases[0] if key in cases[1]]
    unlike = {key for key in shared if cases[0][key].inputs != cases[1][key].inputs}
    apart += [(case_words(key), "its input bits differ") for key in unlike]
    for side, mine, others in (("before", olds, news), ("after", news, olds)):
        apart += [
            (words(key), f"only {side}")
            for key, (_, row) in mine.items()
            if key not in others and not row.skipped and key.case not in unlike
        ]
    for key, (case, row) in news.items():
        if row.accuracy is not None and not row.accuracy.ok:
            wrong.append(f"{words(key)}: {next(iter(row.accuracy.reasons), 'wrong')}")
        if key not in olds or key.case in unlike:
            continue
        old_case, old = olds[key]
        if old.skipped or row.skipped:
            if not old.skipped:
                wrong.append(f"{words(key)}: ran before, not now: {row.skipped}")
            continue
        found = [
            verdict_change(old, row),
            bits_change(old, row, outputs),
            code_change(old.code, row.code),
            error_change(old, row),
            time_change(old_case, case, key.name, spread),
        ]
        held.append(Held(key, label(row), tuple(change for change in found if change)))
    wrong += [
        f"{case_words(case_key(case))}: {gate}"
        for case in after.cases
        for gate in case.failed_gates
    ]
    pairs = [(a, cases[1][k].inputs.get(n)) for k in shared for n, a in cases[0][k].inputs.items()]
    return Changes(
        facts(before),
        facts(after),
        (before.date, after.date),
        tuple(held),
        tuple(apart),
        tuple(wrong),
        tuple(on),
        (sum(a == b for a, b in pairs), len(pairs)),
    )


def spread_between(one: Report, two: Report) -> float:
    """The largest |log| by which a ratio to a yardstick moved between two runs of one version."""
    others, largest = dict(keyed(two)), 0.0
    for key, (case, _) in keyed(one):
        other = others.get(key)
        for yardstick in yardsticks(case, key.name) if other else ():
            for state in ("cold", "warm"):
                ratios = [relative(each, key.name, yardstick, state) for each in (case, other[0])]  # type: ignore[index]
                if ratios[0] and ratios[1]:
                    largest = max(largest, abs(math.log(ratios[0].value / ratios[1].value)))
    return largest


def agreed(first: Changes, second: Changes) -> Changes:
    """`first` without the changes that `second`, the same comparison once more, does not show."""
    known = {held.key: held for held in second.held}

    def confirmed(held: Held) -> Held:
        again = {c.kind: c for c in known[held.key].changes} if held.key in known else {}

        def either(change: Change) -> Change:
            other = again.get(change.kind)
            alike = other and other.moved and other.said.split()[0] == change.said.split()[0]
            return change if not change.moved or other is None or alike else other

        return replace(held, changes=tuple(map(either, held.changes)))

    wrong = tuple(dict.fromkeys((*first.wrong, *second.wrong)))
    return replace(first, held=tuple(map(confirmed, first.held)), wrong=wrong)


def keyed(report: Report) -> Iterator[tuple[Key, tuple[Case, Row]]]:
    """Every implementation's row; the device copy is a yardstick, not an implementation."""
    for case in report.cases:
        for row in case.rows:
            if row.name != COPY:
                key = Key(case.pair, case.shape, case.precision, case.data, case.seed, row.name)
                yield key, (case, row)


def case_key(case: Case) -> tuple[Any, ...]:
    return (case.pair, case.shape, case.precision, case.data, case.seed)


def case_words(key: Sequence[Any]) -> str:
    pair, shape, precision, data, seed = key
    return f"{pair} {'x'.join(map(str, shape))} {precision}, {data}, seed {seed}"


def words(key: Key) -> str:
    return f"{key.name} ({key.pair} {'x'.join(map(str, key.shape))} {key.precision})"


def label(row: Row) -> str:
    return f"{row.label or row.language} {row.name}"


def facts(report: Report) -> dict[str, str]:
    """Versions, driver and card; what is empty is left out."""
    machine = report.machine
    found = {
        **machine.get("versions", {}),
        "driver": machine.get("driver", ""),
        "card": machine.get("card_name", ""),
    }
    return {name: str(value) for name, value in found.items() if value}


def compare_compiled(before: Any, after: Any, *, on: Collection[str] = ("code",)) -> Changes:
    """What changed between two files of `compiled --json`: machine code alone, for every target.

    Each is JSON: one `compiled.Compilation`, a list of them, or an object that holds such a list.
    ValueError where it is none of these.
    """
    sides = [list(compilations(each)) for each in (before, after)]
    olds, news = (
        {
            Key(c["pair"], tuple(c["shape"]), b["precision"], c["arch"], 0, b["name"]): b
            for c in side
            for b in c["builds"]
        }
        for side in sides
    )
    apart, wrong, held = [], [], []
    for key, built in news.items():
        old = olds.get(key)
        name = f"{key.name} for {key.data}"
        if old is None:
            apart.append((name, "only after"))
        elif not old["codes"] or not built["codes"]:
            if old["codes"]:
                wrong.append(f"{name}: compiled before, not now: {built['skipped']}")
            elif built["codes"]:
                apart.append((name, f"not compiled before: {old['skipped']}"))
        else:
            codes = [{code["kernel"]: code for code in each["codes"]} for each in (old, built)]
            change = code_change(*codes)
            shown = f"{built['language']} {key.name}"
            held.append(Held(key, shown, (change,) if change else ()))
    apart += [(f"{key.name} for {key.data}", "only before") for key in olds if key not in news]
    return Changes(
        before=compilers(sides[0]),
        after=compilers(sides[1]),
        dates=("", ""),
        held=tuple(held),
        apart=tuple(apart),
        wrong=tuple(wrong),
        on=tuple(on),
    )


def compilations(value: Any) -> Iterator[dict[str, Any]]:
    """Every compilation in a JSON value. ValueError where there is none."""
    if isinstance(value, dict) and "builds" in value:
        yield value
        return
    inner = value if isinstance(value, list) else []
    if isinstance(value, dict):
        inner = next((each for each in value.values() if isinstance(each, list)), [])
    if not inner:
        raise ValueError("it holds no compilation")
    for each in inner:
        yield from compilations(each)


def compilers(side: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The compilers' versions by name, where a code says "triton 3.9.0, ptxas 12.9"."""
    found: dict[str, dict[str, None]] = {}
    for compilation in side:
        for built in compilation["builds"]:
            for code in built["codes"]:
                for words in code["compiler"].split(", "):
                    name, _, version = words.partition(" ")
                    found.setdefault(name, {})[version] = None
    return {name: " and ".join(versions) for name, versions in found.items()}
