"""What failed in a case, on the terminal: each reason, the first faulty elements, gates."""

from __future__ import annotations

from collections.abc import Sequence

from compare.report.words import wrap
from compare.results import Case, Row


def wrong(group: Sequence[Case]) -> bool:
    """Whether anything in these cases failed."""
    return any(case.failed_gates or any(map(failed, case.rows)) for case in group)


def failed(row: Row) -> bool:
    return row.accuracy is not None and not row.accuracy.ok


def aside(case: Case) -> list[Row]:
    """Rows that failed while the two that stand side by side match."""
    rows = case.rows if case.verdict.startswith("MATCH") else ()
    return [row for row in rows if failed(row) and row.name not in (case.triton, case.cuda)]


def aside_lines(case: Case) -> list[str]:
    """Those rows, to stand before the two columns, and whom the columns hold."""
    lines = [line for row in aside(case) for line in row_lines(row)]
    return lines and [
        *lines,
        f"           the columns below hold {case.triton} and {case.cuda}",
        "",
    ]


def row_lines(row: Row) -> list[str]:
    """A row's reasons and first faulty elements, each element once, and what is not as usual."""
    lines: list[str] = []
    if row.accuracy is not None and not row.accuracy.ok:
        reasons = row.accuracy.reasons or ("no reason given",)
        for reason in reasons:
            lines += wrap(f"  FAILED   {row.name}: {reason}", 11)
        for fault in row.accuracy.faults[:3]:
            told = f"at {fault.index}: got {fault.got:.9g}, want {fault.want:.9g}"
            if not any(told in reason for reason in reasons):
                lines.append(f"           {told}, allowed {fault.allowed:.2g}")
    lead = "           " if lines else f"  note     {row.name}: "
    return lines + [line for note in row.notes for line in wrap(f"{lead}{note}", 11)]


def failure_lines(case: Case, but: Sequence[Row] = ()) -> list[str]:
    """Rows that failed, gates, and what is not as usual; without the rows in `but`."""
    lines = [line for row in case.rows if row not in but for line in row_lines(row)]
    for gate in case.failed_gates:
        lines += wrap(f"  GATE     {gate}", 11)
    return lines
