"""A case's tables on the terminal: a row for every implementation, size and check."""

from __future__ import annotations

from collections.abc import Sequence

from tabulate import tabulate

from compare.report.words import (
    clip,
    equal_words,
    error_words,
    microseconds,
    percent,
    shape_words,
    wrap,
)
from compare.results import Case, Ratio, Row

COPY = "device copy"


def short(row: Row) -> str:
    """What a sentence calls it."""
    return "cuBLAS" if row.label == "cublas" else row.name


def has_cold(row: Row | None) -> bool:
    return row is not None and row.timing is not None and row.timing.cold is not None


def ratio_to_cuda(case: Case) -> Ratio | None:
    """Triton's cold time over CUDA's."""
    wanted = (case.triton, case.cuda, "cold")
    return next((r for r in case.ratios if (r.name, r.against, r.state) == wanted), None)


def implementations(case: Case) -> list[str]:
    """A row for every implementation, for those who compare; none where two columns said it all."""
    rows = [row for row in case.rows if not row.skipped]
    timed = any(row.timing for row in rows)
    copied = case.row(COPY) is not None
    lead = case.row(case.cuda)
    head = ["all implementations", "bit for bit", "share" if case.signed else "worst", ""]
    under = ["", short(lead) if lead else "", "allowed" if case.signed else "ULP", "error"]
    if timed:
        head += ["cold", "warm", "time /"]
        under += ["us", "us", "copy" if copied else "CUDA"]
    body = [cells_of(case, row, timed, COPY if copied else case.cuda) for row in rows]
    lines = []
    if len(rows) == 3 and not copied:
        lines = [also(case, row) for row in rows if row.name not in (case.triton, case.cuda)]
    elif len(rows) > 2:
        table = [[*head, "output"], [*under, "bits"], *body]
        align = ["left"] + ["right"] * len(head)
        text = tabulate(table, tablefmt="plain", colalign=align, disable_numparse=True)
        lines = [f"  {line}".rstrip() for line in text.splitlines()]
    skipped: dict[str, list[str]] = {}
    for row in case.rows:
        if row.skipped:
            skipped.setdefault(row.skipped, []).append(row.name)
    for reason, names in skipped.items():
        lines += wrap(f"  not run  {', '.join(names)}: {reason}", 11)
    return lines


def also(case: Case, row: Row) -> str:
    """One more implementation in one line."""
    bits = next((a for a in row.agreements if a.counterpart == case.cuda), None)
    said = [equal_words(bits.equal, bits.total)] if bits and case.bits_count else []
    if row.accuracy:
        said.append(f"error {error_words(row.accuracy.error)}")
    if has_cold(row):
        said.append(f"{microseconds(row.timing.cold.us)} us cold")  # type: ignore[union-attr]
        ratios = (r for r in case.ratios if (r.name, r.against) == (row.name, case.cuda))
        said += [f"{r.value:.2f}x {case.cuda}'s time" for r in ratios if r.state == "cold"]
    return clip(f"  also     {row.name}: {', '.join(said)}", 100)


def cells_of(case: Case, row: Row, timed: bool, unit: str) -> list[str]:
    bits = next((a for a in row.agreements if a.counterpart == case.cuda), None)
    found = row.accuracy
    apart = "."
    if bits is not None:
        apart = percent(bits.share) if case.signed else str(bits.max_ulp)
    cells = [
        clip(f"{row.label:<7} {row.name}", 30),
        equal_words(bits.equal, bits.total) if bits and case.bits_count else ".",
        apart if bits and case.bits_count else ".",
        error_words(found.error) if found else ".",
    ]
    if timed:
        times = row.timing
        ratio = next(
            (r for r in case.ratios if (r.name, r.against, r.state) == (row.name, unit, "cold")),
            None,
        )
        cells += [
            microseconds(times.cold.us) if times and times.cold else ".",
            microseconds(times.warm.us) if times and times.warm else ".",
            "1.00" if row.name == unit else f"{ratio.value:.2f}" if ratio else ".",
        ]
    return [*cells, row.output[:4] or "."]


def sizes(cases: Sequence[Case]) -> list[str]:
    """Error and time of both sides over the sizes, and what bounds the time at each."""
    rows = []
    for case in cases:
        sides = [case.row(case.triton), case.row(case.cuda)]
        ratio = ratio_to_cuda(case)
        errors = [error_words(s.accuracy.error) if s and s.accuracy else "." for s in sides]
        times = [microseconds(s.timing.cold.us) if has_cold(s) else "." for s in sides]  # type: ignore[union-attr]
        rows.append(
            [
                shape_words(case.shape),
                *errors,
                *times,
                f"{ratio.value:.2f}" if ratio else ".",
                case.regime,
            ]
        )
    head = ["shape", "Triton error", "CUDA error", "Triton us", "CUDA us", "ratio", "bound by"]
    text = tabulate(rows, headers=head, tablefmt="plain", disable_numparse=True)
    return [f"  {line}".rstrip() for line in text.splitlines()]


def check_lines(case: Case) -> list[str]:
    """Every check of every implementation, then each formula with its source, once."""
    lines, formulas = [], {}
    for row in case.rows:
        for check in row.accuracy.checks if row.accuracy else ():
            share = "" if check.share is None else f", {percent(check.share)} of allowed"
            state = "passed" if check.passed else "FAILED"
            kind = "" if check.gates else " (informs)"
            lines.append(f"  {row.name[:26]:<27}{check.name:<20}{state}{kind}{share}")
            formulas[check.name, check.formula] = (row.name, check.source)
        lines += [line for text in row.learned for line in wrap(f"  {row.name}: {text}", 4)]
    for (name, formula), (row_name, source) in formulas.items():
        if formula:
            lines += wrap(f"  {name} (as for {row_name}): {formula}; {source}", 4)
    return lines
