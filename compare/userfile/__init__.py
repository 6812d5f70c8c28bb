"""A user's file: implementations of a known pair, or a pair of its own, checked at the edge.

The file sets `PAIR` to a pair's name and `IMPLEMENTATIONS` to a list, or `PAIR` to a `Pair`. It is
Python that runs with the rights of whoever runs it. What is wrong with it is a Refusal, exit code
2; what goes wrong when one of its kernels runs is a row (`isolation`).
"""

from __future__ import annotations

import difflib
import functools
import importlib.util
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from compare.machine import Refusal
from compare.pair import LANGUAGES, Implementation, Pair, Shape
from compare.userfile.guarded import guard, kind, line_of, raised, with_depth

ARRAYS = ("torch", "cupy")
NEEDS = ("card", "emulator")
FIRST_SIDE = 256  # of a default shape without a card: a program takes the interpreter 10 ms
HOW = "set PAIR to a pair's name and IMPLEMENTATIONS to a list, or PAIR to a Pair"


@dataclass(frozen=True)
class Yours:
    """What a file adds: the pair with its implementations in it, and their names in file order."""

    word: str  # as it was named
    pair: Pair
    names: tuple[str, ...]
    whole: bool  # the pair itself is the file's
    note: str = ""  # where the pair's default shape without a card is another for it

    @property
    def emulated(self) -> tuple[str, ...]:
        """The names of its kernels that the emulator can take apart."""
        return tuple(
            i.name
            for i in self.pair.implementations
            if i.name in self.names
            and (i.language, i.arrays) == ("cuda", "cupy")
            and "card" not in i.needs
        )


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
    listed = [with_depth(path, one, base.shapes(False)[0]) for one in listed]
    names = tuple(one.name for one in listed)
    return Yours(str(path), attached(base, listed), names, False, smaller(path, base))


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
    if not isinstance(one.facts, Mapping):
        return f"has facts {one.facts!r:.40}; give a dict"
    if not callable(one.entry) and (not isinstance(one.entry, str) or ":" not in one.entry):
        return f"has entry {one.entry!r}; give a function or 'module:function'"
    return ""


def attached(base: Pair, mine: Sequence[Implementation]) -> Pair:
    """`base` with `mine` in front, so that theirs are the two columns of the report.

    The first Triton one that names no counterpart is held against the CUDA ones of `mine`, then
    against those of the pair's own Triton kernel. The pair's own kernel is held against theirs as
    well: it stands beside them where they have no Triton one, or theirs fails.
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
        rest[rest.index(lead)] = replace(lead, counterparts=against)
    shapes = functools.partial(default_shapes, base)
    return replace(base, implementations=(*mine, *rest), shapes=shapes)


def default_shapes(base: Pair, on_card: bool) -> tuple[Shape, ...]:
    """The pair's own shapes; without a card their first side is FIRST_SIDE at most, since a kernel
    as it was written, a program a row, should answer in seconds there, too."""
    own = map(tuple, base.shapes(on_card))
    return tuple(own if on_card else ((min(FIRST_SIDE, s[0]), *s[1:]) for s in own))


def smaller(path: Path, base: Pair) -> str:
    """A note where `default_shapes` are not the pair's own without a card; "" where they are."""
    here, own = (
        "x".join(map(str, s)) for s in (default_shapes(base, False)[0], base.shapes(False)[0])
    )
    if here == own:
        return ""
    return (
        f"{base.name} runs at {here}, not at its own {own}: without a card {path.name} may take "
        f"minutes there; --shape {own} runs it"
    )


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
