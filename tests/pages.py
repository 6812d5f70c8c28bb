"""What the tests of pages share: a recorded report, and one with markup in every name."""

import dataclasses

import pytest

from compare.results import Report
from compare.run import recorded

EVIL = '<script>document.title="run"</script><img src=x onerror=alert(1)>'


def recorded_report():
    """The report that ships; skips the test where none does."""
    found = recorded()
    if found is None:
        pytest.skip("no report is recorded")
    return found


def with_markup(report: Report) -> Report:
    """The same report with markup wherever a user's text can stand."""
    case = report.cases[0]
    row = dataclasses.replace(
        case.rows[0], name=EVIL, kernel=EVIL, notes=(EVIL,), label=EVIL, skipped=""
    )
    case = dataclasses.replace(case, rows=(row, *case.rows[1:]), triton=EVIL, words=(EVIL,))
    machine = {**report.machine, "card_words": EVIL, "variables": {"CUDA_EVIL": EVIL}}
    return dataclasses.replace(
        report, cases=(case, *report.cases[1:]), command=EVIL, notes=(EVIL,), machine=machine
    )
