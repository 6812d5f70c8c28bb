"""What `bits` found: frozen dataclasses, plain values throughout, so that JSON holds all of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

SCHEMA = 1


@dataclass(frozen=True)
class Ingredient:
    """One thing that decides bits: what each side takes for it, and where its PTX shows it."""

    name: str
    what: str
    choices: tuple[tuple[str, str], ...]  # (side, its words)
    seen: tuple[tuple[str, str], ...] = ()  # (side, instructions found in its PTX)


@dataclass(frozen=True)
class Asked:
    """The order of one implementation, or the `reason` why there is none to tell."""

    label: str
    name: str
    words: str = ""
    formula: str = ""
    questions: int = 0
    launches: int = 0
    seconds: float = 0.0
    fused: int = 1
    operands: tuple[str, ...] = ()  # what is done to A's and B's numbers first
    reason: str = ""
    confirmed: bool = False  # a guess that no answer contradicts, not built from nothing
    share: float = 1.0  # of the elements of its output, those that add in this order
    same_as: str = ""  # an implementation above with the same tree
    where: str = ""  # what ran it, where it is not this machine's card


@dataclass(frozen=True)
class Against:
    """Bits held against one target: share of equal ones, worst distance."""

    target: str
    share: float
    max_ulp: int


@dataclass(frozen=True)
class Variant:
    """One choice of ingredients, run. `us` is cold device time; `allowed` a share of the bound."""

    words: str
    choice: tuple[str, ...]
    against: tuple[Against, ...]
    error: float
    allowed: float
    us: float | None = None

    def share(self, target: str) -> float:
        return next(a.share for a in self.against if a.target == target)


@dataclass(frozen=True)
class Prediction:
    """Two orders added on the CPU: the share of equal bits, and the share that was seen."""

    one: str
    other: str
    predicted: float
    seen: float | None
    samples: int
    seen_where: str = ""


@dataclass(frozen=True)
class Bits:
    """The whole answer. Where `recorded` is set, steps and mixtures are those of that report."""

    pair: str
    shape: tuple[int, ...]
    data: str
    seed: int
    machine: Mapping[str, Any]
    ingredients: tuple[Ingredient, ...]
    asked: tuple[Asked, ...]
    terms: int
    noun: str
    asked_at: str = ""  # the shape, where the order was not asked at the shape itself
    parts: tuple[str, ...] = ()
    predictions: tuple[Prediction, ...] = ()
    steps: tuple[Variant, ...] = ()
    step_target: str = ""
    mixtures: tuple[Variant, ...] = ()
    headings: tuple[str, ...] = ()  # of the mixtures' choices
    targets: tuple[str, ...] = ()
    in_words: tuple[str, ...] = ()
    recorded: str = ""
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    exit_code: int = 0
    schema: int = SCHEMA
    more: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Precisions:
    """Error against time of every precision of one product."""

    shape: tuple[int, ...]
    machine: Mapping[str, Any]
    rows: tuple[Variant, ...]  # words: the name; choice: (what multiplies, its config)
    flops: int
    skipped: tuple[tuple[str, str], ...] = ()  # (precision, why it did not run)
    recorded: str = ""
    exit_code: int = 0
    schema: int = SCHEMA
