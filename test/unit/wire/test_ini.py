"""INI files which give every value back."""

from __future__ import annotations

import configparser
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ganeti import errors
from ganeti.wire import ini

TOP = Path(__file__).resolve().parents[3]
CLOUD = (
    "#cloud-config\nusers:\n  - name: a\n    # not a comment\n\n  ; neither\n[section]\nlast: 1\n"
)
SECTIONS = st.dictionaries(
    st.sampled_from(["export", "instance", "hypervisor", "os", "os_private"]),
    st.dictionaries(st.text(min_size=1, max_size=20), st.text(max_size=60), max_size=6),
    max_size=4,
)


@given(SECTIONS)
@example({"os": {"user-data": CLOUD}})
@example({"os": {"Size": "a", "size": "b", "SIZE": "c"}})
@example(
    {"os": {"a=b": "1", "#x": "2", "[y]": "3", " z ": "4", "c:d": "5", "DEFAULT": "6", "\n": "7"}}
)
@example({"os": {"a": "\r\n", "b": "None", "c": "", "d": " ", "e": "\x1c", "f": "x\n\ny\n\n\n"}})
@example({"instance": {"disk0_name": "none"}, "os": {}})
def test_what_is_written_is_read_again(sections):
    assert ini.parse(ini.describe(sections)).sections == sections


@given(SECTIONS)
@example({"os": {"user-data": CLOUD, "Size": "1", "size": "2", "a=b": "3"}})
def test_other_programs_read_it(sections):
    """Python's parser, as strict as it is, and without a difference between cases."""
    text = ini.describe(sections)
    parser = configparser.ConfigParser(interpolation=None)
    parser.read_string(text)
    for name, values in sections.items():
        for key, value in values.items():
            if key.isascii() and key.isalnum() and value.isascii() and value.isalnum():
                alike = [other for other in values if other.lower() == key.lower()]
                assert parser[name][key] == values[alike[0]]
    # Lines of a value are where other programs look for them.
    if sections.get("os", {}).get("user-data") == CLOUD:
        assert "users:" in parser["os"]["user-data"]


def test_a_simple_file_has_nothing_of_ours():
    text = ini.describe({"export": {"version": 0}, "os": {"Size": "9"}})
    assert text == "[export]\nversion = 0\n\n[os]\nSize = 9\n\n"


def test_only_texts_which_an_import_would_leave_out_are_written_twice():
    values = {"a": "None", "b": "none", "c": None}
    sections = ("export", "instance", "hypervisor", "backend", "os", "os_private")
    assert ini.parse(ini.describe({name: values for name in sections})).exact == {
        ("instance", "a"),
        ("instance", "b"),
        ("hypervisor", "a"),
        ("backend", "a"),
    }


def test_a_value_which_somebody_has_edited_counts():
    text = ini.describe({"os": {"data": "a\n  b\n", "other": " x", "gone": "c\n"}})
    text = text.replace("data = a", "data = z", 1).replace("gone = c\n", "", 1)
    found = ini.parse(text)
    assert found.sections == {"os": {"data": "z\nb", "other": " x"}}
    assert found.exact == {("os", "other")}


@pytest.mark.parametrize(
    "text",
    [
        "x = 1\n",
        "[a]\nx\n",
        "[exact]\n0 = [1, 2]\n",
        "[exact]\n0 = {\n",
        "[exact]\n0 = [1, 2, 3]\n",
    ],
)
def test_what_is_no_such_file(text):
    with pytest.raises(errors.ParseError):
        ini.parse(text)


@pytest.mark.parametrize("name", ["config", "no_disk", "no_os", "unsafe_path"])
def test_files_of_the_original_are_read_as_before(name):
    text = (TOP / f"test/data/ovf/{name}.ini").read_text(encoding="utf-8")
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str
    parser.read_string(text)
    wanted = {section: dict(parser[section]) for section in parser.sections()}
    assert ini.parse(text) == (wanted, frozenset())
    assert ini.parse(ini.describe(wanted)).sections == wanted
