"""Two sources cut at their step labels, and the words of a lesson that stand beside the pair."""

from __future__ import annotations

import ast
import configparser
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources

KERNEL = "kernel"  # the step before the first label: the signature and what it declares
_LABEL = re.compile(r"^\s*(?:#|//) \[([a-z0-9 ]+)\]\s*$")


@dataclass(frozen=True)
class Part:
    """The lines of one step of one source. `first` is the file's line number of `lines[0]`."""

    label: str
    first: int
    lines: tuple[str, ...]

    def holds(self, line: int) -> bool:
        """Whether line `line` of the file belongs to this step."""
        return self.first <= line < self.first + len(self.lines)


@dataclass(frozen=True)
class Side:
    """One source of a lesson: its file as it is shown, its model in a line, its parts."""

    name: str
    file: str
    model: str
    parts: tuple[Part, ...] = ()

    def part(self, label: str) -> Part | None:
        return next((part for part in self.parts if part.label == label), None)


@dataclass(frozen=True)
class Words:
    """What a lesson says of a pair: its settings, and for every step one text a model.

    Texts hold `{name}` where a number of the machine belongs. `glossary` and `questions` are pairs
    in their order; `tasks` maps the number of a task to its settings.
    """

    settings: Mapping[str, str]
    block: Mapping[str, str]
    thread: Mapping[str, str]
    touches: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # blocks of a step
    folds: tuple[str, ...] = ()  # steps that fold a block to one number
    glossary: tuple[tuple[str, str], ...] = ()
    questions: tuple[tuple[str, str], ...] = ()
    bits: tuple[tuple[str, str], ...] = ()
    tasks: Mapping[int, Mapping[str, str]] | None = None


def triton_parts(text: str, kernel: str) -> list[Part]:
    """The steps of a Triton kernel. ValueError where `text` has no such function."""
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef) and node.name == kernel:
            lines = text.splitlines()[node.lineno - 1 : node.end_lineno]
            return cut(lines, node.lineno)
    raise ValueError(f"no function {kernel} in the Triton source")


def cuda_parts(text: str, kernel: str) -> list[Part]:
    """The steps of a CUDA kernel. ValueError where `text` has no such kernel."""
    found = re.search(rf"\b{re.escape(kernel)}\s*\(", text)
    if found is None:
        raise ValueError(f"no kernel {kernel} in the CUDA source")
    heads = [m.start() for m in re.finditer(r'^extern "C"', text[: found.start()], re.M)]
    start = heads[-1] if heads else text.rfind("\n", 0, found.start()) + 1
    opened = text.index("{", found.end())
    depth, end = 0, opened
    for end in range(opened, len(text)):
        depth += {"{": 1, "}": -1}.get(text[end], 0)
        if depth == 0:
            break
    return cut(text[start : end + 1].splitlines(), text.count("\n", 0, start) + 1)


def cut(lines: Sequence[str], first: int) -> list[Part]:
    """A part before the first label, then one a label; without blank lines at a part's ends."""
    parts: list[Part] = []
    label, start = KERNEL, 0
    for at in range(len(lines) + 1):
        match = _LABEL.match(lines[at]) if at < len(lines) else None
        if at == len(lines) or match:
            low, high = start, at
            while low < high and not lines[low].strip():
                low += 1
            while high > low and not lines[high - 1].strip():
                high -= 1
            if high > low or label != KERNEL:
                parts.append(Part(label, first + low, tuple(lines[low:high])))
            if match:
                label, start = match[1], at + 1
    return parts


def dedented(part: Part) -> list[str]:
    return textwrap.dedent("\n".join(part.lines)).splitlines()


def words(pair: str) -> Words | None:
    """The words of a pair's lesson, `compare/pairs/lessons/PAIR.txt`; None where it has none."""
    path = resources.files("compare") / "pairs" / "lessons" / f"{pair}.txt"
    return parsed(path.read_text(encoding="utf-8")) if path.is_file() else None


def parsed(text: str) -> Words:
    """Sections `[lesson]`, `[glossary]`, `[questions]`, `[bits]`, `[task 1]`.. and one a step."""
    read = configparser.ConfigParser(delimiters=("=",), interpolation=None)
    read.optionxform = str  # type: ignore[assignment, method-assign]
    read.read_string(text)
    sections = {
        name: {key: " ".join(value.split()) for key, value in read[name].items()}
        for name in read.sections()
    }
    tasks = {int(name[5:]): sections[name] for name in sections if re.fullmatch(r"task \d", name)}
    steps = {name: section for name, section in sections.items() if "block" in section}
    steps.pop("lesson", None)
    return Words(
        settings=sections.get("lesson", {}),
        block={name: section["block"] for name, section in steps.items()},
        thread={name: section.get("thread", "") for name, section in steps.items()},
        touches={
            name: tuple(section.get("touches", "").split()) for name, section in steps.items()
        },
        folds=tuple(name for name, section in steps.items() if "folds" in section),
        glossary=tuple(sections.get("glossary", {}).items()),
        questions=tuple(sections.get("questions", {}).items()),
        bits=tuple(sections.get("bits", {}).items()),
        tasks=tasks,
    )


class Facts(dict[str, str]):
    """Numbers by name for the texts; one that this machine does not know says so."""

    def __missing__(self, name: str) -> str:
        return "(not known on this machine)"


def filled(text: str, facts: Mapping[str, str]) -> str:
    return text.format_map(Facts(facts))
