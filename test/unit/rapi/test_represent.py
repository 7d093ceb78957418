"""Which representation, which tag, what an error says."""

from __future__ import annotations

import asyncio

import pytest
import yaml

from ganeti import errors
from ganeti.http.messages import Refused
from ganeti.rapi import failures, represent

JSON, YAML = "application/json", "application/yaml"


@pytest.mark.parametrize(
    ("accept", "produces", "wanted"),
    [
        (None, "", JSON),
        ("*/*", "", JSON),
        ("application/json", "", JSON),
        ("text/html,application/xhtml+xml,*/*;q=0.8", "", JSON),
        ("application/yaml", "", YAML),
        ("text/x-yaml", "", YAML),
        ("application/*", "", JSON),
        ("application/json;q=0.5, application/yaml", "", YAML),
        ("application/json;q=0, */*", "", YAML),
        ("text/html", "text/html", "text/html"),
        ("*/*", "text/event-stream", "text/event-stream"),
    ],
)
def test_choice(accept: str | None, produces: str, wanted: str) -> None:
    assert represent.choose(accept, produces) == wanted


@pytest.mark.parametrize(
    ("accept", "produces"),
    [
        ("text/html", ""),
        ("image/*", ""),
        ("application/json;q=0", ""),
        ("application/json;q=x", ""),
        ("application/json", "text/html"),
        (",", ""),
    ],
)
def test_nothing_to_choose(accept: str, produces: str) -> None:
    with pytest.raises(Refused) as caught:
        represent.choose(accept, produces)
    assert caught.value.status == 406


def test_bodies() -> None:
    value = {"b": [1, None, "\xe4"], "a": {}}
    assert asyncio.run(represent.render(value, JSON)) == b'{"b": [1, null, "\\u00e4"], "a": {}}\n'
    assert asyncio.run(represent.render(12, JSON)) == b"12\n"
    assert yaml.safe_load(asyncio.run(represent.render(value, YAML))) == value


def test_too_large_for_people() -> None:
    with pytest.raises(Refused) as caught:
        asyncio.run(represent.render(["x" * 1000] * 3000, YAML))
    assert caught.value.status == 406
    assert len(asyncio.run(represent.render(["x" * 1000] * 3000, JSON))) > 3_000_000


@pytest.mark.parametrize(
    ("header", "weak", "matches"),
    [
        ('"a-1"', False, True),
        ('"x", "a-1"', False, True),
        ("*", False, True),
        ('"a-2"', False, False),
        ('W/"a-1"', False, False),
        ('W/"a-1"', True, True),
        ("", True, False),
    ],
)
def test_tags(header: str, weak: bool, matches: bool) -> None:
    assert represent.tag_matches(header, '"a-1"', weak=weak) is matches


def test_errors() -> None:
    assert represent.error_body(400, "<it's>") == {
        "code": 400,
        "message": "Bad Request",
        "explain": "<it's>",
        "reason": "<it's>",
    }
    assert represent.error_body(401, "") == {
        "code": 401,
        "message": "Unauthorized",
        "explain": "No permission -- see authorization schemes",
    }


@pytest.mark.parametrize("reason", ["", "Not Found", "instance web does not exist"])
def test_a_missing_object_is_recognised_by_programs_of_others(reason: str) -> None:
    """They make this text of an error, and look for it."""
    body = represent.error_body(404, reason)
    text = "{code} {message}: {explain}".format(**body)
    assert text == "404 Not Found: Nothing matches the given URI"
    assert body.get("reason", "") == ("" if reason == "Not Found" else reason)


@pytest.mark.parametrize(
    ("err", "status"),
    [
        (errors.NoMasterError("x"), 502),
        (errors.ConnectionClosedError("x"), 502),
        (errors.ProtocolError("x"), 502),
        (errors.RequestError("x"), 502),
        (errors.LuxiTimeout("x"), 504),
        (errors.LuxiPermissionError("x"), 500),
        (errors.JobQueueFull(), 503),
        (errors.JobQueueDrainError("x"), 503),
        (errors.JobLost("x"), 404),
        (errors.OpPrereqError("x", errors.ECODE_NOENT), 404),
        (errors.OpPrereqError("x", errors.ECODE_INVAL), 400),
        (errors.OpPrereqError("x", errors.ECODE_STATE), 409),
        (errors.OpPrereqError("x", errors.ECODE_FAULT), 500),
        (errors.QueryFilterParseError("x"), 400),
        (errors.OpExecError("x"), 500),
        (Refused(418), 418),
    ],
)
def test_what_the_master_reports(err: errors.GenericError, status: int) -> None:
    assert failures.refusal(err).status == status


@pytest.mark.parametrize("text", ["\ud800", "a\udc80b", "\U0001f600 \udfff", "key: \ud83d"])
def test_a_lone_surrogate_as_yaml(text: str) -> None:
    """Names of files and output of programs may have one; YAML cannot."""
    found = asyncio.run(represent.render({text: [text]}, represent.YAML))
    readable = text.encode("utf-8", "backslashreplace").decode("utf-8")
    assert yaml.safe_load(found) == {readable: [readable]}
