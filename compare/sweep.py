"""The command `sweep`: every config of a pair's kernels, a row each, beside the counterpart.

Every row is kept: where a config does not run here, the reason stands in its place. Nothing is
remembered: `run` depends on nothing that was swept before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from tabulate import tabulate

from compare import run as runs
from compare import workbench
from compare.pair import Implementation
from compare.report.words import equal_words, error_words, microseconds, percent, rate, rule, wrap
from compare.results import Case, Row

NOTHING = "."


def command(wish: runs.Wish, progress: Callable[[str], None]) -> tuple[list[str], int]:
    """The screen and the exit code: 1 where a config gives a wrong result. Raises Refusal."""
    machine, pairs, shapes, wanted = runs.plan(wish)
    machine = runs.prepare(machine)
    runner = workbench.Runner(machine, progress, processes=runs.PROCESSES)
    shape = shapes[0] if shapes else pairs[0].shapes(machine.on_card)[0]
    first = [request for request in wanted if request.shape == shape]
    swept = [request for request in map(spread, first) if request.implementations]
    if not swept:
        raise runs.Refusal(2, f"{pairs[0].name} has no kernel with configs to sweep")
    lines: list[str] = []
    code = 0
    for case in workbench.run(runner, swept):
        lines += [*table(case, machine.on_card), ""]
        code = max(code, workbench.exit_code([case]) if not_idle(case) else 0)
    if runner.stopped:
        return [*lines, "interrupted: what was not run is left out"], 1
    return lines[:-1], code


def not_idle(case: Case) -> bool:
    return not all(row.skipped for row in case.rows)


def spread(request: workbench.Request) -> workbench.Request:
    """The same case with an implementation for every config, and the counterparts beside them."""
    variants: list[Implementation] = []
    for implementation in request.implementations:
        for config in implementation.configs:
            name = config_words(config)
            options = {**implementation.options, **config}
            variants.append(replace(implementation, name=name, options=options))
    named = {name for i in request.implementations if i.configs for name in i.counterparts}
    others = tuple(i for i in request.implementations if i.name in named)
    return replace(request, implementations=(*variants, *others) if variants else ())


def config_words(config: Mapping[str, Any]) -> str:
    """A config as `--config` takes it: `num_warps=8;rows=1`."""
    text = ((k, ",".join(map(str, v)) if isinstance(v, tuple) else v) for k, v in config.items())
    return ";".join(f"{name}={value}" for name, value in text)


def table(case: Case, on_card: bool) -> list[str]:
    """One precision: a row a config, the counterparts, the winner and how to repeat it."""
    shape = "x".join(map(str, case.shape))
    precision = f", {case.precision}" if case.signed else ""
    lines = [rule(f"sweep {case.pair} {shape} float32{precision}"), ""]
    if not not_idle(case):
        return lines + [f"  not run  {case.rows[0].skipped}"]
    rows = [cells(case, row, on_card) for row in case.rows if row.label != "-"]
    head = ["config", "right", "error", "of allowed", "bit for bit", "cold us", "rate", "code"]
    if not on_card:  # no time, no machine code
        head, rows = head[:5], [row[:5] for row in rows]
    text = tabulate(rows, headers=head, tablefmt="plain", disable_numparse=True)
    lines += [f"  {line}"[:100].rstrip() for line in text.splitlines()]
    for row in case.rows:
        reasons = row.accuracy.reasons if row.accuracy else ()
        lines += [line for reason in reasons for line in wrap(f"  {row.name}: {reason}", 4)]
    if best := winner(case):
        time = microseconds(best.timing.cold.us)  # type: ignore[union-attr]
        more = f" --precision {case.precision}" if case.signed else ""
        more += f" --data {case.data}" if case.data != "random" else ""
        again = f"python -m compare {case.pair} --shape {shape}{more} --config '{best.name}'"
        lines += ["", f"  fastest  {best.name}, {time} us", f"  again    {again}"]
    elif not on_card:
        lines += ["", "  no time without a card: this shows which configs are right"]
    return lines


def winner(case: Case) -> Row | None:
    """The fastest right row of the swept kernel."""
    timed = [r for r in case.rows if r.language == "triton" and r.timing and r.timing.cold]
    return min(timed, key=lambda row: row.timing.cold.us, default=None)  # type: ignore[union-attr]


def cells(case: Case, row: Row, on_card: bool) -> list[str]:
    found, cold = row.accuracy, row.timing.cold if row.timing else None
    bits = next((a for a in row.agreements if a.counterpart == case.cuda), None)
    busy = case.flops > 32 * case.bytes
    speed = NOTHING
    if cold:
        speed = rate(case.flops, cold.us) if busy else f"{case.bytes / cold.us / 1e3:,.0f} GB/s"
    return [
        row.name,
        row.skipped or ("yes" if found and found.ok else "NO"),
        error_words(found.error) if found else NOTHING,
        percent(found.share) if found else NOTHING,
        equal_words(bits.equal, bits.total) if bits and case.bits_count else NOTHING,
        microseconds(cold.us) if cold else NOTHING if on_card else "needs a card",
        speed,
        code_words(row),
    ]


def code_words(row: Row) -> str:
    """Registers, local memory and shared bytes, where the compiled kernel was read."""
    if not row.code:
        return NOTHING
    code = next(iter(row.code.values()))
    stack = f", {code['stack']} B stack" if code["stack"] else ""
    return f"{code['registers']} regs{stack}, {code['shared']:,} B"
