"""The page of a lesson: a pure function of a Lesson."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from compare.lesson_data import Lesson, Show, moment_words, thread_levels
from compare.report import plots
from compare.report.page import SIDES, highlighted, page
from compare.report.words import shape_words


def lesson_page(lesson: Lesson) -> str:
    """The page of a lesson."""
    shown = lesson.shown
    return page(
        "lesson.html.j2",
        title=lesson.title,
        subtitle=f"{lesson.pair} {shape_words(lesson.shape)}, float32, compiled for {lesson.arch}",
        footer=f"triton-vs-cuda, python -m compare lesson {lesson.pair}",
        script_files=("page.js", *(("stepper.js",) if shown else ())),
        lesson=lesson,
        answers=answers(lesson),
        steps=[
            {
                "label": step.label,
                "block": step.block,
                "thread": step.thread,
                "numbers": step.numbers,
                "triton": highlighted(lesson.triton.part(step.label), "python"),
                "cuda": highlighted(lesson.cuda.part(step.label), "cuda"),
            }
            for step in lesson.steps
        ],
        small=shape_words(shown.shape) if shown else "",
        frames=frames_json(shown) if shown else "",
        moments=[moment_words(shown, frame) for frame in shown.frames] if shown else [],
        trees=trees(shown) if shown else [],
        times=plots.bars(
            f"Cold time of every implementation, {lesson.facts.get('recorded_shape', '')}",
            [(name, SIDES.get(language, "o"), us) for name, language, us in lesson.times],
            "microseconds",
        ),
    )


def answers(lesson: Lesson) -> list[tuple[str, str, str]]:
    """What a reader should take home, at the top: owners, barriers, reads."""
    facts, totals = lesson.facts, {what: (left, right) for what, left, right in lesson.totals}
    found = []
    if lesson.element:
        found.append((f"Who holds {lesson.element}?", *totals[f"who holds {lesson.element}"]))
    written = facts.get("barriers_written", "?")
    runs = facts.get("barriers_run")
    right = f"{written} written" + (f", {runs} run by each thread" if runs else "")
    made = facts.get("triton_barriers")
    left = "0 written" + (f", {made} in the machine code" if made else "")
    found.append(("How many barriers?", left, right))
    found.append(("How many threads?", *totals["threads"]))
    asked = totals["bytes asked of memory"]
    found.append(("How many bytes are asked of memory?", *asked))
    return found


def frames_json(shown: Show) -> Markup:
    """The frames as JSON that can stand in a script element, whatever their text holds."""
    data = {
        "threads": shown.threads,
        "barriers": max((frame.barrier for frame in shown.frames), default=0),
        "blocks": [vars(grid) for grid in shown.blocks],
        "arrays": [vars(grid) for grid in shown.arrays],
        "frames": [vars(frame) for frame in shown.frames],
    }
    text = json.dumps(data, separators=(",", ":"))
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return Markup(text)


def trees(shown: Show) -> list[Mapping[str, Any]]:
    """The folds of both sides, where they fold."""
    if not shown.folds:
        return []
    found: list[Mapping[str, Any]] = []
    lanes, label = shown.lanes, shown.folds[-1]
    if shown.distances:
        levels = [[(i, i ^ distance) for i in range(lanes)] for distance in shown.distances]
        columns = math.prod(shown.shape)
        leaf = f"{lanes} lanes, each has added its {columns // lanes} columns"
        words = (
            f"Block model: lanes exchange at distances {', '.join(map(str, shown.distances))}, by "
            "shuffles; every lane has the result, and no barrier is needed within a warp."
        )
        svg = plots.fold("Triton's fold of a row", leaf, levels, lanes, "b")
        found.append({"svg": svg, "words": words, "kind": "block"})
    levels = thread_levels(shown, label)
    if levels:
        leaf = f"{shown.threads} threads, each has added every {shown.threads}th column"
        words = (
            "Thread model: the upper half's sums are added to the lower half's, "
            f"{len(levels)} times, through shared memory, with a barrier after each level; "
            "thread 0 has the result."
        )
        svg = plots.fold("The CUDA kernel's fold of a row", leaf, levels, shown.threads, "t")
        found.append({"svg": svg, "words": words, "kind": "thread"})
    return found
