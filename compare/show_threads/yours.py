"""A user's FILE.py: it knows its kernels' launches, its pair knows the right answer."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from compare.machine import Machine, Refusal, Seen
from compare.pair import Implementation, Shape
from compare.run import load_files
from compare.show_threads.subjects import (
    Subject,
    arrays,
    families,
    read,
    recorded,
    shape_for,
    studied,
)
from compare.userfile import line_of, raised
from cuda_ref.kernel import Launch, shape_words

NONE = (
    "has no CUDA kernel that runs without a card: an Implementation of language 'cuda' with "
    "arrays='cupy'"
)


def of_yours(path: str, kernel: str, shape: str, seed: int) -> Subject:
    """The file's first CUDA implementation, or the one of that name or with a kernel of that name.

    Rows are held against the pair's reference. Refusal with one sentence, code 2: a file that
    `run` would refuse, one without such a kernel, a launcher that raises or does not launch one
    kernel.
    """
    (yours,) = load_files([path], Machine("host", Seen()))
    pair = yours.pair
    mine = [one for one in studied(pair) if one.name in yours.names]
    if not mine:
        raise Refusal(2, f"{path} {NONE}")
    size = shape_for(pair, shape)

    def record(implementation: Implementation, given: Sequence[np.ndarray]) -> Launch:
        return only(path, implementation, launches(path, implementation, given, size), given, size)

    given = arrays(pair, size, seed)
    chosen = pick(path, mine, kernel, given, size)
    launch = record(chosen, given)
    return Subject(
        read(launch.file),
        shortest(launch.file),
        launch,
        families(pair, chosen, size, seed, record),
    )


def pick(
    path: str,
    mine: Sequence[Implementation],
    wanted: str,
    given: Sequence[np.ndarray],
    size: Shape,
) -> Implementation:
    """The implementation of that name, else the first that launches a kernel of that name."""
    for one in mine:
        if wanted in ("", one.name):
            return one
    known = []
    for one in mine:
        try:
            names = [seen.name for seen in launches(path, one, given, size)]
        except Refusal:  # its own fault, told where it is asked for by its own name
            names = []
        if wanted in names:
            return one
        known.append(f"{one.name} ({' '.join(names)})" if names else one.name)
    raise Refusal(2, f"{path} has no CUDA kernel {wanted!r}; it has {', '.join(known)}")


def launches(
    path: str, implementation: Implementation, given: Sequence[np.ndarray], size: Shape
) -> list[Launch]:
    """What a launcher launches at shape `size`. Refusal for whatever it raises."""
    try:
        return recorded(implementation, given)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - foreign code may raise anything
        said = f"sys.exit({error.code!r})" if isinstance(error, SystemExit) else raised(error)
        where = line_of(error, Path(path))
        raise Refusal(
            2,
            f"{path}{where}: {implementation.name} raised {said} at {shape_words(size)}; --shape "
            "chooses another shape",
        ) from None


def only(
    path: str,
    implementation: Implementation,
    seen: Sequence[Launch],
    given: Sequence[np.ndarray],
    size: Shape,
) -> Launch:
    """The one launch of an implementation on arrays of shape `size`, the output last."""
    if len(seen) == 1:
        return seen[0]
    if not seen and not given[-1].size:
        raise Refusal(
            2,
            f"{path}: {implementation.name} launches nothing at {shape_words(size)}, where the "
            "output has no elements; take a larger --shape",
        )
    if not seen:
        raise Refusal(
            2,
            f"{path}: {implementation.name} launches nothing here; launch its kernel by "
            "cuda_ref.kernel.Launch",
        )
    names = ", ".join(launch.name for launch in seen)
    raise Refusal(
        2,
        f"{path}: {implementation.name} launches {len(seen)} kernels ({names}), and one is looked "
        "at; write a launcher for each",
    )


def shortest(file: Path) -> str:
    """The file's path, from this folder where it is below it."""
    here = os.path.relpath(file)
    return str(file) if here.startswith("..") else here
