"""What the tests of compiled kernels share: where NVRTC and the emulator are, and how to choose."""

import shutil

import pytest

from compare.compiled import compilers

SOFTMAX, MATMUL = (2048, 1024), (256, 256, 1024)


def nvrtc():
    try:
        compilers.cubin('extern "C" __global__ void k() {}', "k", (), "sm_80")
    except compilers.Missing as missing:
        return str(missing)
    return ""


needs_nvrtc = pytest.mark.skipif(bool(nvrtc()), reason=nvrtc() or "NVRTC is here")
needs_emulator = pytest.mark.skipif(
    not all(map(shutil.which, ("g++", "addr2line", "readelf"))), reason="no g++ or binutils"
)


def chosen(pair, *names):
    return [i for i in pair.implementations if i.name in names]


def code_of(made_pair, name):
    built = made_pair.built(name)
    assert built.skipped == ""
    return built.codes[0]


def one_launch(implementation):
    launches = compilers.dry_cuda(implementation.function(), [SOFTMAX, SOFTMAX], {})
    assert len(launches) == 1
    return launches[0]
