"""What the compilers made of the two pairs, in numbers, without a card."""

import dataclasses

import numpy as np
import pytest
from compiling import MATMUL, SOFTMAX, chosen, code_of, needs_emulator, needs_nvrtc

from compare import compiled, show_compiled
from compare.compiled import layout
from compare.lesson import oneblock
from compare.pair import Implementation
from compare.pairs import matmul, softmax


@pytest.fixture(scope="module")
def softmax_made():
    return show_compiled.compile_pair(softmax.PAIR, SOFTMAX, "sm_80")


@pytest.fixture(scope="module")
def matmul_made():
    return show_compiled.compile_pair(matmul.PAIR, MATMUL, "sm_80")


def test_triton_softmax_in_numbers(softmax_made):
    import triton

    code = code_of(softmax_made, "softmax")
    minor = int(triton.__version__.split(".")[1])
    assert code.compiler.startswith(f"triton {triton.__version__}, ptxas ")
    if minor in (6, 7, 9):  # counted by hand in the disassembly of these
        assert code.counts["barriers"] == (3 if minor == 9 else 5)
    assert code.threads == 32 * code.options["num_warps"] == 128
    # 1,024 columns over 128 threads, 4 a load: two loads and two stores of 128 bits.
    assert code.widths["global loads"] == {"128": 2}
    assert code.widths["global stores"] == {"128": 2}
    assert code.mufu["EX2"] == 8
    assert code.counts["shuffles"] == 14  # 2 reductions: 5 in a warp, 2 across 4 warps
    assert (code.stack, code.counts["local loads"], code.broken) == (0, 0, "")
    assert 16 <= code.registers <= 32
    assert code.occupancy.share == 1.0


def test_a_config_is_told_with_and_without_a_block(softmax_made):
    from compare.report.compiled import _config

    code = code_of(softmax_made, "softmax")
    assert _config(code) == "1024, num_warps=4"
    assert _config(dataclasses.replace(code, options={"num_warps": 8})) == "num_warps=8"


@needs_nvrtc
@needs_emulator
def test_cuda_softmax_in_numbers(softmax_made):
    code = code_of(softmax_made, "softmaxRows")
    assert (code.threads, code.shared, code.compiler[:5]) == (256, 1024, "nvrtc")
    assert code.counts["barriers"] >= 5  # a compiler may unroll the loops that hold them
    assert set(code.widths["global loads"]) == {"32"}
    assert code.counts["shuffles"] == 0
    run = softmax_made.executed["softmaxRows"]
    assert run["barriers, each thread"] == 19
    assert (run["global reads"], run["global writes"]) == (3 * 1024, 1024)
    assert (run["shared reads"], run["shared writes"]) == (1532, 1022)


@needs_nvrtc
def test_shared_bytes_leave_out_the_kilobyte_of_the_driver():
    inputs, output = {"x": SOFTMAX}, SOFTMAX
    for arch in ("sm_80", "sm_90", "sm_120"):
        built = compiled.build(chosen(softmax.PAIR, "softmaxRows"), inputs, output, arch)[0]
        assert built.codes[0].shared == 1024


def test_the_hints_of_the_launch_decide_the_loads_and_the_owner():
    """1,000 columns are no multiple of 16: no wide loads, and column 700 is another thread's."""
    eight = {"num_warps": 8}
    wide, narrow = (
        compiled.build(
            [Implementation("s", "triton", "triton_impl.softmax:softmax", options=eight)],
            {"x": shape},
            shape,
        )[0].codes[0]
        for shape in (SOFTMAX, (512, 1000))
    )
    assert wide.widths["global loads"] == {"128": 1}
    assert narrow.widths["global loads"] == {"32": 4}
    assert layout.owner(wide.loaded, (700,)) == layout.Owner(175, 5, 15)
    assert layout.owner(narrow.loaded, (700,)) == layout.Owner(188, 5, 28)


@needs_emulator
def test_who_holds_column_700(softmax_made):
    assert softmax_made.element == "column 700"
    assert softmax_made.holders["softmax"] == "thread 47"
    assert softmax_made.holders["softmaxRows"] == "thread 188"


@needs_emulator
def test_who_holds_an_element_of_the_product(matmul_made):
    assert matmul_made.element == "C[5, 11]"
    assert matmul_made.holders["matmul_tiled"] == f"thread {5 * 16 + 11}"
    code = code_of(matmul_made, "matmul ieee")
    owner = layout.owner(code.summed, (5, 11))
    assert matmul_made.holders["matmul ieee"] == f"thread {owner.thread}"
    assert matmul_made.holders["matmul tf32"].startswith("not read: nvidia_mma")


@needs_emulator
@pytest.mark.parametrize(
    "pair, shape, name",
    (
        (softmax.PAIR, (3, 1000), "softmaxRows"),
        (softmax.PAIR, (3, 1000), "softmax_onepass"),
        (matmul.PAIR, (16, 16, 40), "matmul_tiled"),
    ),
)
def test_the_bytes_a_cuda_kernel_asks_for_are_those_it_was_seen_to_ask_for(pair, shape, name):
    """One block of it, times its blocks: the pairs' traffic formulas are held to the trace."""
    implementation = chosen(pair, name)[0]
    inputs = pair.inputs(shape, "random", 0)
    output = np.zeros(pair.output_shape(shape), np.float32)
    block = oneblock.run(implementation, (*inputs.values(), output))
    blocks = shape[0] if pair.name == "softmax" else 1
    touched = [kind in ("global read", "global write") for kind in block.log["kind"]]
    widths = 4 if name != "softmax_onepass" else None
    if widths:
        assert blocks * 4 * sum(touched) == sum(implementation.traffic(shape).values())
    else:  # wide loads: the elements between them are asked for too
        assert blocks * 8 * 1000 == sum(implementation.traffic(shape).values())


def test_a_kernel_that_only_rounds_breaks_no_promise_of_its_implementation(matmul_made):
    code = code_of(matmul_made, "matmul tf32")
    rounds = dataclasses.replace(code, broken="claims tf32, and no instruction")
    assert [c.broken for c in compiled.together([rounds, code], "tf32")] == ["", ""]
    assert [bool(c.broken) for c in compiled.together([rounds, rounds], "tf32")] == [True, True]
    assert [bool(c.broken) for c in compiled.together([rounds, code], "ieee")] == [True, False]
    assert not any(code.broken for built in matmul_made.builds for code in built.codes)


@pytest.mark.parametrize("arch", ("sm_80", "sm_90", "sm_100"))
def test_real_kernels_keep_their_promise_and_a_lie_is_found(arch):
    shapes = {"a": (256, 1024), "b": (1024, 256)}
    honest = chosen(matmul.PAIR, "matmul ieee", "matmul tf32")
    lying = [
        Implementation(
            f"claims {claimed}",
            "triton",
            "triton_impl.matmul:matmul",
            options={**honest[0].options, "precision": real},
            precision=claimed,
        )
        for claimed, real in (("ieee", "tf32"), ("tf32", "ieee"))
    ]
    built = compiled.build([*honest, *lying], shapes, (256, 256), arch)
    assert [b.skipped for b in built] == [""] * 4
    said = [b.codes[0].broken for b in built]
    assert said[:2] == ["", ""]
    assert said[2].startswith("claims ieee, and its machine code has ")
    assert said[3].startswith("claims tf32, and no instruction")
