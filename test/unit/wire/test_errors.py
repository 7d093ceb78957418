"""Errors and JSON cross a socket and come out as they went in."""

from __future__ import annotations

import pytest

from ganeti import errors
from ganeti.wire import errors as wire_errors
from ganeti.wire import json


@pytest.mark.parametrize(
    ("error", "wire"),
    [
        (
            errors.OpPrereqError("no", errors.ECODE_NOENT),
            ["OpPrereqError", ["no", "unknown_entity"]],
        ),
        (errors.OpExecError("half"), ["OpExecError", ["half"]]),
        (errors.HooksAbort([("n", "s", "o")]), ["HooksAbort", [[["n", "s", "o"]]]]),
        (errors.JobQueueFull(), ["JobQueueFull", []]),
        (errors.ConfigVersionMismatch(3, 2), ["ConfigVersionMismatch", [3, 2]]),
        (errors.ConfigVerifyError("bad", ["a"]), ["ConfigVerifyError", ["bad", ["a"]]]),
        (errors.ResolverError("h", -2, "m"), ["ResolverError", ["h", -2, "m"]]),
        (errors.X509CertError("f", "m"), ["X509CertError", ["f", "m"]]),
        (errors.JobLost("gone"), ["JobLost", ["gone"]]),
    ],
)
def test_published_errors_round_trip(error, wire):
    assert wire_errors.encode(error) == wire
    back = wire_errors.decode(json.loads(json.dumps(wire)))
    assert type(back) is type(error) and str(back) == str(error)
    assert wire_errors.encode(back) == wire


@pytest.mark.parametrize(
    ("error", "wire"),
    [
        (errors.NodeOffline("n1", "version"), ["GenericError", ["node n1 is marked offline"]]),
        (
            errors.CommandTimeout(["sleep"], 3),
            ["CommandError", ["command 'sleep' did not end within 3 s"]],
        ),
        (errors.NoMasterError("none"), ["LuxiError", ["none"]]),
        (ValueError("odd"), ["GenericError", ["odd"]]),
        (KeyError(), ["GenericError", ["KeyError"]]),
    ],
)
def test_other_errors_travel_as_published_ancestor(error, wire):
    assert wire_errors.encode(error) == wire


@pytest.mark.parametrize("cls", sorted(errors.PUBLISHED.values(), key=lambda c: c.__name__))
def test_every_published_class_can_be_rebuilt_from_one_text(cls):
    back = wire_errors.decode([cls.__name__, ["some text"]])
    assert back is not None and "some text" in str(back.args)


@pytest.mark.parametrize(
    "value",
    [
        None,
        1,
        "x",
        [],
        ["OpExecError"],
        ["NoSuch", ["a"]],
        [1, []],
        ["OpExecError", "text"],
        {"a": 1},
    ],
)
def test_what_is_no_error(value):
    assert wire_errors.decode(value) is None
    wire_errors.maybe_raise(value)


def test_wrong_number_of_arguments_keeps_the_words():
    back = wire_errors.decode(["X509CertError", ["a", "b", "c", "d"]])
    assert "a, b, c, d" in str(back)


def test_maybe_raise():
    with pytest.raises(errors.LockError, match="held"):
        wire_errors.maybe_raise(["LockError", ["held"]])


@pytest.mark.parametrize("text", ["", "{", "NaN", "[Infinity]", b"\xff", "[" * 100_000, "{'a': 1}"])
def test_bad_json(text):
    with pytest.raises(errors.ParseError):
        json.loads(text)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object(), {1: {2, 3}}])
def test_what_json_cannot_say(value):
    with pytest.raises(errors.ProgrammerError):
        json.dumps(value)


def test_json_is_ascii_and_compact():
    value = {"a": [1, 2.5, None, True], "b": "ü\x03\ud800"}
    text = json.dumps(value)
    assert text.isascii() and " " not in text and "\x03" not in text
    assert json.loads(text) == value


def test_command_error_carries_facts_and_hides_secrets():
    class Hidden(str):
        def __repr__(self):
            return "<secret>"

    error = errors.CommandError(["drbdsetup", Hidden("pw")], 3, "out\n")
    assert (error.argv, error.exit_code, error.output) == (("drbdsetup", "pw"), 3, "out\n")
    assert "pw" not in str(error) and "exited with code 3: out" in str(error)
