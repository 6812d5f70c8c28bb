"""The machine: which mode what it has means, and what to do about the rest.

Pure: `decide` turns what `compare.system` saw into a `Machine` or into a `Refusal` with its exit
code and one sentence.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

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
