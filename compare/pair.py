"""The contract: what a pair says of its operation, and an implementation of itself.

A pair is one operation written in both languages. Its file in `compare/pairs/` defines `PAIR`;
everything else in the workbench is written against the classes here and knows no operation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import numpy as np

Shape = tuple[int, ...]
Arrays = dict[str, np.ndarray]

LANGUAGES = ("triton", "cuda", "library")


@dataclass(frozen=True)
class Cost:
    """The least that the operation must do: bytes read and written once each, and operations."""

    read: int
    written: int
    flops: int

    @property
    def bytes(self) -> int:
        return self.read + self.written


@dataclass(frozen=True)
class Bound:
    """How far an output may be from the reference, element by element.

    `allowed` has the reference's shape, float64, and holds |got - ref| at most. `formula` and
    `source` are printed on demand. A bound that only informs has `gates=False`. Where `undecided`
    is True the order of adding may overflow, so that a NaN or an infinity is no fault there; a
    finite output still has to keep the bound. `note` says what the implementation did not declare
    and the bound had to take the worst of; it is told where another one of the case declares it.
    """

    name: str
    allowed: np.ndarray
    formula: str
    source: str
    gates: bool = True
    undecided: np.ndarray | None = None
    note: str = ""


@dataclass(frozen=True)
class Reference:
    """The right answer in float64, from the same float32 bits, and what its bounds are made of.

    `value` covers the whole output, or, where that would take too long, the rows and columns in
    `index`; `select` cuts the same part from an output. `scales` are arrays of `value`'s shape
    (or broadcastable to it) that the pair's `bounds` reads. `exact` asks for equality in every bit.
    `row_sums` are the sums that the output's rows must have, where the operation promises them,
    within the sum of the row's bounds.
    """

    value: np.ndarray
    scales: Mapping[str, Any] = field(default_factory=dict)
    index: tuple[np.ndarray, np.ndarray] | None = None
    row_sums: np.ndarray | None = None

    def select(self, output: np.ndarray) -> np.ndarray:
        return output if self.index is None else output[np.ix_(*self.index)]


@dataclass(frozen=True)
class Probe:
    """Inputs whose right answer has no rounding at all: every implementation must give `want`.

    `want` is float32 and compared bit for bit. `catches` says in words what the probe is for.
    """

    name: str
    inputs: Arrays
    want: np.ndarray
    catches: str


@dataclass(frozen=True)
class Prepared:
    """What an implementation learned before it runs: options for its launcher, and sentences."""

    options: Mapping[str, Any]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Implementation:
    """One kernel or library call that claims to compute its pair's operation.

    `entry` is `"module:function"` (imported when it runs, never before) or the function itself. It
    is called as `function(*inputs, out, **options)` with `arrays` of torch or CuPy on a card, of
    torch or numpy without one, on the current stream, and writes `out`.
    """

    name: str
    language: str
    entry: str | Callable[..., Any]
    arrays: str = "torch"  # "torch" | "cupy"
    options: Mapping[str, Any] = field(default_factory=dict)
    precision: str = "ieee"
    label: str = ""  # first column of the table; the language where empty
    kernel: str = ""  # its name in the two-column block, may hold {option}; the name where empty
    needs: tuple[str, ...] = ()  # "card", "emulator": what a machine must have to run it
    counterparts: tuple[str, ...] = ()  # CUDA implementations it is held against, first that runs
    twin_of: str = ""  # claims the very bits of this implementation
    # black boxes of twin_of and its own, shape -> what it must know; ValueError: why it can't run
    prepare: Callable[[Callable[..., Any], Callable[..., Any], Shape], Prepared] | None = None
    split: tuple[str, ...] = ()  # inputs whose rows go with the output's: rows may run apart
    facts: Mapping[str, Any] = field(default_factory=dict)  # what its pair's bounds need to know
    configs: Sequence[Mapping[str, Any]] = ()  # plain values; options that a sweep tries
    story: Callable[[Shape, bool], Sequence[tuple[str, str]]] | None = None
    # step label -> bytes that its loads and stores ask of global memory, the whole operation
    traffic: Callable[[Shape], Mapping[str, int]] | None = None

    def function(self) -> Callable[..., Any]:
        """The launcher itself; imports its module on first use."""
        if callable(self.entry):
            return self.entry
        module, _, name = self.entry.partition(":")
        return getattr(import_module(module), name)


@dataclass(frozen=True)
class Pair:
    """One operation: its inputs, its right answer, its bounds, its cost, its implementations."""

    name: str
    summary: str
    dims: tuple[str, ...]  # ("ROWS", "COLS")
    data: tuple[str, ...]  # families of inputs, the default first
    precisions: tuple[str, ...]  # of a run that names none
    implementations: tuple[Implementation, ...]
    shapes: Callable[
        [bool], Sequence[Shape]
    ]  # default shapes with / without a card; first is timed
    check_shape: Callable[[Shape], None]  # ValueError with one sentence
    inputs: Callable[[Shape, str, int], Arrays]  # shape, data, seed -> float32 host arrays
    output_shape: Callable[[Shape], Shape]
    reference: Callable[[Arrays, Shape, int], Reference]  # seed picks the rows of a partial one
    bounds: Callable[[Reference, Implementation, str, Shape], Sequence[Bound]]  # str: the data
    cost: Callable[[Shape], Cost]
    probes: Callable[[Shape, str, int], Sequence[Probe]] = lambda shape, precision, seed: ()
    words: Callable[[Any], Sequence[str]] = lambda case: ()  # its own sentences on a results.Case
    # results.Case of a run -> the cases that fail a gate of this pair, each with its sentence
    gates: Callable[[Sequence[Any]], Sequence[tuple[Any, str]]] = lambda cases: ()
    transcendental: bool = False  # uses exp or the like: a host's bits say nothing of a card's
    signed: bool = False  # elements may cancel to near zero: ULP means nothing on the screen
    more_precisions: tuple[str, ...] = ()  # run where they are named
    copy_of: str = ""  # the input whose device copy moves the same bytes as the operation
