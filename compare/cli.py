"""The command line: arguments -> command -> screen; exit codes. Nothing is decided here."""

from __future__ import annotations

import argparse
import atexit
import contextlib
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from compare import caches
from compare.arguments import parser
from compare.machine import Refusal

Answer = tuple[list[str], int]
Show = Callable[[str], None]


def entry() -> NoReturn:
    """`main` as a process of its own. One that used a card ends at once: to take torch, CuPy and
    a CUDA context down in order takes half a second, and prints tracebacks where it was lost."""
    code = main()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        caches.remove()
        with contextlib.suppress(RuntimeError):  # of a context that is lost
            torch.cuda.synchronize()
            atexit._run_exitfuncs()
        with contextlib.suppress(BrokenPipeError):  # the reader has gone
            sys.stdout.flush()
        os._exit(code)
    sys.exit(code)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; prints its screen on stdout, a refusal's sentence on stderr."""
    argv = list(sys.argv[1:] if argv is None else argv)
    top, commands = parser()
    if not argv or (argv[0] not in commands and argv[0] not in ("-h", "--help")):
        argv = ["run", *argv]
    show = progress()
    try:
        args = top.parse_args(argv)
        args.typed = shlex.join(["python", "-m", "compare", *argv])
        if args.command not in ("list", "show"):  # those compile nothing
            caches.ensure()
        lines, code = CALLS[args.command](args, show)
    except Refusal as refusal:
        show("")
        print(refusal, file=sys.stderr)
        return refusal.code
    except KeyboardInterrupt:
        show("")
        print("interrupted", file=sys.stderr)
        return 130
    show("")
    try:
        print("\n".join(lines), flush=True)
    except BrokenPipeError:  # the reader has gone, as `| head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code


def progress() -> Callable[[str], None]:
    """One line on stderr that says what runs, where stderr is a terminal."""
    if not sys.stderr.isatty():
        return lambda text: None

    def show(text: str) -> None:
        print(f"\r\033[K  {text[:76]}", end="" if text else "\r", file=sys.stderr, flush=True)

    return show


def wish(args: argparse.Namespace):  # type: ignore[no-untyped-def]
    """The arguments of a case as the run command takes them."""
    from compare.run import SEED, Wish

    for name in ("precision", "data", "config"):
        if getattr(args, name) == "":
            raise Refusal(2, f"--{name} is empty; leave it out or name one ('list' shows them)")
    return Wish(
        pairs=tuple(args.pairs),
        shapes=tuple(args.shape),
        precision=args.precision or "",
        data=args.data or "",
        seed=SEED if args.seed is None else args.seed,
        only=tuple(getattr(args, "only", ())),
        config=args.config or "",
        device=args.device,
        cpu=args.cpu,
        require_card=getattr(args, "require_card", False),
        save=getattr(args, "save", ""),
        ladder=getattr(args, "explain_time", False),
        outputs=tuple(
            path for path in (getattr(args, n, "") for n in ("json", "md", "html", "junit")) if path
        ),
        keep=getattr(args, "outputs", ""),
        limit=getattr(args, "limit", 60),
        command=args.typed,
    )


def call_run(args: argparse.Namespace, show: Show) -> Answer:
    from dataclasses import replace

    from compare import diff, run
    from compare.report import diff as changed
    from compare.report import junit, markdown, terminal
    from compare.results import json_text, write_text

    if args.precision == "all":
        from compare.bits import precisions

        return precisions.command(replace(wish(args), outputs=()), show, args.json)
    before = diff.read_before(args.against, args.on)
    report = run.run(wish(args), show)
    changes = diff.against(before, report, args.on, args.outputs) if before else None
    if changes:
        report = replace(report, exit_code=report.exit_code or changes.exit_code)
    files = {args.json: lambda: json_text(report)}
    if args.md:
        tables = markdown.report(report) + (changed.markdown(changes) if changes else [])
        files[args.md] = lambda: "\n".join(tables) + "\n"
    if args.html:
        from compare.report.html import run_page

        files[args.html] = lambda: run_page(report, run.recorded())
    if args.junit:
        files[args.junit] = lambda: junit.text(report, changes)
    unwritten = []
    for path, text in files.items():
        try:
            if path:
                write_text(path, text())
        except OSError as error:
            unwritten.append(f"{path} can't be written: {error.strerror or error}")
    lines = terminal.report(report, run.recorded(), args.explain)
    lines += ["", *changed.lines(changes)] if changes else []
    return lines + unwritten, 2 if unwritten else report.exit_code


def call_diff(args: argparse.Namespace, show: Show) -> Answer:
    from compare import diff

    files = {"md": args.md, "junit_file": args.junit}
    return diff.command(wish(args), pythons=args.python, on=args.on, progress=show, **files)


def call_sweep(args: argparse.Namespace, show: Show) -> Answer:
    from compare import sweep

    return sweep.command(wish(args), show)


def call_show(args: argparse.Namespace, show: Show) -> Answer:
    from compare import run
    from compare.report import terminal

    return terminal.report(run.saved(args.name)), 0


def call_list(args: argparse.Namespace, show: Show) -> Answer:
    from compare import run
    from compare.report import listing

    return listing.lines(run.all_pairs().values()), 0


def call_doctor(args: argparse.Namespace, show: Show) -> Answer:
    from compare import doctor

    return doctor.command(show)


def call_selftest(args: argparse.Namespace, show: Show) -> Answer:
    from compare import machine, run, selftest, system

    here = machine.decide(system.observe(cards=not args.cpu), cpu=args.cpu)
    return selftest.command(run.prepare(here), show)


def call_bits(args: argparse.Namespace, show: Show) -> Answer:
    from compare import bits

    return bits.command(wish(args), show, args.json)


def call_compiled(args: argparse.Namespace, show: Show) -> Answer:
    from compare import show_compiled

    options = {"shape": args.shape, "arch": args.arch, "only": args.only}
    return show_compiled.command(args.pairs, path=args.json, progress=show, **options)


def call_threads(args: argparse.Namespace, show: Show) -> Answer:
    from compare import show_threads
    from compare.run import SEED

    show("the emulator")
    return show_threads.command(
        args.target,
        kernel=args.kernel,
        shape=args.shape,
        grid=args.grid,
        block=args.block,
        arguments=args.args,
        shared_mem=args.shared,
        seed=SEED if args.seed is None else args.seed,
    )


def call_lesson(args: argparse.Namespace, show: Show) -> Answer:
    from compare import lesson

    number = args.task[0] if args.task else "0"
    if not number.isdigit():
        raise Refusal(2, f"--try {number!r} is no number of a task; they are 1, 2 and 3")
    return lesson.command(
        args.pairs[0],
        shape=args.shape,
        arch=args.arch,
        html=args.html,
        task=int(number),
        answer=" ".join(args.task[1:]),
        width=shutil.get_terminal_size((100, 24)).columns,
        progress=show,
    )


CALLS: dict[str, Callable[[argparse.Namespace, Show], Answer]] = {
    "run": call_run,
    "sweep": call_sweep,
    "diff": call_diff,
    "show": call_show,
    "lesson": call_lesson,
    "threads": call_threads,
    "bits": call_bits,
    "compiled": call_compiled,
    "selftest": call_selftest,
    "doctor": call_doctor,
    "list": call_list,
}
