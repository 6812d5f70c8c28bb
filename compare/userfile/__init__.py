"""A user's file: implementations of a known pair, or a pair of its own, checked at the edge.

The file sets `PAIR` to a pair's name and `IMPLEMENTATIONS` to a list, or `PAIR` to a `Pair`. It is
Python that runs with the rights of whoever runs it. What is wrong with it is a Refusal, exit code
2; what goes wrong when one of its kernels runs is a row (`isolation`).
"""

from __future__ import annotations

import difflib
import importlib.util
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from compare.machine import Refusal
from compare.pair import LANGUAGES, Implementation, Pair, Shape

ARRAYS = ("torch", "cupy")
NEEDS = ("card", "emulator")
HOW = "set PAIR to a pair's name and IMPLEMENTATIONS to a list, or PAIR to a Pair"


@dataclass(frozen=True)
class Yours:
    """What a file adds: the pair with its implementations in it, and their names in file order."""

    word: str  # as it was named
    pair: Pair
    names: tuple[str, ...]
    whole: bool  # the pair itself is the file's


def is_file(word: str) -> bool:
    """Whether a word of the command line is a file rather than a pair's name."""
    return word.endswith(".py")


def load(path: str | Path, known: Mapping[str, Pair]) -> Yours:
    """The file at `path`, imported once; call it after the mode is set, since `@triton.jit` reads
    it. `known` are the pairs that it may add to. Refusal with one sentence for what is wrong."""
    path = Path(path)
    if not path.is_file():
        raise Refusal(2, f"there is no file {path}")
    module = imported(path)
    listed = getattr(module, "IMPLEMENTATIONS", None)
    wanted = getattr(module, "PAIR", None)
    if wanted is None:
        raise Refusal(2, f"{path} defines no PAIR: {HOW}")
    if isinstance(wanted, Pair):
        if listed is not None:
            raise Refusal(2, f"{path} defines a Pair and IMPLEMENTATIONS: put them into the Pair")
        if wanted.name in known:
            raise Refusal(2, f"{path}: there is a pair {wanted.name!r} already; take another name")
        check(path, wanted.implementations, wanted.implementations, wanted.precisions)
        guarded = guard(path, with_counterparts(wanted))
        return Yours(str(path), guarded, tuple(i.name for i in wanted.implementations), True)
    if not isinstance(wanted, str):
        raise Refusal(2, f"{path}: PAIR is {kind(wanted)}; {HOW}")
    if wanted not in known:
        raise Refusal(
            2, f"{path}: PAIR = {wanted!r} is unknown; did you mean {near(wanted, known)}?"
        )
    if not isinstance(listed, list | tuple) or not listed:
        raise Refusal(2, f"{path} defines no IMPLEMENTATIONS for {wanted}: {HOW}")
    base = known[wanted]
    check(path, listed, (*base.implementations, *listed), base.precisions)
    return Yours(str(path), attached(base, listed), tuple(i.name for i in listed), False)


def imported(path: Path) -> ModuleType:
    """The file as a module. Its folder is searched for what it imports, after everything else."""
    name = f"yours_{path.resolve().stem}"
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.append(folder)
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    if spec is None or spec.loader is None:
        raise Refusal(2, f"{path} can't be imported as Python")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # Triton and inspect look a kernel's source up through it
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        raise Refusal(2, f"{path} line {error.lineno}: {error.msg}") from None
    except (Exception, SystemExit) as error:  # noqa: BLE001 - foreign code may raise anything
        raise Refusal(2, f"{path}{line_of(error, path)}: {raised(error)}") from None
    return module


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


def near(name: str, known: Iterable[str]) -> str:
    names = sorted(known)
    found = difflib.get_close_matches(name, names, n=3, cutoff=0.4) or names
    return " or ".join(map(repr, found[:6]))


def check(
    path: Path,
    mine: Sequence[Any],
    every: Sequence[Any],
    precisions: Sequence[str],
) -> None:
    """Refusal for the first of `mine` that can't stand among `every` one of the pair."""
    if not mine:
        raise Refusal(2, f"{path}: its pair has no implementation; give it one at least")
    for one in mine:
        if not isinstance(one, Implementation):
            raise Refusal(
                2,
                f"{path}: {one!r:.60} is no Implementation; write Implementation('my_kernel', "
                "'triton', my_launcher)",
            )
    names = [one.name for one in every]
    for one in mine:
        if reason := unfit(one, names, precisions):
            raise Refusal(2, f"{path}: implementation {one.name!r} {reason}")


def unfit(one: Implementation, names: Sequence[str], precisions: Sequence[str]) -> str:
    """What is wrong with an implementation's fields; "" where nothing is."""
    choices = (
        ("language", one.language, LANGUAGES),
        ("arrays", one.arrays, ARRAYS),
        ("precision", one.precision, precisions),
        *(("needs", need, NEEDS) for need in one.needs),
        *(("counterpart", name, names) for name in one.counterparts),
        *(("twin_of", name, names) for name in (one.twin_of,) if name),
    )
    if not isinstance(one.name, str) or not one.name:
        return "has no name; give it one"
    if names.count(one.name) > 1:
        return "has a name that another one has; take a name of its own"
    for what, value, allowed in choices:
        if value not in allowed:
            return f"has {what} {value!r}; choose {near(str(value), allowed)}"
    if not callable(one.entry) and (not isinstance(one.entry, str) or ":" not in one.entry):
        return f"has entry {one.entry!r}; give a function or 'module:function'"
    return ""


def attached(base: Pair, mine: Sequence[Implementation]) -> Pair:
    """`base` with `mine` in front, so that theirs are the two columns of the report.

    The first Triton one that names no counterpart is held against the CUDA ones of `mine`, then
    against those of the pair's own Triton kernel; without a Triton one the pair's own kernel is.
    """
    leads = {i.precision: i for i in reversed(base.implementations) if i.counterparts}
    mine = list(mine)
    rest = list(base.implementations)
    for precision, lead in leads.items():
        cuda = [i.name for i in mine if i.language == "cuda" and i.precision == precision]
        against = tuple(dict.fromkeys((*cuda, *lead.counterparts)))
        ours = [i for i in mine if i.language == "triton" and i.precision == precision]
        for one in ours:
            if not one.counterparts:
                mine[mine.index(one)] = replace(one, counterparts=against)
        if not ours:
            rest[rest.index(lead)] = replace(lead, counterparts=against)
    return replace(base, implementations=(*mine, *rest))


def with_counterparts(pair: Pair) -> Pair:
    """A user's own pair, its Triton kernels held against its CUDA kernels, then its libraries."""
    others = sorted(
        (i for i in pair.implementations if i.language != "triton"),
        key=lambda i: i.language == "library",
    )

    def named(one: Implementation) -> Implementation:
        if one.language != "triton" or one.counterparts:
            return one
        same = tuple(i.name for i in others if i.precision == one.precision)
        return replace(one, counterparts=same)

    return replace(pair, implementations=tuple(map(named, pair.implementations)))


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
