"""Addresses of a launch in the words of the source: lines, arrays, elements. Asks binutils."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .build import KernelError, without_comments
from .run import EmulatedKernel


def extent(array: np.ndarray) -> tuple[int, int]:
    """The first byte of `array` and the one after its last."""
    steps = [(n - 1) * s for n, s in zip(array.shape, array.strides, strict=True)]
    first = array.ctypes.data + sum(step for step in steps if step < 0)
    last = array.ctypes.data + sum(step for step in steps if step > 0) + array.itemsize
    return (first, last) if array.size else (first, first)


def tool(name: str, *arguments: str, given: str = "") -> str:
    """What a program of binutils prints."""
    found = shutil.which(name)
    if not found:
        raise KernelError(f"the diagnosis needs {name}; install binutils")
    answer = subprocess.run(
        [found, *arguments], input=given, capture_output=True, text=True, check=False
    )
    return answer.stdout


def lines_of(library: Path, offsets: Sequence[int] | np.ndarray) -> dict[int, int]:
    """The source line of each instruction, 0 where the debug information has none."""
    given = "\n".join(hex(int(offset)) for offset in offsets)
    text = tool("addr2line", "-s", "-e", str(library), given=given) if given else ""
    found = [re.search(r":(\d+)", line) for line in text.splitlines()]
    return {
        int(offset): int(match[1]) if match else 0
        for offset, match in zip(offsets, found, strict=True)
    }


class Places:
    """Addresses of one launch in the words of the source."""

    def __init__(
        self, kernel: EmulatedKernel, source: str, args: Sequence[Any], bases: list[int]
    ) -> None:
        text = without_comments(source)
        self.shared = shared_arrays(kernel.path, text, bases)
        names = parameter_names(text, kernel.name, len(args))
        self.arrays = [
            (name, *extent(argument), argument.ctypes.data, argument.itemsize)
            for name, argument in zip(names, args, strict=True)
            if isinstance(argument, np.ndarray)
        ]

    def name(self, address: int, size: int) -> str:
        """The element at `address`, or how far it is outside the nearest array."""
        for name, first, bytes_, shape, item in self.shared:
            if first <= address < first + bytes_:
                return element(name, (address - first) // (item or size), shape)
        for name, first, last, data, item in self.arrays:
            if first <= address < last:
                return f"{name}[{(address - data) // item}]"
        if not self.arrays:
            return f"address {address:#x}"
        name, first, last, data, item = min(
            self.arrays, key=lambda a: min(abs(address - a[1]), abs(address - a[2]))
        )
        return f"{name}[{(address - data) // item}]"


def element(name: str, index: int, shape: Sequence[int]) -> str:
    """`name[i][j]` where the shape is known, else the index in elements from the start."""
    if not shape or np.prod(shape) <= index:
        return f"{name}[{index}]"
    return name + "".join(f"[{i}]" for i in np.unravel_index(index, shape))


SIZES = {"char": 1, "bool": 1, "short": 2, "int": 4, "unsigned": 4, "float": 4, "double": 8}


def shared_arrays(
    library: Path, text: str, bases: list[int]
) -> list[tuple[str, int, int, tuple[int, ...], int]]:
    """Name, address, bytes, shape and item size (0: unknown) of every __shared__ variable."""
    found = []
    declared = shared_declarations(text)
    for line in tool("readelf", "-sW", str(library)).splitlines():
        part = line.split()
        if len(part) != 8 or part[3] != "TLS":
            continue
        name = next((n for n in declared if re.search(rf"{len(n)}{n}(E|_\d+)?$", part[7])), "")
        if name:
            kind, dims = declared[name]
            bytes_, item = int(part[2], 0), SIZES.get(kind, 0)
            shape = dims if item and np.prod(dims, dtype=int) * item == bytes_ else ()
            found.append((name, bases[0] + int(part[1], 16), bytes_, shape, item))
    for match in re.finditer(r"\bextern\s+__shared__\s+[^;]*?(\w+)\s+(\w+)\s*\[\s*\]", text):
        found.append((match[2], bases[1], 227 * 1024, (), SIZES.get(match[1], 0)))
    return found


def shared_declarations(text: str) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Each static __shared__ variable's type and dimensions, () where they are no plain numbers."""
    numbers = dict(re.findall(r"^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+(\d+)[ \t]*$", text, re.M))
    found = {}
    for match in re.finditer(r"(?<!extern )__shared__\s+((?:\w+\s+)+)([^;]+);", text):
        for part in re.findall(r"(\w+)\s*((?:\[[^\]]*\]\s*)*)(?:,|$)", match[2].strip()):
            given = [size.strip() for size in re.findall(r"\[([^\]]*)\]", part[1])]
            sizes = [numbers.get(size, size) for size in given]
            plain = all(size.isdigit() for size in sizes)
            found[part[0]] = (match[1].split()[-1], tuple(map(int, sizes)) if plain else ())
    return found


def parameter_names(text: str, kernel: str, count: int) -> list[str]:
    """The names of a kernel's parameters, "argument 0" .. where the text can't be read."""
    match = re.search(rf"\b{kernel}\s*\(([^)]*)\)\s*\{{", text)
    names = [part.split()[-1].lstrip("*&") for part in match[1].split(",")] if match else []
    return names if len(names) == count else [f"argument {i}" for i in range(count)]
