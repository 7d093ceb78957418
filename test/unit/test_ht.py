"""The words for shapes say yes and no where they should, and read well."""

from __future__ import annotations

import pytest

from ganeti import ht

CASES = [
    (ht.Any, [None, 1, object()], []),
    (ht.NoneType, [None], [0, "", False]),
    (ht.Bool, [True, False], [0, 1, None, "true"]),
    (ht.Int, [0, -5, 2**63 - 1, -(2**63)], [2**63, 10**30, True, 1.0, "1", None]),
    (ht.NonNegInt, [0, 5], [-1, True, 1.0]),
    (ht.PositiveInt, [1], [0, -1, True]),
    (ht.NegativeInt, [-1], [0, 1]),
    (ht.Float, [0.0, -1.5, 1e18], [1e19, 1e300, 1, True, float("nan"), float("inf"), "1.5"]),
    (ht.Str, ["", "a"], [None, 1, b"a"]),
    (ht.NonEmptyString, ["a"], ["", None, 1]),
    (ht.List, [[], (1,)], ["ab", {}, None]),
    (ht.Dict, [{}, ht.PrivateDict()], [[], None]),
    (ht.Maybe(ht.Int), [None, 1], ["a", True]),
    (ht.Or(ht.Int, ht.Str), [1, "a"], [None, 1.5]),
    (ht.And("even", ht.Int, ht.Type("even", lambda v: v % 2 == 0)), [2], [1, "2"]),
    (ht.OneOf("colour", ("red", 1)), ["red", 1], ["blue", True, [], {}, None, 1.0]),
    (ht.ListOf(ht.Int), [[], [1, 2], (1,)], [[1, "a"], "12", {1: 2}]),
    (ht.SetOf(ht.Int), [[], {1}, frozenset((1,))], [["a"], "1", None]),
    (ht.DictOf(ht.Str, ht.Int), [{}, {"a": 1}], [{1: 1}, {"a": "b"}, []]),
    (ht.ObjectOf(ht.Int), [{}, {"a": 1}], [{"a": "b"}, []]),
    (ht.Tuple(ht.Int, ht.Str), [[1, "a"], (1, "a")], [[1], [1, "a", 2], ["a", 1], "ab"]),
    (
        ht.Shape("pair", {"a": ht.Int}, {"b": ht.Str}),
        [{"a": 1}, {"a": 1, "b": "x"}],
        [{}, {"b": "x"}, {"a": 1, "c": 2}, {"a": "x"}, []],
    ),
    (
        ht.JobId,
        [0, 5, "12", 2**53 - 1],
        [2**53, "9" * 16, "1" * 40, "1" * 5000, -1, "x", "", "-1", True, None, "²"],
    ),
    (ht.Private(ht.Str), ["a"], [1]),
]


@pytest.mark.parametrize(("word", "good", "bad"), CASES, ids=lambda value: str(value)[:30])
def test_words(word, good, bad):
    for value in good:
        assert word(value) is True, value
    for value in bad:
        assert word(value) is False, value


@pytest.mark.parametrize(
    ("word", "text"),
    [
        (ht.Maybe(ht.ListOf(ht.NonEmptyString)), "maybe(list(nonempty-str))"),
        (ht.DictOf(ht.Str, ht.Or(ht.Int, ht.NoneType)), "dict(str,or(int,none))"),
        (ht.Tuple(ht.Bool, ht.SetOf(ht.NonNegInt)), "tuple(bool,set(nonneg(int)))"),
        (ht.Named("evening", ht.Str), "evening"),
    ],
)
def test_text(word, text):
    assert str(word) == text and text in repr(word)


@pytest.mark.parametrize(
    ("word", "text"),
    [
        (ht.Maybe(ht.PositiveInt), "a whole number above 0 or null"),
        (ht.Maybe(ht.Bool), "true or false, or null"),
        (
            ht.Or(ht.NonNegInt, ht.NonEmptyString, ht.NoneType),
            "a whole number from 0 upwards, text that is not empty or null",
        ),
        (ht.ListOf(ht.Maybe(ht.Str)), "a list, each item text or null"),
        (ht.Maybe(ht.ListOf(ht.Str)), "a list, each item text, or null"),
        (ht.DictOf(ht.Str, ht.Float), "an object, each value a number"),
        (ht.Tuple(ht.Int, ht.List), "a list of 2: a whole number; a list"),
        (ht.OneOf("reboot-type", ("soft", "hard", "full")), "soft, hard or full"),
        (ht.OneOf("letter", "abcdefghijklmnopqrs"), "letter"),
        (ht.Secret(ht.Dict), "an object"),
        (ht.Named("evening", ht.Str), "evening"),
        (ht.JobId, "the number of a job"),
    ],
)
def test_description(word, text):
    assert ht.describe(word) == text


def test_what_is_hidden_stays_hidden_in_larger_words():
    assert ht.Maybe(ht.ObjectOf(ht.Private(ht.Any))).hidden == "private"
    assert ht.Or(ht.Private(ht.Str), ht.ListOf(ht.Secret(ht.Str))).hidden == "secret"
    assert ht.ListOf(ht.Str).hidden == ""


def test_private_dictionaries_show_keys_only():
    hidden = ht.hide({"a": {"b": "hush"}, "c": ["hush", {"d": "hush"}]})
    assert "hush" not in repr(hidden["a"]) and "hush" not in str(hidden)
    assert "'a'" in repr(hidden) and hidden["a"]["b"] == "hush"
    assert ht.redact({"a": {"b": "hush"}, "c": None}) == {"a": {"b": ht.REDACTED}, "c": None}
