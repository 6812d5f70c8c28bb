"""From a pair to a case: host bits, both sides, accuracy, time, verdict. Data flows one way."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from compare.device import Bench, ContextLost, stream
from compare.inputs import sha256
from compare.pair import Arrays, Implementation, Pair, Shape
from compare.results import Case, Claim, Row
from compare.workbench.clock import COPY as COPY
from compare.workbench.clock import time_case
from compare.workbench.rows import Learned as Learned
from compare.workbench.rows import blank as blank
from compare.workbench.rows import failed as failed
from compare.workbench.rows import first_run, join, prepare, probe, with_code
from compare.workbench.runner import SEED as SEED
from compare.workbench.runner import Request, Runner
from compare.workbench.verdict import decide, headline, hold_to_claims, judge
from compare.workbench.verdict import exit_code as exit_code


def requests(
    pairs: Sequence[Pair],
    on_card: bool,
    *,
    shapes: Sequence[Shape] = (),
    precision: str = "",
    data: str = "",
    seed: int = SEED,
    only: Sequence[str] = (),
) -> list[Request]:
    """The cases of a run: every pair, its shapes, its precisions; the first shape is timed.

    Precisions of one shape follow each other, since they share their inputs and reference.
    """
    wanted = []
    for pair in pairs:
        for index, shape in enumerate(shapes or pair.shapes(on_card)):
            for name in (precision,) if precision else pair.precisions:
                of_name = [i for i in pair.implementations if i.precision == name]
                beside = {other for i in of_name for other in i.counterparts}
                chosen = tuple(
                    i
                    for i in pair.implementations
                    if (i in of_name or i.name in beside) and wanted_by(only, i, on_card)
                )
                family, timed = data or pair.data[0], bool(shapes) or index == 0
                wanted.append(Request(pair, tuple(shape), name, family, seed, chosen, timed))
    return [request for request in wanted if request.implementations]


def wanted_by(only: Sequence[str], implementation: Implementation, on_card: bool) -> bool:
    """Whether `--only` keeps it. Twins are left out without a card unless they are named."""
    return implementation.name in only if only else on_card or not implementation.twin_of


def run(runner: Runner, wanted: Sequence[Request]) -> Iterator[Case]:
    """Runs the cases on one stream and gives them in the order asked for; foreign warnings are
    kept, not printed. An interrupt leaves the cases that are complete."""
    made: dict[int, Callable[[], Case]] = {}
    with warnings.catch_warnings(record=True) as caught, stream(runner.machine):
        warnings.simplefilter("always")
        try:
            for index in order(wanted):
                made[index] = run_case(runner, wanted[index])
                runner.warnings += [f"{w.category.__name__}: {w.message}" for w in caught]
                caught.clear()
                if runner.stopped:
                    break
        except KeyboardInterrupt:
            runner.stopped = True
        for index in sorted(made):
            try:
                case = made.pop(index)()
            except KeyboardInterrupt:
                runner.stopped = True
            else:
                yield case


def order(wanted: Sequence[Request]) -> list[int]:
    """A pair's untimed cases before its timed ones: their machine code, which takes longer to read
    than they take to run, is read meanwhile."""
    pairs = list(dict.fromkeys(request.pair.name for request in wanted))
    return sorted(
        range(len(wanted)), key=lambda i: (pairs.index(wanted[i].pair.name), wanted[i].timed)
    )


def run_case(runner: Runner, request: Request) -> Callable[[], Case]:
    """One pair at one shape, precision, data and seed; what it returns gives the case."""
    pair, machine = request.pair, runner.machine
    if runner.lost:
        return functools.partial(not_run, runner, request)
    inputs, reference = runner.inputs(request)
    hashes = runner.beside(lambda: {name: sha256(array) for name, array in inputs.items()})
    bench = Bench(machine, inputs, pair.output_shape(request.shape))
    trials = runner.beside(
        lambda: tuple(pair.probes(request.shape, request.precision, request.seed))
    )
    outputs: dict[str, np.ndarray] = {}
    rows, apart = [], set()
    request, learned = prepare(runner, request, inputs)
    for implementation in request.implementations:
        runner.progress(f"{pair.name} {implementation.name}")
        if tried := runner.alone(request, implementation.name):
            apart.add(implementation.name)
            rows.append(tried[0])
            if tried[1] is not None:
                outputs[implementation.name] = tried[1]
            continue
        found = learned.get(implementation.name, Learned())
        rows.append(first_run(runner, request, implementation, bench, outputs, found))
    rows = rows if runner.stopped else probe(runner, request, rows, trials, apart)
    rows = judge(request, rows, outputs, reference(), runner.each)
    rows = [join(runner, request, row, bench) if row.name in apart else row for row in rows]
    rows, claims = hold_to_claims(request, rows, machine)
    reads = {name: runner.code.pop(name) for name in list(runner.code)}

    def conclude() -> Case:
        complete = [with_code(row, reads.get(row.name)) for row in rows]
        return concluded(request, complete, apart, hashes(), claims, machine.on_card)

    if reads and not request.timed:
        keep(runner, request, inputs, rows, outputs)
        return conclude
    case = conclude()
    keep(runner, request, inputs, case.rows, outputs)
    if not (request.timed and machine.on_card):
        return lambda: case
    if not runner.lost and not runner.stopped and bench.output.tensor.numel():
        runner.progress(f"{pair.name} {request.precision}: timing")
        try:
            case = timed_case(runner, request, case, bench)
        except KeyboardInterrupt:
            runner.stopped = True
    return lambda: case


def concluded(
    request: Request,
    rows: Sequence[Row],
    apart: Collection[str],
    hashes: Mapping[str, str],
    claims: tuple[Claim, ...],
    on_card: bool,
) -> Case:
    """The case of rows that are judged; `apart` were tried in processes of their own."""
    pair = request.pair
    standing = [row for row in rows if row.name not in apart or row.output or row.skipped]
    names = {row.name for row in standing}  # without a user's that did not come through
    triton, cuda = headline([i for i in request.implementations if i.name in names], standing)
    verdict, unstated = decide(rows, triton, cuda)
    cost = pair.cost(request.shape)
    case = Case(
        pair.name,
        request.shape,
        request.precision,
        request.data,
        request.seed,
        hashes,
        tuple(rows),
        triton,
        cuda,
        verdict,
        signed=pair.signed,
        flops=cost.flops,
        bytes=cost.bytes,
        unstated=unstated,
        bits_count=on_card or not pair.transcendental,
        claims=claims,
        repeats=min((row.runs for row in rows if row.output), default=0),
    )
    return replace(case, words=tuple(pair.words(case)))


def keep(
    runner: Runner,
    request: Request,
    inputs: Arrays,
    rows: Sequence[Row],
    outputs: Mapping[str, np.ndarray],
) -> None:
    """Writes what was asked to be kept: a failed case, every output."""
    if runner.save and any(row.accuracy and not row.accuracy.ok for row in rows):
        for row in rows:
            runner.save(request, inputs, row.name, outputs.get(row.name))
    for row in rows if runner.keep else ():
        if row.name in outputs:
            runner.keep(row.output, outputs[row.name])  # type: ignore[misc]


def not_run(runner: Runner, request: Request) -> Case:
    """A case after the card's context was lost: nothing of it touches the card."""
    reason = f"not run: context lost after {runner.lost}"
    rows = tuple(replace(blank(i), skipped=reason) for i in request.implementations)
    head = (request.pair.name, request.shape, request.precision, request.data, request.seed)
    triton, cuda = headline(request.implementations, rows)
    return Case(*head, {}, rows, triton, cuda, unstated=reason, signed=request.pair.signed)


def timed_case(runner: Runner, request: Request, case: Case, bench: Bench) -> Case:
    """The case with its times; where a launch fails while it is timed, without any, and failed."""
    try:
        return time_case(runner, request, case, bench)
    except Exception as error:  # noqa: BLE001 - a kernel may fail at any launch: the report goes on
        broken = bench.broken(error)
        if isinstance(broken, ContextLost):
            runner.lost = "a timed launch"
        return replace(case, failed_gates=(*case.failed_gates, f"timing failed: {broken}"))
