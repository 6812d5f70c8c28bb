"""From a .cu file's bytes to a shared library that runs its kernel on the CPU.

The source stands between two inclusions of `cuda_on_cpu.h`, under a `#line 1`, so that a compiler's
message and an address have the file's own line numbers. Two spellings are replaced, each in place:
`extern __shared__ T name[];`, which C++ has no word for, and an include of CUDA's runtime headers,
whose names are already there. Libraries are kept in a folder that only this user can write.
"""

from __future__ import annotations

import atexit
import functools
import hashlib
import os
import platform
import re
import shlex
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

HEADERS = sorted(Path(__file__).parent.glob("*.h"))
PROCESSORS = ("x86_64", "aarch64")
RUNTIME_HEADERS = "cuda_runtime.h", "cuda.h", "device_launch_parameters.h"
DEFINE = r"-D(\w+)(?:=(.*))?"
INSTALL = "install g++ or clang, or set CXX"
# Names of C headers that NVRTC has no more than the emulator, and what to write instead.
HEADERLESS = {
    "INFINITY": "__int_as_float(0x7f800000)",
    "NAN": "__int_as_float(0x7fffffff)",
    "FLT_MAX": "__int_as_float(0x7f7fffff)",
}


class KernelError(ValueError):
    """A kernel that can't be built or called as asked. Says it in one sentence; `log` has more."""

    def __init__(self, sentence: str, log: str = "") -> None:
        super().__init__(sentence)
        self.log = log


def compiler() -> list[str]:
    """The C++ compiler as a command: CXX, else g++, c++ or clang++. KernelError where none is."""
    if platform.machine() not in PROCESSORS:
        raise KernelError(f"needs a card: the emulator does not know {platform.machine()}")
    wanted = shlex.split(os.environ.get("CXX", ""))
    for command in [wanted] if wanted else [["g++"], ["c++"], ["clang++"]]:
        if found := shutil.which(command[0]):
            return [found, *command[1:]]
    named = f"CXX={wanted[0]} is not there" if wanted else "no C++ compiler was found"
    raise KernelError(f"needs a card or a C++ compiler: {named}; {INSTALL}")


@functools.lru_cache
def compiler_version(command: tuple[str, ...]) -> str:
    """The first line of `--version`, for example "g++ (Debian 12.2.0-14) 12.2.0"."""
    answer = subprocess.run([*command, "--version"], capture_output=True, text=True, check=False)
    return answer.stdout.partition("\n")[0].strip()


def has_fma() -> bool:
    """Whether this processor multiplies and adds in one rounding."""
    if platform.machine() == "aarch64":
        return True
    try:
        return bool(re.search(r"^flags\s*:.*\bfma\b", Path("/proc/cpuinfo").read_text(), re.M))
    except OSError:
        return False


def flags(options: Sequence[str], *, traced: bool) -> list[str]:
    """The compiler's flags for NVRTC's `options`. KernelError for one without a counterpart here.

    FP contraction is NVRTC's default (`--fmad=true`). Never -march=native or -ffast-math: the bits
    must not depend on the host, and the order of a sum is the source's.
    """
    chosen = ["-std=c++17", "-fPIC", "-w", "-fno-math-errno", "-fno-strict-aliasing"]
    # The traced build is unoptimised: each access is the one that the source writes, on its line.
    chosen += ["-O0", "-g", "-fsanitize=thread"] if traced else ["-O2"]
    if traced and "clang" in compiler_version(tuple(compiler())):
        chosen += ["-mllvm", "-tsan-instrument-read-before-write=1"]  # the read of x += 1 too
    contract = "fast"
    for option in options:
        if re.fullmatch(DEFINE, option):
            continue  # `unit` writes it before the source alone
        if re.fullmatch(r"--?fmad=(true|false)", option):
            contract = "fast" if option.endswith("true") else "off"
        elif option not in ("--use_fast_math", "-use_fast_math") and not option.startswith("-std="):
            raise KernelError(f"option {option} has no counterpart on the emulator; leave it out")
    chosen.append(f"-ffp-contract={contract}")
    if platform.machine() == "x86_64" and has_fma():
        chosen.append("-mfma")
    return chosen


def describe(options: Sequence[str] = ()) -> dict[str, str]:
    """What can change a bit of a kernel run on the emulator, as words to print."""
    contracted = "-ffp-contract=fast" in flags(options, traced=False) and has_fma()
    fast = any("use_fast_math" in option for option in options)
    return {
        "compiler": compiler_version(tuple(compiler())),
        "FP contraction": "on, a * b + c is one fma" if contracted else "off",
        "flush to zero": "on, as CuPy's -ftz=true",
        "expf": "the C library's" + (", for __expf too: fast-math is not modelled" if fast else ""),
        "division": "IEEE" + (", also for __fdividef" if fast else ""),
    }


def without_comments(source: str) -> str:
    """`source` with comments and literals blanked, every character left in its place."""
    pattern = r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\''

    def blank(match: re.Match[str]) -> str:
        text = match[0]
        return '"C"' if text == '"C"' else re.sub(r"[^\n]", " ", text)

    return re.sub(pattern, blank, source, flags=re.S)


def kernels(source: str) -> list[str]:
    """The names of the `__global__` functions in `source`, in order."""
    pattern = r"__global__\s+(?:\w+\s+)*?(?:__launch_bounds__\s*\([^)]*\)\s*)?(\w+)\s*\("
    text = re.sub(r"__launch_bounds__\s*\((?:[^()]|\([^()]*\))*\)", "", without_comments(source))
    return re.findall(pattern, text)


def has_c_name(source: str, name: str) -> bool:
    """False where kernel `name` is written without extern "C": a card would not find it."""
    text = without_comments(source)
    kernel = re.search(rf"__global__[^;{{}}]*?\b{name}\s*\(", text)
    before = text[: kernel.start()] if kernel else ""
    if not kernel or re.search(r'extern\s*"C"\s*$', before):
        return True
    blocks = [match.end() for match in re.finditer(r'extern\s*"C"\s*\{', before)]
    return any(before.count("{", end) >= before.count("}", end) for end in blocks)


def replace_spellings(source: str, label: str) -> str:
    """`source` with the two spellings of the module's docstring replaced, line for line."""
    text = without_comments(source)
    edits = []
    for match in re.finditer(r"^[ \t]*#[ \t]*include\b[ \t]*([^\n]*)", source, re.M):
        if not text[match.start() : match.end()].strip():
            continue  # inside a comment
        name = match[1].strip().split("//")[0].strip().strip('<>"')
        if name not in RUNTIME_HEADERS:
            line = source.count("\n", 0, match.start()) + 1
            raise KernelError(
                f"{label} line {line} includes {name}: the emulator, like RawKernel, compiles a "
                "kernel without headers; leave the line out"
            )
        edits.append((match.start(), match.end(), ""))
    dynamic = r"\bextern\s+__shared__\s+([\w\s()]+?)\s*\b(\w+)\s*\[\s*\]\s*;"
    for match in re.finditer(dynamic, text):
        lines = "\n" * match[0].count("\n")
        edits.append((*match.span(), f"CUDA_DYNAMIC_SHARED({match[1]}, {match[2]});{lines}"))
    for start, end, new in sorted(edits, reverse=True):
        source = source[:start] + new + source[end:]
    return source


def unit(source: str, name: str, label: str, options: Sequence[str], *, traced: bool) -> str:
    """The whole C++ text that is compiled: the language, the kernel's source, the launch.

    The source stands in an unnamed namespace, since a __shared__ in an inline function must be one
    variable of this library. Its macros end with it.
    """
    given = [match.groups() for option in options if (match := re.fullmatch(DEFINE, option))]
    before = "".join(f"#define {macro} {value or 1}\n" for macro, value in given)
    macros = re.findall(r"^[ \t]*#[ \t]*define[ \t]+(\w+)", without_comments(source), re.M)
    after = "".join(f"#undef {macro}\n" for macro in [*(macro for macro, _ in given), *macros])
    trace = "#define CUDA_ON_CPU_TRACE\n" if traced else ""
    return (
        f'{trace}#include "cuda_on_cpu.h"\n'
        "namespace {\nenum { cuda_first_site = __COUNTER__ + 1 };\n"
        f'{before}#line 1 "{label}"\n{replace_spellings(source, label)}\n'
        f'#line 1 "launch"\n{after}enum {{ cuda_sites = __COUNTER__ - cuda_first_site }};\n'
        f'constexpr auto cuda_kernel = &{name};\n}}\n#include "launch.h"\n'
    )


def build(
    source: str,
    name: str,
    *,
    label: str = "kernel.cu",
    options: Sequence[str] = (),
    traced: bool = False,
) -> Path:
    """The library of kernel `name` of `source`, compiled unless the cache has it.

    `label` is the file's name in messages and lines. KernelError: no compiler, a processor that the
    emulator does not know, no such kernel, a name or option that is not supported.
    """
    if not re.fullmatch(r"[A-Za-z_]\w*", name):
        raise KernelError(f"{name!r} is no kernel name; {label} has {listed(kernels(source))}")
    if not has_c_name(source, name):
        raise KernelError(
            f'kernel {name} in {label} has a C++ name: write extern "C" before __global__'
        )
    label = re.sub(r"[^\w./ -]", "_", label)
    command, chosen = compiler(), flags(options, traced=traced)
    text = unit(source, name, label, options, traced=traced)
    parts = [text, *command, compiler_version(tuple(command)), *chosen, platform.machine()]
    parts += [header.read_text(encoding="utf-8") for header in HEADERS]
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]
    library = cache_folder() / f"{key}.so"
    if not library.exists():
        compile_to(library, text, command, chosen, kernel=(source, name, label))
    return library


def compile_to(
    library: Path, text: str, command: list[str], chosen: list[str], kernel: tuple[str, str, str]
) -> None:
    """Writes `library` whole or not at all; two processes at once write the same bytes."""
    with tempfile.TemporaryDirectory(dir=library.parent) as folder:
        code, made, done = (Path(folder) / part for part in ("unit.cpp", "unit.o", "unit.so"))
        code.write_text(text, encoding="utf-8")
        include = ["-I", str(HEADERS[0].parent)]
        # Compiled and linked apart: the sanitizer's calls are answered by diagnose.h, not libtsan.
        steps = (
            [*command, *chosen, *include, "-c", str(code), "-o", str(made)],
            [*command, "-shared", str(made), "-o", str(done), "-lm"],
        )
        for step in steps:
            answer = subprocess.run(
                step,
                capture_output=True,
                text=True,
                errors="replace",
                env={**os.environ, "LC_ALL": "C"},
                check=False,
            )
            if answer.returncode:
                ours = answer.stderr.partition("In file included from launch")[0]
                raise KernelError(sentence(answer.stderr, *kernel), ours)
        os.replace(done, library)


def sentence(log: str, source: str, name: str, label: str) -> str:
    """One sentence for a compiler's message: its first error, in words of the kernel's author."""
    ours = rf"^{re.escape(label)}:(\d+):(?:\d+:)? (?:fatal )?error: (.*)$"
    unknown = (
        r"'([^']+)' (?:was not declared|has not been declared|does not name a type)"
        r"|undeclared identifier '([^']+)'|unknown type name '([^']+)'"
    )
    errors = re.findall(ours, log, re.M)
    for line, message in errors:
        if line == errors[0][0] and (match := re.search(unknown, message)):
            lacking = next(filter(None, match.groups()))
            if instead := HEADERLESS.get(lacking):
                return f"{label} line {line}: NVRTC has no {lacking}; write {instead}"
            return (
                f"{label} line {line}: {lacking} is not declared, or runs on a card only: the "
                "emulator does not support it"
            )
    if errors:
        return f"{label} line {errors[0][0]}: {errors[0][1]}"
    absent = rf"^launch:.*('{name}' was not declared|undeclared identifier '{name}')"
    if re.search(absent, log, re.M):
        return f"{label} has no kernel {name}; it has {listed(kernels(source))}"
    first = re.search(r"error: (.*)", log)
    return f"{label} can't be compiled: {first[1] if first else log.strip()[-200:] or 'no message'}"


def listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"


@functools.lru_cache
def cache_folder() -> Path:
    """A folder of this user alone, in the user's cache or, where that can't be written, in /tmp."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    try:
        root = Path(base) if os.path.isabs(base) else Path.home() / ".cache"
        folder = root / "triton-vs-cuda"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        owned = folder.stat()
        private = owned.st_uid == os.getuid() and not owned.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        if private and os.access(folder, os.W_OK | os.X_OK):
            return folder
    except (OSError, RuntimeError):
        pass
    folder = Path(tempfile.mkdtemp(prefix="triton-vs-cuda-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
