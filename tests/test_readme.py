"""README: its sample is the recorded report, its commands parse, and those of a laptop run.

`python tests/test_readme.py` writes the sample anew, after a report was recorded.
"""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
SAMPLE = re.compile(r"(<!-- sample: [^>]*-->\n```text\n)(.*?)(```\n<!-- end of sample -->)", re.S)


def text():
    return README.read_text(encoding="utf-8")


def commands():
    """Every `python -m compare` line of the shell blocks."""
    for block in re.findall(r"```sh\n(.*?)```", text(), re.S):
        for line in block.splitlines():
            for part in line.split("&&"):
                if part.strip().startswith("python -m compare"):
                    yield part.strip()


def sample():
    from compare.kept import recorded
    from compare.report import terminal

    return "\n".join(terminal.report(recorded("h200"))) + "\n"


def test_the_sample_is_the_recorded_report():
    assert SAMPLE.search(text())[2] == sample()


@pytest.mark.parametrize("line", sorted(set(commands())))
def test_every_command_parses(line):
    from compare.arguments import parser

    words = shlex.split(line)[3:]
    top, known = parser()
    top.parse_args(words if words and words[0] in known else ["run", *words])


def test_set_up_and_test_commands_are_what_ci_runs():
    assert "pip install . && python -m compare" in text()
    assert "pip install '.[cuda13]' && python -m compare" in text()
    line = "pip install '.[cuda13,test]' && python -m pytest"
    assert line in text() and line in (ROOT / ".ci/run").read_text(encoding="utf-8")


LAPTOP = ("list", "show", "lesson softmax", "threads softmax", "compiled softmax")


@pytest.mark.parametrize("words", LAPTOP)
def test_a_command_of_a_laptop_runs_as_it_stands(words):
    assert any(line.split("compare ", 1)[-1].startswith(words) for line in commands()), words
    call = [sys.executable, "-m", "compare", *words.split()]
    ran = subprocess.run(call, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr[-2000:]
    assert max(map(len, ran.stdout.splitlines())) <= 100


def test_every_file_that_is_named_exists():
    for name in re.findall(r"`((?:compare|cuda_ref|triton_impl|tests)/[\w./]+)`", text()):
        assert (ROOT / name).exists(), name
    for name in re.findall(r"\]\(([\w./]+)\)", text()):
        assert (ROOT / name).exists(), name


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    README.write_text(SAMPLE.sub(lambda m: m[1] + sample() + m[3], text()), encoding="utf-8")
