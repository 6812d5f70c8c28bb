"""What runs in the process of a user's implementation: one `Order`, a JSON line a case.

Everything is checked as in a run: fences, poison, inputs, probes; then the process ends.
"""

from __future__ import annotations

import ctypes
import functools
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from compare import userfile, workbench
from compare.device import Bench, stream
from compare.machine import Machine, Refusal, Seen
from compare.messages import told
from compare.pair import Arrays, Implementation, Shape
from compare.results import Row, from_json, to_json
from compare.workbench import Request


@dataclass(frozen=True)
class Asked:
    """One case, in plain values."""

    pair: str
    shape: Shape
    precision: str
    data: str
    seed: int


@dataclass(frozen=True)
class Order:
    """What one process tries: one implementation of a file, on some cases."""

    files: tuple[str, ...]  # in the order in which they add to the pairs
    name: str
    cases: tuple[Asked, ...]
    mode: str
    device: int
    missing: Mapping[str, str]
    processes: int  # over which the interpreter's rows are split
    folder: str  # outputs go here, by the name of their sha256
    memory: int = 0  # bytes of address space that it may add; 0 where that is not limited


@dataclass(frozen=True)
class Failure:
    """Why a process gave no answer, and what it printed last."""

    sentence: str
    lines: tuple[str, ...] = ()


def keeper(folder: str | Path) -> Callable[[str, np.ndarray], None]:
    """Writes an output to `folder` under the name of its hash, once."""

    def keep(sha: str, output: np.ndarray) -> None:
        path = Path(folder) / f"{sha}.npy"
        if not path.exists():
            part = path.with_suffix(f".{os.getpid()}.npy")
            np.save(part, output)
            os.replace(part, path)

    return keep


def serve(pipe: int) -> None:
    """The process's own half: an `Order` on stdin, a JSON line a case into `pipe`."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: never outlive who asked
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    order = from_json(Order, json.load(sys.stdin))
    said = os.fdopen(pipe, "w", encoding="utf-8")

    def say(**answer: Any) -> None:
        said.write(json.dumps(to_json(answer)) + "\n")
        said.flush()

    if order.mode != "card":
        os.environ["TRITON_INTERPRET"] = "1"
    import torch
    import triton  # noqa: F401 - imported before the clock starts

    if order.mode != "card":
        torch.set_num_threads(1)  # rows run in forked processes, which inherit no pool's thread
    else:  # a card takes seconds to open, which are none of the implementation's
        import torch.cuda

        torch.cuda.set_device(order.device)
        torch.zeros(1, device="cuda")
        torch.cuda.synchronize()
    say(ready=True)
    try:
        for row, lost in try_here(order):
            say(row=row, lost=lost)
            if lost:  # nothing can be taken down in order on a dead context
                os._exit(0)
    except Refusal as refusal:
        say(failure=Failure(str(refusal)))
    except SystemExit as stopped:
        say(failure=Failure(f"called sys.exit({stopped.code!r})"))
    except BaseException as error:  # noqa: BLE001 - whatever a user's code raises is its row
        say(failure=Failure(*told(error)))
    os._exit(0)  # without a teardown that a broken context or a thread of the user's could hang


def try_here(order: Order) -> Iterator[tuple[Row, bool]]:
    """Runs the implementation on each case as the workbench would, checked and probed; with each
    row whether it cost the card's context, after which another process has to go on."""
    from compare.run import all_pairs

    known = all_pairs()
    for file in order.files:
        yours = userfile.load(file, known)
        known[yours.pair.name] = yours.pair
    if order.memory:
        limit_memory(order.memory)
    machine = Machine(order.mode, Seen(), device=order.device, missing=order.missing)
    runner = workbench.Runner(machine, processes=order.processes)
    keep = keeper(order.folder)
    with stream(machine):
        for case in order.cases:
            pair = known[case.pair]
            one = next(i for i in pair.implementations if i.name == order.name)
            request = Request(
                pair, case.shape, case.precision, case.data, case.seed, (one,), timed=False
            )
            arrays, _ = runner.inputs(request)
            yield tried(runner, request, one, arrays, keep), bool(runner.lost)
            if runner.lost:
                return


def tried(
    runner: workbench.Runner,
    request: Request,
    implementation: Implementation,
    arrays: Arrays,
    keep: Callable[[str, np.ndarray], None],
) -> Row:
    """One case: its row with the probes, before any verdict; its output is kept."""
    bench = Bench(runner.machine, arrays, request.pair.output_shape(request.shape))
    function, returned = implementation.function(), []

    def call(*given: Any, **options: Any) -> None:
        returned.append(function(*given, **options))

    outputs: dict[str, np.ndarray] = {}
    here = replace(implementation, entry=call)
    row = workbench.first_run(runner, request, here, bench, outputs, workbench.Learned())
    if row.accuracy is not None:
        return explained(row, returned)
    keep(row.output, outputs[row.name])
    request = replace(request, implementations=(here,))
    shape, precision, seed = request.shape, request.precision, request.seed
    probes = functools.cache(lambda: tuple(request.pair.probes(shape, precision, seed)))
    return workbench.probe(runner, request, [row], probes)[0]


def explained(row: Row, returned: Sequence[Any]) -> Row:
    """A failed row; where nothing was written but an array came back, it says so."""
    found = row.accuracy
    reason = (found.reasons[0] if found and found.reasons else "").removesuffix(
        "; the card's context is lost"
    )
    last = returned[-1] if returned else None
    if last is not None and "never written" in reason and hasattr(last, "dtype"):
        shape = "x".join(map(str, last.shape))
        dtype = str(last.dtype).removeprefix("torch.")
        reason = (
            f"returned a {dtype} array of {shape} and left out unwritten: write the result into "
            "out, the last argument, float32"
        )
    return workbench.failed(row, reason)


def limit_memory(more: int) -> None:
    """Lets this process add `more` bytes of address space and no more, so that it meets a
    MemoryError before the machine runs out."""
    import resource  # of Unix alone: list and show run elsewhere too

    with open("/proc/self/statm", encoding="ascii") as facts:
        size = int(facts.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    limit = size + more if most == resource.RLIM_INFINITY else min(size + more, most)
    resource.setrlimit(resource.RLIMIT_AS, (limit, most))
