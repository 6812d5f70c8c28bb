"""A row (or a tile) short enough to see, step by step: what the block model and the threads do.

The thread side is what the emulator saw of the very kernel, its block cut to a few threads. The
block side is the layout and the shuffles that Triton's compiler chose for the same small shape.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

import numpy as np

from compare import steps
from compare.compiled import Code, build
from compare.compiled.compilers import Missing, dry_cuda
from compare.compiled.layout import owner
from compare.lesson import oneblock
from compare.lesson_data import Frame, Grid, Show, Touch
from compare.pair import Implementation, Pair, Shape
from compare.steps import KERNEL, Part, Words


def show(
    pair: Pair, words: Words, block: Implementation, thread: Implementation, arch: str
) -> Show | str:
    """The frames of the pair's small shape, or why there are none; "" where no words name one."""
    settings = words.settings
    if "small" not in settings:
        return ""
    shape, size = sizes(settings["small"]), sizes(settings["small_threads"])
    try:
        inputs = pair.inputs(shape, pair.data[0], 0)
        arrays = (*inputs.values(), np.zeros(pair.output_shape(shape), np.float32))
        launch = dry_cuda(thread.function(), [a.shape for a in arrays], thread.options)[0]
        text = launch.file.read_text(encoding="utf-8")
        text = re.sub(rf"(#define {settings['small_define']}) \d+", rf"\1 {size[-1]}", text)
        ran = oneblock.run(thread, arrays, source=text, block=size)
        parts = steps.cuda_parts(text, launch.name)
    except (ImportError, IndexError, ValueError, OSError, Missing) as error:
        return f"the small {pair.name} could not be run: {error}"
    code = None
    if "small_warps" in settings:
        small = replace(block, options={**block.options, "num_warps": int(settings["small_warps"])})
        shapes = {name: array.shape for name, array in inputs.items()}
        built = build((small,), shapes, pair.output_shape(shape), arch)[0]
        code = built.codes[0] if built.codes else None
    drawn = [text.partition(":") for text in settings["blocks"].split()]
    blocks = tuple(Grid(name, *sizes(size)) for name, _, size in drawn)
    names = [*inputs, "out"]
    moments = thread_frames(ran, text, parts, names)
    frames = merged(block_frames(words, blocks, code), moments)
    shared = 1 + max(
        (e for f in frames for _, name, e in (*f.reads, *f.writes) if name == oneblock.SHARED),
        default=-1,
    )
    grids = [Grid(n, *two(a.shape)) for n, a in zip(names, arrays, strict=True)]
    if shared:
        grids.insert(-1, Grid(oneblock.SHARED, -(-shared // size[-1]), size[-1]))
    lanes = code.threads if code else 0
    return Show(
        shape,
        math.prod(size),
        lanes,
        tuple(grids),
        blocks,
        tuple(frames),
        one_fold(words, code) if code else (),
        words.folds,
    )


def sizes(text: str) -> tuple[int, ...]:
    """`4x4` -> (4, 4)."""
    return tuple(int(size) for size in text.split("x"))


def two(shape: Shape) -> tuple[int, int]:
    return (math.prod(shape[:-1]), shape[-1])


def thread_frames(
    ran: oneblock.Block, text: str, parts: Sequence[Part], names: Sequence[str]
) -> list[Frame]:
    """One frame a statement and barrier interval, one a barrier, in the order they ran."""
    lines, log, frames = text.splitlines(), ran.log, []
    arrays = {f"input {index}": name for index, name in enumerate(names[:-1])}
    arrays |= {oneblock.OUTPUT: names[-1], oneblock.SHARED: oneblock.SHARED}
    statements = {int(line): statement(lines, int(line)) for line in np.unique(log["line"])}
    waited = 0
    for interval in range(int(log["interval"].max(initial=0)) + 1):
        here = log[log["interval"] == interval]
        waits = here["kind"] == "barrier"
        moments: dict[int, tuple[list[Touch], list[Touch]]] = {}
        for record in here[~waits]:
            reads, writes = moments.setdefault(statements[int(record["line"])], ([], []))
            touch = (int(record["thread"]), arrays[record["array"]], int(record["element"]))
            (writes if record["kind"].endswith("write") else reads).append(touch)
        for line, (reads, writes) in moments.items():
            seen = moment(parts, lines, line)
            frames.append(replace(seen, reads=tuple(reads), writes=tuple(writes)))
        if waits.any():  # what ends the interval
            waited += 1
            seen = moment(parts, lines, int(here["line"][waits][0]))
            frames.append(replace(seen, barrier=waited))
    return frames


def moment(parts: Sequence[Part], lines: Sequence[str], line: int) -> Frame:
    """The frame of the statement that begins on `line`, without what it touches."""
    label = next((part.label for part in parts if part.holds(line)), KERNEL)
    return Frame(label, "", line=line, code=code_at(lines, line))


def statement(lines: Sequence[str], line: int) -> int:
    """The line on which the statement that line `line` belongs to begins (lines count from 1)."""
    while line > 1:
        above = lines[line - 2].partition("//")[0].rstrip()
        if not above.strip() or above.endswith((";", "{", "}", ")", ":")):
            return line
        line -= 1
    return line


def code_at(lines: Sequence[str], line: int) -> str:
    """A statement as one line of text."""
    text = ""
    for part in lines[line - 1 :]:
        text = f"{text} {part.partition('//')[0].strip()}".strip()
        if text.endswith((";", "{")):
            break
    return text


def block_frames(words: Words, blocks: Sequence[Grid], code: Code | None) -> list[Frame]:
    """What the block model does in each step: one frame, and one more a level where it folds."""
    frames = []
    for label in words.block:
        touched = words.touches.get(label, ())
        cells = sum(b.rows * b.cols for b in blocks if b.name in touched)
        lanes = held_by(code, cells)
        if label not in words.folds or not lanes or code is None:
            said = "the block as a whole" if touched else "nothing is touched yet"
            frames.append(Frame(label, said, touched, tuple(lanes)))
            continue
        said = f"each lane folds the {cells // code.threads} columns it holds"
        frames.append(Frame(label, said, touched, tuple(lanes)))
        groups = list(range(code.threads))
        for distance in one_fold(words, code):
            groups = [min(groups[lane], groups[lane ^ distance]) for lane in range(code.threads)]
            said = f"lane i and lane i xor {distance} exchange: {len(set(groups))} left"
            frames.append(Frame(label, said, touched, tuple(groups[lane] for lane in lanes)))
    return frames


def one_fold(words: Words, code: Code) -> tuple[int, ...]:
    """The shuffle distances of one of the kernel's folds, which are all alike."""
    return code.shuffles[: len(code.shuffles) // max(1, len(words.folds))]


def held_by(code: Code | None, cells: int) -> list[int]:
    """The lane that holds each cell of a row of `cells`, [] where nobody knows."""
    if code is None or code.loaded is None or math.prod(code.loaded.shape) != cells:
        return []
    found = [owner(code.loaded, (*(0,) * (len(code.loaded.shape) - 1), c)) for c in range(cells)]
    return [who.thread for who in found if who] if all(found) else []


def merged(left: Sequence[Frame], right: Sequence[Frame]) -> list[Frame]:
    """One line of time, in the order of the thread side: in each stretch of one step both sides go
    on together, and the shorter one then waits. A step of the block side alone stands where it is
    in its source."""
    stretches = [(label, list(group)) for label, group in groupby(right, lambda f: f.label)]
    order = list(dict.fromkeys(frame.label for frame in left))
    seen = {label for label, _ in stretches}
    for at, label in enumerate(order):
        if label not in seen and label != KERNEL:
            earlier = set(order[:at])
            later = (i for i, (one, _) in enumerate(stretches) if one not in earlier)
            stretches.insert(next(later, len(stretches)), (label, [Frame(label, "")]))
    frames = []
    for label, moments in stretches:
        blocks = [f for f in left if f.label == label] or [Frame(label, "")]
        for at in range(max(len(blocks), len(moments))):
            block = blocks[min(at, len(blocks) - 1)]
            seen_now = moments[min(at, len(moments) - 1)]
            done = at >= len(blocks) and len(blocks) > 1
            said = "done: one number, known to every lane" if done else block.block
            frames.append(replace(seen_now, block=said, touched=block.touched, groups=block.groups))
    return frames
