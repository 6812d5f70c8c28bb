"""The tasks of a lesson: each asked without its answer, and each checked by doing it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from compare import steps
from compare.compiled.compilers import watch_cuda
from compare.inputs import Stream
from compare.lesson import oneblock
from compare.lesson.figures import named
from compare.lesson.stepper import code_at, statement
from compare.order.tree import Tree, cut, halves, predict
from compare.pair import Implementation, Pair, Shape

DATA = "spike"  # on which a missing barrier shows
SEED = 20260901
SAMPLES = 1000
Verdict = tuple[bool | None, list[str]]  # None where the answer is none that could be judged


class Unanswerable(ValueError):
    """An answer that can't be looked at; the sentence says how to write one."""


def check(pair: Pair, shape: Shape, number: int, answer: str) -> Verdict:
    """Whether the answer is right, and what was found; never what the right answer is.

    Unanswerable: an answer that does not parse, a file that can't be read. ValueError: no such
    task. KernelError: a file that does not build, a machine without the emulator.
    """
    words = steps.words(pair.name)
    tasks = (words.tasks if words else None) or {}
    if words is None or number not in tasks:
        known = ", ".join(map(str, sorted(tasks))) or "none"
        raise ValueError(f"{pair.name} has no task {number}; its tasks are {known}")
    thread, task = named(pair, words.settings["cuda"], "cuda"), tasks[number]
    if "writes" in task:
        return barrier_task(pair, shape, thread, task, answer)
    if "kind" in task:
        return threads_task(pair, shape, thread, task, answer)
    return share_task(task, answer)


def barrier_task(
    pair: Pair, shape: Shape, thread: Implementation, task: Mapping[str, str], answer: str
) -> Verdict:
    """A file with one barrier less, run: the write and the read it kept apart must now collide."""
    from cuda_ref.emulator.trace import trace

    try:
        text = Path(answer).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise Unanswerable(f"{answer} can't be read ({reason}); name a .cu file") from None
    launch = launched(pair, tuple(min(size, 64) for size in shape), thread)
    name = Path(answer).name
    mine, own = written(text), written(launch.file.read_text(encoding="utf-8"))
    if mine != own - 1:
        counted = f"{name} has {mine} barriers, {launch.file.name} has {own}"
        return None, [f"{counted}: take out exactly one"]
    found = trace(
        text, launch.name, launch.grid, launch.block, launch.args, launch.shared_mem,
        label=name, options=launch.options,
    )  # fmt: skip
    said = [f"{name}: {mine} barriers; run on {DATA} data:"]
    said += [f"  {finding.sentence()}" for finding in found.findings[:4]] or ["  nothing collides"]
    races = [
        {begins(text, finding.first.line), begins(text, finding.second.line)}
        for finding in found.findings
        if finding.second
    ]
    wanted = {squeezed(task["writes"]), squeezed(task["reads"])}
    # A read of what nobody has written yet is the fault of another barrier than one that keeps a
    # write from coming too early.
    early = any(finding.kind == "unwritten" for finding in found.findings)
    met = any(all(any(code.startswith(w) for code in race) for w in wanted) for race in races)
    return met and not early, said


def threads_task(
    pair: Pair, shape: Shape, thread: Implementation, task: Mapping[str, str], answer: str
) -> Verdict:
    """Which threads do a thing: `0-255`, held against what the emulator saw."""
    match = re.fullmatch(r"\s*(\d+)\s*-\s*(\d+)\s*", answer)
    if match is None:
        raise Unanswerable(f"{answer!r} is no range of threads; write it as {task['answer']}")
    inputs = pair.inputs(shape, pair.data[0], SEED)
    output = np.zeros(pair.output_shape(shape), np.float32)
    log = oneblock.run(thread, (*inputs.values(), output)).log
    log = log[log["kind"] == task["kind"]]
    if "row" in task:
        row = int(task["row"])
        log = log[log["element"] // output.shape[-1] == row]
    else:
        launch = launched(pair, shape, thread)
        text = launch.file.read_text(encoding="utf-8")
        wanted = squeezed(task["source"])
        at = [line for line in np.unique(log["line"]) if begins(text, int(line)) == wanted]
        log = log[np.isin(log["line"], at)]
        levels = np.unique(log["interval"])
        log = log[log["interval"] == levels[int(task["level"]) - 1]]
    doing = np.unique(log["thread"])
    said = sorted({int(match[1]), int(match[2])})
    right = said == sorted({int(doing.min()), int(doing.max())})
    return right, [f"threads {match[1]} to {match[2]}: {'yes' if right else 'no'}"]


def share_task(task: Mapping[str, str], answer: str) -> Verdict:
    """A share in percent, held against the two orders added in float32 here."""
    try:
        guess = float(answer.rstrip("% "))
    except ValueError:
        raise Unanswerable(f"{answer!r} is no number; write it as {task['answer']}") from None
    terms = int(task["terms"])
    one, other = order(task["first"], terms), order(task["second"], terms)
    share = 100 * predict(one, other, addends(task["data"], terms))
    right = abs(guess - share) <= float(task["within"])
    off = "" if right else f"; it is {'more' if share > guess else 'less'}"
    return right, [f"{guess:g} % of the sums: {'yes' if right else 'no'}{off}"]


def order(text: str, terms: int) -> Tree:
    """`cut 1 1024`, `cut 256 1 halves`: ways and group of `tree.cut`, then how sums are folded."""
    _, ways, group, *fold = text.split()
    return cut(terms, int(ways), int(group), halves(int(ways)) if fold else ())


def addends(kind: str, terms: int) -> np.ndarray:
    """SAMPLES rows of `terms` numbers to add: float32 exponentials, or exact products."""
    stream, shape = Stream("lesson", (SAMPLES, terms), kind, SEED), (SAMPLES, terms)
    a = stream.normal("a", shape).astype(np.float64)
    if kind == "exponentials":
        return np.exp(a - a.max(axis=1, keepdims=True)).astype(np.float32).astype(np.float64)
    return a * stream.normal("b", shape).astype(np.float64)


def launched(pair: Pair, shape: Shape, thread: Implementation) -> Any:
    """The launch of `thread` on data of this shape, not done."""
    inputs = pair.inputs(shape, DATA, SEED)
    with watch_cuda(dry=True) as seen:
        output = np.zeros(pair.output_shape(shape), np.float32)
        thread.function()(*inputs.values(), output, **thread.options)
    return seen[0]


def written(text: str) -> int:
    """How many barriers a source writes."""
    code = re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.S)
    return len(re.findall(r"\b__syncthreads\s*\(", code))


def begins(text: str, line: int) -> str:
    """The statement that line `line` belongs to, without spaces."""
    lines: Sequence[str] = text.splitlines()
    return squeezed(code_at(lines, statement(lines, line))) if 0 < line <= len(lines) else ""


def squeezed(code: str) -> str:
    return "".join(code.split())
