"""What compilers, drivers and libraries say, in one sentence with the remedy."""

import pytest

from compare.errors import plain


@pytest.mark.parametrize(
    "text, words",
    (
        (
            "out of resource: shared memory, Required: 147456, Hardware limit: 101376. Reducing "
            "block sizes or `num_stages` may help.",
            "needs 147,456 bytes of shared memory, this card has 101,376",
        ),
        ("nvrtc: error: invalid value for --gpu-architecture (-arch).", "NVRTC"),
        ("ptxas fatal : Value 'sm_121a' is not defined for option 'gpu-name'", "sm_121a"),
        ("CUDA_ERROR_UNSUPPORTED_PTX_VERSION: the provided PTX", "CUPY_COMPILE_WITH_PTX"),
        ("CUDA_ERROR_NOT_FOUND: named symbol not found", 'extern "C"'),
        ('error: cannot open source file "cuda_fp16.h"', "nvidia-cuda-runtime"),
        ('identifier "INFINITY" is undefined', "0x7f800000"),
        ("Failed to find C compiler. Please specify via CC environment variable.", "gcc"),
        ("cuda_utils.c:1:10: fatal error: Python.h: No such file or directory", "python3-dev"),
        ("libcuda.so cannot found! Possible files are located at []", "/usr/lib/wsl/lib"),
        ("CUDA out of memory. Tried to allocate 2.00 GiB", "--shape"),
        ("CUDA error: an illegal memory access was encountered", "outside its arrays"),
        ('can only concatenate list (not "tuple") to list', "tuple"),
    ),
)
def test_a_known_error_is_answered(text, words):
    assert words in plain(RuntimeError(text))


def test_a_launcher_that_got_the_other_arrays_is_told_the_remedy():
    import torch

    from cuda_ref.kernel import on_card

    with pytest.raises(ValueError) as caught:
        on_card(torch.zeros(1))
    assert plain(caught.value).startswith(
        'its launcher got a Tensor: write arrays="cupy" in its Implementation'
    )


def test_an_unknown_error_keeps_its_kind_and_first_line():
    assert plain(ValueError("  what is this\nand more")) == "ValueError: what is this"
    assert plain(KeyError()) == "KeyError: no message"


def test_every_sentence_is_one_line():
    from compare.errors import KNOWN

    assert all("\n" not in sentence and len(sentence) < 160 for _, sentence in KNOWN)


def test_a_compilers_first_error_is_kept_whatever_its_temporary_file_is_called():
    from compare.messages import trimmed

    name = f"/tmp/tmpab12cd34/{'0123456789abcdef' * 2}01234567.cubin.cu"
    log = f'{name}(2): error: identifier "colour" is undefined\n  *y = colour;\n1 error detected.\n'
    assert trimmed(log)[0] == '(2): error: identifier "colour" is undefined'
