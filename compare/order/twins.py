"""What a twin must know before it can have another's bits: the order found, for its kernel."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from compare.device import Broken, ContextLost
from compare.inputs import Stream
from compare.machine import Machine
from compare.order import Products, Unreadable, find
from compare.order.tree import Plan, plan
from compare.order.words import describe
from compare.pair import Implementation, Prepared, Shape

Black = Callable[..., np.ndarray]
SEED = 20260901  # of the random product on which a twin is tried before it claims anything
# Where the twins' claims were seen to hold (`claim`): one mapping a machine on which they were.
RECORDED = ({"arch": "sm_90", "triton": "3.6.0", "torch": "2.11.0", "cupy": "14.2.0"},)
WIDE = 1024  # sides from which the large tile is worth it


def order_of(found: Plan, width: int) -> Any:
    """A plan as `triton_impl.matmul_twin.Order`; None for one running sum over all of K.

    `width` is how many terms the unit adds at once: shorter groups are filled up with zeros.
    """
    from triton_impl.matmul_twin import Order

    if found.plain:
        return None
    even = all(size == width for sizes in found.groups for size in sizes[:-1])
    whole = all(list(c) == list(range(c[0], c[-1] + 1)) for c in found.chains)
    if even and whole:
        begin, end = zip(*((chain[0], chain[-1] + 1) for chain in found.chains), strict=True)
        return Order(begin, end, found.adds)
    places: list[int] = []
    ends = [0]
    for chain, sizes in zip(found.chains, found.groups, strict=True):
        terms = iter(chain)
        for size in sizes:
            places += [next(terms) for _ in range(size)] + [-1] * (width - size)
        ends.append(len(places))
    return Order(tuple(ends[:-1]), tuple(ends[1:]), found.adds, tuple(places))


def prepare_matmul(counterpart: Black, twin: Black, shape: Shape) -> Prepared:
    """The order in which `counterpart` adds at this MxNxK, carried by the first kernel that then
    has its bits on random data. Unreadable with the reason where none has."""
    if min(shape) == 0:
        return Prepared({})
    try:
        return _prepared(counterpart, twin, shape, trusting=True)
    except Unreadable:  # its elements may add in several orders, or the reason is found again
        return _prepared(counterpart, twin, shape, trusting=False)


def trial(shape: tuple[int, int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Random operands (m, k) and (k, n), not those of any run."""
    m, n, k = shape
    stream = Stream("twin", shape, "trial", SEED)
    return stream.normal("a", (m, k)), stream.normal("b", (k, n))


def _prepared(counterpart: Black, twin: Black, shape: Shape, *, trusting: bool) -> Prepared:
    m, n, k = shape
    ask = Products(counterpart, m, k, n)
    found = find(ask, trusting=trusting)
    words = describe(found.tree)
    if found.share < 1:
        raise Unreadable(
            f"{100 * found.share:.3g} % of its elements add in one order ({words}), the others in "
            "another"
        )
    try:
        order = order_of(plan(found.tree), found.tree.fused)
    except ValueError as error:
        raise Unreadable(f"the order found can't be carried: {error} ({words})") from None
    a, b = trial((m, n, k))
    want, best, refused = counterpart(a, b), 0.0, ""
    operands = ask.operands()
    for options, notes in kernels(operands, m, n):
        try:
            got = twin(a, b, order=order, **options)
        except ContextLost:
            raise
        except Broken as broken:  # this kernel can't carry it; its reason is the last one told
            refused = str(broken)
            continue
        best = max(best, float(np.mean(got.view(np.int32) == want.view(np.int32))))
        if best == 1:
            return Prepared({"order": order, **options}, (f"order found: {words}", *notes))
    if refused and not best:
        raise Unreadable(refused)
    raise Unreadable(
        f"no kernel has its bits in the order found ({100 * best:.5g} % at best; {words}; operands "
        f"{' and '.join(dict.fromkeys(operands))})"
    )


def kernels(
    operands: tuple[str, str], m: int, n: int
) -> list[tuple[Mapping[str, Any], tuple[str, ...]]]:
    """The launcher's options to try for a counterpart that treats its operands so, with a note."""
    from triton_impl.matmul_descriptor import descriptors_round

    if operands == ("as they are", "as they are"):
        return [({"precision": "ieee"}, ())]
    tf32 = {"precision": "tf32", "config": tile(m, n)}
    how = "operands rounded to nearest even"
    loaded = f"{how}: A by a tensor descriptor, B in registers"
    packed = f"{how}: A in registers, B as it is packed along K"
    ways = [({**tf32, "descriptor": True}, (loaded,))] if descriptors_round() else []
    return [*ways, (tf32, (packed,))]


def tile(m: int, n: int) -> tuple[int, ...]:
    """The tf32 kernel's tile for a product of this size; it decides no bit."""
    from triton_impl.matmul_twin import LARGE, SMALL

    return LARGE if min(m, n) >= WIDE else SMALL


def prepare_tf32(counterpart: Black, twin: Black, shape: Shape) -> Prepared:
    """As `prepare_matmul`, and says so where the counterpart was asked for tf32 and ran FP32."""
    prepared = prepare_matmul(counterpart, twin, shape)
    if prepared.options.get("precision") == "ieee":
        note = "asked TF32, ran FP32: its operands are multiplied as they are"
        return Prepared(prepared.options, (*prepared.notes, note))
    return prepared


def claim(implementation: Implementation, machine: Machine) -> str:
    """Why a twin's claim of exact bits is only shown, not gated, here; "" where it was recorded as
    holding: on this architecture, with these versions."""
    if not implementation.twin_of:
        return "claims no bits"
    if not machine.on_card or machine.card is None:
        return "claims the bits of a card"
    here = {"arch": machine.card.arch, **machine.seen.versions}
    recorded = implementation.facts.get("recorded", ())
    for record in recorded:
        if all(here.get(name) == value for name, value in record.items()):
            return ""
    return "not recorded with these versions: measured, not gated"
