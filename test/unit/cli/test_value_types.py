"""Types of option value_types."""

from __future__ import annotations

import argparse
import io
from pathlib import Path
from typing import Any

import pytest

from ganeti import errors
from ganeti.cli import value_types


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", [""]),
        ("a,b", ["a", "b"]),
        (r"a\,b,c", ["a,b", "c"]),
        (r"a\\,b", ["a\\", "b"]),
        (r"C:\dir,x", [r"C:\dir", "x"]),
        ("a\\", ["a\\"]),
        (",", ["", ""]),
    ],
)
def test_split_escaped(text: str, parts: list[str]) -> None:
    assert value_types.split_escaped(text) == parts


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("", {}),
        ("a=1,b=x y", {"a": "1", "b": "x y"}),
        ("acpi,no_pae,-vnc", {"acpi": True, "pae": False, "vnc": None}),
        ("a=", {"a": ""}),
        ("a=b=c", {"a": "b=c"}),
        (r"args=ro\,quiet", {"args": "ro,quiet"}),
        # With a value the prefix is part of the name.
        ("no_x=1,-y=2", {"no_x": "1", "-y": "2"}),
    ],
)
def test_keyval(text: str, meaning: dict[str, Any]) -> None:
    assert value_types.parse_keyval(text) == meaning


@pytest.mark.parametrize("text", ["a=1,a=2", "a,no_a", "=1", "a,,b", "no_", "-"])
def test_keyval_refuses(text: str) -> None:
    with pytest.raises(errors.ParameterError) as caught:
        value_types.parse_keyval(text)
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("kvm", ("kvm", {})),
        ("kvm:", ("kvm", {})),
        ("0:size=1g,mode=ro", ("0", {"size": "1g", "mode": "ro"})),
        ("-1:size=1g", ("-1", {"size": "1g"})),
        ("no_kvm", ("kvm", False)),
        ("-kvm", ("kvm", None)),
        ("add:ip=2001:db8::1", ("add", {"ip": "2001:db8::1"})),
    ],
)
def test_identkeyval(text: str, meaning: tuple[str, Any]) -> None:
    assert value_types.parse_identkeyval(text) == meaning


@pytest.mark.parametrize("text", ["no_kvm:a=1", "-kvm:a=1", ":a=1", "no_", "0:a=1,a=2"])
def test_identkeyval_refuses(text: str) -> None:
    with pytest.raises(errors.ParameterError):
        value_types.parse_identkeyval(text)


def test_multi_list_ident_keyval() -> None:
    text = "min:cpu-count=1,disk-count=0/max:cpu-count=8//min:cpu-count=2/max:cpu-count=4"
    assert value_types.parse_multi_list_ident_keyval(text) == [
        {"min": {"cpu-count": "1", "disk-count": "0"}, "max": {"cpu-count": "8"}},
        {"min": {"cpu-count": "2"}, "max": {"cpu-count": "4"}},
    ]
    assert value_types.parse_multi_list_ident_keyval("") == []
    assert value_types.parse_multi_list_ident_keyval(r"min:path=a\/b") == [{"min": {"path": "a/b"}}]


@pytest.mark.parametrize("text", ["min:a=1/min:a=2", "no_min", "min:a=1//", "min:a,a"])
def test_multi_list_ident_keyval_refuses(text: str) -> None:
    with pytest.raises(errors.ParameterError):
        value_types.parse_multi_list_ident_keyval(text)


def test_list() -> None:
    assert value_types.parse_list("") == []
    assert value_types.parse_list(r"a,b\,c") == ["a", "b,c"]


@pytest.mark.parametrize(
    ("text", "meaning"), [("yes", True), ("True", True), ("NO", False), ("false", False)]
)
def test_bool(text: str, meaning: bool) -> None:
    assert value_types.parse_bool(text) is meaning


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (value_types.parse_bool, "1"),
        (value_types.parse_bool, ""),
        (value_types.parse_int, "x"),
        (value_types.parse_int, "1.5"),
        (value_types.parse_float, "nan"),
        (value_types.parse_float, "inf"),
        (value_types.parse_float, "1,5"),
        (value_types.parse_maybe_float, "often"),
        (value_types.parse_size, "12q"),
        (value_types.parse_size, ""),
        (value_types.parse_size, "-1"),
        (value_types.parse_json, "{"),
        (value_types.parse_time, "1y"),
        (value_types.parse_time, "-1"),
        (value_types.parse_time, "h"),
        (value_types.parse_time, ""),
        (value_types.parse_time, "²"),
        (value_types.parse_filter_action, "RATE_LIMIT"),
        (value_types.parse_filter_action, "RATE_LIMIT x"),
        (value_types.parse_filter_action, "RATE_LIMIT 0"),
    ],
)
def test_refused(parse: Any, text: str) -> None:
    with pytest.raises(errors.ParameterError) as caught:
        parse(text)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize(
    ("parse", "text", "meaning"),
    [
        (value_types.parse_int, "-3", -3),
        (value_types.parse_float, "0.5", 0.5),
        (value_types.parse_maybe_float, "default", "default"),
        (value_types.parse_maybe_float, "2", 2.0),
        (value_types.parse_size, "1", 4),
        (value_types.parse_size, "1.5g", 1536),
        (value_types.parse_json, "[1]", [1]),
        (value_types.parse_time, "90", 90),
        (value_types.parse_time, "2h", 7200),
        (value_types.parse_time, "1w", 604800),
        (value_types.parse_filter_action, "PAUSE", "PAUSE"),
        (value_types.parse_filter_action, "RATE_LIMIT 5", ["RATE_LIMIT", 5]),
    ],
)
def test_read(parse: Any, text: str, meaning: Any) -> None:
    assert parse(text) == meaning


def test_typed_params() -> None:
    types = {
        "memory": "size",
        "auto": "bool",
        "vcpus": "int",
        "ratio": "float",
        "path": "string",
        "link": "maybe-string",
    }
    given = {
        "memory": "1g",
        "auto": False,
        "vcpus": "2",
        "ratio": "1.5",
        "path": False,
        "link": None,
    }
    assert value_types.typed_params(given, types) == {
        "memory": 1024,
        "auto": False,
        "vcpus": 2,
        "ratio": 1.5,
        "path": "",
        "link": None,
    }
    assert value_types.typed_params({"vcpus": "default"}, types, allowed=("default",)) == {
        "vcpus": "default"
    }
    assert value_types.typed_params({}, types) == {}


@pytest.mark.parametrize(
    "given",
    [{"nosuch": "1"}, {"vcpus": "many"}, {"auto": "maybe"}, {"memory": True}, {"path": None}],
)
def test_typed_params_refuses(given: dict[str, Any]) -> None:
    types = {"memory": "size", "auto": "bool", "vcpus": "int", "path": "string"}
    with pytest.raises(errors.TypeEnforcementError) as caught:
        value_types.typed_params(given, types)
    assert next(iter(given)) in str(caught.value)


def test_unknown_parameter_is_guessed_or_lists_the_known_ones() -> None:
    types = {"vcpus": "int", "maxmem": "size"}
    with pytest.raises(errors.TypeEnforcementError, match="'disks'. Known are: maxmem, vcpus"):
        value_types.typed_params({"disks": "1"}, types)
    with pytest.raises(errors.TypeEnforcementError, match="'vcpu'. Did you mean 'vcpus'"):
        value_types.typed_params({"vcpu": "1"}, types)


def test_argparse_shows_the_message_of_a_reader(capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser(prog="tool")
    parser.add_argument("--size", type=value_types.for_argparse(value_types.parse_size))
    assert parser.parse_args(["--size", "2g"]).size == 2048
    with pytest.raises(errors.ParameterError) as caught:
        value_types.parse_size("much")
    with pytest.raises(SystemExit):
        parser.parse_args(["--size", "much"])
    assert f"tool: error: argument --size: {caught.value}\n" in capsys.readouterr().err


_PARAMETERS = "\ufeff# for web1\nroot_password=x,y=z\\ #1\r\n\n user =joe \nempty=\n"


@pytest.mark.parametrize("standard_input", [False, True])
def test_parameters_from_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, standard_input: bool
) -> None:
    """Secrets which stand in no argument; their values are taken as they are."""
    path = str(tmp_path / "secrets")
    Path(path).write_text(_PARAMETERS, encoding="utf-8", newline="")
    if standard_input:
        monkeypatch.setattr("sys.stdin", io.StringIO(_PARAMETERS, newline=""))
        path = "-"
    assert value_types.parse_keyval_file(path) == {
        "root_password": "x,y=z\\ #1",
        "user": "joe ",
        "empty": "",
    }


@pytest.mark.parametrize(
    ("content", "fragment"),
    [
        ("a=1\nxyzzy\n", "'{path}', line 2: this is not NAME=VALUE"),
        ("=xyzzy", "'{path}', line 1: this is not NAME=VALUE"),
        ("a=xyzzy\0", "'{path}', line 1: this is not NAME=VALUE"),
        ("a=1\na=xyzzy", "'{path}', line 2: the name 'a' is there twice"),
    ],
)
def test_a_file_which_has_no_parameters(tmp_path: Path, content: str, fragment: str) -> None:
    path = tmp_path / "secrets"
    path.write_text(content, encoding="utf-8", errors="surrogateescape")
    with pytest.raises(errors.ParameterError) as caught:
        value_types.parse_keyval_file(str(path))
    assert fragment.format(path=path) in str(caught.value)
    assert "xyzzy" not in str(caught.value)
    with pytest.raises(errors.ParameterError, match="cannot read"):
        value_types.parse_keyval_file(str(tmp_path / "none"))
