"""What a card could do at most: floating-point rates and DRAM bandwidth, and what share that is.

Rates are dense operations per clock and SM, two for each multiply-add. FP32: CUDA C++ Programming
Guide, table "Throughput of Native Arithmetic Instructions". Tensor cores: the datasheet's dense
figure over SMs and boost clock: A100 156 TFLOP/s TF32 (108 SMs, 1,410 MHz), H100 SXM 495 (132 SMs,
1,830 MHz), B200 1,125 (148 SMs, 1,850 MHz); bfloat16 is twice that on each. Cards of sm_86, sm_89
and sm_120 run tensor cores at full or half rate depending on the product: they have no figure.
"""

from __future__ import annotations

from dataclasses import dataclass

FP32 = {(8, 0): 128, (8, 6): 256, (8, 9): 256, (9, 0): 256, (10, 0): 256, (12, 0): 256}
TF32 = {(8, 0): 1024, (9, 0): 2048, (10, 0): 4096}
BF16 = {capability: 2 * rate for capability, rate in TF32.items()}
PRECISIONS = {  # what multiplies, and in how many passes
    "ieee": (FP32, 1),
    "tf32": (TF32, 1),
    "tf32x3": (TF32, 3),
    "bf16x3": (BF16, 3),
    "bf16x6": (BF16, 6),
}


@dataclass(frozen=True)
class CardFacts:
    """What a figure is held against; 0 where unknown. A MIG slice states its own."""

    index: int
    name: str
    capability: tuple[int, int]
    sms: int
    l2_bytes: int
    clock_mhz: float  # the highest SM clock
    dram_bytes_per_s: float  # theoretical: twice the memory clock times the width of the bus
    uuid: str  # NVML's


def card_facts(index: int) -> CardFacts:
    """The facts of torch's card `index`."""
    import torch

    facts = torch.cuda.get_device_properties(index)
    bus, clock = getattr(facts, "memory_bus_width", 0), getattr(facts, "memory_clock_rate", 0)
    uuid = str(facts.uuid)
    return CardFacts(
        index,
        facts.name,
        (facts.major, facts.minor),
        facts.multi_processor_count,
        facts.L2_cache_size,
        getattr(facts, "clock_rate", 0) / 1000,
        2 * clock * 1000 * bus / 8,
        uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}",
    )


def peak_flops(card: CardFacts, precision: str) -> float | None:
    """FLOP/s that the card can reach at its highest clock; None where it is not known."""
    rates, passes = PRECISIONS.get(precision, ({}, 1))
    rate = rates.get(card.capability)
    return rate * card.sms * card.clock_mhz * 1e6 / passes if rate and card.clock_mhz else None


def flops_share(card: CardFacts, precision: str, flops: int, us: float) -> float | None:
    """Share of the card's peak that `flops` operations in `us` microseconds are."""
    peak = peak_flops(card, precision)
    return flops / us * 1e6 / peak if peak else None


def bandwidth_share(card: CardFacts, bytes_moved: int, us: float) -> float | None:
    """Share of the card's theoretical DRAM bandwidth that `bytes_moved` in `us` are."""
    return bytes_moved / us * 1e6 / card.dram_bytes_per_s if card.dram_bytes_per_s else None
