"""What a lesson is made of: frozen dataclasses. Screens and pages are pure functions of these."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from compare.steps import Side

Touch = tuple[int, str, int]  # a thread, an array, an element of it


@dataclass(frozen=True)
class Grid:
    """An array or a block of data, drawn as rows and columns of cells."""

    name: str
    rows: int
    cols: int


@dataclass(frozen=True)
class Frame:
    """One moment. `groups` has a number for every cell of the blocks in `touched`: the lane that
    holds it, or, while a block is folded, the first lane of those that share a partial result.

    `line` and `code` are the thread side's statement. `barrier` counts the barriers that every
    thread has reached, and is 0 where none is being waited for.
    """

    label: str
    block: str
    touched: tuple[str, ...] = ()
    groups: tuple[int, ...] = ()
    line: int = 0
    code: str = ""
    reads: tuple[Touch, ...] = ()
    writes: tuple[Touch, ...] = ()
    barrier: int = 0


@dataclass(frozen=True)
class Show:
    """All frames of one small block, in order."""

    shape: tuple[int, ...]
    threads: int
    lanes: int
    arrays: tuple[Grid, ...]
    blocks: tuple[Grid, ...]
    frames: tuple[Frame, ...]
    distances: tuple[int, ...] = ()  # of the lanes that exchange, level by level, in one fold
    folds: tuple[str, ...] = ()  # the steps that fold


@dataclass(frozen=True)
class Step:
    """One step in both models: what each says of it, and its numbers as (what, block, thread)."""

    label: str
    block: str
    thread: str
    numbers: tuple[tuple[str, str, str], ...] = ()


@dataclass(frozen=True)
class Lesson:
    """All that a lesson's screen and page show. `missing` says what could not be had, and why."""

    pair: str
    title: str
    shape: tuple[int, ...]
    arch: str
    triton: Side
    cuda: Side
    steps: tuple[Step, ...]
    totals: tuple[tuple[str, str, str], ...]
    element: str = ""
    glossary: tuple[tuple[str, str], ...] = ()
    questions: tuple[tuple[str, str], ...] = ()
    bits: tuple[tuple[str, str], ...] = ()
    tasks: tuple[tuple[int, str, str, str], ...] = ()  # number, name, question, form of the answer
    shown: Show | None = None
    missing: tuple[str, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)
    times: tuple[tuple[str, str, float], ...] = ()  # recorded: name, language, cold microseconds
    recorded_on: str = ""


def moment_words(shown: Show, frame: Frame) -> tuple[str, str, str]:
    """A frame in words: its step, the block side, the thread side."""
    if frame.barrier:
        return (
            frame.label,
            frame.block,
            f"barrier {frame.barrier}: all {shown.threads} threads wait",
        )
    busy = len({touch[0] for touch in (*frame.reads, *frame.writes)})
    if not busy:
        return frame.label, frame.block, "nothing yet"
    counted = f"{len(frame.reads)} reads, {len(frame.writes)} writes"
    return frame.label, frame.block, f"{frame.code} ({busy} threads: {counted})"


def thread_levels(shown: Show, label: str) -> list[list[tuple[int, int]]]:
    """At each level of the fold in step `label`: which thread takes in whose partial result."""
    levels = []
    for frame in shown.frames:
        writes = {thread: element for thread, array, element in frame.writes if array == "shared"}
        joins = [
            (thread, element)
            for thread, array, element in frame.reads
            if array == "shared" and thread in writes and element != writes[thread]
        ]
        if frame.label == label and joins:
            levels.append(sorted(set(joins)))
    return levels
