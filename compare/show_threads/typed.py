"""A launch as it is typed: `--grid 64 --block 16x16 --args 'float[64x1024] int=1024'`."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np

from compare.inputs import Stream
from compare.machine import Refusal
from compare.pair import Shape
from compare.show_threads.hints import TYPES
from compare.show_threads.subjects import Subject, kernel_in, read
from compare.threads import Data, Tally
from cuda_ref.kernel import Launch

FAULTY = "the kernel is wrong as it stands and --args names no right answer; a FILE.py does"
FORMS = "float[64x1024] for an array, int=1024 for a number, float[64]=0 for an array of zeros"


def of_arguments(
    target: str, kernel: str, grid: str, block: str, arguments: str, seed: int
) -> Subject:
    """A file launched with what the command line names. A row counts where a barrier changes it."""
    source = read(target)
    name = kernel_in(source, target, kernel)
    if not grid or not block:
        raise Refusal(
            2, f"--args needs the launch of {name} as well: --grid BLOCKS --block THREADS"
        )
    made = parse_arguments(arguments, seed)
    launch = Launch(Path(target), name, sizes("--grid", grid), sizes("--block", block), made)
    return Subject(source, target, launch, (against_first_run(made),))


def against_first_run(made: tuple[Any, ...]) -> Data:
    """Random arguments, and a tally of the output's rows that differ from the first run's.

    The first run is the kernel as it stands, and the output is what it changed.
    """
    given = [array.copy() for array in made if isinstance(array, np.ndarray)]
    whole: list[np.ndarray] = []
    outputs: list[int] = []

    def copies() -> tuple[Any, ...]:
        return tuple(a.copy() if isinstance(a, np.ndarray) else a for a in made)

    def changed(args: tuple[Any, ...]) -> Tally:
        mine = [rows(array) for array in args if isinstance(array, np.ndarray)]
        if not whole:
            whole.extend(array.copy() for array in mine)
            written = [i for i, a in enumerate(mine) if (a != rows(given[i])).any()]
            outputs.extend(written or range(len(mine)))
        count = sum(int((mine[i] != whole[i]).any(axis=1).sum()) for i in outputs)
        flat = all(given[i].ndim < 2 for i in outputs)
        things = "elements" if flat else "rows"
        return Tally(count, sum(len(mine[i]) for i in outputs), f"{things} changed")

    return Data("random", copies, changed, first_run=FAULTY)


def rows(array: np.ndarray) -> np.ndarray:
    """The bytes of every row; every element of a vector is a row."""
    each = array if array.ndim else array[None]
    flat = each.reshape(len(each), math.prod(each.shape[1:]))
    return np.ascontiguousarray(flat).view(np.uint8)


def sizes(option: str, text: str) -> tuple[int, ...]:
    """`16x16` as the sizes of a grid or a block. Refusal where it is none."""
    if not re.fullmatch(r"\d+(x\d+){0,2}", text):
        raise Refusal(
            2, f"{option} {text!r} does not parse; write numbers, {option} 64 or {option} 16x16"
        )
    return tuple(map(int, text.split("x")))


def parse_arguments(text: str, seed: int) -> tuple[Any, ...]:
    """`float[64x1024] float[64]=0 int=1024` -> a random array, an array of zeros, a number."""
    made: list[Any] = []
    for index, word in enumerate(re.findall(r"[^\s,]+", text)):
        match = re.fullmatch(r"(\w+)(?:\[(\d+(?:x\d+)*)\])?(?:=([-+.\w]+))?", word)
        if not match or match[1] not in TYPES or not (match[2] or match[3]):
            known = ", ".join(TYPES)
            raise Refusal(2, f"--args {word!r} does not parse; write {FORMS}; types: {known}")
        kind = np.dtype(TYPES[match[1]])
        shape = tuple(map(int, match[2].split("x"))) if match[2] else ()
        if match[3]:
            try:
                value = np.full(shape, kind.type(match[3]), kind)
            except ValueError:
                raise Refusal(2, f"--args {word!r}: {match[3]} is no {match[1]}") from None
        else:
            value = random_array(shape, kind, index, seed)
        made.append(value if match[2] else value[()])
    return tuple(made)


def random_array(shape: Shape, kind: np.dtype, index: int, seed: int) -> np.ndarray:
    """Normal floats, or integers from 0 to 99."""
    stream = Stream("arguments", shape, "random", seed)
    if kind.kind == "f":
        return stream.normal(str(index), shape).astype(kind)
    return stream.integers(str(index), 0, 99, (math.prod(shape),)).reshape(shape).astype(kind)
