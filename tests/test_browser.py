"""The pages in a real browser: quiet, fitting, stepping, by keyboard alone."""

import json

import pytest
from browser import Browser, find
from lessons import lesson_of, whole
from pages import EVIL, recorded_report, with_markup

from compare.report.html import run_page
from compare.report.html_lesson import lesson_page


@pytest.fixture(scope="module")
def report():
    return recorded_report()


in_a_browser = pytest.mark.skipif(find() is None, reason="no Chromium: apt-get install chromium")


@pytest.fixture(scope="module")
def browser():
    opened = Browser()
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory, report):
    folder = tmp_path_factory.mktemp("pages")
    texts = {"run": run_page(report), "evil": run_page(with_markup(report))}
    texts |= {pair: lesson_page(lesson_of(pair)) for pair in ("softmax", "matmul")}
    for name, text in texts.items():
        (folder / f"{name}.html").write_text(text, encoding="utf-8")
    return folder


@whole
@in_a_browser
@pytest.mark.parametrize("dark", (False, True))
@pytest.mark.parametrize("width", (360, 900, 1600))
@pytest.mark.parametrize("name", ("run", "softmax", "matmul"))
def test_a_page_is_quiet_and_fits(browser, pages, name, width, dark):
    browser.open(pages / f"{name}.html", width, dark)
    assert browser.run("document.documentElement.scrollWidth <= innerWidth")
    paper = browser.run("getComputedStyle(document.body).backgroundColor")
    assert paper == ("rgb(20, 23, 27)" if dark else "rgb(255, 255, 255)")
    browser.run("document.getElementById('theme').click()")
    other = browser.run("getComputedStyle(document.body).backgroundColor")
    assert other == ("rgb(255, 255, 255)" if dark else "rgb(20, 23, 27)")
    assert browser.complaints() == []
    assert browser.requests() == []


@whole
@in_a_browser
def test_markup_in_a_name_does_not_run(browser, pages):
    browser.open(pages / "evil.html", 900)
    assert browser.run("document.title") == "One operation, two languages, the same input bits"
    assert browser.run("document.querySelectorAll('img').length") == 0
    assert browser.run(f"document.body.innerText.includes({json.dumps(EVIL)})")
    assert browser.complaints() == [] and browser.requests() == []


@whole
@in_a_browser
@pytest.mark.parametrize("name", ("softmax", "matmul"))
def test_the_stepper_steps(browser, pages, name):
    browser.open(pages / f"{name}.html", 900)
    frames = lesson_of(name).shown.frames
    count = "document.getElementById('s-count').textContent"
    click = "document.getElementById('s-{}').click()".format
    assert browser.run(count) == f"moment 1 of {len(frames)}"
    assert browser.run("document.getElementById('s-back').disabled") is True
    browser.run("document.getElementById('stepper').focus()")
    for key, at in (("ArrowRight", 2), ("ArrowRight", 3), ("ArrowLeft", 2), ("End", len(frames))):
        browser.key(key)
        assert browser.run(count) == f"moment {at} of {len(frames)}"
    assert browser.run("document.getElementById('s-next').disabled") is True
    browser.key("Home")
    assert browser.run(count) == f"moment 1 of {len(frames)}"
    for at, frame in enumerate(frames):
        assert browser.run("document.getElementById('s-step').textContent") == f"[{frame.label}]"
        assert browser.run("document.getElementById('s-block').textContent") == frame.block
        waiting = browser.run("document.querySelectorAll('.lane.wait').length")
        assert waiting == (16 if frame.barrier else 0)
        busy = {touch[0] for touch in (*frame.reads, *frame.writes)}
        assert browser.run("document.querySelectorAll('.lane.busy').length") == len(busy)
        written = len({touch[1:] for touch in frame.writes})
        assert browser.run("document.querySelectorAll('.cell.w').length") == written
        if at + 1 < len(frames):
            browser.run(click("next"))
    browser.run(click("back"))
    assert browser.run(count) == f"moment {len(frames) - 1} of {len(frames)}"
    browser.run(click("first"))
    assert browser.run(count) == f"moment 1 of {len(frames)}"
    browser.run(click("last"))
    assert browser.run(count) == f"moment {len(frames)} of {len(frames)}"
    assert browser.complaints() == []


@whole
@in_a_browser
def test_everything_is_reached_by_keyboard(browser, pages):
    """Tab alone leads through the theme button and into the stepper's buttons."""
    browser.open(pages / "softmax.html", 900)
    browser.run("document.getElementById('s-next').scrollIntoView()")
    reached = []
    for _ in range(60):
        browser.ask(
            "Input.dispatchKeyEvent",
            type="rawKeyDown",
            key="Tab",
            code="Tab",
            windowsVirtualKeyCode=9,
        )
        browser.ask(
            "Input.dispatchKeyEvent", type="keyUp", key="Tab", code="Tab", windowsVirtualKeyCode=9
        )
        reached.append(browser.run("document.activeElement.id"))
        if "s-last" in reached:
            break
    assert "theme" in reached and "stepper" in reached
    assert reached.index("theme") < reached.index("stepper") < reached.index("s-next")
