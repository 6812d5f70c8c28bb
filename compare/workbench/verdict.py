"""From outputs to verdicts, and from verdicts to an exit code. Pure."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from compare import accuracy
from compare.machine import Machine
from compare.order import twins
from compare.pair import Implementation, Reference
from compare.results import Accuracy, Case, Check, Claim, Row
from compare.workbench.runner import Request


def judge(
    request: Request,
    rows: list[Row],
    outputs: dict[str, np.ndarray],
    reference: Reference,
    each: Callable[[Callable[[Row], Any], list[Row]], Iterable[Any]] = map,
) -> list[Row]:
    """Every output against the reference, and against the counterparts that ran; `each` is `map`
    or one over threads."""
    named = {implementation.name: implementation for implementation in request.implementations}
    bounds = {
        name: tuple(request.pair.bounds(reference, named[name], request.data, request.shape))
        for name in outputs
    }
    bits = {row.name: row.output for row in rows}
    against = {name: held_against(named[name], request.implementations, outputs) for name in bounds}

    def key(row: Row) -> tuple[object, ...]:
        """Equal bits under the same bounds, beside the same counterpart, are judged once."""
        beside = (bits[name] for name in against[row.name][:1])
        return row.output, *map(id, bounds[row.name]), *beside

    def alone(row: Row) -> Accuracy:
        beside = next((outputs[name] for name in against[row.name]), None)
        return accuracy.judge(outputs[row.name], reference, bounds[row.name], counterpart=beside)

    unlike = {key(row): row for row in rows if row.name in outputs}
    judged = dict(zip(unlike, each(alone, list(unlike.values())), strict=True))

    undeclared = {n: tuple(b.note for b in found if b.note) for n, found in bounds.items()}
    declared = any(not notes for notes in undeclared.values())

    def of(row: Row) -> Row:
        if row.name not in outputs:
            return row
        got, found = outputs[row.name], judged[key(row)]
        if row.accuracy is not None:
            found = replace(
                found,
                ok=found.ok and row.accuracy.ok,
                checks=found.checks + row.accuracy.checks,
                reasons=found.reasons + row.accuracy.reasons,
            )
        agreements = tuple(
            accuracy.agree(name, got, outputs[name], reference, bounds[row.name], bounds[name])
            for name in against[row.name]
        )
        notes = (*row.notes, *undeclared[row.name]) if declared and found.ok else row.notes
        return replace(row, accuracy=found, agreements=agreements, notes=notes)

    return list(each(of, rows))


def held_against(
    implementation: Implementation, implementations: Sequence[Implementation], ran: Container[str]
) -> list[str]:
    """The names an implementation is compared with: what it is a twin of, its own counterparts, and
    the one that stands beside the case's lead, its first counterpart that ran."""
    lead = next((i.counterparts for i in implementations if i.counterparts), ())
    beside = next((name for name in lead if name in ran), "")
    names = dict.fromkeys((implementation.twin_of, *implementation.counterparts, beside))
    return [name for name in names if name in ran and name != implementation.name]


def hold_to_claims(
    request: Request, rows: Sequence[Row], machine: Machine
) -> tuple[list[Row], tuple[Claim, ...]]:
    """Each twin against what it claims; a claim that was recorded as holding here is a check."""
    out, claims = [], []
    for row, implementation in zip(rows, request.implementations, strict=True):
        found = next((a for a in row.agreements if a.counterpart == implementation.twin_of), None)
        if found is not None and row.accuracy is not None:
            holds, open_ = found.verdict == "identical", twins.claim(implementation, machine)
            claims.append(Claim(row.name, implementation.twin_of, holds, not open_))
            first = found.first
            where = (
                f", first at {first.index}: {first.got_bits} is not {first.want_bits}"
                if first
                else ""
            )
            reason = (
                f"{found.total - found.equal:,} of {found.total:,} elements have not the bits of "
            )
            reason = "" if holds else f"{reason}{implementation.twin_of}{where}"
            check = Check("claim", holds, reason=reason, formula="every bit", gates=not open_)
            ok = row.accuracy.ok and (holds or bool(open_))
            reasons = row.accuracy.reasons + ((f"claim: {reason}",) if not (holds or open_) else ())
            checks = (*row.accuracy.checks, check)
            row = replace(
                row, accuracy=replace(row.accuracy, ok=ok, checks=checks, reasons=reasons)
            )
        out.append(row)
    return out, tuple(claims)


def headline(implementations: Sequence[Implementation], rows: Sequence[Row]) -> tuple[str, str]:
    """The two that stand side by side: the first with counterparts, and the first of those that
    ran (the first at all where none did)."""
    ran = {row.name for row in rows if not row.skipped}
    lead = next((i for i in implementations if i.language == "triton" and i.counterparts), None)
    if lead is None:
        return "", ""
    present = [name for name in lead.counterparts if any(row.name == name for row in rows)]
    return lead.name, next((n for n in present if n in ran), present[0] if present else "")


def decide(rows: Sequence[Row], triton: str, cuda: str) -> tuple[str, str]:
    """The case's verdict, or why there is none."""
    named = {row.name: row for row in rows}
    left, right = named.get(triton), named.get(cuda)
    if left is None or right is None:
        wrong = any(row.accuracy and not row.accuracy.ok for row in rows)
        return ("NO MATCH", "") if wrong else ("", "one side alone was asked for")
    for row in (left, right):
        if row.skipped:
            return "", row.skipped
    agreement = next((a for a in left.agreements if a.counterpart == cuda), None)
    sound = all(row.accuracy and row.accuracy.ok for row in (left, right))
    if not sound or agreement is None or agreement.verdict == "differ":
        return "NO MATCH", ""
    return ("MATCH BIT FOR BIT" if agreement.verdict == "identical" else "MATCH"), ""


def exit_code(cases: Sequence[Case]) -> int:
    """0 where everything that was compared matches; 1 for no match, a failed gate, a missing side,
    or nothing compared. A case that no side can run here ("needs a card") does not count."""
    if not cases:
        return 1
    for case in cases:
        wrong = any(row.accuracy and not row.accuracy.ok for row in case.rows)
        lone = case.unstated and not case.unstated.startswith("one side")
        nobody = all(row.skipped for row in case.rows)
        if wrong or case.verdict == "NO MATCH" or case.failed_gates or (lone and not nobody):
            return 1
    return 0 if any(case.verdict or case.unstated.startswith("one side") for case in cases) else 1
