"""Addresses of a launch in the words of the source: lines, arrays, elements. Asks binutils."""

from __future__ import annotations

import functools
import math
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .build import KernelError, has_c_name, kernels, without_comments
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
        self,
        kernel: EmulatedKernel,
        source: str,
        args: Sequence[Any],
        bases: list[int],
        shared_mem: int = 0,
    ) -> None:
        text = without_comments(source)
        symbols = shared_symbols(kernel.path, of_others(source, kernel.name))
        self.shared = shared_arrays(symbols, text, bases, shared_mem)
        names = parameter_names(text, kernel.name, len(args))
        self.arrays = [
            (name, *extent(argument), argument.ctypes.data, argument.itemsize)
            for name, argument in zip(names, args, strict=True)
            if isinstance(argument, np.ndarray)
        ]

    def name(self, address: int, size: int) -> str:
        """The element at `address`, of the array that it is in or else the nearest one."""
        if near := self.nearest_shared(address):
            return element(near.name, (address - near.first) // (near.item or size), near.shape)
        if not self.arrays:
            return f"address {address:#x}"
        name, _, _, data, item = min(self.arrays, key=lambda a: apart(address, a[1], a[2]))
        return f"{name}[{(address - data) // item}]"

    def beyond(self, address: int) -> str:
        """What an access at `address`, which is in no array, is outside of."""
        near = self.nearest_shared(address)
        if not near:
            return "the arrays that were passed"
        if near.dynamic:
            return f"that array: the launch gives {near.bytes:,} bytes of dynamic shared memory"
        if not near.item:
            return f"that array of {near.bytes:,} bytes"
        last = element(near.name, near.bytes // near.item - 1, near.shape)
        return f"that array: its last element is {last}"

    def nearest_shared(self, address: int) -> Shared | None:
        """The shared array at `address` or nearest to it, None where a passed one is nearer."""
        shared = min(
            self.shared, key=lambda s: apart(address, s.first, s.first + s.bytes), default=None
        )
        if shared is None:
            return None
        passed = min((apart(address, a[1], a[2]) for a in self.arrays), default=math.inf)
        here = apart(address, shared.first, shared.first + shared.bytes)
        return shared if here <= passed else None


def apart(address: int, first: int, last: int) -> int:
    """Bytes from `address` to the array that starts at `first` and ends before `last`, 0 in it."""
    return max(first - address, address - last + 1, 0)


def element(name: str, index: int, shape: Sequence[int]) -> str:
    """`name[i][j]` where the shape is known, else the index in elements from the start. What is
    outside is outside along the first side."""
    inner = math.prod(shape[1:])
    if len(shape) < 2 or not inner:
        return f"{name}[{index}]"
    rest = np.unravel_index(index % inner, shape[1:])
    return f"{name}[{index // inner}]" + "".join(f"[{i}]" for i in rest)


Symbol = tuple[str, int, int]
SEGMENT = "in_shared_segment"  # launch.h's own variable, by which it finds the segment
SIZES = {"char": 1, "bool": 1, "short": 2, "int": 4, "unsigned": 4, "float": 4, "double": 8}


@dataclass(frozen=True)
class Shared:
    """One __shared__ variable of a launch; `item` is 0 where the size of an element is unknown."""

    name: str
    first: int  # address
    bytes: int
    shape: tuple[int, ...] = ()
    item: int = 0
    dynamic: bool = False


@functools.lru_cache(maxsize=256)
def shared_symbols(library: Path, others: tuple[str, ...] = ()) -> tuple[Symbol, ...]:
    """Each static __shared__ variable and what guards it, but for variables whose symbols begin
    like one of `others`: the symbol, its first byte in the library's thread-local segment and the
    one after its last."""
    rows = [line.split() for line in tool("readelf", "-sW", str(library)).splitlines()]
    return tuple(
        (part[7], int(part[1], 16), int(part[1], 16) + int(part[2], 0))
        for part in rows
        if len(part) == 8 and part[3] == "TLS" and SEGMENT not in part[7]
        if not part[7].startswith(others)
    )


def is_guard(symbol: str) -> bool:
    """Whether a compiler keeps there if a variable was made; the kernel's author knows nothing of
    it."""
    return symbol.startswith("_ZGV") or symbol == "__tls_guard"


def of_others(source: str, kernel: str) -> tuple[str, ...]:
    """How the symbols begin of the __shared__ variables in the file's other kernels, which are none
    of `kernel`'s. Without extern "C" a kernel stands in the namespace that `build` wraps around."""
    found: list[str] = []
    for name in kernels(source):
        if name != kernel and has_c_name(source, name):
            found.append(f"_ZZ{len(name)}{name}E")
        elif name != kernel:  # L: it is static
            found += [f"_ZZN12_GLOBAL__N_1{static}{len(name)}{name}" for static in ("", "L")]
    return tuple(found)


def shared_arrays(
    symbols: Sequence[Symbol], text: str, bases: list[int], shared_mem: int
) -> list[Shared]:
    """The __shared__ variables of `symbols`, and the dynamic ones with a launch's bytes."""
    found = []
    declared = shared_declarations(text)
    for symbol, first, last in symbols:
        if is_guard(symbol):
            continue
        name = next((n for n in declared if re.search(rf"{len(n)}{n}(E|_\d+)?$", symbol)), "")
        kind, dims = declared.get(name, ("", ()))
        item = SIZES.get(kind, 0)
        shape = dims if item and math.prod(dims) * item == last - first else ()
        where = bases[0] + first
        found.append(Shared(name or "shared memory", where, last - first, shape, item))
    for match in re.finditer(r"\bextern\s+__shared__\s+[^;]*?(\w+)\s+(\w+)\s*\[\s*\]", text):
        item = SIZES.get(match[1], 0)
        found.append(Shared(match[2], bases[1], shared_mem, (), item, dynamic=True))
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
