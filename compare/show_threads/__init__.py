"""The command `threads`: a CUDA kernel of a pair, FILE.py or FILE.cu, taken apart on the CPU."""

from __future__ import annotations

from pathlib import Path

from compare.machine import Refusal
from compare.report.threads import lines
from compare.report.words import wrap
from compare.run import SEED
from compare.show_threads.subjects import Subject, of_cu_file, of_pair
from compare.show_threads.typed import of_arguments, sizes
from compare.show_threads.yours import of_yours
from compare.threads import study
from compare.userfile import is_file
from cuda_ref.emulator.build import KernelError, compiler


def command(
    target: str,
    *,
    kernel: str = "",
    shape: str = "",
    grid: str = "",
    block: str = "",
    arguments: str = "",
    shared_mem: int = 0,
    seed: int = SEED,
) -> tuple[list[str], int]:
    """The screen, and 0 where the kernel as it stands has nothing against it, else 1.

    `target` is a pair, a .py file of `compare.userfile`, or a .cu file. A .cu file is launched as
    the pair's kernel with the same parameters is, or with `arguments`, `grid` and `block` as they
    are written on the command line. Refusal: 2 for bad arguments or no compiler, 1 for a source
    that does not build.
    """
    try:
        compiler()
    except KernelError as error:
        raise Refusal(2, f"threads {error}") from None
    try:
        subject = chosen(target, kernel, shape, grid, block, arguments, seed)
        launch = subject.launch
        result = study(
            subject.source,
            launch.name,
            sizes("--grid", grid) if grid else launch.grid,
            sizes("--block", block) if block else launch.block,
            subject.data,
            shared_mem=shared_mem or launch.shared_mem,
            label=subject.label,
            options=launch.options,
            unit=subject.unit,
        )
    except KernelError as error:
        raise Refusal(1, f"{folded(str(error))}\n{error.log[:2000]}".strip()) from None
    except Refusal as refusal:
        raise Refusal(refusal.code, folded(str(refusal))) from None
    own = f"Take your own apart:  cp {subject.label} mine.cu;  python -m compare threads mine.cu"
    screen = lines(result, forgiven=subject.forgiven, hint="" if subject.yours else own)
    return screen, 0 if result.clean else 1


def folded(text: str) -> str:
    """`text` in lines of at most 100 columns; an indented line is a command and stays whole."""
    parts = [[line] if line[:1] == " " else wrap(line, 2) for line in text.splitlines()]
    return "\n".join(line for part in parts for line in part)


def chosen(
    target: str, kernel: str, shape: str, grid: str, block: str, arguments: str, seed: int
) -> Subject:
    """What `target` names. Refusal: 2 for bad arguments."""
    if is_file(target):
        if arguments:
            raise Refusal(2, f"{target} gives its kernels their arguments; leave --args out")
        return of_yours(target, kernel, shape, seed)
    if target.endswith(".cu") or "/" in target or Path(target).is_file():
        if arguments:
            return of_arguments(target, kernel, grid, block, arguments, seed)
        return of_cu_file(target, kernel, shape, seed)
    return of_pair(target, kernel, shape, seed)
