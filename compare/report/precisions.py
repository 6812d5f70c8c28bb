"""The screen of `run matmul --precision all`: a pure function of what was found."""

from __future__ import annotations

from tabulate import tabulate

from compare.findings import Precisions, Variant
from compare.report.words import error_words, microseconds, rate, shape_words, wrap

REFERENCE = "cublas COMPUTE_32F"


def lines(found: Precisions) -> list[str]:
    """At most 100 columns: a row a precision, the most exact first; what beats cuBLAS's FP32."""
    label = f"   {found.recorded}" if found.recorded else ""
    out = [f"EVERY PRECISION   matmul {shape_words(found.shape)} float32{label}"]
    if not found.rows:
        return [
            *out,
            "",
            "  needs a card: the interpreter multiplies in full FP32 whatever is asked",
        ]
    rows = [
        [
            row.words if row.words.startswith("cublas") else f"triton {row.words}",
            *row.choice,
            error_words(row.error),
            microseconds(row.us),
            rate(found.flops, row.us) if row.us else ".",
        ]
        for row in found.rows
    ]
    heads = ["", "multiplies", "config", "error", "cold us", "rate"]
    text = tabulate(rows, headers=heads, tablefmt="plain", disable_numparse=True)
    out += ["", *(f"  {line}"[:100].rstrip() for line in text.splitlines()), ""]
    for sentence in sentences(found.rows):
        out += wrap(f"  {sentence}", 2)
    out += [line for name, why in found.skipped for line in wrap(f"  not run  {name}: {why}", 11)]
    return out + ["", f"exit {found.exit_code}"]


def sentences(rows: tuple[Variant, ...]) -> list[str]:
    """What is more exact than cuBLAS's FP32, and faster as well."""
    full = next((row for row in rows if row.words == REFERENCE), None)
    if full is None or not full.us:
        return []
    both: list[str] = []
    exact: list[str] = []
    for row in rows:
        if row is full or not row.us or row.error >= full.error or row.words == "ieee":
            continue
        times = f"{row.words} errs {full.error / row.error:.1f} times less than cuBLAS in FP32"
        pace = row.us / full.us
        (both if pace < 1 else exact).append(f"{times} and takes {pace:.2f}x its time")
    return [f"{text}: more exact and faster." for text in both] + [f"{text}." for text in exact]
