"""What each compiler made of its kernel: registers, shared bytes, instructions, layout, occupancy.

Both sides are compiled here for any architecture, without a card and without a driver. No kernel is
described a second time: its own launcher is called, on arrays that have a shape and no data, and
what it would have launched is compiled instead. So the hints are those of the launch (a pointer or
a stride divisible by 16, a size that is 1), and a user's own launcher needs no more.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib.util
import inspect
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from compare import machine
from compare.compiled import sass
from compare.compiled.compilers import (
    Code,
    Missing,
    dry_cuda,
    dry_triton,
    of_cuda,
    of_triton,
    watch_cuda,
    watch_triton,
)
from compare.compiled.occupancy import limits
from compare.pair import Implementation, Shape
from compare.results import from_json, to_json

ARCH = "sm_80"  # what is compiled for where neither a card nor --arch says


@dataclass(frozen=True)
class Built:
    """One implementation's kernels as it launches them; `skipped` says why there is none."""

    name: str
    language: str
    precision: str
    codes: tuple[Code, ...] = ()
    skipped: str = ""


@dataclass(frozen=True)
class Compilation:
    """One pair at one shape, compiled for one architecture.

    `bytes` is the least that the operation must move. `moved` is what each kernel's loads and
    stores ask for, `executed` what the emulator counted of a CUDA kernel, `holders` which thread
    holds the element that `element` names: by implementation, without what nobody could tell.
    """

    pair: str
    shape: tuple[int, ...]
    arch: str
    builds: tuple[Built, ...]
    bytes: int
    moved: Mapping[str, int] = field(default_factory=dict)
    executed: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    element: str = ""
    holders: Mapping[str, str] = field(default_factory=dict)

    def built(self, name: str) -> Built | None:
        return next((built for built in self.builds if built.name == name), None)


@dataclass(frozen=True)
class Order:
    """What to compile, in plain values, so that another process can do it."""

    name: str
    language: str
    precision: str
    arrays: str
    entry: str  # "module:function", or "file.py:function" for a launcher that no module names
    shapes: tuple[tuple[int, ...], ...]  # of the inputs, then of the output
    options: Mapping[str, Any] = field(default_factory=dict)


def build(
    implementations: Sequence[Implementation],
    inputs: Mapping[str, Shape],
    output: Shape,
    arch: str = ARCH,
) -> tuple[Built, ...]:
    """Compiles what each implementation launches for float32 inputs and an output of these shapes.

    Runs nothing on a card. Where Triton interprets in this process, another one compiles.
    ValueError for an unknown `arch`; whatever else keeps a kernel from being compiled is a reason
    in `skipped`.
    """
    limits(arch)
    shapes = tuple(tuple(shape) for shape in (*inputs.values(), output))
    orders = [
        Order(i.name, i.language, i.precision, i.arrays, _address(i), shapes, dict(i.options))
        for i in implementations
    ]
    if any(o.language == "triton" for o in orders) and interpreting():
        return _build_apart(orders, arch)
    return tuple(build_one(order, arch) for order in orders)


def build_one(order: Order, arch: str) -> Built:
    """Compiles one implementation here, in a process where Triton does not interpret."""
    head = (order.name, order.language, order.precision)
    if order.language == "library":
        return Built(*head, skipped="a library's kernel: closed, and chosen when it runs")
    try:
        launcher = _launcher(order.entry)
        if order.arrays == "cupy":
            launches = dry_cuda(launcher, order.shapes, order.options)
            codes = tuple(of_cuda(launch, order.precision, arch) for launch in launches)
        else:
            kernels = dry_triton(launcher, order.shapes, order.options, arch)
            codes = tuple(of_triton(kernel, grid, order.precision) for kernel, grid in kernels)
    except Exception as error:  # noqa: BLE001 - a launcher or a compiler may raise anything: a reason
        name = "" if isinstance(error, Missing) else f"{type(error).__name__}: "
        return Built(*head, skipped=f"{name}{_sentence(error)}")
    reason = "" if codes else "launches no kernel at this shape"
    return Built(*head, together(codes, order.precision), reason)


def together(codes: Sequence[Code], precision: str) -> tuple[Code, ...]:
    """The codes of one implementation: one kernel that multiplies as promised keeps the promise for
    those beside it that only copy or round."""
    if precision in sass.MATRIX and not all(code.broken for code in codes):
        return tuple(replace(code, broken="") for code in codes)
    return tuple(codes)


@dataclass(frozen=True)
class Launched:
    """The kernels that one implementation launched on a card, not yet read."""

    name: str
    language: str
    precision: str
    arch: str
    seen: tuple[Any, ...]


def watch(implementation: Implementation, call: Callable[[], Any], arch: str) -> Launched:
    """Calls `call`, one launch of `implementation` on a card, and keeps the kernels it loaded."""
    i, watcher = implementation, nothing
    if i.language == "triton":
        watcher = watch_triton
    elif i.language == "cuda":
        watcher = watch_cuda
    with watcher() as seen:
        call()
    return Launched(i.name, i.language, i.precision, arch, tuple(seen))


def read(launched: Launched) -> Built:
    """Reads what was launched: about a third of a second a kernel, on the CPU, in any thread.

    A Triton kernel is read from the very cubin that was loaded; a CUDA kernel is compiled once
    more, by the same NVRTC with the same options.
    """
    head = (launched.name, launched.language, launched.precision)
    try:
        if launched.language == "triton":
            codes = [of_triton(kernel, grid, launched.precision) for kernel, grid in launched.seen]
        else:
            codes = [of_cuda(launch, launched.precision, launched.arch) for launch in launched.seen]
    except (Missing, sass.Unreadable, ValueError, OSError) as error:
        return Built(*head, skipped=_sentence(error))
    reason = "" if codes else "none of its kernels can be read"
    return Built(*head, together(codes, launched.precision), reason)


@contextlib.contextmanager
def nothing() -> Iterator[list[Any]]:
    """Watches a library, of which nothing can be seen."""
    yield []


def interpreting() -> bool:
    """Whether Triton interprets, or will, in this process: then nothing can be compiled here."""
    if "triton" not in sys.modules:
        return machine.interpreting(os.environ)
    import triton.language as tl
    from triton.runtime.interpreter import InterpretedFunction

    return isinstance(tl.max, InterpretedFunction)


def serve() -> None:
    """The other process's half of `build`: a line of orders in, a line of what was built out."""
    for line in sys.stdin:
        asked = json.loads(line)
        built = [build_one(from_json(Order, order), asked["arch"]) for order in asked["orders"]]
        print(json.dumps(to_json(built)), flush=True)


@functools.lru_cache(maxsize=1)
def _other_process() -> subprocess.Popen[str]:
    """One without the interpreter, kept for the next build: importing Triton takes seconds."""
    root = str(Path(__file__).resolve().parents[2])
    paths = [root, *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    env = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    started = subprocess.Popen(
        [sys.executable, "-c", "from compare.compiled import serve; serve()"],
        env={**env, "PYTHONPATH": os.pathsep.join(path for path in paths if path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    atexit.register(started.communicate)
    return started


def _build_apart(orders: Sequence[Order], arch: str) -> tuple[Built, ...]:
    """The same in another process: Triton decorates kernels once, to be compiled or interpreted."""
    other = _other_process()
    assert other.stdin and other.stdout  # both are pipes
    try:
        print(json.dumps({"orders": to_json(orders), "arch": arch}), file=other.stdin, flush=True)
        answer = other.stdout.readline()
    except OSError:
        answer = ""
    if not answer:
        _other_process.cache_clear()
        reason = "the process that compiles has died"
        return tuple(Built(o.name, o.language, o.precision, skipped=reason) for o in orders)
    return tuple(from_json(Built, built) for built in json.loads(answer))


def _address(implementation: Implementation) -> str:
    """Where another process finds the launcher: its module, or the file of a user's own."""
    entry = implementation.entry
    if isinstance(entry, str):
        return entry
    return f"{inspect.getsourcefile(inspect.unwrap(entry))}:{entry.__qualname__}"


def _launcher(address: str) -> Any:
    module, _, name = address.rpartition(":")
    if not module.endswith(".py"):
        return getattr(importlib.import_module(module), name)
    spec = importlib.util.spec_from_file_location(Path(module).stem, module)
    if spec is None or spec.loader is None:
        raise ImportError(f"{module} can't be imported")
    loaded = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(loaded.__name__, loaded)
    spec.loader.exec_module(loaded)
    return getattr(loaded, name)


def _sentence(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else "no message")[:300]
