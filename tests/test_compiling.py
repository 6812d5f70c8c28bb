"""Every kernel for every architecture; what can't be compiled; who asks."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from compiling import MATMUL, SOFTMAX, chosen, code_of, needs_emulator, needs_nvrtc, one_launch

from compare import compiled, show_compiled
from compare.compiled import compilers
from compare.compiled.occupancy import ARCHS, fits, limits
from compare.pair import Implementation
from compare.pairs import matmul, softmax
from compare.report.compiled import lines, markdown
from compare.results import from_json, to_json

ROOT = Path(__file__).resolve().parent.parent

# In a fresh process, since this one may interpret: every Triton implementation with every config,
# for the architectures given, as {"name config arch": [shared bytes, ..] or the error}.
EVERY = """
import json, sys
from compare.compiled.compilers import dry_triton
from compare.pairs import matmul, softmax
found = {}
of = {"softmax": [(512, 1000)] * 2, "matmul": [(256, 1024), (1024, 256), (256, 256)]}
for pair in (softmax.PAIR, matmul.PAIR):
    shapes = of[pair.name]
    for i in pair.implementations:
        if i.language == "triton":
            for config in i.configs or ({},):
                for arch in sys.argv[1:]:
                    kernels = dry_triton(i.function(), shapes, {**i.options, **config}, arch)
                    shared = [kernel.metadata.shared for kernel, _ in kernels]
                    found[f"{i.name} {json.dumps(config)} {arch}"] = shared
print(json.dumps(found))
"""


def compiling_env():
    return {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"} | {
        "PYTHONPATH": str(ROOT)
    }


@pytest.fixture(scope="module")
def softmax_made():
    return show_compiled.compile_pair(softmax.PAIR, SOFTMAX, "sm_80")


@pytest.fixture(scope="module")
def matmul_made():
    return show_compiled.compile_pair(matmul.PAIR, MATMUL, "sm_80")


# -- every kernel, every architecture --------------------------------------------------------------


@pytest.fixture(scope="module")
def every_triton():
    """Two processes, half of the architectures each."""
    archs = list(ARCHS)
    started = [
        subprocess.Popen(
            [sys.executable, "-c", EVERY, *archs[part::2]],
            env=compiling_env(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for part in (0, 1)
    ]
    found = {}
    for process in started:
        out, err = process.communicate()
        assert process.returncode == 0, err[-2000:]
        found |= json.loads(out)
    return found


@pytest.mark.parametrize("arch", ARCHS)
def test_every_triton_config_compiles_and_is_held_against_the_limit(every_triton, arch):
    of_arch = {name: shared for name, shared in every_triton.items() if name.endswith(arch)}
    implementations = [
        i for p in (softmax.PAIR, matmul.PAIR) for i in p.implementations if i.language == "triton"
    ]
    assert len(of_arch) == sum(len(i.configs or ({},)) for i in implementations)
    assert all(shared for shared in of_arch.values())
    over = {name for name, shared in of_arch.items() if any(fits(arch, s) for s in shared)}
    small = limits(arch).block_shared < 147456
    big = {name for name in of_arch if name.startswith("matmul") and "[128, 64, 64" in name}
    assert big
    assert over == (big if small else set())


@needs_nvrtc
@pytest.mark.parametrize("arch", ARCHS)
def test_every_cuda_kernel_compiles_and_fits(arch):
    for pair, shapes in (
        (softmax.PAIR, [(512, 1000), (64, 40000)]),
        (matmul.PAIR, [MATMUL]),
    ):
        for shape in shapes:
            long = shape == (64, 40000)  # takes another kernel of softmax_onepass alone
            cuda = [i for i in pair.implementations if i.language == "cuda"]
            cuda = [i for i in cuda if i.name == "softmax_onepass"] if long else cuda
            assert cuda
            inputs = {name: a.shape for name, a in pair.inputs(shape, "random", 0).items()}
            for built in compiled.build(cuda, inputs, pair.output_shape(shape), arch):
                assert built.skipped == ""
                for code in built.codes:
                    assert (code.arch, code.unfit, code.broken) == (arch, "", "")
                    assert code.occupancy.blocks > 0


def test_what_does_not_fit_is_a_sentence():
    assert fits("sm_86", 147456) == "needs 147,456 bytes, this card has 101,376"
    assert fits("sm_80", 147456) == ""
    assert fits("sm_90", 227 * 1024) == ""
    assert fits("sm_90", 227 * 1024 + 1) == "needs 232,449 bytes, this card has 232,448"


# -- what can't be compiled, and who asks ----------------------------------------------------------


def test_an_unknown_arch_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match=r"arch 'sm_75' is unknown; choose sm_80, .*sm_120"):
        compiled.build(softmax.PAIR.implementations, {"x": SOFTMAX}, SOFTMAX, "sm_75")


def refuses(x, out):
    raise RuntimeError("wants\na card")


def idle(x, out):
    return out


def test_what_keeps_a_kernel_from_being_compiled_is_a_reason():
    library = Implementation("torch.softmax", "library", "compare.pairs.softmax:torch_softmax")
    asked = [
        library,
        Implementation("refuses", "cuda", refuses, arrays="cupy"),
        Implementation("idle", "cuda", idle, arrays="cupy"),
    ]
    built = compiled.build(asked, {"x": SOFTMAX}, SOFTMAX)
    assert [b.codes for b in built] == [(), (), ()]
    assert built[0].skipped == "a library's kernel: closed, and chosen when it runs"
    assert built[1].skipped == "RuntimeError: wants"
    assert built[2].skipped == "launches no kernel at this shape"


@needs_nvrtc
def test_a_source_that_does_not_compile_is_a_reason(tmp_path):
    with pytest.raises(ValueError, match=r"NVRTC: .*error"):
        compilers.cubin("nonsense", "k", (), "sm_80")


def test_a_missing_compiler_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy_backends.cuda.libs", None)
    with pytest.raises(compilers.Missing, match="CuPy is not installed: pip install"):
        compilers.cubin("", "k", (), "sm_80")


OWN = """
import triton, triton.language as tl

@triton.jit
def mine(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n), mask=at < n)

def launch(x, out):
    mine[(4,)](x, out, x.numel(), BLOCK=256)
    mine[(8,)](x, out, x.numel(), BLOCK=128)
"""


def test_a_user_s_own_launcher_needs_nothing_more(tmp_path):
    """A function from a file that no module names, also where this process interprets."""

    path = tmp_path / "own_kernel.py"
    path.write_text(OWN)
    spec = importlib.util.spec_from_file_location("own_kernel", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    built = compiled.build(
        [Implementation("mine", "triton", module.launch)], {"x": (1024,)}, (1024,)
    )
    assert built[0].skipped == ""
    assert [code.grid for code in built[0].codes] == [(4,), (8,)]
    assert [code.kernel for code in built[0].codes] == ["mine", "mine"]


def test_a_compilation_survives_json(softmax_made):
    text = json.dumps(to_json(softmax_made), allow_nan=False)
    assert from_json(compiled.Compilation, json.loads(text)) == softmax_made


def test_the_screen_holds_the_figures_in_a_hundred_columns(softmax_made, matmul_made):
    for found in (softmax_made, matmul_made):
        screen = lines(found)
        assert max(map(len, screen)) <= 100
        text = "\n".join(screen)
        for built in found.builds:
            assert built.name in text
            for code in built.codes:
                assert f"sha256 {code.sha[:8]}" in text
                assert f"{code.shared:,} bytes" in text
    text = "\n".join(lines(softmax_made))
    assert "column 700" in text and "thread 47" in text and "16,777,216 (1.00x)" in text


def test_what_does_not_fit_is_told_on_the_screen():
    found = show_compiled.compile_pair(
        matmul.PAIR, MATMUL, "sm_86", chosen(matmul.PAIR, "matmul tf32")
    )
    assert any("needs 147,456 bytes, sm_86 has 101,376" in line for line in lines(found))


README = ROOT / "README.md"
TABLE = re.compile(r"<!-- made by compiled: (\w+) (\w+) -->\n(.*?)<!-- end -->", re.S)


def test_the_table_names_its_figures(softmax_made):
    table = markdown(softmax_made, ("softmax", "softmaxRows"))
    assert table[0] == "| softmax 2048x1024, sm_80 | softmax | softmaxRows |"
    code = code_of(softmax_made, "softmax")
    assert f"| registers a thread | {code.registers} | " in "\n".join(table)
    assert {line.count("|") for line in table} == {4}


@needs_nvrtc
@needs_emulator
def test_readme_s_table_is_what_these_compilers_make(softmax_made):
    """Compared where the compilers that it names are the ones here."""
    text = README.read_text(encoding="utf-8") if README.exists() else ""
    match = TABLE.search(text)
    if match is None:
        pytest.skip("README has no table made by compiled")
    table = markdown(softmax_made, ("softmax", "softmaxRows"))
    compilers_row = next(line for line in table if line.startswith("| compiler |"))
    if compilers_row not in match[3]:
        pytest.skip(f"README's table is of other compilers than {compilers_row}")
    assert match[3].strip().splitlines() == table


@needs_nvrtc
def test_an_architecture_without_limits_is_read_all_the_same():
    """A card newer than the table has its registers and counts, and no occupancy."""
    launched = compiled.Launched(
        "k", "cuda", "ieee", "sm_87", (one_launch(chosen(softmax.PAIR, "softmaxRows")[0]),)
    )
    built = compiled.read(launched)
    assert built.skipped == "" and built.codes[0].registers > 0
    assert built.codes[0].occupancy is None and built.codes[0].unfit == ""
