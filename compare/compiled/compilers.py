"""The two compilers, each asked for one kernel's machine code: Triton and NVRTC.

Every private or shifting seam of either is a function here: Triton's launch, its driver, its
compiled kernel; NVRTC's binding.
"""

from __future__ import annotations

import contextlib
import functools
import math
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from compare.compiled import layout as layouts
from compare.compiled import sass
from compare.compiled.layout import Layout
from compare.compiled.occupancy import (
    ARCHS,
    RESERVED_SHARED,
    Occupancy,
    capability,
    fits,
    occupancy,
)


@dataclass(frozen=True)
class Code:
    """One kernel as its compiler left it, for one architecture. Counts are static.

    `stack` is local memory in bytes a thread, where spilled registers live. `shared` is what a
    block asks for, static and dynamic, in bytes; `shared_from` names where the figure was read.
    `sha` is of the machine code. `unfit` says why a block can't run on `arch`, `broken` which
    promise of its precision the code does not keep; both "" where all is well. `occupancy` is None
    for an architecture whose limits are not known here.
    """

    kernel: str
    language: str  # "triton" | "cuda"
    compiler: str  # with its version
    arch: str
    grid: tuple[int, ...]
    threads: int
    registers: int
    stack: int
    shared: int
    shared_from: str
    instructions: int
    counts: Mapping[str, int]
    widths: Mapping[str, Mapping[str, int]]
    mufu: Mapping[str, int]
    sha: str
    occupancy: Occupancy | None = None
    unfit: str = ""
    broken: str = ""
    loaded: Layout | None = None  # Triton: how the first block that is read lies in the threads
    summed: Layout | None = None  # Triton: how the accumulator of `tl.dot` does
    shuffles: tuple[int, ...] = ()  # Triton: at which distance lanes exchange values, in order
    options: Mapping[str, Any] = field(default_factory=dict)


_SHUFFLE = r"shfl\.sync\.bfly\.b32[^;]*, (\d+), \d+, -1;"


class Missing(Exception):
    """A compiler is not here; the sentence says which and what to install."""


@contextlib.contextmanager
def watch_triton(*, dry: bool = False) -> Iterator[list[tuple[Any, tuple[int, ...]]]]:
    """Notes every Triton kernel that is launched inside: (CompiledKernel, grid), in order.

    `dry` compiles and launches nothing. Watches `JITFunction.run`, which every launch goes through.
    """
    from triton.runtime.jit import JITFunction

    seen: list[tuple[Any, tuple[int, ...]]] = []
    original = JITFunction.run

    def run(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        kernel = original(self, *args, grid=grid, warmup=warmup or dry, **kwargs)
        if kernel is not None:
            seen.append((kernel, () if callable(grid) else tuple(grid)))
        return kernel

    JITFunction.run = run
    try:
        yield seen
    finally:
        JITFunction.run = original


def of_triton(kernel: Any, grid: tuple[int, ...], precision: str) -> Code:
    """What a `triton.compiler.CompiledKernel` holds, whether it was loaded on a card or not."""
    import triton
    from triton.backends.nvidia.compiler import get_ptxas_version

    facts = kernel.metadata
    number = facts.target.arch
    release = re.search(r"release (\S+),", get_ptxas_version(number))
    constants = {
        kernel.src.fn.arg_names[path[0]]: value for path, value in kernel.src.constants.items()
    }
    return _code(
        sass.listing(kernel.asm["cubin"], facts.name),
        kernel=facts.name,
        language="triton",
        compiler=f"triton {triton.__version__}, ptxas {release[1] if release else 'unknown'}",
        arch=f"sm_{number}",
        grid=grid,
        threads=facts.num_warps * facts.warp_size,
        shared=facts.shared,
        shared_from="Triton's metadata",
        broken=sass.claims(kernel.asm["ptx"], precision),
        loaded=layouts.loaded(kernel.asm["ttgir"]),
        summed=layouts.summed(kernel.asm["ttgir"]),
        shuffles=tuple(map(int, re.findall(_SHUFFLE, kernel.asm["ptx"]))),
        options={
            **{name: value for name, value in constants.items() if name.isupper()},
            "num_warps": facts.num_warps,
            "num_stages": facts.num_stages,
        },
    )


def dry_triton(
    launcher: Callable[..., Any],
    shapes: Sequence[tuple[int, ...]],
    options: Mapping[str, Any],
    arch: str,
) -> list[tuple[Any, tuple[int, ...]]]:
    """The kernels that `launcher(*arrays of these shapes, **options)` would launch, with grids."""
    import torch
    from triton.runtime import driver

    arrays = [torch.empty(shape, dtype=torch.float32, device="meta") for shape in shapes]
    before = driver._active
    driver.set_active(_stand_in(arch))
    try:
        with watch_triton(dry=True) as seen, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what a compiler warns of is no part of the screen
            launcher(*arrays, **options)
    finally:
        driver.set_active(before)
    return seen


def _stand_in(arch: str) -> Any:
    """A driver that names `arch` as its only device and can do nothing else."""
    import torch
    from triton.backends.compiler import GPUTarget
    from triton.backends.driver import DriverBase

    class StandIn(DriverBase):
        @classmethod
        def is_active(cls) -> bool:
            return False

        def get_current_target(self) -> Any:
            return GPUTarget("cuda", capability(arch), 32)

        def get_current_device(self) -> str:
            return arch  # kernels are kept by device: one architecture, one device

        def get_current_stream(self, device: str) -> int:
            return 0

        def get_active_torch_device(self) -> Any:
            return torch.device("meta")

        def map_python_to_cpp_type(self, ty: str) -> str:
            raise NotImplementedError("nothing is launched")

        def get_benchmarker(self) -> Any:
            raise Missing("autotuned: its config is chosen by timing it, on a card")

    return StandIn()


@contextlib.contextmanager
def watch_cuda(*, dry: bool = False) -> Iterator[list[Any]]:
    """Notes every `cuda_ref.kernel.Launch` that is asked for inside, in order; `dry` runs none. Of
    what ran the arrays are not kept: that would keep a card's memory."""
    from cuda_ref import kernel

    seen: list[Any] = []

    def watcher(launch: Any) -> bool:
        seen.append(launch if dry else replace(launch, args=()))
        return dry

    kernel.watchers.append(watcher)
    try:
        yield seen
    finally:
        kernel.watchers.remove(watcher)


def of_cuda(launch: Any, precision: str, arch: str) -> Code:
    """What NVRTC makes of a launch's source with its options. Raises what `cubin` raises."""
    source = launch.file.read_text(encoding="utf-8")
    binary, compiler = cubin(source, launch.name, launch.options, arch)
    read = sass.listing(binary, launch.name)
    # From sm_90 on the tool's figure holds the kilobyte that the driver takes of every block.
    reserved = RESERVED_SHARED if capability(arch) >= 90 else 0
    return _code(
        read,
        kernel=launch.name,
        broken=sass.claims(read.text, precision),
        language="cuda",
        compiler=compiler,
        arch=arch,
        grid=launch.grid,
        threads=math.prod(launch.block),
        shared=max(0, read.shared - reserved) + launch.shared_mem,
        shared_from="cuobjdump",
        options={"options": launch.options, "block": launch.block},
    )


def dry_cuda(
    launcher: Callable[..., Any],
    shapes: Sequence[tuple[int, ...]],
    options: Mapping[str, Any],
) -> list[Any]:
    """What `launcher(*arrays of these shapes, **options)` would launch; nothing is compiled."""
    with watch_cuda(dry=True) as seen:
        launcher(*(np.empty(shape, np.float32) for shape in shapes), **options)
    return seen


@functools.lru_cache(maxsize=64)
def cubin(source: str, name: str, options: tuple[str, ...], arch: str) -> tuple[bytes, str]:
    """NVRTC's cubin of a CUDA source, and NVRTC's version. Needs neither a card nor a driver.

    Adds what CuPy adds to a RawKernel's options. Missing where CuPy or NVRTC is not installed or is
    too old for `arch`; ValueError with the compiler's first error.
    """
    try:
        from cupy_backends.cuda.libs import nvrtc
    except ImportError:
        raise Missing("CuPy is not installed: pip install '.[cuda13]'") from None
    try:
        version = nvrtc.getVersion()
        known = nvrtc.getSupportedArchs()
    except (ImportError, OSError, RuntimeError):
        raise Missing("NVRTC is not installed: pip install nvidia-cuda-nvrtc") from None
    words = f"nvrtc {version[0]}.{version[1]}"
    if capability(arch) not in known:
        raise Missing(f"{words} does not know {arch}; it knows up to sm_{max(known)}")
    program = nvrtc.createProgram(source, f"{name}.cu", (), ())
    try:
        flags = (*options, "-ftz=true", f"-arch={arch}", "--device-as-default-execution-space")
        try:
            nvrtc.compileProgram(program, flags)
        except nvrtc.NVRTCError:
            log = nvrtc.getProgramLog(program).strip().splitlines()
            first = next((line for line in log if "error" in line), (log or ["no message"])[0])
            raise ValueError(f"NVRTC: {first}") from None
        # The binding drops the last byte, without which the disassembler refuses the file.
        return nvrtc.getCUBIN(program) + b"\0", words
    finally:
        nvrtc.destroyProgram(program)


def _code(read: sass.Listing, *, arch: str, threads: int, shared: int, **facts: Any) -> Code:
    return Code(
        arch=arch,
        threads=threads,
        shared=shared,
        registers=read.registers,
        stack=read.stack,
        instructions=read.instructions,
        counts=read.counts,
        widths=read.widths,
        mufu=read.mufu,
        sha=read.sha,
        occupancy=occupancy(arch, threads=threads, registers=read.registers, shared=shared)
        if arch in ARCHS
        else None,
        unfit=fits(arch, shared, arch) if arch in ARCHS else "",
        **facts,
    )
