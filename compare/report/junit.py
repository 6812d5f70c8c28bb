"""A report, and what changed since another, as JUnit XML: a test case per implementation."""

from __future__ import annotations

import math
from xml.etree import ElementTree

from compare.changes import Changes, Key, keyed
from compare.report.diff import one_line
from compare.report.words import shape_words
from compare.results import Report


def text(run: Report | None, changes: Changes | None = None) -> str:
    """The XML. A case fails where the implementation is wrong, or where what counts has changed;
    it is skipped, with the reason, where the implementation did not run."""
    suite = ElementTree.Element("testsuite", name="triton-vs-cuda")
    changed: dict[Key, list[str]] = {}
    for held, change in changes.counted if changes else ():
        changed.setdefault(held.key, []).append(one_line(change))
    rows = dict(keyed(run)) if run else {}
    keys = [
        *rows,
        *(held.key for held in (changes.held if changes else ()) if held.key not in rows),
    ]
    failures = skips = 0
    for key in keys:
        where = f"{key.pair}.{shape_words(key.shape)}.{key.precision}.{key.data}"
        case = ElementTree.SubElement(suite, "testcase", classname=where, name=key.name)
        row = rows[key][1] if key in rows else None
        reasons = list(changed.get(key, ()))
        if row is not None:
            if math.isfinite(row.seconds):
                case.set("time", f"{row.seconds:.3f}")
            if row.accuracy is not None and not row.accuracy.ok:
                reasons = [*row.accuracy.reasons, *row.notes, *reasons] or ["wrong"]
        if reasons:
            failures += 1
            failure = ElementTree.SubElement(case, "failure", message=clean(reasons[0]))
            failure.text = clean("\n".join(reasons))
        elif row is not None and row.skipped:
            skips += 1
            ElementTree.SubElement(case, "skipped", message=clean(row.skipped))
    for index, gate in enumerate(gates(run, changes)):
        failures += 1
        case = ElementTree.SubElement(suite, "testcase", classname="run", name=f"check {index + 1}")
        ElementTree.SubElement(case, "failure", message=clean(gate))
    suite.set("tests", str(len(suite)))
    suite.set("failures", str(failures))
    suite.set("skipped", str(skips))
    ElementTree.indent(suite)
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(suite, "unicode") + "\n"
    )


def gates(run: Report | None, changes: Changes | None) -> list[str]:
    """What is wrong with the run as a whole: failed gates, a missing side, nothing compared."""
    found = [gate for case in (run.cases if run else ()) for gate in case.failed_gates]
    if run:
        found += [
            f"{case.pair} {shape_words(case.shape)} {case.precision}: not compared, {case.unstated}"
            for case in run.cases
            if case.unstated and run.exit_code == 1 and not case.unstated.startswith("one side")
            and not all(row.skipped for row in case.rows)
        ]  # fmt: skip
        found += [note for note in run.notes if note.startswith("interrupted")]
    if changes:
        found += [sentence for sentence in changes.wrong if "not now" in sentence]
        if not changes.held:
            found.append("nothing could be compared with the run before")
    return found


def clean(words: str) -> str:
    """Without the control characters that XML 1.0 does not know."""
    return "".join(c for c in words if c >= " " or c in "\n\t")
