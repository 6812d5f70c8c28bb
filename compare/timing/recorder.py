"""What of timing touches the card: recordings by CUPTI or by CUDA graphs, the L2 flush, NVML.

Both recorders answer the questions of `timing.Recorder`. NVML is read; no setting is changed.
"""

from __future__ import annotations

import functools
import time
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from compare.errors import plain
from compare.timing import cupti, paired

if TYPE_CHECKING:
    from compare.timing import CardFacts, Launch

FLUSH = 2  # times the L2 that is rewritten before a cold launch
COPIED = 4096  # bytes of the copy that proves CUPTI's records
IN_GRAPH = 20  # launches in one graph: the events' half microsecond is then 0.025 us a launch
LONG_US = 2000  # a launch above it fills a graph with two


class Nvml:
    """The card's clock, slowdowns and processes, read only; nothing where NVML does not answer."""

    def __init__(self, uuid: str) -> None:
        self._nvml: Any = None
        try:
            import pynvml
        except ImportError:
            return
        try:
            pynvml.nvmlInit()
            self._card = pynvml.nvmlDeviceGetHandleByUUID(uuid)
            self._nvml = pynvml
        except pynvml.NVMLError:
            return

    def state(self) -> paired.CardState | None:
        nvml = self._nvml
        if nvml is None:
            return None
        reasons = getattr(
            nvml,
            "nvmlDeviceGetCurrentClocksEventReasons",
            getattr(nvml, "nvmlDeviceGetCurrentClocksThrottleReasons", lambda card: 0),
        )

        def ask(question: Callable[..., Any], *more: Any) -> Any:
            try:
                return question(self._card, *more)
            except nvml.NVMLError:
                return None

        running = ask(nvml.nvmlDeviceGetComputeRunningProcesses) or ()
        return paired.CardState(
            ask(nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_SM) or 0,
            ask(reasons) or 0,
            max(0, len(running) - 1),  # one is this process, whatever number it has in there
        )

    def close(self) -> None:
        if self._nvml is not None:
            self._nvml.nvmlShutdown()


class Card:
    """What both recorders share: waiting, and the card's state."""

    def __init__(self, card: CardFacts) -> None:
        import torch

        self._torch = torch
        self.nvml = Nvml(card.uuid)

    def wait(self) -> None:
        self._torch.cuda.synchronize()

    def state(self) -> paired.CardState | None:
        return self.nvml.state()

    def close(self) -> None:
        self.nvml.close()


@functools.lru_cache(1)
def _cupti() -> cupti.Cupti:
    return cupti.Cupti(cupti.load())


class CuptiRecorder(Card):
    """Every launch's device time from its own CUPTI records. cupti.Unavailable where it can't."""

    method = "CUPTI"
    no_cold = reason = ""

    def __init__(self, card: CardFacts) -> None:
        started = time.perf_counter()
        self._cupti = _cupti()
        self._cupti.open()
        super().__init__(card)
        self._names: dict[str, int] = {}  # kernel name -> its number
        self._launches: list[Launch] = []
        self._lists: list[list[int]] = []  # launch -> its kernels
        try:
            words = FLUSH * card.l2_bytes // 4
            scratch = self._torch.empty(words, dtype=self._torch.int32, device="cuda")
            self._flush: Callable[[], Any] = scratch.zero_
            if self._cupti.shortest_us is None:
                self._cupti.prove(self._known(), self.wait, COPIED)
            self._flushes = self._record(self._flush)[0].tolist()
        except BaseException:
            self.close()
            raise
        self.shortest_us = self._cupti.shortest_us
        self.start_seconds = time.perf_counter() - started

    def _known(self) -> Callable[[], None]:
        """Work whose records are known: three short kernels and a copy of COPIED bytes."""
        shape, torch = (2, COPIED // 4), self._torch
        source, target = torch.zeros(shape, dtype=torch.int32, device="cuda").unbind()
        self.wait()

        def work() -> None:
            for _ in range(3):
                source.add_(1)
            target.copy_(source)

        return work

    def _record(self, work: Callable[[], Any]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Numbers of kernel names, starts and ends of the records of `work`."""
        found = self._cupti.record(work, self.wait)
        numbers = [self._names.setdefault(name, len(self._names)) for name in found.names]
        return np.array(numbers, np.int64)[found.ids], found.starts, found.ends

    def add(self, launch: Launch) -> str:
        """A solo recording of the launch gives its list of device records; "" or a reason."""
        kernels = self._record(launch.call)[0].tolist()
        if not kernels:
            return "launches nothing"
        self._launches.append(launch)
        self._lists.append(kernels)
        return ""

    def kernels(self, name: str) -> tuple[str, ...]:
        """The names of what one launch runs on the device, in order."""
        index = [launch.name for launch in self._launches].index(name)
        words = list(self._names)
        demangle = getattr(self._torch._C, "_demangle", str)
        return tuple(demangle(words[number]) for number in self._lists[index])

    def records(self, cold: bool) -> int:
        """Device records of one round."""
        return sum(map(len, self._lists)) + cold * len(self._lists) * len(self._flushes)

    def block(self, orders: Sequence[np.ndarray], cold: bool) -> tuple[np.ndarray, np.ndarray]:
        """Rounds in the given orders, one recording: sums and spans (rounds, launches), us.
        paired.Voided where the records do not fit the launch order."""
        calls = [launch.call for launch in self._launches]
        flush = self._flush

        def work() -> None:
            for order in orders:
                for index in order:
                    if cold:
                        flush()
                    calls[index]()

        self.wait()
        records = self._record(work)
        flat = np.concatenate(orders)
        if cold:
            flat = np.column_stack((np.full_like(flat, len(calls)), flat)).ravel()
        cut = paired.cut(*records, flat, [*self._lists, self._flushes])
        times = [side[flat < len(calls)] for side in cut]
        rows, columns = np.repeat(np.arange(len(orders)), len(calls)), flat[flat < len(calls)]
        sums, spans = np.empty((2, len(orders), len(calls)))
        sums[rows, columns], spans[rows, columns] = (side / 1000 for side in times)
        return sums, spans

    def close(self) -> None:
        self._cupti.close()
        super().close()


class GraphRecorder(Card):
    """Device time from CUDA graphs of many launches each: gaps included, warm alone."""

    method = "CUDA graph"
    shortest_us: float | None = None

    def __init__(self, card: CardFacts, reason: str) -> None:
        super().__init__(card)
        self.no_cold = "needs CUPTI"
        self.reason = reason
        self.start_seconds = 0.0
        self._replays: list[Callable[[], float]] = []

    def add(self, launch: Launch) -> str:
        """Captures a graph of the launch; "" or the reason why it can't."""
        try:
            self._replays.append(self._capture(launch))
        except Exception as error:  # noqa: BLE001 - a library may refuse capture in any way
            self.wait()
            return f"needs CUPTI (no CUDA graph: {plain(error)})"
        return ""

    def _capture(self, launch: Launch) -> Callable[[], float]:
        """A graph of many launches on the current stream: replays it and gives us a launch."""
        torch = self._torch
        stream = torch.cuda.current_stream()
        before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))

        def span(work: Callable[[], Any]) -> float:
            before.record()
            work()
            after.record()
            self.wait()
            return 1000 * before.elapsed_time(after)

        count = IN_GRAPH if span(launch.call) < LONG_US else 2
        graph = torch.cuda.CUDAGraph()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that a refused capture left an empty graph
            with torch.cuda.graph(graph, stream=stream):
                for _ in range(count):
                    launch.call()
        graph.replay()
        return lambda: span(graph.replay) / count

    def kernels(self, name: str) -> tuple[str, ...]:
        return ()

    def records(self, cold: bool) -> int:
        return len(self._replays)

    def block(self, orders: Sequence[np.ndarray], cold: bool) -> tuple[np.ndarray, np.ndarray]:
        times = np.empty((len(orders), len(self._replays)))
        for row, order in zip(times, orders, strict=True):
            for index in order:
                row[index] = self._replays[index]()
        return times, times


def open_recorder(card: CardFacts) -> CuptiRecorder | GraphRecorder:
    """CUPTI where it records, else a graph for every implementation: never two methods at once."""
    try:
        return CuptiRecorder(card)
    except cupti.Unavailable as error:
        return GraphRecorder(card, str(error))
