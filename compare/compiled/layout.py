"""Who holds which element of a Triton block: the compiler's choice, read from its ttgir.

A layout maps (register, lane, warp) to an element. Only `blocked` layouts are read, which is what
loads, stores and FMA products use; a tensor core's own is named, and its owners are not told.
The rule is that of `BlockedEncodingAttr` in Triton's `TritonGPUAttrDefs.td`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod

_ALIAS = re.compile(r"^(#\w+) = #ttg\.(\w+)<\{(.*?)\}>", re.MULTILINE)
_TENSOR = re.compile(r"tensor<((?:\d+x)+)[^,<>]*(?:<[^<>]*>)?[^,<>]*, (#\w+)>")


@dataclass(frozen=True)
class Layout:
    """How a block of `shape` lies in a program's threads. Tuples have one entry a dimension.

    `order` lists the dimensions from the fastest to the slowest. `kind` is Triton's name; where it
    is not `blocked` the tuples are empty and `owner` knows nothing.
    """

    kind: str
    shape: tuple[int, ...]
    per_thread: tuple[int, ...] = ()
    lanes: tuple[int, ...] = ()
    warps: tuple[int, ...] = ()
    order: tuple[int, ...] = ()

    @property
    def threads(self) -> int:
        return prod(self.lanes) * prod(self.warps)


@dataclass(frozen=True)
class Owner:
    """The thread that holds an element: its number in the program, its warp and its lane there."""

    thread: int
    warp: int
    lane: int


def loaded(ttgir: str) -> Layout | None:
    """The layout of the block that the kernel's first load brings, None where it loads no block."""
    return _layout_at(ttgir, r"tt\.load |async_copy_global_to_local ")


def stored(ttgir: str) -> Layout | None:
    """The layout of the block that the kernel's last store writes, None where it has none."""
    return _layout_at(ttgir, r"tt\.store ", last=True)


def summed(ttgir: str) -> Layout | None:
    """The layout of the block that the kernel's first `tl.dot` adds to, None where it has none."""
    return _layout_at(ttgir, r"= (tt\.dot|ttng\.warp_group_dot) ")


def owner(layout: Layout, index: tuple[int, ...]) -> Owner | None:
    """The first thread that holds element `index`; None for a layout that is not read.

    A block smaller than its threads' reach is held more than once; the lowest thread is told.
    ValueError for an index outside the block.
    """
    if len(index) != len(layout.shape) or not all(
        0 <= i < size for i, size in zip(index, layout.shape, strict=True)
    ):
        raise ValueError(f"element {index} is outside the block {layout.shape}")
    if layout.kind != "blocked":
        return None
    lane = warp = 0
    lane_step = warp_step = 1
    for dim in layout.order:
        at = index[dim] // layout.per_thread[dim]
        lane += at % layout.lanes[dim] * lane_step
        warp += at // layout.lanes[dim] % layout.warps[dim] * warp_step
        lane_step *= layout.lanes[dim]
        warp_step *= layout.warps[dim]
    return Owner(warp * prod(layout.lanes) + lane, warp, lane)


def held(layout: Layout, thread: int) -> tuple[int, ...]:
    """The columns of a one-dimensional block that `thread` holds; none for a layout not read."""
    if layout.kind != "blocked" or len(layout.shape) != 1:
        return ()
    columns = range(layout.shape[0])
    found = (owner(layout, (column,)) for column in columns)
    return tuple(c for c, who in zip(columns, found, strict=True) if who and who.thread == thread)


def _layout_at(ttgir: str, operation: str, *, last: bool = False) -> Layout | None:
    """Of the first (or `last`) line that names `operation`, the first block with a named layout.

    The operands of a tensor core have layouts without a name of their own, so that this is the
    accumulator's.
    """
    aliases = {name: (kind, body) for name, kind, body in _ALIAS.findall(ttgir)}
    found = [
        tensors[0]
        for line in ttgir.splitlines()
        if re.search(operation, line)
        if (tensors := _TENSOR.findall(line))
    ]
    if not found:
        return None
    sizes, name = found[-1 if last else 0]
    kind, body = aliases.get(name, ("unknown", ""))
    shape = tuple(int(size) for size in sizes.split("x") if size)
    if kind != "blocked":
        return Layout(kind, shape)
    keys = ("sizePerThread", "threadsPerWarp", "warpsPerCTA", "order")
    return Layout(kind, shape, *(_numbers(body, key) for key in keys))


def _numbers(body: str, key: str) -> tuple[int, ...]:
    match = re.search(rf"{key} = \[([\d, ]+)\]", body)
    return tuple(int(value) for value in match[1].split(",")) if match else ()
