"""The mode of the tests: the interpreter, unless tests that need a card were asked for."""

import os
from pathlib import Path

import pytest


def pytest_configure(config):
    """Set before any kernel is decorated, since `@triton.jit` reads it then."""
    if "gpu" not in (config.option.markexpr or "").replace("not gpu", ""):
        os.environ["TRITON_INTERPRET"] = "1"


@pytest.fixture
def student(tmp_path, monkeypatch):
    """Writes mine.cu into an empty current folder."""
    monkeypatch.chdir(tmp_path)

    def write(text):
        Path("mine.cu").write_text(text, encoding="utf-8")
        return "mine.cu"

    return write
