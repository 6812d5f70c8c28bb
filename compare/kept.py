"""What is kept of a run: arrays of a failed check, reports that ship with the package."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from compare.choices import Wish, one_of
from compare.machine import Refusal
from compare.pair import Arrays
from compare.results import Report, read_json


@dataclass
class Saver:
    """Writes inputs and outputs of a failed case, and the line that repeats it."""

    folder: Path
    wish: Wish

    def __call__(self, request: Any, inputs: Arrays, name: str, output: np.ndarray | None) -> str:
        self.folder.mkdir(parents=True, exist_ok=True)
        shape = "x".join(map(str, request.shape))
        stem = f"{request.pair.name}-{shape}-{request.precision}"
        for key, array in inputs.items():
            np.save(self.folder / f"{stem}-{key}.npy", array)
        if output is not None:
            tidy = re.sub(r"[^\w.-]+", "_", name)
            np.save(self.folder / f"{stem}-out-{tidy}.npy", output)
        named = [*self.wish.pairs] or [request.pair.name]
        only = [part for name in self.wish.only for part in ("--only", name)]
        config = ["--config", self.wish.config] if self.wish.config else []
        case = {"shape": shape, "precision": request.precision, "data": request.data}
        options = [f"--{key}={value}" for key, value in {**case, "seed": request.seed}.items()]
        line = shlex.join(["python", "-m", "compare", "run", *named, *options, *only, *config])
        (self.folder / f"{stem}.txt").write_text(line + "\n", encoding="utf-8")
        return line


def saved(name: str) -> Report:
    """A report by the path of its JSON file, or by the name of one that ships with the package."""
    if Path(name).is_file():
        try:
            return read_json(name)
        except ValueError as error:
            raise Refusal(2, str(error)) from None
    if "/" in name or name.endswith(".json"):
        raise Refusal(2, f"there is no file {name}")
    found = recorded(name)
    if found is None:
        raise Refusal(2, f"there is no file {name} and no recorded report")
    return found


def recorded(name: str = "h200") -> Report | None:
    """A report that ships with the package; None where it holds none at all."""
    folder = resources.files("compare") / "recorded"
    if not folder.is_dir():
        return None
    names = sorted(entry.name[:-5] for entry in folder.iterdir() if entry.name.endswith(".json"))
    if not names:
        return None
    with resources.as_file(folder / f"{one_of('recorded report', name, names)}.json") as path:
        return read_json(path)
