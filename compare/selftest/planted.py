"""Small wrong kernels, each with the data on which it matters and the check that must catch it.

A kernel writes `out`, as a launcher does, and is run behind the workbench's own guards. Those of a
matmul change a right `product` of their own, so that the same faults can be planted in a card's
kernels; those of a softmax are written out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from compare.pair import Shape

Kernel = Callable[..., Any]
Product = Callable[[Any, Any], Any]
POSITIONS, BOUND, RANDOM = "NaN and infinity", "error bound", "random data"
COVER, WIDE_A, WIDE_B, PARTS = "cover", "width a", "width b", "equal parts"
GUARD, FORM = "guard", "shape and dtype"
TILED, ROWS = (256, 256, 1024), (2048, 1024)


@dataclass(frozen=True)
class Planted:
    """A wrong kernel. `check` is the one that must catch it, whatever else does too."""

    what: str
    pair: str
    check: str
    kernel: Kernel
    precision: str = "ieee"
    data: str = "random"
    shape: Shape = ()
    arrays: str = "cupy"  # host arrays reach a kernel of this kind as numpy's

    @property
    def at(self) -> Shape:
        return self.shape or (TILED if self.pair == "matmul" else ROWS)


def to_bf16(x: Any) -> Any:
    """Rounded to the 8 bits of a bfloat16 significand, float32 still. Finite numpy or torch."""
    return _rounded(x, 16)


def to_fp16(x: Any) -> Any:
    """Through float16 and back, numpy or torch: 11 bits and a small range."""
    with np.errstate(over="ignore"):
        return x.half().float() if hasattr(x, "half") else x.astype(np.float16).astype(np.float32)


def to_tf32(x: Any) -> Any:
    """Rounded to nearest even, 11 bits. Finite numpy or torch."""
    return _rounded(x, 13)


def cut_to_tf32(x: Any) -> Any:
    """Cut to 11 bits, as a tensor core reads a float32. numpy or torch."""
    return _float(_bits(x) & ~0x1FFF)


def _rounded(x: Any, lost: int) -> Any:
    bits = _bits(x)
    return _float((bits + (2 ** (lost - 1) - 1) + ((bits >> lost) & 1)) & ~(2**lost - 1))


def _bits(x: Any) -> Any:
    if isinstance(x, np.ndarray):
        return np.ascontiguousarray(x).view(np.int32)
    import torch

    return x.contiguous().view(torch.int32)


def _float(bits: Any) -> Any:
    if isinstance(bits, np.ndarray):
        return bits.view(np.float32)
    import torch

    return bits.view(torch.float32)


def exact_product(a: Any, b: Any) -> Any:
    return a @ b


def cut_product(a: Any, b: Any) -> Any:
    return cut_to_tf32(a) @ cut_to_tf32(b)


def in_matmul(product: Product, precision: str, arrays: str = "cupy") -> list[Planted]:
    """The faults that can be planted around any right product of this precision."""
    tf32 = precision == "tf32"

    def last_block(a: Any, b: Any, out: Any) -> None:
        out[...] = product(a[:, :-32], b[:-32])

    def last_k(a: Any, b: Any, out: Any) -> None:
        out[...] = product(a[:, :-1], b[:-1])

    def first_twice(a: Any, b: Any, out: Any) -> None:
        out[...] = product(a, b) + a[:, :1] * b[:1]

    def exchanged(a: Any, b: Any, out: Any) -> None:
        order = list(range(b.shape[0]))
        order[3], order[7] = 7, 3
        out[...] = product(a, b[order])

    def foreign_tile(a: Any, b: Any, out: Any) -> None:
        out[...] = product(a, b)
        out[64:128, :64] = product(a[:64], b[:, 64:128])

    def no_last_row(a: Any, b: Any, out: Any) -> None:
        out[:-1] = product(a[:-1], b)

    def one_off(a: Any, b: Any, out: Any) -> None:
        out[...] = product(a, b)
        out[5, 7] += 0.01 * float(abs(out).max())

    def one_nan(a: Any, b: Any, out: Any) -> None:
        out[...] = product(a, b)
        out[5, 7] = float("nan")

    def narrow(cast: Callable[[Any], Any]) -> Kernel:
        def kernel(a: Any, b: Any, out: Any) -> None:
            out[...] = product(cast(a), cast(b))

        return kernel

    def half_out(a: Any, b: Any, out: Any) -> None:
        out[...] = to_fp16(product(a, b))

    def half_sum(a: Any, b: Any, out: Any) -> None:
        total = to_fp16(product(a[:, :32], b[:32]))
        for k in range(32, a.shape[1], 32):
            total = to_fp16(total + product(a[:, k : k + 32], b[k : k + 32]))
        out[...] = total

    shared = [
        ("last K block of 32 dropped", COVER, last_block),
        ("last k dropped", COVER, last_k),
        ("first k counted twice", COVER, first_twice),
        ("two rows of B exchanged", COVER, exchanged),
        ("one 64x64 tile replaced by another", COVER, foreign_tile),
        ("last row not written", GUARD, no_last_row),
        ("one element off by 1 % of the largest", RANDOM, one_off),
        ("one element NaN", POSITIONS, one_nan),
        ("inputs in bf16", WIDE_A, narrow(to_bf16)),
        ("inputs in fp16", WIDE_A, narrow(to_fp16)),
        ("accumulation in fp16", COVER, half_sum),
        ("output in fp16", WIDE_B, half_out),
    ]
    lies = [
        ("tf32 (truncated) offered as ieee", WIDE_A, narrow(cut_to_tf32)),
        ("tf32 (rounded) offered as ieee", WIDE_B, narrow(to_tf32)),
    ]
    return [
        Planted(what, "matmul", check, kernel, precision, arrays=arrays)
        for what, check, kernel in [*shared, *([] if tf32 else lies)]
    ]


def in_indices() -> list[Planted]:
    """Faults of a matmul's index arithmetic, its masks and its output."""

    def tail_unmasked(a: Any, b: Any, out: Any) -> None:
        k = np.arange(-(-a.shape[1] // 32) * 32)
        flat = np.append(a.reshape(-1), np.zeros(32, np.float32))
        rows = flat[np.arange(a.shape[0])[:, None] * a.shape[1] + k]  # runs into the next row
        out[...] = rows @ b[np.minimum(k, b.shape[0] - 1)]

    def wrong_stride(a: Any, b: Any, out: Any) -> None:
        padded = np.zeros((a.shape[0], a.shape[1] + 16), np.float32)
        padded[:, : a.shape[1]] = a
        out[...] = padded.reshape(-1)[: a.size].reshape(a.shape) @ b

    def groups(a: Any, b: Any, out: Any, short: bool = False) -> None:
        tiles_m, tiles_n, group = -(-out.shape[0] // 64), -(-out.shape[1] // 64), 4
        for pid in range(tiles_m * tiles_n - short):
            first = pid // (group * tiles_n) * group
            rows = min(tiles_m - first, group) if short else group
            i = first + pid % (group * tiles_n) % rows
            j = pid % (group * tiles_n) // rows
            tile = np.s_[i * 64 : i * 64 + 64, j * 64 : j * 64 + 64]
            out[tile] = a[tile[0]] @ b[:, tile[1]]

    def one_program_short(a: Any, b: Any, out: Any) -> None:
        groups(a, b, out, short=True)

    def narrow_offsets(a: Any, b: Any, out: Any) -> None:
        with np.errstate(over="ignore"):
            offsets = np.arange(a.shape[0], dtype=np.int32) * np.int32(2**30)
        rows = np.where((offsets < 0)[:, None], np.float32(np.nan), a)  # before the array: a fence
        out[...] = rows @ b

    def beta(a: Any, b: Any, out: Any) -> None:
        out[...] = a @ b + np.float32(1e-30) * out

    def read_first(a: Any, b: Any, out: Any) -> None:
        out += a @ b

    def two_terms(a: Any, b: Any, out: Any) -> None:
        def two(x: Any) -> Any:
            return to_bf16(x) + to_bf16(x - to_bf16(x))

        out[...] = two(a) @ two(b)

    listed = [
        ("K tail unmasked", COVER, tail_unmasked, (256, 256, 1000)),
        ("wrong row stride on a padded input", COVER, wrong_stride, ()),
        ("group order without min", GUARD, groups, (320, 256, 64)),
        ("one program too few", GUARD, one_program_short, (320, 256, 64)),
        ("32-bit offsets past 2^31", POSITIONS, narrow_offsets, (3, 16, 16)),
        ("beta other than zero", GUARD, beta, ()),
        ("output read before it is written", GUARD, read_first, ()),
        ("inputs as two terms of bf16", RANDOM, two_terms, ()),
    ]
    return [
        Planted(what, "matmul", check, kernel, shape=shape) for what, check, kernel, shape in listed
    ]


def in_guards() -> list[Planted]:
    """Kernels whose answer is right and whose manners are not."""
    written: list[bool] = []

    def stale(a: Any, b: Any, out: Any) -> None:
        if not written:
            out[...] = a @ b
        written.append(True)

    def input_changed(a: Any, b: Any, out: Any) -> None:
        out[...] = a @ b
        a[0, 0] = np.nextafter(a[0, 0], np.float32(9))

    def past_the_end(a: Any, b: Any, out: Any) -> None:
        out[...] = a @ b
        row = np.lib.stride_tricks.as_strided(out[-1:], (2, out.shape[1]), out.strides)
        row[1, 0] = 0  # the first element behind the last row

    def other_dtype(a: Any, b: Any, out: Any) -> np.ndarray:
        return (a @ b).astype(np.float16)

    def other_shape(a: Any, b: Any, out: Any) -> np.ndarray:
        return (a @ b)[:, :-1]

    return [
        Planted("stale output of the run before", "matmul", GUARD, stale),
        Planted("an input changed", "matmul", GUARD, input_changed),
        Planted("a fence overwritten", "matmul", GUARD, past_the_end),
        Planted("output of another dtype", "matmul", FORM, other_dtype),
        Planted("output of another shape", "matmul", FORM, other_shape),
    ]


def in_softmax() -> list[Planted]:
    """Faults of a softmax written out in numpy."""

    def parts(x: Any) -> tuple[Any, Any]:
        e = np.exp(x - x.max(axis=1, keepdims=True))
        return e, e.sum(axis=1, keepdims=True)

    def made(change: Callable[[Any, Any, Any], Any]) -> Kernel:
        def kernel(x: Any, out: Any) -> None:
            with np.errstate(all="ignore"):
                answer = change(x, *parts(x))
            out[: answer.shape[0]] = answer

        return kernel

    def element_nan(x: Any, e: Any, s: Any) -> Any:
        y = e / s
        y[5, 7 % y.shape[1]] = np.nan
        return y

    def shifted_by(maximum: Callable[[Any], Any]) -> Kernel:
        def kernel(x: Any, out: Any) -> None:
            with np.errstate(all="ignore"):
                e = np.exp(x - maximum(x))
                out[...] = e / e.sum(axis=1, keepdims=True)

        return kernel

    def thread_max(x: Any) -> Any:
        each = x.reshape(x.shape[0], -1, 256).max(axis=1)
        return np.tile(each, x.shape[1] // 256)

    def zero_lanes(x: Any, out: Any) -> None:
        pad = (1 << (x.shape[1] - 1).bit_length()) - x.shape[1]
        wide = np.pad(x, ((0, 0), (0, pad)))
        with np.errstate(all="ignore"):
            e, s = parts(wide)
            out[...] = (e / s)[:, : x.shape[1]]

    def wrong_stride(x: Any, e: Any, s: Any) -> Any:
        padded = np.pad(x, ((0, 0), (0, 16))).reshape(-1)[: x.size].reshape(x.shape)
        top, total = parts(padded)
        return top / total

    def lost(count: int) -> Kernel:
        return made(lambda x, e, s: e / e[:, :-count].sum(axis=1, keepdims=True))

    pads = made(lambda x, e, s: e / (s + 24 * np.exp(0 - x.max(axis=1, keepdims=True))))
    listed = [
        ("all zeros", BOUND, made(lambda x, e, s: 0 * e), "random"),
        ("uniform 1 / COLS", BOUND, made(lambda x, e, s: 0 * e + 1 / x.shape[1]), "random"),
        ("maximum not subtracted", POSITIONS, shifted_by(lambda x: np.float32(0)), "random"),
        ("sum misses the last 32 columns", "row sums", lost(32), "random"),
        ("sum misses the last column", PARTS, lost(1), "random"),
        ("rows shifted by one", BOUND, made(lambda x, e, s: np.roll(e / s, 1, axis=0)), "random"),
        ("columns rolled by one", PARTS, made(lambda x, e, s: np.roll(e / s, 1, axis=1)), "random"),
        ("output in fp16", BOUND, made(lambda x, e, s: to_fp16(e / s)), "random"),
        ("exponentials in bf16", BOUND, made(lambda x, e, s: to_bf16(e) / s), "random"),
        ("pad lanes add exp(0 - max)", "row sums", pads, "random"),
        ("last row not written", GUARD, made(lambda x, e, s: (e / s)[:-1]), "random"),
        ("one element NaN", POSITIONS, made(element_nan), "random"),
        ("sum off by 1e-4", "row sums", made(lambda x, e, s: e / (1.0001 * s)), "random"),
        ("maximum of the first 256 columns", POSITIONS,
         shifted_by(lambda x: x[:, :256].max(axis=1, keepdims=True)), "spike"),
        ("a thread's maximum used as the row's", BOUND, shifted_by(thread_max), "spike"),
        ("wrong row stride on a padded input", BOUND, made(wrong_stride), "random"),
    ]  # fmt: skip
    planted = [
        Planted(what, "softmax", check, kernel, data=data) for what, check, kernel, data in listed
    ]
    masked = "masked load without other"
    return [
        *planted,
        Planted(masked, "softmax", BOUND, zero_lanes, data="offsets", shape=(256, 1000)),
    ]


def in_barriers() -> list[Planted]:
    """`softmaxRows` on the emulator with one of its five barriers passed through."""
    from cuda_ref.emulator.run import EmulatedKernel
    from cuda_ref.softmax import KERNEL, SOURCE, THREADS, row_arguments

    emulated = EmulatedKernel(SOURCE.read_text(encoding="utf-8"), KERNEL, label=SOURCE.name)

    def without(barrier: int) -> Kernel:
        def kernel(x: Any, out: Any) -> None:
            emulated((len(x),), (THREADS,), row_arguments(x, out), skip_barrier=barrier)

        return kernel

    return [
        Planted(
            f"barrier {barrier + 1} of softmaxRows missing",
            "softmax",
            POSITIONS if barrier < 3 else BOUND,
            without(barrier),
            data="spike",
            shape=(64, 1024),
        )
        for barrier in range(emulated.barriers)
    ]


def all_planted() -> list[Planted]:
    """What is planted in numpy."""
    return [
        *in_matmul(exact_product, "ieee"),
        *in_matmul(cut_product, "tf32"),
        *in_indices(),
        *in_guards(),
        *in_softmax(),
    ]
