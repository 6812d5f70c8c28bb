"""CUPTI's records, from a library that plays CUPTI, and the recorder that cuts them."""

from __future__ import annotations

import ctypes
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from compare import timing
from compare.report.timing import ladder_lines
from compare.results import Rung
from compare.timing import cupti

CARD = timing.CardFacts(0, "NVIDIA H200", (9, 0), 132, 60 << 20, 1980, 4.814e12, "GPU-0")


class Function:
    """A foreign function as ctypes shows it: callable, with settable argument types."""

    def __init__(self, call):
        self.call = call

    def __call__(self, *arguments):
        return self.call(*arguments) or 0


CALLS = [
    *("Subscribe", "Unsubscribe", "GetResultString", "GetVersion", "ActivityRegisterCallbacks"),
    *("ActivityEnable", "ActivityDisable", "ActivityFlushAll", "ActivityGetNextRecord"),
]


class PlayedCupti:
    """Fills the lent buffer with (kind, word, start, end) records of 128 bytes."""

    def __init__(self, records, subscribe=0, grid=(4, 1, 1, 128, 1, 1)):
        self.records, self.code, self.grid = records, subscribe, grid
        self.names = {}
        for name in CALLS:
            setattr(self, f"cupti{name}", Function(getattr(self, name, lambda *ignored: 0)))

    def Subscribe(self, *ignored):
        return self.code

    def ActivityRegisterCallbacks(self, lend, complete):
        self.lend, self.complete = lend, complete

    def ActivityFlushAll(self, flag):
        buffer, size, limit = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t()
        self.lend(ctypes.pointer(buffer), ctypes.pointer(size), ctypes.pointer(limit))
        for i, (kind, word, start, end) in enumerate(self.records):
            at = buffer.value + 128 * i
            ctypes.c_uint32.from_address(at).value = kind
            (ctypes.c_uint64 * 2).from_address(at + cupti.START)[:] = [start, end]
            (ctypes.c_int32 * 6).from_address(at + cupti.GRID)[:] = self.grid
            if isinstance(word, bytes):
                text = self.names.setdefault(word, ctypes.create_string_buffer(word))
                word = ctypes.addressof(text)
            field = cupti.NAME if kind == cupti.KERNEL else cupti.BYTES
            ctypes.c_uint64.from_address(at + field).value = word
        self.complete(None, 0, buffer.value, size.value, 128 * len(self.records))

    def ActivityGetNextRecord(self, buffer, used, pointer):
        record = pointer._obj
        record.value = buffer if record.value is None else record.value + 128
        return 12 if record.value >= buffer + used else 0


def nothing():
    pass


def opened(*records, **more):
    tried = cupti.Cupti(PlayedCupti(list(records), **more))
    tried.open()
    return tried


def test_records_come_sorted_by_start_with_their_names():
    tried = opened(
        (cupti.KERNEL, b"softmax_kernel", 500, 532),
        (cupti.MEMCPY, 4096, 100, 164),
        (cupti.KERNEL, b"softmax_kernel", 300, 364),
        (cupti.MEMSET, 4096, 200, 264),
    )
    for _ in range(3):  # buffers are lent again
        found = tried.record(nothing, nothing)
        names = [found.names[i] for i in found.ids]
        assert names == [
            "copy of 4,096 bytes",
            "memset of 4,096 bytes",
            "softmax_kernel",
            "softmax_kernel",
        ]
        assert (found.ends - found.starts).tolist() == [64, 64, 64, 32]


KNOWN = ((cupti.KERNEL, b"add", 100, 900), (cupti.MEMCPY, 4096, 1000, 1900))


def test_the_layout_of_records_is_proved_before_it_is_believed():
    tried = opened(*KNOWN)
    tried.prove(nothing, nothing, 4096)
    assert tried.shortest_us == pytest.approx(0.8)


@pytest.mark.parametrize(
    "records, more",
    [
        (((cupti.KERNEL, 64, 100, 900), KNOWN[1]), {}),  # a name at an address that is not mapped
        (((cupti.KERNEL, b"\x01\x02", 100, 900), KNOWN[1]), {}),
        (((cupti.KERNEL, b"add", 900, 100), KNOWN[1]), {}),
        ((KNOWN[0], (cupti.MEMCPY, 4095, 1000, 1900)), {}),
        ((KNOWN[0],), {}),
        ((KNOWN[1],), {}),
        ((), {}),
        (KNOWN, {"grid": (4, 1, 1, 2048, 1, 1)}),
        (KNOWN, {"grid": (0, 1, 1, 128, 1, 1)}),
    ],
)
def test_records_of_another_layout_are_refused(records, more):
    with pytest.raises(cupti.Unavailable):
        opened(*records, **more).prove(nothing, nothing, 4096)


def test_no_records_at_all_point_to_another_profiler():
    with pytest.raises(cupti.Unavailable, match="gives no records: another profiler"):
        opened().prove(nothing, nothing, 4096)


def test_cupti_in_another_profilers_hands_is_said_to_be():
    with pytest.raises(cupti.Unavailable, match="another profiler holds CUPTI"):
        opened(subscribe=cupti.TAKEN)
    with pytest.raises(cupti.Unavailable, match="cuptiSubscribe: unknown"):
        opened(subscribe=999)


def test_without_cupti_the_graph_recorder_takes_over(monkeypatch):
    from compare.timing import recorder

    def missing():
        raise cupti.Unavailable("CUPTI is not installed: pip install nvidia-cuda-cupti")

    monkeypatch.setattr(recorder, "_cupti", missing)
    found = recorder.open_recorder(CARD)
    assert found.method == "CUDA graph" and found.no_cold == "needs CUPTI"
    assert found.reason.startswith("CUPTI is not installed")


class Stage:
    """A card on which each call leaves records: stands for torch and for an open Cupti at once."""

    int32, shortest_us = "int32", 0.8
    cuda = SimpleNamespace(synchronize=nothing)
    _C = SimpleNamespace(_demangle=str.title)

    def __init__(self):
        self.now, self.left = 0, []

    def run(self, *kernels):
        for name, ns in kernels:
            self.left.append((name, self.now, self.now + ns))
            self.now += ns + 10

    def empty(self, words, **ignored):
        return SimpleNamespace(zero_=lambda: self.run(("fill", 30_000)))

    def record(self, work, wait):
        self.left = []
        work()
        wait()
        names = tuple(dict.fromkeys(name for name, *_ in self.left))
        rows = np.array([(names.index(n), a, b) for n, a, b in self.left], np.int64).reshape(-1, 3)
        return cupti.Records(names, *rows.T)

    def open(self):
        self.held = True

    def close(self):
        self.held = False


def test_the_cupti_recorder_sums_each_launch_and_leaves_out_the_flush(monkeypatch):
    from compare.timing import recorder

    stage = Stage()
    monkeypatch.setattr(recorder, "_cupti", lambda: stage)
    monkeypatch.setitem(sys.modules, "torch", stage)
    made = recorder.open_recorder(CARD)
    assert made.method == "CUPTI" and stage.held
    split = timing.Launch("split", lambda: stage.run(("part", 500), ("reduce", 200)))
    whole = timing.Launch("whole", lambda: stage.run(("softmax", 3500)))
    assert made.add(split) == "" and made.add(whole) == ""
    assert made.add(timing.Launch("idle", nothing)) == "launches nothing"
    assert made.kernels("split") == ("Part", "Reduce") and made.kernels("whole") == ("Softmax",)
    assert (made.records(False), made.records(True)) == (3, 5)
    for cold in (False, True):
        sums, spans = made.block([np.array([0, 1]), np.array([1, 0])], cold)
        assert sums.tolist() == [[0.7, 3.5], [0.7, 3.5]]
        assert spans.tolist() == [[0.71, 3.5], [0.71, 3.5]]
    made.close()
    assert not stage.held


def test_the_ladder_fits_the_screen():
    rungs = [
        Rung("device, cold", 5.64, "the kernel alone, inputs in DRAM"),
        Rung("device, warm", None, "does not fit L2"),
        Rung("do_bench", 9.25, "events around a cold launch: " + "words that go on " * 6),
        Rung("first call", 1_234_567.0, "compiling or loading the kernel, once a process"),
    ]
    lines = ladder_lines("softmax", rungs)
    assert max(map(len, lines)) <= 100
    assert any("device, warm" in line and " .   does not fit L2" in line for line in lines)
    assert any("1,234,567" in line for line in lines)
