"""The command `selftest`: every planted fault must be caught, and no correct result rejected.

Wrong and right kernels go the way of any other: fenced and poisoned buffers, inputs compared
afterwards, the verdict of `accuracy`, the exact probes. On a card its own kernels run too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from compare import accuracy
from compare.device import Bench, Broken, stream
from compare.machine import Machine, Seen
from compare.pair import Arrays, Implementation, Pair, Probe, Reference, Shape
from compare.results import Check
from compare.selftest.correct import correct
from compare.selftest.planted import FORM, GUARD, Planted, all_planted, in_barriers, in_matmul
from cuda_ref.emulator.build import KernelError

SEED = 20260901
SMALL = {"softmax": (24, 259), "matmul": (67, 41, 131)}  # shapes on which every family of data runs


@dataclass(frozen=True)
class Trial:
    """One kernel and what became of it. `expected` names the check that must fail; "" for a right
    kernel, of which none may."""

    what: str
    pair: str
    shape: Shape
    precision: str
    data: str
    expected: str
    failed: tuple[str, ...]
    reason: str = ""
    loose: bool = False  # the scaled tolerance, which gates nothing, would have let it pass

    @property
    def ok(self) -> bool:
        return self.expected in self.failed if self.expected else not self.failed


@dataclass(frozen=True)
class Outcome:
    """All trials, faults first, and how long they took."""

    trials: tuple[Trial, ...]
    seconds: float
    skipped: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return all(trial.ok for trial in self.trials)

    def of(self, planted: bool) -> list[Trial]:
        return [trial for trial in self.trials if bool(trial.expected) == planted]


@dataclass
class Stand:
    """One pair, shape, precision and data with its buffers: made once, used by many kernels."""

    machine: Machine
    pair: Pair
    shape: Shape
    precision: str
    data: str
    inputs: Arrays = field(init=False)
    reference: Reference = field(init=False)
    bench: Bench = field(init=False)
    probes: list[tuple[Probe, Bench]] = field(init=False)

    def __post_init__(self) -> None:
        self.inputs = self.pair.inputs(self.shape, self.data, SEED)
        self.reference = self.pair.reference(self.inputs, self.shape, SEED)
        self.bench = Bench(self.machine, self.inputs, self.pair.output_shape(self.shape))
        trials = self.pair.probes(self.shape, self.precision, SEED)
        self.probes = [
            (probe, Bench(self.machine, probe.inputs, probe.want.shape)) for probe in trials
        ]

    def failures(self, implementation: Implementation, runs: int = 1) -> list[Check]:
        """Every check that a kernel fails here, run `runs` times in a row."""
        failed: list[Check] = []
        bounds = self.pair.bounds(self.reference, implementation, self.data, self.shape)
        try:
            with np.errstate(all="ignore"):
                for _ in range(runs):
                    got = self.bench.run(implementation)
                    failed += accuracy.judge(got, self.reference, bounds).checks
                for probe, bench in self.probes:
                    got = bench.run(implementation)
                    failed.append(accuracy.exact(got, probe.want, probe.name))
        except Broken as broken:
            failed.append(Check(GUARD, False, reason=str(broken)))
        return [check for check in failed if not check.passed]


class Stands:
    """The stands of one machine, made when they are first asked for; one pair and shape is kept."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.pairs = {name: import_module(f"compare.pairs.{name}").PAIR for name in SMALL}
        self._kept: dict[Any, Stand] = {}

    def at(self, pair: str, shape: Shape, precision: str, data: str) -> Stand:
        key = (pair, shape, precision, data)
        if key not in self._kept:
            if len(self._kept) > 3:
                self._kept.clear()
            self._kept[key] = Stand(self.machine, self.pairs[pair], shape, precision, data)
        return self._kept[key]


def run(
    machine: Machine | None = None, progress: Callable[[str], None] = lambda _: None
) -> Outcome:
    """Every trial: numpy kernels always, those of a prepared `machine` where one is given."""
    started = time.perf_counter()
    trials, skipped = [], []
    host = Stands(Machine("host", Seen()))
    planted = all_planted()
    try:
        planted += in_barriers()
    except KernelError as error:
        skipped.append(f"a barrier missing: {error}")
    for fault in planted:
        progress(f"fault: {fault.what}")
        trials.append(plant(host, fault))
    for case in correct(SMALL):
        progress(f"correct: {case.what}")
        stand = host.at(case.pair, case.shape, case.precision, case.data)
        trials.append(_trial(stand, case.what, "", stand.failures(case.implementation())))
    if machine is not None:
        with stream(machine):
            trials += own(machine, progress)
    trials.sort(key=lambda trial: not trial.expected)
    return Outcome(tuple(trials), time.perf_counter() - started, tuple(skipped))


def plant(stands: Stands, fault: Planted) -> Trial:
    """One fault through everything that could catch it."""
    stand = stands.at(fault.pair, fault.at, fault.precision, fault.data)
    implementation = Implementation(
        fault.what, "cuda", fault.kernel, arrays=fault.arrays, precision=fault.precision
    )
    if fault.check == FORM:  # the workbench's buffer has the right form: what is returned has not
        got: Any = fault.kernel(*stand.inputs.values(), None)
        bounds = stand.pair.bounds(stand.reference, implementation, stand.data, stand.shape)
        failed = [c for c in accuracy.judge(got, stand.reference, bounds).checks if not c.passed]
    else:
        failed = stand.failures(implementation, runs=2 if "stale" in fault.what else 1)
    return _trial(stand, fault.what, fault.check, failed)


def _trial(stand: Stand, what: str, expected: str, failed: Sequence[Check]) -> Trial:
    gating = [check for check in failed if check.gates]
    told = next((c for c in gating if c.name == expected or not expected), None)
    return Trial(
        what,
        stand.pair.name,
        stand.shape,
        stand.precision,
        stand.data,
        expected,
        failed=tuple(dict.fromkeys(check.name for check in gating)),
        reason=told.reason if told else "",
        loose=not any(check.name in ("scaled tolerance", GUARD, FORM) for check in failed),
    )


def own(machine: Machine, progress: Callable[[str], None]) -> Iterator[Trial]:
    """The machine's own kernels on every family of data, and faults planted around a card's."""
    stands = Stands(machine)
    for pair in stands.pairs.values():
        for kernel in pair.implementations:
            if machine.lacks(kernel.needs, kernel.arrays):
                continue
            for data in pair.data:
                progress(f"correct: {kernel.name}, {data}")
                stand = stands.at(pair.name, SMALL[pair.name], kernel.precision, data)
                yield _trial(stand, f"{kernel.name}, {machine.mode}", "", stand.failures(kernel))
            if machine.on_card and pair.name == "matmul" and kernel.language == "triton":
                product = partial(kernel.function(), **kernel.options)
                for fault in in_matmul(product, kernel.precision, arrays="torch"):
                    progress(f"fault: {fault.what}, card")
                    yield plant(stands, replace(fault, what=f"{fault.what}, card"))


def lines(outcome: Outcome) -> list[str]:
    """The screen: a row for every fault, one for each kind of correct result, the count last."""
    out = ["PLANTED FAULTS   each must be rejected by the check named beside it"]
    head = ""
    for trial in outcome.of(planted=True):
        shape = "x".join(map(str, trial.shape))
        title = f"{trial.pair} {trial.precision}"
        if title != head:
            out += ["", f"  {title:<42} {'shape':<14} {'data':<10} check"]
            head = title
        verdict = "caught" if trial.ok else "MISSED"
        out.append(
            f"  {trial.what:<42} {shape:<14} {trial.data:<10} {trial.expected:<18} {verdict}"
        )
    out += ["", "CORRECT RESULTS   none may be rejected", ""]
    groups: dict[tuple[str, str, str], list[Trial]] = {}
    for trial in outcome.of(planted=False):
        groups.setdefault((trial.pair, trial.precision, trial.what), []).append(trial)
    for (pair, precision, what), trials in groups.items():
        passed = sum(trial.ok for trial in trials)
        title = f"{pair} {precision}"
        out.append(f"  {title:<14} {what:<52} {passed} of {len(trials)} families of data")
        for trial in trials:
            if not trial.ok:
                out.append(f"    REJECTED on {trial.data}: {trial.failed[0]}: {trial.reason}"[:100])
    faults, right = outcome.of(planted=True), outcome.of(planted=False)
    caught = sum(trial.ok for trial in faults)
    rejected = sum(not trial.ok for trial in right)
    loose = sum(trial.loose for trial in faults)
    out += ["", *(f"  not run   {text}" for text in outcome.skipped)]
    out.append(f"  for comparison: the scaled tolerance alone lets {loose} of these faults pass")
    verdict = f"{caught} of {len(faults)} faults caught, {rejected} of {len(right)} correct results"
    out.append(f"{verdict} rejected   {outcome.seconds:.1f} s   exit {0 if outcome.ok else 1}")
    return [line.rstrip() for line in out]


def command(
    machine: Machine | None, progress: Callable[[str], None] = lambda _: None
) -> tuple[list[str], int]:
    """The screen and the exit code: 1 where a fault is missed or a correct result rejected."""
    outcome = run(machine, progress)
    return lines(outcome), 0 if outcome.ok else 1
