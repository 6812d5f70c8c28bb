"""What a run found: frozen dataclasses, to and from JSON. Reports are pure functions of these."""

from __future__ import annotations

import json
import math
import os
import tempfile
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any

SCHEMA = 1


@dataclass(frozen=True)
class Element:
    """One element of an output: its index, what was got and wanted, the float32 bits of both."""

    index: tuple[int, ...]
    got: float
    want: float
    allowed: float
    got_bits: str
    want_bits: str
    counterpart: float | None = None
    counterpart_bits: str = ""


@dataclass(frozen=True)
class Check:
    """One question that an output was asked. `share` is the largest |got - ref| / allowed."""

    name: str
    passed: bool
    share: float | None = None
    reason: str = ""
    formula: str = ""
    source: str = ""
    gates: bool = True


@dataclass(frozen=True)
class Accuracy:
    """An output against the float64 reference.

    `error` is max |got - ref| / max |ref|; `share` the largest |got - ref| / allowed, over the
    bounds that gate; `ulp` counts elements by their distance from the reference rounded to float32
    (keys "0", "1", "2-3", "4-7", ..), with a floor of 2^-126; `specials` counts NaN and infinities
    that agree.
    """

    ok: bool
    error: float
    max_abs: float
    frobenius: float
    share: float
    checks: tuple[Check, ...] = ()
    reasons: tuple[str, ...] = ()
    worst: Element | None = None
    faults: tuple[Element, ...] = ()
    fault_count: int = 0
    specials: Mapping[str, int] = field(default_factory=dict)
    ulp: Mapping[str, int] = field(default_factory=dict)
    max_ulp: int = 0
    covered: int = 0


@dataclass(frozen=True)
class Agreement:
    """An output against its counterpart's: `identical`, `within tolerance` or `differ`."""

    counterpart: str
    verdict: str
    equal: int
    total: int
    max_ulp: int
    share: float  # largest |T - C| / (allowed_T + allowed_C)
    first: Element | None = None  # the first element that differs in a bit


@dataclass(frozen=True)
class Sample:
    """Device time of one implementation in one state, microseconds.

    `us` is the mean of the middle 80 %; `kernels` how many device records one launch makes, `span`
    from the first one's start to the last one's end.
    """

    us: float
    q1: float
    median: float
    q3: float
    count: int
    kernels: int = 1
    span: float | None = None


@dataclass(frozen=True)
class Rung:
    """One way of timing an implementation, microseconds, and why it reads as it does."""

    name: str
    us: float | None
    why: str


@dataclass(frozen=True)
class Timing:
    """One implementation's times; where a state has no number, `no_cold` / `no_warm` says why."""

    cold: Sample | None = None
    warm: Sample | None = None
    no_cold: str = ""
    no_warm: str = ""
    kernel_names: tuple[str, ...] = ()
    ladder: tuple[Rung, ...] = ()  # other ways of timing it, where they were asked for


@dataclass(frozen=True)
class Ratio:
    """Time of `name` / time of `against`, from within-round ratios, with a 95 % interval.

    `verdict` is FASTER, SLOWER, SAME or UNDECIDED, said of `name`; `reason` where it is UNDECIDED.
    """

    name: str
    against: str
    state: str  # "cold" | "warm"
    value: float
    low: float
    high: float
    verdict: str
    reason: str = ""


@dataclass(frozen=True)
class Clock:
    """How a group of implementations was timed.

    `stopped` says for each state why sampling ended; `clock_mhz` is the lowest and highest SM clock
    read between blocks.
    """

    method: str  # "CUPTI" | "CUDA graph"
    floor_cold: float | None = None  # |ratio - 1| of the A/A control, a share
    floor_warm: float | None = None
    tick_ns: float | None = None
    rounds: int = 0  # of the state that took more
    stopped: str = ""
    dropped_blocks: int = 0
    seconds: float = 0.0
    start_seconds: float = 0.0  # opening the recorder: the profiler's start and its proof
    notes: tuple[str, ...] = ()
    rounds_cold: int = 0
    rounds_warm: int = 0
    clock_mhz: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Recording:
    """One group of implementations, timed together."""

    clock: Clock
    timings: Mapping[str, Timing]
    ratios: tuple[Ratio, ...] = ()


@dataclass(frozen=True)
class Row:
    """What became of one implementation in one case. `skipped` says why it did not run."""

    name: str
    language: str
    label: str
    precision: str
    kernel: str = ""
    skipped: str = ""
    accuracy: Accuracy | None = None
    agreements: tuple[Agreement, ...] = ()
    timing: Timing | None = None
    output: str = ""  # sha256 of the output's bytes
    runs: int = 0  # how many checked runs gave the same bits
    story: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()  # what is not as usual
    learned: tuple[str, ...] = ()  # what it found out before it ran
    code: Mapping[str, Any] = field(default_factory=dict)  # registers, spills, shared bytes, hash
    options: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0


@dataclass(frozen=True)
class Claim:
    """A twin's claim to have the very bits of another implementation."""

    name: str
    twin_of: str
    holds: bool
    gated: bool  # it was recorded as holding here, so that a failure is one


@dataclass(frozen=True)
class Case:
    """One pair at one shape, precision, data and seed: each implementation's row, the verdict."""

    pair: str
    shape: tuple[int, ...]
    precision: str
    data: str
    seed: int
    inputs: Mapping[str, str]  # sha256 of every input's bytes
    rows: tuple[Row, ...]
    triton: str = ""  # the two that stand side by side
    cuda: str = ""
    verdict: str = ""  # "MATCH BIT FOR BIT" | "MATCH" | "NO MATCH" | "" where nothing was compared
    failed_gates: tuple[str, ...] = ()
    signed: bool = False
    flops: int = 0
    bytes: int = 0
    clock: Clock | None = None
    ratios: tuple[Ratio, ...] = ()
    unstated: str = ""  # why there is no verdict
    bits_count: bool = True  # False where the host's exponential would decide the bits
    words: tuple[str, ...] = ()  # the pair's own sentences under the verdict
    repeats: int = 0  # how many runs of each implementation gave the same bits; 0 where not all did
    regime: str = ""  # what bounds the time: "launch", "L2", "DRAM" or "arithmetic"
    claims: tuple[Claim, ...] = ()

    def row(self, name: str) -> Row | None:
        return next((row for row in self.rows if row.name == name), None)


@dataclass(frozen=True)
class Report:
    """A whole run."""

    version: str
    machine: Mapping[str, Any]
    command: str
    cases: tuple[Case, ...]
    seconds: float
    exit_code: int
    date: str = ""
    notes: tuple[str, ...] = ()
    next: tuple[str, ...] = ()  # commands that this run's own subjects suggest
    schema: int = SCHEMA


def to_json(value: Any) -> Any:
    """Plain JSON values; NaN and infinities become strings, since JSON has none."""
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_json(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Mapping):
        return {str(k): to_json(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    return value


def from_json(kind: Any, value: Any) -> Any:
    """The inverse of `to_json` for a value of type `kind`. Unknown fields raise ValueError."""
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        if value is None:
            return None
        return from_json(next(a for a in args if a is not type(None)), value)
    if is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        if unknown := set(value) - set(hints):
            raise ValueError(f"{kind.__name__} has no field {sorted(unknown)[0]!r}")  # type: ignore[union-attr]
        return kind(**{k: from_json(hints[k], v) for k, v in value.items()})  # type: ignore[operator]
    if origin is tuple:
        inner = args if args[-1] is not Ellipsis else (args[0],) * len(value)
        return tuple(from_json(a, v) for a, v in zip(inner, value, strict=True))
    if origin is not None and issubclass(origin, Mapping):
        return {k: from_json(args[1], v) for k, v in value.items()}
    return float(value) if kind is float else value


def json_text(report: Report) -> str:
    """The report as `--json` writes it."""
    return json.dumps(to_json(report), indent=1, allow_nan=False) + "\n"


def write_json(path: str | os.PathLike[str], report: Report) -> None:
    """Writes the report whole or not at all. OSError where the folder can't be written."""
    write_text(path, json_text(report))


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Writes a file whole or not at all: a temporary one beside it, renamed.

    A link is followed; a pipe or a device is written as it is. OSError where that fails.
    """
    path = Path(path).resolve()
    if path.exists() and not path.is_file():
        path.write_text(text, encoding="utf-8")
        return
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".part")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def read_json(path: str | os.PathLike[str]) -> Report:
    """A report that was written by `--json`. ValueError with one sentence where it is not one."""
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not JSON ({error})") from None
    if not isinstance(data, dict) or "schema" not in data:
        raise ValueError(f"{path} is no report of this tool: it has no 'schema'")
    if data["schema"] != SCHEMA:
        raise ValueError(f"{path} has schema {data['schema']}, this version reads {SCHEMA}")
    try:
        return from_json(Report, data)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is no whole report of schema {SCHEMA}: {error}") from None
