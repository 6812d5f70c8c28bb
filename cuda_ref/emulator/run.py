"""A kernel on the CPU with the call signature of CuPy's RawKernel."""

from __future__ import annotations

import ctypes
import functools
import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .build import KernelError, build

MAX_THREADS = 1024
MAX_SHARED = 227 * 1024  # bytes of dynamic shared memory, an sm_90 block's most
STOPPED = 4  # a Failure of cuda_on_cpu.h: the diagnosis has reported why


@dataclass(frozen=True)
class Parameter:
    """One parameter of a kernel: a scalar, or a pointer to values of `dtype` (numpy's string)."""

    dtype: str
    pointer: bool = False
    const: bool = False

    def __str__(self) -> str:
        kind = "a struct" if self.dtype[0] == "V" else str(np.dtype(self.dtype))
        return f"a pointer to {kind}" if self.pointer else kind


class EmulatedKernel:
    """Kernel `name` of a .cu text, run thread by thread: `kernel(grid, block, args, shared_mem=0)`.

    `args` are numpy arrays for pointers and numpy scalars for numbers, checked against the kernel's
    parameters. A call writes the arrays in place and returns None. `skip_barrier` is the index of
    one written __syncthreads() that is passed through without waiting.

    KernelError: the source can't be built, arguments that don't fit, threads that wait for each
    other for ever, a stack that overflowed.
    """

    def __init__(
        self,
        source: str,
        name: str,
        *,
        label: str = "kernel.cu",
        options: Sequence[str] = (),
        traced: bool = False,
    ) -> None:
        self.name, self.label = name, label
        self.path = build(source, name, label=label, options=options, traced=traced)
        self.library = load_library(self.path)
        self.parameters = parameters(self.library)
        self.barriers = ctypes.c_int.in_dll(self.library, "cuda_barrier_sites").value
        self.lock = threading.Lock()

    def __call__(
        self,
        grid: Sequence[int],
        block: Sequence[int],
        args: Sequence[Any],
        shared_mem: int = 0,
        *,
        skip_barrier: int = -1,
    ) -> None:
        with self.lock:
            failure, where = self.launch(grid, block, args, shared_mem, skip_barrier)
        if failure:
            raise KernelError(self.failed(failure, where))

    def launch(
        self,
        grid: Sequence[int],
        block: Sequence[int],
        args: Sequence[Any],
        shared_mem: int,
        skip_barrier: int,
    ) -> tuple[int, list[int]]:
        """Runs every block; (0, ..) or the failure and its thread, detail and block."""
        grid, block = three("grid", grid, 2**31 - 1), three("block", block, MAX_THREADS)
        if math.prod(block) > MAX_THREADS:
            raise KernelError(
                f"a block has at most {MAX_THREADS} threads, got {'x'.join(map(str, block))}"
            )
        if not 0 <= shared_mem <= MAX_SHARED:
            raise KernelError(f"shared_mem must be 0 to {MAX_SHARED} bytes, got {shared_mem}")
        values = [
            self.value(index, argument, parameter)
            for index, (argument, parameter) in enumerate(
                zip(self.counted(args), self.parameters, strict=True)
            )
        ]
        pointers = (ctypes.c_void_p * max(1, len(values)))(*[v.ctypes.data for v in values])
        where = (ctypes.c_longlong * 3)()
        failure = self.library.cuda_launch(
            pointers,
            (ctypes.c_uint * 3)(*grid),
            (ctypes.c_uint * 3)(*block),
            ctypes.c_int(shared_mem),
            ctypes.c_int(skip_barrier),
            where,
        )
        return failure, list(where)

    def counted(self, args: Sequence[Any]) -> Sequence[Any]:
        if len(args) != len(self.parameters):
            raise KernelError(
                f"{self.name} takes {len(self.parameters)} arguments, got {len(args)}"
            )
        return args

    def value(self, index: int, argument: Any, parameter: Parameter) -> np.ndarray:
        """`argument` as one element in memory: a number, or an array's address."""
        place = f"argument {index} of {self.name}"
        if parameter.pointer:
            if not isinstance(argument, np.ndarray):
                raise KernelError(f"{place} is {parameter}; pass a numpy array, not {argument!r}")
            if parameter.dtype[0] != "V" and argument.dtype != np.dtype(parameter.dtype):
                raise KernelError(f"{place} is {parameter}; got an array of {argument.dtype}")
            if not parameter.const and not argument.flags.writeable:
                raise KernelError(f"{place} may be written; the array passed is read-only")
            return np.array(argument.ctypes.data, np.uintp)
        if not isinstance(argument, np.generic) or argument.dtype != np.dtype(parameter.dtype):
            got = f"{type(argument).__name__} {argument!r}"
            raise KernelError(f"{place} is {parameter}; pass np.{parameter}(..), not {got}")
        return np.array(argument)

    def failed(self, failure: int, where: list[int]) -> str:
        thread, detail, block = where
        who = f"thread {thread} of block {block}"
        return {
            1: f"{self.name} does not end: {who} waits for threads that never come",
            2: f"{self.name}: {who} needs more than 128 KiB of local memory, the emulator's most",
            3: f"{self.name}: {who} synchronises lanes 0x{detail & 0xFFFFFFFF:08x} and is not one",
            4: f"{self.name}: {who} was stopped",
            5: f"{self.name}: no memory for the stacks of a block's threads",
        }[failure]


@functools.cache
def load_library(path: Path) -> ctypes.CDLL:
    library = ctypes.CDLL(str(path))
    library.cuda_signature.restype = ctypes.c_char_p
    return library


def parameters(library: ctypes.CDLL) -> list[Parameter]:
    """The kernel's parameters, as the compiler saw them: "const*f4" is `const float*`."""
    words = library.cuda_signature().decode().split()
    return [
        Parameter(word[word.rfind("*") + 1 :], "*" in word, word.startswith("const"))
        for word in words
    ]


def three(what: str, sizes: Sequence[int], most: int) -> tuple[int, int, int]:
    """`sizes` with 1 for what is left out. KernelError unless one to three, each 1 to `most`."""
    padded = (*sizes, 1, 1)[:3]
    if not 1 <= len(sizes) <= 3 or not all(1 <= int(size) <= most for size in padded):
        raise KernelError(f"{what} must be one to three sizes of 1 to {most}, got {tuple(sizes)}")
    return int(padded[0]), int(padded[1]), int(padded[2])
