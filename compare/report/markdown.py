"""The report as tables for a pull request: a pure function of a Report."""

from __future__ import annotations

from tabulate import tabulate

from compare.report.case import not_here, one_line
from compare.report.failures import failure_lines
from compare.report.words import equal_words, error_words, microseconds, percent, shape_words
from compare.results import Case, Report


def report(run: Report) -> list[str]:
    """GitHub Markdown: a summary, then a table a case, then what failed."""
    machine = run.machine
    where = machine.get("card_words") or machine.get("banner", "").capitalize()
    built = ", ".join(f"{name} {text}" for name, text in machine["versions"].items() if text)
    lines = [f"### triton-vs-cuda {run.version}: exit {run.exit_code}", "", f"{where}; {built}", ""]
    for case in run.cases:
        name = f"{case.pair} {shape_words(case.shape)} {case.precision}, {case.data}"
        lines += [f"**{name}**: {one_line(case)}", ""]
        if not not_here(case):
            lines += [table(case), ""]
        lines += [f"- {line.strip()}" for line in failure_lines(case)]
    return lines


def table(case: Case) -> str:
    rows = []
    for row in case.rows:
        bits = next((a for a in row.agreements if a.counterpart == case.cuda), None)
        times = row.timing
        rows.append(
            [
                row.label,
                row.name,
                row.skipped or ("yes" if row.accuracy is None or row.accuracy.ok else "NO"),
                equal_words(bits.equal, bits.total) if bits and case.bits_count else "",
                error_words(row.accuracy.error) if row.accuracy else "",
                percent(row.accuracy.share) if row.accuracy else "",
                microseconds(times.cold.us) if times and times.cold else "",
                microseconds(times.warm.us) if times and times.warm else "",
                row.output[:8],
            ]
        )
    head = [
        "",
        "implementation",
        "right",
        "bit for bit",
        "error",
        "of allowed",
        "cold us",
        "warm us",
    ]
    return tabulate(rows, headers=[*head, "output"], tablefmt="github", disable_numparse=True)
