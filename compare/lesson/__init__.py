"""The command `lesson`: one operation in two models, step by step, with the numbers of each."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from compare import show_compiled, steps
from compare.compiled import Code, Compilation
from compare.compiled.compilers import Missing, dry_cuda
from compare.lesson import oneblock
from compare.lesson.figures import (
    code_of,
    facts,
    named,
    numbers,
    recorded_facts,
    recorded_times,
    totals,
)
from compare.lesson.stepper import show
from compare.lesson_data import Lesson, Show, Step
from compare.machine import Refusal
from compare.pair import Implementation, Pair, Shape
from compare.results import Report, write_text
from compare.run import check_outputs, recorded
from compare.steps import Side, Words, filled


def command(
    name: str,
    *,
    shape: str = "",
    arch: str = "",
    html: str = "",
    task: int = 0,
    answer: str = "",
    width: int = 100,
    progress: Callable[[str], None] = lambda text: None,
) -> tuple[list[str], int]:
    """The screen and the exit code of `lesson NAME`; `html` names a file for the page.

    `task` prints one task, or with `answer` checks it: 0 where it is right, 1 where it is not.
    Refusal: 2 for an unknown pair, task, arch or shape, an answer that does not parse, a file that
    can't be written.
    """
    from compare.report.lesson import lines

    pair, sizes, target = show_compiled.asked_for(name, shape, arch)
    if task:
        return try_task(pair, sizes, task, answer)
    if html:
        check_outputs((html,), "")
    found = build(pair, sizes, target, recorded(), progress)
    if html:
        from compare.report.html_lesson import lesson_page

        write_text(html, lesson_page(found))
    return lines(found, width), 0


def try_task(pair: Pair, shape: Shape, number: int, answer: str) -> tuple[list[str], int]:
    """One task as it is asked, or what its checker says of an answer."""
    from compare.lesson.tasks import check
    from compare.report.lesson import task_lines

    tasks = (words.tasks if (words := steps.words(pair.name)) else None) or {}
    if number not in tasks:
        known = ", ".join(map(str, sorted(tasks))) or "none"
        raise Refusal(2, f"--try {number}: {pair.name} has no such task; its tasks are {known}")
    if not answer:
        thread = named(pair, words.settings["cuda"], "cuda") if words else None
        known_facts = task_facts(pair, shape, thread) if thread else {}
        task = tasks[number]
        asked = filled(task["ask"], known_facts)
        return task_lines(pair.name, number, task["name"], asked, task["answer"]), 0
    try:
        right, said = check(pair, shape, number, answer)
    except ValueError as error:
        raise Refusal(2, f"--try {number}: {error}") from None
    verdict = {True: ["RIGHT"], False: ["NOT RIGHT"], None: []}[right]
    return [*said, *verdict], 0 if right else 1


def task_facts(pair: Pair, shape: Shape, thread: Implementation) -> dict[str, str]:
    """The numbers that the tasks name: how many threads a block has, and levels its fold."""
    inputs = pair.inputs(shape, pair.data[0], 0)
    shapes = [*(array.shape for array in inputs.values()), pair.output_shape(shape)]
    launch: Any = dry_cuda(thread.function(), shapes, thread.options)[0]
    threads = math.prod(launch.block)
    return {"threads": str(threads), "cuda_levels": str((threads - 1).bit_length())}


def build(
    pair: Pair,
    shape: Shape,
    arch: str,
    recorded: Report | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> Lesson:
    """The lesson of `pair` at `shape`, compiled for `arch`. Needs no card.

    What this machine lacks (a compiler, labels, words) is left out and named in `missing`.
    ValueError: an unknown arch, a shape that the pair does not take, a pair without both languages.
    """
    words = steps.words(pair.name) or Words({}, {}, {})
    block = named(pair, words.settings.get("triton", ""), "triton")
    thread = named(pair, words.settings.get("cuda", ""), "cuda")
    compilation = show_compiled.compile_pair(pair, shape, arch, (block, thread), progress)
    inputs = pair.inputs(shape, pair.data[0], 0)
    ran_or_why = show_compiled.one_block(thread, inputs, pair.output_shape(shape))
    ran = None if isinstance(ran_or_why, str) else ran_or_why
    element = show_compiled.asked(compilation.builds)
    progress(f"{pair.name}: the row that can be stepped")
    shown = show(pair, words, block, thread, arch)
    left = triton_side(block, code_of(compilation, block))
    right = cuda_side(thread, pair, inputs, shape)
    known = facts(pair, shape, compilation, block, thread, ran, right, element)
    known["fold"] = "yes" if words.folds else ""
    known |= recorded_facts(recorded, pair, block, thread)
    left = replace(left, model=filled(words.settings.get("block", "BLOCK MODEL"), known))
    right = replace(right, model=filled(words.settings.get("thread", "THREAD MODEL"), known))
    labels = dict.fromkeys([*(p.label for p in left.parts), *(p.label for p in right.parts)])
    programs = math.prod(code.grid) if (code := code_of(compilation, block)) else 0
    return Lesson(
        pair.name,
        words.settings.get("title", pair.summary),
        shape,
        arch,
        left,
        right,
        tuple(
            Step(
                label,
                filled(words.block.get(label, ""), known),
                filled(words.thread.get(label, ""), known),
                numbers(label, left, right, block, shape, programs, ran),
            )
            for label in labels
        ),
        totals(compilation, block, thread, known),
        compilation.element,
        filled_pairs(words.glossary, known),
        filled_pairs(words.questions, known),
        filled_pairs(words.bits, known),
        tuple(
            (number, task["name"], filled(task["ask"], known), task["answer"])
            for number, task in sorted((words.tasks or {}).items())
        ),
        None if isinstance(shown, str) else shown,
        missing(pair, left, right, compilation, ran_or_why, shown, words),
        known,
        recorded_times(recorded, pair),
        known.get("recorded_on", ""),
    )


def triton_side(implementation: Implementation, code: Code | None) -> Side:
    """The kernel that was compiled, from the file of its launcher; without importing it."""
    entry = implementation.entry
    module = entry.partition(":")[0] if isinstance(entry, str) else entry.__module__
    spec = find_spec(module)
    path = Path(spec.origin) if spec and spec.origin else None
    if code is None or path is None:
        return Side(implementation.name, path.name if path else module, "")
    try:
        parts = steps.triton_parts(path.read_text(encoding="utf-8"), code.kernel)
    except (OSError, ValueError):
        parts = []
    return Side(implementation.name, shown_path(path), "", tuple(parts))


def cuda_side(
    implementation: Implementation, pair: Pair, inputs: Mapping[str, np.ndarray], shape: Shape
) -> Side:
    """The kernel that would be launched, from its .cu file."""
    shapes = [*(array.shape for array in inputs.values()), pair.output_shape(shape)]
    try:
        launch: Any = dry_cuda(implementation.function(), shapes, implementation.options)[0]
        text = launch.file.read_text(encoding="utf-8")
        parts = steps.cuda_parts(text, launch.name)
    except (ImportError, IndexError, OSError, ValueError, Missing):
        return Side(implementation.name, "", "")
    return Side(implementation.name, shown_path(launch.file), "", tuple(parts))


def shown_path(path: Path) -> str:
    """`folder/file`, as the tree has it."""
    return f"{path.parent.name}/{path.name}"


def filled_pairs(
    pairs: Sequence[tuple[str, str]], known: Mapping[str, str]
) -> tuple[tuple[str, str], ...]:
    """Names and texts with their numbers; what only a recorded run could tell is left out."""
    told = [p for p in pairs if known.get("recorded_equal") or "{recorded_" not in p[1]]
    return tuple((filled(name, known), filled(text, known)) for name, text in told)


def missing(
    pair: Pair,
    left: Side,
    right: Side,
    compilation: Compilation,
    ran: oneblock.Block | str,
    shown: Show | str,
    words: Words,
) -> tuple[str, ...]:
    """One sentence for everything that this lesson lacks."""
    skipped = [built for built in compilation.builds if built.skipped]
    found = [f"{built.name} is not compiled: {built.skipped}" for built in skipped]
    for side, mark in ((left, "#"), (right, "//")):
        if len(side.parts) < 2:
            found.append(f"{side.name} has no step labels; write '{mark} [name]' on its own lines")
    labels = [[part.label for part in side.parts] for side in (left, right)]
    if all(labels) and labels[0] != labels[1]:
        found.append("the two sources have different step labels: not all of them are aligned")
    if not words.block:
        found.append(f"no words for {pair.name}: write compare/pairs/lessons/{pair.name}.txt")
    if isinstance(ran, str):
        found.append(f"no CUDA thread was run: {ran}")
    elif isinstance(shown, str) and shown:
        found.append(shown)
    return tuple(found)
