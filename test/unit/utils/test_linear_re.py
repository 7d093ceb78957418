"""Regular expressions in linear time: results as of ``re``, and every search ends."""

from __future__ import annotations

import contextlib
import os
import random
import re
import warnings

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from ganeti import errors
from ganeti.utils import linear_re
from ganeti.utils.effort import Effort
from ganeti.utils.linear_re import Pattern

LONG = bool(os.environ.get("GANETI_LONG"))
ATOMS = st.sampled_from(
    list("abAB .\n")
    + ["^", "$", r"\b", r"\B", r"\A", r"\Z", r"\d", r"\W", r"\w", r"\S"]
    + ["[ab]", "[^a]", "[a-c]", r"[^\d\n]", r"\.", "\xe9", "[\xe0-\xff]", "()"]
)
PATTERNS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4).map("".join),
        st.lists(inner, min_size=1, max_size=3).map("|".join).map("({})".format),
        st.builds(
            "(?:{}){}".format,
            inner,
            st.sampled_from(["*", "+", "?", "*?", "+?", "{2}", "{1,2}", "{0,2}?", "{1,}"]),
        ),
        st.builds("(?{}:{})".format, st.sampled_from(["i", "s", "m", "a", "-i", "i-s"]), inner),
    ),
    max_leaves=8,
)
FLAGS = st.sampled_from(["", "(?i)", "(?m)", "(?s)", "(?a)", "(?im)", "(?x)"])
TEXTS = st.text(st.sampled_from("aAbBc1_ .\n\xe9\xc9\u0660"), min_size=1, max_size=8)


@pytest.mark.larger
@settings(max_examples=1500 if LONG else 400, deadline=None)
@given(FLAGS, PATTERNS, st.lists(TEXTS, min_size=1, max_size=4))
@example("", "(?a:\\W)", ["\u00c9"])
def test_the_results_are_those_of_re(flags: str, body: str, texts: list[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            wanted = re.compile(flags + body)
        except re.error:
            assume(False)
        found = Pattern(flags + body)
    for text in texts:
        # At each place: re.search looks for the first character with the flags of the whole
        # pattern, so it does not find "É" with "(?a:\W)".
        expected = any(wanted.match(text, place) for place in range(len(text) + 1))
        assert found.search(text) == expected, text
        assert found.fullmatch(text) == (wanted.fullmatch(text) is not None), text


@pytest.mark.parametrize(
    ("pattern", "text", "result"),
    [
        ("^web[0-9]+", "web12.example.com", True),
        (r"^web[^.]*(\..*)?$", "web1.example.com", True),
        (r"^web[^.]*(\..*)?$", "xweb1.example.com", False),
        ("(?i)^INSTANCE_(MIGRATE|FAILOVER)", "instance_failover(web1)", True),
        ("(?P<name>a|b){3}", "xabax", True),
        ("", "", True),
        ("a", "", False),
        ("^$", "", True),
        ("x$", "x\n", True),
        (r"x\Z", "x\n", False),
        ("(?i)\u212a", "k", True),
        ("(?i)k", "\u212a", True),
        ("(?ai)k", "\u212a", False),
    ],
)
def test_usual_expressions(pattern: str, text: str, result: bool) -> None:
    assert Pattern(pattern).search(text) is result
    assert (re.search(pattern, text) is not None) is result


@pytest.mark.parametrize(
    "pattern",
    [
        "(((((.+)+)+)+)+)+Z",
        "(a*)*$b",
        "(a|a)*c",
        "(a|aa)+$c",
        "(.*)(.*)(.*)(.*)(.*)(.*)(.*)c",
        "(?:a?){200}a{200}c",
        "([a-z]+)*=",
    ],
)
def test_expressions_which_take_years_elsewhere(pattern: str) -> None:
    """The work is counted in steps, so this does not depend on the speed of the machine."""
    compiled = Pattern(pattern)
    assert not compiled.search("a" * 20_000)
    assert compiled._work < linear_re.FREE_WORK


def test_the_work_for_a_text_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every character leads to a new state here, which no memory can hold."""
    monkeypatch.setattr(linear_re, "FREE_WORK", linear_re.FREE_WORK // 10)
    compiled = Pattern("(a|b)*a" + "(a|b)" * 2000 + "c")
    text = "".join(random.Random(1).choices("ab", k=6_000))
    with pytest.raises(errors.ParameterError, match="takes too much work"):
        compiled.search(text)
    assert compiled._work <= compiled._credit + linear_re.MAX_STEPS


def test_what_is_remembered_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear_re, "_MAX_REMEMBERED", 50)
    compiled = Pattern("(a|b)*a(a|b){6}c")
    text = "".join(random.Random(1).choices("ab", k=300))
    assert compiled.search(text + "abbbbbbc")
    assert not compiled.search(text + "bbbbbbbc")
    assert compiled._remembered < 150


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("(", "missing \\)"),
        ("(a)\\1", "references to groups"),
        ("(?=a)", "look-ahead"),
        ("(?!a)b", "look-ahead"),
        ("(?<=a)b", "look-behind"),
        ("(?>a)b", "atomic groups"),
        ("a++", "possessive"),
        ("(a)?(?(1)b|c)", "conditional groups"),
        ("(a{1000}){1000}", "more than 20000 steps"),
        ("((){1000}){1000}", "more than 20000 steps"),
        ("((()*){9999}){9999}", "more than 20000 steps"),
        ("a{99999999999999999999}", "repetition number is too large"),
        ("a" * 20_001, "20001 characters"),
        ("(" * 5000 + ")" * 5000, "nested too deeply"),
        ("(?L)a", "flag"),
    ],
)
def test_what_is_refused(pattern: str, why: str) -> None:
    with pytest.raises(errors.ParameterError, match=why) as caught:
        Pattern(pattern)
    assert len(str(caught.value)) < 300


@settings(max_examples=500, deadline=None)
@given(st.text(max_size=40) | st.text(st.sampled_from("ab()[]{}|*+?^$\\.-,1<!=:P#xi"), max_size=40))
def test_any_text_is_an_expression_or_refused(pattern: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            re.compile(pattern)
            usual = True
        except (re.error, OverflowError, RecursionError, ValueError):
            usual = False
        try:
            Pattern(pattern).search("abba\n")
        except errors.ParameterError as err:
            assert not usual or "cannot be used here" in str(err) or "steps" in str(err)
        else:
            assert usual


def test_a_large_set_costs_no_more_than_another_step() -> None:
    compared = []

    class Bound(str):
        __slots__ = ()

        def __lt__(self, other: str) -> bool:
            compared.append(1)
            return str.__lt__(self, other)

        __le__ = __lt__

    ranges = [("RANGE", (first, first + 1)) for first in range(0x4E00, 0x4E00 + 3 * 4000, 3)]
    holds = linear_re._member_test(ranges, 0)
    assert holds("\u4e01") and holds("\u4e03") and not holds("\u4e02") and not holds("a")
    for char in (Bound("a"), Bound("\u9000")):
        compared.clear()
        assert not holds(char)
        assert len(compared) < 20


def test_sets_with_many_ranges_are_those_of_re() -> None:
    for body in ("[a-fc-hx-zb]", "[^a-fc-h]", r"[\d\d\da-c]", "[z-zy-z]"):
        wanted, found = re.compile(body), Pattern(body)
        for char in "abcdefghijkxyz0_-":
            assert found.fullmatch(char) == (wanted.fullmatch(char) is not None), (body, char)


def test_expressions_of_one_author_share_steps_and_characters() -> None:
    budget = linear_re.Budget()
    Pattern("(ab){1500}", budget)
    with pytest.raises(errors.ParameterError, match="alone or together"):
        Pattern("(ab){1500}", budget)
    budget = linear_re.Budget()
    Pattern("(?x)" + " " * 15_000 + "a", budget)
    with pytest.raises(errors.ParameterError, match="together have more than"):
        Pattern("(?x)" + " " * 15_000 + "a", budget)


def test_expressions_of_one_author_share_what_they_remember() -> None:
    budget = linear_re.Budget()
    patterns = [Pattern(f"{letter}.{{200}}x", budget) for letter in "ab" * 10]
    rnd = random.Random(1)
    for one in patterns:
        with contextlib.suppress(errors.ParameterError):
            one.search("".join(rnd.choice("ab") for _ in range(3000)))
        # When the others have it all, each keeps no more than it needs at the moment.
        assert budget.remembered <= linear_re._MAX_REMEMBERED + 5000
    assert budget.remembered == sum(one._remembered for one in patterns)


def test_the_work_of_searches_is_an_effort() -> None:
    effort = Effort(limit=10_000)
    budget = linear_re.Budget(effort)
    one = Pattern("a.{200}x", budget)
    with pytest.raises(errors.ParameterError, match="too much work"):
        for _ in range(100):
            one.search("a" * 300)
    # A text is work even if everything is remembered.
    effort.renew()
    plain = Pattern("b", budget)
    with pytest.raises(errors.ParameterError, match="too much work"):
        for _ in range(100):
            plain.search("a" * 1000)
