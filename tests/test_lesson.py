"""The lesson: sources cut at their labels, words with true numbers, frames, tasks."""

import io
import re
import tokenize
from pathlib import Path

import pytest
from lessons import PAIRS, lesson_of, whole

from compare import lesson, show_compiled, steps
from compare.lesson import figures as lesson_facts
from compare.lesson import stepper
from compare.report.lesson import LEFT, lines

ROOT = Path(__file__).resolve().parent.parent
CUDA = {"softmax": "softmax_rows.cu", "matmul": "matmul_tiled.cu"}

# -- sources and words -----------------------------------------------------------------------------

TRITON = """
import triton

@triton.jit
def other(x):
    # [load]
    return x

@triton.jit
def kernel(
    x_ptr,
):
    # Owns a row.

    # [load]
    x = 1
    # [fold it]
    y = 2
"""
CU = """
extern "C" __global__ void first() { }
extern "C" __global__ void second(int n)
{
  __shared__ float s[2];
  // [load]
  if (n) { s[0] = 1; }

  // [fold it]
  s[1] = 2;
}
__device__ void after() { }
"""


def test_a_triton_kernel_is_cut_at_its_labels():
    parts = steps.triton_parts(TRITON, "kernel")
    assert [(p.label, p.lines) for p in parts] == [
        ("kernel", ("def kernel(", "    x_ptr,", "):", "    # Owns a row.")),
        ("load", ("    x = 1",)),
        ("fold it", ("    y = 2",)),
    ]
    assert TRITON.splitlines()[parts[1].first - 1] == "    x = 1"
    assert steps.dedented(parts[1]) == ["x = 1"]


def test_a_cuda_kernel_is_cut_at_its_labels():
    parts = steps.cuda_parts(CU, "second")
    assert [p.label for p in parts] == ["kernel", "load", "fold it"]
    assert parts[0].lines[-1] == "  __shared__ float s[2];"
    assert parts[1].lines == ("  if (n) { s[0] = 1; }",)
    assert parts[2].lines == ("  s[1] = 2;", "}")
    assert parts[1].holds(parts[1].first) and not parts[1].holds(parts[1].first + 1)
    assert [p.label for p in steps.cuda_parts(CU, "first")] == ["kernel"]


@pytest.mark.parametrize("cut, text", ((steps.triton_parts, TRITON), (steps.cuda_parts, CU)))
def test_a_kernel_that_is_not_there_is_named(cut, text):
    with pytest.raises(ValueError, match=r"no .* missing"):
        cut(text, "missing")


@pytest.mark.parametrize("pair", PAIRS)
def test_every_step_has_words_in_both_models(pair):
    words = steps.words(pair)
    source = (ROOT / "cuda_ref" / CUDA[pair]).read_text()
    labels = re.findall(r"^\s*// \[([a-z ]+)\]$", source, re.M)
    assert list(words.block) == list(words.thread) == ["kernel", *labels]
    assert all(words.block.values()) and all(words.thread.values())
    assert len(words.glossary) >= 7
    assert sorted(words.tasks) == [1, 2, 3]


def test_what_a_machine_does_not_know_is_said():
    assert steps.filled("{a} of {b}", {"a": "3"}) == "3 of (not known on this machine)"
    assert steps.words("nosuchpair") is None


def test_words_are_read_with_their_settings():
    text = "[lesson]\ntitle = T\n[load]\ntouches = x e\nfolds = yes\nblock = one\n  two\n"
    text += "thread = three\n[glossary]\na program = a block = not this\n[task 2]\nask = why?\n"
    found = steps.parsed(text)
    assert found.block == {"load": "one two"} and found.thread == {"load": "three"}
    assert found.touches == {"load": ("x", "e")} and found.folds == ("load",)
    assert found.glossary == (("a program", "a block = not this"),)
    assert found.tasks == {2: {"ask": "why?"}}


BUILT_IN = re.compile(r"\b\w*_\w+|\b[a-z]+[A-Z]\w*|\btl\.\w+")  # what can't be a plain word
FILES = {"softmax": "triton_impl/softmax.py", "matmul": "triton_impl/matmul.py"}


def code_names(path):
    """Every name in a source's code; none of its comments or docstrings."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        kinds = {tokenize.NAME}
        tokens = tokenize.generate_tokens(io.StringIO(text).readline)
        return {token.string for token in tokens if token.type in kinds}
    return set(re.findall(r"[A-Za-z_]\w*", re.sub(r"//[^\n]*", "", text)))


@pytest.mark.parametrize("pair", PAIRS)
def test_every_code_name_of_the_words_is_in_the_source_beside_it(pair):
    words = steps.words(pair)
    block, thread = code_names(ROOT / FILES[pair]), code_names(ROOT / "cuda_ref" / CUDA[pair])
    told = [(text, block) for text in words.block.values()]
    told += [(text, thread) for text in words.thread.values()]
    told += [(here, block) for here, _ in words.glossary]
    told += [(there, thread) for _, there in words.glossary]
    told += [
        (text, block | thread) for pairs in (words.questions, words.bits) for text in sum(pairs, ())
    ]
    told += [(task["ask"], block | thread) for task in words.tasks.values()]
    known = {"cuBLAS", *(i.name for i in PAIRS[pair].implementations)}
    marked = set()
    for text, source in told:
        for code in re.findall("`([^`]+)`", text):
            names = set(re.findall(r"[A-Za-z_]\w*", code))
            assert names and names <= source, f"{code}: no {names - source} in the source"
            marked |= names
        bare = re.sub(r"`[^`]+`|\{\w+\}|\S+/\S+", "", text)
        assert set(BUILT_IN.findall(bare)) <= known, text
    assert len(marked) > 12


# -- the lesson ------------------------------------------------------------------------------------


@whole
@pytest.mark.parametrize("pair", PAIRS)
def test_a_lesson_lacks_nothing_here(pair):
    found = lesson_of(pair)
    assert found.missing == ()
    text = " ".join(lines(found))
    assert "not known" not in text and "{" not in " ".join(s.block + s.thread for s in found.steps)
    assert [step.label for step in found.steps] == [part.label for part in found.cuda.parts]
    assert [part.label for part in found.triton.parts] == [part.label for part in found.cuda.parts]


@whole
@pytest.mark.parametrize("width", (100, 72, 40))
@pytest.mark.parametrize("pair", PAIRS)
def test_the_screen_keeps_its_width_and_both_sources(pair, width):
    found = lesson_of(pair)
    screen = lines(found, width)
    # Stacked, a source keeps its own lines: indented by 4, they may be wider than the terminal.
    assert max(map(len, screen)) <= max(width, 0 if width >= 100 else LEFT + 4 + 4)
    for side, place in ((found.triton, 2), (found.cuda, LEFT + 5)):
        for part in side.parts:
            for line in steps.dedented(part):
                at = [row[place:] if width >= 100 else row[4:] for row in screen]
                assert any(row.startswith(line) for row in at), line


@whole
def test_softmax_s_numbers_add_up():
    found = lesson_of("softmax")
    counted = [dict((what, thread) for what, _, thread in step.numbers) for step in found.steps]
    written = [
        re.match(r"(\d+), run (\d+)", c["barriers written"])
        for c in counted
        if "barriers written" in c
    ]
    assert [(int(m[1]), int(m[2])) for m in written] == [(3, 10), (2, 9)]
    read = [c.get("bytes read and written", "0") for c in counted]
    assert read == ["0", "0", "4,096", "4,096", "8,192"]
    totals = {what: (left, right) for what, left, right in found.totals}
    assert totals["barriers written"] == ("0", "5")
    assert totals["barriers each thread runs"] == ("not counted", "19")
    assert totals["bytes asked of memory"] == ("16,777,216", "33,554,432")


@whole
def test_the_reader_finds_owner_barriers_and_bits():
    text = " ".join(" ".join(line.split()) for line in lines(lesson_of("softmax"), 72))
    assert "Who holds column 700? Thread 47 of 128" in text
    assert "since 700 = 2 * 256 + 188" in text
    assert "It never names a thread: x, e and cols are blocks of 1024" in text  # without marks
    assert "no word for it = __syncthreads(), __shared__, threadIdx.x" in text
    assert "The CUDA text writes 5, and each thread runs 19" in text
    assert "WHY THE BITS DIFFER" in text and "no word for it" in text


@whole
@pytest.mark.parametrize("shape", ((2048, 1024), (512, 1000)))
def test_column_700_has_one_owner_in_lesson_and_compiled(shape):
    found = lesson.build(PAIRS["softmax"], shape, "sm_90")
    row = next(row for row in found.totals if row[0] == "who holds column 700")
    two = [i for i in PAIRS["softmax"].implementations if i.name in ("softmax", "softmaxRows")]
    compiled = show_compiled.compile_pair(PAIRS["softmax"], shape, "sm_90", two)
    assert row[1:] == (compiled.holders["softmax"], compiled.holders["softmaxRows"])
    assert found.facts["triton_thread"] == row[1].removeprefix("thread ")
    assert row[2] == "thread 188"
    assert row[1] == {1024: "thread 47", 1000: "thread 60"}[shape[1]]


@whole
def test_the_screen_says_who_holds_what_small_and_real():
    found = lesson_of("softmax")
    totals = {what: (left, right) for what, left, right in found.totals}
    assert totals["all columns of it"] == ("188 .. 191, 700 .. 703", "188, 444, 700, 956")
    assert totals["levels of the fold"] == (
        "5 in a warp, 2 across warps",
        "8, in shared memory",
    )
    text = " ".join(" ".join(line.split()) for line in lines(found, 72))
    assert "columns 16 .. 31: lanes 8 8 9 9 10 10" in text
    assert "threads 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 columns" in text
    assert "threads 0 .. 7 take in 8 .. 15; barrier" in text
    assert "thread 0 takes in 1; barrier" in text
    assert "barrier 4: all 16 threads wait" in " ".join(lines(lesson_of("matmul")))


def test_numbers_in_a_row_are_put_together():
    assert lesson_facts.runs([1, 2, 3, 7, 9, 10]) == "1 .. 3, 7, 9 .. 10"
    assert lesson_facts.runs(range(0, 20, 2)) == "0, 2, 4, 6 .."
    assert lesson_facts.runs([]) == ""


@whole
def test_recorded_figures_are_labelled_and_left_out_where_there_are_none():
    found = lesson_of("softmax")
    assert [row[0] for row in found.totals][-1] == "on an H200 (recorded at 2048x1024)"
    other = lesson_of("matmul")  # told at 256x256x1024, recorded at another shape
    assert [row[0] for row in other.totals][-1] == "on an H200 (recorded at 2048x2048x2048)"
    assert "recorded at 2048x2048x2048)" in " ".join(lines(other))
    assert len(found.times) >= 4 and all(us > 0 for _, _, us in found.times)
    without = lesson.build(PAIRS["softmax"], (64, 1024), "sm_80", None)
    assert without.times == () and not any("recorded" in what for what, _ in without.bits)
    assert not any("recorded" in row[0] for row in without.totals)


def test_a_lesson_without_an_emulator_says_so(monkeypatch):
    monkeypatch.setattr(show_compiled, "one_block", lambda *a: "no C++ compiler was found")
    found = lesson.build(PAIRS["softmax"], (64, 1024), "sm_80")
    assert "no CUDA thread was run: no C++ compiler was found" in found.missing
    assert "no CUDA thread was run: no C++ compiler was found" in " ".join(lines(found))
    assert max(map(len, lines(found))) <= 100


def test_a_pair_without_labels_or_words_has_a_lesson_that_says_so(monkeypatch):
    monkeypatch.setattr(steps, "_LABEL", re.compile("nothing is a label"))
    monkeypatch.setattr(steps, "words", lambda pair: None)
    found = lesson.build(PAIRS["softmax"], (64, 1024), "sm_80")
    told = " ".join(found.missing)
    assert "softmax has no step labels; write '# [name]' on its own lines" in told
    assert "softmaxRows has no step labels; write '// [name]' on its own lines" in told
    assert "no words for softmax: write compare/pairs/lessons/softmax.txt" in told
    assert len(found.steps) == 1 and max(map(len, lines(found))) <= 100


def test_different_labels_are_told():
    left = steps.Side("a", "a.py", "", (steps.Part("kernel", 1, ()), steps.Part("load", 2, ())))
    right = steps.Side("b", "b.cu", "", (steps.Part("kernel", 1, ()), steps.Part("store", 2, ())))
    compilation = show_compiled.Compilation("p", (1,), "sm_80", (), 0)
    words = steps.Words({}, {"load": "x"}, {})
    told = lesson.missing(PAIRS["softmax"], left, right, compilation, "", "", words)
    assert "the two sources have different step labels: not all of them are aligned" in told


# -- frames ----------------------------------------------------------------------------------------


@whole
def test_the_small_row_is_what_the_kernel_did():
    shown = lesson_of("softmax").shown
    frames = shown.frames
    assert (shown.shape, shown.threads, shown.lanes) == ((1, 64), 16, 32)
    waits = [f for f in frames if f.barrier]
    assert [f.barrier for f in waits] == list(range(1, 12))  # 2 * (1 + 4) and the one between
    assert all("__syncthreads" in f.code and not f.reads for f in waits)
    walk = next(f for f in frames if f.reads)
    assert sorted((t, e) for t, a, e in walk.reads) == sorted((c % 16, c) for c in range(64))
    assert {a for _, a, _ in walk.reads} == {"x"}
    folds = [f for f in frames if f.label == "row max" and f.reads and f.writes]
    assert [len(f.writes) for f in folds] == [8, 4, 2, 1]
    assert sorted(folds[0].reads) == sorted(
        [(t, "shared", e) for t in range(8) for e in (t, t + 8)]
    )
    last = frames[-1]
    assert last.label == "scale and store" and len(last.writes) == 64
    assert {a for _, a, _ in last.writes} == {"out"}


@whole
def test_the_block_side_folds_by_shuffles():
    shown = lesson_of("softmax").shown
    assert shown.distances == (16, 8, 4, 2, 1)
    maximum = [f for f in shown.frames if f.label == "row max"]
    assert [len(set(f.groups)) for f in maximum[:6]] == [32, 16, 8, 4, 2, 1]
    assert maximum[-1].block == "done: one number, known to every lane"
    load = next(f for f in shown.frames if f.label == "load")
    assert load.groups == tuple(c // 2 for c in range(64))  # 2 neighbouring columns a lane


@whole
def test_the_small_tile_goes_round_its_loop():
    shown = lesson_of("matmul").shown
    labels = [label for label, _ in stepper.groupby(shown.frames, lambda f: f.label)]
    assert labels == ["tile", "load", "multiply", "load", "multiply", "store"]
    assert [f.barrier for f in shown.frames if f.barrier] == [1, 2, 3, 4]
    assert [f.label for f in shown.frames if f.barrier] == ["load", "multiply"] * 2
    multiply = next(f for f in shown.frames if f.label == "multiply")
    assert len(multiply.reads) == 16 * 2 * 4
    assert multiply.touched == ("a", "b", "acc")


def test_a_statement_is_found_from_any_of_its_lines():
    text = ["if (t < s)", "  scratch[t] =", "      fmaxf(a,  // why", "        b);", "x = 1;"]
    assert [stepper.statement(text, line) for line in (1, 2, 3, 4, 5)] == [1, 2, 2, 2, 5]
    assert stepper.code_at(text, 2) == "scratch[t] = fmaxf(a, b);"
