"""The command `threads`: a pair's CUDA kernel or anybody's .cu file, taken apart on the CPU."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from compare.inputs import Stream
from compare.machine import Refusal
from compare.pair import Implementation, Pair, Shape
from compare.report.threads import lines
from compare.run import SEED, all_pairs, one_of, parse_shapes
from compare.threads import Data, study
from cuda_ref.emulator.build import KernelError, compiler, kernels
from cuda_ref.emulator.run import EmulatedKernel, Parameter
from cuda_ref.kernel import Launch

FAMILIES = ("random", "spike")  # the kinds of data on which a missing barrier is tried
TYPES = {"float": "f4", "double": "f8", "int": "i4", "unsigned": "u4", "long": "i8"}
FORMS = "float[64x1024] for an array, int=1024 for a number, float[64]=0 for an array of zeros"
ROOT = Path(__file__).resolve().parent.parent


@dataclasses.dataclass(frozen=True)
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


@dataclasses.dataclass(frozen=True)
class Subject:
    """What is studied: a launch of `source`, with data to launch it on."""

    source: str
    label: str
    launch: Launch
    data: tuple[Data, ...]
    unit: str = "the first block"
    forgiven: tuple[str, ...] = ()


def command(
    target: str,
    *,
    kernel: str = "",
    shape: str = "",
    grid: str = "",
    block: str = "",
    arguments: str = "",
    shared_mem: int = 0,
    seed: int = SEED,
) -> tuple[list[str], int]:
    """The screen, and 0 where the kernel as it stands has nothing against it, else 1.

    `target` is a pair or a .cu file. A file is launched as the pair's kernel with the same
    parameters is, or with `arguments`, `grid` and `block` as they are written on the command line.
    Refusal: 2 for bad arguments or no compiler, 1 for a source that does not build.
    """
    try:
        compiler()
    except KernelError as error:
        raise Refusal(2, f"threads {error}") from None
    is_file = target.endswith(".cu") or "/" in target or Path(target).is_file()
    try:
        if is_file and arguments:
            subject = of_arguments(target, kernel, grid, block, arguments, seed)
        else:
            subject = of_pair(target, is_file, kernel, shape, seed)
        launch = subject.launch
        launch = dataclasses.replace(
            launch,
            grid=parse_shapes(grid)[0] if grid else launch.grid,
            block=parse_shapes(block)[0] if block else launch.block,
        )
        result = study(
            subject.source,
            launch.name,
            launch.grid,
            launch.block,
            subject.data,
            shared_mem=shared_mem or launch.shared_mem,
            label=subject.label,
            unit=subject.unit,
        )
    except KernelError as error:
        raise Refusal(1, f"{error}\n{error.log[:2000]}".strip()) from None
    own = f"Take your own apart:  cp {subject.label} mine.cu;  python -m compare threads mine.cu"
    screen = lines(result, forgiven=subject.forgiven, hint="" if is_file else own)
    return screen, 0 if result.clean else 1


def read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise Refusal(2, f"{path} can't be read: {reason}") from None


def kernel_in(source: str, path: str, wanted: str) -> str:
    """The kernel to study: the one named, or the only one."""
    names = kernels(source)
    if wanted:
        return wanted
    if len(names) != 1:
        listed = f"several kernels: {', '.join(names)}" if names else "no __global__ function"
        raise Refusal(2, f"{path} has {listed}; name one with --kernel NAME")
    return names[0]


def studied(pair: Pair) -> list[tuple[Implementation, Any]]:
    """The pair's CUDA implementations that the emulator runs, each with its module's `launch`."""
    found = []
    for implementation in pair.implementations:
        entry = implementation.entry
        if (
            implementation.language == "cuda"
            and not implementation.needs
            and isinstance(entry, str)
        ):
            module = import_module(entry.partition(":")[0])
            if hasattr(module, "launch"):
                found.append((implementation, module.launch))
    return found


def of_pair(target: str, is_file: bool, kernel: str, shape: str, seed: int) -> Subject:
    """A pair's kernel, or a file's kernel in its place."""
    pairs = all_pairs()
    source = read(target) if is_file else ""
    name = kernel_in(source, target, kernel) if is_file else ""
    parameters = EmulatedKernel(source, name, label=Path(target).name).parameters if is_file else []
    chosen = list(pairs.values()) if is_file else [pairs[one_of("pair", target, pairs)]]
    for pair in chosen:
        telling = TELLINGS.get(pair.name, Telling(tuple(pair.shapes(False)[-1]), "the first block"))
        size = shape_for(pair, shape, telling.shape, strict=not is_file)
        for implementation, launch_of in studied(pair) if size else ():
            data = tuple(
                of_family(pair, implementation, launch_of, size, family, seed)
                for family in FAMILIES
                if family in pair.data
            )
            args = data[0].arguments()
            launch = launch_of(*arrays_of(args))
            unit = telling.unit.format(*(launch.block[::-1] if size[2:] else ()), *size[-2:])
            if is_file and fits(parameters, args):
                launch = dataclasses.replace(launch, name=name)
                return Subject(source, target, launch, data, unit)
            if not is_file and kernel in ("", implementation.name, launch.name):
                text = launch.file.read_text(encoding="utf-8")
                label = str(launch.file.relative_to(ROOT))
                return Subject(text, label, launch, data, unit, telling.forgiven)
    if not is_file:
        raise Refusal(2, f"{target} has no kernel {kernel!r} that the emulator runs")
    listed = ", ".join(map(str, parameters))
    raise Refusal(
        2,
        f"{name} takes {listed}, as no pair's kernel does; say its sizes, as by "
        f"--grid 64 --block 256 --args '{example(parameters)}'",
    )


def example(parameters: Sequence[Parameter]) -> str:
    """`--args` for such parameters, at sizes of no kernel in particular: `float[64x1024] int=1024`
    for an array and a number."""
    names = {kind: name for name, kind in TYPES.items()}
    words = []
    for parameter in parameters:
        name = names.get(np.dtype(parameter.dtype).str[1:], "float")
        words.append(f"{name}[64x1024]" if parameter.pointer else f"{name}=1024")
    return " ".join(words)


def shape_for(pair: Pair, text: str, usual: Shape, *, strict: bool) -> Shape:
    """The shape asked for, the pair's usual one, or () where it is no shape of this pair."""
    if not text:
        return usual
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


def arrays_of(args: Sequence[Any]) -> list[np.ndarray]:
    return [argument for argument in args if isinstance(argument, np.ndarray)]


def of_family(
    pair: Pair, implementation: Implementation, launch_of: Any, shape: Shape, family: str, seed: int
) -> Data:
    """One family of a pair's inputs; a row is wrong where an element is beyond a gating bound."""
    inputs = pair.inputs(shape, family, seed)
    reference = pair.reference(inputs, shape, seed)
    bounds = [b for b in pair.bounds(reference, implementation, family, shape) if b.gates]

    def arguments() -> tuple[Any, ...]:
        out = np.full(pair.output_shape(shape), np.nan, np.float32)
        return launch_of(*(array.copy() for array in inputs.values()), out).args

    def wrong(args: tuple[Any, ...]) -> int:
        got = reference.select(arrays_of(args)[-1]).astype(np.float64)
        with np.errstate(all="ignore"):
            off = np.abs(got - reference.value)
            bad = np.zeros(got.shape, bool)
            for bound in bounds:
                bad |= ~(off <= bound.allowed) & ~(np.isnan(got) & np.isnan(reference.value))
        return int(bad.any(axis=1).sum())

    return Data(family, arguments, int(pair.output_shape(shape)[0]), wrong)


def of_arguments(
    target: str, kernel: str, grid: str, block: str, arguments: str, seed: int
) -> Subject:
    """A file launched with what the command line names. A row is wrong that a barrier changes."""
    source = read(target)
    name = kernel_in(source, target, kernel)
    if not grid or not block:
        raise Refusal(
            2, f"--args needs --grid and --block as well, as --grid 64 --block 256 for {name}"
        )
    made = parse_arguments(arguments, seed)
    launch = Launch(Path(target), name, parse_shapes(grid)[0], parse_shapes(block)[0], made)
    whole: list[list[np.ndarray]] = []

    def copies() -> tuple[Any, ...]:
        return tuple(a.copy() if isinstance(a, np.ndarray) else a for a in made)

    def changed(args: tuple[Any, ...]) -> int:
        if not whole:  # the first run is the kernel as it stands
            whole.append([array.copy() for array in arrays_of(args)])
        return sum(
            int((rows(mine) != rows(theirs)).any(axis=1).sum())
            for mine, theirs in zip(arrays_of(args), whole[0], strict=True)
        )

    count = sum(len(rows(array)) for array in arrays_of(made))
    return Subject(source, target, launch, (Data("random", copies, count, changed),))


def rows(array: np.ndarray) -> np.ndarray:
    """The bytes of every row; every element of a vector is a row."""
    flat = array.reshape(array.shape[0], -1) if array.ndim else array.reshape(1, 1)
    return np.ascontiguousarray(flat).view(np.uint8)


def parse_arguments(text: str, seed: int) -> tuple[Any, ...]:
    """`float[64x1024] float[64]=0 int=1024` -> a random array, an array of zeros, a number."""
    made: list[Any] = []
    for index, word in enumerate(re.findall(r"[^\s,]+", text)):
        match = re.fullmatch(r"(\w+)(?:\[(\d+(?:x\d+)*)\])?(?:=([-+.\w]+))?", word)
        if not match or match[1] not in TYPES or not (match[2] or match[3]):
            known = ", ".join(TYPES)
            raise Refusal(2, f"--args {word!r} does not parse; write {FORMS}; types: {known}")
        kind = np.dtype(TYPES[match[1]])
        shape = tuple(map(int, match[2].split("x"))) if match[2] else ()
        if match[3]:
            try:
                value = np.full(shape, kind.type(match[3]), kind)
            except ValueError:
                raise Refusal(2, f"--args {word!r}: {match[3]} is no {match[1]}") from None
        else:
            value = random_array(shape, kind, index, seed)
        made.append(value if match[2] else value[()])
    return tuple(made)


def random_array(shape: Shape, kind: np.dtype, index: int, seed: int) -> np.ndarray:
    """Normal floats, or integers from 0 to 99."""
    stream = Stream("arguments", shape, "random", seed)
    if kind.kind == "f":
        return stream.normal(str(index), shape).astype(kind)
    return stream.integers(str(index), 0, 99, (math.prod(shape),)).reshape(shape).astype(kind)
