"""What whole warps' accesses took: sectors of global memory, passes over shared memory's banks.

Sectors are the 32-byte pieces that a warp's access touches; a bank conflict is a second pass over
the 32 banks of shared memory, 4 bytes wide each.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cuda_ref.emulator.trace import LOGGED

WARP = 32
SECTOR = 32  # bytes
BANKS = 32  # each 4 bytes wide
BARRIER = LOGGED.index("barrier")


@dataclass(frozen=True)
class Warp:
    """One access of one warp: what lanes share counts once in `bytes`."""

    lanes: int
    bytes: int
    cost: int


@dataclass(frozen=True)
class WarpAccess:
    """The accesses of whole warps at one line: what they took and what would have been enough.

    `cost` and `fewest` are sectors (global) or passes over the banks (shared), per access, on
    average; `widest` is the access that moved the most.
    """

    what: str
    line: int
    bytes: int  # a thread
    accesses: int
    cost: float
    fewest: float
    widest: Warp


def warp_accesses(log: np.ndarray) -> tuple[WarpAccess, ...]:
    """Every line's global and shared accesses, put together warp by warp.

    The lanes of one access are those at the same instruction for the same time, as when a warp runs
    in step.
    """
    log = log[log["kind"] != BARRIER]
    if not log.size:
        return ()
    turn = occurrence(log)
    warp = log["thread"] // WARP
    order = np.lexsort((log["thread"], turn, warp, log["pc"]))
    log, turn, warp = log[order], turn[order], warp[order]
    keys = np.stack([log["pc"], warp, turn], axis=1)
    starts = np.flatnonzero(np.r_[True, (keys[1:] != keys[:-1]).any(axis=1)])
    found: dict[tuple[str, int, int], list[tuple[tuple[int, int], Warp]]] = {}
    for lanes in np.split(log, starts[1:]):
        what, size = LOGGED[lanes["kind"][0]], int(lanes["bytes"][0])
        cost = sectors(lanes) if what.startswith("global") else passes(lanes)
        key = what, int(lanes["line"][0]), size
        moved = len(np.unique(lanes["address"])) * size
        found.setdefault(key, []).append((cost, Warp(len(lanes), moved, cost[0])))
    result = []
    for (what, line, size), each in sorted(found.items(), key=lambda item: item[0][1]):
        cost, fewest = np.mean([cost for cost, _ in each], axis=0).tolist()
        widest = max((warp for _, warp in each), key=lambda w: (w.bytes, w.lanes, w.cost))
        result.append(WarpAccess(what, line, size, len(each), cost, fewest, widest))
    return tuple(result)


def occurrence(log: np.ndarray) -> np.ndarray:
    """For each record, how often its thread was at its instruction before."""
    order = np.lexsort((np.arange(log.size), log["thread"], log["pc"]))
    pc, thread = log["pc"][order], log["thread"][order]
    new = np.r_[True, (pc[1:] != pc[:-1]) | (thread[1:] != thread[:-1])]
    start = np.maximum.accumulate(np.where(new, np.arange(log.size), 0))
    result = np.empty(log.size, np.int64)
    result[order] = np.arange(log.size) - start
    return result


def sectors(lanes: np.ndarray) -> tuple[int, int]:
    """The 32-byte sectors that one warp's access touches, and the fewest that could hold it."""
    size = lanes["bytes"][0]
    firsts = np.unique(lanes["address"])
    touched = np.unique(np.r_[firsts // SECTOR, (firsts + np.uint64(size - 1)) // SECTOR])
    return len(touched), -(-len(firsts) * int(size) // SECTOR)


def passes(lanes: np.ndarray) -> tuple[int, int]:
    """How often one warp's access goes over the banks of shared memory, and the fewest.

    Lanes that read one word share a pass. 8 bytes a lane move by half warps, 16 by quarters.
    """
    words = max(1, int(lanes["bytes"][0]) // 4)
    part = lanes["thread"] % WARP // (WARP // words)
    total = 0
    for group in np.unique(part):
        base = lanes["address"][part == group] // 4
        touched = np.unique(np.concatenate([base + np.uint64(i) for i in range(words)]))
        total += int(np.bincount((touched % BANKS).astype(np.int64)).max())
    return total, len(np.unique(part))
