"""The emulator: what a CUDA kernel may use, what it gives, and what it is told when it may not."""

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from cuda_ref.emulator import build as builder
from cuda_ref.emulator.build import KernelError, build, describe, kernels
from cuda_ref.emulator.run import EmulatedKernel

ROOT = Path(__file__).resolve().parent.parent
F, INT = np.float32, np.int32


def run(source, grid, block, args, *, shared_mem=0, options=()):
    """Runs the only kernel of `source`; the arrays in `args` are written in place."""
    source = f'extern "C" __global__ {source}'
    EmulatedKernel(source, kernels(source)[0], options=options)(grid, block, args, shared_mem)
    return args


def normal(*shape):
    return np.random.default_rng(7).standard_normal(shape).astype(F)


def zeros(*shape, dtype=F):
    return np.zeros(shape, dtype)


SCAN = """void scan(int* x) {  // a barrier in a loop: Hillis and Steele's prefix sum
  __shared__ int s[2][128];
  int t = threadIdx.x, now = 0;
  s[0][t] = x[blockIdx.x * 128 + t];
  for (int d = 1; d < 128; d *= 2) {
    __syncthreads();
    s[1 - now][t] = s[now][t] + (t >= d ? s[now][t - d] : 0);
    now = 1 - now;
  }
  x[blockIdx.x * 128 + t] = s[now][t];
}"""


def test_barrier_in_a_loop():
    x = np.random.default_rng(1).integers(0, 100, (5, 128)).astype(INT)
    want = x.cumsum(axis=1)
    run(SCAN, (5,), (128,), (x,))
    assert (x == want).all()


def test_early_return():
    source = "void add(const float* a, float* b, int n) { int i = blockIdx.x * blockDim.x +" \
        " threadIdx.x; if (i >= n) return; b[i] += a[i]; }"  # fmt: skip
    a, b = normal(1000), normal(1000)
    want = a + b
    run(source, (8,), (128,), (a, b, INT(1000)))
    assert (b == want).all()


def test_a_barrier_does_not_wait_for_threads_that_have_returned():
    """As on sm_70 and newer; the diagnosis calls it divergent all the same."""
    source = """void half(float* x) {
      __shared__ float s[64];
      if (threadIdx.x >= 32) return;
      s[threadIdx.x] = x[threadIdx.x];
      __syncthreads();
      x[threadIdx.x] = s[31 - threadIdx.x];
    }"""
    x = normal(64)
    want = np.r_[x[:32][::-1], x[32:]]
    run(source, (1,), (64,), (x,))
    assert (x == want).all()


@pytest.mark.parametrize(
    "shuffle, source_of",
    (
        ("__shfl_sync(~0u, v, 5)", lambda lane: 5),
        ("__shfl_sync(~0u, v, lane + 3, 8)", lambda lane: lane // 8 * 8 + (lane + 3) % 8),
        ("__shfl_xor_sync(~0u, v, 9)", lambda lane: lane ^ 9),
        ("__shfl_xor_sync(~0u, v, 8, 8)", lambda lane: lane),
        ("__shfl_down_sync(~0u, v, 4)", lambda lane: lane + 4 if lane < 28 else lane),
        ("__shfl_down_sync(~0u, v, 3, 16)", lambda lane: lane + 3 if lane % 16 < 13 else lane),
        ("__shfl_up_sync(~0u, v, 1)", lambda lane: max(lane - 1, 0)),
        ("__shfl_up_sync(~0u, v, 2, 4)", lambda lane: lane - 2 if lane % 4 >= 2 else lane),
    ),
)
def test_shuffles_take_the_value_of_the_right_lane(shuffle, source_of):
    source = f"void s(double* x) {{ int lane = threadIdx.x % 32; double v = x[threadIdx.x];" \
        f" x[threadIdx.x] = {shuffle}; }}"  # fmt: skip
    x = np.random.default_rng(3).standard_normal(64)
    want = [x[t // 32 * 32 + source_of(t % 32)] for t in range(64)]
    run(source, (1,), (64,), (x,))
    assert (x == want).all()


def test_shuffle_reduction_and_atomics():
    source = """void total(const float* x, float* sum, int* count, int* largest, int n) {
      float v = 0;
      for (int i = threadIdx.x; i < n; i += blockDim.x) v += x[i];
      for (int d = 16; d > 0; d /= 2) v += __shfl_down_sync(0xffffffffu, v, d);
      if (threadIdx.x % 32 == 0) atomicAdd(sum, v);
      atomicAdd(count, 1);
      atomicMax(largest, (int)threadIdx.x);
    }"""
    x = np.arange(1000, dtype=F)
    _, total, count, largest, _ = run(
        source, (1,), (96,), (x, zeros(1), zeros(1, dtype=INT), zeros(1, dtype=INT), INT(1000))
    )
    assert total[0] == x.sum() and count[0] == 96 and largest[0] == 95


def test_atomics_give_back_what_was_there():
    source = """void a(int* x, int* was) {
      was[0] = atomicMin(x, 3); was[1] = atomicExch(x + 1, 8);
      was[2] = atomicCAS(x + 2, 5, 9); was[3] = atomicCAS(x + 3, 5, 9);
    }"""
    x, was = np.array([7, 6, 5, 4], INT), zeros(4, dtype=INT)
    run(source, (1,), (1,), (x, was))
    assert was.tolist() == [7, 6, 5, 4] and x.tolist() == [3, 8, 9, 4]


def test_lanes_meet_in_part_of_a_warp():
    """Two halves of a warp shuffle apart, each as often as it likes."""
    source = """void h(int* x) {
      int t = threadIdx.x, v = x[t];
      unsigned mask = t < 16 ? 0xffffu : 0xffff0000u;
      for (int i = 0; i <= t / 16; ++i) v += __shfl_xor_sync(mask, v, 1);
      x[t] = v;
    }"""
    x = np.arange(32, dtype=INT)
    once = x + x[np.arange(32) ^ 1]
    want = np.where(np.arange(32) < 16, once, 2 * once)
    run(source, (1,), (32,), (x,))
    assert (x == want).all()


def test_syncwarp_hands_over_through_shared_memory():
    source = """void w(float* x) {
      __shared__ float s[64];
      int t = threadIdx.x;
      s[t] = x[t];
      __syncwarp();
      x[t] = s[t ^ 31];
    }"""
    x = normal(64)
    want = x[np.arange(64) ^ 31]
    run(source, (1,), (64,), (x,))
    assert (x == want).all()


def test_dynamic_shared_memory():
    source = """void reverse(float* x) {
      extern __shared__ float s[];  // n floats
      int n = blockDim.x, t = threadIdx.x;
      s[t] = x[blockIdx.x * n + t];
      __syncthreads();
      x[blockIdx.x * n + t] = s[n - 1 - t];
    }"""
    x = normal(3, 200)
    want = x[:, ::-1].copy()
    run(source, (3,), (200,), (x,), shared_mem=800)
    assert (x == want).all()


def test_two_dimensional_blocks_transpose():
    source = """void __launch_bounds__(32 * 8)
    turn(const float* __restrict__ in, float* out, int n) {
      __shared__ float tile[32][32 + 1];
      int x = blockIdx.x * 32, y = blockIdx.y * 32;
      for (int i = threadIdx.y; i < 32; i += 8)
        tile[i][threadIdx.x] = in[(y + i) * n + x + threadIdx.x];
      __syncthreads();
      for (int i = threadIdx.y; i < 32; i += 8)
        out[(x + i) * n + y + threadIdx.x] = tile[threadIdx.x][i];
    }"""
    a, b = normal(96, 96), zeros(96, 96)
    run(source, (3, 3), (32, 8), (a, b, INT(96)))
    assert (b == a.T).all()


def test_every_thread_of_every_block_knows_where_it_is():
    source = """void where(int* x) {
      int block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
      int thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
      int size = blockDim.x * blockDim.y * blockDim.z;
      x[block * size + thread] = block * 1000 + thread * (warpSize == 32);
    }"""
    x = zeros(2 * 3 * 4, 5 * 6 * 2, dtype=INT)
    run(source, (2, 3, 4), (5, 6, 2), (x,))
    assert (x == np.arange(24)[:, None] * 1000 + np.arange(60)).all()


def test_vectors_and_shared_memory_in_inline_and_template_functions():
    source = """void quads(const float4* in, float4* out);
    __device__ inline float all(float v) {
      __shared__ float sum;
      if (threadIdx.x == 0) sum = 0;
      __syncthreads();
      atomicAdd(&sum, v);
      __syncthreads();
      return sum;
    }
    template <int N> __device__ float first(float v) {
      __shared__ float kept[N];
      if (threadIdx.x < N) kept[threadIdx.x] = v;
      __syncthreads();
      return kept[N - 1];
    }
    extern "C" __global__ void quads(const float4* in, float4* out) {
      float4 q = in[threadIdx.x];
      float2 pair = make_float2(all(q.x), first<3>(q.w));
      out[threadIdx.x] = make_float4(q.y, pair.x, pair.y, __ldg(&in[0]).z);
    }"""
    x = np.arange(64, dtype=F).reshape(16, 4)
    _, out = run(source, (1,), (16,), (x, zeros(16, 4)))
    want = np.stack(
        [x[:, 1], *np.broadcast_to([[x[:, 0].sum()], [x[2, 3]], [x[0, 2]]], (3, 16))], 1
    )
    assert (out == want).all()


def test_float_intrinsics():
    calls = {
        "fmaxf(x, y)": np.fmax, "fminf(x, y)": np.fmin, "max(x, y)": np.fmax, "min(x, y)": np.fmin,
        "x / y": np.divide, "__fdividef(x, y)": np.divide, "fabsf(x)": lambda x, y: np.abs(x),
        "__frcp_rn(x)": lambda x, y: F(1) / x, "sqrtf(fabsf(x))": lambda x, y: np.sqrt(np.abs(x)),
        "rsqrtf(fabsf(y))": lambda x, y: F(1) / np.sqrt(np.abs(y)),
        "__int_as_float(__float_as_int(x) ^ 0x80000000)": lambda x, y: -x,
        "(float)isnan(x)": lambda x, y: np.isnan(x).astype(F),
        "fmaxf(__int_as_float(0x7fc00000), y)": lambda x, y: y,
    }  # fmt: skip
    body = "".join(f"out[{i} * 64 + t] = {call};" for i, call in enumerate(calls))
    source = f"void f(const float* a, const float* b, float* out) {{ int t = threadIdx.x;" \
        f" float x = a[t], y = b[t]; {body} }}"  # fmt: skip
    x, y = normal(64), normal(64)[::-1].copy()
    *_, out = run(source, (1,), (64,), (x, y, zeros(len(calls), 64)))
    for row, (call, want) in zip(out, calls.items(), strict=True):
        assert row.tobytes() == want(x, y).astype(F).tobytes(), call


def test_exponentials_are_the_c_librarys():
    source = "void e(float* x) { float v = x[threadIdx.x]; x[threadIdx.x] = threadIdx.x % 2 ?" \
        " expf(v) : __expf(v); }"  # fmt: skip
    x = normal(64) * 10
    want = np.exp(x.astype(np.float64))
    run(source, (1,), (64,), (x,))
    assert np.abs(x / want - 1).max() < 2**-23


def fused(options=()):
    source = "void f(float* x) { x[2] = x[0] * x[0] + x[1]; }"
    x = np.array([1 + 2**-12, -1, 0], F)
    run(source, (1,), (1,), (x,), options=options)
    return float(x[2])


def test_contraction_and_flush_to_zero_are_those_of_the_cuda_build():
    """(1 + 2^-12)^2 - 1 = 2^-11 + 2^-24, whose last term a product rounded by itself would lose."""
    assert fused() == 2**-11 + 2**-24
    assert fused(("--fmad=false",)) == 2**-11
    tiny = np.array([2.0**-100, 2.0**-40, 2.0**-127], F)
    run("void t(float* x) { x[0] *= x[1]; x[2] *= 2; }", (1,), (1,), (tiny,))
    assert tiny[0] == 0 and tiny[2] == 0
    assert F(2) ** F(-140) > 0, "the mode must not outlive the launch"
    words = describe()
    assert words["FP contraction"].startswith("on") and words["flush to zero"].startswith("on")
    assert describe(("--fmad=false",))["FP contraction"] == "off"
    assert "not modelled" in describe(("--use_fast_math",))["expf"]


def test_a_define_reaches_the_source_and_a_macro_does_not_leave_it():
    """Were T, P or LANES still macros behind the source, the launch would not compile."""
    source = "void a(float* x) { x[0] = P + T + LANES + LAST; }"
    macros = ("-DP=1", "-DLAST", "-DLANES=32")
    x = zeros(1)
    run(f"{source}\n#define T 7\n", (1,), (1,), (x,), options=(*macros, "-DT=7"))
    assert x[0] == 41


def test_shared_memory_is_nan_before_each_block():
    """Not what the block before left there, static or dynamic."""
    source = """void left(float* x) {
      __shared__ float s[2];
      extern __shared__ float d[];
      x[blockIdx.x * 2] = s[1]; x[blockIdx.x * 2 + 1] = d[3];
      s[1] = d[3] = 1;
    }"""
    x = zeros(4)
    run(source, (2,), (1,), (x,), shared_mem=16)
    assert np.isnan(x).all()


FAULTS = {
    "a name the emulator lacks": ("void k(int* x) { __nanosleep(1); }", "line 1: __nanosleep"),
    "a group": ("void k(int* x) { cooperative_groups::sync(x); }", "line 1: cooperative_groups"),
    "a texture": ("void k(cudaTextureObject_t t) {}", "line 1: cudaTextureObject_t"),
    "NVRTC has no INFINITY": (
        "void k(float* x) { x[0] = -INFINITY; }",
        r"line 1: NVRTC has no INFINITY; write __int_as_float\(0x7f800000\)$",
    ),
    "NVRTC has no NAN": (
        "void k(float* x) {\n x[0] = NAN; }",
        r"line 2: NVRTC has no NAN; write __int_as_float\(0x7fffffff\)$",
    ),
    "constant memory": ("void k(int* x) {}\n__constant__ float c[4];", "line 2: __constant__"),
    "a mistake": ("void k(int* x) {\n  x[0] = ;\n}", "line 2: expected"),
    "a header": ("void k(int* x) {}\n#include <cmath>", "line 2 includes cmath"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_is_not_supported_fails_with_its_name_and_line(fault):
    source, said = FAULTS[fault]
    with pytest.raises(KernelError, match=f"^my.cu {said}"):
        build(f'extern "C" __global__ {source}', "k", label="my.cu")


def test_the_runtime_headers_of_cuda_may_stay():
    source = "void k(int* x) { x[0] = 1; }\n#include <cuda_runtime.h>\n// #include <cmath>\n"
    assert run(source, (1,), (1,), (zeros(1, dtype=INT),))[0] == 1


def test_a_kernel_that_is_not_there_or_not_extern_c():
    with pytest.raises(KernelError, match=r"^my.cu has no kernel g; it has k$"):
        build('extern "C" __global__ void k() {}', "g", label="my.cu")
    with pytest.raises(KernelError, match=r'^kernel k in my.cu .* write extern "C"'):
        build("__global__ void k() {}", "k", label="my.cu")
    with pytest.raises(KernelError, match=r"option --maxrregcount=8 has no counterpart"):
        build('extern "C" __global__ void k() {}', "k", options=("--maxrregcount=8",))


@pytest.mark.parametrize(
    "source, right",
    (
        ('extern "C" __global__ void k() {}', True),
        ('extern "C"\n__global__ void __launch_bounds__(64) k() {}', True),
        ('extern "C" { __device__ int f() { return 1; }\n__global__ void k() {} }', True),
        ('extern "C" { int f() { return 1; } }\n__global__ void k() {}', False),
        ('extern "C" __global__ void other() {}\n__global__ void k() {}', False),
        ('/* extern "C" */ __global__ void k() {}', False),
    ),
)
def test_a_c_name_is_told_from_a_cpp_name(source, right):
    assert builder.has_c_name(source, "k") == right


def test_kernels_are_found_by_name():
    source = """// __global__ void no()
    /* __global__ void nor() */ extern "C" __global__ void __launch_bounds__(16 * (1 + 1)) a(int n);
    extern "C" __global__ __launch_bounds__(256) void b() { }
    extern "C" {
    __global__
    void c(float* x) {} }"""
    assert kernels(source) == ["a", "b", "c"]


@pytest.mark.parametrize(
    "args, said",
    (
        ((zeros(4), INT(1)), r"takes 3 arguments, got 2"),
        ((zeros(4), INT(1), 2.0), r"argument 2 of k is float32; pass np.float32\(..\), not float"),
        ((zeros(4), np.int64(1), F(2)), r"argument 1 of k is int32; .* not int64"),
        ((zeros(4, dtype=INT), INT(1), F(2)), r"argument 0 .* a pointer to float32; got .* int32"),
        (([0.0], INT(1), F(2)), r"argument 0 of k is a pointer to float32; pass a numpy array"),
        ((np.broadcast_to(F(0), 4), INT(1), F(2)), r"argument 0 of k may be written; .* read-only"),
    ),
)
def test_arguments_are_held_against_the_kernels_parameters(args, said):
    with pytest.raises(KernelError, match=said):
        run("void k(float* x, int n, float a) {}", (1,), (1,), args)


@pytest.mark.parametrize(
    "grid, block, shared, said",
    (
        ((0,), (1,), 0, "grid must be"),
        ((1,), (1025,), 0, "block must be"),
        ((1,), (32, 33), 0, "at most 1024 threads, got 32x33x1"),
        ((1, 1, 1, 1), (1,), 0, "grid must be"),
        ((1,), (1,), 300_000, "shared_mem must be"),
    ),
)
def test_launches_that_no_card_would_take(grid, block, shared, said):
    with pytest.raises(KernelError, match=said):
        run("void k() {}", grid, block, (), shared_mem=shared)


def test_threads_that_wait_for_ever_are_an_error_not_a_hang():
    with pytest.raises(KernelError, match="does not end: thread"):
        run(
            "void k() { if (threadIdx.x < 8) __syncwarp(); else __syncthreads(); }", (1,), (32,), ()
        )


def test_a_lane_outside_its_own_mask():
    with pytest.raises(KernelError, match="synchronises lanes 0x000000ff and is not one"):
        run("void k() { __syncwarp(0xff); }", (1,), (32,), ())


def test_a_stack_that_overflows():
    source = "void k(int* x) { volatile char big[180000]; for (int i = 0; i < 180000; ++i)" \
        " big[i] = i; x[0] = big[5]; }"  # fmt: skip
    with pytest.raises(KernelError, match="more than 128 KiB of local memory"):
        run(source, (1,), (1,), (zeros(1, dtype=INT),))


def test_no_compiler_and_another_processor(monkeypatch):
    monkeypatch.setenv("CXX", "/nowhere/g++ -v")
    with pytest.raises(KernelError, match=r"a C\+\+ compiler: CXX=/nowhere/g\+\+ is not there"):
        build("", "k")
    monkeypatch.setenv("CXX", "")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(KernelError, match=r"needs a card or a C\+\+ compiler: .* install g\+\+"):
        build("", "k")
    monkeypatch.setattr(builder.platform, "machine", lambda: "riscv64")
    with pytest.raises(KernelError, match=r"^needs a card: the emulator does not know riscv64$"):
        build("", "k")


@pytest.fixture
def cache(monkeypatch, tmp_path):
    """A cache of this test's own."""
    builder.cache_folder.cache_clear()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    yield tmp_path / "triton-vs-cuda"
    builder.cache_folder.cache_clear()


EMPTY = 'extern "C" __global__ void k() {}'


def test_a_library_is_built_once_and_kept_for_this_user_alone(cache, monkeypatch):
    first = build(EMPTY, "k")
    assert first.parent == cache and cache.stat().st_mode & 0o777 == 0o700
    assert [path.name for path in cache.iterdir()] == [first.name], "nothing half-made is left"
    monkeypatch.setattr(builder, "compile_to", None)  # to compile again would be an error
    assert build(EMPTY, "k") == first


def test_source_flags_and_header_are_in_the_key(cache):
    built = {
        build(EMPTY, "k"),
        build(EMPTY + " ", "k"),
        build(EMPTY, "k", options=("-DN=1",)),
        build(EMPTY, "k", traced=True),
    }
    assert len(built) == 4


def test_a_cache_that_others_could_write_is_not_used(cache):
    cache.mkdir()
    cache.chmod(0o777)
    assert build(EMPTY, "k").parent != cache


def test_without_a_home_a_temporary_folder_is_used(cache, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nowhere")
    library = build(EMPTY, "k")
    assert library.exists() and "triton-vs-cuda" in str(library)


def test_two_processes_may_build_at_once(cache):
    program = (
        f"from cuda_ref.emulator.run import EmulatedKernel; EmulatedKernel('''{EMPTY}''', 'k')"
    )
    both = [
        subprocess.Popen([sys.executable, "-c", program + "((1,), (1,), ())"], cwd=ROOT)
        for _ in range(2)
    ]
    assert [process.wait() for process in both] == [0, 0]
    assert len(list(cache.iterdir())) == 1


def test_the_full_softmax_takes_under_half_a_second_and_its_compile_under_one_and_a_half(cache):
    """Processor seconds, since other work may share the machine."""
    from cuda_ref import softmax

    before = os.times()
    source = softmax.SOURCE.read_text(encoding="utf-8")
    EmulatedKernel(source, softmax.KERNEL)
    after = os.times()
    spent = [getattr(after, n) - getattr(before, n) for n in ("children_user", "children_system")]
    assert sum(spent) < 1.5
    x, out = normal(2048, 1024), zeros(2048, 1024)
    took = []
    for _ in range(2):
        start = time.process_time()
        softmax.softmax_rows(x, out)
        took.append(time.process_time() - start)
    assert min(took) < 0.5
