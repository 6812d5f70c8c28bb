"""What a report says of the machine that it was made on, in plain values."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from compare import machine as machines
from compare.machine import Machine


def machine_facts(machine: Machine, foreign: Sequence[str] = ()) -> dict[str, Any]:
    """What a report says of the machine, in plain values; `foreign` are others' warnings."""
    seen = machine.seen
    facts: dict[str, Any] = {
        "mode": machine.mode,
        "system": f"{seen.system} {seen.arch}",
        "versions": {
            "triton": seen.versions["triton"],
            "torch": seen.versions["torch"].removesuffix("+cpu")
            + (" (CPU)" if not machine.on_card else ""),
            "cupy": seen.versions["cupy"] if machine.on_card else "",
            "numpy": seen.versions["numpy"],
            "python": seen.python,
        },
        "variables": machines.variables(seen.env),
        "driver": seen.driver,
        "warnings": sorted(set(foreign)),
        "missing": dict(machine.missing),
        "pinned": "FP fusion on, both sides   nvrtc: no options   cublas: default math",
    }
    if machine.card is None:
        unused = seen.cards or seen.driver
        facts["banner"] = "CARD NOT USED" if unused else "NO NVIDIA CARD FOUND"
        facts["cuda_side"] = (
            f"CUDA {machine.missing['emulator']}"
            if "emulator" in machine.missing
            else f"CUDA runs thread by thread, built by {compiler_words(seen.compiler)}"
        )
        return facts
    from compare.timing import card_facts

    card = card_facts(machine.device)
    cuda = machines.dotted(seen.driver_cuda)
    facts["card_name"] = machine.card.name
    facts["card_arch"] = machine.card.arch
    facts["card_index"] = machine.device
    facts["card_uuid"] = machine.card.uuid
    facts["card_words"] = (
        f"{machine.card.name}, {machine.card.arch}, {card.sms} SMs, {card.l2_bytes >> 20} MB L2, "
        f"driver {seen.driver.split('.')[0]}, CUDA {cuda}"
    )
    return facts


def compiler_words(path: str) -> str:
    """`g++ 12.2`: the compiler's own version, as it says it."""
    answer = subprocess.run([path, "-dumpfullversion"], capture_output=True, text=True, check=False)
    number = answer.stdout.strip() or "of unknown version"
    return f"{Path(path).name} {'.'.join(number.split('.')[:2])}"
