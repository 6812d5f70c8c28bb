"""A user's file: what it may say, and one sentence for what it may not."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from compare import run, userfile
from compare.cli import main
from compare.machine import Refusal
from compare.pair import Implementation
from compare.userpair import additions_bound, pair

EXAMPLES = Path(__file__).parent / "examples"
README = Path(__file__).parent.parent / "README.md"
PAIRS = run.all_pairs()
HEAD = "from compare.pair import Implementation, Pair\nfrom compare.userpair import pair\n"
ADD = """PAIR = pair("add", inputs={"x": "N", "y": "N"}, output="N", shapes="300",
    reference=lambda x, y: x + y, implementations=[
    Implementation("one", "library", lambda x, y, out: out.copy_(x + y))])
"""


def load(tmp_path, text, name="mine.py"):
    (tmp_path / name).write_text(text)
    return userfile.load(tmp_path / name, PAIRS)


def refused(tmp_path, text):
    with pytest.raises(Refusal) as caught:
        load(tmp_path, text)
    assert caught.value.code == 2
    sentence = str(caught.value)
    assert "\n" not in sentence and "mine.py" in sentence
    return sentence


@pytest.mark.parametrize("name", ("my_softmax", "vector_add"))
def test_an_example_is_short(name):
    for path in (EXAMPLES / f"{name}.py", EXAMPLES / f"{name}.cu"):
        text = path.read_text()
        assert len(text.splitlines()) < 40
        assert max(map(len, text.splitlines())) <= 100


def test_readme_quotes_the_examples():
    text = README.read_text(encoding="utf-8") if README.is_file() else ""
    if "my_softmax.py" not in text:
        pytest.skip("README does not speak of them yet")
    blocks = re.findall(r"```(?:python|cuda|cpp|c\+\+)\n(.*?)```", text, re.S)
    for path in sorted(EXAMPLES.glob("*.*")):
        assert path.read_text() in blocks, f"{path.name} is not in README as it stands"


@pytest.mark.parametrize(
    "name, shape, head",
    (("my_softmax", "9x65", "my_triton +my_cuda"), ("vector_add", "1500", "add_triton +add_cuda")),
)
def test_an_example_matches(capsys, name, shape, head):
    assert main(["run", str(EXAMPLES / f"{name}.py"), "--shape", shape]) == 0
    text = capsys.readouterr().out
    assert re.search(f"kernel +{head}", text)
    assert "  MATCH" in text


def test_a_port_stands_among_the_others():
    yours = userfile.load(EXAMPLES / "my_softmax.py", PAIRS)
    assert yours.names == ("my_triton", "my_cuda") and not yours.whole
    names = [i.name for i in yours.pair.implementations]
    assert names == [*yours.names, *(i.name for i in PAIRS["softmax"].implementations)]
    assert yours.pair.implementations[0].counterparts[:2] == ("my_cuda", "softmaxRows")


def test_without_a_card_a_port_runs_at_a_smaller_shape_and_says_so():
    wish = run.Wish(pairs=(str(EXAMPLES / "my_softmax.py"),), cpu=True, only=("my_cuda",))
    report = run.run(wish)
    assert [case.shape for case in report.cases] == [(256, 1024)]
    (note,) = report.notes
    assert note.startswith("softmax runs at 256x1024, not at its own 2048x1024: without a card my_")
    assert report.next == (f"python -m compare threads {EXAMPLES / 'my_softmax.py'}",)
    asked = run.run(replace(wish, shapes=("9x65",)))
    assert (asked.notes, asked.cases[0].shape) == ((), (9, 65))


def test_the_shapes_of_a_card_and_of_a_pair_without_a_file_are_the_pairs_own():
    yours = userfile.load(EXAMPLES / "my_softmax.py", PAIRS)
    assert yours.pair.shapes(True) == PAIRS["softmax"].shapes(True) == ((2048, 1024),)
    assert PAIRS["softmax"].shapes(False) == ((2048, 1024),)
    own = userfile.load(EXAMPLES / "vector_add.py", PAIRS)
    assert (own.note, own.pair.shapes(False)) == ("", ((100000,),))
    base = PAIRS["matmul"]
    mine = Implementation("mine", "triton", print)
    assert userfile.attached(base, [mine]).shapes(False) == base.shapes(False)


def test_only_a_file_with_a_cuda_kernel_is_to_be_taken_apart(tmp_path):
    text = "PAIR = 'softmax'\nIMPLEMENTATIONS = [Implementation('mine', '{}', print, {})]\n"
    cases = {
        ("cuda", "arrays='cupy'"): ("mine",),
        ("cuda", "arrays='cupy', needs=('card',)"): (),
        ("cuda", "arrays='torch'"): (),
        ("triton", "arrays='cupy'"): (),
    }
    for words, names in cases.items():
        assert load(tmp_path, HEAD + text.format(*words)).emulated == names


def test_what_failed_is_taken_apart_or_else_the_first_that_ran():
    from compare.results import Accuracy, Case, Row

    made = [Implementation(n, "cuda", print, arrays="cupy") for n in ("one", "two", "three 3")]
    own = userfile.Yours("my file.py", replace(PAIRS["softmax"], implementations=tuple(made)),
                         tuple(one.name for one in made), False)  # fmt: skip

    def told(**ok):
        rows = [
            Row(name, "cuda", name, "ieee", accuracy=Accuracy(ok[key], 0, 0, 0, 0, (), ()))
            for name, key in zip(own.names, ("one", "two", "three"), strict=True)
            if key in ok
        ]
        return run.diagnoses(
            own, [Case("softmax", (2, 2), "ieee", "random", 1, {}, tuple(rows), "", "")]
        )

    assert told(one=True, two=True) == ["python -m compare threads 'my file.py'"]
    assert told(two=True) == ["python -m compare threads 'my file.py' --kernel two"]
    assert told(one=True, two=False, three=False) == [
        "python -m compare threads 'my file.py' --kernel two",
        "python -m compare threads 'my file.py' --kernel 'three 3'",
    ]
    assert told() == []


@pytest.mark.parametrize("fact", ("'c_e': 'x'", "'c_t': -1", "'d': float('nan')"))
def test_a_fact_that_is_no_number_is_refused(tmp_path, fact):
    text = DEPTH.replace("'sum_depth': DEPTH", fact)
    assert "give a number that is not negative" in refused(tmp_path, HEAD + text)


DEPTH = (
    "PAIR = 'softmax'\n"
    "IMPLEMENTATIONS = [Implementation('mine', 'library', print, facts={'sum_depth': DEPTH})]\n"
)


@pytest.mark.parametrize("depth", ("lambda cols: cols // 32 + 5", "37"))
def test_a_port_may_declare_how_many_additions_follow_each_other(tmp_path, depth):
    mine = load(tmp_path, HEAD + DEPTH.replace("DEPTH", depth)).pair.implementations[0]
    pair_ = PAIRS["softmax"]
    reference = pair_.reference(pair_.inputs((4, 1024), "random", 1), (4, 1024), 1)
    told, worst = (
        pair_.bounds(reference, one, "random", (4, 1024))[0]
        for one in (mine, replace(mine, facts={}))
    )
    assert "D = 37," in told.formula and told.note == ""
    assert "D = 1024," in worst.formula
    assert worst.note == "declares no sum_depth: its bound adds a whole row in turn"
    assert (told.allowed < worst.allowed).all()


@pytest.mark.parametrize(
    "depth, sentence",
    (
        ("'many'", "sum_depth of 'mine' is 'many'; give the most additions"),
        ("-1", "sum_depth of 'mine' is -1"),
        ("lambda cols: cols / 32", "sum_depth of 'mine' is 32.0; give"),
        ("lambda cols: lost", "line 4: sum_depth of 'mine' raised NameError: name 'lost'"),
    ),
)
def test_a_depth_that_is_none_is_refused(tmp_path, depth, sentence):
    assert sentence in refused(tmp_path, HEAD + DEPTH.replace("DEPTH", depth))


def test_who_declares_nothing_is_told_beside_those_who_do(capsys):
    asked = ["--shape", "9x65", "--shape", "9x130", "--cpu"]
    assert main(["run", str(EXAMPLES / "my_softmax.py"), *asked]) == 0
    text = capsys.readouterr().out
    for name in ("my_triton", "my_cuda"):
        said = f"note     {name}: declares no sum_depth: its bound adds a whole row in turn"
        assert text.count(said) == 1  # for all shapes
    assert "torch.softmax: declares" not in text
    assert text.rstrip().endswith(f"python -m compare threads {EXAMPLES / 'my_softmax.py'}")


def test_where_a_triton_port_fails_the_cuda_port_still_stands_on_the_right(capsys, tmp_path):
    text = (EXAMPLES / "my_softmax.py").read_text()
    (tmp_path / "my_softmax.cu").write_text((EXAMPLES / "my_softmax.cu").read_text())
    (tmp_path / "mine.py").write_text(text.replace("def my_triton(x, out):", "def my_triton(x):"))
    assert main(["run", str(tmp_path / "mine.py"), "--shape", "4x64", "--cpu"]) == 1
    lines = capsys.readouterr().out.splitlines()
    at = next(n for n, line in enumerate(lines) if line.startswith("-- softmax"))
    assert lines[at + 1].startswith("  FAILED   my_triton: TypeError: my_triton() takes 1")
    assert "           the columns below hold softmax and my_cuda" in lines
    assert any(line.startswith("  MATCH    softmax and my_cuda: all 256 el") for line in lines)


def test_a_cuda_port_alone_is_the_counterpart_of_the_pairs_own_kernel(tmp_path):
    text = HEAD + (
        "PAIR = 'softmax'\n"
        "IMPLEMENTATIONS = [Implementation('mine', 'cuda', print, arrays='cupy')]\n"
    )
    own = next(i for i in load(tmp_path, text).pair.implementations if i.name == "softmax")
    assert own.counterparts[:2] == ("mine", "softmaxRows")


def test_named_counterparts_are_kept(tmp_path):
    text = HEAD + (
        "PAIR = 'softmax'\n"
        "IMPLEMENTATIONS = [Implementation('mine', 'triton', print,"
        " counterparts=('softmax_onepass',))]\n"
    )
    assert load(tmp_path, text).pair.implementations[0].counterparts == ("softmax_onepass",)


def test_two_files_add_to_one_pair(tmp_path):
    known = dict(PAIRS)
    for name in "ab":
        text = f"PAIR = 'softmax'\nIMPLEMENTATIONS = [Implementation('{name}', 'library', print)]\n"
        (tmp_path / f"{name}.py").write_text(HEAD + text)
        known["softmax"] = userfile.load(tmp_path / f"{name}.py", known).pair
    assert [i.name for i in known["softmax"].implementations[:2]] == ["b", "a"]


def test_a_neighbour_of_the_file_is_found(tmp_path):
    (tmp_path / "neighbour_of_mine.py").write_text("NAME = 'kept'\n")
    text = HEAD + (
        "from neighbour_of_mine import NAME\nPAIR = 'softmax'\n"
        "IMPLEMENTATIONS = [Implementation(NAME, 'library', print)]\n"
    )
    assert load(tmp_path, text).names == ("kept",)


ONE = "PAIR = 'softmax'\nIMPLEMENTATIONS = [Implementation('mine', {})]\n"


@pytest.mark.parametrize(
    "text, sentence",
    (
        ("", "defines no PAIR: set PAIR to"),
        ("PAIR = 'softmax'", "defines no IMPLEMENTATIONS for softmax"),
        ("PAIR = 'softmx'\nIMPLEMENTATIONS = []", "'softmx' is unknown; did you mean 'softmax'"),
        ("PAIR = 3", "PAIR is an int; set PAIR to"),
        ("x = 1\ny = x +", "line 4: invalid syntax"),
        ("x = 1\nraise KeyError('lost')", "line 4: KeyError: 'lost'"),
        ("import sys\nsys.exit(5)", r"line 4: it calls sys.exit\(5\) when it is imported"),
        ("import no_such_module_here", "ModuleNotFoundError: No module named"),
        ("PAIR = 'softmax'\nIMPLEMENTATIONS = [print]", "is no Implementation; write"),
        (ONE.format("'fortran', print"), "'mine' has language 'fortran'; choose 'triton'"),
        (ONE.format("'cuda', print, arrays='jax'"), "has arrays 'jax'; choose"),
        (ONE.format("'cuda', print, precision='tf32'"), "has precision 'tf32'; choose 'ieee'"),
        (ONE.format("'cuda', print, needs=('tpu',)"), "has needs 'tpu'"),
        (ONE.format("'cuda', print, counterparts=('softmaxrows',)"), "choose 'softmaxRows'"),
        (ONE.format("'cuda', print, facts=3"), "has facts 3; give a dict"),
        (ONE.format("'cuda', 5"), "has entry 5; give a function"),
        (ONE.format("'cuda', print").replace("mine", "softmax"), "a name that another one has"),
        (ADD.replace('"add"', '"softmax"'), "there is a pair 'softmax' already"),
        (ADD + "IMPLEMENTATIONS = []\n", "defines a Pair and IMPLEMENTATIONS"),
        (ADD.replace('"x": "N"', '"x": "n-1"'), "'n-1' does not parse"),
        (ADD.replace('"300"', '"3x4"'), "shape '3x4' does not parse"),
        (ADD.replace('output="N"', 'output="M"'), "side M is no side of an input"),
        (ADD.replace('shapes="300"', "shapes=()"), "add has no shape"),
    ),
)
def test_what_a_file_may_not_say(tmp_path, text, sentence):
    assert re.search(sentence, refused(tmp_path, HEAD + text))


def test_a_file_that_is_not_there(capsys):
    assert main(["run", "no/such.py"]) == 2
    assert capsys.readouterr().err == "there is no file no/such.py\n"
    assert main(["sweep", "no/such.py"]) == 2
    assert "python -m compare run no/such.py" in capsys.readouterr().err


@pytest.mark.parametrize(
    "change, sentence",
    (
        (
            ("x + y", "(x + y)[:5]"),
            r"reference of add has shape \(5,\) where the output has \(300,\)",
        ),
        (("x + y", "x / undefined"), "line 4: reference raised NameError: name 'undefined'"),
        (("x + y", "(x + y).astype('f4')"), "reference of add gives a float32 array"),
    ),
)
def test_a_pair_that_does_not_keep_the_contract_is_one_sentence(tmp_path, change, sentence):
    added = load(tmp_path, HEAD + ADD.replace(*change, 1)).pair
    arrays = added.inputs((300,), "random", 1)
    with pytest.raises(Refusal, match=sentence):
        added.reference(arrays, (300,), 1)


def test_inputs_that_are_not_float32_are_one_sentence(tmp_path):
    text = ADD.replace('shapes="300"', 'shapes="300", **{"inputs_": 0}').replace(
        ', **{"inputs_": 0}', ""
    )
    text += "import dataclasses, numpy\nPAIR = dataclasses.replace(PAIR, inputs=lambda *a: {'x': numpy.zeros(3)})\n"  # noqa: E501
    added = load(tmp_path, HEAD + text).pair
    with pytest.raises(Refusal, match="gives a float64 array as 'x'; give float32"):
        added.inputs((300,), "random", 1)


def product(**more):
    return pair(
        "product",
        inputs={"a": "MxK", "b": "KxN"},
        output="MxN",
        shapes=["4x300x5"],
        reference=lambda a, b: a @ b,
        additions=lambda m, k, n: k - 1,
        implementations=[Implementation("one", "library", print)],
        **more,
    )


def test_a_pair_is_derived_from_its_sides():
    made = product()
    shape = made.shapes(True)[0]
    assert made.dims == ("M", "K", "N") and shape == (4, 300, 5)
    arrays = made.inputs(shape, "random", 3)
    assert [x.shape for x in arrays.values()] == [(4, 300), (300, 5)]
    assert made.output_shape(shape) == (4, 5)
    cost = made.cost(shape)
    assert (cost.read, cost.written, cost.flops) == (4 * (1200 + 1500), 80, 299 * 20)
    with pytest.raises(ValueError, match="wants a shape MxKxN, got 4x4"):
        made.check_shape((4, 4))
    assert product(copy_of="a").copy_of == "a"


def test_the_default_bound_lets_any_order_pass_and_a_lost_term_fail():
    made = product()
    shape = (4, 300, 5)
    arrays = made.inputs(shape, "random", 3)
    reference = made.reference(arrays, shape, 3)
    (bound,) = made.bounds(reference, made.implementations[0], "random", shape)
    assert bound.formula.count("299 + 1") == 1 and bound.gates
    a, b = arrays["a"], arrays["b"]
    in_turn = np.zeros((4, 5), np.float32)
    for k in range(300):
        in_turn += a[:, k, None] * b[k]
    for right in (in_turn, a @ b, a[:, ::-1] @ b[::-1]):
        assert (np.abs(right - reference.value) <= bound.allowed).all()
    lost = a[:, 1:] @ b[1:]
    assert (np.abs(lost - reference.value) > bound.allowed).any()


def test_a_given_scale_replaces_the_derived_one():
    one = pair(
        "difference",
        inputs={"x": "N", "y": "N"},
        output="N",
        shapes="8",
        reference=lambda x, y: x - y,
        scale=lambda x, y: abs(x) + abs(y),
        implementations=[Implementation("one", "library", print)],
    )
    arrays = {"x": np.full(8, 3, np.float32), "y": np.full(8, 2, np.float32)}
    reference = one.reference(arrays, (8,), 0)
    assert (reference.scales["size"] == 5).all()
    assert "as given" in additions_bound(reference, 1).formula
