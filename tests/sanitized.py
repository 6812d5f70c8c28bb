"""What compute-sanitizer runs: every GPU kernel of the project on small shapes, or a planted fault.

    compute-sanitizer --tool memcheck python tests/sanitized.py clean
    compute-sanitizer --tool racecheck python tests/sanitized.py fault racecheck

Both caching allocators are off: an array is a cudaMalloc of its own and of its own size, so that an
access one element past it shows. Inputs are copied up whole. A contiguous output is left as it was
allocated and copied back whole, so that initcheck tells of an element that nobody wrote; a strided
one lies among NaN, which must stay. Every result must keep its pair's bound.

`clean --cublas` calls gemm_ex as well, which is for memcheck: its kernels are NVIDIA's, and hazards
or unwritten workspace inside them are not ours to mend. `clean --host` runs the list without a
card, on the interpreter and the emulator; what needs a card is left out.
"""

import argparse
import contextlib
import itertools
import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
THREADS = 64  # of a planted fault, and elements of its array
PAD = 3  # columns before a padded array, whose rows begin at no multiple of 16 bytes
# The first two of a pair are run with every config, the first one in every layout; the rest is left
# out for precisions that a run has to name. Softmax: rows that fill no program's last, ragged; one
# element, aligned, 4 and 8 pieces a thread, the longest that registers hold, longer by quads and by
# ones, no rows. Matmul: ragged, aligned; edges.
SHAPES = {
    "softmax": ((7, 300), (17, 1023), (1, 1), (3, 5), (2, 1024), (2, 9000), (1, 20001), (1, 32768),
                (2, 33000), (1, 33001), (0, 7)),
    "matmul": ((33, 65, 17), (192, 160, 96), (1, 1, 1), (1, 128, 1), (3, 4, 0), (0, 4, 3)),
}  # fmt: skip
LAYOUTS = {"softmax": ("padded",), "matmul": ("padded", "turned", "spread")}


def laid(x: np.ndarray, device: str, layout: str = "plain") -> Any:
    """`x` up to the end of an allocation of its own: plain, padded, by columns, spread (every other
    column)."""
    import torch

    if layout == "turned":
        return laid(x.T, device).T
    if layout != "plain":
        first, step = (PAD, 1) if layout == "padded" else (1, 2)
        wide = np.full((x.shape[0], first + step * (x.shape[1] - 1) + 1), np.nan, np.float32)
        wide[:, first::step] = x
        return laid(wide, device)[:, first::step]
    source = torch.from_numpy(np.ascontiguousarray(x))
    return torch.empty(x.shape, dtype=source.dtype, device=device).copy_(source)


def not_torch(tensor: Any) -> Any:
    """The same memory as CuPy's array or, without a card, numpy's."""
    if not tensor.is_cuda:
        return tensor.numpy()
    import cupy

    if tensor.numel() == 0:  # no memory that could be shared
        return cupy.empty(tuple(tensor.shape), np.float32)
    return cupy.from_dlpack(tensor)


def check(
    pair: Any, like: Any, shape: Any, device: str, layout: str = "plain", function: Any = None,
    **options: Any,
) -> None:  # fmt: skip
    """Ends the run unless `function`, by default like's own launcher, keeps the bound of `like`."""
    import torch

    inputs = pair.inputs(shape, "random", 1)
    reference = pair.reference(inputs, shape, 1)
    allowed = pair.bounds(reference, like, "random", shape)[0].allowed
    *rows, cols = pair.output_shape(shape)
    pad = 0 if layout == "plain" else PAD
    room = torch.empty((*rows, pad + cols), device=device)
    if pad:
        room = laid(np.full(room.shape, np.nan, np.float32), device)
    function, options = function or like.function(), {**like.options, **options}
    arrays = [*(laid(x, device, layout) for x in inputs.values()), room[..., pad:]]
    function(*(map(not_torch, arrays) if like.arrays == "cupy" else arrays), **options)
    got = room.cpu().numpy()
    right = np.abs(got[..., pad:] - reference.value) <= allowed
    if not (right.all() and np.isnan(got[..., :pad]).all()):
        sys.exit(f"{function.__name__} {options} is wrong at {shape}, {layout}")


def pairs(device: str, with_cublas: bool) -> None:
    """Every implementation of every pair, as the workbench calls it."""
    from compare.choices import all_pairs
    from triton_impl.matmul import known_precisions

    for pair in all_pairs().values():
        shapes = SHAPES.get(pair.name, pair.shapes(False))
        for i in pair.implementations:
            library = i.language == "library"
            known = i.language != "triton" or i.precision in known_precisions()
            wanted = not library or (with_cublas and i.arrays == "cupy")
            if not (known and wanted) or (device == "cpu" and "card" in i.needs):
                continue
            for shape, config in itertools.product(shapes[:2], i.configs or ({},)):
                check(pair, i, shape, device, **config)
            if i.precision not in pair.precisions:
                continue
            for shape in shapes[2:]:
                check(pair, i, shape, device)
            for layout in LAYOUTS.get(pair.name, ()):
                if not (library and layout == "spread"):  # which gemm_ex refuses
                    check(pair, i, shapes[0], device, layout)


def twins(device: str) -> None:
    """What no pair's defaults reach: ingredients, orders of K, ways to round, 64-bit steps."""
    from compare.pairs import matmul, softmax
    from triton_impl.matmul import matmul as plain
    from triton_impl.matmul_descriptor import descriptors_round
    from triton_impl.matmul_twin import LARGE, SMALL, Order, matmul_twin
    from triton_impl.softmax_twin import DIVISIONS, EXPONENTIALS, ORDERS

    named = {i.name: i for p in (matmul, softmax) for i in p.PAIR.implementations}
    exponentials = ("tl",) if device == "cpu" else EXPONENTIALS  # the interpreter has no libdevice
    for exp, div, sums in itertools.product(exponentials, DIVISIONS, ORDERS):
        how = {"exp": exp, "div": div, "order": sums}
        check(softmax.PAIR, named["softmax, fast bits"], (7, 300), device, **how)

    def far_apart(a: Any, b: Any, out: Any, **how: Any) -> None:
        plain(a.as_strided(a.shape, (1, 1 << 31)), b, out, **how)  # to a column that is not there

    check(matmul.PAIR, named["matmul ieee"], (33, 65, 1), device, function=far_apart)

    def product(precision: str, shape: Any, layout: str = "plain", **how: Any) -> None:
        def function(*arrays: Any, **own: Any) -> None:
            matmul_twin(*arrays, precision=precision, **how)

        check(matmul.PAIR, named[f"matmul {precision}"], shape, device, layout, function)

    halves = Order((0, 10), (10, 19), ((0, 1),))
    thirds = Order((0, 32, 64), (32, 64, 96), ((1, 2), (0, 1)))
    gathered = Order((0,), (24,), gather=(0, 1, 2, *[-1] * 5, *range(3, 19)))
    for order in (None, halves, gathered):
        for precision, rounded in (("ieee", True), ("tf32", True), ("tf32", False)):
            product(precision, (33, 65, 19), order=order, rounded=rounded)
    product("tf32", (33, 65, 19), "turned", order=halves)
    for config in (SMALL, LARGE):
        product("tf32", (192, 160, 96), order=thirds, config=config)
    for order in (None, thirds) if descriptors_round() else ():
        product("tf32", (33, 65, 96), order=order, descriptor=True)


def counter() -> Counter[str]:
    """Counts every kernel that is launched from now on, as "triton NAME" and "cuda NAME"."""
    from triton.runtime.jit import KernelInterface

    from cuda_ref import kernel

    count: Counter[str] = Counter()
    with_grid = KernelInterface.__getitem__  # kernel[grid], which every launch begins with

    def counting(self: Any, grid: Any) -> Any:
        count.update([f"triton {self.fn.__name__}"])
        return with_grid(self, grid)

    KernelInterface.__getitem__ = counting
    kernel.watchers.append(lambda launch: bool(count.update([f"cuda {launch.name}"])))
    return count


def clean(device: str, with_cublas: bool) -> Counter[str]:
    """Launches everything and returns what was launched."""
    from compare.run import probe_cupy
    from compare.timing.empty import launchers

    count = counter()
    pairs(device, with_cublas)
    twins(device)
    launchers()["Triton"]()
    if device == "cuda":
        import cupy
        import torch

        launchers()["CUDA"]()
        if reason := probe_cupy(0):
            sys.exit(reason)
        count.update(["cuda empty_kernel", "cuda one"])  # CuPy launched these by itself
        torch.cuda.synchronize()
        cached = torch.cuda.memory_reserved() + cupy.get_default_memory_pool().total_bytes()
        if cached:
            sys.exit(f"an allocator caches {cached:,} bytes, which hides what is out of bounds")
    return count


def fault(tool: str) -> None:
    """Launches the kernel of sanitizer_faults.cu that `tool` must report."""
    import cupy

    source = (HERE / "sanitizer_faults.cu").read_text(encoding="utf-8")
    kernel = cupy.RawModule(code=source, options=("-lineinfo",)).get_function(f"planted_{tool}")
    x = cupy.empty(THREADS, np.float32)
    if tool != "initcheck":
        x.set(np.zeros(THREADS, np.float32))
    # A tool may end the context at its report, which the next call tells of.
    with contextlib.suppress(cupy.cuda.runtime.CUDARuntimeError, cupy.cuda.driver.CUDADriverError):
        kernel((1,), (THREADS,), (x,))
        cupy.cuda.Device().synchronize()


def main() -> None:
    parser = argparse.ArgumentParser(description="What compute-sanitizer runs.")
    what = parser.add_subparsers(dest="what", required=True)
    every = what.add_parser("clean", help="every kernel of the project")
    every.add_argument("--cublas", action="store_true", help="gemm_ex as well")
    every.add_argument("--host", action="store_true", help="on the interpreter and the emulator")
    what.add_parser("fault", help="one planted fault").add_argument("tool", choices=TOOLS)
    asked = parser.parse_args()
    sys.path.insert(0, str(HERE.parent))
    # Both are read when torch and Triton are imported, or soon after.
    os.environ["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"
    os.environ.pop("TRITON_INTERPRET", None)
    if asked.what == "clean" and asked.host:
        os.environ["TRITON_INTERPRET"] = "1"
        count = clean("cpu", False)
    else:
        import cupy

        cupy.cuda.set_allocator(None)
        if asked.what == "fault":
            return fault(asked.tool)
        count = clean("cuda", asked.cublas)
    for name, launches in sorted(count.items()):
        print(f"{launches:6} {name}")
    print(f"{len(count)} kernels, {sum(count.values())} launches")


if __name__ == "__main__":
    main()
