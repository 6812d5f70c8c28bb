"""The report on the terminal: a pure function of a Report. The answer first, the summary last."""

from __future__ import annotations

from collections.abc import Sequence

from tabulate import tabulate

from compare.report.case import block, groups, headline_agreement, not_here, ratio_to_cuda, wrong
from compare.report.words import clip, equal_words, percent, rule, shape_words, wrap
from compare.results import Case, Clock, Report

BUILT_IN = ("softmax", "matmul")  # pairs that have a lesson


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
    rows = []
    for group in groups(run.cases):
        main = group[0]
        name = f"{main.pair}{' ' + main.precision if main.signed else ''} {shape_words(main.shape)}"
        rows.append([name, match_words(group), bits_words(main), time_words(run, main)])
    head = ["pair", "match", "bit for bit", "Triton's time / CUDA's"]
    text = tabulate(rows, headers=head, tablefmt="plain", disable_numparse=True)
    lines = [rule("summary"), *(f"  {line}".rstrip() for line in text.splitlines())]
    twins = twin_words(run)
    return [*lines, *twins, *last_lines(run)]


def match_words(group: Sequence[Case]) -> str:
    if not_here(group[0]):
        return "needs a card" if "needs a card" in group[0].unstated else "not run"
    if wrong(group):
        return "NO"
    return {"": "not compared", "NO MATCH": "NO"}.get(group[0].verdict, "yes")


def bits_words(case: Case) -> str:
    agreement = headline_agreement(case)
    if agreement is None:
        return "."
    return equal_words(agreement.equal, agreement.total) if case.bits_count else "a card's question"


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
    steps = [f"next: python -m compare lesson {first}", f"python -m compare bits {first}"]
    if first not in BUILT_IN:
        steps = ["next: python -m compare list"]
    if run.exit_code:
        steps = ["next: python -m compare doctor"]
        if wrong(run.cases) and "--explain" not in run.command:
            steps = [f"next: {run.command} --explain"]
    lead = f"{run.seconds:.1f} s   exit {run.exit_code}   "
    return wrap(lead + "     ".join(steps), len(lead))
