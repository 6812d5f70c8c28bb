"""A failed kernel in one sentence, and its compiler's own lines, trimmed, to stand under it."""

from __future__ import annotations

import re

from compare.device import Broken
from compare.errors import plain

LINES, WIDTH = 5, 72  # of a compiler's message on the screen


def told(error: BaseException) -> tuple[str, tuple[str, ...]]:
    """The sentence for what a launcher raised, and the compiler's lines; () where none spoke.

    A `Broken` that nothing caused keeps its own sentence, which a check wrote.
    """
    cause = error.__cause__ or error
    if isinstance(cause, Broken):
        return str(error), ()
    kind, text = type(cause).__name__, str(cause)
    if kind == "CompilationError":  # Triton's: the source up to the place, a caret, the reason
        return compilation(text)
    if isinstance(cause, MemoryError) or "can't allocate memory" in text:
        return "out of memory on this machine: choose a smaller --shape", ()
    if kind == "InterpreterError" and cause.__cause__ is not None:
        return plain(cause.__cause__), ()
    if kind == "KernelError":  # of cuda_ref: a sentence, and NVRTC's or the C++ compiler's log
        return plain(text), trimmed(getattr(cause, "log", ""))
    return plain(cause), ()


def compilation(text: str) -> tuple[str, tuple[str, ...]]:
    """Triton's message: `at LINE:COLUMN:`, the kernel's source down to a caret, what is wrong."""
    place, _, rest = text.partition("\n")
    lines = rest.splitlines()
    carets = [index for index, line in enumerate(lines) if line.strip() == "^"]
    reasons = lines[carets[-1] + 1 :] if carets else lines
    reason = next((line.strip() for line in reasons if line.strip()), "no message")
    line = place.removeprefix("at ").partition(":")[0]
    where = f", line {line} of the kernel" if line.isdigit() else ""
    source = lines[max(0, carets[-1] - 1) : carets[-1] + 1] if carets else []
    return f"Triton can't compile it{where}: {reason}"[:240], tuple(s[:WIDTH] for s in source)


def trimmed(log: str) -> tuple[str, ...]:
    """The first lines of a log, from its first error on; what is left out is counted.

    A temporary file's name goes first: CuPy gives each source one of 72 characters.
    """
    lines = [re.sub(r"^/\S*/", "", line.rstrip()) for line in log.splitlines() if line.strip()]
    lines = lines[next((n for n, line in enumerate(lines) if "error" in line), 0) :]
    lines = [re.sub(r"^[0-9a-f]{32,}\.cubin\.cu\(", "(", line)[:WIDTH] for line in lines]
    if len(lines) <= LINES:
        return tuple(lines)
    return (*lines[: LINES - 1], f".. {len(lines) - LINES + 1} more lines")
