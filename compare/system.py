"""What the system has: packages, compiler, driver, cards. It asks and decides nothing."""

from __future__ import annotations

import os
import platform
import re
import warnings
from importlib import metadata
from pathlib import Path
from typing import Any

from compare.machine import NEEDED, Card, Seen


def compiler() -> str:
    """The C++ compiler of the emulator, "" where there is none. Honours CXX."""
    from cuda_ref.emulator import build

    try:
        return build.compiler()[0]
    except build.KernelError:
        return ""


def observe(*, cards: bool = True) -> Seen:
    """Asks the system. Imports torch only where a driver is present and `cards` are wanted."""
    versions = {name: version(name) for name in (*NEEDED, "nvidia-ml-py", "nvidia-cuda-nvrtc")}
    packages = cupy_packages()
    versions["cupy"] = version(packages[0]) if packages else ""
    facts: dict[str, Any] = {
        "system": platform.system(),
        "arch": platform.machine(),
        "python": platform.python_version(),
        "env": dict(os.environ),
        "versions": versions,
        "cupy_packages": packages,
        "compiler": compiler(),
    }
    facts |= ask_driver()
    wanted = cards and (facts["cards"] or facts["driver"]) and versions["torch"]
    return Seen(**facts, **(ask_torch() if wanted else {}))


def version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""


def cupy_packages() -> tuple[str, ...]:
    """Every installed distribution that ships CuPy."""
    names = {(dist.metadata["Name"] or "").lower() for dist in metadata.distributions()}
    return tuple(sorted(name for name in names if re.fullmatch(r"cupy(-cuda\d+x|-rocm-.*)?", name)))


def ask_driver() -> dict[str, Any]:
    """Cards and driver from NVML; where it can't be loaded, from the driver's own files."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # noqa: BLE001 - no binding, no library or no driver: each means "ask the files"
        return {"cards": (), "driver": driver_of_files(Path("/"))}
    try:
        handles = [
            pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())
        ]
        cuda = pynvml.nvmlSystemGetCudaDriverVersion_v2()
        return {
            "cards": tuple(
                Card(
                    pynvml.nvmlDeviceGetName(handle),
                    tuple(pynvml.nvmlDeviceGetCudaComputeCapability(handle)),
                    pynvml.nvmlDeviceGetUUID(handle),
                    pynvml.nvmlDeviceGetMemoryInfo(handle).total,
                )
                for handle in handles
            ),
            "driver": pynvml.nvmlSystemGetDriverVersion() if handles else "",
            "driver_cuda": (cuda // 1000, cuda % 1000 // 10),
        }
    except pynvml.NVMLError:
        return {"cards": (), "driver": driver_of_files(Path("/"))}
    finally:
        pynvml.nvmlShutdown()


def driver_of_files(root: Path) -> str:
    """The driver's version from /proc, "unknown" where only devices are there, "" without any."""
    proc = root / "proc/driver/nvidia/version"
    if proc.is_file():
        match = re.search(r"\b(\d+\.\d+(?:\.\d+)?)\b", proc.read_text(encoding="utf-8"))
        return match[1] if match else "unknown"
    wsl = (root / "dev/dxg").exists() and (root / "usr/lib/wsl/lib/libcuda.so.1").exists()
    return "unknown" if (root / "dev/nvidia0").exists() or wsl else ""


def ask_torch() -> dict[str, Any]:
    """What torch says of the cards; its warnings become `torch_error`."""
    import torch

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        usable = torch.cuda.is_available()
        error = str(caught[0].message) if caught else ""
    cards = []
    for index in range(torch.cuda.device_count() if usable else 0):
        facts = torch.cuda.get_device_properties(index)
        cards.append(
            Card(facts.name, (facts.major, facts.minor), str(facts.uuid), facts.total_memory)
        )
    return {"torch_cuda": torch.version.cuda, "torch_cards": tuple(cards), "torch_error": error}
