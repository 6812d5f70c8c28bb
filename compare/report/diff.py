"""The screen of `diff` and its tables for a pull request: pure functions of Changes."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from tabulate import tabulate

from compare.changes import Changes, Held
from compare.changes.rows import Change
from compare.report.words import WIDTH, clip, shape_words, wrap

NAME, WHAT, CELL = 30, 16, 9  # columns
SAID = 2 + NAME + WHAT + 2 * CELL
QUIET = ("numpy", "python")
ENDS = {0: "right, and the same as before", 3: "right, but not the same as before"}


def lines(changes: Changes) -> list[str]:
    """Every line, at most 100 columns. One where nothing changed, not even a version."""
    moved = [held for held in changes.held if held.moved]
    end = f"exit {changes.exit_code}   {ending(changes)}"
    others = len(changes.held) - len(moved)
    if not moved and not changes.wrong and not changes.apart and changes.before == changes.after:
        return [f"nothing changed: {count(others)}, the same {kept(changes)}   exit 0"]
    found = [*header(changes), ""]
    if moved:
        found.append(cells("changed", "what", "before", "after"))
    for case in dict.fromkeys(held.key.case for held in moved):
        found.append(f"  {title(case)}")
        for held in (held for held in moved if held.key.case == case):
            found += block(held)
    if others and moved:
        found.append(f"  {others} other{'s' * (others > 1)}: nothing changed")
    elif others:
        found.append(f"  nothing changed: {count(others)}, the same {kept(changes)}")
    for reason, names in by_reason(changes).items():
        found += wrap(f"  not compared  {reason}: {', '.join(names)}", 16)
    for sentence in changes.wrong:
        found += wrap(f"  WRONG    {sentence}", 11)
    if not changes.held:
        found.append(
            "  nothing could be compared: no implementation stands in both, on the same bits"
        )
    return [*found, "", end]


def ending(changes: Changes) -> str:
    if changes.exit_code == 1:
        return "something is not right" if changes.wrong else "nothing could be compared"
    return ENDS[changes.exit_code]


def count(number: int) -> str:
    return f"{number} implementation{'s' * (number != 1)}"


def kept(changes: Changes) -> str:
    """What was the same, of what both sides have: "output bits, machine code, error and time"."""
    kinds = {"output bits": "bits", "machine code": "code", "time": "time"}
    present = {change.kind for held in changes.held for change in held.changes}
    found = [words for words, kind in kinds.items() if kind in present]
    if "bits" in present:
        found.insert(len(found) - ("time" in present), "error")
    return " and ".join((", ".join(found[:-1]), found[-1])) if len(found) > 1 else "".join(found)


def header(changes: Changes) -> list[str]:
    """Versions, driver and card of both; numpy's and Python's only where they differ."""
    before, after = changes.before, changes.after
    same = [name for name in before if before[name] == after.get(name)]
    found = []
    for side, mine, date in zip(("before", "after"), (before, after), changes.dates, strict=True):
        shown = {name: text for name, text in mine.items() if name not in QUIET or name not in same}
        if "driver" in same:
            shown["driver"] = shown["driver"].partition(".")[0]
        words = [text if name == "card" else f"{name} {text}" for name, text in shown.items()]
        found += wrap(f"{side:<9}{'   '.join([*words, *([f'run {date}'] if date else [])])}", 9)
    equal, total = changes.inputs
    if total:
        same.append(f"input bits ({equal} of {total} sha256)")
    return found + wrap(f"same     {', '.join(same) or 'nothing'}", 9)


def title(case: Sequence[object]) -> str:
    pair, shape, precision, data, _ = case
    return f"{pair} {shape_words(shape)} {precision}, {data}"  # type: ignore[arg-type]


def cells(name: str, what: str, before: str, after: str, said: str = "") -> str:
    text = f"  {clip(name, NAME - 2):<{NAME}}{clip(what, WHAT - 1):<{WHAT}}"
    text += f"{clip(before, CELL - 1):<{CELL}}{clip(after, CELL - 1):<{CELL}}"
    return (text + said).rstrip()


def block(held: Held) -> list[str]:
    """One implementation: a line for each thing that both reports know of it."""
    found = []
    for index, change in enumerate(held.changes):
        first, *rest = textwrap.wrap(change.said, WIDTH - SAID) or [""]
        name = f"  {held.label}" if index == 0 else ""
        found.append(cells(name, change.what, change.before, change.after, first))
        found += [" " * SAID + line for line in rest]
    return found


def by_reason(changes: Changes) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, reason in changes.apart:
        found.setdefault(reason, []).append(name)
    return found


def markdown(changes: Changes) -> list[str]:
    """GitHub Markdown: what differs in versions, then a table of what changed."""
    found = [f"### what changed: exit {changes.exit_code}, {ending(changes)}", ""]
    names = dict.fromkeys((*changes.before, *changes.after))
    versions = [
        [name, changes.before.get(name, ""), changes.after.get(name, "")]
        for name in names
        if changes.before.get(name) != changes.after.get(name)
    ]
    if versions:
        found += [tabulate(versions, headers=["", "before", "after"], tablefmt="github"), ""]
    rows = [
        [title(held.key.case), held.label, change.what, change.before, change.after, change.said]
        for held in changes.held
        if held.moved
        for change in held.changes
    ]
    head = ["case", "implementation", "what", "before", "after", ""]
    if rows:
        table = tabulate(rows, headers=head, tablefmt="github", disable_numparse=True)
        found += [table, ""]
    others = sum(not held.moved for held in changes.held)
    found.append(f"{others} of {count(len(changes.held))}: nothing changed")
    found += [
        f"- not compared: {reason}: {', '.join(names)}"
        for reason, names in by_reason(changes).items()
    ]
    return found + [f"- WRONG: {sentence}" for sentence in changes.wrong]


def one_line(change: Change) -> str:
    """`time / copy 1.12 -> 1.19, SLOWER by 6 %`."""
    return f"{change.what} {change.before} -> {change.after}, {change.said}"
