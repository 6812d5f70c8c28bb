"""The house: who may import whom, what stays unimported, and what the two sources share."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
GROUND = {
    "blackbox", "caches", "canary", "device", "errors", "findings", "inputs", "lesson_data",
    "machine", "memory", "messages", "pair", "results", "steps", "system", "tf32", "userpair",
}  # fmt: skip
INSTRUMENTS = {"accuracy", "timing", "order", "compiled", "threads"}
MIDDLE = {"changes", "pairs", "report", "workbench"}
COMMANDS = {
    "bits", "choices", "diff", "doctor", "facts", "kept", "lesson", "run", "selftest",
    "show_compiled", "show_threads", "sweep", "userfile",
}  # fmt: skip
TOP = {"arguments", "cli", "__main__"}


def sources():
    for package in ("compare", "triton_impl", "cuda_ref"):
        yield from (ROOT / package).rglob("*.py")


def imports(path):
    """Dotted names of everything that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def unit(dotted):
    """`compare.report.words` -> `report`; "" for what is not of compare."""
    parts = dotted.split(".")
    return parts[1] if parts[0] == "compare" and len(parts) > 1 else ""


def floor(name):
    floors = (GROUND, INSTRUMENTS, MIDDLE, COMMANDS, TOP)
    return next((level for level, names in enumerate(floors) if name in names), None)


def of_compare():
    for path in (ROOT / "compare").rglob("*.py"):
        if path.name != "__init__.py":
            parts = path.relative_to(ROOT / "compare").with_suffix("").parts
            yield path, parts[0]


def test_every_module_stands_on_a_floor():
    homeless = sorted({name for _, name in of_compare() if floor(name) is None})
    assert homeless == []


def test_floors_use_only_those_below():
    """Modules of one floor may know each other, but instruments don't."""
    wrong = []
    for path, name in of_compare():
        for other in filter(None, map(unit, imports(path))):
            level, below = floor(name), floor(other)
            if below is None:
                continue  # a name imported from a module, not a module
            strangers = {name, other} <= INSTRUMENTS and name != other
            if below > level or strangers:
                wrong.append(f"{path.relative_to(ROOT)} imports {other}")
    assert wrong == []


def test_kernels_know_neither_the_workbench_nor_each_other():
    for package, foreign in (
        ("triton_impl", {"compare", "cuda_ref", "cupy", "cupy_backends"}),
        ("cuda_ref", {"compare", "triton_impl", "triton", "torch"}),
    ):
        for path in (ROOT / package).rglob("*.py"):
            known = {dotted.split(".")[0] for dotted in imports(path)}
            assert not known & foreign, path


@pytest.mark.parametrize("call", (["--help"], ["list"], ["run", "--help"]))
def test_help_and_list_import_nothing_heavy(call):
    program = (
        "import sys; sys.argv = ['compare', *sys.argv[1:]]\n"
        "from compare.cli import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        "heavy = {'torch', 'triton', 'cupy', 'jinja2', 'scipy'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run(
        [sys.executable, "-c", program, *call], cwd=ROOT, check=True, capture_output=True
    )


def labels(path):
    return re.findall(r"^\s*(?:#|//) (\[[a-z ]+\])$", path.read_text(encoding="utf-8"), re.M)


@pytest.mark.parametrize(
    "triton, cuda, steps",
    (
        ("softmax.py", "softmax_rows.cu", 4),
        ("softmax.py", "softmax_onepass.cu", 4),
        ("matmul.py", "matmul_tiled.cu", 4),
    ),
)
def test_both_sources_carry_the_same_steps_in_the_same_order(triton, cuda, steps):
    block = labels(ROOT / "triton_impl" / triton)
    thread = labels(ROOT / "cuda_ref" / cuda)
    assert len(block) == steps
    assert block == thread


def test_kernel_lines_fit_a_column_of_the_lesson():
    """47 characters within the kernel's own indentation; launchers may be wider."""
    wide = []
    for path in (ROOT / "triton_impl" / name for name in ("softmax.py", "matmul.py")):
        text = path.read_text(encoding="utf-8")
        for node in ast.parse(text).body:
            if isinstance(node, ast.FunctionDef) and node.decorator_list:
                lines = text.splitlines()[node.body[0].lineno - 1 : node.end_lineno]
                wide += [f"{path.name}: {line}" for line in lines if len(line) > 47 + 4]
    for name in ("softmax_rows.cu", "matmul_tiled.cu"):
        text = (ROOT / "cuda_ref" / name).read_text(encoding="utf-8")
        kernel = text[text.index('extern "C"') :]
        wide += [f"{name}: {line}" for line in kernel.splitlines() if len(line) > 47]
    assert wide == []


def test_nothing_else_stands_at_the_top():
    tracked = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.split()
    if not tracked:
        pytest.skip("not a git checkout")
    allowed = {
        "triton_impl", "cuda_ref", "compare", "tests", "pyproject.toml", "README.md", "LICENSE",
    }  # fmt: skip
    top = {name.split("/")[0] for name in tracked}
    assert {name for name in top if not name.startswith(".")} <= allowed
