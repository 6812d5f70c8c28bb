"""The numbers of a lesson: what its words may name, what each step and each side does."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from compare.compiled import Code, Compilation
from compare.compiled.layout import held as held_by
from compare.lesson import oneblock
from compare.pair import Implementation, Pair, Shape
from compare.results import Report, Row
from compare.steps import KERNEL, Side


def named(pair: Pair, name: str, language: str) -> Implementation:
    """The implementation of that name, else the pair's first in that language."""
    of_language = [i for i in pair.implementations if i.language == language]
    if not of_language:
        raise ValueError(f"{pair.name} has no {language} implementation; a lesson compares the two")
    return next((i for i in of_language if i.name == name), of_language[0])


def code_of(compilation: Compilation, implementation: Implementation) -> Code | None:
    built = compilation.built(implementation.name)
    return built.codes[0] if built and built.codes else None


def facts(
    pair: Pair,
    shape: Shape,
    compilation: Compilation,
    block: Implementation,
    thread: Implementation,
    ran: oneblock.Block | None,
    right: Side,
    element: Sequence[int],
) -> dict[str, str]:
    """Every number that the words of a lesson may name; what nobody could tell is left out."""
    found = {name: f"{size:,}" for name, size in zip(pair.dims, shape, strict=True)}
    if element:
        found["column"] = str(element[-1])
        found["element"] = f"[{', '.join(map(str, element))}]"
    if code := code_of(compilation, block):
        found |= block_facts(code, compilation.holders.get(block.name, ""))
    if code := code_of(compilation, thread):
        found |= {"threads": f"{code.threads}", "shared": f"{code.shared:,}"}
        found["cuda_barriers"], found["cuda_compiler"] = str(code.counts["barriers"]), code.compiler
    if ran:
        waits = oneblock.barriers(ran)
        found |= {
            "threads": f"{ran.threads}",
            "barriers_run": str(sum(times for _, times in waits)),
            "cuda_levels": str(max((times for _, times in waits), default=0)),
        }
        holder = re.fullmatch(r"thread (\d+)", compilation.holders.get(thread.name, ""))
        if holder and len(element) == 1:
            log = ran.log[ran.log["array"] == "input 0"]
            own = log["element"][log["thread"] == int(holder[1])]
            found["cuda_columns"] = runs(np.unique(own).tolist())
        if holder and element:
            found["cuda_thread"] = holder[1]
            found["cuda_turn"] = str(element[-1] // ran.threads)
    written = written_barriers(right)
    if right.parts:
        found["barriers_written"] = str(len(written))
    if "shared" not in found and ran and (size := shared_bytes(ran)):
        found["shared"] = f"{size:,}"
    if "threads" in found and "COLS" in found:
        found["cuda_each"] = str(-(-shape[-1] // int(found["threads"])))
    found["row_bytes"] = f"{4 * shape[-1]:,}"
    return found


def block_facts(code: Code, holder: str) -> dict[str, str]:
    """The Triton side's."""
    warps = code.threads // 32
    found = {name: str(value) for name, value in code.options.items()}
    found |= {
        "triton_threads": str(code.threads),
        "warps": str(warps),
        "triton_shared": f"{code.shared:,}",
        "triton_barriers": str(code.counts["barriers"]),
        "triton_compiler": code.compiler.partition(",")[0],
        "warp_levels": "5",
        "cross_levels": str((warps - 1).bit_length()),
    }
    if code.loaded and code.loaded.per_thread:
        each = code.loaded.per_thread[-1]
        held = max(1, math.prod(code.loaded.shape) // code.threads)
        width = max(code.widths.get("global loads", {"32": 1}), key=str)
        found |= {"per_thread": str(each), "held": str(held), "load_bits": width}
        found["loads"] = str(code.counts["global loads"])
    if code.summed:
        found["each_sums"] = str(math.prod(code.summed.shape) // code.threads)
    if match := re.fullmatch(r"thread (\d+)", holder):
        found["triton_thread"] = match[1]
        if code.loaded and (own := held_by(code.loaded, int(match[1]))):
            found["triton_columns"] = runs(own)
    return found


def runs(numbers: Sequence[int]) -> str:
    """`188 .. 191, 700 .. 703`: numbers in order, neighbours put together; the first 4 of them."""
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][-1] + 1:
            found[-1].append(number)
        else:
            found.append([number])
    words = [str(run[0]) if len(run) == 1 else f"{run[0]} .. {run[-1]}" for run in found]
    return ", ".join(words[:4]) + (" .." if len(words) > 4 else "")


def recorded_facts(
    recorded: Report | None, pair: Pair, block: Implementation, thread: Implementation
) -> dict[str, str]:
    """What a recorded report says of the two: cold times and equal bits, with the card's name and
    the shape that they are of."""
    case = next((c for c in recorded.cases if c.pair == pair.name), None) if recorded else None
    if recorded is None or case is None:
        return {}
    found = {
        "recorded_on": str(recorded.machine.get("card_name", "a card")),
        "recorded_shape": "x".join(map(str, case.shape)),
    }
    rows = {"triton_us": case.row(block.name), "cuda_us": case.row(thread.name)}
    found |= {name: f"{row.timing.cold.us:.2f}" for name, row in rows.items() if timed(row)}  # type: ignore[union-attr]
    row = rows["triton_us"]
    for agreement in row.agreements if row else ():
        if agreement.counterpart == thread.name:
            found["recorded_equal"] = f"{100 * agreement.equal / max(1, agreement.total):.1f} %"
            found["recorded_ulp"] = str(agreement.max_ulp)
    return found


def recorded_times(recorded: Report | None, pair: Pair) -> tuple[tuple[str, str, float], ...]:
    """Name, language and cold time in microseconds of every implementation of the first case."""
    case = next((c for c in recorded.cases if c.pair == pair.name), None) if recorded else None
    rows = case.rows if case else ()
    return tuple(
        (row.name, row.language, row.timing.cold.us)
        for row in rows
        if row.timing and row.timing.cold and row.language
    )


def timed(row: Row | None) -> bool:
    return bool(row and row.timing and row.timing.cold)


def shared_bytes(ran: oneblock.Block) -> int:
    """Bytes of shared memory from the first to the last that the block touched."""
    kinds = np.array(ran.log["kind"])
    touched = ran.log["element"][np.isin(kinds, ["shared read", "shared write"])]
    return 4 * (int(touched.max()) + 1) if touched.size else 0


def written_barriers(side: Side) -> list[int]:
    """The lines on which the source writes a barrier."""
    return [
        part.first + at
        for part in side.parts
        for at, line in enumerate(part.lines)
        if re.search(r"\b__syncthreads\s*\(", line.partition("//")[0])
    ]


def numbers(
    label: str,
    left: Side,
    right: Side,
    block: Implementation,
    shape: Shape,
    programs: int,
    ran: oneblock.Block | None,
) -> tuple[tuple[str, str, str], ...]:
    """What one block of either side does in a step, as far as it is known."""
    found = []
    part = right.part(label)
    written = sum(part.holds(line) for line in written_barriers(right)) if part else 0
    if written and part:
        runs = sum(n for line, n in oneblock.barriers(ran) if part.holds(line)) if ran else None
        times = "" if runs is None else f", run {runs} times by each thread"
        found.append(("barriers written", "0", f"{written}{times}"))
    traffic = block.traffic(shape).get(label) if block.traffic else None
    left_bytes = f"{traffic // programs:,}" if traffic and programs else "0"
    if ran and part and label != KERNEL:
        inside = np.array([part.holds(int(line)) for line in ran.log["line"]], bool)
        kinds = ran.log["kind"][inside]
        moved = 4 * int(np.isin(kinds, ["global read", "global write"]).sum())
        if moved or left_bytes != "0":
            found.append(("bytes read and written", left_bytes, f"{moved:,}"))
        touched = int(np.isin(kinds, ["shared read", "shared write"]).sum())
        if touched:
            found.append(("shared reads and writes", "the compiler's", f"{touched:,}"))
    return tuple(found)


def totals(
    compilation: Compilation,
    block: Implementation,
    thread: Implementation,
    known: Mapping[str, str],
) -> tuple[tuple[str, str, str], ...]:
    """The two sides as a whole."""
    left, right = code_of(compilation, block), code_of(compilation, thread)
    run = compilation.executed.get(thread.name, {})

    def both(what: str, of: Callable[[Code], str]) -> tuple[str, str, str]:
        return what, of(left) if left else "?", of(right) if right else "?"

    found = [
        ("barriers written", "0", known.get("barriers_written", "?")),
        both("barriers in the code", barriers),
        ("barriers each thread runs", "not counted", str(run.get("barriers, each thread", "?"))),
        both("threads", lambda c: f"{c.threads} = {c.threads // 32} warps"),
        both("registers a thread", lambda c: str(c.registers)),
        both("shared memory", lambda c: f"{c.shared:,} bytes"),
        both("shuffles in the code", lambda c: str(c.counts["shuffles"])),
        both("loads in the code", loads),
        (
            "bytes asked of memory",
            f"{compilation.moved.get(block.name, 0):,}",
            f"{compilation.moved.get(thread.name, 0):,}",
        ),
    ]
    if compilation.element:
        holders = compilation.holders
        left_one, right_one = (holders.get(side.name, "?") for side in (block, thread))
        found.append((f"who holds {compilation.element}", left_one, right_one))
    if "triton_columns" in known and "cuda_columns" in known:
        found.append(("all columns of it", known["triton_columns"], known["cuda_columns"]))
    if "cross_levels" in known and known.get("fold") and "cuda_levels" in known:
        levels = f"{known['warp_levels']} in a warp, {known['cross_levels']} across warps"
        found.append(("levels of the fold", levels, f"{known['cuda_levels']}, in shared memory"))
    if "triton_us" in known or "cuda_us" in known:
        us = [f"{known[name]} us" if name in known else "." for name in ("triton_us", "cuda_us")]
        card = known["recorded_on"].removeprefix("NVIDIA ")
        found.append((f"on an {card} (recorded at {known['recorded_shape']})", us[0], us[1]))
    return tuple(found)


def barriers(code: Code) -> str:
    return f"{code.counts['barriers']} ({code.compiler.partition(',')[0]})"


def loads(code: Code) -> str:
    widths = code.widths.get("global loads") or code.widths.get("async copies") or {}
    return ", ".join(f"{n} of {width} bits" for width, n in widths.items()) or "none"
