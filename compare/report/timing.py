"""Screen lines about time: pure functions of results."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from compare.report.words import WIDTH, microseconds
from compare.results import Rung

NAME, TIME = 20, 12  # columns


def ladder_lines(name: str, rungs: Sequence[Rung]) -> list[str]:
    """The ladder of one implementation: a time a line, and why it differs. At most 100 columns."""
    lines = [f"HOW LONG DOES {name} TAKE?", "", f"  {'timed as':<{NAME}}{'us':>{TIME}}   why"]
    indent = 2 + NAME + TIME + 3
    for rung in rungs:
        number = "." if rung.us is None else microseconds(rung.us)
        first, *rest = textwrap.wrap(rung.why, WIDTH - indent)
        lines.append(f"  {rung.name:<{NAME}}{number:>{TIME}}   {first}")
        lines += [" " * indent + line for line in rest]
    return lines
