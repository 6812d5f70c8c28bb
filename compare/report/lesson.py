"""The screen of `lesson`: two sources in two columns, aligned by their steps, and their numbers."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import replace

from compare.lesson_data import Lesson, Step, moment_words, thread_levels
from compare.report.words import WIDTH, shape_words, wrap
from compare.steps import KERNEL, Part, dedented

LEFT = 47  # characters of a column; kernel lines are no longer
STACKED = "    "  # before the lines of a source where the columns stand one under the other


def lines(lesson: Lesson, width: int = WIDTH) -> list[str]:
    """Every line: at most 100 columns, or `width` where the terminal is narrower (then stacked)."""
    wide, lesson = width >= WIDTH, bare(lesson)
    title = lesson.title.upper()
    where = f"{shape_words(lesson.shape)}, float32, compiled for {lesson.arch}"
    found = [title, *wrap(where, 0, min(width, WIDTH)), ""]
    if wide:
        found[:2] = [f"{title}{where:>{max(3 + len(where), WIDTH - len(title))}}"]
        found += [
            beside(lesson.triton.file, lesson.cuda.file),
            beside(lesson.triton.model, lesson.cuda.model),
        ]
    for step in lesson.steps:
        found += step_lines(lesson, step, width, wide)
    found += rule("all steps", wide, width, "=")
    for what, left, right in lesson.totals:
        found += number_lines(what, left, right, width, wide)
    found += ["", *small(lesson, width)] if lesson.shown else []
    found += ["", *after(lesson, min(width, WIDTH))]
    return [line.rstrip() for line in found]


def bare(lesson: Lesson) -> Lesson:
    """The lesson without the backticks around names of its sources."""

    def every(pairs: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
        return tuple((one.replace("`", ""), other.replace("`", "")) for one, other in pairs)

    told = every([(step.block, step.thread) for step in lesson.steps])
    steps = zip(lesson.steps, told, strict=True)
    return replace(
        lesson,
        steps=tuple(replace(step, block=block, thread=thread) for step, (block, thread) in steps),
        glossary=every(lesson.glossary),
        questions=every(lesson.questions),
        bits=every(lesson.bits),
    )


def step_lines(lesson: Lesson, step: Step, width: int, wide: bool) -> list[str]:
    left, right = lesson.triton.part(step.label), lesson.cuda.part(step.label)
    found = rule(step.label, wide, width)
    if wide:
        found += columns(source(left), source(right))
        if step.block or step.thread:
            found.append(beside("", ""))
        found += columns(textwrap.wrap(step.block, LEFT), textwrap.wrap(step.thread, LEFT))
    else:
        for side, part, words in (
            (lesson.triton, left, step.block),
            (lesson.cuda, right, step.thread),
        ):
            if step.label == KERNEL:
                found += wrap(f"  {side.file}: {side.model}", 4, width)
            found += [f"{STACKED}{line}" for line in source(part)]
            found += [""] + textwrap.wrap(words, width, initial_indent="  ", subsequent_indent="  ")
            found.append("")
    if step.numbers and wide:
        found.append(beside("", ""))
    for what, block, thread in step.numbers:
        found += number_lines(what, block, thread, width, wide)
    return found


def source(part: Part | None) -> list[str]:
    return dedented(part) if part else ["(no such step here)"]


def number_lines(what: str, left: str, right: str, width: int, wide: bool) -> list[str]:
    """One number of both sides, named on each."""
    if wide:
        return columns(
            textwrap.wrap(f"{what}  {left}", LEFT, subsequent_indent="  "),
            textwrap.wrap(f"{what}  {right}", LEFT, subsequent_indent="  "),
        )
    return wrap(f"  {what}: {left} | {right}", 4, width)


def columns(left: Sequence[str], right: Sequence[str]) -> list[str]:
    count = max(len(left), len(right))
    padded = [[*side, *[""] * (count - len(side))] for side in (left, right)]
    return [beside(a, b) for a, b in zip(*padded, strict=True)]


def beside(left: str, right: str) -> str:
    return f"  {left:<{LEFT}} | {right}"


def rule(label: str, wide: bool, width: int, dash: str = "-") -> list[str]:
    name = f"{dash * 2}[{label}]"
    if not wide:
        return [name + dash * max(2, width - len(name))]
    return [name + dash * (LEFT + 3 - len(name)) + "+" + dash * (WIDTH - LEFT - 4)]


def small(lesson: Lesson, width: int) -> list[str]:
    """The small block: who holds which column, and how both sides fold it; without a fold, every
    moment of it."""
    shown = lesson.shown
    if shown is None:
        return []
    wide, where = width >= WIDTH, f"{shape_words(shown.shape)}, {shown.threads} threads"
    found = wrap(f"ONE SMALL BLOCK   {where}: to step through it, --html FILE", 4, width)
    if not shown.folds:
        before = ""
        for frame in shown.frames:
            label, block, thread = moment_words(shown, frame)
            here = f"[{label}] {block}" if label != before else ""
            left = textwrap.wrap(here, LEFT)
            right = textwrap.wrap(thread, LEFT, subsequent_indent="  ")
            found += columns(left, right) if wide else wrap(f"  {here} {thread}", 4, width)
            before = label
        return found
    lanes = next((frame.groups for frame in shown.frames if frame.groups), ())
    reader = {e: t for frame in shown.frames[::-1] for t, a, e in frame.reads if a != "shared"}
    for start in range(0, len(lanes), 16):
        columns_here = range(start, min(start + 16, len(lanes)))
        label = f"columns {start} .. {columns_here[-1]}"
        held = " ".join(str(lanes[c]) for c in columns_here)
        read = " ".join(str(reader.get(c, "?")) for c in columns_here)
        found += number_lines(label, f"lanes {held}", f"threads {read}", width, wide)
    fold = shown.folds[-1]
    blocks = list(dict.fromkeys(f.block for f in shown.frames if f.label == fold))[1:]
    threads = [
        f"threads {joins[0][0]} .. {joins[-1][0]} take in {joins[0][1]} .. {joins[-1][1]}; barrier"
        if len(joins) > 1
        else f"thread {joins[0][0]} takes in {joins[0][1]}; barrier"
        for joins in thread_levels(shown, fold)
    ]
    if wide:
        return found + columns(blocks, threads)
    return found + [f"  {line}" for line in (*blocks, *threads)]


def after(lesson: Lesson, width: int) -> list[str]:
    """What follows the steps: words in both languages, questions, tasks, and what is missing."""
    found = ["IN BOTH LANGUAGES" if lesson.glossary else ""]
    for here, there in lesson.glossary:
        found += wrap(
            f"  {here:<34} = {there}" if width == WIDTH else f"  {here} = {there}", 6, width
        )
    if lesson.questions:
        found += ["", "OFTEN ASKED"]
    for question, answer in lesson.questions:
        found += wrap(f"  {question}  {answer}", 4, width)
    if lesson.bits:
        found += ["", "WHY THE BITS DIFFER"]
    for what, words in lesson.bits:
        found += wrap(f"  {what:<9} {words}", 12, width)
    if lesson.tasks:
        found += ["", "TRY IT"]
    for number, name, _, _ in lesson.tasks:
        command = f"python -m compare lesson {lesson.pair} --try {number}"
        found += wrap(f"  {number}  {name:<30} {command}", 5, width)
    if lesson.missing:
        found += ["", "MISSING"]
    for sentence in lesson.missing:
        found += wrap(f"  {sentence}", 4, width)
    return found[1:] if not found[0] else found


def task_lines(lesson_pair: str, number: int, name: str, question: str, form: str) -> list[str]:
    """One task as it is asked."""
    command = f"python -m compare lesson {lesson_pair} --try {number} {form}"
    return [f"TASK {number}   {name.upper()}", *wrap(f"  {question}", 2), "", f"  {command}"]
