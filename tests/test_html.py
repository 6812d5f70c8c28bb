"""The pages: one file each, escaped, and tried in a real browser where there is one."""

import dataclasses
import json
import re
from html.parser import HTMLParser

import pytest
from lessons import lesson_of, whole
from pages import EVIL, recorded_report, with_markup

from compare.lesson_data import Frame, Grid, Show, thread_levels
from compare.report import plots, terminal
from compare.report.html import run_page
from compare.report.html_lesson import frames_json, lesson_page
from compare.report.page import read

VOID = {"meta", "link", "br", "img", "input", "hr"}


@pytest.fixture(scope="module")
def report():
    return recorded_report()


class Reader(HTMLParser):
    """Tags that are open, ids, addresses and scripts of a page."""

    def __init__(self, text):
        super().__init__()
        self.open, self.ids, self.addresses, self.scripts, self.wrong = [], [], [], 0, []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        if tag not in VOID:
            self.open.append(tag)
        self.scripts += tag == "script"
        for name, value in attrs:
            if name == "id":
                self.ids.append(value)
            if name in ("src", "href", "action", "data"):
                self.addresses.append(value)
            if name.startswith("on"):
                self.wrong.append(name)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.wrong.append(f"</{tag}>")


def check_whole(text, scripts):
    read = Reader(text)
    assert read.wrong == [] and read.open == []
    assert len(read.ids) == len(set(read.ids))
    assert all(a.startswith(("#", "data:,")) for a in read.addresses)
    assert {a[1:] for a in read.addresses if a.startswith("#")} <= set(read.ids)
    assert read.scripts == scripts
    assert len(text.encode()) < 2_000_000
    assert (
        "http://" not in text.replace("http://www.w3.org/2000/svg", "") and "https://" not in text
    )


def text_of(page):
    """What a page says: its text without tags, spaces folded, entities undone."""
    body = re.sub(r"<(style|script)\b.*?</\1>", " ", page[page.index("<body>") :], flags=re.S)
    plain = re.sub(r"<[^>]+>", " ", re.sub(r"</?code>", "", body))
    for entity, sign in (
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&#34;", '"'),
        ("&#39;", "'"),
        ("&amp;", "&"),
    ):
        plain = plain.replace(entity, sign)
    return " ".join(plain.split())


# -- the run page ----------------------------------------------------------------------------------


def test_a_run_page_is_one_whole_file(report):
    check_whole(run_page(report), scripts=1)


def test_a_run_page_holds_every_figure_of_the_terminal(report):
    """Outside the copy of the terminal's text: that copy is cut out first."""
    page = re.sub(r"<details>.*?</details>", "", run_page(report), flags=re.S)
    said = text_of(page)
    screen = "\n".join(terminal.report(report))
    body = screen[screen.index("\n-- ") :]
    figures = set(re.findall(r"\d+\.\d+(?:e-\d+)?|\d{1,3}(?:,\d{3})+", body))
    assert len(figures) > 25
    assert {figure for figure in figures if figure not in said} == set()


def test_a_run_page_holds_the_terminal_s_text_too(report):
    page = run_page(report)
    details = re.search(r"<details>.*?<pre[^>]*>(.*?)</pre>", page, re.S)[1]
    assert text_of("<body>" + details) == " ".join("\n".join(terminal.report(report)).split())


def test_users_text_is_shown_and_not_run(report):
    page = run_page(with_markup(report))
    check_whole(page, scripts=1)
    assert EVIL not in page
    assert text_of(page).count(EVIL) >= 5


def test_a_host_s_page_lends_recorded_figures_and_says_so(report):
    bare = [dataclasses.replace(row, timing=None) for row in report.cases[0].rows if row.language]
    case = dataclasses.replace(report.cases[0], rows=tuple(bare), clock=None, ratios=())
    machine = {**report.machine, "mode": "host", "banner": "NO NVIDIA CARD FOUND", "cuda_side": ""}
    host = dataclasses.replace(report, cases=(case,), machine=machine)
    said = text_of(run_page(host, report))
    assert "(recorded)" in said and "needs a card" in said
    assert "cold us" not in said  # a column that nobody has a figure for
    assert "(recorded)" not in text_of(run_page(host, None))


def test_a_failure_is_on_the_page(report):
    case = report.cases[0]
    accuracy = dataclasses.replace(case.rows[0].accuracy, ok=False, reasons=("2 NaN too many",))
    row = dataclasses.replace(case.rows[0], accuracy=accuracy)
    case = dataclasses.replace(case, rows=(row, *case.rows[1:]), verdict="NO MATCH")
    page = run_page(dataclasses.replace(report, cases=(case,)))
    shown = re.sub(r"<details>.*?</details>", "", page, flags=re.S)
    assert "2 NaN too many" in text_of(shown)
    third = dataclasses.replace(case.rows[2], accuracy=accuracy)
    rows = (report.cases[0].rows[0], case.rows[1], third, *case.rows[3:])
    matched = dataclasses.replace(case, rows=rows, verdict="MATCH")
    said = text_of(run_page(dataclasses.replace(report, cases=(matched,))))
    assert said.index(f"FAILED: {third.name}: see below") < said.index("MATCH: ")
    assert 'class="verdict bad">NO<' in page


def test_time_over_shape_is_drawn_where_shapes_were_timed(report):
    case = report.cases[0]
    bigger = dataclasses.replace(case, shape=(4096, 1024), bytes=2 * case.bytes)
    assert "Time over shape" not in run_page(dataclasses.replace(report, cases=(case,)))
    assert "Time over shape" in run_page(dataclasses.replace(report, cases=(case, bigger)))


# -- the lesson page -------------------------------------------------------------------------------


@whole
@pytest.mark.parametrize("pair", ("softmax", "matmul"))
def test_a_lesson_page_is_one_whole_file(pair):
    found = lesson_of(pair)
    page = lesson_page(found)
    check_whole(page, scripts=2)
    said = text_of(page)
    assert found.missing == () and "not known" not in said
    for what, left, right in found.totals:
        assert what in said and left in said and right in said
    for step in found.steps:
        for words in (step.block, step.thread):
            assert words.replace("`", "") in said
    assert f"at {found.facts['recorded_shape']}, recorded on an NVIDIA H200" in said
    assert "`" not in re.sub(r'<div class="code">.*?</div>', "", page, flags=re.S)
    assert "<code>num_warps</code>" in page
    for _, _, question, _ in found.tasks:
        assert question in said


@whole
def test_a_lesson_page_answers_in_so_many_words():
    said = text_of(lesson_page(lesson_of("softmax")))
    assert "Who holds column 700? Block model thread 47 Thread model thread 188" in said
    assert "0 written, " in said and "5 written, 19 run by each thread" in said
    assert "Why the bits differ" in said and "exp" in said and "division" in said


@whole
def test_a_lesson_page_shows_markup_of_a_source_as_text():
    found = lesson_of("softmax")
    part = dataclasses.replace(found.cuda.parts[0], lines=(f"// {EVIL}",))
    side = dataclasses.replace(found.cuda, parts=(part, *found.cuda.parts[1:]), file=EVIL)
    frames = (dataclasses.replace(found.shown.frames[0], code=EVIL), *found.shown.frames[1:])
    shown = dataclasses.replace(found.shown, frames=frames)
    page = lesson_page(dataclasses.replace(found, cuda=side, title=EVIL, shown=shown))
    check_whole(page, scripts=2)
    assert EVIL not in page and EVIL in text_of(page)


def small_show(code="m = 1;"):
    frames = (
        Frame("sum", "a", ("x",), (0, 0, 1, 1), 3, code, ((0, "shared", 0), (0, "shared", 1))),
        Frame("sum", "b", barrier=1),
    )
    return Show((1, 4), 2, 2, (Grid("x", 1, 4),), (Grid("x", 1, 4),), frames, (1,), ("sum",))


def test_frames_are_json_that_no_text_can_end():
    text = str(frames_json(small_show("</script><b>&")))
    assert "<" not in text and "&" not in text
    assert json.loads(text)["frames"][0]["code"] == "</script><b>&"
    assert json.loads(text)["barriers"] == 1


def test_a_fold_is_read_from_the_frames():
    writes = ((0, "shared", 0), (1, "shared", 1))
    reads = ((0, "shared", 0), (0, "shared", 2), (1, "shared", 1), (1, "shared", 3))
    frame = Frame("sum", "", reads=reads, writes=writes)
    shown = dataclasses.replace(small_show(), frames=(frame,))
    assert thread_levels(shown, "sum") == [[(0, 2), (1, 3)]]
    assert thread_levels(shown, "max") == []


# -- plots and colours -----------------------------------------------------------------------------


def test_a_plot_says_in_words_what_it_draws():
    series = [plots.Series("a <b>", "b", ((5.0, 1e-7),)), plots.Series("c", "t", ((10.0, 2e-7),))]
    svg = str(plots.plot("Error & time", series, "us", "error"))
    assert "<title>Error &amp; time</title>" in svg and 'role="img"' in svg
    assert "a &lt;b&gt;: 5; 1.0e-07" in svg and "<b>" not in svg
    assert '<circle class="b"' in svg and '<rect class="t"' in svg  # told apart without colour
    assert plots.plot("Nothing", [], "us", "error") == ""


def test_points_lie_where_their_values_are():
    series = [plots.Series("a", "b", ((1.0, 1.0),)), plots.Series("c", "b", ((100.0, 10.0),))]
    svg = str(plots.plot("t", series, "x", "y"))
    drawn = re.findall(r'<circle class="b" cx="([\d.]+)" cy="([\d.]+)"', svg)
    (ax, ay), _, (cx, cy), _ = [(float(x), float(y)) for x, y in drawn]
    assert plots.LEFT < ax < cx < plots.RIGHT
    assert plots.TOP < cy < ay < plots.BOTTOM


def test_bars_are_as_long_as_their_values():
    svg = str(plots.bars("t", [("a", "b", 2.0), ("c", "t", 4.0)], "us"))
    short, long = (float(w) for w in re.findall(r'<rect class="\w" [^>]*width="([\d.]+)"', svg))
    assert long == pytest.approx(2 * short, rel=0.01)
    assert "a: 2 us; c: 4 us" in svg
    assert plots.bars("t", [], "us") == ""


def luminance(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_text_stands_out_from_its_ground_in_both_themes():
    """WCAG 2.1, 1.4.3: a contrast of 4.5 for text."""
    themes = re.findall(r"(--paper:.*?)\n\s*color-scheme: (\w+)", read("page.css"), re.S)
    assert [name for _, name in themes] == ["light", "dark", "dark"]
    for text, _ in themes:
        colours = dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", text))
        for front in ("ink", "soft", "block", "thread", "good", "bad", "accent"):
            for ground in ("paper", "panel"):
                a, b = luminance(colours[front]), luminance(colours[ground])
                assert (max(a, b) + 0.05) / (min(a, b) + 0.05) >= 4.5, (front, ground)
        for ground in ("read", "write"):
            a, b = luminance(colours["ink"]), luminance(colours[ground])
            assert (max(a, b) + 0.05) / (min(a, b) + 0.05) >= 4.5, ground


def test_both_dark_themes_are_the_same():
    dark = re.findall(r"--paper: #14171b;.*?--focus: #\w+;", read("page.css"), re.S)
    assert len(dark) == 2 and len({" ".join(text.split()) for text in dark}) == 1
