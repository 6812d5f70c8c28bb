"""The screen of `threads`: what every thread did, and what each barrier is for."""

from __future__ import annotations

import math
from collections.abc import Sequence

from compare.report.words import WIDTH, clip, shape_words, wrap
from compare.threads import Barrier, Study, Tally
from compare.threads.warps import WarpAccess
from cuda_ref.emulator.trace import Finding

ROW = 44  # columns of a row's name
TOLD = 57  # columns of what collides
NAMES = {"global read": "global reads", "global write": "global writes", "barrier": "barriers"}


def lines(study: Study, *, forgiven: Sequence[str] = (), hint: str = "") -> list[str]:
    """The whole screen, at most 100 columns.

    `forgiven` says why a race can leave the answer right; it is shown where one did, after the
    numbers of the barriers. `hint` is the last line.
    """
    grid, block = math.prod(study.grid), shape_words(study.block)
    threads = f"{grid:,} block{'s' * (grid != 1)} of {block} threads, run on the CPU"
    out = wrap(f"WHAT EVERY THREAD DID   {study.label}   {threads}", 24)
    out += ["", *count_lines(study), *memory_lines(study.accesses), ""]
    if study.lost:
        out.insert(-1, f"  {study.lost:,} more accesses of this block are not counted")
    if not study.clean:
        out += fault_lines(study)
    if study.barriers:
        out += barrier_lines(study) + forgiven_lines(study, forgiven)
    elif not study.ended:
        out += ["  the launch did not come to its end, so no barrier was taken out"]
    else:
        out += ["  no __syncthreads() is written"]
    if not study.barriers:
        out += not_known("rows wrong are", study)
    return [*out, "", *wrap(f"  {hint}", 4)] if hint else out


def count_lines(study: Study) -> list[str]:
    last = math.prod(study.block) - 1
    head = ("total", "thread 0", f"thread {last}", "mean")
    out = [f"  {clip(study.unit, ROW):<{ROW}}" + "".join(f"{name:>13}" for name in head)]
    for count in study.counts:
        total = "." if count.what == "barrier" else f"{count.total:,}"
        mean = f"{count.mean:.0f}" if count.mean == int(count.mean) else f"{count.mean:.1f}"
        figures = (total, f"{count.first:,}", f"{count.last:,}", mean)
        name = NAMES.get(count.what, count.what + "s")
        out.append(f"  {name:<{ROW}}" + "".join(f"{figure:>13}" for figure in figures))
    return out


def memory_lines(accesses: Sequence[WarpAccess]) -> list[str]:
    """Sectors and bank conflicts: one line where all is well, else the source's lines that cost."""
    out = []
    for kind, unit in (("global", "sectors of 32 bytes"), ("shared", "passes over the banks")):
        mine = [access for access in accesses if access.what.startswith(kind)]
        worse = [access for access in mine if access.cost > access.fewest * 1.01]
        for a in sorted(worse, key=lambda a: a.fewest / a.cost)[:4]:
            verb = a.what.split()[1].replace("atomic", "add")
            out.append(
                f"  line {a.line}: a warp {verb}s {a.bytes} bytes a lane in {a.cost:.1f} {unit}, "
                f"where {a.fewest:.1f} would do"
            )
        if mine and not worse and kind == "global":
            full = max(mine, key=lambda a: (a.widest.bytes, a.widest.lanes))
            lanes, moved, cost = full.widest.lanes, full.widest.bytes, full.widest.cost
            verb = "share" if moved < lanes * full.bytes else "move"
            who = f"{lanes} lanes {verb}" if lanes > 1 else f"1 lane {verb}s"
            took = f"{moved} bytes in {cost} sector{'s' * (cost != 1)}"
            out.append(f"  {who} {took}, the fewest possible")
        elif mine and not worse:
            out.append("  no bank conflicts in shared memory")
    return out


def fault_lines(study: Study) -> list[str]:
    """What is wrong with the kernel as it stands."""
    out = ["WRONG AS IT STANDS", ""]
    for finding in study.findings:
        out += wrap(f"  {finding.sentence()}", 4)
    for name, tally in zip(study.data, study.tallies, strict=True):
        things = tally.what.split()[0]
        if tally.wrong:
            out.append(f"  {tally.wrong:,} of {tally.of:,} {things} are wrong on {name} data")
        elif tally.wrong == 0 and study.findings:
            out.append(f"  all {things} are right on {name} data; it is a fault all the same")
    return [*out, ""]


def barrier_lines(study: Study) -> list[str]:
    """The table; what the kernel as it stands is already told of is told once."""
    out = ["WHICH BARRIER IS FOR WHAT   each taken out in turn, the rest left as it is", ""]
    title = "".join(f"{tally.what} of {tally.of:,}, by data" for tally in study.tallies[:1])
    collides = f"what {'else ' * bool(study.findings)}collides without it"
    out.append(f"  {'barrier':<12}{'runs':>6}   {collides}{title:>{WIDTH - 23 - len(collides)}}")
    out.append(" " * 80 + "".join(f"{clip(name, 9):>10}" for name in study.data))
    for number, barrier in enumerate(study.barriers, 1):
        out += one_barrier(number, barrier, "nothing more" if study.findings else "nothing")
    inside = "nothing" if not study.findings else "see above"
    out.append(f"  {'all in place':<21}{inside:<{TOLD}}" + figures(study.tallies))
    return out + not_known(". is", study)


def not_known(what: str, study: Study) -> list[str]:
    """Why a tally is not known, each reason once."""
    barriers = [tally for barrier in study.barriers for tally in barrier.tallies]
    whys = [tally.why for tally in (*study.tallies, *barriers) if tally.wrong is None]
    return [line for why in dict.fromkeys(whys) for line in wrap(f"  {what} not known: {why}", 4)]


def one_barrier(number: int, barrier: Barrier, nothing: str) -> list[str]:
    first = f"  {number:<3}line {barrier.line:<4}{barrier.runs:>6}   "
    found = [collision(finding) for finding in barrier.collisions[:2]] or [nothing]
    texts = [found[0] if barrier.ended else f"{found[0]}; stopped there", *found[1:]]
    told = [line for text in texts for line in wrap(text, 2, TOLD)]
    out = [f"{first:<23}{told[0]:<{TOLD}}" + figures(barrier.tallies)]
    return out + [" " * 23 + line for line in told[1:]]


def figures(tallies: Sequence[Tally]) -> str:
    return "".join(f"{tally.words():>10}" for tally in tallies)


def collision(finding: Finding) -> str:
    """A finding of a kernel without one barrier, in the words of what should have come first.

    The thread that had passed the missing barrier more often is the one that runs ahead.
    """
    a, b = finding.first, finding.second
    if finding.kind != "race" or b is None:
        return finding.sentence()
    early, late = (a, b) if a.skipped < b.skipped else (b, a)
    done = {"reads": "read", "writes": "wrote", "adds to": "added to"}[early.verb]
    return (
        f"{late.line} {late.verb} {finding.place} before {early.line} {done} it "
        f"(threads {late.thread}, {early.thread})"
    )


def forgiven_lines(study: Study, forgiven: Sequence[str]) -> list[str]:
    """The barriers whose loss left every row right on some data, and the caller's reason.

    Of a kernel that is wrong as it stands nothing is said: what its other faults did is in there.
    """
    numbers = [
        number
        for number, barrier in enumerate(study.barriers, 1)
        if barrier.collisions and barrier.ended and 0 in [t.wrong for t in barrier.tallies]
    ]
    if not numbers or not study.clean:
        return []
    names = " and ".join([", ".join(map(str, numbers[:-1])), str(numbers[-1])]).removeprefix(
        " and "
    )
    verb = "is a race" if len(numbers) == 1 else "are races"
    where = "on some of the data" if len(study.data) > 1 else "on this data"
    stays = "stays" if study.tallies[0].what.endswith("changed") else "is right"
    out = ["", f"  {names} {verb} whose answer {stays} {where}."]
    out += [f"  {line}" for line in forgiven]
    return [*out, "  A race is a fault even where this run's answer is right."]
