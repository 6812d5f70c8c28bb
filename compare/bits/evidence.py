"""Where an ingredient shows: the instructions of each side's PTX that decide bits, by name."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from compare.bits.lab import Lab
from compare.compiled.compilers import watch_cuda, watch_triton
from compare.findings import Ingredient
from compare.pair import Implementation

# By ingredient, what to look for in PTX. expf's sequence rounds its argument down to a whole power
# of two first (fma.rm) and scales by it at the end; the bare approximation is one ex2 alone.
MARKS = {
    "exp": r"(fma\.rm(?:\.ftz)?\.f32|ex2\.approx(?:\.ftz)?\.f32)",
    "div": r"(div\.(?:full|rn|approx)(?:\.ftz)?\.f32|rcp\.\w+(?:\.ftz)?\.f32)",
    "sum": r"(shfl\.sync\.\w+|bar\.sync|barrier\.sync)",
    "operands": r"(wgmma\.mma_async|mma\.sync|cvt\.rna\.tf32|fma\.rn(?:\.ftz)?\.f32)",
}


def spelled(
    lab: Lab, ingredients: Sequence[Ingredient], sides: Mapping[str, Implementation]
) -> tuple[Ingredient, ...]:
    """The ingredients with what each side's PTX spells."""
    texts = {name: ptx(lab, implementation) for name, implementation in sides.items()}
    return tuple(
        replace(
            ingredient,
            seen=tuple(
                (name, ", ".join(found(text, MARKS[ingredient.name])))
                for name, text in texts.items()
            ),
        )
        if ingredient.name in MARKS
        else ingredient
        for ingredient in ingredients
    )


def found(text: str, pattern: str) -> list[str]:
    """The different spellings in order; how often each stands there is the unroller's choice."""
    return list(dict.fromkeys(re.findall(pattern, text)))


def ptx(lab: Lab, implementation: Implementation) -> str:
    """The PTX of what it launches on this card; "" for a library."""
    if implementation.arrays == "torch":
        with watch_triton() as kernels:
            lab.bench.call(implementation)()
        return "\n".join(kernel.asm["ptx"] for kernel, _ in kernels)
    with watch_cuda() as launches:
        lab.bench.call(implementation)()
    card = lab.machine.card
    arch = card.arch.replace("sm_", "compute_") if card else "compute_80"
    return "\n".join(
        nvrtc_ptx(launch.file.read_text(encoding="utf-8"), launch.options, arch)
        for launch in launches
    )


def nvrtc_ptx(source: str, options: Sequence[str], arch: str) -> str:
    """NVRTC's PTX of a CUDA source, with the option that CuPy adds to a RawKernel's own."""
    from cupy_backends.cuda.libs import nvrtc

    program = nvrtc.createProgram(source, "kernel.cu", (), ())
    try:
        nvrtc.compileProgram(program, (*options, "-ftz=true", f"-arch={arch}"))
        text = nvrtc.getPTX(program)
        return text.decode() if isinstance(text, bytes) else text
    finally:
        nvrtc.destroyProgram(program)
