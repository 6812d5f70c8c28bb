"""What can be typed: commands and their options. Imports nothing that is heavy."""

from __future__ import annotations

import argparse
from typing import Any, NoReturn

from compare.machine import Refusal

DESCRIPTION = """\
The same operation as a Triton kernel (block model) and as a CUDA kernel (thread model): the same
input bits, error against a float64 reference and device time side by side, and the reason for every
difference. Without a card the kernels run on the CPU and no time is shown.
"""
EXITS = """\
exit codes: 0 match; 1 no match, a failed gate or a missing side; 2 arguments, paths, or a machine
that can't do what was required; 3 match, but changed or slower than the run it was held against
"""


class Parser(argparse.ArgumentParser):
    """argparse with one sentence for an error, and no option by its first letters."""

    def __init__(self, **given: Any) -> None:
        super().__init__(allow_abbrev=False, **given)

    def error(self, message: str) -> NoReturn:
        raise Refusal(2, f"{message} ('{self.prog} --help' lists what there is)")


def parser() -> tuple[Parser, frozenset[str]]:
    """The whole command line, and the names of its commands."""
    top = Parser(
        prog="python -m compare",
        description=DESCRIPTION,
        epilog=EXITS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = top.add_subparsers(dest="command", metavar="COMMAND", parser_class=Parser)
    add_run(commands.add_parser("run", help="every pair, this machine (the default)"))
    sweep = commands.add_parser("sweep", help="every config of a pair's kernels, a row each")
    sweep.add_argument("pairs", nargs=1, metavar="PAIR")
    add_case(sweep)
    add_diff(commands.add_parser("diff", help="what changed between two runs"))
    show = commands.add_parser("show", help="a recorded report")
    show.add_argument("name", nargs="?", default="h200", help="its name, or a JSON file of --json")
    add_lesson(commands.add_parser("lesson", help="block versus thread, step by step"))
    add_threads(commands.add_parser("threads", help="what each CUDA thread and barrier does"))
    bits = commands.add_parser("bits", help="why the bits differ, in which order each side adds")
    bits.add_argument("pairs", nargs=1, metavar="PAIR")
    bits.add_argument("--json", default="", metavar="FILE", help="everything that was found")
    add_case(bits)
    compiled = commands.add_parser("compiled", help="what both compilers made; no card needed")
    compiled.add_argument("pairs", nargs="*", metavar="PAIR", help="pairs by name; else all")
    compiled.add_argument("--only", action="append", default=[], metavar="NAME")
    compiled.add_argument("--json", default="", metavar="FILE", help="for every arch, for diff")
    add_target(compiled)
    selftest = commands.add_parser("selftest", help="planted faults: each must be caught")
    selftest.add_argument("--cpu", action="store_true", help="without the card's own kernels")
    commands.add_parser("doctor", help="what this machine can run, and what to install")
    commands.add_parser("list", help="pairs, implementations, precisions, data")
    return top, frozenset(commands.choices)


def add_run(run: argparse.ArgumentParser) -> None:
    run.add_argument(
        "pairs", nargs="*", metavar="PAIR", help="pairs by name, or FILE.py of your own; else all"
    )
    run.add_argument("--only", action="append", default=[], metavar="NAME", help="this kernel")
    run.add_argument("--require-card", action="store_true", help="exit 2 where there is no card")
    run.add_argument("--save", default="", metavar="DIR", help="arrays of a failed check go here")
    run.add_argument("--explain", action="store_true", help="every check, its formula and source")
    run.add_argument(
        "--explain-time", action="store_true", help="the pair's kernels timed in every usual way"
    )
    run.add_argument("--against", default="", metavar="FILE", help="a run of --json: what changed")
    run.add_argument(
        "--limit", type=float, default=60, metavar="S", help="seconds for a kernel of FILE.py"
    )
    run.add_argument("--json", default="", metavar="FILE", help="everything, schema version 1")
    run.add_argument("--md", default="", metavar="FILE", help="the tables, for a pull request")
    run.add_argument("--html", default="", metavar="FILE", help="the report as one page")
    add_case(run)
    add_changes(run)


def add_case(command: argparse.ArgumentParser) -> None:
    """The options that choose a case."""
    command.add_argument("--shape", action="append", default=[], help="2048x1024, 1024x256..65536")
    command.add_argument("--precision", help="ieee, tf32, .. or all: see 'list'")
    command.add_argument("--data", help="a family of inputs: see 'list'")
    command.add_argument("--seed", type=int, default=None, help="which random inputs")
    command.add_argument("--config", metavar="NAME=VALUE", help="as 'sweep' prints it")
    command.add_argument("--device", type=int, default=0, metavar="N", help="which card")
    command.add_argument("--cpu", action="store_true", help="run on the CPU though there is a card")


def add_changes(command: argparse.ArgumentParser) -> None:
    """What is held against another run."""
    command.add_argument("--on", default="", help="what counts: bits,code,error,time (bits,time)")
    command.add_argument("--junit", default="", metavar="FILE", help="a test case a kernel, XML")
    command.add_argument(
        "--outputs", default="", metavar="DIR", help="outputs kept here, so that diff counts bits"
    )


def add_diff(diff: argparse.ArgumentParser) -> None:
    diff.add_argument("pairs", nargs="*", metavar="FILE", help="two of --json; pairs with --python")
    diff.add_argument(
        "--python", action="append", default=[], metavar="EXE", help="twice: run both here, A B B A"
    )
    diff.add_argument("--md", default="", metavar="FILE", help="the tables, for a pull request")
    add_case(diff)
    add_changes(diff)


def add_target(command: argparse.ArgumentParser) -> None:
    """One shape, compiled for one architecture."""
    command.add_argument("--shape", default="", help="2048x1024")
    command.add_argument("--arch", default="", help="sm_80, 86, 89, 90, 100 or 120")


def add_lesson(lesson: argparse.ArgumentParser) -> None:
    lesson.add_argument("pairs", nargs=1, metavar="PAIR")
    lesson.add_argument("--html", default="", metavar="FILE", help="the lesson as one page")
    lesson.add_argument(
        "--try",
        dest="task",
        nargs="+",
        default=[],
        metavar="N",
        help="task N; with an answer: check",
    )
    add_target(lesson)


def add_threads(threads: argparse.ArgumentParser) -> None:
    threads.add_argument("target", metavar="PAIR|FILE.py|FILE.cu")
    threads.add_argument(
        "--kernel", default="", metavar="NAME", help="a kernel, or FILE.py's implementation"
    )
    threads.add_argument("--shape", default="", help="of the pair's arguments: 64x1024")
    threads.add_argument("--grid", default="", help="blocks: 4, 4x2")
    threads.add_argument("--block", default="", help="threads a block: 64, 16x16")
    threads.add_argument("--args", default="", help="types and sizes: 'float[4x64] int=64'")
    threads.add_argument("--shared", type=int, default=0, metavar="BYTES", help="dynamic shared")
    threads.add_argument("--seed", type=int, default=None, help="which random inputs")
