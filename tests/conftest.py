"""The mode of the tests: the interpreter, unless tests that need a card were asked for."""

import os


def pytest_configure(config):
    """Set before any kernel is decorated, since `@triton.jit` reads it then."""
    if "gpu" not in (config.option.markexpr or "").replace("not gpu", ""):
        os.environ["TRITON_INTERPRET"] = "1"
