"""What `threads` studies: a pair's own CUDA kernel, or a .cu file's kernel in its place."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from compare.compiled.compilers import watch_cuda
from compare.machine import Refusal
from compare.pair import Bound, Implementation, Pair, Reference, Shape
from compare.run import all_pairs, one_of, parse_shapes
from compare.show_threads.hints import no_pairs_parameters
from compare.threads import Data, Tally
from cuda_ref.emulator.build import kernels
from cuda_ref.emulator.run import EmulatedKernel, Parameter
from cuda_ref.kernel import Launch, watchers

FAMILIES = ("random", "spike")  # the kinds of data on which a missing barrier is tried
ROOT = Path(__file__).resolve().parent.parent.parent
MOST = 1 << 17  # elements of a shape that nobody chose: each access is looked at, a second or two
LEAST = 32  # of its first side, while another is larger: a tile's rows

Record = Callable[[Implementation, Sequence[np.ndarray]], Launch]


@dataclass(frozen=True)
class Telling:
    """What the screen says of one pair's kernels: the shape studied, a block, a forgiven race."""

    shape: Shape
    unit: str
    forgiven: tuple[str, ...] = ()


TELLINGS = {
    "softmax": Telling(
        (64, 1024),
        "one block = one row of {1:,} columns",
        (
            "A wrong row maximum is forgiven on random data: softmax gives the same result for any",
            "number near it. One large value a row (spike) makes the exponentials overflow.",
        ),
    ),
    "matmul": Telling((64, 64, 64), "one block = one tile of {0}x{1}, K = {3:,}"),
}


@dataclass(frozen=True)
class Subject:
    """What is studied: a launch of `source`, with data to launch it on."""

    source: str
    label: str
    launch: Launch
    data: tuple[Data, ...]
    unit: str = "the first block"
    forgiven: tuple[str, ...] = ()
    yours: bool = True  # not one of the shipped kernels


def read(path: str | Path) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise Refusal(2, f"{path} can't be read: {reason}") from None


def of_pair(name: str, kernel: str, shape: str, seed: int) -> Subject:
    """The pair's first CUDA kernel that the emulator runs, or the one named."""
    pairs = all_pairs()
    pair = pairs[one_of("pair", name, pairs)]
    size = shape_for(pair, shape)
    for implementation in studied(pair):
        launch = own_launch(implementation, arrays(pair, size, seed))
        if kernel in ("", implementation.name, launch.name):
            telling = told(pair)
            return Subject(
                read(launch.file),
                str(launch.file.relative_to(ROOT)),
                launch,
                families(pair, implementation, size, seed, own_launch),
                unit(telling, launch, size),
                telling.forgiven,
                yours=False,
            )
    raise Refusal(2, f"{name} has no kernel {kernel!r} that the emulator runs")


def of_cu_file(path: str, kernel: str, shape: str, seed: int) -> Subject:
    """The file's kernel, launched as the pair's kernel with the same parameters is."""
    source = read(path)
    name = kernel_in(source, path, kernel)
    parameters = EmulatedKernel(source, name, label=path, traced=True).parameters
    for pair in all_pairs().values():
        size = shape_for(pair, shape, strict=False)
        for implementation in studied(pair) if size else ():
            launch = own_launch(implementation, arrays(pair, size, seed))
            if fits(parameters, launch.args):
                data = families(pair, implementation, size, seed, own_launch)
                words = unit(told(pair), launch, size)
                return Subject(source, path, replace(launch, name=name, options=()), data, words)
    raise Refusal(2, no_pairs_parameters(path, source, name, parameters))


def kernel_in(source: str, path: str, wanted: str) -> str:
    """The kernel to study: the one named, or the only one."""
    names = kernels(source)
    if wanted:
        return wanted
    if len(names) != 1:
        listed = f"several kernels: {', '.join(names)}" if names else "no __global__ function"
        raise Refusal(2, f"{path} has {listed}; name one with --kernel NAME")
    return names[0]


def studied(pair: Pair) -> list[Implementation]:
    """The pair's CUDA implementations that the emulator runs."""
    return [
        implementation
        for implementation in pair.implementations
        if implementation.language == "cuda"
        and implementation.arrays == "cupy"
        and "card" not in implementation.needs
    ]


def recorded(implementation: Implementation, given: Sequence[np.ndarray]) -> list[Launch]:
    """What the implementation launches on these arrays (inputs, then output); nothing is run."""
    with watch_cuda(dry=True) as seen:
        implementation.function()(*given, **implementation.options)
    return seen


def own_launch(implementation: Implementation, given: Sequence[np.ndarray]) -> Launch:
    """The one launch of a pair's own implementation. Refusal where the shape needs none."""
    seen = recorded(implementation, given)
    if not seen:
        raise Refusal(2, f"{implementation.name} launches nothing at this shape; take a larger one")
    return seen[0]


def told(pair: Pair) -> Telling:
    """What is known of a pair's kernels; of one without a telling, a shape that is soon done: its
    usual one with a smaller first side, as its kernel may take no other columns, and only where
    that is not enough with others smaller, too."""
    if pair.name in TELLINGS:
        return TELLINGS[pair.name]
    shape = usual = tuple(pair.shapes(False)[0])
    while math.prod(shape) > MOST:
        side = 0 if shape[0] > LEAST else shape.index(max(shape))
        shape = (*shape[:side], shape[side] // 2, *shape[side + 1 :])
        try:
            pair.check_shape(shape)
        except ValueError:
            return Telling(usual, "the first block")
    return Telling(shape, "the first block")


def unit(telling: Telling, launch: Launch, shape: Shape) -> str:
    return telling.unit.format(*(launch.block[::-1] if shape[2:] else ()), *shape[-2:])


def shape_for(pair: Pair, text: str, *, strict: bool = True) -> Shape:
    """The shape asked for, the pair's usual one, or () where it is no shape of this pair."""
    if not text:
        return told(pair).shape
    shape = parse_shapes(text)[0]
    try:
        pair.check_shape(shape)
    except ValueError as error:
        if strict:
            raise Refusal(2, f"--shape {text}: {error}") from None
        return ()
    return shape


def fits(parameters: Sequence[Parameter], args: Sequence[Any]) -> bool:
    """Whether arguments have the parameters' types, in number and order."""
    return len(parameters) == len(args) and all(
        parameter.pointer == isinstance(argument, np.ndarray)
        and np.dtype(parameter.dtype) == argument.dtype
        for parameter, argument in zip(parameters, args, strict=True)
    )


def arrays(pair: Pair, shape: Shape, seed: int) -> list[np.ndarray]:
    """The pair's inputs, and an output of NaN."""
    output = np.full(pair.output_shape(shape), np.nan, np.float32)
    return [*pair.inputs(shape, names_of(pair)[0], seed).values(), output]


def names_of(pair: Pair) -> list[str]:
    """The pair's data on which its kernels are studied, its default alone where it has no other."""
    return [name for name in FAMILIES if name in pair.data] or [pair.data[0]]


def families(
    pair: Pair, implementation: Implementation, shape: Shape, seed: int, record: Record
) -> tuple[Data, ...]:
    return tuple(
        of_family(pair, implementation, shape, family, seed, record) for family in names_of(pair)
    )


def of_family(
    pair: Pair, implementation: Implementation, shape: Shape, family: str, seed: int, record: Record
) -> Data:
    """One family of a pair's inputs; a row is wrong where an element is beyond a gating bound."""
    inputs = pair.inputs(shape, family, seed)
    reference = pair.reference(inputs, shape, seed)
    bounds = [b for b in pair.bounds(reference, implementation, family, shape) if b.gates]
    wanted = tuple(pair.output_shape(shape))

    def launched(out: np.ndarray) -> tuple[tuple[Any, ...], int | None, bool]:
        """Fresh arguments as the launch takes them, which of them is the output, and whether the
        launcher writes to it after its launch."""
        given = [*(array.copy() for array in inputs.values()), out]
        with at_launch(given) as then:
            args = record(implementation, given).args
        goes_on = not np.array_equal(then[-1], out, equal_nan=True)
        for array, before in zip(given, then, strict=True):
            array[...] = before
        at = [i for i, a in enumerate(args) if isinstance(a, np.ndarray) and is_whole(a, out)]
        return args, at[0] if at else None, goes_on

    # Numbers that arithmetic changes: NaN times two is NaN.
    probe = np.random.default_rng(seed).standard_normal(wanted, np.float32)
    _, place, goes_on = launched(probe)
    why = COPY if place is None else GOES_ON if goes_on else ""

    def tally(args: tuple[Any, ...]) -> Tally:
        if place is None or why:
            return replace(tallied(np.full(wanted, np.nan), reference, bounds), wrong=None, why=why)
        return tallied(args[place].reshape(wanted), reference, bounds)

    return Data(family, lambda: launched(np.full(wanted, np.nan, np.float32))[0], tally)


COPY = "the launcher gives the kernel another array than out"
GOES_ON = "the launcher goes on with out after its launch"


@contextlib.contextmanager
def at_launch(given: Sequence[np.ndarray]) -> Iterator[list[np.ndarray]]:
    """Copies of `given` as they are at the first launch that is asked for inside."""
    seen: list[np.ndarray] = []

    def watcher(launch: Launch) -> bool:
        if not seen:
            seen.extend(array.copy() for array in given)
        return False

    watchers.append(watcher)
    try:
        yield seen
    finally:
        watchers.remove(watcher)


def is_whole(array: np.ndarray, out: np.ndarray) -> bool:
    """Whether `array` is `out` itself, perhaps in another shape."""
    same = array.__array_interface__["data"] == out.__array_interface__["data"]
    return same and array.size == out.size and array.dtype == out.dtype and array.flags.c_contiguous


def tallied(output: np.ndarray, reference: Reference, bounds: Sequence[Bound]) -> Tally:
    """How many rows of `output` hold an element beyond a bound; of a vector, how many elements."""
    got, value = reference.select(output).astype(np.float64), reference.value
    bad = np.zeros(got.shape, bool)
    with np.errstate(all="ignore"):
        off = np.abs(got - value)
        same = (got == value) | (np.isnan(got) & np.isnan(value))
        for bound in bounds:
            free = False if bound.undecided is None else bound.undecided & ~np.isfinite(got)
            bad |= ~(off <= bound.allowed) & ~same & ~np.asarray(free)
    if bad.ndim < 2:
        return Tally(int(bad.sum()), bad.size, "elements wrong")
    rows = bad.reshape(len(bad), math.prod(bad.shape[1:]))
    return Tally(int(rows.any(axis=1).sum()), len(bad))
