"""CUPTI's activity records: the device's own start and end of every kernel, copy and memset, ns.

Read through ctypes from the libcupti that torch has loaded. `torch.profiler` reads the same
records, but its first start in a process takes 3.6 s (NVIDIA H200, torch 2.11); this one takes
0.03 s. The fields lie at the same offsets in every layout from CUpti_ActivityKernel4 (CUDA 9) to
CUpti_ActivityKernel13 (CUDA 13.5; cupti_activity.h), and `prove` tries them on known work before
any is believed.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

MEMCPY, MEMSET, KERNEL = 1, 2, 10  # CUpti_ActivityKind; 10 leaves kernels concurrent
KIND, BYTES, START, END, GRID, NAME = 0, 8, 16, 24, 52, 104  # offsets; BYTES: copies and memsets
BUFFER = 8 << 20  # room for 32,000 records: a block of rounds never needs a second one
TAKEN = 39  # CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED

_REQUEST = ctypes.CFUNCTYPE(
    None,
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.POINTER(ctypes.c_size_t),
    ctypes.POINTER(ctypes.c_size_t),
)
_COMPLETE = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t
)
_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_void_p)


class Unavailable(Exception):
    """CUPTI can't record here; the sentence says why."""


@dataclass(frozen=True)
class Records:
    """Device records sorted by start. `names[ids[i]]` names record i; times in ns."""

    names: tuple[str, ...]
    ids: np.ndarray
    starts: np.ndarray
    ends: np.ndarray


def library() -> str:
    """The libcupti that this process has loaded, since two of them get in each other's way; else
    the one that the loader finds by its name."""
    try:
        lines = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    loaded = [line.split(maxsplit=5)[-1] for line in lines if "libcupti.so" in line]
    return loaded[0] if loaded else "libcupti.so"


def load() -> Any:
    """CUPTI's library. Unavailable where there is none."""
    try:
        return ctypes.CDLL(library())
    except OSError:
        raise Unavailable("CUPTI is not installed: pip install nvidia-cuda-cupti") from None


class Cupti:
    """CUPTI's activity records. One object a process: CUPTI may call it and write into its buffers
    for as long as the process lives."""

    def __init__(self, lib: Any) -> None:
        self._lib = lib
        following = lib.cuptiActivityGetNextRecord
        following.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
        self.shortest_us: float | None = None  # the shortest kernel seen; None until `prove` ran
        self._spare: list[Any] = []
        self._lent: dict[int, Any] = {}
        self._full: list[tuple[int, int]] = []
        self._callbacks = (
            _REQUEST(self._lend),
            _COMPLETE(
                lambda context, stream, buffer, size, used: self._full.append((buffer, used))
            ),
            _CALLBACK(lambda *ignored: None),
        )
        self._subscriber = ctypes.c_void_p()

    def open(self) -> None:
        """Subscribes. Unavailable where another profiler did, or where CUPTI refuses."""
        self._call("Subscribe", ctypes.byref(self._subscriber), self._callbacks[2], None)
        self._call("ActivityRegisterCallbacks", *self._callbacks[:2])

    def _call(self, name: str, *arguments: Any) -> None:
        code = getattr(self._lib, f"cupti{name}")(*arguments)
        if code == TAKEN:
            raise Unavailable("another profiler holds CUPTI: run without it")
        if code:
            words = ctypes.c_char_p()
            self._lib.cuptiGetResultString(code, ctypes.byref(words))
            said = (words.value or b"unknown").decode()
            raise Unavailable(f"CUPTI refuses (cupti{name}: {said})")

    def _lend(self, buffer: Any, size: Any, limit: Any) -> None:
        """CUPTI asks for room. Called on the thread that launches, or on CUPTI's own."""
        memory = self._spare.pop() if self._spare else ctypes.create_string_buffer(BUFFER)
        self._lent[ctypes.addressof(memory)] = memory
        buffer[0], size[0], limit[0] = ctypes.addressof(memory), BUFFER, 0

    def _addresses(self, work: Callable[[], None], wait: Callable[[], None]) -> list[int]:
        """Runs `work`, waits, and gives the address of each record; they hold until `_return`."""
        kinds = (KERNEL, MEMCPY, MEMSET)
        for kind in kinds:
            self._call("ActivityEnable", kind)
        try:
            work()
        finally:
            wait()
            for kind in kinds:
                self._lib.cuptiActivityDisable(kind)
            self._lib.cuptiActivityFlushAll(0)
        found, record = [], ctypes.c_void_p()
        following, pointer = self._lib.cuptiActivityGetNextRecord, ctypes.byref(record)
        for buffer, used in self._full:
            record.value = None
            while following(buffer, used, pointer) == 0:
                found.append(record.value or 0)
        return found

    def _return(self) -> None:
        self._spare += [self._lent.pop(buffer) for buffer, _ in self._full if buffer in self._lent]
        self._full.clear()

    def record(self, work: Callable[[], None], wait: Callable[[], None]) -> Records:
        """The device records of `work`, which enqueues; `wait` waits for the device."""
        addresses = self._addresses(work, wait)
        numbers: dict[Any, int] = {}
        names: list[str] = []
        rows = np.empty((len(addresses), 3), np.int64)
        for row, address in zip(rows, addresses, strict=True):
            kind = ctypes.c_uint32.from_address(address).value
            word = ctypes.c_uint64.from_address(address + (NAME if kind == KERNEL else BYTES)).value
            number = numbers.setdefault((kind, word), len(numbers))
            if number == len(names):
                names.append(_name(kind, word))
            row[:] = number, *(ctypes.c_uint64 * 2).from_address(address + START)
        self._return()
        rows = rows[np.argsort(rows[:, 1], kind="stable")]
        return Records(tuple(names), rows[:, 0], rows[:, 1], rows[:, 2])

    def prove(self, work: Callable[[], None], wait: Callable[[], None], copied: int) -> None:
        """Tries the layout on `work`: kernels, and one copy of `copied` bytes. Unavailable where a
        field is not what it must be.

        Names are read through /proc/self/mem, where a wrong address is an error and no crash.
        """
        addresses = self._addresses(work, wait)
        shortest, copies = float("inf"), []
        with open("/proc/self/mem", "rb") as memory:
            for address in addresses:
                kind = ctypes.c_uint32.from_address(address).value
                start, end = (ctypes.c_uint64 * 2).from_address(address + START)
                sound = 0 < start < end < start + 10**9
                if kind == KERNEL:
                    grid = (ctypes.c_int32 * 6).from_address(address + GRID)
                    sound &= all(0 < size < 2**31 for size in grid)
                    sound &= grid[3] * grid[4] * grid[5] <= 1024
                    pointer = ctypes.c_uint64.from_address(address + NAME).value
                    sound = sound and _readable(memory.fileno(), pointer)
                    shortest = min(shortest, (end - start) / 1000)
                else:
                    copies.append(ctypes.c_uint64.from_address(address + BYTES).value)
                if not sound:
                    raise Unavailable(self._strange())
        self._return()
        if not addresses:
            raise Unavailable("CUPTI gives no records: another profiler may hold it")
        if copies != [copied] or shortest == float("inf"):
            raise Unavailable(self._strange())
        self.shortest_us = shortest

    def _strange(self) -> str:
        version = ctypes.c_uint32()
        self._lib.cuptiGetVersion(ctypes.byref(version))
        return f"the records of CUPTI {version.value} are not laid out as those that were tried"

    def close(self) -> None:
        """Ends the subscription, so that another profiler may have it."""
        self._lib.cuptiUnsubscribe(self._subscriber)


def _name(kind: int, word: int) -> str:
    if kind != KERNEL:
        return f"{'copy' if kind == MEMCPY else 'memset'} of {word:,} bytes"
    return (ctypes.cast(word, ctypes.c_char_p).value or b"").decode(errors="replace")


def _readable(memory: int, pointer: int) -> bool:
    """Whether a C string of printable characters lies at `pointer`."""
    try:
        text = os.pread(memory, 64, pointer).split(b"\0")[0]
    except (OSError, OverflowError):
        return False
    return bool(text) and all(32 < byte < 127 for byte in text)
