"""Time on a card: the floor, the verdicts, the agreement with Nsight Compute, who holds CUPTI."""

from __future__ import annotations

import contextlib
import csv
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from compare import timing

pytestmark = pytest.mark.gpu
ROOT = Path(__file__).parent.parent
MB16 = 1 << 24  # bytes that a 2048x1024 softmax reads and writes


@pytest.fixture(scope="module")
def launches():
    """Launches of the 2048x1024 softmax and of a 2048x2048x2048 product, by name."""
    torch, cupy = pytest.importorskip("torch"), pytest.importorskip("cupy")
    if not torch.cuda.is_available():
        pytest.skip("needs a card")
    from cuda_ref.softmax import softmax_rows
    from triton_impl.softmax import softmax

    with contextlib.ExitStack() as stack:
        current = torch.cuda.Stream()
        stack.enter_context(torch.cuda.stream(current))
        stack.enter_context(cupy.cuda.ExternalStream(current.cuda_stream))
        x, a, b = (
            torch.randn(s, device="cuda") for s in ((2048, 1024), (2048, 2048), (2048, 2048))
        )
        out, c = torch.empty_like(x), torch.empty_like(a)
        cx, cout = cupy.from_dlpack(x), cupy.from_dlpack(out)
        small, wide, narrow = (
            torch.randn(s, device="cuda") for s in ((256, 256), (256, 4096), (4096, 256))
        )
        calls = {
            "triton": lambda: softmax(x, out),
            "rows": lambda: softmax_rows(cx, cout),
            "torch": lambda: torch.softmax(x, 1, out=out),
            "copy": lambda: out.copy_(x),
            "product": lambda: torch.mm(a, b, out=c),
            "split": lambda: torch.mm(wide, narrow, out=small),
        }
        for call in calls.values():
            call()
        torch.cuda.synchronize()
        yield {name: timing.Launch(name, call) for name, call in calls.items()}


def timed(launches, names, pairs=(), moved=MB16, touched=MB16, **more):
    card = timing.card_facts(0)
    chosen = [launches[name] for name in names]
    return timing.measure(
        chosen, pairs=pairs, card=card, bytes_touched=touched, bytes_moved=moved, **more
    )


def test_the_control_stays_within_half_a_percent_in_five_runs_of_five(launches):
    for seed in range(5):
        found = timed(launches, ["triton", "rows", "torch", "copy"], seed=seed)
        clock = found.clock
        print(
            json.dumps(
                {"aa": [clock.floor_cold, clock.floor_warm], "tick": clock.tick_ns}
                | {
                    "rounds": [clock.rounds_cold, clock.rounds_warm],
                    "s": clock.seconds,
                    "start": clock.start_seconds,
                }
                | {"stopped": clock.stopped, "mhz": clock.clock_mhz, "notes": clock.notes}
                | {n: [t.cold.us, t.warm.us] for n, t in found.timings.items()}
            )
        )
        assert clock.method == "CUPTI"
        for floor, times in (
            (clock.floor_cold, found.timings["triton"].cold),
            (clock.floor_warm, found.timings["triton"].warm),
        ):
            assert floor <= max(0.005, (clock.tick_ns or 0) / 4000 / times.us)
        assert clock.seconds < 2 and clock.start_seconds < 1


def test_the_same_kernel_is_same_and_softmax_rows_slower_in_20_runs_of_20(launches):
    twin = dict(launches, twin=timing.Launch("twin", launches["triton"].call))
    said = []
    for seed in range(20):
        pairs = [("triton", "twin"), ("triton", "rows")]
        found = timed(twin, ["triton", "twin", "rows"], pairs, seed=seed)
        said += [(ratio.against, ratio.state, ratio.verdict) for ratio in found.ratios]
    wanted = {("twin", s, "SAME") for s in ("cold", "warm")}
    assert set(said) == wanted | {("rows", s, "FASTER") for s in ("cold", "warm")}
    assert len(said) == 80


def test_a_launch_of_several_kernels_is_summed_and_its_span_shown(launches):
    found = timed(launches, ["split", "copy"], moved=1 << 20, touched=1 << 23)
    cold = found.timings["split"].cold
    print(found.timings["split"])
    assert cold.kernels == len(found.timings["split"].kernel_names) >= 2
    assert cold.span > cold.us


def test_what_does_not_fit_l2_has_no_warm_figure(launches):
    found = timed(launches, ["product", "product"][:1], moved=3 << 24, touched=3 << 24)
    print(found.clock, found.timings)
    assert found.timings["product"].no_warm == "does not fit L2"
    assert found.timings["product"].cold.us > 50
    assert found.clock.seconds < 2


def test_a_graph_of_every_implementation_where_cupti_is_taken(launches):
    from compare.timing import cupti
    from compare.timing.recorder import CuptiRecorder, open_recorder

    holder = CuptiRecorder(timing.card_facts(0))
    try:
        other = cupti.Cupti(cupti.load())
        with pytest.raises(cupti.Unavailable, match="another profiler"):
            other.open()
    finally:
        holder.close()
    script = (
        "import torch; from torch.profiler import profile, ProfilerActivity as A; "
        "torch.zeros(1, device='cuda'); p = profile(activities=[A.CUDA]); p.start(); "
        "from compare.timing import card_facts; from compare.timing.recorder import open_recorder; "
        "r = open_recorder(card_facts(0)); print(r.method, '|', r.reason)"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT)
    print(ran.stdout, ran.stderr[-500:])
    assert "CUDA graph" in ran.stdout and "another profiler" in ran.stdout
    again = open_recorder(timing.card_facts(0))
    again.close()
    assert again.method == "CUPTI"  # it was given back


def test_graphs_time_what_cupti_times_and_the_gaps(launches):
    from compare.timing.recorder import GraphRecorder

    names, card = ["triton", "rows", "copy"], timing.card_facts(0)
    graphs = timed(launches, names, recorder=GraphRecorder(card, "tried"))
    alone = timed(launches, names)
    for name in names:
        graph, kernel = graphs.timings[name].warm.us, alone.timings[name].warm.us
        print(name, graph, kernel)
        assert graphs.timings[name].no_cold == "needs CUPTI"
        assert alone.clock.method == "CUPTI" and 0.9 * kernel < graph < kernel + 2


def test_the_ladder_names_what_each_way_adds(launches):
    from compare.report.timing import ladder_lines
    from compare.timing.ladder import explain

    card = timing.card_facts(0)
    rungs = explain(
        launches["triton"], card=card, bytes_touched=MB16, bytes_moved=MB16, first_call_s=0.4
    )
    print("\n".join(ladder_lines("triton", rungs)))
    times = {rung.name: rung.us for rung in rungs}
    assert times["device, warm"] < times["device, cold"] < times["do_bench"]
    assert times["empty CUDA"] < times["device, warm"]


NCU_SCRIPT = """
import torch
a, b = (torch.randn(2048, 2048, device='cuda') for _ in range(2))
c, flush = torch.empty_like(a), torch.empty(120 << 18, dtype=torch.int32, device='cuda')
for _ in range(400):
    torch.mm(a, b, out=c)
torch.cuda.synchronize()
for _ in range(10):
    flush.zero_()
    torch.mm(a, b, out=c)
torch.cuda.synchronize()
"""


def ncu_times(tmp_path):
    """us of ten cold products, by Nsight Compute, clocks and caches left as they are."""
    script = tmp_path / "product.py"
    script.write_text(NCU_SCRIPT)
    options = "--clock-control none --cache-control none --metrics gpu__time_duration.sum --csv"
    name = "--kernel-name-base mangled -k regex:gemm -s 400 -c 10"
    command = ["ncu", *options.split(), *name.split(), sys.executable, str(script)]
    lines = subprocess.run(command, capture_output=True, text=True, timeout=120).stdout.splitlines()
    rows = csv.DictReader([line for line in lines if line.startswith('"')])
    scale = {"ns": 1e-3, "us": 1.0, "ms": 1e3, "nsecond": 1e-3, "usecond": 1.0, "msecond": 1e3}
    return [
        float(r["Metric Value"].replace(",", "")) * scale[r["Metric Unit"]]
        for r in rows
        if r["Metric Unit"] in scale
    ]


@pytest.mark.skipif(shutil.which("ncu") is None, reason="Nsight Compute is not installed")
def test_nsight_compute_agrees_above_100_us(launches, tmp_path):
    ours = timed(launches, ["product"], moved=3 << 24, touched=3 << 24).timings["product"].cold.us
    theirs = ncu_times(tmp_path)
    print("CUPTI", ours, "ncu", theirs)
    assert len(theirs) == 10
    assert sorted(theirs)[5] == pytest.approx(ours, rel=0.05)
