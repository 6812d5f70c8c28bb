"""Arrays where the kernels run: fenced, poisoned, on one device and one stream.

Every buffer lies between two fences of a known NaN, so that a read outside it spoils a result and a
write outside it is found. Outputs hold another NaN before a run, so that what is unwritten shows.
"""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from compare.errors import plain
from compare.machine import Machine, Refusal
from compare.memory import memory_free, memory_words, out_of_memory, with_room
from compare.pair import Arrays, Implementation, Shape

if TYPE_CHECKING:
    import torch

T = TypeVar("T")
FENCE = 4096  # bytes on either side; a multiple of 256, since an odd address makes cuBLAS choose
# another kernel
FENCE_NAN = (
    0x7FC0FE1C  # quiet NaNs with payloads of their own, so that each is told from a computed
)
POISON_NAN = 0x7FC0DEAD  # one
SPLIT_ROWS = 64  # row ranges of forked processes begin at multiples of it, as tiles do


class Broken(Exception):
    """An implementation broke a rule or failed; the sentence says which. Its result is void."""


class ContextLost(Broken):
    """The card's context is dead after this implementation: nothing more can run here."""


class Fenced:
    """One float32 buffer between two fences. `tensor` is what a kernel gets."""

    def __init__(self, shape: Shape, device: str, mark: int = 0) -> None:
        import torch

        self.nan = FENCE_NAN + mark  # another one a buffer: one fence's NaN does not mend another

        count = int(np.prod(shape, dtype=np.int64))
        fence = FENCE // 4
        self.words = _allocate(count + 2 * fence, device)
        self.fences = (self.words[:fence], self.words[fence + count :])
        self.fence()
        self.tensor: torch.Tensor = (
            self.words[fence : fence + count].view(torch.float32).reshape(shape)
        )
        self.bits: torch.Tensor = self.words[fence : fence + count]

    def fence(self) -> None:
        for fence in self.fences:
            fence.fill_(self.nan)

    def poison(self) -> None:
        self.bits.fill_(POISON_NAN)

    def intact(self) -> bool:
        return all(bool((fence == self.nan).all()) for fence in self.fences)


def _allocate(words: int, device: str) -> torch.Tensor:
    """int32 words; on a host in memory that forked processes share."""
    import torch

    if device != "cpu":
        return torch.empty(words, dtype=torch.int32, device=device)
    shared = mmap.mmap(-1, 4 * words)
    return torch.from_numpy(np.frombuffer(shared, np.int32))


class Bench:
    """The device, its stream, and the inputs and the output of one case. Refusal where the card has
    no memory for them."""

    def __init__(self, machine: Machine, inputs: Arrays, output_shape: Shape) -> None:
        import torch

        self.machine = machine
        self.device = f"cuda:{machine.device}" if machine.on_card else "cpu"
        try:
            with_room(machine, lambda: self._fill(inputs, output_shape))
        except torch.OutOfMemoryError as error:
            raise Refusal(2, str(self.broken(error))) from None
        self._views: dict[tuple[int, str], Any] = {}

    def _fill(self, inputs: Arrays, output_shape: Shape) -> None:
        import torch

        self.inputs = {
            name: Fenced(array.shape, self.device, mark)
            for mark, (name, array) in enumerate(inputs.items(), 1)
        }
        for name, array in inputs.items():
            self.inputs[name].tensor.copy_(torch.from_numpy(np.ascontiguousarray(array)))
        self.pristine = {name: buffer.bits.clone() for name, buffer in self.inputs.items()}
        self.output = Fenced(output_shape, self.device)

    def arguments(self, arrays: str) -> list[Any]:
        """The inputs and the output as `arrays` wants them, without a copy."""
        buffers = [*self.inputs.values(), self.output]
        return [self._view(buffer.tensor, arrays) for buffer in buffers]

    def _view(self, tensor: torch.Tensor, arrays: str) -> Any:
        if arrays == "torch":
            return tensor
        if not self.machine.on_card:
            return tensor.numpy()
        key = (tensor.data_ptr(), str(tensor.shape))
        if key not in self._views:
            import cupy

            self._views[key] = cupy.from_dlpack(tensor)
        return self._views[key]

    def call(self, implementation: Implementation) -> Any:
        """A function of no arguments that enqueues one run on the current stream."""
        function, options = implementation.function(), dict(implementation.options)
        arguments = self.arguments(implementation.arrays)
        return lambda: function(*arguments, **options)

    def run(self, implementation: Implementation, processes: int = 1) -> np.ndarray:
        """One checked run: poison, launch, wait, look at fences and inputs, fetch the output.

        Broken where the launch failed, left elements unwritten, wrote outside the output or changed
        an input; ContextLost where the card can't go on.
        """
        return self._told(lambda: self._run(implementation, processes))

    def _told(self, work: Callable[[], T]) -> T:
        """`work()` with room for it; Broken for whatever it raises."""
        try:
            return with_room(self.machine, work)
        except Broken:
            raise
        except Exception as error:  # a kernel may raise anything: it becomes a row
            raise self.broken(error) from error

    def _run(self, implementation: Implementation, processes: int) -> np.ndarray:
        self.mend()
        self.output.poison()
        if processes > 1 and implementation.split and not self.machine.on_card:
            self._run_split(implementation, processes)
        else:
            self.call(implementation)()
        self.wait()
        self.look()
        total = self.output.bits.numel()
        if unwritten := int((self.output.bits == POISON_NAN).sum()):
            raise Broken(f"{unwritten:,} of {total:,} elements were never written")
        return self.fetch()

    def repeat(self, implementation: Implementation, runs: int) -> int:
        """How many of `runs` further runs give the bits that the output holds now."""
        first = self._told(self.output.bits.clone)
        return self._told(lambda: self._repeat(implementation, runs, first))

    def _repeat(self, implementation: Implementation, runs: int, first: torch.Tensor) -> int:
        same, call = 0, self.call(implementation)
        for _ in range(runs):
            self.output.poison()
            call()
            same += bool((self.output.bits == first).all())
        self.look()
        return same

    def mend(self) -> None:
        """Fences and inputs as they were made: what one spoiled is not the next one's."""
        for name, buffer in self.inputs.items():
            buffer.bits.copy_(self.pristine[name])
        for buffer in (*self.inputs.values(), self.output):
            buffer.fence()

    def look(self) -> None:
        """Broken where a fence was overwritten or an input changed."""
        for name, buffer in {**self.inputs, "output": self.output}.items():
            if not buffer.intact():
                raise Broken(f"wrote outside its arrays: the fence around {name} is overwritten")
        for name, buffer in self.inputs.items():
            if not bool((buffer.bits == self.pristine[name]).all()):
                raise Broken(f"changed its input {name}")

    def fetch(self) -> np.ndarray:
        found = self.output.tensor.cpu().numpy()
        return found if self.machine.on_card else found.copy()  # from a card it is a copy already

    def wait(self) -> None:
        if self.machine.on_card:
            import torch

            torch.cuda.synchronize(self.device)

    def broken(self, error: Exception) -> Broken:
        """What a failed launch means: Broken, or ContextLost where the card answers no more."""
        sentence = plain(error)
        try:
            self.wait()
        except Exception:  # noqa: BLE001 - whatever it is, the card does not answer any more
            return ContextLost(sentence)
        if self.machine.on_card and out_of_memory(error):
            sentence = memory_words(str(error), memory_free(self.machine))
        return Broken(sentence)

    def _run_split(self, implementation: Implementation, processes: int) -> None:
        """Row ranges in forked processes; the output lies in shared memory, so nothing is copied.

        A range that failed in its child runs once more here, so that its own error is told.
        """
        function, options = implementation.function(), dict(implementation.options)
        names = [*self.inputs, "output"]
        arguments = self.arguments(implementation.arrays)
        rows = arguments[-1].shape[0]
        step = max(1, -(-rows // (processes * SPLIT_ROWS))) * SPLIT_ROWS

        def part(start: int) -> None:
            cut = slice(start, start + step)
            whole = (*implementation.split, "output")
            pieces = (a[cut] if n in whole else a for n, a in zip(names, arguments, strict=True))
            function(*pieces, **options)

        children = {}
        for start in range(step, rows, step):
            if (child := os.fork()) == 0:
                try:
                    part(start)
                    os._exit(0)
                finally:
                    os._exit(1)
            children[child] = start
        try:
            part(0)
        finally:
            failed = [start for child, start in children.items() if os.waitpid(child, 0)[1]]
        for start in failed:
            part(start)


@contextlib.contextmanager
def stream(machine: Machine) -> Iterator[None]:
    """One stream for both sides, not the default one: torch's, which CuPy enters too."""
    if not machine.on_card:
        yield
        return
    import torch

    stack = contextlib.ExitStack()
    try:
        stack.enter_context(torch.cuda.device(machine.device))
        current = torch.cuda.Stream()
        stack.enter_context(torch.cuda.stream(current))
        if "cupy" not in machine.missing:
            import cupy

            stack.enter_context(cupy.cuda.Device(machine.device))
            stack.enter_context(cupy.cuda.Stream.from_external(current))
        yield
    finally:
        with contextlib.suppress(RuntimeError):  # of a context that is lost
            stack.close()
