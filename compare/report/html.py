"""The page of a run: a pure function of a Report."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from markupsafe import Markup

from compare.report import case as cases
from compare.report import plots, terminal
from compare.report.failures import aside, failure_lines, wrong
from compare.report.page import SIDES, page
from compare.report.words import equal_words, error_words, microseconds, percent, shape_words
from compare.results import Case, Report, Row


def run_page(run: Report, recorded: Report | None = None) -> str:
    """The page of a run; `recorded` lends its figures to a machine without a card, labelled."""
    lent = recorded if run.machine.get("mode") != "card" else None
    found = [group_of(index, group, lent) for index, group in enumerate(cases.groups(run.cases))]
    machine = run.machine
    where = machine.get("card_words") or machine.get("banner", "")
    facts = [
        ("card", where),
        *(version for version in machine.get("versions", {}).items() if version[1]),
        ("pinned", machine.get("pinned", "")),
        ("command", run.command),
        ("date", run.date),
        ("seconds", f"{run.seconds:.1f}"),
        ("exit code", str(run.exit_code)),
        *machine.get("variables", {}).items(),
    ]
    return page(
        "run.html.j2",
        title="One operation, two languages, the same input bits",
        subtitle=f"triton-vs-cuda {run.version}   {where}",
        footer=f"triton-vs-cuda {run.version}, {run.command}",
        script_files=("page.js",),
        summary=[
            {
                "id": found[index]["id"],
                "name": name,
                "kind": {"yes": "good", "NO": "bad"}.get(match, ""),
                "match": match,
                "bits": bits,
                "time": time,
            }
            for index, (name, match, bits, time) in terminal.summary_rows(run)
        ],
        notes=run.notes,
        groups=found,
        machine=[(name, value) for name, value in facts if value],
        text="\n".join(terminal.report(run, recorded)),
    )


def group_of(index: int, group: Sequence[Case], recorded: Report | None) -> dict[str, Any]:
    """One pair at one precision: verdict, two columns, every implementation, plots."""
    main = group[0]
    here = [case for case in group if not cases.not_here(case)]
    lines = cases.two_columns(main, recorded) if here else []
    rows = [split_columns(line) for line in lines]
    fallen = [f"FAILED   {row.name}: see below" for row in aside(main)]
    said = [*fallen, *cases.verdict_lines(main, recorded), *cases.speed_lines(main)]
    verdict = [re.sub(r"^([A-Z ]+?) {2,}", r"\1: ", line.strip()) for line in said]
    if not here:
        verdict = [f"not run: {main.unstated or main.rows[0].skipped}"]
    kind = "bad" if wrong(group) else "good" if main.verdict.startswith("MATCH") else ""
    return {
        "id": f"pair-{index}",
        "name": f"{cases.title(main)} float32{cases.precision_words(main)}",
        "kind": kind,
        "input": "input bits: "
        + ", ".join(f"{name} sha256 {sha[:16]}" for name, sha in main.inputs.items()),
        "verdict": verdict,
        "heads": rows[0][1:] if rows else [],
        "sides": rows[1:],
        "failures": [line.strip() for case in group for line in failure_lines(case)],
        "cases": [table_of(case) for case in here],
        "shapes": over_shapes(here),
    }


def split_columns(line: str) -> tuple[str, str, str]:
    """A line of the terminal's two columns as its three cells."""
    edges = (0, cases.LEFT, cases.RIGHT, None)
    label, left, right = (re.sub(r" {2,}", ", ", line[a:b].strip()) for a, b in pairwise(edges))
    return label, left, right


def table_of(case: Case) -> dict[str, Any]:
    """Every implementation of one case, and its error against its time."""
    copied = case.row(cases.COPY) is not None
    unit = cases.COPY if copied else case.cuda
    rows = []
    for row in case.rows:
        bits = next((a for a in row.agreements if a.counterpart == case.cuda), None)
        found, times = row.accuracy, row.timing
        rows.append(
            [
                row.label,
                row.name,
                "yes" if found and found.ok else "NO" if found else ".",
                equal_words(bits.equal, bits.total) if bits and case.bits_count else ".",
                str(bits.max_ulp) if bits and case.bits_count and not case.signed else ".",
                error_words(found.error) if found else ".",
                percent(found.share) if found else ".",
                microseconds(times.cold.us) if times and times.cold else ".",
                microseconds(times.warm.us) if times and times.warm else ".",
                over_unit(case, row, unit),
                row.output[:8] or ".",
                row.skipped or "; ".join(row.notes) or row.kernel,
            ]
        )
    heads = ["", "implementation", "right", "bit for bit", "worst ULP", "error", "of allowed"]
    over = "time / copy" if copied else "time / CUDA"
    points = [
        plots.Series(row.name, side_of(row), ((row.timing.cold.us, row.accuracy.error),))
        for row in case.rows
        if cases.has_cold(row) and row.accuracy and usable(row.accuracy.error)
        if row.timing and row.timing.cold
    ]
    name = f"{shape_words(case.shape)}, {case.data}"
    heads += ["cold us", "warm us", over, "output", "kernel or reason"]
    told = [at for at in range(len(heads)) if any(row[at] not in (".", "") for row in rows)]
    return {
        "name": name,
        "heads": [heads[at] for at in told],
        "rows": [[row[at] for at in told] for row in rows],
        "plot": plots.plot(f"Error against time, {name}", points, "us, cold", "error"),
        "caption": "Error against float64 over cold time: left is faster, lower is more exact.",
    }


def over_unit(case: Case, row: Row, unit: str) -> str:
    """Its cold time over that of `unit`."""
    wanted = (row.name, unit, "cold")
    ratio = next((r for r in case.ratios if (r.name, r.against, r.state) == wanted), None)
    return "1.00" if row.name == unit else f"{ratio.value:.2f}" if ratio else "."


def over_shapes(group: Sequence[Case]) -> Markup:
    """Cold time over the least bytes of each shape, where several shapes were timed."""
    timed = [case for case in group if case.clock]
    if len(timed) < 2:
        return Markup("")
    found: dict[str, tuple[str, list[tuple[float, float]]]] = {}
    for case in sorted(timed, key=lambda c: c.bytes):
        for row in case.rows:
            if row.timing and row.timing.cold and case.bytes:
                point = (case.bytes / 1e6, row.timing.cold.us)
                found.setdefault(row.name, (side_of(row), []))[1].append(point)
    series = [plots.Series(name, side, tuple(points)) for name, (side, points) in found.items()]
    return plots.plot("Time over shape", series, "MB that must move", "us, cold", joined=True)


def side_of(row: Row) -> str:
    return SIDES.get(row.language, "o")


def usable(value: float) -> bool:
    return math.isfinite(value) and value > 0
