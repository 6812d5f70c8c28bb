"""compute-sanitizer over every GPU kernel: no error, and its planted faults reported.

    python -m pytest -m gpu tests/test_sanitizer.py     one tool after the other
    python tests/test_sanitizer.py [FOLDER]             all at once, a table; what they wrote

What is run, and how its memory lies, is in `sanitized.py`.
"""

import ast
import itertools
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from sanitized import TOOLS

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
LIMIT = 300  # seconds for one tool
FOUND = 9  # the tool's exit code where it has something to report
SAYS = {
    "memcheck": "Invalid __global__ write",
    "racecheck": "Race reported between",
    "initcheck": "Uninitialized __global__ memory read",
    "synccheck": "Barrier error detected",
}
OPTIONS = (
    "--error-exitcode", str(FOUND), "--print-limit", "20", "--show-backtrace", "device",
    "--target-processes", "application-only",  # not the compilers that Triton starts
    "--destroy-on-device-error", "kernel",  # the context lives on, and with it the run
    "--launch-timeout", "60",
)  # fmt: skip
# A driver without a function that torch or CuPy asks for is no fault of a kernel. Arrays may lie
# side by side: memcheck keeps them apart.
MEMCHECK = ("--report-api-errors", "no", "--padding", "512")


def binary() -> str:
    """Where compute-sanitizer is, "" where it is not."""
    homes = [os.environ[name] for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    homes += sorted(map(str, Path("/usr/local").glob("cuda*")))
    inside = [f"{home}/{folder}" for home in homes for folder in ("bin", "compute-sanitizer")]
    folders = os.pathsep.join([os.environ.get("PATH", ""), *inside])
    return shutil.which("compute-sanitizer", path=folders) or ""


def version(path: str) -> str:
    told = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"Version (\S+)", told)
    return found[1] if found else "of an unknown version"


@dataclass(frozen=True)
class Report:
    """What one tool wrote about one run of `sanitized.py`."""

    tool: str
    planted: bool  # a planted fault, or every kernel
    code: int
    text: str
    seconds: float = 0.0

    @property
    def errors(self) -> int | None:
        """Errors and warnings that the tool counts, printed or not; None without a summary."""
        summary = r"^=+ ERROR SUMMARY: (\d+)() errors?$"  # not that of those it did not print
        if self.tool == "racecheck":
            summary = r"^=+ RACECHECK SUMMARY: .* displayed \((\d+) errors?, (\d+) warnings?\)$"
        found = re.search(summary, self.text, re.M)
        return int(found[1]) + int(found[2] or 0) if found else None

    @property
    def launched(self) -> tuple[int, int]:
        """How many kernels were launched how often; 0 and 0 where the run did not end."""
        found = re.search(r"^(\d+) kernels, (\d+) launches$", self.text, re.M)
        return (int(found[1]), int(found[2])) if found else (0, 0)

    @property
    def wrong(self) -> str:
        """Why this is not what must be, "" where it is."""
        if self.errors is None:
            return f"{self.tool} ended with {self.code} and no summary"
        if self.planted:
            where = rf"^=+ .*\bplanted_{self.tool}\b"
            named = re.search(where, self.text, re.M) and SAYS[self.tool] in self.text
            caught = self.errors and self.code and named
            return "" if caught else f"{self.tool} did not report its planted fault"
        if self.errors or self.code:
            return f"{self.tool} counts {self.errors} errors and ended with {self.code}"
        return "" if all(self.launched) else f"{self.tool} saw no kernel"


def run(tool: str, planted: bool) -> Report:
    """`sanitized.py` under one tool, killed with all that it started after LIMIT seconds."""
    # 8 of them may run at once: each has ports of its own.
    port = 49152 + 100 * (2 * TOOLS.index(tool) + planted)
    what = ["fault", tool] if planted else ["clean"]
    if tool == "memcheck" and not planted:
        what.append("--cublas")
    command = [
        binary(), "--tool", tool, "--port", str(port), *OPTIONS,
        *(MEMCHECK if tool == "memcheck" else ()),
        sys.executable, str(HERE / "sanitized.py"), *what,
    ]  # fmt: skip
    began = time.monotonic()
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        errors="replace", start_new_session=True,
    )  # fmt: skip
    try:
        text, _ = process.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        text = process.communicate()[0] + f"\nended after {LIMIT} s"
    return Report(tool, planted, process.returncode, text, time.monotonic() - began)


@pytest.mark.gpu
@pytest.mark.parametrize("tool", TOOLS)
def test_no_kernel_has_an_error_and_the_planted_fault_is_reported(tool, record_property, capsys):
    if not binary():
        pytest.skip("no compute-sanitizer here: it comes with the CUDA toolkit")
    clean, fault = run(tool, planted=False), run(tool, planted=True)
    for report in (clean, fault):
        assert not report.wrong, f"{report.wrong}\n{report.text[-8000:]}"
    words = "{} kernels, {} launches, 0 errors".format(*clean.launched)
    record_property(tool, f"{words}, compute-sanitizer {version(binary())}")
    with capsys.disabled():
        print(f"\n{tool}: {words}, compute-sanitizer {version(binary())}")


# -- without a card --------------------------------------------------------------------------------


def jit_kernels() -> set[str]:
    """Triton kernels of the package: jit functions that no other jit function calls."""
    defined, called = set(), set()
    for path in (*(ROOT / "triton_impl").rglob("*.py"), *(ROOT / "compare").rglob("*.py")):
        if path.name == "canary.py":  # the interpreter's alone
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and any(
                "triton.jit" in ast.unparse(mark) for mark in node.decorator_list
            ):
                defined.add(node.name)
                called |= {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
    return {f"triton {name}" for name in defined - called}


def in_python() -> set[str]:
    """CUDA kernels that stand in a string of the package: only a card runs them."""
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "compare").rglob("*.py")]
    return {f"cuda {name}" for s in sources for name in re.findall(r"__global__ void (\w+)\(", s)}


def test_every_kernel_that_the_project_ships_is_launched():
    nvrtc = pytest.importorskip("cupy_backends.cuda.libs.nvrtc")
    from compare.bits.evidence import nvrtc_ptx
    from triton_impl.matmul_descriptor import descriptors_round

    if not shutil.which("g++"):
        pytest.skip("the emulator needs g++")
    shipped = jit_kernels()
    for path in (ROOT / "cuda_ref").glob("*.cu"):
        arch = f"compute_{min(nvrtc.getSupportedArchs())}"
        ptx = nvrtc_ptx(path.read_text(encoding="utf-8"), (), arch)
        shipped |= {f"cuda {name}" for name in re.findall(r"\.entry (\w+)\(", ptx)}
    if not descriptors_round():
        shipped -= {"triton descriptor_kernel"}
    assert in_python() == {"cuda empty_kernel", "cuda one"}
    command = [sys.executable, "-W", "ignore", str(HERE / "sanitized.py"), "clean", "--host"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    counts = Counter({name: int(n) for n, name in re.findall(r"^ +(\d+) (.+)$", ran.stdout, re.M)})
    assert set(counts) == shipped
    report = Report("memcheck", False, 0, f"{ran.stdout}========= ERROR SUMMARY: 0 errors\n")
    assert report.wrong == "" and report.launched == (len(counts), counts.total())


def test_every_planted_fault_compiles_with_its_lines():
    from compiling import nvrtc

    from compare.compiled.compilers import cubin

    if reason := nvrtc():
        pytest.skip(reason)
    source = (HERE / "sanitizer_faults.cu").read_text(encoding="utf-8")
    for tool in TOOLS:
        binary, _ = cubin(source, "planted", ("-lineinfo",), "sm_90")
        assert f".text.planted_{tool}".encode() in binary and b".debug_line" in binary


END, RACES = "========= ERROR SUMMARY: ", "========= RACECHECK SUMMARY: "
RAN = "   2 triton x\n17 kernels, 124 launches\n"
AT = "========= {}\n=========     at planted_{}(float *)+0x90 in a.cu:6\n"


@pytest.mark.parametrize(
    "tool, planted, code, text, errors, wrong",
    (
        ("memcheck", False, 0, RAN + END + "0 errors\n", 0, ""),
        ("memcheck", False, 9, RAN + END + "1 error\n", 1, "counts 1 errors"),
        ("memcheck", False, 1, RAN + END + "0 errors\n", 0, "ended with 1"),
        ("memcheck", False, 0, END + "0 errors\n", 0, "saw no kernel"),
        ("memcheck", False, 0, RAN, None, "no summary"),
        ("memcheck", False, 9, f"{RAN}{END}239 errors were not printed. Use\n{END}259 errors\n",
         259, "counts 259"),
        ("racecheck", False, 0, RAN + RACES + "0 hazards displayed (0 errors, 0 warnings)\n", 0,
         ""),
        ("racecheck", False, 9, RAN + RACES + "1 hazard displayed (0 errors, 1 warning)\n", 1,
         "counts 1"),
        ("racecheck", False, 0, RAN + END + "0 errors\n", None, "no summary"),
        ("synccheck", True, 9, AT.format(SAYS["synccheck"], "synccheck") + END + "32 errors\n", 32,
         ""),
        ("synccheck", True, 9, AT.format(SAYS["memcheck"], "synccheck") + END + "32 errors\n", 32,
         "did not report"),
        ("synccheck", True, 9, AT.format(SAYS["synccheck"], "memcheck") + END + "32 errors\n", 32,
         "did not report"),
        ("synccheck", True, 0, END + "0 errors\n", 0, "did not report"),
    ),
)  # fmt: skip
def test_what_a_tool_wrote_is_read(tool, planted, code, text, errors, wrong):
    report = Report(tool, planted, code, text)
    assert report.errors == errors
    assert wrong in report.wrong and bool(wrong) == bool(report.wrong)


def main() -> int:
    """Every tool over every kernel and over its planted fault, at once; a line a tool."""
    if not binary():
        print("no compute-sanitizer here: it comes with the CUDA toolkit")
        return 2
    with ThreadPoolExecutor(2 * len(TOOLS)) as pool:
        clean = [pool.submit(run, tool, False) for tool in TOOLS]
        planted = [pool.submit(run, tool, True) for tool in TOOLS]
    print(f"compute-sanitizer {version(binary())}")
    print(f"{'tool':10}  kernels  launches  errors  planted fault  seconds")
    reports = [(one.result(), two.result()) for one, two in zip(clean, planted, strict=True)]
    for one, two in reports:
        kernels, launches = one.launched
        told = "missed" if two.wrong else "reported"
        print(f"{one.tool:10}  {kernels:7}  {launches:8}  {one.errors!s:>6}  {told:>13}", end="")
        print(f"  {one.seconds:7.0f}")
    for folder in sys.argv[1:]:
        Path(folder).mkdir(parents=True, exist_ok=True)
    for report in itertools.chain(*reports) if sys.argv[1:] else ():
        name = f"{report.tool}-{'fault' if report.planted else 'clean'}.txt"
        Path(sys.argv[1], name).write_text(report.text, encoding="utf-8")
    bad = [report for report in itertools.chain(*reports) if report.wrong]
    for report in bad:
        print(f"\n{report.wrong}\n{report.text[-4000:]}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
