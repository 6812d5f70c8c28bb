"""What one run holds: the cases that were asked for, the machine, a few helper threads."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from compare import compiled
from compare.compiled import Built
from compare.machine import Machine
from compare.pair import Arrays, Implementation, Pair, Reference, Shape
from compare.results import Row

T = TypeVar("T")
REPEATS = 20  # checked runs on a card, compared bit for bit
SEED = 20260901
WORKERS = min(8, os.cpu_count() or 1)  # threads for the host's work, as many for machine code


@dataclass(frozen=True)
class Request:
    """One case to run. `timed` asks for time where there is a card."""

    pair: Pair
    shape: Shape
    precision: str
    data: str
    seed: int = SEED
    implementations: tuple[Implementation, ...] = ()
    timed: bool = True
    interval: float = 0.01
    ladder: bool = False  # time the two that stand side by side in every usual way, too


@dataclass
class Runner:
    """What one run holds: the machine, its helper threads, and what it has made.

    `pool` computes references, makes probes, hashes and judges; `readers` read machine code, which
    takes longer and is waited for last.
    """

    machine: Machine
    progress: Callable[[str], None] = lambda text: None
    processes: int = 1
    lost: str = ""  # the implementation after which the card's context was lost
    warnings: list[str] = field(default_factory=list)  # foreign ones, for the JSON and doctor
    save: Callable[[Request, Arrays, str, np.ndarray | None], str] | None = None
    # an implementation's row and output, where it was tried in a process of its own
    alone: Callable[[Request, str], tuple[Row, np.ndarray | None] | None] = lambda *asked: None
    keep: Callable[[str, np.ndarray], None] | None = None  # every output, by its sha256
    stopped: bool = False  # interrupted: the rest is not run
    pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(WORKERS))
    readers: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(WORKERS))
    code: dict[str, Callable[[], Built]] = field(default_factory=dict)  # of this case's kernels
    _made: dict[Any, tuple[Arrays, Callable[[], Reference]]] = field(default_factory=dict)

    def beside(self, work: Callable[[], T]) -> Callable[[], T]:
        """What gives the result of `work`: computed beside the kernels on a card, on a helper
        thread. On a host it waits until it is asked for: rows run in forked processes there, and a
        fork amid a numpy product hangs in its BLAS."""
        return self.pool.submit(work).result if self.machine.on_card else functools.cache(work)

    @property
    def each(self) -> Callable[[Callable[[Any], T], Iterable[Any]], Iterable[T]]:
        """`map`, on a card over the helper threads; on a host a later fork would be amid them."""
        return self.pool.map if self.machine.on_card else map

    def inputs(self, request: Request) -> tuple[Arrays, Callable[[], Reference]]:
        """Host bits and their reference: one of each for all precisions of a shape."""
        pair, shape, data, seed = request.pair, request.shape, request.data, request.seed
        key = (pair.name, shape, data, seed)
        if key not in self._made:
            arrays = pair.inputs(shape, data, seed)
            self._made = {key: (arrays, self.beside(lambda: pair.reference(arrays, shape, seed)))}
        return self._made[key]

    def watched(self, implementation: Implementation, call: Callable[[], np.ndarray]) -> np.ndarray:
        """What `call` returns; on a card the kernels that it loads are read on a helper thread."""
        if not self.machine.card or implementation.language == "library":
            return call()
        kept: list[np.ndarray] = []
        arch = self.machine.card.arch
        launched = compiled.watch(implementation, lambda: kept.append(call()), arch)
        self.code[implementation.name] = self.readers.submit(compiled.read, launched).result
        return kept[0]
