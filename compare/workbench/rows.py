"""What became of each implementation: run, probed, its machine code read."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from compare import accuracy
from compare.blackbox import BlackBox
from compare.compiled import Built
from compare.device import Bench, Broken, ContextLost
from compare.inputs import sha256
from compare.machine import Refusal
from compare.messages import told
from compare.pair import Arrays, Implementation, Probe
from compare.results import Accuracy, Check, Row, to_json
from compare.workbench.runner import REPEATS, Request, Runner

PROBE_ROWS, MOST_ROWS = 128, 256  # a probe asks for so many without a card, where it has more
INSTRUCTIONS = "tf32 instructions where tf32 was asked for, and nowhere else"


@dataclass(frozen=True)
class Learned:
    """What a twin found out about its counterpart, or why it can't run."""

    refused: str = ""
    notes: tuple[str, ...] = ()


def prepare(runner: Runner, request: Request, inputs: Arrays) -> tuple[Request, dict[str, Learned]]:
    """Implementations that must learn first ask the one whose bits they claim, as black boxes."""
    machine, learned = runner.machine, {}
    named = {implementation.name: implementation for implementation in request.implementations}
    shapes = {name: array.shape for name, array in inputs.items()}
    ready = []
    for one in request.implementations:
        other = named.get(one.twin_of)
        if one.prepare and not runner.lost and not machine.lacks(one.needs, one.arrays):
            if other is None or machine.lacks(other.needs, other.arrays):
                learned[one.name] = Learned(
                    f"{one.twin_of}, whose bits it claims, does not run here"
                )
            else:
                runner.progress(f"{request.pair.name} {other.name}: in which order does it add?")
                out = request.pair.output_shape(request.shape)
                boxes: list[BlackBox] = []
                try:
                    for i in (other, one):
                        boxes.append(BlackBox(machine, i, shapes, out, runner.processes))
                    found = one.prepare(boxes[0], boxes[1], request.shape)
                except ContextLost as lost:
                    runner.lost = next((b.implementation.name for b in boxes if b.lost), other.name)
                    learned[one.name] = Learned(str(lost))
                except (ValueError, Broken, Refusal) as reason:  # Refusal: no memory for a box
                    learned[one.name] = Learned(str(reason))
                else:
                    learned[one.name] = Learned(notes=found.notes)
                    one = replace(one, options={**one.options, **found.options})
        ready.append(one)
    return replace(request, implementations=tuple(ready)), learned


def first_run(
    runner: Runner,
    request: Request,
    implementation: Implementation,
    bench: Bench,
    outputs: dict[str, np.ndarray],
    learned: Learned,
) -> Row:
    """Runs one implementation, checked, and on a card REPEATS times; keeps its output."""
    machine, processes = runner.machine, runner.processes
    row = blank(implementation)
    if runner.stopped:
        return replace(row, skipped="not run: interrupted")
    if runner.lost:
        return replace(row, skipped=f"not run: context lost after {runner.lost}")
    if reason := machine.lacks(implementation.needs, implementation.arrays) or learned.refused:
        return replace(row, skipped=reason)
    try:
        started = time.perf_counter()
        output = runner.watched(implementation, lambda: bench.run(implementation, processes))
        seconds = time.perf_counter() - started
        told_bits = runner.beside(lambda: sha256(output))
        runs = 1 + bench.repeat(implementation, REPEATS - 1) if machine.on_card else 1
    except ContextLost as lost:
        runner.lost = implementation.name
        return failed(row, f"{lost}; the card's context is lost")
    except Broken as broken:
        return failed(row, *told(broken))
    except KeyboardInterrupt:
        runner.stopped = True
        return replace(row, skipped="not run: interrupted")
    outputs[implementation.name] = output
    unsteady = f"not deterministic: {runs} of {REPEATS} runs gave the same bits"
    return replace(
        row,
        output=told_bits(),
        runs=runs,
        notes=(unsteady,) if machine.on_card and runs < REPEATS else (),
        learned=learned.notes,
        story=tuple(implementation.story(request.shape, machine.on_card))
        if implementation.story
        else (),
        seconds=seconds,
    )


def blank(implementation: Implementation) -> Row:
    """The row of an implementation that has not run."""
    return Row(
        implementation.name,
        implementation.language,
        implementation.label or implementation.language,
        implementation.precision,
        kernel=(implementation.kernel or implementation.name).format(**implementation.options),
        options=implementation.options,
    )


def failed(row: Row, reason: str, lines: Sequence[str] = ()) -> Row:
    """A row whose implementation ran and broke: it has reasons and no numbers. `lines` are the
    compiler's own, or what its process printed last."""
    nan = float("nan")
    check = Check("run", False, reason=reason)
    found = Accuracy(False, nan, nan, nan, nan, (check,), (reason,))
    return replace(row, accuracy=found, notes=(*row.notes, *lines))


def join(runner: Runner, request: Request, row: Row, bench: Bench) -> Row:
    """On a card, one that was right alone runs beside the others before it is timed."""
    if not runner.machine.on_card or row.skipped or not row.accuracy or not row.accuracy.ok:
        return row
    if runner.lost:
        return failed(
            row, f"right alone, not run beside the others: context lost after {runner.lost}"
        )
    implementation = next(i for i in request.implementations if i.name == row.name)
    try:
        output = runner.watched(implementation, lambda: bench.run(implementation))
    except ContextLost as lost:
        runner.lost = row.name
        return failed(row, f"right alone, not beside the others: {lost}; the context is lost")
    except Broken as broken:
        return failed(row, f"right alone, not beside the others: {broken}")
    if sha256(output) != row.output and row.runs == REPEATS:
        note = "not deterministic: another process gave other bits"
        return replace(row, runs=REPEATS - 1, notes=(*row.notes, note))
    return row


def probe(
    runner: Runner,
    request: Request,
    rows: list[Row],
    trials: Callable[[], Sequence[Probe]],
    apart: Collection[str] = (),
) -> list[Row]:
    """The exact probes: every implementation that ran must give the very bits. Those in `apart`
    were asked in a process of their own."""
    named = {implementation.name: implementation for implementation in request.implementations}
    checks: dict[str, list[Check]] = {
        row.name: [] for row in rows if row.output and row.name not in apart
    }
    for trial in trials() if checks else ():
        if runner.lost:
            break
        if not runner.machine.on_card:
            trial = shortened(
                trial, next((i.split for i in request.pair.implementations if i.split), ())
            )
        runner.progress(f"{request.pair.name} {request.precision}: probe {trial.name}")
        bench = Bench(runner.machine, trial.inputs, trial.want.shape)
        for name in checks:
            if runner.lost:
                break
            try:
                got = bench.run(named[name], runner.processes)
                checks[name].append(explained(accuracy.exact(got, trial.want, trial.name), trial))
            except ContextLost as lost:
                runner.lost = name
                checks[name].append(Check(trial.name, False, reason=str(lost)))
            except Broken as broken:
                failed_check = Check(trial.name, False, reason=str(broken))
                checks[name].append(explained(failed_check, trial))
    return [with_checks(row, checks.get(row.name, ())) for row in rows]


def shortened(trial: Probe, split: Sequence[str]) -> Probe:
    """A probe's first rows, where rows are independent: an interpreter takes seconds for all."""
    if not split or len(trial.want) <= MOST_ROWS:
        return trial
    cut = {
        name: array[:PROBE_ROWS] if name in split else array for name, array in trial.inputs.items()
    }
    catches = f"{trial.catches}; asked of the first {PROBE_ROWS} rows"
    return replace(trial, inputs=cut, want=trial.want[:PROBE_ROWS], catches=catches)


def explained(check: Check, trial: Probe) -> Check:
    """A failed probe says what it is and what it shows."""
    if check.passed:
        return check
    return replace(check, reason=f"{check.reason} (an exact probe; it shows {trial.catches})")


def with_checks(row: Row, checks: Sequence[Check]) -> Row:
    """A row that has no verdict yet carries its probes in an Accuracy of their own."""
    if not checks:
        return row
    reasons = tuple(f"{check.name}: {check.reason}" for check in checks if not check.passed)
    nan = float("nan")
    return replace(row, accuracy=Accuracy(not reasons, nan, nan, nan, nan, tuple(checks), reasons))


def with_code(row: Row, read: Callable[[], Built] | None) -> Row:
    """What the compiler made of the kernels; a promise of their precision that they break fails.

    A tf32 product needs one kernel that multiplies tf32, an ieee one must have none.
    """
    if read is None or row.accuracy is None:
        return row
    built = read()
    notes = (*row.notes, f"machine code not read: {built.skipped}") if built.skipped else row.notes
    broken = [f"{code.kernel}: {code.broken}" for code in built.codes if code.broken]
    if row.precision != "ieee" and len(broken) < len(built.codes):
        broken = []
    notes += tuple(
        f"{code.kernel} keeps {code.stack} bytes a thread in local memory"
        for code in built.codes
        if code.stack
    )
    check = Check("instructions", not broken, reason="; ".join(broken), formula=INSTRUCTIONS)
    found = replace(
        row.accuracy,
        ok=row.accuracy.ok and not broken,
        checks=(*row.accuracy.checks, check) if built.codes else row.accuracy.checks,
        reasons=(*row.accuracy.reasons, *broken),
    )
    plain = {code.kernel: to_json(code) for code in built.codes}
    return replace(row, accuracy=found, notes=notes, code=plain)
