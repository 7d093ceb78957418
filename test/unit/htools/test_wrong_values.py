"""Wrong values of every option of every program: an error and an exit code, never a traceback."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest

from ganeti import errors
from ganeti.client.htools import luxi
from ganeti.client.htools.options import ALL, NO

from .conftest import DATA, run_program
from .test_recorded import PROGRAMS

CLUSTER = str(DATA / "partly-used.data")
REQUEST = str(DATA / "hail-reloc-drbd.json")
SOURCES = ("text-data", "simulate", "master", "ialloc-src", "luxi")
#: Values by the kind of the option. Numbers are also tried at their limits.
WRONG = {
    "int": ("", "abc", "1.5", "1_0", "1e400", "nan", "0x10"),
    "float": ("", "abc", "1e400", "-1e400", "nan", "inf", "1_0"),
    "switch": ("", "perhaps"),
    "choice": ("", "wrong"),
    "priority": ("", "urgent"),
}
LIMITS = {
    "int": ("0", "-1", "99999999999999999999"),
    "float": ("0", "-1", "1e-300", "1e300", "1e15"),
    "list": ("", ",", "no such object"),
    "text": ("", "no such object", "/dev/null", "/"),
    "collect": ("", "no such object", ",", "p,1,1"),
}
CASES = [
    (name, ALL[long])
    for name in PROGRAMS
    for long in importlib.import_module(f"ganeti.client.htools.{name}").PROGRAM.options
    if ALL[long].argument != NO
]


@pytest.fixture(autouse=True)
def no_master(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """There is no master daemon, and files are written to a scratch directory."""

    def refuse(_socket: str) -> object:
        raise errors.NoMasterError("no master daemon answers")

    monkeypatch.setattr(luxi, "connect", refuse)
    monkeypatch.chdir(tmp_path)


def call(name: str, long: str, value: str) -> tuple[int, str, str]:
    words = [f"--{long}={value}"]
    if name in ("hscan", "harep"):
        return run_program(name, *words)
    if long not in SOURCES:
        words += ["-t", CLUSTER]
    if name == "hail":
        words.append(REQUEST)
    if long == "mond-data":
        words.append("--mond")
    return run_program(name, *words)


@pytest.mark.parametrize(("name", "option"), CASES, ids=lambda one: getattr(one, "long", one))
def test_a_wrong_value_is_an_error(name: str, option: object) -> None:
    assert hasattr(option, "long") and hasattr(option, "convert")
    for value in WRONG.get(option.convert, ()):
        code, out, err = call(name, option.long, value)
        assert (code, out) == (1, ""), value
        assert err.startswith("Error while parsing command line arguments:\n")
        assert value in err or option.long in err


@pytest.mark.parametrize(("name", "option"), CASES, ids=lambda one: getattr(one, "long", one))
def test_a_value_at_its_limits_ends_with_an_answer(name: str, option: object) -> None:
    assert hasattr(option, "long") and hasattr(option, "convert")
    if option.long == "mond":
        return
    for value in LIMITS.get(option.convert, ()):
        if (option.long, value) == ("max-length", "99999999999999999999") and name == "hspace":
            value = "1"
        code, out, err = call(name, option.long, value)
        assert code in (0, 1, 2), value
        if code:
            assert out or err, value


def test_an_offline_node_must_exist() -> None:
    code, _, err = run_program("hbal", "-t", CLUSTER, "-O", "nosuch")
    assert (code, err) == (1, "Error: wrong node name(s) set as offline: nosuch\n")


def test_relocating_an_instance_of_another_cluster_is_an_answer() -> None:
    code, out, _ = run_program("hail", "-t", CLUSTER, REQUEST)
    assert code == 0
    answer = json.loads(out)
    assert not answer["success"]
    assert "Unknown instance" in answer["info"]
