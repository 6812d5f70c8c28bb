"""The machine: what it has, which mode that means, and what to do about the rest.

`observe` asks the system and decides nothing; `decide` is pure and turns what was seen into a
`Machine` or into a `Refusal` with its exit code and one sentence.
"""

from __future__ import annotations

import os
import platform
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

VARIABLES = ("TRITON_", "CUBLAS", "CUPY_", "NVIDIA_", "CUDA_", "PTXAS_")  # they can change a result
ON, OFF = (
    ("1", "true", "yes", "on", "y"),
    ("", "0", "false", "no", "off", "n"),
)  # as Triton reads them
NEEDED = ("torch", "triton", "numpy", "tabulate")
TESTED = {"triton": ((3, 6), (3, 9)), "torch": ((2, 11), (2, 13)), "cupy": ((14,), (14,))}
OLDEST_CARD = (8, 0)
ELSEWHERE = (
    "Triton has wheels for Linux only: on Windows use WSL2, on a Mac a Linux container; "
    "list, show and doctor work everywhere"
)


class Refusal(Exception):
    """The run can't be done as asked: an exit code and one sentence for the user."""

    def __init__(self, code: int, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code


@dataclass(frozen=True)
class Card:
    """One card as the driver names it. `memory` in bytes, 0 where unknown."""

    name: str
    capability: tuple[int, int]
    uuid: str = ""
    memory: int = 0

    @property
    def arch(self) -> str:
        return f"sm_{self.capability[0]}{self.capability[1]}"


@dataclass(frozen=True)
class Seen:
    """What the system answered. Nothing here is a decision."""

    system: str = "Linux"
    arch: str = "x86_64"
    python: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)  # distribution -> version
    cupy_packages: tuple[str, ...] = ()
    cards: tuple[Card, ...] = ()  # of NVML, whatever torch says
    driver: str = ""  # of NVML or the driver's files; a driver with no card listed is still a card
    driver_cuda: tuple[int, int] | None = None
    torch_cuda: str | None = None  # the CUDA that torch was built for
    torch_cards: tuple[Card, ...] = ()
    torch_error: str = ""
    compiler: str = ""


@dataclass(frozen=True)
class Machine:
    """A mode and what it lacks. `missing` maps a need to the reason that stands in its column."""

    mode: str  # "card" | "host"
    seen: Seen
    card: Card | None = None
    device: int = 0
    missing: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def on_card(self) -> bool:
        return self.mode == "card"

    def lacks(self, needs: tuple[str, ...], arrays: str) -> str:
        """Why an implementation can't run here; "" where it can."""
        needs = (*needs, "cupy" if self.on_card else "emulator") if arrays == "cupy" else needs
        return next((self.missing[need] for need in needs if need in self.missing), "")


def variables(env: Mapping[str, str]) -> dict[str, str]:
    """Every set variable that can change a result, sorted. What a container asks of a driver
    (NVIDIA_REQUIRE_CUDA, hundreds of words) can't."""
    return {
        name: env[name]
        for name in sorted(env)
        if name.startswith(VARIABLES) and not name.startswith("NVIDIA_REQUIRE_") and env[name]
    }


def interpreting(env: Mapping[str, str]) -> bool:
    """Whether TRITON_INTERPRET asks for the interpreter. Refusal for what Triton ignores."""
    value = env.get("TRITON_INTERPRET", "").strip().lower()
    if value not in ON + OFF:
        raise Refusal(
            2, f"TRITON_INTERPRET={value!r} is neither on nor off; set it to 1 or unset it"
        )
    return value in ON


def hidden(env: Mapping[str, str]) -> bool:
    """Whether CUDA_VISIBLE_DEVICES hides every card (it may hold UUIDs and is never parsed)."""
    return env.get("CUDA_VISIBLE_DEVICES", "unset").strip() in ("", "-1", "NoDevFiles")


def decide(
    seen: Seen, *, cpu: bool = False, device: int = 0, require_card: bool = False
) -> Machine:
    """The mode, or a Refusal: 2 for a machine that can't do it, 1 for a card below sm_80."""
    if seen.system != "Linux":
        raise Refusal(2, f"{seen.system} is not supported: {ELSEWHERE}")
    if absent := [name for name in NEEDED if not seen.versions.get(name)]:
        raise Refusal(2, f"{', '.join(absent)} not installed: pip install {' '.join(absent)}")
    host = cpu or interpreting(seen.env) or hidden(seen.env) or not (seen.cards or seen.driver)
    notes = version_notes(seen.versions)
    if host:
        if require_card:
            raise Refusal(2, f"--require-card: {why_no_card(seen, cpu)}")
        return Machine("host", seen, missing=host_missing(seen), notes=notes)
    if not seen.torch_cards:
        raise Refusal(2, f"{card_words(seen)} can't be used by this torch: {torch_remedy(seen)}")
    if device not in range(len(seen.torch_cards)):
        listed = ", ".join(f"{i} {card.name}" for i, card in enumerate(seen.torch_cards))
        raise Refusal(2, f"--device {device}: there is no such card; torch sees {listed}")
    card = seen.torch_cards[device]
    if card.capability < OLDEST_CARD:
        raise Refusal(
            1, f"{card.name} is {card.arch}; sm_80 or newer is needed. Run it with --cpu instead"
        )
    return Machine("card", seen, card, device, missing=card_missing(seen), notes=notes)


def why_no_card(seen: Seen, cpu: bool) -> str:
    """One sentence on why this run has no card."""
    if cpu:
        return "--cpu was asked for as well; leave one of the two out"
    if interpreting(seen.env):
        return "TRITON_INTERPRET is set, so the card is not used; unset it"
    if hidden(seen.env):
        return "CUDA_VISIBLE_DEVICES hides every card; unset it"
    return "no NVIDIA card or driver was found; run 'python -m compare doctor'"


def card_words(seen: Seen) -> str:
    name = f"{seen.cards[0].name} ({seen.cards[0].arch})" if seen.cards else "the NVIDIA card"
    able = f", which runs CUDA up to {dotted(seen.driver_cuda)}" if seen.driver_cuda else ""
    return f"{name} with driver {seen.driver or 'unknown'}{able},"


def torch_remedy(seen: Seen) -> str:
    """What torch, CuPy and the driver are, and what to install."""
    cupy = ", ".join(seen.cupy_packages) or "none"
    torch = f"torch {seen.versions.get('torch')}"
    if seen.torch_cuda is None:
        return (
            f"{torch} is a build without CUDA (CuPy: {cupy}); install torch's CUDA build, as by "
            "pip install --force-reinstall torch"
        )
    built = tuple(int(part) for part in seen.torch_cuda.split(".")[:2])
    facts = f"{torch} is built for CUDA {seen.torch_cuda} (CuPy: {cupy})"
    if seen.driver_cuda and built > seen.driver_cuda:
        newer = "580" if built[0] >= 13 else "525"
        return (
            f"{facts}; install a torch built for CUDA {seen.driver_cuda[0]} and "
            f"'.[cuda{seen.driver_cuda[0]}]', or a driver of {newer} or newer"
        )
    return f"{facts}; torch says: {first_line(seen.torch_error) or 'no usable card'}"


def card_missing(seen: Seen) -> dict[str, str]:
    """What the CUDA side lacks on a card, by what is installed; a probe may add to it later."""
    if not seen.cupy_packages:
        return {"cupy": f"CuPy is not installed: pip install '.[cuda{cuda_major(seen)}]'"}
    if len(seen.cupy_packages) > 1:
        names = " and ".join(seen.cupy_packages)
        return {"cupy": f"two CuPy packages overwrite each other: pip uninstall {names}, keep one"}
    package = seen.cupy_packages[0]
    match = re.search(r"cuda(\d+)x", package)
    if match and seen.torch_cuda and int(match[1]) != cuda_major(seen):
        return {
            "cupy": f"{package} and torch's CUDA {seen.torch_cuda} differ: "
            f"pip install cupy-cuda{cuda_major(seen)}x instead"
        }
    return {}


def host_missing(seen: Seen) -> dict[str, str]:
    """What a machine without a card lacks."""
    missing = {"card": "needs a card", "cupy": "needs a card"}
    if seen.arch not in ("x86_64", "aarch64"):
        missing["emulator"] = f"needs a card (the emulator does not know {seen.arch})"
    elif not seen.compiler:
        missing["emulator"] = "needs a card or a C++ compiler (install g++ or clang, or set CXX)"
    return missing


def cuda_major(seen: Seen) -> int:
    return int(seen.torch_cuda.split(".")[0]) if seen.torch_cuda else 13


def version_notes(versions: Mapping[str, str]) -> tuple[str, ...]:
    """One line for every package outside the range that was tried."""
    notes = []
    for name, (oldest, newest) in TESTED.items():
        found = tuple(int(part) for part in re.findall(r"\d+", versions.get(name, ""))[:3])
        if found and found[: len(newest)] > newest:
            notes.append(f"{name} {versions[name]} is newer than what was tried ({dotted(newest)})")
        elif found and found[: len(oldest)] < oldest:
            notes.append(f"{name} {versions[name]} is older than what was tried ({dotted(oldest)})")
    return tuple(notes)


def dotted(version: tuple[int, ...] | None) -> str:
    return ".".join(map(str, version)) if version else "unknown"


def first_line(text: str) -> str:
    return text.strip().splitlines()[0].strip() if text.strip() else ""


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
