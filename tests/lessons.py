"""The lessons of both pairs, built once for all tests, and what the machine must have for them."""

import functools
import shutil

import pytest

from compare import lesson
from compare.compiled import compilers
from compare.pairs import matmul, softmax
from compare.run import recorded

PAIRS = {"softmax": softmax.PAIR, "matmul": matmul.PAIR}
SHAPES = {"softmax": (2048, 1024), "matmul": (256, 256, 1024)}


def lacking():
    """Why no whole lesson can be built here, "" where it can."""
    try:
        compilers.cubin('extern "C" __global__ void k() {}', "k", (), "sm_80")
    except compilers.Missing as missing:
        return str(missing)
    wanted = [name for name in ("g++", "addr2line", "readelf") if not shutil.which(name)]
    return f"{', '.join(wanted)} missing" if wanted else ""


whole = pytest.mark.skipif(bool(lacking()), reason=lacking() or "everything is here")


@functools.cache
def lesson_of(pair):
    return lesson.build(PAIRS[pair], SHAPES[pair], "sm_80", recorded())
