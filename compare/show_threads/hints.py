"""What to type for a .cu file whose kernel has the parameters of no pair's kernel."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from compare.report.words import WIDTH, wrap
from cuda_ref.emulator.build import without_comments
from cuda_ref.emulator.places import parameter_names
from cuda_ref.emulator.run import Parameter

TYPES = {"float": "f4", "double": "f8", "int": "i4", "unsigned": "u4", "long": "i8"}
ROWS, COLUMNS = 64, 1024  # of an example
OF_A_MATRIX = r"(?i)row|col|stride|width|height|pitch|^ld"  # the names of its sides and steps
ALONG_X = (
    r"blockIdx\s*\.\s*x\s*\*\s*blockDim\s*\.\s*x\s*\+\s*threadIdx\s*\.\s*x"
    r"|threadIdx\s*\.\s*x\s*\+\s*blockIdx\s*\.\s*x\s*\*\s*blockDim\s*\.\s*x"
    r"|threadIdx\s*\.\s*x\s*\+\s*blockDim\s*\.\s*x\s*\*\s*blockIdx\s*\.\s*x"
    r"|blockDim\s*\.\s*x\s*\*\s*blockIdx\s*\.\s*x\s*\+\s*threadIdx\s*\.\s*x"
)


def no_pairs_parameters(path: str, source: str, name: str, parameters: Sequence[Parameter]) -> str:
    """Why the file can't be launched without more, and the commands that would: lines of at most
    100 columns, each command ready to be pasted."""
    taken = ", ".join(map(c_words, parameters))
    why = f"{path}: {name}({taken}): its parameters are those of no pair's kernel"
    beside = Path(path).with_suffix(".py")
    out: list[str] = []
    if defines_pair(beside):
        out += wrap(f"{why}; {beside.name} beside it says how it is launched:", 2)
        out += [f"  python -m compare threads {beside}", "or say its launch and its sizes, as by"]
    else:
        out += wrap(f"{why}; say its launch and its sizes, as by", 2)
    names = parameter_names(without_comments(source), name, len(parameters))
    flat = is_flat(source, parameters, names)
    out.append(f"  python -m compare threads {path} --grid BLOCKS --block THREADS \\")
    given = f"--args '{example(parameters, names, flat=flat)}'"
    out += textwrap.wrap(given, WIDTH, initial_indent=" " * 4, subsequent_indent=" " * 6)
    return "\n".join(out)


def defines_pair(path: Path) -> bool:
    """Whether there is such a file and it speaks of a PAIR, as `compare.userfile` wants it."""
    try:
        return bool(re.search(r"^PAIR\b", path.read_text(encoding="utf-8"), re.M))
    except (OSError, UnicodeDecodeError):
        return False


def c_words(parameter: Parameter) -> str:
    """The parameter's type in C: `const float*`, `int`."""
    names = {kind: name for name, kind in TYPES.items()}
    kind = "struct" if parameter.dtype[0] == "V" else np.dtype(parameter.dtype).str[1:]
    name = names.get(kind, kind if kind == "struct" else str(np.dtype(parameter.dtype)))
    return f"{'const ' * parameter.const}{name}{'*' * parameter.pointer}"


def is_flat(source: str, parameters: Sequence[Parameter], names: Sequence[str]) -> bool:
    """Whether the kernel looks like one over vectors: its threads are numbered along the whole
    grid, and its one number is no side of a matrix."""
    numbers = [
        name
        for name, parameter in zip(names, parameters, strict=True)
        if not parameter.pointer and np.dtype(parameter.dtype).kind in "iu"
    ]
    in_line = re.search(ALONG_X, without_comments(source)) is not None
    return in_line and len(numbers) == 1 and not re.search(OF_A_MATRIX, numbers[0])


def example(
    parameters: Sequence[Parameter], names: Sequence[str] = (), *, flat: bool = False
) -> str:
    """`--args` for such parameters, at sizes of no kernel in particular: `float[64x1024] int=1024`
    for a matrix and its columns, `float[65536] int=65536` for vectors and their length."""
    kinds = {kind: name for name, kind in TYPES.items()}
    side = f"[{ROWS * COLUMNS}]" if flat else f"[{ROWS}x{COLUMNS}]"
    words = []
    for index, parameter in enumerate(parameters):
        kind = kinds.get(np.dtype(parameter.dtype).str[1:], "float")
        if parameter.pointer:
            words.append(kind + side)
        elif kind in ("float", "double"):
            words.append(f"{kind}=1")
        else:
            is_rows = re.search(r"(?i)row|height|^m$", names[index] if names else "")
            count = ROWS * COLUMNS if flat else ROWS if is_rows else COLUMNS
            words.append(f"{kind}={count}")
    return " ".join(words)
