"""On a card: the figures of the kernels compiled without one against those loaded."""

from pathlib import Path

import pytest
from compiling import SOFTMAX, chosen

from compare import compiled
from compare.compiled import layout
from compare.pairs import matmul, softmax


@pytest.fixture()
def card():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no card")
    major, minor = torch.cuda.get_device_capability()
    return f"sm_{major}{minor}"


@pytest.mark.gpu
@pytest.mark.parametrize("shape", (SOFTMAX, (512, 1000)))
def test_a_loaded_triton_kernel_is_the_one_compiled_without_a_card(card, shape):
    import torch

    implementation = chosen(softmax.PAIR, "softmax")[0]
    x = torch.randn(shape, device="cuda")
    out = torch.empty_like(x)
    launched = compiled.watch(implementation, lambda: implementation.function()(x, out), card)
    code = compiled.read(launched).codes[0]
    static = compiled.build([implementation], {"x": shape}, shape, card)[0].codes[0]
    kernel = launched.seen[0][0]
    assert (code.registers, code.stack) == (kernel.n_regs, 4 * kernel.n_spills)
    assert code == static


@pytest.mark.gpu
@pytest.mark.parametrize("config", range(3))
@pytest.mark.parametrize("precision", ("ieee", "tf32"))
def test_loaded_products_keep_their_precision(card, config, precision):
    import torch

    implementation = chosen(matmul.PAIR, f"matmul {precision}")[0]
    options = {**implementation.options, **implementation.configs[config]}
    a, b = (torch.randn(512, 512, device="cuda") for _ in range(2))
    call = lambda: implementation.function()(a, b, torch.empty_like(a), **options)  # noqa: E731
    launched = compiled.watch(implementation, call, card)
    code, kernel = compiled.read(launched).codes[0], launched.seen[0][0]
    assert code.broken == ""
    assert (code.registers, code.stack) == (kernel.n_regs, 4 * kernel.n_spills)
    assert code.shared == kernel.metadata.shared


@pytest.mark.gpu
@pytest.mark.parametrize(
    "name", ("softmaxRows", "softmaxRows, fast", "softmax_onepass", "matmul_tiled")
)
def test_a_loaded_cuda_kernel_has_the_figures_of_the_compiled_one(card, name):
    cupy = pytest.importorskip("cupy")
    pair = matmul.PAIR if name == "matmul_tiled" else softmax.PAIR
    implementation = chosen(pair, name)[0]
    shapes = [(512, 512)] * (3 if name == "matmul_tiled" else 2)
    arrays = [cupy.ones(shape, cupy.float32) for shape in shapes]
    call = lambda: implementation.function()(*arrays, **implementation.options)  # noqa: E731
    launched = compiled.watch(implementation, call, card)
    code = compiled.read(launched).codes[0]
    launch = launched.seen[0]
    raw = cupy.RawKernel(Path(launch.file).read_text(), launch.name, options=launch.options)
    assert code.registers == raw.num_regs
    assert code.stack == raw.local_size_bytes
    assert code.shared == raw.shared_size_bytes + launch.shared_mem
    most = cupy.cuda.driver.occupancyMaxActiveBlocksPerMultiprocessor(
        raw.kernel.ptr, code.threads, launch.shared_mem
    )
    assert code.occupancy.blocks == most


@pytest.mark.gpu
@pytest.mark.parametrize("shape", (SOFTMAX, (512, 1000)))
def test_the_threads_themselves_say_who_holds_a_column(card, shape):
    """A kernel with the same load asks each element for its thread's number."""
    import torch
    from owner_kernel import threads_of_columns

    implementation = chosen(softmax.PAIR, "softmax")[0]
    code = compiled.build([implementation], {"x": shape}, shape, card)[0].codes[0]
    x = torch.randn(shape, device="cuda")
    told = threads_of_columns(x, num_warps=code.options["num_warps"]).tolist()
    assert told == [layout.owner(code.loaded, (c,)).thread for c in range(shape[1])]
