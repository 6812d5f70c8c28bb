"""One way to a CUDA kernel: CuPy's RawKernel on a card, the emulator without one.

Both are called as `kernel(grid, block, args, shared_mem=0)`; a launcher decides by where its arrays
live. On a card the launch goes into CuPy's current stream.
"""

from __future__ import annotations

import contextlib
import functools
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .emulator.build import KernelError
from .emulator.run import EmulatedKernel

Kernel = Callable[..., None]
Sizes = tuple[int, ...]
SHAPE_LIMIT = 2**31 - 1024  # columns, M, N, K: an int index may go one block past the end


@dataclass(frozen=True)
class Launch:
    """One launch, written down: the kernel's file and name, the grid, the block, the arguments."""

    file: Path
    name: str
    grid: Sizes
    block: Sizes
    args: tuple[Any, ...]
    options: tuple[str, ...] = ()  # NVRTC's
    shared_mem: int = 0  # bytes of dynamic shared memory a block

    def __call__(self) -> None:
        """Launches where the first argument lives; nothing where the grid is empty. ValueError
        where another array lives elsewhere."""
        if all(self.grid):
            first, *rest = self.args
            with card_of(first, *filter(_is_array, rest)):
                kernel = load(self.file, self.name, self.options, on_card=on_card(first))
                kernel(self.grid, self.block, self.args, shared_mem=self.shared_mem)


def on_card(array: Any) -> bool:
    """Whether `array` lives on a card. ValueError unless it is numpy's or a card's."""
    if isinstance(array, np.ndarray):
        return False
    if _says_card(array):
        return True
    raise ValueError(f"pass numpy or CuPy arrays, not {type(array).__name__}")


def _says_card(value: Any) -> bool:
    """Whether `value` is an array on a card; CuPy's are known by their type, which costs less."""
    cupy = sys.modules.get("cupy")
    known = cupy is not None and isinstance(value, cupy.ndarray)
    return known or hasattr(value, "__cuda_array_interface__")


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray) or _says_card(value)


def card_of(*arrays: Any) -> contextlib.AbstractContextManager[Any]:
    """Makes the card of `arrays` the current one inside; changes nothing for numpy's. ValueError
    where they live apart.

    CuPy launches on the current card, and its `asarray` copies there what lives on another one, so
    that a result would be written into the copy.
    """
    if module_of(*arrays) is np:
        return contextlib.nullcontext()
    import cupy

    cards = sorted({_card(array) for array in arrays if array is not None})
    if len(cards) > 1:
        words = " and ".join(map(str, cards))
        raise ValueError(f"the arrays live apart, on cards {words}: pass all on one card")
    return cupy.cuda.Device(cards[0])


def _card(array: Any) -> int:
    """The number of the card on which `array` lives."""
    import cupy

    if isinstance(array, cupy.ndarray):
        return array.device.id
    address = array.__cuda_array_interface__["data"][0]
    if address == 0:  # no elements, no memory
        return cupy.cuda.Device().id
    return cupy.cuda.runtime.pointerGetAttributes(address).device


def module_of(*arrays: Any) -> Any:
    """cupy or numpy, where all of `arrays` live. ValueError where they live apart."""
    places = {on_card(array) for array in arrays if array is not None}
    if len(places) > 1:
        raise ValueError("the arrays live apart: pass all on the card or all on the host")
    if places == {False}:
        return np
    import cupy  # only here: a machine without a card need not have it

    return cupy


def matrix(name: str, array: Any) -> Any:
    """`array` itself, where it is 2-D float32. ValueError otherwise."""
    if array.dtype != np.float32 or array.ndim != 2:
        raise ValueError(f"{name} must be 2-D float32, got {array.ndim}-D {array.dtype}")
    if max(array.shape) > SHAPE_LIMIT:
        raise ValueError(f"{name} is {shape_words(array.shape)}; a side is at most {SHAPE_LIMIT:,}")
    return array


def output(out: Any, shape: tuple[int, int], library: Any) -> Any:
    """`out`, or a new array of `shape` where it is None. ValueError where it does not fit."""
    if out is None:
        return library.empty(shape, np.float32)
    if out.dtype != np.float32 or tuple(out.shape) != shape:
        got = f"{out.dtype} {shape_words(out.shape)}"
        raise ValueError(f"out must be float32 {shape_words(shape)}, got {got}")
    return out


def strides(array: Any) -> tuple[np.int64, ...]:
    """Elements from one row to the next, and from one column to the next."""
    return tuple(np.int64(stride // array.itemsize) for stride in array.strides)


def shape_words(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape))


# Told of every launch. One that answers True takes it over: the kernel is neither built nor run.
watchers: list[Callable[[Launch], bool]] = []


def load(file: str | Path, name: str, options: tuple[str, ...] = (), *, on_card: bool) -> Kernel:
    """Kernel `name` of a .cu file as `built` gives it, in view of the watchers."""
    if not watchers:
        return built(file, name, options, on_card=on_card)

    def call(
        grid: Sequence[int], block: Sequence[int], args: Sequence[Any], shared_mem: int = 0
    ) -> None:
        sizes = tuple(grid), tuple(block)
        launch = Launch(Path(file), name, *sizes, tuple(args), options, shared_mem)
        if not any([watcher(launch) for watcher in watchers]):
            built(file, name, options, on_card=on_card)(grid, block, args, shared_mem=shared_mem)

    return call


@functools.cache
def built(file: str | Path, name: str, options: tuple[str, ...] = (), *, on_card: bool) -> Kernel:
    """Kernel `name` of a .cu file, built once per file, name and options.

    `options` are NVRTC's; none is added here (CuPy itself adds `-ftz=true`, which the emulator
    mirrors). Scalars among the arguments must be numpy's, with the parameter's type. KernelError:
    no such file or kernel, a source that does not compile, a bare Python scalar.
    """
    path = Path(file)
    try:
        source = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise KernelError(f"{path} can't be read: {error}") from None
    if on_card:
        return card_kernel(source, name, options, path.name)
    kernel = EmulatedKernel(source, name, label=path.name, options=options)
    return checked(kernel, name)


def card_kernel(source: str, name: str, options: tuple[str, ...], label: str) -> Kernel:
    """CuPy's RawKernel, with NVRTC's and the driver's errors as one sentence."""
    import cupy

    kernel = cupy.RawKernel(source, name, options=options)
    try:
        kernel.compile()
    except cupy.cuda.compiler.CompileException as error:
        log = str(error)
        first = next((line for line in log.splitlines() if "error" in line), log[:200])
        place = re.sub(r"^/\S*?\.cu(?=\()", "", first.strip())  # a temporary file's name
        raise KernelError(f"NVRTC can't compile {label}{place}", log) from None
    except cupy.cuda.driver.CUDADriverError as error:
        if "NOT_FOUND" not in str(error):
            raise
        raise KernelError(
            f'{label} has no symbol {name}: check the name, and write extern "C" before __global__'
        ) from None
    return checked(kernel, name)


def checked(kernel: Kernel, name: str) -> Kernel:
    """`kernel` behind a check of its scalars: RawKernel would pass a float as 8 bytes of double."""

    @functools.wraps(kernel, updated=())
    def call(
        grid: Sequence[int], block: Sequence[int], args: Sequence[Any], shared_mem: int = 0
    ) -> None:
        for index, argument in enumerate(args):
            if isinstance(argument, (bool, int, float, complex)) and not isinstance(
                argument, np.generic
            ):
                raise KernelError(
                    f"argument {index} of {name} is a Python {type(argument).__name__}, "
                    f"{argument!r}: give it its C type, as np.int32, np.int64 or np.float32"
                )
        kernel(grid, block, args, shared_mem=shared_mem)

    return call
