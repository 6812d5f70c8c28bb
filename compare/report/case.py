"""One pair at one precision on the terminal: two columns, verdicts, and a row for everything."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from compare.report.failures import aside, aside_lines, failure_lines
from compare.report.tables import COPY, check_lines, has_cold, implementations, short, sizes
from compare.report.tables import ratio_to_cuda as ratio_to_cuda
from compare.report.timing import ladder_lines
from compare.report.words import (
    clip,
    equal_words,
    error_words,
    microseconds,
    percent,
    rate,
    rule,
    shape_words,
    wrap,
)
from compare.results import Agreement, Case, Ratio, Report, Row, Sample

LEFT, RIGHT = 28, 62  # columns at which the two sides of the block begin
BUSY = 32  # operations a byte from which a rate says more than a time


def groups(cases: Sequence[Case]) -> list[list[Case]]:
    """Cases of one pair and precision together, in the order of the first of each."""
    found: dict[tuple[str, str], list[Case]] = {}
    for case in cases:
        found.setdefault((case.pair, case.precision), []).append(case)
    return list(found.values())


def block(group: Sequence[Case], recorded: Report | None, explain: bool = False) -> list[str]:
    """One pair at one precision: what failed beside a match, two columns, verdicts, the table, the
    other shapes."""
    main = group[0]
    named = f"{title(main)} float32{precision_words(main)}{data_words(main)}"
    lines = [rule(named, f"input {input_name(main)}")]
    if not_here(main):
        return [*lines, f"  not run  {main.unstated or main.rows[0].skipped}"]
    lines += [*aside_lines(main), *two_columns(main, recorded), ""]
    lines += verdict_lines(main, recorded) + speed_lines(main) + failure_lines(main, aside(main))
    timed = [case for case in group if case.clock]
    if len(timed) > 1:
        lines += ["", *sizes(timed)]
    for other in group[1:]:
        if other not in timed:
            why = "; ".join(("", *(word for word in other.words if word not in main.words)))
            lines += wrap(f"  shapes   {shape_words(other.shape)}: {one_line(other)}{why}", 11)
        lines += [line for line in failure_lines(other) if line not in lines]
    lines += implementations(main)
    for row in main.rows:
        if row.timing and row.timing.ladder:
            lines += ["", *ladder_lines(row.name, row.timing.ladder)]
    return lines + (["", *check_lines(main)] if explain else [])


def data_words(case: Case) -> str:
    return "" if case.data == "random" else f", {case.data}"


def title(case: Case) -> str:
    return f"{case.pair} {shape_words(case.shape)}"


def precision_words(case: Case) -> str:
    return f", {case.precision}" if case.signed else ""


def input_name(case: Case) -> str:
    """A short name for the input bits: the first figures of the first hash."""
    return next(iter(case.inputs.values()), "")[:8]


def not_here(case: Case) -> bool:
    return all(row.skipped for row in case.rows)


def two_columns(case: Case, recorded: Report | None) -> list[str]:
    """Triton on the left, CUDA on the right, a line for every thing that both can say."""
    left, right = case.row(case.triton), case.row(case.cuda)
    sides = [side for side in (left, right) if side is not None]
    if len(sides) < 2:
        return []
    heads = ("Triton (block model)", cuda_head(sides[1]))
    lines = [columns("", *heads), columns("kernel", *(kernel_words(side) for side in sides))]
    stories = [dict(side.story) for side in sides]
    for label in dict.fromkeys(key for story in stories for key in story):
        lines.append(columns(label, *(story.get(label, ".") for story in stories)))
    if any(side.accuracy for side in sides):
        lines.append(columns("error against float64", *(error_cell(side) for side in sides)))
    for label, state in (("time, cold L2", "cold"), ("time, warm L2", "warm")):
        cells = [time_cell(side, state, case) for side in sides]
        if any(side.timing and getattr(side.timing, state) for side in sides):
            lines.append(columns(label, *cells))
    if not any(side.timing for side in sides) and recorded is not None:
        lines.append(columns("time", "needs a card", "needs a card"))
        cells = [recorded_time(recorded, case, side) for side in sides]
        if any(cells):
            lines.append(columns(f"on {recorded_name(recorded)} (recorded)", *cells))
    return lines


def columns(label: str, left: str, right: str) -> str:
    text = f"  {label}".ljust(LEFT) + clip(left, RIGHT - LEFT - 2)
    return (text.ljust(RIGHT) + clip(right, 100 - RIGHT)).rstrip()


def cuda_head(row: Row) -> str:
    return f"CUDA ({row.kernel})" if row.language == "library" else "CUDA (thread model)"


def kernel_words(row: Row) -> str:
    if row.language == "library" and row.timing and row.timing.kernel_names:
        return plain_kernel(row.timing.kernel_names[0])
    return row.kernel


def plain_kernel(name: str) -> str:
    """A kernel's own name: `void cutlass::Kernel2<gemm_64>(gemm_64::Params)` is gemm_64."""
    if match := re.search(r"Kernel2?<(\w+)>", name):
        return match[1]
    bare = re.sub(r"^void |\(anonymous namespace\)::", "", name)
    return re.split(r"[<(]", bare)[0]


def error_cell(row: Row) -> str:
    if row.skipped or row.accuracy is None:
        return row.skipped
    if math.isnan(row.accuracy.error):
        return "failed: see below"
    share = row.accuracy.share
    of_allowed = f"{percent(share)} of allowed" if share < 99.9 else "beyond the bound"
    return f"{error_words(row.accuracy.error):<12} {of_allowed}"


def time_cell(row: Row, state: str, case: Case) -> str:
    if row.timing is None:
        return ""
    sample: Sample | None = getattr(row.timing, state)
    if sample is None:
        return getattr(row.timing, f"no_{state}")
    text = f"{microseconds(sample.us)} us"
    if case.flops > BUSY * case.bytes:
        text = f"{text:<13}{rate(case.flops, sample.us)}"
    if sample.kernels != 1:
        text += f" in {sample.kernels} kernels"
    return text


def recorded_case(recorded: Report | None, case: Case) -> Case | None:
    """The recorded case of the same pair, shape, precision and data."""
    for known in recorded.cases if recorded else ():
        if (known.pair, known.shape, known.precision, known.data) == (
            case.pair,
            case.shape,
            case.precision,
            case.data,
        ):
            return known
    return None


def recorded_name(recorded: Report) -> str:
    return f"an {recorded.machine['card_name'].removeprefix('NVIDIA ')}"


def recorded_time(recorded: Report, case: Case, row: Row) -> str:
    known = recorded_case(recorded, case)
    twin = known.row(row.name) if known else None
    return f"{microseconds(twin.timing.cold.us)} us" if has_cold(twin) else ""  # type: ignore[union-attr]


def verdict_lines(case: Case, recorded: Report | None) -> list[str]:
    """MATCH, MATCH BIT FOR BIT or NO MATCH with its numbers, and the pair's own sentences."""
    if not case.verdict:
        return [*wrap(f"  NOT COMPARED   {case.unstated}", 17), *right_alone(case)]
    gap = "   " if len(case.verdict) > 8 else ""
    lines = wrap(f"  {case.verdict:<9}{gap}{one_line(case, verdict=False)}", 11)
    for text in case.words:
        lines += wrap(f"           {text}", 11)
    known = recorded_case(recorded, case)
    same = known is not None and (known.triton, known.cuda) == (case.triton, case.cuda)
    if known is not None and same and case.verdict != "NO MATCH":
        share = equal_share(known)
        if share:
            versions = known_versions(recorded)
            lines.append(f"           on {recorded_name(recorded)} (recorded{versions}): {share}")  # type: ignore[arg-type]
    return lines


def known_versions(recorded: Report | None) -> str:
    text = recorded.machine["versions"].get("triton", "") if recorded else ""
    return f", triton {text}" if text else ""


def equal_share(case: Case) -> str:
    agreement = headline_agreement(case)
    return f"{equal_words(agreement.equal, agreement.total)} bit for bit" if agreement else ""


def headline_agreement(case: Case) -> Agreement | None:
    row = case.row(case.triton)
    found = row.agreements if row else ()
    return next((a for a in found if a.counterpart == case.cuda), None)


def right_alone(case: Case) -> list[str]:
    """What is right where nothing stands beside it."""
    lines = []
    for row in case.rows:
        if row.accuracy is not None and row.accuracy.ok:
            share = percent(row.accuracy.share)
            words = f"{row.name}: error {error_words(row.accuracy.error)}, {share} of allowed"
            lines += wrap(f"  RIGHT    {words}", 11)
    return lines


def one_line(case: Case, verdict: bool = True) -> str:
    """A case in one sentence; its verdict is said where the sentence stands alone."""
    agreement = headline_agreement(case)
    if not case.verdict or agreement is None:
        return case.unstated or "see below"
    lead = f"{case.verdict}, " if verdict else ""
    total = f"all {agreement.total:,} elements" if not verdict else "all"
    if fallen := " and ".join(row.name for row in aside(case)):
        both = f"{case.triton} and {case.cuda}: "
        lead = f"{fallen} FAILED; {both}{lead}" if verdict else both
    if case.verdict == "NO MATCH":
        bad = [row.name for row in case.rows if row.accuracy and not row.accuracy.ok]
        if bad:
            return f"{lead}{' and '.join(bad)}: see below"
        return f"{lead}{agreement.total - agreement.equal:,} of {agreement.total:,} elements differ"
    if agreement.total == 0:
        return f"{lead}the output is empty: nothing to compare"
    if agreement.verdict == "identical":
        return f"{lead}{total}"
    if not case.bits_count:
        return f"{lead}{total} within tolerance"
    bits = f"{equal_words(agreement.equal, agreement.total)} bit for bit"
    if verdict:
        return f"{lead}{bits}"
    if case.signed:
        apart = f"at most {percent(agreement.share)} of it apart"
        return f"{lead}{total} within tolerance: {bits}, {apart}"
    return f"{lead}{total} within tolerance: {bits}, the rest {agreement.max_ulp} ULP at most"


def speed_lines(case: Case) -> list[str]:
    """Who is faster by how much, in one sentence, and against the other counterparts."""
    lines = []
    lead, cuda = ratio_to_cuda(case), case.row(case.cuda)
    if lead and cuda:
        lines = wrap(f"  {lead.verdict:<9}{speed_words(lead, short(cuda))}", 11)
    others = [
        ratio
        for ratio in case.ratios
        if (ratio.name, ratio.state) == (case.triton, "cold")
        and ratio.against not in (case.cuda, COPY)
    ]
    best = max(others, key=lambda ratio: ratio.value, default=None)
    if lead and best and best.value > lead.value:  # it is faster than what stands beside Triton
        lines += wrap(f"           {best.verdict}: {speed_words(best, best.against)}", 11)
    return lines


def speed_words(ratio: Ratio, against: str) -> str:
    span = f"({ratio.low:.3g} .. {ratio.high:.3g})"
    if ratio.verdict == "FASTER":
        span = f"({1 / ratio.high:.3g} .. {1 / ratio.low:.3g})"
        return f"Triton runs {1 / ratio.value:.2f}x as fast as {against}, {ratio.state} {span}"
    if ratio.verdict == "SLOWER":
        return f"Triton takes {ratio.value:.2f}x {against}'s time, {ratio.state} {span}"
    if ratio.verdict == "SAME":
        return f"Triton's time is {against}'s, {ratio.state}: ratio {ratio.value:.3f} {span}"
    return f"{ratio.reason or 'the interval holds both'}: ratio {ratio.value:.3f} {span}"
