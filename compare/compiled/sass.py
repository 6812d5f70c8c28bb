"""Machine code, read back: what a kernel's instructions are, counted by class.

Counts are static: each instruction once, however often it runs. `cuobjdump` of Triton's wheel
disassembles the cubin of either side, so that both are spelled by the same tool.
"""

from __future__ import annotations

import functools
import hashlib
import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

CLASSES = {
    "barriers": r"BAR\.|BAR$",
    "shuffles": r"SHFL\b|REDUX\b|CREDUX\b",
    "global loads": r"LDG\b|LD\b",
    "async copies": r"LDGSTS\b|UTMALDG\b|UBLKCP\b",
    "global stores": r"STG\b|ST\b|UTMASTG\b",
    "shared loads": r"LDS\b|LDSM\b",
    "shared stores": r"STS\b|STSM\b",
    "local loads": r"LDL\b",
    "local stores": r"STL\b",
    "atomics": r"ATOM[GS]?\b|RED\b",
    "fma": r"FFMA2?\b|DFMA\b",
    "mufu": r"MUFU\b",
    "tensor core": r"[HIDQOB]G?MMA\b|UTC[A-Z]*MMA\b",
    "branches": r"BRA\b|BRX\b|JMP\b|JMX\b|CALL\b",
}
WIDE = ("global loads", "async copies", "global stores", "shared loads", "shared stores")
MATRIX = {  # what an instruction that multiplies matrices says of its inputs, by precision
    "tf32": "tf32",
    "tf32x3": "tf32",
    "bf16x3": "bf16",
    "bf16x6": "bf16",
}

_INSTRUCTION = re.compile(
    r"/\*(?P<address>[0-9a-f]{4,})\*/\s+\{?\s*(?:@!?U?P\w+\s+)?(?P<op>[A-Z][A-Z0-9_.]*)"
    r"(?P<rest>[^;]*);"
)
_WORD = re.compile(r"/\* (0x[0-9a-f]{16}) \*/")
_USAGE = re.compile(r"REG:(\d+) STACK:(\d+) SHARED:(\d+)")
_MULTIPLY = re.compile(
    r"^\s*(?:/\*[0-9a-f]{4,}\*/\s+)?(?:@!?%?\w+\s+)?"
    r"((?:wg)?mma\.\S*|tcgen05\.mma\S*|wgmma\.\S*|(?:[A-Z]*[HIQOD]G?MMA|UTC[A-Z]*MMA)\.?\S*)",
    re.MULTILINE,
)


class Unreadable(Exception):
    """The disassembler refused the machine code; its own words follow."""


@dataclass(frozen=True)
class Listing:
    """One kernel's machine code, read back.

    `stack` is local memory in bytes a thread, where spills live. `shared` is static shared memory
    in bytes a block, as the tool gives it. `widths` counts memory instructions by bits a thread.
    """

    registers: int
    stack: int
    shared: int
    instructions: int
    counts: Mapping[str, int]
    sha: str
    widths: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    mufu: Mapping[str, int] = field(default_factory=dict)
    text: str = ""


@functools.lru_cache(maxsize=64)  # a kernel of two shapes is often one cubin
def listing(cubin: bytes, kernel: str) -> Listing:
    """Disassembles one kernel of a cubin, by Triton's wheel. Unreadable with the tool's message."""
    return parse(_cuobjdump(cubin, kernel))


def parse(text: str) -> Listing:
    """Counts what `cuobjdump -sass -res-usage` printed of one kernel."""
    usage = _USAGE.search(text)
    if usage is None:
        raise Unreadable("cuobjdump printed no resource usage")
    found = [
        (match["op"], match["rest"])
        for match in _INSTRUCTION.finditer(text)
        if not _padding(match["address"], match["op"], match["rest"])
    ]
    if not found:
        raise Unreadable("cuobjdump printed no instruction")
    ops = Counter(op for op, _ in found)  # a few dozen words, each many times
    registers, stack, shared = map(int, usage.groups())
    return Listing(
        registers=registers,
        stack=stack,
        shared=shared,
        instructions=ops.total(),
        counts={name: sum(n for op, n in ops.items() if _is(name, op)) for name in CLASSES},
        widths={name: widths for name in WIDE if (widths := _widths(name, ops))},
        mufu=_sums((op.split(".")[1], n) for op, n in ops.items() if op.startswith("MUFU.")),
        sha=hashlib.sha256(" ".join(_WORD.findall(text)).encode()).hexdigest(),
        text=text,
    )


def claims(code: str, precision: str) -> str:
    """Whether PTX or SASS keeps the promise of a precision: "", or the sentence that says why not.

    `ieee` promises that no tensor core touches the operands (float64 ones apart); `tf32`, `tf32x3`,
    `bf16x3` and `bf16x6` that one multiplies operands of that type. Another name promises nothing.
    """
    multiplies = [op for op in _MULTIPLY.findall(code) if not re.match(r"DMMA|mma\S*\.f64", op)]
    if precision == "ieee":
        if multiplies:
            return f"claims ieee, and its machine code has {multiplies[0]}"
        return ""
    wanted = MATRIX.get(precision)
    if wanted is None or any(wanted in op.lower() for op in multiplies):
        return ""
    return f"claims {precision}, and no instruction of its code multiplies {wanted} operands"


def _cuobjdump(cubin: bytes, kernel: str) -> str:
    from triton import knobs

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        done = subprocess.run(
            [knobs.nvidia.cuobjdump.path, "-sass", "-res-usage", "-fun", kernel, str(path)],
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        words = (done.stderr or done.stdout).strip().splitlines()
        raise Unreadable(f"cuobjdump refused {kernel}: {words[-1] if words else 'no message'}")
    return done.stdout


def _is(name: str, op: str) -> bool:
    return re.match(CLASSES[name], op) is not None


def _widths(name: str, ops: Counter[str]) -> dict[str, int]:
    return _sums((_bits(op), count) for op, count in ops.items() if _is(name, op))


def _sums(counted: Iterable[tuple[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for name, count in counted:
        total[name] += count
    return dict(total)


def _bits(op: str) -> str:
    """Bits that one thread moves by this instruction."""
    parts = op.split(".")
    if parts[0] == "LDSM" or parts[0] == "STSM":
        return "matrix"
    for part in parts[1:]:
        if part in ("64", "128", "256"):
            return part
        if match := re.fullmatch(r"[US](8|16)", part):
            return match[1]
    return "32"


def _padding(address: str, op: str, rest: str) -> bool:
    """What follows the last EXIT: a branch to itself, and NOPs."""
    if not op.startswith("BRA"):
        return op == "NOP"
    return re.search(rf"\b0x0*{address.lstrip('0') or '0'}\b", rest) is not None
