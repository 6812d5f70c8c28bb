"""The command `doctor`: what this machine can run, what to install for the rest, and every seam to
another project's insides, tried."""

from __future__ import annotations

import os
import sysconfig
from collections.abc import Callable
from pathlib import Path

import numpy as np

from compare import machine as machines
from compare import system
from compare.errors import plain
from compare.machine import Machine, Refusal, Seen
from compare.report.words import clip, wrap

SHAPE = (4, 256)  # rows and columns of what is tried


def command(progress: Callable[[str], None] = lambda text: None) -> tuple[list[str], int]:
    """The screen, and 2 where a card is there that can't be used, else 0."""
    progress("the machine")
    seen = system.observe()
    try:
        machine, refusal = machines.decide(seen), None
    except Refusal as found:
        machine, refusal = None, found
    lines = [
        line for name, text in facts(seen, refusal) for line in wrap(f"  {name:<10}{text}", 12)
    ]
    lines += [f"  note      {note}" for note in machines.version_notes(seen.versions)]
    for name, value in machines.variables(seen.env).items():
        lines.append(clip(f"  set       {name}={value}", 100))
    if machine is None:
        lines += wrap(f"  remedy    {refusal}", 12)
        code = refusal.code if refusal is not None else 2
        if seen.system == "Linux":
            lines.append(f"  without the remedy:  python -m compare --cpu        exit {code}")
        return lines, code
    if machine.on_card:
        lacking = list(machine.missing.values())
        lines.append("  runs      everything here")
    else:
        lacking = (
            [f"the CUDA side {machine.missing['emulator']}"] if lacks_emulator(machine) else []
        )
        lines.append("  runs      right or wrong on the CPU; times need a card")
    lines += [line for reason in lacking for line in wrap(f"  lacking   {reason}", 12)]
    lines += ["", "  tried, each of these being another project's inside that may change:"]
    for name, attempt in seams(machine).items():
        progress(name)
        lines += wrap(f"  {name:<30}{tried(attempt)}", 32)
    return lines, 0


def lacks_emulator(machine: Machine) -> bool:
    return "emulator" in machine.missing


def facts(seen: Seen, refusal: Refusal | None) -> list[tuple[str, str]]:
    """Name and text of each thing that a run needs."""
    unusable = refusal is not None and bool(seen.cards or seen.driver)
    cards = seen.torch_cards or seen.cards
    able = f", driver {seen.driver}" if seen.driver else ""
    if seen.driver_cuda:
        able += f" (can run CUDA up to {machines.dotted(seen.driver_cuda)})"
    named = ", ".join(f"{card.name}, {card.arch}" for card in cards) or "not listed"
    none = "none: no NVIDIA card or driver was found; times need one of sm_80 or newer"
    return [
        ("card", named + able if cards or seen.driver else none),
        ("system", f"{seen.system} {seen.arch}, python {seen.python}"),
        ("torch", torch_words(seen, unusable)),
        ("triton", seen.versions["triton"] or "not installed: pip install triton (Linux only)"),
        ("cupy", cupy_words(seen)),
        ("compiler", compiler_words(seen)),
        ("numpy", seen.versions["numpy"] or "not installed: pip install numpy"),
    ]


def torch_words(seen: Seen, unusable: bool) -> str:
    if not seen.versions["torch"]:
        return "not installed: pip install torch"
    built = f", built for CUDA {seen.torch_cuda}" if seen.torch_cuda else ""
    text = seen.versions["torch"] + built
    return f"{text}     CANNOT USE THIS CARD" if unusable else text


def cupy_words(seen: Seen) -> str:
    if not seen.cupy_packages:
        extra = f"'.[cuda{machines.cuda_major(seen)}]'"
        return f"none: the CUDA side on a card, and 'compiled', need pip install {extra}"
    if len(seen.cupy_packages) > 1:
        return machines.card_missing(seen)["cupy"]
    return f"{seen.cupy_packages[0]} {seen.versions['cupy']}"


def compiler_words(seen: Seen) -> str:
    """The C++ compiler of the emulator, and Python's headers, which Triton needs on a card."""
    if not seen.compiler:
        return "none: install g++ or clang, or set CXX; the CUDA side without a card needs one"
    include = Path(sysconfig.get_paths()["include"])
    if (seen.cards or seen.driver) and not (include / "Python.h").is_file():
        return f"{seen.compiler}; Python.h not found in {include}: install python3-dev"
    return seen.compiler


def tried(attempt: Callable[[], str]) -> str:
    """What an attempt says; where it raises, that in one sentence."""
    try:
        return attempt()
    except Exception as error:  # noqa: BLE001 - a seam may break in any way: that is what is asked
        return f"FAILS: {plain(error)}"


def seams(machine: Machine) -> dict[str, Callable[[], str]]:
    """Every place where this project leans on another's insides, and how it is tried."""
    both = {
        "Triton's compiler and layout": lambda: compiled_by("triton_impl.softmax:softmax", "torch"),
        "NVRTC and the disassembler": lambda: compiled_by("cuda_ref.softmax:softmax_rows", "cupy"),
        "the emulator's threads": emulated,
    }
    if not machine.on_card:
        return {"Triton's interpreter": interpreted, **both}
    return {
        **both,
        "CuPy's kernels": lambda: on_cupy(machine.device),
        "cuBLAS through CuPy": cublas,
        "CUPTI's records": lambda: cupti(machine.device),
    }


def compiled_by(entry: str, arrays: str) -> str:
    """Compiles one kernel for sm_80 without a card, and reads its code and layout back."""
    from compare import compiled
    from compare.pair import Implementation

    language = "triton" if arrays == "torch" else "cuda"
    one = Implementation("tried", language, entry, arrays=arrays)
    (built,) = compiled.build((one,), {"x": SHAPE}, SHAPE)
    if not built.codes:
        return f"FAILS: {built.skipped}"
    code = built.codes[0]
    layout = "" if arrays == "cupy" else ", layout read" if code.loaded else ", layout NOT read"
    return f"ok: {code.compiler}, {code.registers} registers{layout}"


def interpreted() -> str:
    """The four canaries; the mode is set first, since kernels read it when they are decorated."""
    os.environ["TRITON_INTERPRET"] = "1"
    from compare import canary

    fault = canary.fault()
    return f"FAILS: {fault}" if fault else "ok: copy, masked sum, loop, tl.dot"


def emulated() -> str:
    """softmaxRows on the CPU, on rows whose softmax is exact."""
    from cuda_ref.emulator import build
    from cuda_ref.softmax import softmax_rows

    right = bool((softmax_rows(np.zeros(SHAPE, np.float32)) == 1 / SHAPE[1]).all())
    return f"ok: {build.describe()['compiler']}" if right else "FAILS: a wrong result"


def on_cupy(device: int) -> str:
    from compare.run import probe_cupy

    reason = probe_cupy(device)
    return f"FAILS: {reason}" if reason else "ok: compiled and run"


def cublas() -> str:
    from cupy.cuda import cublas, device

    return f"ok: version {cublas.getVersion(device.get_cublas_handle())}"


def cupti(index: int) -> str:
    from compare.timing.peaks import card_facts
    from compare.timing.recorder import open_recorder

    recorder = open_recorder(card_facts(index))
    try:
        better = "" if recorder.method == "CUPTI" else f" ({recorder.reason})"
        return f"ok: times by {recorder.method}{better}"
    finally:
        recorder.close()
