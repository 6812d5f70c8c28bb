"""Matrix product, library: one cublasGemmEx call.

C[m, n] = sum over k of A[m, k] * B[k, n], float32 in and out. The compute type says what the
multiplier may do: `CUBLAS_COMPUTE_32F` full float32, `CUBLAS_COMPUTE_32F_FAST_TF32` TF32 tensor
cores. cuBLAS chooses the kernel and may cut K into slices, so the order of the sum is its own.

`cupy.cublas` wraps SGEMM and chooses the compute type by an environment variable; this calls
`cupy.cuda.cublas.gemmEx`, which takes it as an argument.

Reproduces the GemmEx call of day 44.
"""

from typing import Any

import numpy as np

from .kernel import card_of

COMPUTE_TYPES = ("CUBLAS_COMPUTE_32F", "CUBLAS_COMPUTE_32F_FAST_TF32")


def gemm_ex(a: Any, b: Any, out: Any = None, *, compute_type: str) -> Any:
    """A (M, K) times B (K, N), CuPy float32; writes and returns `out` (M, N), float32.

    Operands may be strided if one of their two strides is 1; `out` needs column stride 1. Runs on
    their card, CuPy's current stream and handle of it, with the math mode pinned to
    CUBLAS_DEFAULT_MATH and restored. Any of M, N, K may be 0 (K = 0 gives zeros) and makes no call.
    ValueError: another dtype, rank or compute type, shapes or strides that do not fit, arrays on
    two cards. CuPy's CUBLASError where the call fails.
    """
    if compute_type not in COMPUTE_TYPES:
        raise ValueError(
            f"compute_type {compute_type!r} is unknown; choose {' or '.join(COMPUTE_TYPES)}"
        )
    for name, array in (("a", a), ("b", b)):
        if array.dtype != np.float32 or array.ndim != 2:
            raise ValueError(
                f"gemm_ex takes 2-D float32 arrays, {name} is {array.ndim}-D {array.dtype}"
            )
    if a.shape[1] != b.shape[0]:
        raise ValueError(f"a has {a.shape[1]} columns and b {b.shape[0]} rows; they must be equal")
    with card_of(a, b, out):
        return _call(a, b, out, compute_type)


def _call(a: Any, b: Any, out: Any, compute_type: str) -> Any:
    """The call for operands that fit each other, on the current card."""
    # Imported here: CuPy and the cuBLAS library exist only on a machine with a card.
    import cupy
    from cupy.cuda import cublas, device

    (m, k), n = a.shape, b.shape[1]
    out = cupy.empty((m, n), np.float32) if out is None else out
    if out.shape != (m, n) or out.dtype != np.float32:
        raise ValueError(
            f"out must be float32 {m}x{n}, got {out.dtype} {'x'.join(map(str, out.shape))}"
        )
    if m == 0 or n == 0:
        return out
    if k == 0:
        out.fill(0)
        return out
    # cuBLAS reads memory by columns: what is C (M x N) by rows is C^T (N x M) to it. So it is asked
    # for C^T = B^T A^T: B first, then A, each as it lies in memory, with no transposition at all.
    b_op, ldb = _layout("b", b, cublas)
    a_op, lda = _layout("a", a, cublas)
    c_op, ldc = _layout("out", out, cublas)
    if c_op != cublas.CUBLAS_OP_N:
        raise ValueError("out must be stored by rows (column stride 1); pass a contiguous array")
    handle = device.get_cublas_handle()
    one, zero = np.array(1, np.float32), np.array(0, np.float32)
    mode = cublas.getMathMode(handle)
    cublas.setMathMode(handle, cublas.CUBLAS_DEFAULT_MATH)
    try:
        cublas.gemmEx(
            handle, b_op, a_op, n, m, k,
            one.ctypes.data, b.data.ptr, _CUDA_R_32F, ldb, a.data.ptr, _CUDA_R_32F, lda,
            zero.ctypes.data, out.data.ptr, _CUDA_R_32F, ldc,
            getattr(cublas, compute_type), cublas.CUBLAS_GEMM_DEFAULT,
        )  # fmt: skip
    finally:
        cublas.setMathMode(handle, mode)
    return out


_CUDA_R_32F = 0  # cudaDataType of a float


def _layout(name: str, array: Any, cublas: Any) -> tuple[int, int]:
    """The operation and the leading dimension by which cuBLAS reads `array` as it lies."""
    rows, cols = array.shape
    row, col = (stride // array.itemsize for stride in array.strides)
    if (col == 1 or cols == 1) and (row >= cols or rows == 1):
        return cublas.CUBLAS_OP_N, max(row if rows > 1 else cols, 1)
    if (row == 1 or rows == 1) and (col >= rows or cols == 1):
        return cublas.CUBLAS_OP_T, max(col if cols > 1 else rows, 1)
    raise ValueError(f"{name} has strides {row} and {col}; one must be 1 and none overlap: copy it")
