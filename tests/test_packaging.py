"""The wheel: built, installed elsewhere, run from another folder."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    for name in ("compare", "triton_impl", "cuda_ref", "pyproject.toml", "README.md", "LICENSE"):
        os.symlink(ROOT / name, source / name)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "-w", str(folder), str(source)], check=True, cwd=folder)
    return next(folder.glob("*.whl"))


def test_everything_that_runs_is_in_it(wheel):
    """Every tracked file of the three packages, and nothing beside them."""
    inside = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    wanted = set()
    for package in ("compare", "triton_impl", "cuda_ref"):
        for path in (ROOT / package).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                wanted.add(path.relative_to(ROOT).as_posix())
    assert wanted - inside == set()
    assert {name.split("/")[0] for name in inside} == {"compare", "triton_impl", "cuda_ref"}


def test_it_runs_from_another_folder_that_holds_a_compare_py(wheel, tmp_path):
    installed = tmp_path / "site"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile"]
    subprocess.run([*command, "--target", str(installed), str(wheel)], check=True)
    (tmp_path / "compare.py").write_text("raise SystemExit('the wrong compare')")
    environment = {**os.environ, "PYTHONPATH": str(installed), "PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("TRITON_INTERPRET", None)
    script = installed / "bin" / "triton-vs-cuda"
    call = [sys.executable, str(script), "softmax", "--cpu", "--shape", "3x700"]
    ran = subprocess.run(call, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "MATCH    all 2,100 elements within tolerance" in ran.stdout


def test_extras_and_scripts_are_what_the_readme_says():
    tomllib = pytest.importorskip("tomllib")  # of Python 3.11
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert set(project["optional-dependencies"]) >= {"cuda12", "cuda13", "test"}
    assert project["scripts"] == {"triton-vs-cuda": "compare.cli:entry"}
    linux = [name for name in project["dependencies"] if name.startswith("triton")]
    assert linux and all("sys_platform == 'linux'" in name for name in linux)
