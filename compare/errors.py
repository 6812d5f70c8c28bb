"""What foreign errors mean: the first line a compiler, driver or library gives, in one sentence.

Each entry is a pattern of their text and our sentence, which may use the pattern's groups.
"""

from __future__ import annotations

import re

KNOWN: tuple[tuple[str, str], ...] = (
    (
        r"out of resource: shared memory, Required: (\d+), Hardware limit: (\d+)",
        "needs {0:,} bytes of shared memory, this card has {1:,}; a smaller config fits",
    ),
    (
        r"out of resource: (\w+), Required: (\d+), Hardware limit: (\d+)",
        "needs {1:,} of {0}, this card has {2:,}; a smaller config fits",
    ),
    (
        r"invalid value for --gpu-architecture|Unsupported gpu architecture",
        "this NVRTC can't compile for the card: install a CuPy and NVRTC that know it",
    ),
    (
        r"Value '(sm_\w+)' is not defined for option 'gpu-name'|computeCapability not supported",
        "Triton's ptxas does not know {0}: install a newer Triton, or set TRITON_PTXAS_PATH to a "
        "newer ptxas",
    ),
    (
        r"UNSUPPORTED_PTX_VERSION",
        "the PTX is newer than the driver understands: unset CUPY_COMPILE_WITH_PTX, or install a "
        "newer driver or an older CUDA toolkit",
    ),
    (
        r"named symbol not found|CUDA_ERROR_NOT_FOUND",
        'no kernel of that name: declare it extern "C" so that its name is kept',
    ),
    (
        r"cannot open source file \"?([\w./]+)\"?",
        "{0} is not found: include no header, or pip install nvidia-cuda-runtime for CUDA's own",
    ),
    (
        r"identifier \"?(INFINITY|FLT_MAX|NAN)\"? is undefined",
        "NVRTC knows no {0}: write __int_as_float of its bits (INFINITY 0x7f800000, "
        "NAN 0x7fffffff, FLT_MAX 0x7f7fffff)",
    ),
    (
        r"Failed to find C compiler",
        "Triton needs a C compiler to launch: install gcc or clang, or set CC",
    ),
    (
        r"Python\.h: No such file",
        "Triton needs Python's headers to launch: install python3-dev of this Python's version",
    ),
    (
        r"libcuda\.so cannot found",
        "the driver's libcuda.so is not found: run ldconfig, or add its folder (on WSL2 "
        "/usr/lib/wsl/lib) to LD_LIBRARY_PATH or TRITON_LIBCUDA_PATH",
    ),
    (
        r"out of memory|CUDA_ERROR_OUT_OF_MEMORY|OutOfMemory",
        "out of memory on the card: choose a smaller --shape or free the card",
    ),
    (
        r"illegal memory access|CUDA_ERROR_ILLEGAL_ADDRESS",
        "illegal memory access: it read or wrote outside its arrays",
    ),
    (
        r"misaligned address|CUDA_ERROR_MISALIGNED_ADDRESS",
        "misaligned address: a vector load or store of an address that it does not divide",
    ),
    (
        r"can only concatenate list \(not \"tuple\"\) to list",
        "the grid is a list: Triton wants a tuple, kernel[(n,)]",
    ),
    (
        r"pass numpy or CuPy arrays, not (\w+)",
        'its launcher got a {0}: write arrays="cupy" in its Implementation, and it gets CuPy\'s '
        "arrays on a card, numpy's without one",
    ),
    (
        r"cannot be accessed from Triton \(cpu tensor\?\)",
        "a tensor is not on the current card: put all of them on one and make it current",
    ),
)


def plain(error: BaseException | str) -> str:
    """One sentence for the user; the error's own first line where it is not known."""
    text = str(error)
    for pattern, sentence in KNOWN:
        if match := re.search(pattern, text):
            groups = [int(g) if g and g.isdigit() else g or "the card" for g in match.groups()]
            return sentence.format(*groups)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    first = (lines[0] if lines else "no message")[:240]
    return first if isinstance(error, str) else f"{type(error).__name__}: {first}"
