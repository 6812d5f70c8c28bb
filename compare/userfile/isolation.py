"""A user's implementation, tried alone: in a process of its own, with a time limit.

Whatever it does there (an illegal access, a hang, a `sys.exit`), it takes nobody down: it becomes a
row with one sentence. Each process has its own CUDA context and its own process group, which is
killed whole, so that nothing is left running. Only what is right comes beside the others.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from compare import workbench
from compare.machine import Machine
from compare.messages import trimmed
from compare.pair import Implementation, Shape
from compare.results import Row, from_json, to_json
from compare.userfile.trial import Asked, Failure, Order
from compare.workbench import Request

LIMIT = 60.0  # seconds that one implementation may take for one case
START = 120.0  # seconds until a process has imported torch and Triton; no fault of the user's
TAIL = 4000  # bytes of what it printed that are kept
ROOT = Path(__file__).resolve().parents[2]
PROGRAM = (
    "import sys; sys.path[:1] = [{root!r}]; from compare.userfile.trial import serve; serve({pipe})"
)


@dataclass
class Trials:
    """What became of every implementation that was tried alone, by case and name."""

    folder: Path
    rows: dict[tuple[Asked, str], Row] = field(default_factory=dict)

    def __call__(self, request: Request, name: str) -> tuple[Row, np.ndarray | None] | None:
        """The row and the output of one, for `workbench.Runner.alone`; None where none was."""
        row = self.rows.get((asked(request), name))
        if row is None:
            return None
        path = self.folder / f"{row.output}.npy"
        return row, np.load(path) if row.output else None


def asked(request: Request) -> Asked:
    return Asked(request.pair.name, request.shape, request.precision, request.data, request.seed)


def try_all(
    files: Sequence[str],
    names: Mapping[str, Sequence[str]],
    wanted: Sequence[Request],
    machine: Machine,
    folder: Path,
    *,
    limit: float = LIMIT,
    processes: int = 1,
    progress: Callable[[str], None] = lambda text: None,
) -> Trials:
    """Tries every implementation in `names` (by pair) on the cases of `wanted` that hold it.

    One process at a time on a card, since one that takes its memory must not fail the next; on a
    host as many as there are cores. KeyboardInterrupt ends them all.
    """
    found = Trials(folder)
    jobs: list[tuple[Order, list[Row], list[str]]] = []
    for pair, listed in names.items():
        for name in listed:
            cases, rows, slow = [], [], []
            for request in wanted:
                mine = [i for i in request.implementations if i.name == name]
                runs = mine and not machine.lacks(mine[0].needs, mine[0].arrays)
                if request.pair.name == pair and runs:
                    cases.append(asked(request))
                    rows.append(workbench.blank(mine[0]))
                    slow.append(too_slow(mine[0], request.shape, limit, machine.on_card))
            if cases:
                jobs.append((order(files, name, cases, machine, folder, processes), rows, slow))
    ended = threading.Event()

    def one(job: tuple[Order, list[Row], list[str]]) -> None:
        progress(f"{job[0].name}: alone, in a process of its own")
        for case, row in zip(job[0].cases, attempt(*job, limit=limit, ended=ended), strict=True):
            found.rows[case, job[0].name] = row

    workers = 1 if machine.on_card else os.cpu_count() or 1
    with ThreadPoolExecutor(workers) as pool:
        try:
            list(pool.map(one, jobs))
        except BaseException:
            ended.set()
            pool.shutdown(cancel_futures=True)
            raise
    return found


def too_slow(implementation: Implementation, shape: Shape, limit: float, on_card: bool) -> str:
    """The sentence for one that did not end. Without a card a right kernel may be slow: there it
    names a shape with a sixteenth of the work, since the work grows with a shape's first side."""
    ended = f"did not end within {limit:g} s"
    slow = {"triton": "Triton's interpreter", "cuda": "running every thread on the CPU"}
    if on_card or implementation.language not in slow:
        return f"{ended}; --limit sets the seconds that it has"
    smaller = "x".join(map(str, (max(1, shape[0] // 16), *shape[1:])))
    tried = f"--shape {smaller}, or " if shape[0] > 1 else ""
    return (
        f"{ended}; unless it hangs, {slow[implementation.language]} is slow: try {tried}"
        f"--limit {4 * limit:g}"
    )


def order(
    files: Sequence[str],
    name: str,
    cases: Sequence[Asked],
    machine: Machine,
    folder: Path,
    processes: int,
) -> Order:
    from compare.memory import memory_free

    return Order(
        tuple(str(Path(file).resolve()) for file in files),
        name,
        tuple(cases),
        machine.mode,
        machine.device,
        machine.missing,
        processes,
        str(folder),
        memory=0 if machine.on_card else memory_free(machine),
    )


def attempt(
    order: Order,
    blanks: Sequence[Row],
    slow: Sequence[str],
    *,
    limit: float,
    ended: threading.Event,
) -> list[Row]:
    """One row a case, from its blank row. A process that died or was killed fails its case, in the
    words of `slow` where it did not end; another process does the rest."""
    rows: list[Row] = []
    while (done := len(rows)) < len(order.cases):
        rest = replace(order, cases=order.cases[done:])
        answers, failure = one_process(rest, limit, ended)
        rows += answers
        if failure is not None and (at := len(rows)) < len(order.cases):
            sentence = failure.sentence or slow[at]
            rows.append(workbench.failed(blanks[at], sentence, failure.lines))
    return rows


def one_process(
    order: Order, limit: float, ended: threading.Event
) -> tuple[list[Row], Failure | None]:
    """The rows of the cases that a fresh process answered, and why there are no more; a Failure
    without a sentence where the next one did not end."""
    reading, writing = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(root=str(ROOT), pipe=writing)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        pass_fds=(writing,),
        start_new_session=True,
    )
    os.close(writing)
    printed = bytearray()
    listener = threading.Thread(target=listen, args=(process.stdout, printed), daemon=True)
    listener.start()
    rows: list[Row] = []
    failure: Failure | None = None
    lost = False
    try:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(json.dumps(to_json(order)).encode())  # type: ignore[union-attr]
            process.stdin.close()  # type: ignore[union-attr]
        for answer in answers(reading, limit, ended):
            if "row" in answer:
                rows.append(from_json(Row, answer["row"]))
                lost = answer["lost"]
            elif "failure" in answer:
                failure = from_json(Failure, answer["failure"])
    except TimeoutError:
        failure = Failure("")
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)  # what it started, too
        code = process.wait()
        os.close(reading)
    listener.join(timeout=1)
    if failure is None and not lost and len(rows) < len(order.cases):
        failure = death(code, printed.decode(errors="replace"))
    return rows, failure


def listen(stream: Any, kept: bytearray) -> None:
    """Keeps the last of what the process prints, so that no pipe fills up."""
    while chunk := stream.read1(4096):
        kept += chunk
        del kept[:-TAIL]
    stream.close()


def answers(pipe: int, limit: float, ended: threading.Event) -> Iterator[dict[str, Any]]:
    """What the process says, a JSON line each, until it closes the pipe.

    The clock starts anew with each line; the first may take START. TimeoutError past the limit.
    """
    rest, deadline = b"", time.monotonic() + max(START, limit)
    while True:
        if ended.is_set():
            raise KeyboardInterrupt
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        if not select.select([pipe], [], [], min(left, 0.5))[0]:
            continue
        piece = os.read(pipe, 1 << 16)
        if not piece:
            return
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            deadline = time.monotonic() + limit
            yield json.loads(line)


def death(code: int, printed: str) -> Failure:
    """How a process ended that had not answered, from its exit code and what it printed last."""
    last = tuple(trimmed("\n".join(printed.strip().splitlines()[-3:])))
    if code >= 0:
        return Failure(f"ended its process with exit code {code}", last)
    name = signal.Signals(-code).name
    sentence = {
        "SIGSEGV": "segmentation fault: it read or wrote outside its arrays",
        "SIGBUS": "bus error: it read or wrote outside its arrays",
        "SIGKILL": "the system killed its process, most likely for want of memory",
        "SIGABRT": "aborted its process",
        "SIGFPE": "divided an integer by zero",
    }.get(name, f"its process died of {name}")
    return Failure(sentence, last)
