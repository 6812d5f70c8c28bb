"""What tests of `threads` share: files that a student may write, and what a refusal says."""

from pathlib import Path

import pytest

from compare.machine import Refusal
from compare.show_threads import command

EXAMPLES = Path(__file__).parent / "examples"
NOTHING_BESIDE = {
    "my_softmax": "float[64x1024] float[64x1024] int=1024",
    "vector_add": "float[65536] float[65536] float[65536] int=65536",
}
HALF = """extern "C" __global__ void twice(const float* x, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = 2 * x[i];
}
"""


def words_of(target, **more):
    """What a refusal says, in one line and in its own lines."""
    with pytest.raises(Refusal) as refused:
        command(target, **more)
    said = str(refused.value).splitlines()
    assert refused.value.code == 2 and max(map(len, said)) <= 100
    return " ".join(" ".join(said).split()), said
