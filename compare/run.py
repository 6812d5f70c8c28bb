"""The command `run`: what was asked for -> machine -> cases -> report, and the files it writes."""

from __future__ import annotations

import datetime
import os
import shlex
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from compare import __version__, system, userfile, workbench
from compare import machine as machines
from compare.choices import SEED as SEED
from compare.choices import Wish as Wish
from compare.choices import all_pairs, check_outputs, choose
from compare.choices import one_of as one_of
from compare.choices import parse_shapes as parse_shapes
from compare.facts import machine_facts
from compare.kept import Saver
from compare.kept import recorded as recorded
from compare.kept import saved as saved
from compare.machine import Machine, Refusal
from compare.memory import memory_free, memory_needed
from compare.pair import Pair, Shape
from compare.results import Case, Report
from compare.userfile import isolation, trial

PROCESSES = min(os.cpu_count() or 1, 8)  # over which the interpreter's rows are split


def made_folder(path: str) -> Path:
    """The folder, made where it was not. Refusal where it can't be."""
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Refusal(2, f"{path} can't be made a folder: {error.strerror}") from None
    return Path(path)


def set_mode(machine: Machine) -> None:
    """Without a card Triton interprets: it reads that when a kernel is decorated."""
    if not machine.on_card:
        late = [name for name in sys.modules if name.startswith("triton_impl.")]
        if late and not machines.interpreting(os.environ):
            raise Refusal(
                2, "kernels were imported before the mode was set; set TRITON_INTERPRET=1"
            )
        os.environ["TRITON_INTERPRET"] = "1"


def prepare(machine: Machine) -> Machine:
    """Sets the mode before any kernel is imported; a canary or a probe kernel tries it."""
    set_mode(machine)
    if not machine.on_card:
        import torch

        from compare import canary

        torch.set_num_threads(1)  # rows run in forked processes, which inherit no thread of a pool
        if fault := canary.fault():
            versions = machine.seen.versions
            raise Refusal(
                2,
                f"Triton's interpreter does not work here ({fault}): triton {versions['triton']} "
                f"and numpy {versions['numpy']} don't go together; install another of the two",
            )
        return machine
    if "cupy" not in machine.missing and (reason := probe_cupy(machine.device)):
        return replace(machine, missing={**machine.missing, "cupy": reason})
    return machine


def probe_cupy(device: int) -> str:
    """Compiles and runs one small kernel through CuPy; why that fails, "" where it does not."""
    from compare.errors import plain

    try:
        import cupy

        with cupy.cuda.Device(device):
            kernel = cupy.RawKernel(
                'extern "C" __global__ void one(float* x) { *x = 1.0f; }', "one"
            )
            x = cupy.zeros(1, cupy.float32)
            kernel((1,), (1,), (x,))
            return "" if float(x[0]) == 1.0 else "CuPy's probe kernel gives a wrong result"
    except Exception as error:  # noqa: BLE001 - CuPy fails in many ways; each is a reason in a column
        return f"CuPy can't run a kernel here: {plain(error)}"


def check_memory(machine: Machine, wanted: Sequence[workbench.Request]) -> None:
    """Refusal for a case that needs more memory than there is, before anything is allocated."""
    free = memory_free(machine)
    for request in wanted:
        need = memory_needed(request.pair, request.shape, machine.on_card)
        if need > free:
            where = machine.card.name if machine.card else "this machine"
            shape = "x".join(map(str, request.shape))
            raise Refusal(
                2, f"{request.pair.name} {shape} needs {need:,} bytes, {where} has {free:,} free"
            )


Plan = tuple[Machine, list[Pair], list[Shape], list[workbench.Request]]


def plan(wish: Wish) -> Plan:
    """The machine's mode and the cases, everything checked that can be before a kernel is
    imported. Raises Refusal, also for a user's file: those are for `run` alone."""
    if files := [word for word in wish.pairs if userfile.is_file(word)]:
        raise Refusal(2, f"{files[0]}: a file is run by 'python -m compare run {files[0]}' alone")
    return plan_with_files(wish)[0]


def plan_with_files(wish: Wish) -> tuple[Plan, list[userfile.Yours]]:
    """The same where pairs may be a user's files, which are imported once the mode is set."""
    files = [word for word in dict.fromkeys(wish.pairs) if userfile.is_file(word)]
    if not wish.limit > 0:
        raise Refusal(2, f"--limit {wish.limit:g}: give a positive number of seconds")
    pairs, shapes = choose(wish) if not files else ([], [])
    check_outputs(wish.outputs, wish.save)
    seen = system.observe(cards=not wish.cpu)
    machine = machines.decide(
        seen, cpu=wish.cpu, device=wish.device, require_card=wish.require_card
    )
    yours = load_files(files, machine)
    if files:
        pairs, shapes = choose(wish, yours)
    wanted = workbench.requests(
        pairs,
        machine.on_card,
        shapes=shapes,
        precision=wish.precision,
        data=wish.data,
        seed=wish.seed,
        only=wish.only,
    )
    if not wanted:
        names = " ".join(wish.only)
        raise Refusal(2, f"nothing is left to run: {names} is of another pair or precision")
    check_memory(machine, wanted)
    wanted = [replace(request, ladder=wish.ladder) for request in wanted]
    return (machine, pairs, shapes, wanted), yours


def load_files(files: Sequence[str], machine: Machine) -> list[userfile.Yours]:
    """The user's files in turn, each seeing the pairs as those before it left them."""
    if not files:
        return []
    set_mode(machine)
    known, yours = all_pairs(), []
    for file in files:
        yours.append(userfile.load(file, known))
        known[yours[-1].pair.name] = yours[-1].pair
    return yours


def tried_alone(
    yours: Sequence[userfile.Yours],
    runner: workbench.Runner,
    wanted: Sequence[workbench.Request],
    folder: str,
    limit: float,
) -> isolation.Trials:
    """Every implementation of the user's files, each in a process of its own."""
    own = {one.pair.name for one in yours if one.whole}
    for request in [request for request in wanted if request.pair.name in own][:1]:
        runner.inputs(request)[1]()  # its own functions are asked before any kernel of it runs
    names: dict[str, list[str]] = {}
    for one in yours:
        names.setdefault(one.pair.name, []).extend(one.names)
    return isolation.try_all(
        [one.word for one in yours],
        names,
        wanted,
        runner.machine,
        Path(folder),
        limit=limit,
        processes=runner.processes,
        progress=runner.progress,
    )


def run(wish: Wish, progress: Callable[[str], None] = lambda text: None) -> Report:
    """Everything that was asked for. Raises Refusal."""
    started = time.perf_counter()
    (machine, pairs, _, wanted), yours = plan_with_files(wish)
    progress("kernels")
    machine = prepare(machine)
    runner = workbench.Runner(machine, progress, processes=PROCESSES)
    if wish.save:
        runner.save = Saver(Path(wish.save), wish)
    cases: list[Case] = []
    notes = list(machine.notes)
    if not (machine.on_card or wish.shapes):
        notes += [one.note for one in yours if one.note]
    if wish.ladder and not machine.on_card:
        notes.append("--explain-time needs a card: nothing is timed here")
    if wish.keep:
        runner.keep = trial.keeper(made_folder(wish.keep))
    with tempfile.TemporaryDirectory(prefix="triton-vs-cuda-") as folder:
        try:
            if yours:
                runner.alone = tried_alone(yours, runner, wanted, folder, wish.limit)
            for case in workbench.run(runner, wanted):
                cases.append(case)
        except KeyboardInterrupt:
            runner.stopped = True
    if runner.stopped:
        complete = sum(not any("interrupted" in r.skipped for r in c.rows) for c in cases)
        notes.append(f"interrupted: {complete} of {len(wanted)} cases are complete")
    cases = gated(pairs, cases)
    return Report(
        version=__version__,
        machine=machine_facts(machine, runner.warnings),
        command=wish.command,
        cases=tuple(cases),
        seconds=time.perf_counter() - started,
        exit_code=1 if runner.stopped else workbench.exit_code(cases),
        date=datetime.date.today().isoformat(),
        notes=tuple(notes),
        next=tuple(command for one in yours for command in diagnoses(one, cases)),
    )


def diagnoses(one: userfile.Yours, cases: Sequence[Case]) -> list[str]:
    """The commands that look for what a run can't show: at each of the file's CUDA kernels that
    failed, or else at the first of those that ran."""
    rows = [row for case in cases if case.pair == one.pair.name for row in case.rows]
    ran = {row.name for row in rows if row.accuracy}
    failed = {row.name for row in rows if row.accuracy and not row.accuracy.ok}
    looked = [name for name in one.emulated if name in failed]
    looked = looked or [name for name in one.emulated if name in ran][:1]
    command = f"python -m compare threads {shlex.quote(one.word)}"
    return [
        command if name == one.emulated[0] else f"{command} --kernel {shlex.quote(name)}"
        for name in looked
    ]


def gated(pairs: Sequence[Pair], cases: Sequence[Case]) -> list[Case]:
    """Each pair's gates over its cases; a failed one stands with the case it is about."""
    failed: dict[int, list[str]] = {}
    for pair in pairs:
        for case, sentence in pair.gates([case for case in cases if case.pair == pair.name]):
            failed.setdefault(id(case), []).append(sentence)
    return [
        replace(case, failed_gates=(*case.failed_gates, *failed.get(id(case), ())))
        for case in cases
    ]
