"""The diagnosis: every fault at its lines and threads, nothing against a kernel that is right."""

import re
from pathlib import Path

import numpy as np
import pytest
from students import EXAMPLES, HALF, NOTHING_BESIDE, words_of

from compare import threads
from compare.machine import Refusal
from compare.report.threads import lines, memory_lines
from compare.show_threads import command
from compare.show_threads.hints import example
from compare.show_threads.typed import parse_arguments
from compare.threads.warps import Warp, WarpAccess
from cuda_ref import matmul_tiled, softmax, softmax_onepass
from cuda_ref.emulator.build import kernels
from cuda_ref.emulator.run import Parameter
from cuda_ref.emulator.trace import trace

F, INT = np.float32, np.int32
ROWS = softmax.SOURCE.read_text(encoding="utf-8")


def look(source, block, args, *, grid=(1,), shared_mem=0):
    """The trace of the only kernel of `source`, whose first line is line 1."""
    source = f'extern "C" __global__ {source}'
    return trace(source, kernels(source)[0], grid, block, args, shared_mem)


def found(source, block, args, **more):
    """Kind, line, thread, line and thread of every finding."""
    return [
        (
            f.kind,
            f.first.line,
            f.first.thread,
            *((f.second.line, f.second.thread) if f.second else ()),
        )
        for f in look(source, block, args, **more).findings
    ]


def floats(*shape):
    return np.random.default_rng(5).standard_normal(shape).astype(F)


def line_of(source, text, occurrence=0):
    """The number of the line that holds `text`, for the given time."""
    hits = [n for n, line in enumerate(source.splitlines(), 1) if text in line]
    return hits[occurrence]


# What each barrier of softmaxRows keeps apart: the lines of the two accesses.
WRITE_MAX = line_of(ROWS, "scratch[t] = m;")
FOLD_MAX = line_of(ROWS, "fmaxf(scratch[t], scratch[t + s])")
TAKE_MAX = line_of(ROWS, "m = scratch[0];")
WRITE_SUM = line_of(ROWS, "scratch[t] = sum;")
FOLD_SUM = line_of(ROWS, "scratch[t] += scratch[t + s];")
APART = (
    (FOLD_MAX, 0, WRITE_MAX, 128),
    (FOLD_MAX, 0, FOLD_MAX - 1, 1),
    (WRITE_SUM, 0, TAKE_MAX, 1),
    (FOLD_SUM, 0, WRITE_SUM, 128),
    (FOLD_SUM, 0, FOLD_SUM, 1),
)


def without(number):
    """The source with one __syncthreads() taken out of its text."""
    parts = ROWS.split("__syncthreads();")
    return "__syncthreads();".join(parts[: number + 1]) + ";" + "__syncthreads();".join(
        parts[number + 1 :]
    )  # fmt: skip


@pytest.mark.parametrize("number", range(5))
def test_each_barrier_taken_out_is_reported_at_its_lines_and_threads(number):
    x = floats(2, 1024)
    args = softmax.launch(x, np.empty_like(x)).args
    findings = trace(without(number), "softmaxRows", (2,), (256,), args).findings
    races = [f for f in findings if f.kind == "race"]
    first, second = races[0].first, races[0].second
    assert (first.line, first.thread, second.line, second.thread) == APART[number]
    assert re.match(r"scratch\[\d+\]$", races[0].place)


@pytest.fixture(scope="module")
def screens():
    """Each pair's screen and exit code."""
    return {name: command(name) for name in ("softmax", "matmul")}


def test_the_screen_of_softmax_has_the_five_barriers(screens):
    screen, code = screens["softmax"]
    text = "\n".join(screen)
    assert code == 0
    assert max(map(len, screen)) <= 100
    written = [
        n for n, line in enumerate(ROWS.splitlines(), 1) if line.strip() == "__syncthreads();"
    ]
    rows = re.findall(
        r"^  (\d)  line (\d+) +(\d+)   (\d+) (?:reads|writes) .* (\d+) +(\d+)$", text, re.M
    )
    assert [int(row[1]) for row in rows] == written
    assert [int(row[2]) for row in rows] == [1, 8, 1, 1, 8]
    assert [int(row[4]) for row in rows] == [0, 0, 64, 64, 64], "random data forgives two"
    assert [int(row[5]) for row in rows] == [64] * 5, "spike forgives none"
    for (ahead, _, behind, _), row in zip(APART, rows, strict=True):
        assert f"{ahead} " in row[3] + " " or str(ahead) == row[3]
        assert re.search(rf"^  {row[0]}  .* before {behind} ", text, re.M)
    assert "1 and 2 are races whose answer is right" in text
    assert "The row maximum" in text or "row maximum" in text
    figures = re.findall(r"^  (global|shared|barriers)(.*)$", text, re.M)
    assert [row[1].split()[-4:] for row in figures] == [
        ["3,072", "12", "12", "12"], ["1,024", "4", "4", "4"], ["1,532", "34", "2", "6.0"],
        ["1,022", "18", "2", "4.0"], [".", "19", "19", "19"],
    ]  # fmt: skip
    assert "32 lanes move 128 bytes in 4 sectors, the fewest possible" in text
    assert "no bank conflicts" in text


def test_the_screen_of_matmul_has_two_barriers_a_step(screens):
    screen, code = screens["matmul"]
    assert code == 0 and max(map(len, screen)) <= 100
    assert len([line for line in screen if re.match(r"  \d  line", line)]) == 2
    assert any(line.startswith("  all in place         nothing") for line in screen)


SHAPES = ((3, 1), (2, 31), (2, 1000), (2, 1023), (1, 2049), (1, 5000), (1, 20000), (1, 33000),
          (1, 33001))  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
def test_nothing_is_said_against_the_shipped_softmax_kernels(shape):
    x = floats(*shape)
    for module in (softmax, softmax_onepass):
        launch = module.launch(x, np.full(shape, np.nan, F))
        source = launch.file.read_text(encoding="utf-8")
        result = trace(source, launch.name, launch.grid, launch.block, launch.args)
        assert result.ended and result.findings == (), launch.name
        assert np.allclose(launch.args[1].sum(axis=1), 1, atol=1e-5)


@pytest.mark.parametrize("cols", (64, 33000))
def test_the_one_pass_kernel_moves_quads_only_where_a_row_is_aligned(cols):
    """Off by one float on either side, a 128-bit access would be a fault on a card."""
    room = np.zeros((2, 2, cols + 8), F)
    for x, y in (
        (room[0, :, 1 : cols + 1], room[1, :, :cols]),
        (room[0, :, :cols], room[1, :, 3:-5]),
    ):
        launch = softmax_onepass.launch(x, y)
        source = launch.file.read_text(encoding="utf-8")
        result = trace(source, launch.name, launch.grid, launch.block, launch.args)
        assert result.findings == ()


@pytest.mark.parametrize("m, n, k", ((1, 1, 1), (17, 33, 40), (16, 16, 16)))
def test_nothing_is_said_against_matmul_tiled(m, n, k):
    launch = matmul_tiled.launch(floats(k, m).T, floats(n, k).T, np.empty((m, n), F))
    source = launch.file.read_text(encoding="utf-8")
    result = trace(source, launch.name, launch.grid, launch.block, launch.args)
    assert result.ended and result.findings == ()


FAULTY = {
    "a barrier in a branch": (
        """void k(float* x) {
          __shared__ float s[64];
          s[threadIdx.x] = x[threadIdx.x];
          if (threadIdx.x < 40)
            __syncthreads();
        }""",
        (64,), [("missed", 5, 39, 0, 40)],
    ),
    "barriers at two lines": (
        """void k(float* x) {
          if (threadIdx.x % 2) {
            __syncthreads();
          } else {
            __syncthreads();
          }
        }""",
        (64,), [("diverged", 5, 0, 3, 63)],
    ),
    "a return before a barrier": (
        """void k(float* x) {
          if (threadIdx.x == 7) return;
          __syncthreads();
        }""",
        (64,), [("missed", 3, 63, 0, 7)],
    ),
    "shared memory that nobody wrote": (
        """void k(float* x) {
          __shared__ float s[64];
          if (threadIdx.x < 60) s[threadIdx.x] = 1;
          __syncthreads();
          x[threadIdx.x] =
              s[threadIdx.x];
        }""",
        (64,), [("unwritten", 6, 60)],
    ),
    "a read past the end": (
        """void k(float* x) {
          float v = 0;
          v += x[threadIdx.x + 1];
          if (v == 7) x[0] = v;
        }""",
        (64,), [("outside", 3, 63)],
    ),
    "a write before the start": (
        """void k(float* x) {
          int t = threadIdx.x;
          x[t - 3 * (t == 5)]
              = 0;
          x[2 + t - 10 * (t == 5)] = 1;
        }""",
        (6,), [("outside", 5, 5)],
    ),
    "a race in global memory": (
        """void k(float* x) {
          x[threadIdx.x] = 1;
          x[63 - threadIdx.x] += 1;
        }""",
        (64,), [("race", 3, 31, 2, 32), ("race", 2, 31, 3, 32)],
    ),
    "all write one element": (
        """void k(float* x) {
          x[0] = threadIdx.x;
        }""",
        (64,), [("race", 2, 0, 2, 1)],
    ),
    "an atomic and a plain access": (
        """void k(float* x) {
          atomicAdd(x, 1.0f);
          if (threadIdx.x == 9) x[1] = x[0];
        }""",
        (32,), [("race", 3, 9, 2, 10)],
    ),
    "a warp without __syncwarp": (
        """void k(float* x) {
          __shared__ float s[32];
          s[threadIdx.x] = x[threadIdx.x];
          float v = __shfl_xor_sync(~0u, x[threadIdx.x], 1);
          x[threadIdx.x] = v + s[threadIdx.x ^ 1];
        }""",
        (32,), [("race", 3, 1, 5, 0)],
    ),
    "a float4 at an odd place": (
        """void k(float* x) {
          float4 q = *(float4*)(x + 4 * threadIdx.x + 1);
          if (q.x == 77)
            x[0] = q.y;
        }""",
        (4,), [("misaligned", 2, 0)],
    ),
    "a shuffle from a lane that is not there": (
        """void k(float* x) {
          float v = x[threadIdx.x];
          v +=
            __shfl_down_sync(~0u, v, 16);
          x[threadIdx.x] = v;
        }""",
        (24,), [("stray lane", 4, 8, 4, 24)],
    ),
    "lanes that wait for ever": (
        """void k(float* x) {
          if (threadIdx.x < 8) __syncwarp();
          else
            __syncthreads();
        }""",
        (32,), [("stuck", 4, 31)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTY)
def test_a_fault_is_reported_at_its_line(fault):
    source, block, want = FAULTY[fault]
    got = found(source, block, (floats(64),))
    if fault == "a write before the start":  # 5 - 3 is inside, and collides with thread 2
        got = [finding for finding in got if finding[0] == "outside"]
    assert got == want
    for finding in look(source, block, (floats(64),)).findings:
        assert str(finding.first.line) in finding.sentence()
        assert str(finding.first.thread) in finding.sentence()


RIGHT = {
    "an early return, and no barrier after it": (
        "void k(float* x) { if (threadIdx.x > 9) return; x[threadIdx.x] = 0; }", (64,),
    ),
    "__syncwarp between lanes": (
        """void k(float* x) {
          __shared__ float s[32];
          s[threadIdx.x] = x[threadIdx.x];
          __syncwarp();
          x[threadIdx.x] = s[threadIdx.x ^ 1];
          __syncwarp();
          s[threadIdx.x] = 0;
        }""", (32,),
    ),
    "all read one element, then one writes it behind a barrier": (
        """void k(float* x) {
          float v = x[0];
          __syncthreads();
          if (threadIdx.x == 40) x[0] = v + 1;
        }""", (64,),
    ),
    "atomics meet": ("void k(float* x) { atomicAdd(x, 1.0f); atomicMax((int*)x + 1, 4); }", (64,)),
    "neighbouring bytes of one word": (
        "void k(char* x) { x[threadIdx.x] = 1; x[threadIdx.x] += 1; }", (64,),
    ),
    "private arrays and by-value structs": (
        """void k(float* x) {
          float mine[8];
          for (int i = 0; i < 8; ++i) mine[i] = x[threadIdx.x] * i;
          float4 q = make_float4(mine[1], mine[2], mine[3], mine[threadIdx.x % 8]);
          x[threadIdx.x] = q.x + q.w;
        }""", (64,),
    ),
    "whole float4": (
        """void k(float4* x) {
          float4 q = x[threadIdx.x];
          q.x += 1;
          x[threadIdx.x] = q;
        }""", (16,),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", RIGHT)
def test_nothing_is_said_against_what_is_right(case):
    source, block = RIGHT[case]
    x = floats(64) if "char" not in source else np.zeros(64, np.int8)
    assert found(source, block, (x,)) == []


def test_a_launch_is_stopped_before_an_access_outside_is_made():
    source = "void k(float* x) { x[threadIdx.x] = 2; x[100000000] = 1; }"
    x = floats(4)
    result = look(source, (4,), (x,))
    assert not result.ended and x[0] == 2 != x[1]
    assert result.findings[0].place == "x[100000000]"
    assert "outside the arrays that were passed" in result.findings[0].sentence()


def test_dynamic_shared_memory_ends_where_the_launch_says():
    source = "void k(float* x) { extern __shared__ float s[]; s[threadIdx.x] = 1; x[0] = 0; }"
    assert [f.kind for f in look(source, (8,), (floats(4),), shared_mem=32).findings] == ["race"]
    first = look(source, (9,), (floats(4),), shared_mem=32).findings
    assert [f.kind for f in first if f.kind != "race"] == ["outside"]


def accesses(source, block, args, **more):
    return threads.warp_accesses(look(source, block, args, **more).log)


def test_sectors_of_a_warps_access():
    """Neighbours fill 4 sectors of 32 bytes; a stride of 8 floats takes one a lane."""
    for stride, cost, fewest in ((1, 4, 4), (2, 8, 4), (8, 32, 4), (0, 1, 1)):
        source = f"void k(const float* x, int n) {{ if (x[threadIdx.x * {stride}] == 7) n = 0; }}"
        args = threads.placed((floats(256), INT(0)))
        (access,) = accesses(source, (32,), args)
        assert (access.what, access.cost, access.fewest) == ("global read", cost, fewest), stride
    source = "void k(const float4* x, float4* y) { y[threadIdx.x] = x[threadIdx.x]; }"
    read, write = accesses(source, (32,), threads.placed((floats(128), floats(128))))
    assert (read.bytes, read.cost, read.fewest) == (16, 16, 16)
    assert (write.what, write.bytes, write.cost) == ("global write", 16, 16)


@pytest.mark.parametrize(
    "index, passes",
    (
        ("t", 1),
        ("t * 2", 2),
        ("t * 32", 32),
        ("t * 33", 1),
        ("0", 1),
        ("t / 2", 1),
        ("t % 2 * 32", 2),
    ),
)
def test_bank_conflicts(index, passes):
    source = f"""void k(float* x) {{
      __shared__ float s[1056];
      int t = threadIdx.x;
      for (int i = t; i < 1056; i += 32) s[i] = i;
      __syncthreads();
      x[t] = s[{index}];
    }}"""
    by_line = {a.line: a for a in accesses(source, (32,), (floats(32),)) if a.what == "shared read"}
    assert (by_line[6].cost, by_line[6].fewest) == (passes, 1)


def test_counts_are_per_thread():
    source = "void k(float* x) { for (int i = 0; i <= threadIdx.x; ++i) x[threadIdx.x] = i; }"
    log = look(source, (4,), (floats(4),)).log
    count = {c.what: c for c in threads.counts(log, 4)}["global write"]
    assert (count.total, count.first, count.last, count.mean) == (10, 1, 4, 2.5)


def test_arrays_are_placed_as_a_card_places_them():
    x = floats(4, 6)[:, 1:4][::-1]
    a, b, n = threads.placed((x, x, INT(3)))
    assert a is b and n == 3 and (a == x).all() and a.strides == x.strides
    assert a[-1:].ctypes.data % 256 == 4, "a view keeps its offset in the array that is owned"


def test_views_of_one_array_share_their_bytes_as_before():
    x = np.arange(12, dtype=F).reshape(3, 4)
    flat, tail, whole, other = threads.placed((x.reshape(-1), x.reshape(-1)[1:], x, x.copy()))
    assert flat.ctypes.data % 256 == 0 and tail.ctypes.data == flat.ctypes.data + 4
    assert (whole == x).all() and (tail == np.arange(1, 12)).all() and whole.strides == x.strides
    flat[5] = 70
    assert whole[1, 1] == tail[4] == 70 and other[1, 1] == x[1, 1] == 5


def test_memory_that_numpy_does_not_own_is_copied_once():
    buffer = bytearray(64)
    first, second = (np.frombuffer(buffer, F, count=8, offset=at) for at in (0, 16))
    strided = np.lib.stride_tricks.as_strided(np.arange(8, dtype=F)[2:], (3,), (8,))
    a, b, c, empty = threads.placed((first, second, strided, floats(0, 4)))
    assert b.ctypes.data == a.ctypes.data + 16 and c.tolist() == [2, 4, 6]
    assert c.ctypes.data % 256 == 8 and empty.shape == (0, 4)


def test_a_students_file_with_a_missing_barrier_exits_1(student):
    screen, code = command(student(without(1)))
    text = "\n".join(screen)
    assert code == 1 and "WRONG AS IT STANDS" in text
    assert f"line {FOLD_MAX} (thread 0) reads scratch[1], line {FOLD_MAX - 1} (thread 1)" in text
    assert "64 of 64 rows are wrong on spike data" in text and "wrong on random" not in text
    assert "all rows are right on random data; it is a fault all the same" in text
    assert "whose answer" not in text, "what is forgiven is not told of a kernel that is wrong"


def test_a_students_file_that_is_right_exits_0(student):
    assert command(student(ROWS.replace("softmaxRows", "mine").replace("// [", "// (")))[1] == 0


REVERSE = """extern "C" __global__ void reverse(float* x, int n) {
  extern __shared__ float s[];
  s[threadIdx.x] = x[blockIdx.x * n + threadIdx.x];
  __syncthreads();
  x[blockIdx.x * n + threadIdx.x] = s[n - 1 - threadIdx.x];
}
"""


def test_a_file_of_another_operation_takes_its_arguments_from_the_command_line(student):
    path = student(REVERSE)
    given = {"grid": "4", "block": "64", "arguments": "float[4x64] int=64", "shared_mem": 256}
    screen, code = command(path, **given)
    row = next(line for line in screen if line.startswith("  1  line 4"))
    assert code == 0 and "5 reads s[32] before 3 wrote it (threads 31, 32)" in row
    assert row.split()[-1] == "4", "without it all four rows change"
    assert "rows changed of 4, by data" in "\n".join(screen)
    assert command(path, **{**given, "arguments": "float[4x64] int=65"})[1] == 1
    assert command(student(REVERSE.replace("__syncthreads();", "")), **given)[1] == 1


@pytest.mark.parametrize("empty", ("float[0x4]", "float[4x0]", "float[0]"))
def test_an_argument_without_elements_is_no_traceback(student, empty):
    path = student(HALF)
    screen, code = command(path, grid="1", block="64", arguments=f"{empty} float[64] int=0")
    assert code == 0 and "no __syncthreads() is written" in "\n".join(screen)


def test_arguments_of_the_command_line():
    x, n, y, a = parse_arguments("float[2x3], int=-4 unsigned[5]=7 double=0.5", 1)
    assert x.shape == (2, 3) and x.dtype == F and len(set(x.ravel())) == 6
    assert n == -4 and n.dtype == INT and y.tolist() == [7] * 5 and y.dtype == np.uint32
    assert a == 0.5 and a.dtype == np.float64


@pytest.mark.parametrize(
    "target, more, code, said",
    (
        ("softmx", {}, 2, "pair 'softmx' is unknown; did you mean 'softmax'"),
        ("nowhere.cu", {}, 2, "nowhere.cu can't be read: No such file"),
        ("softmax", {"kernel": "softmaxCols"}, 2, "softmax has no kernel 'softmaxCols'"),
        ("softmax", {"shape": "4"}, 2, "--shape 4: softmax wants a shape ROWSxCOLS"),
        (REVERSE, {}, 2, r"reverse\(float\*, int\): its"),
        (REVERSE, {"arguments": "float[4]"}, 2, "--args needs the launch of reverse as well"),
        ("softmax", {"block": "THREADS"}, 2, "--block 'THREADS' does not parse; write numbers"),
        ("softmax", {"grid": "1x1x1x1"}, 2, "--grid '1x1x1x1' does not parse"),
        (REVERSE, {"grid": "1", "block": "1", "arguments": "flt[4]"}, 2, "'flt.4.' does not parse"),
        (REVERSE, {"grid": "1", "block": "1", "arguments": "int=x"}, 2, "x is no int"),
        (REVERSE, {"grid": "1", "block": "1", "arguments": "int=4"}, 1, "takes 2 arguments, got 1"),
        (REVERSE + REVERSE.replace("reverse", "two"), {}, 2, "several kernels: reverse, two; name"),
        ("int x;", {}, 2, "no __global__ function"),
        (REVERSE.replace("int n", "short n["), {"kernel": "reverse"}, 1, "mine.cu line 1"),
    ),
)  # fmt: skip
def test_bad_input_is_one_sentence(student, target, more, code, said):
    target = student(target) if "(" in target or ";" in target else target
    with pytest.raises(Refusal, match=said) as refused:
        command(target, **more)
    assert refused.value.code == code


def test_without_a_compiler_it_says_what_to_install(monkeypatch):
    monkeypatch.setenv("CXX", "/nowhere/g++")
    with pytest.raises(Refusal, match=r"a card or a C\+\+ compiler") as refused:
        command("softmax")
    assert refused.value.code == 2


def test_a_kernel_without_barriers_says_so():
    data = (threads.Data("random", lambda: (floats(4),), lambda args: threads.Tally(0, 4)),)
    source = 'extern "C" __global__ void k(float* x) { x[threadIdx.x] = 0; }'
    result = threads.study(source, "k", (1,), (4,), data)
    assert result.clean and "  no __syncthreads() is written" in lines(result)


def test_an_address_that_all_lanes_share_does_not_stand_for_a_full_access():
    shared = WarpAccess("global read", 1, 4, 8, 1.0, 1.0, Warp(32, 4, 1))
    full = WarpAccess("global read", 2, 4, 8, 3.9, 3.9, Warp(32, 128, 4))
    assert memory_lines([shared, full]) == [
        "  32 lanes move 128 bytes in 4 sectors, the fewest possible"
    ]
    assert memory_lines([shared]) == ["  32 lanes share 4 bytes in 1 sector, the fewest possible"]


def test_a_last_warp_that_is_not_full_does_not_change_what_a_full_one_took():
    """1000 columns: lanes that all read x[0] are 32 on average, those of x[c] are fewer."""
    source = """void k(const float* x, float* y, int n) {
      float all = x[0];
      for (int c = threadIdx.x; c < n; c += 32) y[c] = x[c] + all;
    }"""
    args = threads.placed((floats(1000), floats(1000), INT(1000)))
    found = accesses(source, (32,), args)
    assert {a.widest for a in found} == {Warp(32, 128, 4), Warp(32, 4, 1)}
    assert memory_lines(found) == ["  32 lanes move 128 bytes in 4 sectors, the fewest possible"]


def test_an_example_of_arguments_can_be_pasted():
    text = example([Parameter("f4", pointer=True), Parameter("i4"), Parameter("i8")])
    assert text == "float[64x1024] int=1024 long=1024"
    assert [np.shape(value) for value in parse_arguments(text, 1)] == [(64, 1024), (), ()]


@pytest.mark.parametrize("name", NOTHING_BESIDE)
def test_a_file_with_other_parameters_is_told_what_can_be_typed(tmp_path, monkeypatch, name):
    """The block is not known, so none is made up. What is printed can be pasted."""
    monkeypatch.chdir(tmp_path)
    Path(f"{name}.cu").write_text((EXAMPLES / f"{name}.cu").read_text())
    said, said_lines = words_of(f"{name}.cu")
    assert "its parameters are those of no pair's kernel; say its launch and its sizes" in said
    first, second = said_lines[-2:]
    assert first == f"  python -m compare threads {name}.cu --grid BLOCKS --block THREADS \\"
    assert second == f"    --args '{NOTHING_BESIDE[name]}'"
    grid, block = {"my_softmax": ("64", "32"), "vector_add": ("256", "256")}[name]
    assert command(f"{name}.cu", grid=grid, block=block, arguments=NOTHING_BESIDE[name])[1] == 0
    Path(f"{name}.py").write_text("x = 1\n")
    assert ".py" not in words_of(f"{name}.cu")[0], "a file of another kind"
    Path(f"{name}.py").write_text((EXAMPLES / f"{name}.py").read_text())
    said, said_lines = words_of(f"{name}.cu")
    assert f"{name}.py beside it says how it is launched" in said
    assert f"  python -m compare threads {name}.py" in said_lines


def test_one_number_of_a_matrix_is_no_length_of_vectors(student):
    source = """extern "C" __global__ void k(const float* x, float* out, int NAME) {
      int i = blockIdx.x * blockDim.x + threadIdx.x;
      for (int c = 0; c < NAME; ++c) out[i * NAME + c] = x[i * NAME + c];
    }"""
    assert "float[64x1024] int=1024'" in words_of(student(source.replace("NAME", "n_cols")))[0]
    source = source.replace("NAME", "n")
    assert "float[65536] int=65536'" in words_of(student(source))[0]
    source = source.replace("blockIdx.x * blockDim.x + threadIdx.x", "blockIdx.x")
    assert "float[64x1024] int=1024'" in words_of(student(source))[0]


# A pair's kernel of a user's own parameters: softmax of a row by 128 threads.
OUTSIDE = {
    "a tree that starts too high": (
        "__shared__ float scratch[64];",
        "scratch[t] = x[t]; __syncthreads(); x[t] = scratch[t + 64];",
        "reads scratch[64], outside that array: its last element is scratch[63]",
    ),
    "far beyond": (
        "__shared__ float scratch[64];",
        "scratch[t] = x[t]; __syncthreads(); x[t] = scratch[t + 3000];",
        "reads scratch[3000], outside that array: its last element is scratch[63]",
    ),
    "before its start": (
        "__shared__ float scratch[64];",
        "scratch[t - 1] = x[t];",
        "writes scratch[-1], outside that array: its last element is scratch[63]",
    ),
    "a row of a tile too many": (
        "__shared__ float tile[4][16];",
        "tile[4 - t / 16][t % 16] = x[t];",
        "writes tile[4][0], outside that array: its last element is tile[3][15]",
    ),
    "dynamic memory that the launch does not give": (
        "extern __shared__ float s[];",
        "s[t + 8] = x[t];",
        "writes s[8], outside that array: the launch gives 32 bytes of dynamic shared memory",
    ),
    "dynamic memory, before its start": (
        "extern __shared__ float s[];",
        "s[-1 - t] = x[t];",
        "writes s[-1], outside that array: the launch gives 32 bytes of dynamic shared memory",
    ),
    "an array that was passed": (
        "__shared__ float scratch[64];",
        "scratch[t] = x[t + 64];",
        "reads x[64], outside the arrays that were passed",
    ),
    "an array that was passed, far beyond": (
        "__shared__ float scratch[64];",
        "scratch[t] = x[t + 100000];",
        "reads x[100000], outside the arrays that were passed",
    ),
}


@pytest.mark.parametrize("case", OUTSIDE)
def test_an_access_outside_names_the_array_that_was_meant(case):
    declared, body, said = OUTSIDE[case]
    source = f"void k(float* x) {{ {declared} int t = threadIdx.x; {body} }}"
    result = look(source, (64,), threads.placed((floats(64),)), shared_mem=32)
    assert not result.ended
    assert result.findings[-1].sentence() == f"line 1 (thread 0) {said}"


def test_no_shared_variable_is_taken_for_outside_nor_its_guard_for_shared_memory():
    """Arrays of functions, templates, files and structs; beside the last g++ keeps a guard."""
    source = """void k(float* x);
    __device__ void other(float* x, int i) { __shared__ float s[9]; s[i] = x[i]; }
    extern "C" __global__ void other(float* x) { __shared__ float s[9]; s[0] = x[0]; }
    __shared__ float of_file[3];
    template <int N> __device__ float& of_template(int i) { __shared__ float s[N]; return s[i]; }
    extern "C" __global__ void k(float* x) {
      __shared__ double mine[2];
      __shared__ float4 quads[2];
      int t = threadIdx.x;
      if (t < 3) of_file[t] = x[t];
      other(x, t);
      if (t < 5) of_template<5>(t) = x[t];
      if (t < 7) of_template<7>(t) = x[t];
      if (t < 2) mine[t] = x[t], quads[t] = make_float4(0, 0, 0, 0);
    }"""
    result = look(source, (8,), (floats(8),))
    assert result.ended and result.findings == ()
    kinds = threads.counts(result.log, 8)
    assert {c.what: c.total for c in kinds}["shared write"] == 8 + 3 + 5 + 7 + 2 + 2


def kernel_of(name, array, size, head='extern "C" __global__'):
    return f"""{head} void {name}(float* out) {{
  __shared__ float {array}[{size}];
  {array}[threadIdx.x + 1] = 1;
  __syncthreads();
  out[threadIdx.x] = {array}[threadIdx.x + 1];
}}
"""


@pytest.mark.parametrize("head", ('extern "C" __global__', "__global__", "static __global__"))
def test_another_kernels_shared_memory_is_outside(head):
    mine = kernel_of("ka", "a", 32)
    for source in (kernel_of("kb", "b", 64, head) + mine, mine + kernel_of("kb", "b", 64, head)):
        result = trace(source, "ka", (1,), (32,), threads.placed((floats(32),)))
        assert not result.ended
        said = "(thread 31) writes a[32], outside that array: its last element is a[31]"
        assert result.findings[-1].sentence().endswith(said)
    assert trace(mine.replace("32", "33"), "ka", (1,), (32,), (floats(32),)).findings == ()
