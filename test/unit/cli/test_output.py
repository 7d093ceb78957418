"""Indented text, JSON, YAML."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
import yaml

from ganeti import errors
from ganeti.cli import output


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (
            [("Name", "web1"), ("Nodes", [[("primary", "n1")], [("secondaries", "")]])],
            "Name: web1\nNodes: \n  - primary: n1\n  - secondaries: \n",
        ),
        ([[("A", 1), ("B", {})], [("A", 2), ("B", [])]], "- A: 1\n  B: \n- A: 2\n  B: \n"),
        ({"b": None, "a": True}, "a: True\nb: None\n"),
        ({"reason": [["src", "why", 1]]}, "reason: \n  - - src\n    - why\n    - 1\n"),
        ({"depends": [[3, []]]}, "depends: \n  - - 3\n    - \n"),
        (["text"], "- text\n"),
        ([("nested", {"x": {"y": "z"}})], "nested: \n  x: \n    y: z\n"),
        ([("deep", [[[["n", "s"]]]])], "deep: \n  - - - - n\n        - s\n"),
    ],
)
def test_indented_text(data: Any, text: str) -> None:
    assert output.format_info(data) == text


def test_json_keeps_order_and_characters(capsys: pytest.CaptureFixture[str]) -> None:
    data = {"b": [1, 2.5, None], "a": "grün"}
    output.write_data(data, "json")
    text = capsys.readouterr().out
    assert json.loads(text) == data
    assert text.index('"b"') < text.index('"a"')
    assert "grün" in text


def test_json_has_no_control_characters_and_the_same_content(
    capsys: pytest.CaptureFixture[str],
) -> None:
    data = {"reason": "\x1b[2J\x9b1m\x7f\u202e\xe9", "\x85": ["\u2028"]}
    output.write_data(data, "json")
    text = capsys.readouterr().out
    assert json.loads(text) == data and "\xe9" in text
    assert all(char == "\n" or char.isprintable() for char in text)


def test_indented_text_has_no_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    output.write_info([("reason", "\x1b[2Jx")])
    assert capsys.readouterr().out == "reason: \\x1b[2Jx\n"


def test_yaml(capsys: pytest.CaptureFixture[str]) -> None:
    data = [{"name": "web1", "tags": [], "up": True, "memory": None}]
    output.write_data(data, "yaml")
    assert yaml.safe_load(capsys.readouterr().out) == data


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (
            [
                {"name": "web1", "up": True, "tags": ["a", "b"]},
                {"name": 'say "hi", now', "ram": None},
            ],
            'name,up,tags,ram\nweb1,true,"[""a"",""b""]",\n"say ""hi"", now",,,\n',
        ),
        ({"name": "c", "size": 1.5}, "name,size\nc,1.5\n"),
        (["one", "two\nlines"], 'value\none\n"two\nlines"\n'),
        ([], ""),
    ],
)
def test_csv(data: Any, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    output.write_data(data, "csv")
    assert capsys.readouterr().out == text


def test_yaml_without_pyyaml(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(errors.OpPrereqError, match="PyYAML"):
        output.to_yaml([])


def test_params_with_defaults() -> None:
    assert output.params_with_defaults({"vcpus": 2}, {"vcpus": 2, "maxmem": 128, "ratio": 4.0}) == {
        "vcpus": "2",
        "maxmem": "default (128)",
        "ratio": "default (4)",
    }
    assert output.params_with_defaults({}, {"vcpus": 4, "acpi": True}, output.roman) == {
        "vcpus": "default (IV)",
        "acpi": "default (True)",
    }


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (1, "I"),
        (4, "IV"),
        (1994, "MCMXCIV"),
        (3999, "MMMCMXCIX"),
        (0, "0"),
        (-1, "-1"),
        (4000, "4000"),
        (None, "None"),
        (True, "True"),
    ],
)
def test_roman(number: Any, text: str) -> None:
    assert output.roman(number) == text
