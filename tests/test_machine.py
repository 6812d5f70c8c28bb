"""Which mode a machine means, and the sentence where it can't do what was asked."""

import pytest

from compare.machine import Card, Refusal, Seen, decide, variables, version_notes
from compare.system import driver_of_files

VERSIONS = {
    "torch": "2.11.0",
    "triton": "3.6.0",
    "numpy": "2.4.6",
    "tabulate": "0.10",
    "cupy": "14.2",
}
H200 = Card("NVIDIA H200", (9, 0), "GPU-1", 150 << 30)
T4 = Card("Tesla T4", (7, 5))
GOOD = dict(
    versions=VERSIONS,
    cupy_packages=("cupy-cuda13x",),
    cards=(H200,),
    driver="580.159.04",
    driver_cuda=(13, 0),
    torch_cuda="13.0",
    torch_cards=(H200,),
    compiler="/usr/bin/g++",
)


def seen(**changes):
    return Seen(**{**GOOD, **changes})


def no_card(**changes):
    bare = {"cards": (), "driver": "", "driver_cuda": None, "torch_cards": (), "torch_cuda": None}
    return seen(**{**bare, **changes})


def refused(machine, **asked):
    with pytest.raises(Refusal) as found:
        decide(machine, **asked)
    return found.value.code, str(found.value)


def test_a_usable_card_is_used():
    machine = decide(seen())
    assert (machine.mode, machine.card, dict(machine.missing)) == ("card", H200, {})


@pytest.mark.parametrize("capability, code", (((7, 5), 1), ((8, 0), 0), ((9, 0), 0), ((12, 0), 0)))
def test_capability_is_compared_as_numbers(capability, code):
    card = Card("A card", capability)
    if code:
        found, sentence = refused(seen(cards=(card,), torch_cards=(card,)))
        assert found == code
        assert "A card is sm_75" in sentence and "--cpu" in sentence
    else:
        assert decide(seen(cards=(card,), torch_cards=(card,))).card == card


def test_the_selected_card_is_the_one_that_is_judged():
    both = {"cards": (H200, T4), "torch_cards": (H200, T4)}
    assert decide(seen(**both), device=0).card == H200
    assert refused(seen(**both), device=1)[0] == 1
    code, sentence = refused(seen(**both), device=2)
    assert code == 2 and "0 NVIDIA H200, 1 Tesla T4" in sentence


def test_a_card_that_torch_cannot_use_is_an_error_with_the_remedy():
    old = seen(driver="535.104", driver_cuda=(12, 2), torch_cards=())
    code, sentence = refused(old)
    assert code == 2
    for fact in ("535.104", "12.2", "CUDA 13.0", "cupy-cuda13x", ".[cuda12]", "580"):
        assert fact in sentence


def test_a_torch_without_cuda_on_a_machine_with_a_card_is_an_error():
    code, sentence = refused(seen(torch_cuda=None, torch_cards=()))
    assert code == 2
    assert "without CUDA" in sentence


def test_a_driver_with_no_card_listed_is_never_the_laptop_mode():
    assert refused(seen(cards=(), torch_cards=(), driver="unknown"))[0] == 2


@pytest.mark.parametrize(
    "changes, asked",
    (
        ({"env": {"TRITON_INTERPRET": "1"}}, {}),
        ({"env": {"TRITON_INTERPRET": "yes"}}, {}),
        ({"env": {"CUDA_VISIBLE_DEVICES": ""}}, {}),
        ({"env": {"CUDA_VISIBLE_DEVICES": "-1"}}, {}),
        ({}, {"cpu": True}),
    ),
)
def test_a_card_may_be_left_alone(changes, asked):
    assert decide(seen(**changes), **asked).mode == "host"
    assert refused(seen(**changes), require_card=True, **asked)[0] == 2


def test_a_mig_slice_is_a_card():
    env = {"CUDA_VISIBLE_DEVICES": "MIG-41b35014-942e-5ee9-9d8f-98a8b1b0f3a5"}
    assert decide(seen(env=env)).mode == "card"


def test_a_value_that_triton_would_ignore_is_refused():
    code, sentence = refused(seen(env={"TRITON_INTERPRET": "2"}))
    assert code == 2 and "'2'" in sentence


def test_no_card_is_the_host_mode_and_says_what_it_lacks():
    machine = decide(no_card())
    assert machine.mode == "host"
    assert machine.lacks(("card",), "torch") == "needs a card"
    assert machine.lacks((), "cupy") == ""
    bare = decide(no_card(compiler=""))
    assert "C++ compiler" in bare.lacks((), "cupy")
    assert "riscv64" in decide(no_card(arch="riscv64")).lacks((), "cupy")


def test_a_required_card_that_is_not_there():
    code, sentence = refused(no_card(), require_card=True)
    assert code == 2 and "no NVIDIA card" in sentence


@pytest.mark.parametrize(
    "changes, words",
    (
        ({"cupy_packages": ()}, "pip install '.[cuda13]'"),
        ({"cupy_packages": ("cupy-cuda12x", "cupy-cuda13x")}, "cupy-cuda12x and cupy-cuda13x"),
        ({"cupy_packages": ("cupy-cuda12x",)}, "cupy-cuda13x"),
    ),
)
def test_the_cuda_side_alone_is_missing_where_cupy_is_wrong(changes, words):
    machine = decide(seen(**changes))
    assert machine.mode == "card"
    assert words in machine.lacks((), "cupy")
    assert machine.lacks((), "torch") == ""


def test_packages_that_are_not_there_are_named():
    code, sentence = refused(seen(versions={**VERSIONS, "triton": "", "torch": ""}))
    assert code == 2 and sentence.startswith("torch, triton not installed")


def test_other_systems_are_told_where_it_runs():
    code, sentence = refused(seen(system="Darwin"))
    assert code == 2 and "WSL2" in sentence


def test_versions_outside_what_was_tried_are_a_line_not_a_refusal():
    assert version_notes(VERSIONS) == ()
    assert "newer" in version_notes({"triton": "4.0.1"})[0]
    assert "older" in version_notes({"triton": "3.5.1"})[0]
    assert version_notes({"triton": "3.10.0"}) and not version_notes({"triton": "3.9.9"})


def test_variables_that_change_results_are_listed():
    env = {"TRITON_CACHE_DIR": "x", "CUBLAS_WORKSPACE_CONFIG": ":8", "HOME": "/", "CUDA_EMPTY": ""}
    env["NVIDIA_REQUIRE_CUDA"] = "cuda>=13.0 brand=unknown"  # asks a driver for something
    assert variables(env) == {"CUBLAS_WORKSPACE_CONFIG": ":8", "TRITON_CACHE_DIR": "x"}


def test_the_drivers_files_are_read_where_nvml_is_not_there(tmp_path):
    assert driver_of_files(tmp_path) == ""
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/nvidia0").touch()
    assert driver_of_files(tmp_path) == "unknown"
    (tmp_path / "proc/driver/nvidia").mkdir(parents=True)
    text = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19\n"
    (tmp_path / "proc/driver/nvidia/version").write_text(text)
    assert driver_of_files(tmp_path) == "535.104.05"
