"""Where Triton and CuPy keep what they compiled: in their own folders or, where those can't be
written, in one that ends with this run.

Both keep it under the home folder. Where that can't be written Triton fails at its first launch,
CuPy (14) when it is imported.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from importlib.util import find_spec

from compare.machine import Refusal

made: list[str] = []  # folders of this process
VARIABLES = {"triton": "TRITON_CACHE_DIR", "cupy": "CUPY_CACHE_DIR"}


def ensure() -> None:
    """Points each variable that is unset at a temporary folder where the folder that it stands for
    can't be written. Before Triton or CuPy is imported; processes started later inherit it. Refusal
    where no folder can be written at all."""
    home = os.environ.get("TRITON_HOME") or os.path.expanduser("~")
    folders = {
        "triton": os.path.join(home, ".triton", "cache"),
        "cupy": os.path.expanduser("~/.cupy/kernel_cache"),
    }
    for package, name in VARIABLES.items():
        unset = not os.environ.get(name) and find_spec(package) is not None
        if unset and not writable(folders[package]):
            os.environ[name] = temporary(name)


def writable(folder: str) -> bool:
    """Whether `folder` is there, or can be made, and takes files."""
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK | os.X_OK)


def temporary(name: str) -> str:
    """A folder that ends with this process."""
    try:
        folder = tempfile.mkdtemp(prefix="triton-vs-cuda-")
    except OSError:
        raise Refusal(
            2, f"neither home nor a temporary folder can be written: set {name} to one that can"
        ) from None
    made.append(folder)
    return folder


@atexit.register
def remove() -> None:
    """Takes the temporary folders away."""
    while made:
        shutil.rmtree(made.pop(), ignore_errors=True)
