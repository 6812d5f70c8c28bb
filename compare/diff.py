"""The command `diff`, and `run --against`: what changed between two runs.

Two files of `--json`, two of `compiled --json`, or two interpreters, each run twice on this
machine in the order A B B A, so that a drift of the machine falls on both alike.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from compare import run as runs
from compare.changes import (
    DEFAULT,
    Changes,
    agreed,
    compare_compiled,
    compare_reports,
    spread_between,
)
from compare.changes.rows import KINDS, Outputs
from compare.machine import Refusal
from compare.report import diff as report
from compare.report import junit
from compare.results import Report, read_json, write_text

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = "import sys; sys.path[:1] = [{root!r}]; from compare.cli import entry; entry()"


def parse_on(text: str) -> tuple[str, ...]:
    """`bits,time` as a tuple; what is counted by default where `text` is empty. Refusal."""
    return tuple(runs.one_of("--on", part.strip(), KINDS) for part in text.split(",") if text)


def kept_outputs(folder: str) -> Outputs:
    """Outputs by their sha256, of a folder that `run --outputs` wrote; none where it is ""."""

    def find(sha: str) -> np.ndarray | None:
        path = Path(folder) / f"{sha}.npy"
        return np.load(path) if folder and path.is_file() else None

    return find


def read_before(name: str, on: str) -> Report | None:
    """The report to hold a run against, read before it starts; None for "". Refusal."""
    parse_on(on)
    return runs.saved(name) if name else None


def against(before: Report, after: Report, on: str, folder: str) -> Changes:
    """What changed since `before`, for `run --against`. Refusal for an unknown `on`."""
    chosen = parse_on(on) or DEFAULT
    return compare_reports(before, after, on=chosen, outputs=kept_outputs(folder))


def command(
    wish: runs.Wish,
    *,
    pythons: Sequence[str] = (),
    on: str = "",
    md: str = "",
    junit_file: str = "",
    progress: Callable[[str], None] = lambda text: None,
) -> tuple[list[str], int]:
    """The screen and the exit code; writes the files that were asked for. Raises Refusal."""
    runs.check_outputs([path for path in (md, junit_file) if path], "")
    after: Report | None = None
    if pythons:
        changes, after = of_pythons(wish, pythons, parse_on(on) or DEFAULT, progress)
    else:
        changes, after = of_files(wish.pairs, on, wish.keep)
    if md:
        write_text(md, "\n".join(report.markdown(changes)) + "\n")
    if junit_file:
        write_text(junit_file, junit.text(after, changes))
    return report.lines(changes), changes.exit_code


def of_files(names: Sequence[str], on: str, folder: str) -> tuple[Changes, Report | None]:
    """Two files, or names of recorded reports; the second report, where they are reports."""
    if len(names) != 2:
        raise Refusal(2, f"diff wants two JSON files, before and after; {len(names)} given")
    chosen = parse_on(on)
    made = [compiled_file(name) for name in names]
    if all(each is not None for each in made):
        try:
            return compare_compiled(made[0], made[1], on=chosen or ("code",)), None
        except ValueError as error:
            raise Refusal(2, f"{' or '.join(names)}: {error}") from None
    for each, name, other in zip(made, names, reversed(names), strict=True):
        if each is not None:
            raise Refusal(
                2, f"{name} is of 'compiled --json', {other} is not: give two of one kind"
            )
    before, after = map(runs.saved, names)
    outputs = kept_outputs(folder)
    return compare_reports(before, after, on=chosen or DEFAULT, outputs=outputs), after


def compiled_file(name: str) -> Any:
    """The JSON of `compiled --json`; None where the file is not one."""
    if not Path(name).is_file():
        return None
    try:
        value = json.loads(Path(name).read_text(encoding="utf-8"))
    except ValueError:
        return None  # whoever reads it as a report says what is wrong with it
    return None if isinstance(value, dict) and "cases" in value else value


def of_pythons(
    wish: runs.Wish,
    pythons: Sequence[str],
    on: Sequence[str],
    progress: Callable[[str], None],
) -> tuple[Changes, Report]:
    """Both interpreters in turn, A B B A; what both rounds show has changed."""
    if len(pythons) != 2:
        raise Refusal(2, f"--python is given twice, before and after; {len(pythons)} given")
    with tempfile.TemporaryDirectory(prefix="triton-vs-cuda-") as folder:
        found = []
        for number, which in enumerate((0, 1, 1, 0)):
            progress(f"run {number + 1} of 4: {pythons[which]}")
            found.append(one_run(pythons[which], wish, Path(folder), number))
        first, second, third, fourth = found
        spread = max(spread_between(first, fourth), spread_between(second, third))
        outputs = kept_outputs(folder)
        rounds = [
            compare_reports(one, two, on=on, outputs=outputs, spread=spread)
            for one, two in ((first, second), (fourth, third))
        ]
    return agreed(*rounds), second


def one_run(python: str, wish: runs.Wish, folder: Path, number: int) -> Report:
    """One run of this package by another interpreter. Refusal where it refuses or can't start."""
    path = folder / f"{number}.json"
    arguments = ["run", *arguments_of(wish), "--json", str(path), "--outputs", str(folder)]
    try:
        done = subprocess.run(
            [python, "-c", PROGRAM.format(root=str(ROOT)), *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        )
    except OSError as error:
        raise Refusal(2, f"--python {python} can't be run: {error.strerror}") from None
    if not path.is_file():
        said = done.stderr.strip().splitlines()
        raise Refusal(2, f"--python {python}: {said[-1] if said else f'exit {done.returncode}'}")
    return read_json(path)


def arguments_of(wish: runs.Wish) -> list[str]:
    """The words of the command line that a wish for a run was made of."""
    words = list(wish.pairs)
    for name, value in (
        *(("--shape", shape) for shape in wish.shapes),
        *(("--only", name) for name in wish.only),
        ("--precision", wish.precision),
        ("--data", wish.data),
        ("--config", wish.config),
        ("--seed", str(wish.seed)),
        ("--device", str(wish.device) if wish.device else ""),
    ):
        words += [name, value] if value else []
    return words + ["--cpu"] * wish.cpu + ["--require-card"] * wish.require_card
