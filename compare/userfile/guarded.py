"""Functions of a user's file that answer in the contract's types, or with one sentence."""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable
from dataclasses import replace
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import numpy as np

from compare.machine import Refusal
from compare.pair import Implementation, Pair, Shape

DEPTH = "sum_depth"  # the fact that a bound of a sum is made from
NUMBERS = {"c_e", "c_t", "d"}  # facts that are errors of an exponential, of an operand


def line_of(error: BaseException, path: Path) -> str:
    """` line 12`: where in `path` an error came up; "" where it is not of that file."""
    frames = traceback.extract_tb(error.__traceback__)
    found = [frame.lineno for frame in frames if Path(frame.filename) == path.resolve()]
    return f" line {found[-1]}" if found else ""


def raised(error: BaseException) -> str:
    """`NameError: name 'x' is not defined`, the first line."""
    if isinstance(error, SystemExit):
        return (
            f"it calls sys.exit({error.code!r}) when it is imported; leave that to a main function"
        )
    first = next(iter(str(error).strip().splitlines()), "no message")
    return f"{type(error).__name__}: {first[:200]}"


def with_depth(path: Path, one: Implementation, shape: Shape) -> Implementation:
    """`one` whose `facts["sum_depth"]`, a number or a function of the columns, where it declares
    it, is a function that answers with a number. Refusal where it does not, at `shape` at once, and
    where another fact of a bound is no number."""
    for name in sorted(NUMBERS & one.facts.keys()):
        if not isinstance(one.facts[name], Real) or not 0 <= one.facts[name] < math.inf:
            told = (
                f"{name} of {one.name!r} is {one.facts[name]!r}; give a number that is not negative"
            )
            raise Refusal(2, f"{path}: {told}")
    if DEPTH not in one.facts:
        return one
    given = one.facts[DEPTH]

    def depth(columns: int) -> int:
        try:
            found = given(columns) if callable(given) else given
        except Exception as error:  # noqa: BLE001 - foreign code may raise anything
            where = line_of(error, path)
            raise Refusal(
                2, f"{path}{where}: {DEPTH} of {one.name!r} raised {raised(error)}"
            ) from None
        if not isinstance(found, Integral) or found < 0:
            raise Refusal(
                2,
                f"{path}: {DEPTH} of {one.name!r} is {found!r}; give the most additions on any "
                "path of the sum, or a function of the columns",
            )
        return int(found)

    depth(shape[-1])
    return replace(one, facts={**one.facts, DEPTH: depth})


def guard(path: Path, pair: Pair) -> Pair:
    """`pair` whose own functions answer in the contract's types, or with one sentence."""

    def guarded(field: str, verify: Callable[..., str] = lambda answer, *given: "") -> Any:
        function = getattr(pair, field)

        def call(*given: Any) -> Any:
            try:
                answer = function(*given)
            except ValueError as error:
                if field == "check_shape":  # says that a shape does not fit: a rule of the contract
                    raise
                raise Refusal(2, f"{path}: {field} raised {raised(error)}") from None
            except Exception as error:  # noqa: BLE001 - foreign code may raise anything
                where = line_of(error, path)
                raise Refusal(2, f"{path}{where}: {field} raised {raised(error)}") from None
            if reason := verify(answer, *given):
                raise Refusal(2, f"{path}: {field} of {pair.name} {reason}")
            return answer

        return call

    def reference_fits(answer: Any, arrays: Any, shape: Shape, seed: int) -> str:
        value = getattr(answer, "value", None)
        want = pair.output_shape(shape)
        if not isinstance(value, np.ndarray) or value.dtype != np.float64:
            return f"gives {kind(value)}; give a Reference of a float64 array"
        if answer.index is None and value.shape != tuple(want):
            return f"has shape {value.shape} where the output has {tuple(want)}"
        return ""

    return replace(
        pair,
        inputs=guarded("inputs", inputs_fit),
        reference=guarded("reference", reference_fits),
        bounds=guarded("bounds", lambda found, *given: "" if found else "gives no Bound"),
        **{f: guarded(f) for f in ("shapes", "check_shape", "output_shape", "cost", "probes")},
        **{f: guarded(f) for f in ("words", "gates")},
    )


def inputs_fit(answer: Any, *given: Any) -> str:
    if not isinstance(answer, dict) or not answer:
        return f"gives {kind(answer)}; give a dict of float32 arrays by name"
    for name, array in answer.items():
        if not isinstance(array, np.ndarray) or array.dtype != np.float32:
            return f"gives {kind(array)} as {name!r}; give float32 numpy arrays"
    return ""


def kind(value: Any) -> str:
    """`an int`, or an array with its dtype."""
    name = f"{value.dtype} array" if isinstance(value, np.ndarray) else type(value).__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"
