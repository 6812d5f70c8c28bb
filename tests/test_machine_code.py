"""The pieces: machine code counted, promises held, layouts read, occupancy computed."""

import random
import shutil
import subprocess
from pathlib import Path

import pytest

from compare.compiled import layout, sass
from compare.compiled.occupancy import ARCHS, capability, limits, occupancy

TEXT = """
Resource usage:
 Function k:
  REG:21 STACK:8 SHARED:1024 LOCAL:0 CONSTANT[0]:400 TEXTURE:0
        Function : k
        /*0000*/                   MOV R1, c[0x0][0x28] ;      /* 0x00000a0000017a02 */
                                                               /* 0x000fe40000000f00 */
        /*0010*/              @!P1 LDG.E.128 R8, [R12.64] ;    /* 0x0000000000000001 */
        /*0020*/                   LDG.E.U8 R8, [R12.64] ;     /* 0x0000000000000002 */
        /*0030*/                   BAR.SYNC.DEFER_BLOCKING 0x0 ;
        /*0040*/                   BAR.RED.OR.DEFER_BLOCKING 0x1, P0 ;
        /*0050*/               @P0 BRA 0x10 ;
        /*0060*/                   MUFU.EX2 R0, R0 ;
        /*0070*/                   HMMA.1688.F32.TF32 R4, R8, R10, R4 ;
        /*0080*/                   STL [R1], R0 ;
        /*0090*/                   EXIT ;
        /*00a0*/                   BRA 0xa0;
        /*00b0*/                   NOP;
"""


def test_a_listing_is_counted_by_class():
    found = sass.parse(TEXT)
    assert (found.registers, found.stack, found.shared, found.instructions) == (21, 8, 1024, 10)
    wanted = {"barriers": 2, "global loads": 2, "branches": 1, "mufu": 1, "tensor core": 1}
    assert {name: n for name, n in found.counts.items() if n} == wanted | {"local stores": 1}
    assert found.widths["global loads"] == {"128": 1, "8": 1}
    assert found.mufu == {"EX2": 1}
    assert found.sha == sass.parse(TEXT.replace("R8", "R9")).sha  # of the encoding, not of the text
    assert found.sha != sass.parse(TEXT.replace("0x0000000000000002", "0x0000000000000003")).sha


def test_what_the_tool_did_not_print_is_an_error():
    with pytest.raises(sass.Unreadable, match="no resource usage"):
        sass.parse("nothing")
    with pytest.raises(sass.Unreadable, match="no instruction"):
        sass.parse("REG:21 STACK:8 SHARED:1024")
    with pytest.raises(sass.Unreadable, match="refused k"):
        sass.listing(b"no cubin", "k")


PTX = "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%f1, %f2}, {%r1}, {%r2}, {%f1};"


@pytest.mark.parametrize(
    "code, precision, words",
    (
        (PTX, "ieee", "claims ieee, and its machine code has mma.sync"),
        (TEXT, "ieee", "claims ieee, and its machine code has HMMA.1688.F32.TF32"),
        ("@%p1 wgmma.mma_async.sync.aligned.m64n8k8.f32.tf32.tf32 {}", "ieee", "claims ieee"),
        ("  tcgen05.mma.cta_group::1.kind::tf32 [%r1], %rd1;", "ieee", "claims ieee"),
        ("fma.rn.f32 %f1, %f2, %f3, %f4;", "ieee", ""),
        ("fma.rn.f32 %f1, %f2, %f3, %f4;", "tf32", "claims tf32, and no instruction"),
        ("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {}", "tf32", "claims tf32"),
        ("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {}", "bf16x6", ""),
        ("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {}", "ieee", ""),
        (PTX, "tf32", ""),
        (TEXT, "tf32", ""),
        ("tcgen05.mma.cta_group::1.kind::tf32 [%r1], %rd1;", "tf32", ""),
        ("cvt.rna.tf32.f32 %r1, %f1;", "tf32", "claims tf32"),
        ("fma.rn.f32 %f1, %f2, %f3, %f4;", "fp8", ""),
    ),
)
def test_a_precision_is_held_to_its_instructions(code, precision, words):
    said = sass.claims(code, precision)
    assert said.startswith(words)
    assert bool(said) == bool(words)


TTGIR = (
    "#blocked = #ttg.blocked<{sizePerThread = [2, 4], threadsPerWarp = [4, 8], "
    "warpsPerCTA = [2, 1], order = [1, 0]}>\n"
    "#mma = #ttg.nvidia_mma<{versionMajor = 2, versionMinor = 0, warpsPerCTA = [2, 2]}>\n"
    "  %x = tt.load %p, %m, %c : tensor<16x64x!tt.ptr<f32>, #blocked> loc(#loc30)\n"
    "  %d = tt.dot %a, %b, %c : tensor<16x8xf32, #ttg.dot_op<{opIdx = 0, parent = #mma}>> * "
    "tensor<8x64xf32, #ttg.dot_op<{opIdx = 1, parent = #mma}>> -> tensor<16x64xf32, #mma>\n"
    "  tt.store %p, %x, %m : tensor<16x64x!tt.ptr<f32>, #blocked> loc(#loc19)\n"
)


def test_a_layout_is_read_from_ttgir():
    found = layout.loaded(TTGIR)
    assert found == layout.Layout("blocked", (16, 64), (2, 4), (4, 8), (2, 1), (1, 0))
    assert layout.stored(TTGIR) == found
    assert layout.summed(TTGIR) == layout.Layout("nvidia_mma", (16, 64))
    assert layout.owner(layout.summed(TTGIR), (0, 0)) is None
    # Row 3 is the second row pair of lanes 8 .. 15, column 37 wraps round 8 lanes of 4.
    assert layout.owner(found, (3, 37)) == layout.Owner(9, 0, 9)
    assert layout.owner(found, (9, 37)) == layout.Owner(33, 1, 1)
    with pytest.raises(ValueError, match="outside the block"):
        layout.owner(found, (16, 0))


@pytest.mark.parametrize(
    "per, lanes, warps, width", ((4, 32, 4, 1024), (1, 32, 8, 1024), (2, 32, 1, 64))
)
def test_every_column_is_held_and_every_thread_holds_as_many(per, lanes, warps, width):
    found = layout.Layout("blocked", (width,), (per,), (lanes,), (warps,), (0,))
    shares = [layout.held(found, thread) for thread in range(lanes * warps)]
    assert sorted(c for share in shares for c in share) == list(range(width))
    assert {len(share) for share in shares} == {width // (lanes * warps)}
    assert all(layout.owner(found, (c,)).thread == t for t, cs in enumerate(shares) for c in cs)


HARNESS = r"""
#include <stdio.h>
#include <stddef.h>
#include "cuda_occupancy.h"
int main() {
  int arch, warps, threads, regs, shared, per_sm, per_block;
  while (scanf("%d %d %d %d %d %d %d",
               &arch, &warps, &per_sm, &per_block, &threads, &regs, &shared) == 7) {
    cudaOccDeviceProp p;
    p.computeMajor = arch / 10; p.computeMinor = arch % 10;
    p.maxThreadsPerBlock = 1024; p.maxThreadsPerMultiprocessor = 32 * warps;
    p.regsPerBlock = p.regsPerMultiprocessor = 65536; p.warpSize = 32; p.numSms = 1;
    p.sharedMemPerBlock = 49152; p.sharedMemPerMultiprocessor = per_sm;
    p.sharedMemPerBlockOptin = per_block; p.reservedSharedMemPerBlock = 1024;
    cudaOccFuncAttributes f;
    f.maxThreadsPerBlock = 1024; f.numRegs = regs; f.sharedSizeBytes = 0;
    f.partitionedGCConfig = PARTITIONED_GC_OFF; f.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
    f.maxDynamicSharedSizeBytes = per_block; f.numBlockBarriers = 1;
    cudaOccDeviceState s;
    s.carveoutConfig = SHAREDMEM_CARVEOUT_MAX_SHARED;
    cudaOccResult r;
    int error = cudaOccMaxActiveBlocksPerMultiprocessor(&r, &p, &f, &s, threads, shared);
    printf("%d %d\n", error, r.activeBlocksPerMultiprocessor);
  }
}
"""


@pytest.mark.skipif(not shutil.which("g++"), reason="no g++")
def test_occupancy_is_that_of_nvidia_s_own_header(tmp_path):
    import triton

    include = Path(triton.__file__).parent / "backends/nvidia/include"
    if not (include / "cuda_occupancy.h").exists():
        pytest.skip("this Triton ships no cuda_occupancy.h")
    (tmp_path / "o.cpp").write_text(HARNESS)
    build = ["g++", "-O1", f"-I{include}", str(tmp_path / "o.cpp"), "-o", str(tmp_path / "o")]
    subprocess.run(build, check=True)
    draw, asked = random.Random(7), []
    for arch in ARCHS:
        for _ in range(400):
            threads = draw.choice(
                (32, 64, 96, 128, 160, 256, 384, 512, 1024, draw.randint(1, 1024))
            )
            shared = draw.choice((0, 16, 1024, 2048, 32768, 49152, draw.randint(0, 260000)))
            asked.append((arch, threads, draw.randint(1, 255), shared))
    given = "\n".join(
        f"{capability(a)} {limits(a).warps} {limits(a).shared} {limits(a).block_shared} {t} {r} {s}"
        for a, t, r, s in asked
    )
    out = subprocess.run([tmp_path / "o"], input=given, capture_output=True, text=True, check=True)
    for (arch, threads, registers, shared), line in zip(
        asked, out.stdout.splitlines(), strict=True
    ):
        error, blocks = map(int, line.split())
        ours = occupancy(arch, threads=threads, registers=registers, shared=shared)
        assert error == 0
        assert ours.blocks == blocks, (arch, threads, registers, shared)


def test_the_limiter_is_named():
    assert occupancy("sm_80", threads=256, registers=255, shared=0).limiter == "registers"
    assert occupancy("sm_80", threads=256, registers=16, shared=100000).limiter == "shared memory"
    assert occupancy("sm_80", threads=256, registers=16, shared=0).limiter == "warps"
    assert occupancy("sm_80", threads=32, registers=16, shared=0).limiter == "blocks"
    assert occupancy("sm_86", threads=256, registers=16, shared=147456).blocks == 0
