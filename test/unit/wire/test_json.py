"""JSON: one way to write, two to read."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ganeti import errors
from ganeti.wire import json

_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.text()
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(_VALUES)
def test_what_is_written_is_read(value: Any) -> None:
    for text in (json.dumps(value), json.dumps_spaced(value)):
        assert text.isascii()
        assert json.loads(text) == json.loads_strict(text) == value


def test_blanks() -> None:
    value = {"a": [1, {"b": None}]}
    assert json.dumps(value) == '{"a":[1,{"b":null}]}'
    assert json.dumps_spaced(value) == '{"a": [1, {"b": null}]}'


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object(), {1, 2}])
def test_what_json_cannot_say(value: Any) -> None:
    for write in (json.dumps, json.dumps_spaced):
        with pytest.raises(errors.ProgrammerError):
            write([value])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nonsense",
        "[1",
        '{"a":1,}',
        "NaN",
        "[Infinity]",
        "[-Infinity]",
        "1e999",
        '{"a": [-1e999]}',
        "1" * 400 + ".0",
        "[" * 100_000,
        b"\xff",
        "1" * 5000,
    ],
)
def test_what_is_no_json(text: str | bytes) -> None:
    for read in (json.loads, json.loads_strict):
        with pytest.raises(errors.ParseError):
            read(text)


@pytest.mark.parametrize("text", ['{"a":1,"a":1}', '[{"x":{"b":1,"c":2,"b":3}}]'])
def test_a_key_that_comes_twice(text: str) -> None:
    assert json.loads(text)
    with pytest.raises(errors.ParseError, match="twice"):
        json.loads_strict(text)


def test_many_keys_are_quick_to_check() -> None:
    """The last of them comes twice; looking for it must not take the square of their number."""
    keys = ",".join(f'"k{number}":0' for number in range(100_000))
    with pytest.raises(errors.ParseError, match="k99999"):
        json.loads_strict(f'{{{keys},"k99999":0}}')


def test_equal_texts_are_one_object() -> None:
    text = '{"a":["some text",{"b":"some text","c":[1,null,"some text"]}],"some text":{"d":"x"}}'
    value = json.loads(text)
    json.share_texts(value)
    assert value == json.loads(text)
    first, inner = value["a"]
    assert first is inner["b"] is inner["c"][2]


def test_the_largest_and_the_smallest_numbers_are_read() -> None:
    assert json.loads("[1.7e308, -1.7e308, 1e-400, -0.5]") == [1.7e308, -1.7e308, 0.0, -0.5]


@pytest.mark.parametrize("value", ["a\0b", ["x", {"k": "\0"}], {"\0": 1}])
def test_a_zero_character_is_refused(value: object) -> None:
    for check in (json.check_no_zero, json.check_texts):
        with pytest.raises(errors.ParseError, match="zero character"):
            check(value)


def test_the_name_of_a_file_which_is_not_utf_8_has_no_zero_character() -> None:
    json.check_no_zero(["/srv/\udcff", "\\u0000"])
    with pytest.raises(errors.ParseError, match="not valid Unicode"):
        json.check_texts(["/srv/\udcff"])


def test_values_are_counted_before_they_are_read() -> None:
    for text in ("[" + "[]," * 10 + "1]", '{"a": [1, 2], "b,[": {}}'):
        for form in (text, text.encode()):
            json.check_items(form, 21)
            with pytest.raises(errors.ParseError, match="more than 3 values"):
                json.check_items(form, 3)
