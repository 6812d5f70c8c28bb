"""How many blocks of a kernel fit on one multiprocessor, and what stops the next one.

The figures of each architecture are those of the CUDA Programming Guide's appendix "Compute
Capabilities" (table "Technical Specifications per Compute Capability"); the arithmetic is that of
NVIDIA's `cuda_occupancy.h`, which a test compiles and compares.
"""

from __future__ import annotations

from dataclasses import dataclass

WARP = 32
REGISTERS = 65536  # 32-bit registers of a multiprocessor and of a block, every architecture here
REGISTER_UNIT = 256  # registers are given to a warp in steps of this many
MAX_REGISTERS = 255  # of one thread
PARTITIONS = 4  # of a multiprocessor, each with a quarter of the registers
RESERVED_SHARED = 1024  # bytes that the driver takes of every block's shared memory
SHARED_UNIT = 128  # shared memory is given to a block in steps of this many bytes
MAX_THREADS = 1024  # of one block


@dataclass(frozen=True)
class Limits:
    """One architecture. Shared memory in bytes, of a multiprocessor and of one block at most."""

    warps: int
    blocks: int
    shared: int
    block_shared: int


ARCHS = {
    "sm_80": Limits(64, 32, 164 * 1024, 163 * 1024),
    "sm_86": Limits(48, 16, 100 * 1024, 99 * 1024),
    "sm_89": Limits(48, 24, 100 * 1024, 99 * 1024),
    "sm_90": Limits(64, 32, 228 * 1024, 227 * 1024),
    "sm_100": Limits(64, 32, 228 * 1024, 227 * 1024),
    "sm_120": Limits(48, 24, 100 * 1024, 99 * 1024),
}


@dataclass(frozen=True)
class Occupancy:
    """Blocks and warps of one kernel that a multiprocessor holds at once.

    `share` is warps / the most it holds; `limiter` names what stops the next block.
    """

    blocks: int
    warps: int
    max_warps: int
    share: float
    limiter: str


def limits(arch: str) -> Limits:
    """The limits of `sm_80`, `sm_86`, ..; ValueError with the known ones for another."""
    try:
        return ARCHS[arch]
    except KeyError:
        raise ValueError(f"arch {arch!r} is unknown; choose {', '.join(ARCHS)}") from None


def capability(arch: str) -> int:
    """80 of `sm_80`, also of one that the table does not have."""
    return int(arch.removeprefix("sm_"))


def occupancy(arch: str, *, threads: int, registers: int, shared: int) -> Occupancy:
    """What fits of a kernel of `threads` a block, `registers` a thread, `shared` bytes a block.

    `shared` is what the kernel asks for, static and dynamic, without the driver's own kilobyte.
    """
    card = limits(arch)
    warps = -(-threads // WARP)
    counts = {
        "warps": card.warps // warps if threads <= MAX_THREADS else 0,
        "blocks": card.blocks,
        "registers": _register_blocks(warps, registers),
        "shared memory": _shared_blocks(card, shared),
    }
    blocks = min(counts.values())
    # The first in this order is named where several stop it: what a kernel can change comes first.
    limiter = next(
        name for name in ("registers", "shared memory", "warps", "blocks") if counts[name] == blocks
    )
    held = blocks * warps
    return Occupancy(blocks, held, card.warps, held / card.warps, limiter)


def fits(arch: str, shared: int, owner: str = "this card") -> str:
    """Why a block that asks for `shared` bytes can't run; "" where it can."""
    most = limits(arch).block_shared
    return "" if shared <= most else f"needs {shared:,} bytes, {owner} has {most:,}"


def _register_blocks(warps: int, registers: int) -> int:
    unit = _round_up(registers * WARP, REGISTER_UNIT)
    if registers > MAX_REGISTERS or unit * _round_up(warps, PARTITIONS) > REGISTERS:
        return 0
    a_partition = REGISTERS // PARTITIONS // max(unit, 1)
    return a_partition * PARTITIONS // warps


def _shared_blocks(card: Limits, shared: int) -> int:
    if shared > card.block_shared:
        return 0
    return card.shared // _round_up(shared + RESERVED_SHARED, SHARED_UNIT)


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
