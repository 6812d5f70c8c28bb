"""What a command line chose: pairs, shapes, configs and paths, checked before anything runs."""

from __future__ import annotations

import difflib
import os
import pkgutil
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from compare import pairs as pairs_folder
from compare import userfile, workbench
from compare.machine import Refusal
from compare.pair import Pair, Shape
from compare.userfile import isolation

SEED = workbench.SEED


@dataclass(frozen=True)
class Wish:
    """What the command line asked of a run, as text and numbers."""

    pairs: tuple[str, ...] = ()
    shapes: tuple[str, ...] = ()
    precision: str = ""
    data: str = ""
    seed: int = SEED
    only: tuple[str, ...] = ()
    config: str = ""
    device: int = 0
    cpu: bool = False
    require_card: bool = False
    save: str = ""
    ladder: bool = False
    outputs: tuple[str, ...] = ()  # files that will be written
    keep: str = ""  # a folder for every output
    limit: float = isolation.LIMIT  # seconds for an implementation of a user's file
    command: str = "python -m compare"


def all_pairs() -> dict[str, Pair]:
    """Every pair of the package by its name, `softmax` first, as its files are named."""
    names = sorted((m.name for m in pkgutil.iter_modules(pairs_folder.__path__)), reverse=True)
    modules = [import_module(f"compare.pairs.{name}") for name in names]
    return {module.PAIR.name: module.PAIR for module in modules if hasattr(module, "PAIR")}


def choose(wish: Wish, yours: Sequence[userfile.Yours] = ()) -> tuple[list[Pair], list[Shape]]:
    """The pairs and shapes of a wish, with its options in them. Refusal for a name unknown."""
    known = all_pairs() | {one.pair.name: one.pair for one in yours}
    of_file = {one.word: one.pair.name for one in yours}
    named = dict.fromkeys(of_file.get(name, name) for name in wish.pairs or known)
    pairs = [known[one_of("pair", name, known)] for name in named]
    implementations = [i for pair in pairs for i in pair.implementations]
    if wish.seed < 0:
        raise Refusal(2, f"--seed {wish.seed} is negative; it is a number from 0 on")
    if wish.precision:
        offered = {pair.name: (*pair.precisions, *pair.more_precisions) for pair in pairs}
        one_of("precision", wish.precision, {p for names in offered.values() for p in names})
        pairs = kept(wish, pairs, lambda pair: wish.precision in offered[pair.name], "precision")
    if wish.data:
        one_of("data", wish.data, {d for pair in pairs for d in pair.data})
        pairs = kept(wish, pairs, lambda pair: wish.data in pair.data, "data")
    for name in wish.only:
        one_of("implementation", name, {i.name for i in implementations})
    if wish.config:
        pairs = [with_config(pair, wish.config) for pair in pairs]
    shapes = [shape for text in wish.shapes for shape in parse_shapes(text)]
    if shapes:
        fitting = [pair for pair in pairs if len(pair.dims) == len(shapes[0])]
        if not fitting or any(len(shape) != len(shapes[0]) for shape in shapes):
            forms = " or ".join(f"{pair.name} {'x'.join(pair.dims)}" for pair in pairs)
            raise Refusal(2, f"--shape {' '.join(wish.shapes)}: a shape is written as {forms}")
        pairs = kept(wish, pairs, lambda pair: pair in fitting, "shape")
        for pair in pairs:
            for shape in shapes:
                try:
                    pair.check_shape(shape)
                except ValueError as error:
                    raise Refusal(2, f"--shape {'x'.join(map(str, shape))}: {error}") from None
    return pairs, shapes


def kept(wish: Wish, pairs: list[Pair], fits: Callable[[Pair], bool], option: str) -> list[Pair]:
    """The pairs that an option fits. Refusal where one that was named is not among them."""
    if wish.pairs and (lost := [pair.name for pair in pairs if not fits(pair)]):
        raise Refusal(2, f"--{option} does not fit {' and '.join(lost)}; run the pairs one by one")
    return [pair for pair in pairs if fits(pair)]


def one_of(kind: str, name: str, known: Iterable[str]) -> str:
    """The name itself, or a Refusal with the nearest ones."""
    names = list(known)
    if name in names:
        return name
    if kind == "pair" and userfile.is_file(name):
        run = f"python -m compare run {name}"
        raise Refusal(2, f"{name}: a pair's name is wanted here, no file; a file is run by '{run}'")
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.4) or sorted(names)
    raise Refusal(
        2, f"{kind} {name!r} is unknown; did you mean {' or '.join(map(repr, near[:6]))}?"
    )


def parse_shapes(text: str) -> list[Shape]:
    """`2048x1024` -> one shape; `1024x256..65536` -> doubling from 256 to 65,536."""
    if not re.fullmatch(r"\d+(\.\.\d+)?(x\d+(\.\.\d+)?)*", text):
        raise Refusal(
            2, f"--shape {text!r} does not parse; write it as 2048x1024 or 1024x256..65536"
        )
    grown: list[Shape] = [()]
    for part in text.split("x"):
        first, _, last = part.partition("..")
        sizes, size = [], int(first)
        if last and not 0 < size <= int(last):
            raise Refusal(2, f"--shape {text!r}: the range {part} does not grow")
        while size <= int(last or first):
            sizes.append(size)
            if not last:
                break
            size *= 2
        grown = [(*shape, size) for shape in grown for size in sizes]
    return grown


def with_config(pair: Pair, text: str) -> Pair:
    """The pair with `--config name=value,..` in every implementation that knows the names."""
    options: dict[str, Any] = {}
    for part in text.split(";"):
        name, equals, value = part.partition("=")
        numbers = [int(n) for n in value.split(",") if n.strip().isdigit()]
        if not equals or not numbers or len(numbers) != len(value.split(",")):
            raise Refusal(
                2, f"--config {text!r} does not parse; 'sweep' prints the form of each row"
            )
        options[name.strip()] = numbers[0] if len(numbers) == 1 else tuple(numbers)
    swept = [i for i in pair.implementations if any(set(options) <= set(c) for c in i.configs)]
    if not swept:
        known = sorted({name for i in pair.implementations for c in i.configs for name in c})
        raise Refusal(2, f"--config {text!r}: {pair.name} knows {', '.join(known) or 'no config'}")
    return replace(
        pair,
        implementations=tuple(
            replace(i, options={**i.options, **options}) if i in swept else i
            for i in pair.implementations
        ),
    )


def check_outputs(paths: Sequence[str], save: str) -> None:
    """Refusal, before anything runs, for a path that can't be written."""
    for path in paths:
        folder = Path(path).parent
        if not folder.is_dir():
            raise Refusal(2, f"{path} can't be written: there is no folder {folder}")
        if Path(path).is_dir():
            raise Refusal(2, f"{path} can't be written: it is a folder")
        if not os.access(path if Path(path).exists() else folder, os.W_OK):
            raise Refusal(2, f"{path} can't be written: no permission")
    if save and Path(save).exists() and not os.access(save, os.W_OK):
        raise Refusal(2, f"{save} can't be written: no permission")
    if save and Path(save).is_file():
        raise Refusal(2, f"{save} can't be written: it is a file, a folder is needed")
