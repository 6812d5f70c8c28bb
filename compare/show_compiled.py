"""The command `compiled`: both sides of a pair compiled, with what else is known of each."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from compare import system
from compare.compiled import ARCH, Built, Compilation, build
from compare.compiled.layout import owner
from compare.compiled.occupancy import ARCHS, limits
from compare.lesson import oneblock
from compare.machine import Refusal
from compare.pair import Arrays, Implementation, Pair, Shape
from compare.results import to_json, write_text
from compare.run import all_pairs, check_outputs, one_of, parse_shapes

COLUMN = 700  # the column whose holder is asked for, where a row has it
ELEMENT = (5, 11)  # of a product's first tile


def command(
    names: Sequence[str],
    *,
    shape: str = "",
    arch: str = "",
    only: Sequence[str] = (),
    path: str = "",
    progress: Callable[[str], None] = lambda text: None,
) -> tuple[list[str], int]:
    """The screen of the pairs named (all where none is), and 1 where a side could not be compiled
    or breaks its promise, else 0.

    `path` gets a list of Compilations as JSON: of `arch`, or of every architecture where none is
    given. Refusal: 2 for an unknown pair, implementation, arch or shape, a file that can't be
    written.
    """
    from compare.report.compiled import lines

    check_outputs((path,) if path else (), "")
    pairs = all_pairs()
    known = [i.name for pair in pairs.values() for i in pair.implementations]
    chosen = [one_of("implementation", name, known) for name in only]
    screen: list[str] = []
    made: list[Compilation] = []
    for name in names or pairs:
        pair, sizes, target = asked_for(name, shape, arch)
        wanted = [i for i in headed(pair) if not only or i.name in chosen]
        if not wanted:
            continue
        found = compile_pair(pair, sizes, target, wanted, progress)
        made.append(found)
        screen += ["", *lines(found)] if screen else lines(found)
        for other in ARCHS if path and not arch else ():
            if other != target:
                made.append(compile_pair(pair, sizes, other, wanted, progress, run=False))
    if path:
        write_text(path, json.dumps(to_json(made), indent=1, allow_nan=False) + "\n")
    builds = [built for found in made for built in found.builds]
    missing = any(built.skipped and built.language != "library" for built in builds)
    broken = any(code.broken for built in builds for code in built.codes)
    return screen, int(missing or broken)


def headed(pair: Pair) -> list[Implementation]:
    """The pair's implementations, those that a report shows side by side first."""
    lead = next((i for i in pair.implementations if i.counterparts), None)
    first = (lead.name, *lead.counterparts) if lead else ()
    return sorted(pair.implementations, key=lambda i: i.name not in first)


def asked_for(name: str, shape: str, arch: str) -> tuple[Pair, Shape, str]:
    """The pair, the shape (its own without a card where none is given) and the architecture (that
    of this machine's card, else sm_80). Refusal with one sentence for what is none of them."""
    pairs = all_pairs()
    pair = pairs[one_of("pair", name, pairs)]
    sizes = parse_shapes(shape)[0] if shape else tuple(pair.shapes(False)[0])
    try:
        pair.check_shape(sizes)
        target = arch or here()
        limits(target)
    except ValueError as error:
        raise Refusal(2, str(error)) from None
    return pair, sizes, target


def here() -> str:
    """The architecture of this machine's first card, sm_80 where it has none or an unknown one."""
    cards = system.observe(cards=False).cards
    return cards[0].arch if cards and cards[0].arch in ARCHS else ARCH


def compile_pair(
    pair: Pair,
    shape: Shape,
    arch: str,
    implementations: Sequence[Implementation] = (),
    progress: Callable[[str], None] = lambda text: None,
    run: bool = True,
) -> Compilation:
    """Every implementation of `pair` (or those given), compiled for `arch` as launched at `shape`.

    Counts of what runs, and the holders of the CUDA side, come from one block on the emulator;
    where this machine has none, or `run` is off, they are left out. ValueError: an unknown arch, a
    shape that the pair does not take.
    """
    pair.check_shape(shape)
    chosen = tuple(implementations) or pair.implementations
    inputs = pair.inputs(shape, pair.data[0], 0)
    sizes = {name: array.shape for name, array in inputs.items()}
    progress(f"{pair.name}: compiling for {arch}")
    builds = build(chosen, sizes, pair.output_shape(shape), arch)
    element = asked(builds)
    blocks = {}
    for implementation in chosen if run else ():
        if implementation.arrays == "cupy" and "card" not in implementation.needs:
            progress(f"{implementation.name}: one block, thread by thread")
            block = one_block(implementation, inputs, pair.output_shape(shape))
            if not isinstance(block, str):
                blocks[implementation.name] = block
    return Compilation(
        pair.name,
        shape,
        arch,
        builds,
        pair.cost(shape).bytes,
        moved={i.name: sum(i.traffic(shape).values()) for i in chosen if i.traffic},
        executed={name: oneblock.counts(block) for name, block in blocks.items()},
        element=element_words(element),
        holders=holders(builds, blocks, element, pair.output_shape(shape)),
    )


def one_block(
    implementation: Implementation, inputs: Arrays, output: Shape
) -> oneblock.Block | str:
    """One block of a CUDA kernel on the emulator, or why there is none."""
    try:
        return oneblock.run(implementation, (*inputs.values(), np.zeros(output, np.float32)))
    except (ImportError, ValueError, OSError) as error:
        return str(error)


def asked(builds: Sequence[Built]) -> tuple[int, ...]:
    """The element whose holder is asked for: of a product's tile, else of a row; () for neither."""
    codes = [code for built in builds for code in built.codes]
    if any(code.summed for code in codes):
        return ELEMENT
    widths = [code.loaded.shape[-1] for code in codes if code.loaded]
    return (min(COLUMN, widths[0] - 1),) if widths else ()


def element_words(element: tuple[int, ...]) -> str:
    if not element:
        return ""
    return f"column {element[0]}" if len(element) == 1 else f"C[{element[0]}, {element[1]}]"


def holders(
    builds: Sequence[Built],
    blocks: Mapping[str, oneblock.Block],
    element: tuple[int, ...],
    output: Shape,
) -> dict[str, str]:
    """Which thread of its block holds the element while it is worked on, by implementation."""
    found = {built.name: holder(built, element) for built in builds}
    for name, block in blocks.items():
        thread = reader(block, element, output)
        found[name] = "" if thread is None else f"thread {thread}"
    return {name: words for name, words in found.items() if words}


def holder(built: Built, element: tuple[int, ...]) -> str:
    """The Triton side, from the layout; "" where nobody knows."""
    code = built.codes[0] if built.codes else None
    layout = code and (code.summed if len(element) == 2 else code.loaded)
    if not layout or not element:
        return ""
    index = (0,) * (len(layout.shape) - len(element)) + element
    if any(i >= size for i, size in zip(index, layout.shape, strict=True)):
        return ""
    found = owner(layout, index)
    return f"thread {found.thread}" if found else f"not read: {layout.kind}"


def reader(block: oneblock.Block, element: tuple[int, ...], output: Shape) -> int | None:
    """The CUDA side, from what ran: who read the row's column, or wrote the product's element."""
    if len(element) == 1:
        return oneblock.who(block, "global read", "input 0", element[0])
    if len(element) == 2 and len(output) == 2:
        at = element[0] * output[1] + element[1]
        return oneblock.who(block, "global write", oneblock.OUTPUT, at)
    return None
