"""What changed between two reports: named where it did, one line where it did not."""

import json
import stat
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from compare import diff
from compare.changes import agreed, compare_compiled, compare_reports, spread_between
from compare.cli import main
from compare.inputs import sha256
from compare.machine import Refusal
from compare.report import diff as screen
from compare.report import junit
from compare.results import read_json, to_json, write_json
from compare.run import Wish

RECORDED = Path(__file__).parent / "recorded"
BASE = read_json(RECORDED / "schema-1.json")
OLD, NEW = (
    json.loads((RECORDED / f"compiled-triton-{version}.json").read_text())
    for version in ("3.6.0", "3.9.0")
)


def altered(report=BASE, case=0, name="softmax", **fields):
    """The report with other fields in one row."""
    cases = list(report.cases)
    rows = [replace(r, **fields) if r.name == name else r for r in cases[case].rows]
    cases[case] = replace(cases[case], rows=tuple(rows))
    return replace(report, cases=tuple(cases))


def slowed(factors, report=BASE):
    """The report with times, and the ratios of the same names, multiplied."""
    cases = []
    for case in report.cases:
        rows = []
        for row in case.rows:
            factor, times = factors.get(row.name, 1), row.timing
            cold, warm = (
                each and replace(each, us=each.us * factor) for each in (times.cold, times.warm)
            )
            rows.append(replace(row, timing=replace(times, cold=cold, warm=warm)))
        ratios = []
        for ratio in case.ratios:
            by = factors.get(ratio.name, 1) / factors.get(ratio.against, 1)
            value, low, high = (by * each for each in (ratio.value, ratio.low, ratio.high))
            ratios.append(replace(ratio, value=value, low=low, high=high))
        cases.append(replace(case, rows=tuple(rows), ratios=tuple(ratios)))
    return replace(report, cases=tuple(cases))


def moved(changes):
    return {(h.key.name, c.kind) for h in changes.held for c in h.changes if c.moved}


def change(changes, name, kind):
    held = next(h for h in changes.held if h.key.name == name)
    return next(c for c in held.changes if c.kind == kind)


@pytest.mark.parametrize("path", sorted(RECORDED.glob("schema-*.json")), ids=lambda p: p.stem)
def test_every_schema_so_far_is_read(path):
    report = read_json(path)
    assert report.cases and all(case.rows for case in report.cases)
    assert compare_reports(report, report).exit_code == 0


def test_nothing_changed_is_one_line():
    same = compare_reports(BASE, BASE)
    assert same.exit_code == 0
    (line,) = screen.lines(same)
    assert line.startswith("nothing changed: 5 implementations, the same output bits")


def test_two_runs_of_one_commit_are_the_same_ten_times_of_ten():
    """Times scatter by 1 %, which is twice what four repeats of one process did on an H200."""
    random = np.random.default_rng(0)
    names = [row.name for case in BASE.cases for row in case.rows]
    for _ in range(10):
        again = slowed({name: 1 + random.uniform(-0.01, 0.01) for name in names})
        assert compare_reports(BASE, again).exit_code == 0


def test_one_ulp_in_one_element_is_named():
    before = np.linspace(0, 1, 2000, dtype=np.float32)
    after = before.copy()
    after[77] = np.nextafter(after[77], np.float32(2))
    known = {sha256(array): array for array in (before, after)}
    one, two = (altered(output=sha256(array)) for array in (before, after))
    changes = compare_reports(one, two, outputs=known.get)
    assert changes.exit_code == 3
    assert moved(changes) == {("softmax", "bits")}
    found = change(changes, "softmax", "bits")
    assert found.said == "CHANGED: 1 of 2,000 elements, 1 ULP at most"
    assert any("triton softmax" in line and "output bits" in line for line in screen.lines(changes))


def test_many_changed_elements_are_a_share():
    before = np.linspace(1, 2, 1000, dtype=np.float32)
    after = before.copy()
    after[:590] *= np.float32(1.001)
    known = {sha256(array): array for array in (before, after)}
    one, two = (altered(output=sha256(array)) for array in (before, after))
    said = change(compare_reports(one, two, outputs=known.get), "softmax", "bits").said
    assert said.startswith("CHANGED: 41 % equal, ")


def test_without_outputs_only_what_is_certain_is_said():
    found = replace(BASE.cases[0].row("softmax").accuracy, ulp={"0": 682483, "1": 959238})
    old = replace(found, ulp={"0": 682583, "1": 959138})
    changes = compare_reports(altered(accuracy=old), altered(accuracy=found, output="ab" * 32))
    said = change(changes, "softmax", "bits").said
    assert said == "CHANGED: 100 of 1,641,721 elements at least"
    unseen = compare_reports(altered(accuracy=old), altered(accuracy=old, output="ab" * 32))
    assert change(unseen, "softmax", "bits").said == "CHANGED"


def test_bits_that_were_never_steady_do_not_count():
    unsteady = {"notes": ("not deterministic: 3 of 20 runs gave the same bits",)}
    one, two = altered(**unsteady), altered(**unsteady, output="ab" * 32)
    assert compare_reports(one, two).exit_code == 0
    assert compare_reports(BASE, two).exit_code == 3


def test_a_kernel_slowed_by_5_percent_is_named_and_no_other():
    changes = compare_reports(BASE, slowed({"softmax": 1.05}))
    assert changes.exit_code == 3
    assert moved(changes) == {("softmax", "time")}
    found = change(changes, "softmax", "time")
    assert found.what == "time / copy" and found.said.startswith("SLOWER by 5 % (floor 3.0 %)")
    assert compare_reports(BASE, slowed({"softmax": 1.05}), on=("bits",)).exit_code == 0


def test_a_kernel_without_a_copy_is_held_against_the_library():
    changes = compare_reports(BASE, slowed({"matmul ieee": 1.06}))
    assert moved(changes) == {("matmul ieee", "time")}
    assert change(changes, "matmul ieee", "time").what == "time / cuBLAS"


def test_faster_is_told_and_is_no_fault():
    changes = compare_reports(BASE, slowed({"softmax": 0.92}))
    assert changes.exit_code == 0
    assert change(changes, "softmax", "time").said.startswith("FASTER by 8 %")


def test_a_slower_yardstick_does_not_make_the_others_faster():
    changes = compare_reports(BASE, slowed({"torch.softmax": 1.2}))
    assert moved(changes) == {("torch.softmax", "time")}


def test_a_wide_interval_hides_what_it_can_not_tell():
    ratios = [replace(r, low=0.9 * r.low, high=1.1 * r.high) for r in BASE.cases[0].ratios]
    wide = replace(BASE, cases=(replace(BASE.cases[0], ratios=tuple(ratios)), *BASE.cases[1:]))
    assert compare_reports(wide, slowed({"softmax": 1.05}, wide)).exit_code == 0


def test_machine_code_is_compared_number_by_number():
    codes = {each["kernel"]: each for each in OLD["compilations"][0]["builds"][0]["codes"]}
    others = {each["kernel"]: each for each in NEW["compilations"][0]["builds"][0]["codes"]}
    one, two = altered(code=codes), altered(code=others)
    said = change(compare_reports(one, two), "softmax", "code").said
    assert "barriers 5 -> 3" in said and "registers 22 -> 21" in said
    assert compare_reports(one, two).exit_code == 0
    assert compare_reports(one, two, on=("code",)).exit_code == 3
    hashed = {name: {**code, "sha": "0" * 64} for name, code in codes.items()}
    said = change(compare_reports(one, altered(code=hashed)), "softmax", "code").said
    assert said == "other instructions, the same counts"
    gone = change(compare_reports(one, altered(code={"x": others.popitem()[1]})), "softmax", "code")
    assert gone.said == "kernel softmax_kernel gone, kernel x new"


def test_a_larger_error_counts_where_it_is_asked_for():
    accuracy = BASE.cases[0].row("softmax").accuracy
    worse = altered(accuracy=replace(accuracy, error=2 * accuracy.error))
    assert compare_reports(BASE, worse).exit_code == 0
    assert compare_reports(BASE, worse, on=("error",)).exit_code == 3
    assert compare_reports(worse, BASE, on=("error",)).exit_code == 0


def test_what_is_wrong_now_is_exit_1():
    accuracy = BASE.cases[0].row("softmax").accuracy
    broken = altered(accuracy=replace(accuracy, ok=False, reasons=("error bound: too far",)))
    changes = compare_reports(BASE, broken)
    assert changes.exit_code == 1
    assert "error bound: too far" in changes.wrong[0]
    assert compare_reports(broken, BASE).exit_code == 0


def test_a_side_that_is_missing_now_is_exit_1():
    missing = altered(skipped="CuPy is not installed", accuracy=None, timing=None, output="")
    changes = compare_reports(BASE, missing)
    assert changes.exit_code == 1
    assert "ran before, not now: CuPy is not installed" in changes.wrong[0]


def test_a_runner_that_lost_its_card_is_not_green():
    host = replace(BASE, machine={**BASE.machine, "mode": "host"})
    changes = compare_reports(BASE, host)
    assert changes.exit_code == 1 and not changes.held
    assert "one ran on a card, the other on a host" in "\n".join(screen.lines(changes))


def test_other_inputs_are_not_compared_and_named():
    other = replace(BASE.cases[0], inputs={"x": "0" * 64})
    changes = compare_reports(BASE, replace(BASE, cases=(other, *BASE.cases[1:])))
    assert {held.key.pair for held in changes.held} == {"matmul"}
    text = "\n".join(screen.lines(changes))
    assert "its input bits differ: softmax 2048x1024 ieee, random" in text
    assert "input bits (2 of 3 sha256)" in text
    seeded = replace(BASE, cases=tuple(replace(case, seed=1) for case in BASE.cases))
    assert compare_reports(BASE, seeded).exit_code == 1


def test_versions_that_differ_are_shown():
    newer = replace(
        BASE, machine={**BASE.machine, "versions": {**BASE.machine["versions"], "triton": "3.9.0"}}
    )
    lines = screen.lines(compare_reports(BASE, newer))
    assert "triton 3.6.0" in lines[0] and "triton 3.9.0" in lines[1]
    assert "triton" not in lines[2] and "torch" in lines[2]


def test_two_tritons_without_a_card():
    changes = compare_compiled(OLD, NEW)
    assert changes.exit_code == 3
    assert "barriers 5 -> 3" in change(changes, "softmax", "code").said
    assert moved(changes) == {("softmax", "code")}
    assert compare_compiled(OLD, OLD).exit_code == 0
    assert changes.before["triton"] == "3.6.0" and changes.after["triton"] == "3.9.0"


def test_a_kernel_that_compiles_no_more_is_wrong():
    broken = json.loads(json.dumps(NEW))
    broken["compilations"][0]["builds"][0] |= {"codes": [], "skipped": "CompilationError: no"}
    changes = compare_compiled(OLD, broken)
    assert changes.exit_code == 1
    assert "compiled before, not now: CompilationError: no" in changes.wrong[0]


def test_screens_and_tables_hold_their_width():
    changes = compare_reports(
        BASE, slowed({"softmax": 1.3}, altered(output="ab" * 32, name="softmaxRows"))
    )
    lines = screen.lines(changes)
    assert max(map(len, lines)) <= 100
    assert lines[-1] == "exit 3   right, but not the same as before"
    assert "3 others: nothing changed" in "\n".join(lines)
    table = "\n".join(screen.markdown(changes))
    assert "| cuda softmaxRows" in table and "SLOWER by 30 %" in table
    assert max(map(len, screen.lines(compare_compiled(OLD, NEW)))) <= 100


def test_junit_has_a_case_for_every_implementation():
    after = slowed({"softmax": 1.05}, altered(skipped="needs a \x1b card", name="torch.softmax"))
    suite = ElementTree.fromstring(junit.text(after, compare_reports(BASE, after)))
    cases = {case.get("name"): case for case in suite if case.get("classname") != "run"}
    assert list(cases)[:3] == ["softmax", "softmaxRows", "torch.softmax"] and len(cases) == 5
    assert "SLOWER by 5 %" in cases["softmax"].find("failure").get("message")
    assert cases["torch.softmax"].find("skipped").get("message") == "needs a  card"
    assert cases["softmaxRows"].find("failure") is None
    assert int(suite.get("failures")) == len(suite.findall(".//failure")) == 2


def test_a_change_that_one_round_alone_shows_is_not_told():
    slow = slowed({"softmax": 1.3})
    both = agreed(compare_reports(BASE, slow), compare_reports(BASE, slow))
    once = agreed(compare_reports(BASE, slow), compare_reports(BASE, BASE))
    assert (both.exit_code, once.exit_code) == (3, 0)
    back = agreed(compare_reports(BASE, slow), compare_reports(BASE, slowed({"softmax": 0.7})))
    assert back.exit_code == 0


def test_the_floor_of_two_interpreters_is_the_spread_between_processes():
    spread = spread_between(BASE, slowed({"softmax": 1.08}))
    assert spread == pytest.approx(np.log(1.08))
    assert compare_reports(BASE, slowed({"softmax": 1.06}), spread=spread).exit_code == 0
    assert compare_reports(BASE, slowed({"softmax": 1.06}), spread=0.0).exit_code == 3


def fake_python(folder, name, report, log):
    """An executable that answers a run with a report."""
    write_json(folder / f"{name}.json", report)
    path = folder / name
    path.write_text(
        f"#!/bin/sh\necho {name} >> {log}\n"
        f'while [ "$1" != --json ]; do shift; done\ncp {folder / name}.json "$2"\n'
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_two_interpreters_run_in_the_order_a_b_b_a(tmp_path):
    log = tmp_path / "log"
    pythons = [
        fake_python(tmp_path, "a", BASE, log),
        fake_python(tmp_path, "b", slowed({"softmax": 1.1}), log),
    ]
    lines, code = diff.command(Wish(shapes=("4x4",)), pythons=pythons)
    assert log.read_text().split() == ["a", "b", "b", "a"]
    assert code == 3 and any("SLOWER by 10 %" in line for line in lines)
    with pytest.raises(Refusal, match="given twice"):
        diff.command(Wish(), pythons=pythons[:1])
    with pytest.raises(Refusal, match="can't be run: No such file"):
        diff.command(Wish(), pythons=[str(tmp_path / "none"), pythons[0]])
    with pytest.raises(Refusal, match=r"--precision: invalid|'nothing'"):
        diff.command(Wish(precision="nothing"), pythons=[sys.executable] * 2)


def test_the_words_of_a_run_are_given_to_the_other_interpreter():
    wish = Wish(("softmax",), ("4x4", "8x8"), data="spike", seed=7, only=("softmax",), cpu=True)
    assert diff.arguments_of(wish) == [
        "softmax", "--shape", "4x4", "--shape", "8x8", "--only", "softmax", "--data", "spike",
        "--seed", "7", "--cpu",
    ]  # fmt: skip


def written(folder, **reports):
    for name, report in reports.items():
        write_json(folder / f"{name}.json", report)
    return [str(folder / f"{name}.json") for name in reports]


def test_the_command_compares_files_and_writes_tables(tmp_path, capsys):
    a, b = written(tmp_path, a=BASE, b=slowed({"softmax": 1.1}))
    md, xml = tmp_path / "d.md", tmp_path / "d.xml"
    assert main(["diff", a, b, "--md", str(md), "--junit", str(xml)]) == 3
    assert "SLOWER by 10 %" in capsys.readouterr().out
    assert "SLOWER by 10 %" in md.read_text() and "SLOWER by 10 %" in xml.read_text()
    assert main(["diff", a, a]) == 0
    assert main(["diff", a, b, "--on", "bits,code,error"]) == 0


def test_outputs_that_were_kept_are_counted(tmp_path, capsys):
    arrays = [np.zeros((2, 500), np.float32), np.ones((2, 500), np.float32)]
    for array in arrays:
        np.save(tmp_path / f"{sha256(array)}.npy", array)
    a, b = written(tmp_path, **{n: altered(output=sha256(x)) for n, x in zip("ab", arrays)})  # noqa: B905
    assert main(["diff", a, b, "--outputs", str(tmp_path)]) == 3
    assert "CHANGED: 0 % equal" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words, sentence",
    (
        (["a.json"], "two JSON files, before and after; 1 given"),
        (["a.json", "none.json"], "no file none.json|none.json"),
        (["a.json", "compiled.json"], "is of 'compiled --json', .* is not"),
        (["a.json", "broken.json"], "is not JSON"),
        (["a.json", "a.json", "--on", "speed"], "--on 'speed' is unknown"),
        (["a.json", "a.json", "--md", "no/folder/x.md"], "there is no folder"),
        (["empty.json", "empty.json"], "holds no compilation"),
    ),
)
def test_bad_input_is_one_sentence(tmp_path, monkeypatch, capsys, words, sentence):
    monkeypatch.chdir(tmp_path)
    written(tmp_path, a=BASE)
    (tmp_path / "compiled.json").write_text(json.dumps(to_json(OLD)))
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "empty.json").write_text("[]")
    assert main(["diff", *words]) == 2
    said = capsys.readouterr()
    assert not said.out and len(said.err.strip().splitlines()) == 1
    import re

    assert re.search(sentence, said.err), said.err
