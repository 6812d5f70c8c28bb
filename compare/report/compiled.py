"""The screen of `compiled`: what the compilers made of every implementation, side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from compare.compiled import Built, Code, Compilation
from compare.compiled.sass import CLASSES
from compare.report.words import clip, percent, shape_words, wrap

LABEL, COLUMN, ACROSS = 25, 25, 3
STATIC = tuple(CLASSES)
NAMES = {"fma": "FMA", "mufu": "MUFU (exp, 1/x ..)", "async copies": "global to shared"}


def lines(made: Compilation) -> list[str]:
    """Every line, at most 100 columns: groups of three kernels, then what could not be compiled."""
    found = [
        f"WHAT THE COMPILERS MADE   {made.pair} {shape_words(made.shape)} float32, for {made.arch}",
        "no card was asked; counts are static: each instruction once, however often it runs",
    ]
    columns = [(built, code) for built in made.builds for code in built.codes]
    for start in range(0, len(columns), ACROSS):
        found += ["", *_group(made, columns[start : start + ACROSS])]
    skipped = [built for built in made.builds if built.skipped]
    if skipped:
        found.append("")
    for built in skipped:
        found += wrap(f"  {clip(built.name, 24):<25}{built.skipped}", 27)
    for built, code in columns:
        for reason in (code.unfit and f"shared memory: {code.unfit}", code.broken):
            if reason:
                found += ["", *wrap(f"  {built.name}: {reason}", 4)]
    return found


def markdown(made: Compilation, names: Sequence[str]) -> list[str]:
    """The named implementations' first kernels as a GitHub table, a row for each number."""
    codes = {name: built.codes[0] for name in names if (built := made.built(name)) and built.codes}
    run = {name: made.executed.get(name, {}) for name in codes}
    moved = {name: made.moved.get(name, 0) // max(1, made.bytes) for name in codes}
    rows: list[tuple[str, Callable[[str, Code], str]]] = [
        ("model", lambda n, c: "block" if c.language == "triton" else "thread"),
        ("compiler", lambda n, c: c.compiler),
        ("threads that share a row", lambda n, c: f"{c.threads}"),
        ("barriers in the machine code", lambda n, c: f"{c.counts['barriers']}"),
        ("barriers each thread runs", lambda n, c: str(run[n].get("barriers, each thread", "."))),
        ("shuffles", lambda n, c: f"{c.counts['shuffles']}"),
        ("global loads", lambda n, c: _count(c, "global loads")),
        ("registers a thread", lambda n, c: f"{c.registers}"),
        ("shared memory", lambda n, c: f"{c.shared:,} bytes"),
        ("bytes asked for / bytes that must move", lambda n, c: f"{moved[n]}"),
        (f"who holds {made.element}", lambda n, c: made.holders.get(n, ".")),
    ]
    head = [f"| {made.pair} {shape_words(made.shape)}, {made.arch} |", "|---|"]
    for name in codes:
        head = [head[0] + f" {name} |", head[1] + "---|"]
    return head + [
        f"| {label} | " + " | ".join(cell(name, code) for name, code in codes.items()) + " |"
        for label, cell in rows
    ]


def _group(made: Compilation, columns: Sequence[tuple[Built, Code]]) -> list[str]:
    used = {name for _, code in columns for name in STATIC if code.counts.get(name)}
    rows: list[tuple[str, Callable[[Built, Code], str]]] = [
        ("kernel", lambda b, c: c.kernel),
        ("compiler", lambda b, c: c.compiler),
        ("config", lambda b, c: _config(c)),
        ("blocks (programs)", lambda b, c: " x ".join(f"{size:,}" for size in c.grid)),
        ("threads a block", lambda b, c: f"{c.threads} = {c.threads // 32} warps"),
        ("registers a thread", lambda b, c: str(c.registers)),
        ("local memory (spills)", lambda b, c: f"{c.stack} bytes" if c.stack else "none"),
        ("shared memory a block", lambda b, c: f"{c.shared:,} bytes"),
        ("  read from", lambda b, c: c.shared_from),
        ("occupancy", lambda b, c: _occupancy(c)),
        ("  limited by", lambda b, c: c.occupancy.limiter if c.occupancy else "."),
        ("", lambda b, c: ""),
        ("instructions", lambda b, c: f"{c.instructions:,}"),
    ]
    for name in STATIC:
        if name in used:
            rows.append((NAMES.get(name, name), lambda b, c, name=name: _count(c, name)))  # type: ignore[misc]
    rows.append(("machine code", lambda b, c: f"sha256 {c.sha[:8]}"))
    executed = [name for b, _ in columns for name in made.executed.get(b.name, {})]
    if executed:
        rows += [("", lambda b, c: ""), ("run by one block:", lambda b, c: "")]
    for name in dict.fromkeys(executed):
        rows.append((name, lambda b, c, name=name: _executed(made, b, name)))  # type: ignore[misc]
    rows += [
        ("", lambda b, c: ""),
        ("bytes that must move", lambda b, c: f"{made.bytes:,}"),
        ("bytes it asks for", lambda b, c: _moved(made, b)),
    ]
    if made.element:
        rows.append((f"who holds {made.element}", lambda b, c: made.holders.get(b.name, ".")))
    head = [
        "".ljust(LABEL) + _cells([b.name for b, _ in columns]),
        "".ljust(LABEL) + _cells([f"({_model(b)})" for b, _ in columns]),
    ]
    return [line.rstrip() for line in head] + [
        (f"  {label}".ljust(LABEL) + _cells([cell(b, c) for b, c in columns])).rstrip()
        for label, cell in rows
    ]


def _cells(texts: Sequence[str]) -> str:
    return "".join(clip(text, COLUMN - 1).ljust(COLUMN) for text in texts)


def _model(built: Built) -> str:
    return "block model" if built.language == "triton" else "thread model"


def _config(code: Code) -> str:
    if code.language == "cuda":
        return " ".join(code.options.get("options", ())) or "no options"
    sizes = "x".join(str(v) for k, v in code.options.items() if k.startswith("BLOCK"))
    return ", ".join(filter(None, (sizes, f"num_warps={code.options['num_warps']}")))


def _occupancy(code: Code) -> str:
    if code.occupancy is None:
        return f"not known for {code.arch}"
    if not code.occupancy.blocks:
        return "does not fit"
    blocks = code.occupancy.blocks
    return f"{percent(code.occupancy.share)}, {blocks} block{'s' if blocks > 1 else ''} an SM"


def _count(code: Code, name: str) -> str:
    """A count with its commonest width, or of MUFU the exponentials among it."""
    total = code.counts.get(name, 0)
    if name == "mufu":
        return f"{total} ({code.mufu['EX2']} exp)" if "EX2" in code.mufu else str(total)
    widths = sorted(code.widths.get(name, {}).items(), key=lambda item: -item[1])
    if not widths:
        return f"{total:,}"
    width, many = widths[0]
    return f"{total} of {_bits(width)}" if many == total else f"{total} ({many} of {_bits(width)})"


def _bits(width: str) -> str:
    return f"{width} bits" if width.isdigit() else width


def _executed(made: Compilation, built: Built, name: str) -> str:
    value = made.executed.get(built.name, {}).get(name)
    return "." if value is None else f"{value:,}"


def _moved(made: Compilation, built: Built) -> str:
    moved = made.moved.get(built.name)
    if moved is None:
        return "."
    return f"{moved:,} ({moved / made.bytes:.2f}x)" if made.bytes else f"{moved:,}"
