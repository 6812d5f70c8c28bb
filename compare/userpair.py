"""A pair of a user's own, from the least that must be said of it.

Everything else is derived: inputs from the standard normal distribution, what must be moved, and a
bound from the declared number of additions. A `compare.pair.Pair` says more, where more is needed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from compare.inputs import Stream
from compare.pair import Arrays, Bound, Cost, Implementation, Pair, Reference, Shape

__all__ = ["Implementation", "additions_bound", "pair"]

U = 2.0**-24  # unit roundoff of float32
TINY = 2.0**-126  # the smallest normal float32; either side may flush what is below
NORMAL = "random"  # the one family of data that is made without being asked
Text = str | Sequence[str]


def pair(
    name: str,
    *,
    inputs: Mapping[str, str],
    output: str,
    shapes: Text,
    reference: Callable[..., Any],
    implementations: Sequence[Implementation],
    additions: Callable[..., int] | int = 1,
    scale: Callable[..., Any] | None = None,
    summary: str = "",
    **more: Any,
) -> Pair:
    """A `Pair` of float32 arrays whose sides are letters: `inputs={"a": "MxK", "b": "KxN"}`.

    `shapes` are sizes of the letters in the order in which they first stand, "256x64x128"; the
    first is timed. `reference(*inputs)` takes the inputs as float64 and returns the right output.
    `additions` is the most additions on any path of the sum, or a function of the sizes. `scale` is
    called as `reference` is and gives the sum of the terms' magnitudes (see `additions_bound`).
    `more` are fields of `Pair` that replace what is derived. ValueError: sides or shapes that do
    not parse.
    """
    dims = letters(name, (*inputs.values(), output))
    if unknown := set(output.split("x")) - {d for side in inputs.values() for d in side.split("x")}:
        raise ValueError(f"{name}: the output's side {sorted(unknown)[0]} is no side of an input")
    listed = [sizes(name, dims, text) for text in ([shapes] if isinstance(shapes, str) else shapes)]
    if not listed:
        raise ValueError(f"{name} has no shape; give one, as {'x'.join('64' for _ in dims)}")

    def count(side: str, shape: Shape) -> int:
        return math.prod(extent(dims, side, shape))

    def made(shape: Shape, data: str, seed: int) -> Arrays:
        stream = Stream(name, shape, data, seed)
        return {key: stream.normal(key, extent(dims, side, shape)) for key, side in inputs.items()}

    def check_shape(shape: Shape) -> None:
        if len(shape) != len(dims):
            raise ValueError(f"{name} wants a shape {'x'.join(dims)}, got {words(shape)}")

    def right(arrays: Arrays, shape: Shape, seed: int) -> Reference:
        wide = [array.astype(np.float64) for array in arrays.values()]
        value = np.asarray(reference(*wide))
        if scale is None:
            size = np.maximum(np.abs(value), reference(*map(np.abs, wide)))
        else:
            size = np.asarray(scale(*wide))
        return Reference(value, {"size": size, "derived": scale is None})

    def depth(shape: Shape) -> int:
        return additions if isinstance(additions, int) else int(additions(*shape))

    facts: dict[str, Any] = {
        "summary": summary or name,
        "dims": dims,
        "data": (NORMAL,),
        "precisions": tuple(dict.fromkeys(i.precision for i in implementations)),
        "shapes": lambda on_card: tuple(listed),
        "check_shape": check_shape,
        "inputs": made,
        "output_shape": lambda shape: extent(dims, output, shape),
        "reference": right,
        "bounds": lambda ref, implementation, data, shape: (additions_bound(ref, depth(shape)),),
        "cost": lambda shape: Cost(
            4 * sum(count(side, shape) for side in inputs.values()),
            4 * count(output, shape),
            depth(shape) * count(output, shape),
        ),
        "signed": True,
    }
    return Pair(name=name, implementations=tuple(implementations), **{**facts, **more})


def additions_bound(reference: Reference, additions: int) -> Bound:
    """|got - ref| <= g S + 2^-126 with g = n u / (1 - n u), n = additions + 1, u = 2^-24.

    S, `reference.scales["size"]`, is the sum of the terms' magnitudes. Where it is not given it is
    the reference of the inputs' magnitudes, which is the same for sums of products; for a
    difference it is too small, so that a right result may be rejected and no wrong one accepted.
    """
    n = (additions + 1) * U
    grown = n / (1 - n) if n < 1 else math.inf
    allowed = grown * np.abs(reference.scales["size"]) + TINY
    origin = (
        "the reference of the inputs' magnitudes" if reference.scales["derived"] else "as given"
    )
    return Bound(
        "error bound",
        np.broadcast_to(allowed, reference.value.shape),
        f"|got - ref| <= g S + 2^-126, g = n u / (1 - n u), n = {additions} + 1, u = 2^-24, "
        f"S = the sum of the terms' magnitudes ({origin})",
        "Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., section 3.1: inner "
        "products added in any order; n counts the declared additions and one product",
    )


def letters(name: str, sides: Sequence[str]) -> tuple[str, ...]:
    """The letters of all sides, each once, in the order in which they first stand."""
    for side in sides:
        if not re.fullmatch(r"[A-WYZ](x[A-WYZ])*", side):
            raise ValueError(f"{name}: {side!r} does not parse; write capital letters, as N or MxK")
    return tuple(dict.fromkeys(letter for side in sides for letter in side.split("x")))


def sizes(name: str, dims: Sequence[str], text: str) -> Shape:
    """`"256x64"` as a shape of `dims`."""
    if not re.fullmatch(r"\d+(x\d+)*", text) or text.count("x") + 1 != len(dims):
        raise ValueError(f"{name}: shape {text!r} does not parse; write sizes of {'x'.join(dims)}")
    return tuple(map(int, text.split("x")))


def extent(dims: Sequence[str], side: str, shape: Shape) -> Shape:
    """The sizes of one side's letters."""
    known = dict(zip(dims, shape, strict=True))
    return tuple(known[letter] for letter in side.split("x"))


def words(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape))
