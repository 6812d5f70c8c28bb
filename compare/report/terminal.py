"""The report on the terminal: a pure function of a Report. The answer first, the summary last."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from tabulate import tabulate

from compare.report.case import block, groups, headline_agreement, not_here, ratio_to_cuda
from compare.report.failures import wrong
from compare.report.words import WIDTH, clip, equal_words, percent, rule, shape_words, wrap
from compare.results import Case, Clock, Report

BUILT_IN = ("softmax", "matmul")  # pairs that have a lesson
OUTPUTS = ("--json", "--md", "--html", "--junit", "--save", "--outputs")  # what a run writes


def report(run: Report, recorded: Report | None = None, explain: bool = False) -> list[str]:
    """Every line. `recorded` lends its figures to a machine without a card, labelled; `explain`
    adds every check with its formula and source."""
    lent = recorded if not on_card(run) else None
    lines = header(run)
    for group in groups(run.cases):
        lines += ["", *block(group, lent, explain)]
    return [*lines, "", *summary(run)]


def on_card(run: Report) -> bool:
    return run.machine.get("mode") == "card"


def header(run: Report) -> list[str]:
    """What ran where, with which versions and settings."""
    machine, title = run.machine, f"triton-vs-cuda {run.version}"
    built = "   ".join(f"{name} {text}" for name, text in machine["versions"].items() if text)
    seed = f"seed {run.cases[0].seed}" if run.cases else ""
    if on_card(run):
        lines = [
            f"{title}    one operation, two languages, the same input bits, one card",
            f"card     {machine['card_words']}{repeat_words(run)}",
            f"built    {built}",
            f"pinned   {machine['pinned']}   {seed}",
        ]
        clocks = [case.clock for case in run.cases if case.clock]
        lines += [line for text in clock_words(clocks) for line in wrap(text, 9)]
    else:
        lines = [
            f"{title}    one operation, two languages, the same input bits",
            f"{machine['banner']:<22} this run shows right or wrong, never time",
            *wrap(f"  Triton runs in Triton's interpreter (numpy)       {machine['cuda_side']}", 4),
            "  not modelled: the card's exp and division, tf32, warps, races between programs",
            f"built    {built}   {seed}",
        ]
    variables = machine.get("variables", {})
    if variables:
        words = [f"{name}={clip(value, 12)}" for name, value in variables.items()]
        while len(lead := "set      " + "  ".join(words)) > 80 and len(words) > 1:
            words.pop()
        more = len(variables) - len(words)
        lines.append(clip(lead + (f"  and {more} more: --json" if more else ""), 100))
    return lines + [line for note in run.notes for line in wrap(f"note     {note}", 9)]


def repeat_words(run: Report) -> str:
    repeats = min((case.repeats for case in run.cases if case.repeats), default=0)
    return f"     each run {repeats} times" if repeats > 1 else ""


def clock_words(clocks: Sequence[Clock]) -> list[str]:
    """How time was measured, from every group's clock: the largest floor of them."""
    if not clocks:
        return []
    floors = [f for clock in clocks for f in (clock.floor_cold, clock.floor_warm) if f is not None]
    floor = f"; A/A floor {percent(max(floors))}" if floors else ""
    rounds = sorted({clock.rounds for clock in clocks})
    count = f"{rounds[0]} .. {rounds[-1]}" if len(rounds) > 1 else str(rounds[0])
    return [
        f"clock    device time from {clocks[0].method}, sides interleaved, middle 80 % of {count}"
        f"{floor}",
        *(f"note     {note}" for note in dict.fromkeys(n for clock in clocks for n in clock.notes)),
    ]


def summary(run: Report) -> list[str]:
    """One line a pair, then the time, the exit code and what to do next."""
    rows = [cells for _, cells in summary_rows(run)]
    head = ["pair", "match", "bit for bit", "Triton's time / CUDA's"]
    text = tabulate(rows, headers=head, tablefmt="plain", disable_numparse=True)
    lines = [rule("summary"), *(f"  {line}".rstrip() for line in text.splitlines())]
    twins = twin_words(run)
    return [*lines, *twins, *last_lines(run)]


def summary_rows(run: Report) -> list[tuple[int, list[str]]]:
    """The number of the group and the cells of each line: one line a case. On a card a group's
    shapes that were not to be timed stand in its first line."""
    rows = []
    for index, group in enumerate(groups(run.cases)):
        folded = on_card(run) and not any(case.clock for case in group[1:])
        for case in group[:1] if folded else group:
            precision = f" {case.precision}" if case.signed else ""
            name = f"{case.pair}{precision} {shape_words(case.shape)}"
            match = match_words(group if folded else [case])
            rows.append((index, [name, match, bits_words(case), time_words(run, case)]))
    return rows


def match_words(group: Sequence[Case]) -> str:
    if not_here(group[0]):
        return "needs a card" if "needs a card" in group[0].unstated else "not run"
    if wrong(group) or any(case.verdict == "NO MATCH" for case in group):
        return "NO"
    return "yes" if group[0].verdict else "not compared"


def bits_words(case: Case) -> str:
    agreement = headline_agreement(case)
    if agreement is None:
        return "."
    if case.bits_count or agreement.verdict == "identical":
        return equal_words(agreement.equal, agreement.total)
    return "a card's question" if case.verdict == "MATCH" else "."


def time_words(run: Report, case: Case) -> str:
    ratio = ratio_to_cuda(case)
    if ratio is not None:
        return f"{ratio.value:.2f}   {ratio.verdict}"
    return "." if on_card(run) else "needs a card"


def twin_words(run: Report) -> list[str]:
    """How many of the exact twins kept the bits that they claim."""
    claims = [c for case in run.cases for c in case.claims]
    if not claims:
        return []
    held = sum(claim.holds for claim in claims)
    return [f"  exact twins: {held} of {len(claims)} keep CUDA's bits"]


def last_lines(run: Report) -> list[str]:
    first = run.cases[0].pair if run.cases else "softmax"
    steps = [f"python -m compare lesson {first}", f"python -m compare bits {first}"]
    if first not in BUILT_IN:
        steps = ["python -m compare list"]
    steps = list(run.next) or steps
    if run.exit_code:
        again = [f"{without_outputs(run.command)} --explain"] * ("--explain" not in run.command)
        steps = [*again, *run.next] * wrong(run.cases) or ["python -m compare doctor"]
    lead = f"{run.seconds:.1f} s   exit {run.exit_code}   next: "
    lines = wrap(lead + steps[0], len(lead))
    for step in steps[1:]:  # a command that does not fit stands on a line of its own
        if len(lines[-1]) + 5 + len(step) <= WIDTH:
            lines[-1] += f"     {step}"
        else:
            lines += wrap(" " * len(lead) + step, len(lead))
    return lines


def without_outputs(command: str) -> str:
    """A command line without the options that write files: to repeat it must overwrite nothing."""
    kept, words = [], iter(shlex.split(command))
    for word in words:
        name, equals, _ = word.partition("=")
        if name not in OUTPUTS:
            kept.append(word)
        elif not equals:
            next(words, None)
    return shlex.join(kept)
