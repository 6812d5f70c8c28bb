"""A user's own kernel taken apart: FILE.py, which knows its launch, and a .cu alone."""

import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from students import EXAMPLES, HALF, NOTHING_BESIDE, words_of

from compare.show_threads import command
from compare.show_threads.subjects import told

F, INT = np.float32, np.int32
TREE = """extern "C" __global__ void rows(const float* in_ptr, float* out_ptr, int n_cols) {
  __shared__ float scratch[128];
  const float* x = in_ptr + (long long)blockIdx.x * n_cols;
  float* y = out_ptr + (long long)blockIdx.x * n_cols;
  int t = threadIdx.x;
  float m = x[0], sum = 0.0f;
  for (int c = t; c < n_cols; c += 128) m = fmaxf(m, x[c]);
  scratch[t] = m;
  __syncthreads();
  for (int s = 64; s > 0; s /= 2) {
    if (t < s) scratch[t] = fmaxf(scratch[t], scratch[t + s]);
    __syncthreads();
  }
  m = scratch[0];
  __syncthreads();
  for (int c = t; c < n_cols; c += 128) sum += expf(x[c] - m);
  scratch[t] = sum;
  __syncthreads();
  for (int s = 64; s > 0; s /= 2) {
    if (t < s) scratch[t] += scratch[t + s];
    __syncthreads();
  }
  for (int c = t; c < n_cols; c += 128) y[c] = expf(x[c] - m) / scratch[0];
}
"""
FILE = """from pathlib import Path
import numpy as np
from compare.pair import Implementation
from cuda_ref.kernel import Launch
PAIR = "softmax"
def of(name, times=1):
    def launcher(x, out):
        source = Path(__file__).with_name("mine.cu")
        for _ in range(times):
            Launch(source, name, (len(x),), (128,), (x, out, np.int32(x.shape[1])))()
    return launcher
def broken(x, out):
    raise KeyError("lost")
def whole_view(x, out):
    out[...] = x
    launch(out, out.reshape(-1))()
def goes_on(x, out):
    launch(x, out)()
    out *= 2
def begins(x, out):
    out *= 2
    out[...] = 0
    launch(x, out)()
def launch(x, out):
    source = Path(__file__).with_name("mine.cu")
    return Launch(source, "rows", (len(x),), (128,), (x, out, np.int32(x.shape[1])))
def copied(x, out):
    Launch(Path(__file__).with_name("mine.cu"), "rows", (len(x),), (128,),
           (x, out.copy(), np.int32(x.shape[1])))()
IMPLEMENTATIONS = [
    Implementation("tree", "cuda", of("rows"), arrays="cupy"),
    Implementation("other", "cuda", of("again"), arrays="cupy"),
    Implementation("twice", "cuda", of("rows", 2), arrays="cupy"),
    Implementation("none", "cuda", of("rows", 0), arrays="cupy"),
    Implementation("broken", "cuda", broken, arrays="cupy"),
    Implementation("copied", "cuda", copied, arrays="cupy"),
    Implementation("whole_view", "cuda", whole_view, arrays="cupy"),
    Implementation("goes_on", "cuda", goes_on, arrays="cupy"),
    Implementation("begins", "cuda", begins, arrays="cupy"),
    Implementation("library", "library", print),
]
"""


@pytest.fixture
def yours(student):
    """Writes mine.py and its mine.cu."""

    def write(source, file=FILE):
        student(source)
        Path("mine.py").write_text(file, encoding="utf-8")
        return "mine.py"

    return write


def lost(source, number):
    """`source` without the line of one of its barriers, numbered from 0."""
    at = [n for n, line in enumerate(source.splitlines()) if "__syncthreads" in line][number]
    return "\n".join("" if n == at else line for n, line in enumerate(source.splitlines()))


def numbers(screen):
    """Of every row of the second table: its first word and its tallies."""
    rows = [line for line in screen if re.match(r"  (\d  line|all in place)", line)]
    return [(row.split()[0], row[80:].split()) for row in rows]


def test_a_users_file_is_studied_as_it_launches(yours):
    screen, code = command(yours(TREE))
    text = "\n".join(screen)
    assert code == 0 and max(map(len, screen)) <= 100
    assert "64 blocks of 128 threads" in text and "rows wrong of 64, by data" in text
    assert numbers(screen) == [
        ("1", ["0", "0"]), ("2", ["0", "64"]), ("3", ["64", "64"]), ("4", ["64", "64"]),
        ("5", ["64", "64"]), ("all", ["0", "0"]),
    ]  # fmt: skip
    assert "1 and 2 are races whose answer is right on some of the data." in text
    assert "3 blocks of 128 threads" in "\n".join(command(yours(TREE), shape="3x200")[0])


@pytest.mark.parametrize("name", NOTHING_BESIDE)
def test_readmes_own_files_are_studied(name):
    screen, code = command(str(EXAMPLES / f"{name}.py"))
    assert code == 0 and "32 lanes move 128 bytes in 4 sectors" in "\n".join(screen)


def test_a_users_kernel_is_held_against_the_right_answer_not_against_itself(yours):
    screen, code = command(yours(lost(TREE, 3)))
    assert code == 1 and "64 of 64 rows are wrong on random data" in "\n".join(screen)
    assert numbers(screen)[-1] == ("all", ["64", "64"])
    screen, code = command(yours(TREE.replace("/ scratch[0]", "/ scratch[0] * 1.01f")))
    assert code == 1 and "64 of 64 rows are wrong on spike data" in "\n".join(screen)


def test_a_vectors_elements_are_counted(tmp_path):
    for end in ("py", "cu"):
        text = (EXAMPLES / f"vector_add.{end}").read_text()
        (tmp_path / f"vector_add.{end}").write_text(text.replace("if (i < n)", "if (i < n - 3)"))
    screen, code = command(str(tmp_path / "vector_add.py"), shape="1500")
    assert code == 1 and "  3 of 1,500 elements are wrong on random data" in screen


def test_an_output_that_the_launcher_copies_is_not_judged(yours):
    screen, code = command(yours(TREE), kernel="copied")
    assert code == 0 and {tuple(row[1]) for row in numbers(screen)} == {(".", ".")}
    assert "  . is not known: the launcher gives the kernel another array than out" in screen


def test_an_output_that_the_launcher_goes_on_with_is_not_judged(yours):
    screen, code = command(yours(TREE), kernel="goes_on", shape="4x64")
    assert code == 0 and {tuple(row[1]) for row in numbers(screen)} == {(".", ".")}
    assert "  . is not known: the launcher goes on with out after its launch" in screen
    screen, code = command("mine.py", kernel="begins", shape="4x64")
    assert code == 0 and numbers(screen)[-1] == ("all", ["0", "0"])


def test_what_a_launcher_does_after_its_launch_is_not_what_the_kernel_starts_from(yours):
    after = FILE.replace("    out *= 2\ndef begins", "    x[...] = np.nan\ndef begins")
    assert after != FILE
    screen, code = command(yours(TREE, after), kernel="goes_on", shape="4x64")
    assert code == 0 and numbers(screen)[-1] == ("all", ["0", "0"])


def test_a_kernel_in_place_through_a_view_is_right_and_its_races_are_seen(yours):
    screen, code = command(yours(TREE), kernel="whole_view", shape="4x64")
    assert code == 0 and numbers(screen)[-1] == ("all", ["0", "0"])
    early = TREE.replace("  scratch[t] = m;", "  if (t < n_cols) y[t] = x[t];\n  scratch[t] = m;")
    screen, code = command(yours(early), kernel="whole_view", shape="4x64")
    assert code == 1 and "race: line 8 (thread 0) writes in_ptr[0], line 6" in "\n".join(screen)


QUADS = """extern "C" __global__ void quads(const float* x, float* out) {
  ((float4*)out)[threadIdx.x] = ((const float4*)x)[threadIdx.x];
}
"""
OWN = """from pathlib import Path
import numpy as np
from compare.userpair import Implementation, pair
from cuda_ref.kernel import Launch
def launcher(x, out):
    {body}
PAIR = pair("own", inputs={{"x": "{given}"}}, output="{wanted}", shapes="{shapes}",
            reference=lambda x: {answer}, additions=0,
            implementations=[Implementation("own", "cuda", launcher, arrays="cupy")])
"""


def test_a_view_keeps_its_offset(yours):
    file = OWN.format(
        body='Launch(Path(__file__).with_name("mine.cu"), "quads", (1,), (32,), '
        "(x.reshape(-1)[START:], out))()",
        given="AxM", wanted="M", shapes="2x128", answer="x.reshape(-1)[START:128 + START]",
    )  # fmt: skip
    screen, code = command(yours(QUADS, file.replace("START", "1")))
    said = "line 2 (thread 0) reads x[0], at an address that is no multiple of its size"
    assert code == 1 and f"  {said}" in screen
    assert command(yours(QUADS, file.replace("START", "4")))[1] == 0


TWICE = (
    'Launch(Path(__file__).with_name("mine.cu"), "twice", (-(-out.size // 256) EVEN,), (256,), '
    "(x, out, np.int32(out.size)))()"
)


def test_a_shape_that_nobody_chose_is_smaller_along_its_first_side(yours):
    refuse = 'if x.shape[1] % WHOLE: raise ValueError("columns")\n    '
    file = OWN.format(body=refuse + TWICE.replace("EVEN", ""), given="MxN", wanted="MxN",
                      shapes="1000x1000", answer="2 * x")  # fmt: skip
    screen, code = command(yours(HALF, file.replace("WHOLE", "1000")))
    assert code == 0 and "489 blocks of 256 threads" in "\n".join(screen), "125x1000"
    said, _ = words_of(yours(HALF, file.replace("WHOLE", "300")))
    assert "own raised ValueError: columns at 125x1000; --shape chooses another shape" in said


@pytest.mark.parametrize(
    "usual, studied",
    (
        ((4096, 4096, 4096), (32, 64, 64)),
        ((100_000,), (100_000,)),
        ((1 << 20,), (1 << 17,)),
        ((4, 1 << 20), (4, 1 << 15)),
        ((0, 1 << 20), (0, 1 << 20)),
    ),
)
def test_the_shape_of_a_pair_that_is_not_known(usual, studied):
    pair = SimpleNamespace(name="own", shapes=lambda on_card: [usual], check_shape=lambda s: None)
    assert told(pair).shape == studied


def test_an_output_without_elements_asks_for_a_larger_shape(yours):
    said, _ = words_of(yours(TREE), kernel="tree", shape="0x64")
    assert "tree launches nothing at 0x64, where the output has no elements; take a larger" in said
    assert "cuda_ref" not in said


@pytest.mark.parametrize("shape", ("0x64", "64x0"))
def test_a_launch_over_no_elements_is_no_traceback(yours, shape):
    file = OWN.format(body=TWICE.replace("EVEN", "or 1"), given="MxN", wanted="MxN",
                      shapes="4x64", answer="2 * x")  # fmt: skip
    assert command(yours(HALF, file), shape=shape)[1] == 0


@pytest.mark.parametrize(
    "kernel, said",
    (
        ("twice", "mine.py: twice launches 2 kernels (rows, rows), and one is looked at; write a"),
        (
            "none",
            "mine.py: none launches nothing here; launch its kernel by cuda_ref.kernel.Launch",
        ),
        ("broken", "mine.py line 13: broken raised KeyError: 'lost'"),
        ("library", "mine.py has no CUDA kernel 'library'; it has tree (rows), other (again), "),
        (
            "third",
            "other (again), twice (rows rows), none, broken, copied (rows), whole_view (rows)",
        ),
    ),
)
def test_a_launcher_that_is_no_single_launch_is_one_sentence(yours, kernel, said):
    assert said in words_of(yours(TREE), kernel=kernel)[0]


def test_a_kernel_of_a_users_file_is_named_by_itself_or_by_its_implementation(yours):
    both = TREE.replace("/ scratch[0]", "") + TREE.replace("rows(", "again(")
    named = {name: command(yours(both), kernel=name)[1] for name in ("rows", "other", "again")}
    assert named == {"rows": 1, "other": 0, "again": 0}
    file = FILE.replace('"tree", "cuda", of("rows")', '"tree", "cuda", broken')  # none of its own
    assert command(yours(both, file), kernel="again")[1] == 0


def test_the_options_of_a_users_launch_are_kept(yours):
    old, new = "x.shape[1])))()\n    return", "x.shape[1])), ('-DTHREADS=128',))()\n    return"
    assert old in FILE
    assert command(yours(TREE.replace("128", "THREADS"), FILE.replace(old, new)))[1] == 0


def test_what_a_users_file_can_not_give_is_one_sentence(yours):
    triton = 'PAIR = "softmax"\nfrom compare.pair import Implementation\n' \
        'IMPLEMENTATIONS = [Implementation("mine", "triton", print)]\n'  # fmt: skip
    assert "mine.py has no CUDA kernel that runs without a card" in words_of(yours("", triton))[0]
    assert "leave --args out" in words_of(yours(TREE), arguments="int=1")[0]
    assert "--shape 4: softmax wants a shape ROWSxCOLS" in words_of(yours(TREE), shape="4")[0]
    assert "defines no PAIR" in words_of(yours(TREE, "x = 1\n"))[0]
    assert words_of("nowhere.py")[0] == "there is no file nowhere.py"


TYPED = {"grid": "4", "block": "128", "arguments": "float[4x1000] float[4x1000] int=1000"}


def test_a_faulty_file_is_no_measure_of_its_own_rows(student):
    screen, code = command(student(lost(TREE, 3)), **TYPED)
    text = "\n".join(screen)
    assert code == 1 and "rows changed of 4, by data" in text
    assert [tallies for _, tallies in numbers(screen)] == [["."]] * 5
    assert ". is not known: the kernel is wrong as it stands and --args names no right" in text
    screen, code = command(student(TREE), **TYPED)
    assert code == 0 and numbers(screen)[-1] == ("all", ["0"])


def test_what_is_told_above_is_no_rows_nothing(student):
    source = """extern "C" __global__ void k(float* x) {
      __shared__ float s[64];
      int t = threadIdx.x;
      s[t] = x[t];
      if (t < 32) __syncthreads();
      x[t] = s[t % 32];
    }"""
    screen, code = command(student(source), grid="1", block="64", arguments="float[64]")
    assert code == 1 and "what else collides without it" in "\n".join(screen)
    assert any(re.match(r"  1  line 5 +1   nothing more +\.$", line) for line in screen)


def test_a_divergent_file_is_told_of_in_one_way(student):
    """With a right answer or without, nothing of a kernel that is wrong is forgiven."""
    tail = "    if (t < s) scratch[t] += scratch[t + s];\n    __syncthreads();\n"
    assert tail in TREE
    inside = (
        "    if (t < s) {\n      scratch[t] += scratch[t + s];\n      __syncthreads();\n    }\n"
    )
    for typed in ({}, TYPED):
        path = student(TREE.replace(tail, inside))
        if not typed:
            path = "mine.py"
            Path(path).write_text(FILE)
        screen, code = command(path, **typed)
        text = "\n".join(screen)
        assert code == 1 and "divergent barrier" in text and "what else collides" in text
        assert "whose answer" not in text


def test_a_cell_that_is_too_wide_goes_on_in_the_next_line(student):
    source = """extern "C" __global__ void k(float* x) {
      if (threadIdx.x < 32) {
        __syncthreads();
        __syncthreads();
      } else {
        __syncthreads();
        __syncthreads();
      }
      x[threadIdx.x] = 0;
    }"""
    screen, _ = command(student(source), grid="1", block="64", arguments="float[64]")
    text = "\n".join(screen)
    assert ".." not in text and max(map(len, screen)) <= 100
    row = next(n for n, line in enumerate(screen) if line.startswith("  1  line 3"))
    assert screen[row][23:80].strip() == "divergent barrier: thread 0 waits at line 4, thread 63 at"
    assert screen[row + 1].strip() == "line 6"
