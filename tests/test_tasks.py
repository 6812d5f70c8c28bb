"""The tasks of a lesson and the two commands, `lesson` and `compiled`."""

import dataclasses
import json
import re
from pathlib import Path

import pytest
from lessons import PAIRS, SHAPES, lesson_of, whole

from compare import lesson, show_compiled
from compare.lesson import figures as lesson_facts
from compare.lesson import tasks
from compare.machine import Refusal
from compare.results import from_json, to_json

ROOT = Path(__file__).resolve().parent.parent
CUDA = {"softmax": "softmax_rows.cu", "matmul": "matmul_tiled.cu"}


# -- tasks -----------------------------------------------------------------------------------------


def without_barrier(pair, number, path):
    """The pair's .cu with one written barrier taken out."""
    text = (ROOT / "cuda_ref" / CUDA[pair]).read_text()
    found = list(re.finditer(r"^\s*__syncthreads\(\);\n", text, re.M))
    path.write_text(text[: found[number].start()] + text[found[number].end() :])
    return len(found)


@whole
@pytest.mark.parametrize("pair, right", (("softmax", 2), ("matmul", 1)))
def test_task_1_is_one_barrier_and_no_other(pair, right, tmp_path):
    mine = tmp_path / "mine.cu"
    count = without_barrier(pair, 0, mine)
    verdicts = []
    for number in range(count):
        without_barrier(pair, number, mine)
        verdicts.append(tasks.check(PAIRS[pair], SHAPES[pair], 1, str(mine))[0])
    assert verdicts == [number == right for number in range(count)]


@whole
def test_task_1_wants_exactly_one_barrier_less(tmp_path):
    mine = tmp_path / "mine.cu"
    text = (ROOT / "cuda_ref" / "softmax_rows.cu").read_text()
    mine.write_text(text)
    right, said = tasks.check(PAIRS["softmax"], SHAPES["softmax"], 1, str(mine))
    assert not right
    assert said == ["mine.cu has 5 barriers, softmax_rows.cu has 5: take out exactly one"]
    assert lesson.command("softmax", task=1, answer=str(mine)) == (said, 1)
    mine.write_text(text.replace("__syncthreads();", ""))
    right, said = tasks.check(PAIRS["softmax"], SHAPES["softmax"], 1, str(mine))
    assert not right and "mine.cu has 0 barriers, softmax_rows.cu has 5" in said[-1]


@whole
@pytest.mark.parametrize(
    "pair, answer, right",
    (
        ("softmax", "0-31", True),
        ("softmax", "31 - 0", True),
        ("softmax", "0-63", False),
        ("softmax", "0-127", False),
        ("matmul", "32-47", True),
        ("matmul", "0-31", False),
    ),
)
def test_task_2_knows_the_threads(pair, answer, right):
    assert tasks.check(PAIRS[pair], SHAPES[pair], 2, answer)[0] is right


@pytest.mark.parametrize(
    "pair, answer, right",
    (
        ("softmax", "7", True),
        ("softmax", "7 %", True),
        ("softmax", "12", False),
        ("matmul", "5", True),
        ("matmul", "9", False),
        ("matmul", "0", False),
    ),
)
def test_task_3_adds_both_orders(pair, answer, right):
    assert tasks.check(PAIRS[pair], SHAPES[pair], 3, answer)[0] is right


@pytest.mark.parametrize(
    "number, answer, words",
    (
        (1, "nosuchfile.cu", "can't be read"),
        (2, "thirty", "is no range of threads; write it as 0-255"),
        (3, "many", "is no number; write it as 50"),
    ),
)
def test_an_answer_that_does_not_parse_is_refused(number, answer, words):
    with pytest.raises(Refusal, match=words) as refusal:
        lesson.command("softmax", task=number, answer=answer)
    assert refusal.value.code == 2


@pytest.mark.parametrize("pair, answers", (("softmax", ("31", "7")), ("matmul", ("32", "47", "4"))))
def test_a_task_is_asked_without_its_answer(pair, answers):
    for number in (1, 2, 3):
        screen, code = lesson.command(pair, task=number)
        assert code == 0 and max(map(len, screen)) <= 100
        text = re.sub(r"1,024|1,000|float32|16|256", "", " ".join(screen))
        assert "{" not in text and "not known" not in text
        words = re.findall(r"\d+", text)
        assert not set(words) & set(answers), words
    assert lesson.command(pair, task=3, answer="50")[1] == 1
    with pytest.raises(Refusal, match="has no such task; its tasks are 1, 2, 3"):
        lesson.command(pair, task=9)


# -- the commands ----------------------------------------------------------------------------------
def compiled_command(name, **options):
    return show_compiled.command([name], **options)


@pytest.mark.parametrize("command", (lesson.command, compiled_command))
@pytest.mark.parametrize(
    "wrong, words",
    (
        ({"name": "softmx"}, "did you mean 'softmax'"),
        ({"name": "mine.py"}, "a file is run by 'python -m compare run mine.py'"),
        ({"name": "softmax", "arch": "sm_12"}, "arch 'sm_12' is unknown; choose sm_80"),
        ({"name": "softmax", "shape": "4x0"}, "1 column"),
        ({"name": "softmax", "shape": "4y0"}, "does not parse"),
    ),
)
def test_what_was_asked_wrong_is_one_sentence(command, wrong, words):
    with pytest.raises(Refusal, match=words) as refusal:
        command(**wrong)
    assert refusal.value.code == 2


def test_a_page_that_can_not_be_written_is_refused_before_the_work(monkeypatch, tmp_path):
    monkeypatch.setattr(lesson, "build", lambda *a: pytest.fail("it worked first"))
    with pytest.raises(Refusal, match="there is no folder"):
        lesson.command("softmax", html=str(tmp_path / "no" / "page.html"))


@whole
def test_the_command_writes_the_page_it_shows(tmp_path):
    path = tmp_path / "lesson.html"
    screen, code = lesson.command("softmax", html=str(path))
    assert code == 0 and screen[0].startswith("SOFTMAX OF ONE ROW")
    assert path.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_every_architecture_is_written_where_none_is_named(tmp_path):
    path = tmp_path / "made.json"
    show_compiled.command([], only=("matmul_tiled", "softmax"), path=str(path))
    written = [from_json(show_compiled.Compilation, one) for one in json.loads(path.read_text())]
    assert sorted((one.pair, one.arch) for one in written) == sorted(
        (pair, arch) for pair in PAIRS for arch in show_compiled.ARCHS
    )
    assert all(built.name in ("matmul_tiled", "softmax") for one in written for built in one.builds)


def test_compiled_exits_1_where_a_side_is_missing(monkeypatch, tmp_path):
    two = [i for i in PAIRS["softmax"].implementations if i.name in ("softmax", "torch.softmax")]
    found = show_compiled.compile_pair(PAIRS["softmax"], (64, 256), "sm_80", two)
    only = {"only": ("softmax", "torch.softmax"), "shape": "64x256", "arch": "sm_80"}
    path = tmp_path / "made.json"
    assert (
        show_compiled.command(["softmax"], **only, path=str(path))[1] == 0
    )  # a library is not missed
    written = json.loads(path.read_text(encoding="utf-8"))
    assert [from_json(show_compiled.Compilation, one) for one in written] == [found]
    skipped = dataclasses.replace(found.builds[0], codes=(), skipped="no compiler")
    lacking = dataclasses.replace(found, builds=(skipped, *found.builds[1:]))
    monkeypatch.setattr(show_compiled, "compile_pair", lambda *a, **b: lacking)
    screen, code = show_compiled.command(["softmax"])
    assert code == 1 and any("no compiler" in line for line in screen)


@whole
def test_a_lesson_survives_json():
    found = lesson_of("softmax")
    assert from_json(lesson.Lesson, to_json(found)).totals == found.totals
    assert lesson_facts.written_barriers(found.cuda)
