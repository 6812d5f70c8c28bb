"""The screens: what stands where, in which words, at most 100 columns and 70 lines."""

from dataclasses import replace

import pytest

from compare.pairs import softmax
from compare.report import markdown, terminal
from compare.report.case import plain_kernel, speed_words
from compare.report.words import clip, equal_words, microseconds, percent, rate, rule, wrap
from compare.results import Claim, Ratio, Report
from compare.run import recorded

H200 = recorded("h200")


def screen(report, lent=None, explain=False):
    return terminal.report(report, lent, explain)


def as_host(report):
    """The recorded report as a machine without a card would have it."""
    machine = {
        **report.machine,
        "mode": "host",
        "banner": "NO NVIDIA CARD FOUND",
        "cuda_side": "CUDA runs thread by thread, built by g++ 12.2",
    }
    cases = [
        replace(
            case,
            bits_count=case.signed,
            clock=None,
            ratios=(),
            rows=tuple(replace(row, timing=None) for row in case.rows if row.name != "device copy"),
        )
        for case in report.cases
        if case.clock  # the shapes that a card alone runs without a time
    ]
    return replace(report, machine=machine, cases=tuple(cases))


@pytest.mark.parametrize("report", (H200, as_host(H200)), ids=("card", "host"))
def test_a_screen_fits(report):
    lines = screen(report, H200)
    assert max(map(len, lines)) <= 100
    assert all(line == line.rstrip() for line in lines)
    assert len(lines) < 70


def test_the_summary_comes_last_with_the_exit_code():
    lines = screen(H200)
    assert "exit 0" in lines[-1] or "exit 0" in lines[-2]
    titles = [line for line in lines if line.startswith("-- ")]
    assert titles[-1].startswith("-- summary")


def test_a_host_lends_times_that_are_labelled():
    lines = screen(as_host(H200), H200)
    assert any(line.startswith("  time ") and line.count("needs a card") == 2 for line in lines)
    lent = [line for line in lines if "on an H200 (recorded)" in line]
    assert len(lent) >= 1 and all(" us" in line or "bit for bit" in line for line in lent)
    assert not any(" us" in line for line in screen(as_host(H200)))


def test_no_bit_share_on_a_host_where_an_exponential_is_involved():
    lines = screen(as_host(H200))
    block = lines[: next(i for i, line in enumerate(lines) if line.startswith("-- matmul"))]
    assert not any("% bit for bit" in line for line in block)


def test_course_words_never_reach_the_screen():
    text = "\n".join(screen(H200, explain=True)).lower()
    assert not any(word in text.split() for word in ("day", "chapter", "course", "seed's"))


def test_no_match_names_the_element():
    case = H200.cases[0]
    row = case.rows[0]
    fault = replace(row.accuracy.worst, index=(3, 4))
    wrong = replace(row.accuracy, ok=False, reasons=("error bound: 1 element",), faults=(fault,))
    bad = replace(case, verdict="NO MATCH", rows=(replace(row, accuracy=wrong), *case.rows[1:]))
    lines = screen(replace(H200, cases=(bad,), exit_code=1))
    assert any(line.startswith("  NO MATCH") for line in lines)
    assert any(line.startswith("  FAILED   softmax: error bound") for line in lines)
    assert any("(3, 4)" in line and "want" in line for line in lines)


def failing(case, *names, output=True):
    """The case with wrong rows; their reason names the first faulty element."""

    def of(row):
        if row.name not in names:
            return row
        faults = [replace(row.accuracy.worst, index=(0, n), got=0.25 * n) for n in range(3)]
        first = faults[0]
        told = (
            f"error bound: 9 elements, first at (0, 0): got {first.got:.9g}, want {first.want:.9g}"
        )
        wrong = replace(row.accuracy, ok=False, share=200.0, reasons=(told,), faults=tuple(faults))
        return replace(row, accuracy=wrong, output=row.output if output else "")

    return replace(case, rows=tuple(map(of, case.rows)))


def test_an_element_is_told_once():
    bad = failing(replace(H200.cases[0], verdict="NO MATCH"), "softmax")
    text = "\n".join(screen(replace(H200, cases=(bad,), exit_code=1)))
    assert [text.count(f"at (0, {n}): got") for n in range(3)] == [1, 1, 1]


def test_what_is_far_beyond_its_bound_fits_its_column():
    bad = failing(replace(H200.cases[0], verdict="NO MATCH"), "softmax", "softmaxRows")
    lines = screen(replace(H200, cases=(bad,), exit_code=1))
    (errors,) = (line for line in lines if line.startswith("  error against float64"))
    assert errors.count("beyond the bound") == 2 and ".." not in errors


def test_what_failed_beside_a_match_stands_before_it():
    bad = failing(H200.cases[0], "softmax_onepass")
    lines = screen(replace(H200, cases=(bad,), exit_code=1))
    start = next(n for n, line in enumerate(lines) if line.startswith("-- softmax"))
    assert lines[start + 1].startswith("  FAILED   softmax_onepass: error bound: 9 elements")
    text = "\n".join(lines)
    assert text.count("FAILED   softmax_onepass") == 1
    assert "the columns below hold softmax and softmaxRows" in text
    assert "  MATCH    softmax and softmaxRows: all 2,097,152 elements" in text
    other = replace(bad, shape=(4, 4), clock=None)
    lines = screen(replace(H200, cases=(H200.cases[0], other), exit_code=1))
    assert any(
        "4x4: softmax_onepass FAILED; softmax and softmaxRows: MATCH, " in line for line in lines
    )


def test_a_host_speaks_of_bits_only_where_they_differ_and_both_are_right():
    case = replace(as_host(H200).cases[0], words=())
    row = case.row("softmax")
    same = tuple(
        replace(a, verdict="identical", equal=a.total) if a.counterpart == "softmaxRows" else a
        for a in row.agreements
    )
    equal = replace(
        case, verdict="MATCH BIT FOR BIT", rows=(replace(row, agreements=same), *case.rows[1:])
    )
    wrong = replace(failing(case, "softmax"), verdict="NO MATCH")
    alone = replace(case, verdict="", unstated="one side alone was asked for")
    assert len(softmax.words(case)) == 1
    assert [softmax.words(other) for other in (equal, wrong, alone)] == [(), (), ()]
    words = [terminal.bits_words(each) for each in (case, equal, wrong)]
    assert words == ["a card's question", "all equal", "."]


def summary(report):
    lines = screen(report)
    return lines[next(n for n, line in enumerate(lines) if line.startswith("-- summary")) + 2 :]


def test_the_summary_names_every_shape_that_was_asked_for():
    main = H200.cases[0]
    shapes = ((1024, 256), (1024, 512), (1024, 1024))
    cases = tuple(replace(main, shape=shape) for shape in shapes)
    cases = (*cases[:2], replace(cases[2], verdict="NO MATCH"))
    for report in (replace(H200, cases=cases), as_host(replace(H200, cases=cases))):
        names = [line.split()[1:3] for line in summary(report)[:3]]
        assert names == [["1024x256", "yes"], ["1024x512", "yes"], ["1024x1024", "NO"]]
    untimed = replace(main, shape=(8, 8), clock=None, verdict="NO MATCH")
    (line, *rest) = summary(replace(H200, cases=(main, untimed)))
    assert line.split()[:3] == ["softmax", "2048x1024", "NO"] and "8x8" not in " ".join(rest)


@pytest.mark.parametrize(
    "typed, kept",
    (
        ("run a.py --json x.json --shape 4x4", "run a.py --shape 4x4"),
        ("run a.py --json=x.json --md x --html x --junit x --save d --outputs 'd e'", "run a.py"),
        ("run a.py --only 'softmax, CUDA bits'", "run a.py --only 'softmax, CUDA bits'"),
    ),
)
def test_what_to_do_next_overwrites_no_report(typed, kept):
    bad = failing(replace(H200.cases[0], verdict="NO MATCH"), "softmax")
    report = replace(H200, cases=(bad,), exit_code=1, command=f"python -m compare {typed}")
    last = " ".join(" ".join(screen(report)[-2:]).split())
    assert last.endswith(f"next: python -m compare {kept} --explain")


def test_a_run_says_itself_what_to_do_next():
    steps = ("python -m compare threads mine.py",)
    right = screen(replace(H200, next=steps))
    assert right[-1].endswith("exit 0   next: python -m compare threads mine.py")
    bad = failing(replace(H200.cases[0], verdict="NO MATCH"), "softmax")
    command = f"python -m compare run mine.py --only {'x' * 20}"
    report = replace(H200, cases=(bad,), exit_code=1, next=steps, command=command)
    explain, threads = screen(report)[-2:]  # a command is not cut where it does not fit
    assert explain.endswith(f"next: {command} --explain")
    assert threads.strip() == "python -m compare threads mine.py"
    explained = screen(replace(report, command=f"{command} --explain"))
    assert explained[-1].endswith("exit 1   next: python -m compare threads mine.py")
    nothing = screen(replace(H200, cases=(), exit_code=1, next=steps))
    assert nothing[-1].endswith("next: python -m compare doctor")


def test_a_missing_side_is_a_column_with_its_reason():
    case = H200.cases[0]
    rows = tuple(
        replace(row, skipped="CuPy is not installed", accuracy=None, timing=None, output="")
        if row.language == "cuda"
        else row
        for row in case.rows
    )
    bare = replace(case, rows=rows, verdict="", unstated="CuPy is not installed", ratios=())
    lines = screen(replace(H200, cases=(bare,)))
    assert any("NOT COMPARED   CuPy is not installed" in line for line in lines)
    assert any(line.startswith("  not run") and "softmaxRows" in line for line in lines)


def test_failed_gates_and_notes_are_lines():
    case = replace(H200.cases[0], failed_gates=("tf32 was slower",))
    row = replace(case.rows[0], notes=("not deterministic: 18 of 20 runs gave the same bits",))
    lines = screen(replace(H200, cases=(replace(case, rows=(row, *case.rows[1:])),)))
    assert any(line.startswith("  GATE     tf32 was slower") for line in lines)
    assert any("not deterministic: 18 of 20" in line for line in lines)


def test_twins_are_counted():
    claims = (Claim("a", "b", True, True), Claim("c", "d", False, True))
    lines = screen(replace(H200, cases=(replace(H200.cases[0], claims=claims),)))
    assert any("exact twins: 1 of 2 keep CUDA's bits" in line for line in lines)


def test_markdown_has_every_row():
    text = "\n".join(markdown.report(H200))
    for case in H200.cases:
        for row in case.rows:
            assert row.name in text


@pytest.mark.parametrize(
    "equal, total, words",
    (
        (10, 10, "all equal"),
        (0, 10, "0 %"),
        (293, 1000, "29.3 %"),
        (17, 1_000_000, "0.0017 %"),
        (999_999, 1_000_000, "99.9999 %"),
        (4_194_303, 4_194_304, "99.9999 %"),
        (999, 1000, "99.9 %"),
    ),
)
def test_a_share_is_never_all_unless_all_are_equal(equal, total, words):
    assert equal_words(equal, total) == words


def test_numbers_in_words():
    assert [microseconds(x) for x in (6.4, 13.19, 404.2, 1234.4)] == [
        "6.40",
        "13.2",
        "404",
        "1,234",
    ]
    assert rate(2 * 2048**3, 404) == "42.5 TFLOP/s"
    assert [percent(x) for x in (0, 0.00042, 0.091, 0.4, 0.9999, 1.0, 1.004, 12.3)] == [
        "0 %", "0.04 %", "9.1 %", "40 %", "99.9 %", "100 %", "100.1 %", "1230 %",
    ]  # fmt: skip


def test_one_direction_for_every_ratio():
    """Time of Triton / time of CUDA, said as a sentence."""
    fast = Ratio("softmax", "softmaxRows", "cold", 0.5, 0.49, 0.51, "FASTER")
    assert speed_words(fast, "softmaxRows") == (
        "Triton runs 2.00x as fast as softmaxRows, cold (1.96 .. 2.04)"
    )
    slow = replace(fast, value=1.2, low=1.19, high=1.21, verdict="SLOWER")
    assert speed_words(slow, "cuBLAS") == "Triton takes 1.20x cuBLAS's time, cold (1.19 .. 1.21)"
    open_ = replace(fast, value=1.0, verdict="UNDECIDED", reason="launch-bound")
    assert speed_words(open_, "x").startswith("launch-bound: ratio 1.000")


def test_a_librarys_kernel_has_a_short_name():
    assert plain_kernel("void cutlass::Kernel2<gemm_128x64>(gemm_128x64::Params)") == "gemm_128x64"
    assert plain_kernel("void (anonymous namespace)::softmax<float, 10>(float*)") == "softmax"
    assert plain_kernel("sm90_xmma_gemm") == "sm90_xmma_gemm"


def test_lines_are_cut_and_ruled():
    assert len(rule("a title", "a name")) == 98
    assert clip("x" * 50, 20).count("x") == 18
    assert max(map(len, wrap("word " * 60, 4))) <= 100
    assert wrap("  kept", 4) == ["  kept"]


def test_an_empty_report_has_a_summary():
    empty = Report("0", H200.machine, "", (), 0.1, 1)
    assert any("exit 1" in line for line in screen(empty))
