"""Times what is right, then looks at every output again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from compare import timing
from compare.device import Bench, Broken
from compare.inputs import sha256
from compare.pair import Cost, Implementation
from compare.results import Case, Ratio, Row, Timing
from compare.timing import ladder
from compare.workbench.rows import failed
from compare.workbench.runner import REPEATS, Request, Runner

COPY = "device copy"
BUSY = 32  # operations a byte from which arithmetic, not memory, bounds the time


def time_case(runner: Runner, request: Request, case: Case, bench: Bench) -> Case:
    """Times what is right, then runs each once more and looks at its output again."""
    right = [row.name for row in case.rows if row.accuracy and row.accuracy.ok and row.output]
    named = {implementation.name: implementation for implementation in request.implementations}
    launches = [timing.Launch(name, bench.call(named[name])) for name in right]
    if not launches:
        return case
    if request.pair.copy_of:
        source, target = bench.inputs[request.pair.copy_of].tensor, bench.output.tensor
        moved = 2 * source.numel() * source.element_size()
        launches.append(timing.Launch(COPY, lambda: target.copy_(source), moved))
    timed = [launch.name for launch in launches]
    wanted = [(x, y) for y in (case.cuda, COPY) if y in timed for x in timed if x != y]
    lead = named.get(case.triton)
    others = lead.counterparts if lead and lead.name in timed else ()
    wanted += [(case.triton, y) for y in others if y in timed and (case.triton, y) not in wanted]
    cost = request.pair.cost(request.shape)
    touched = sum(b.bits.numel() for b in (*bench.inputs.values(), bench.output)) * 4
    card = timing.card_facts(runner.machine.device)
    recording = timing.measure(
        launches,
        pairs=wanted,
        card=card,
        bytes_touched=touched,
        bytes_moved=cost.bytes,
        interval=request.interval,
        seed=request.seed,
    )
    times = dict(recording.timings)
    for launch in launches if request.ladder else ():
        if (row := case.row(launch.name)) is not None and row.name in (case.triton, case.cuda):
            runner.progress(f"{request.pair.name} {row.name}: every way to time it")
            rungs = ladder.explain(
                launch,
                card=card,
                bytes_touched=touched,
                bytes_moved=cost.bytes,
                first_call_s=row.seconds,
                seed=request.seed,
            )
            times[row.name] = replace(times[row.name], ladder=rungs)
    rows = []
    for row in case.rows:
        if row.name in times:
            rows.append(look_again(row, named[row.name], bench, times[row.name]))
        else:
            rows.append(row)
    if COPY in times:
        rows.append(Row(COPY, "", "-", "", timing=times[COPY]))
    return replace(
        case,
        rows=tuple(rows),
        clock=recording.clock,
        ratios=recording.ratios,
        regime=regime(cost, touched, card, recording.ratios),
    )


def regime(cost: Cost, touched: int, card: timing.CardFacts, ratios: Sequence[Ratio]) -> str:
    """What bounds the time at this size: the launch, arithmetic, L2, or DRAM."""
    if any(ratio.reason.startswith("launch-bound") for ratio in ratios):
        return "launch"
    if cost.flops > BUSY * cost.bytes:
        return "arithmetic"
    return "L2" if touched <= card.l2_bytes // 2 else "DRAM"


def look_again(row: Row, implementation: Implementation, bench: Bench, times: Timing) -> Row:
    """A wrong kernel gets no time: the bits after the timed launches must be those before them."""
    try:
        again = sha256(bench.run(implementation))
    except Broken as broken:
        return failed(row, f"after the timed launches: {broken}")
    if again != row.output and row.runs == REPEATS:
        return failed(row, "after the timed launches its output is another")
    return replace(row, timing=times)
