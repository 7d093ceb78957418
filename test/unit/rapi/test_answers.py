"""Answers with a status, headers and members of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fakes.rest_client import rest_lab
from ganeti import ht
from ganeti.http.messages import Refused
from ganeti.rapi import openapi
from ganeti.rapi.call import Call
from ganeti.rapi.declare import ANYBODY, GET, POST, USERS, DirectChange, Read, Resource, Result
from ganeti.rapi.resources import RESOURCES


async def _lead(call: Call) -> None:
    call.status = 303
    call.answer_headers.append(("Location", f"/2?{call.address}"))


async def _refuse(_call: Call) -> None:
    raise Refused(401, "a factor is missing", members={"factors": ["totp"]})


_NOTHING = Result(ht.NoneType, "nothing")
_LEADING = Resource(
    "/2/lead",
    "lead",
    {
        GET: Read(
            _lead,
            "Lead elsewhere.",
            _NOTHING,
            access=ANYBODY,
            headers={"Location": "where to go"},
            statuses={303: "go there"},
        ),
        POST: DirectChange(_refuse, "Refuse.", _NOTHING, access=USERS, alone=True),
    },
)


def test_an_operation_decides_on_status_and_headers(tmp_path: Path) -> None:
    with rest_lab(tmp_path, resources=(*RESOURCES, _LEADING)) as rest:
        status, _value, headers = rest("GET", "/2/lead", user=None)
        assert (status, headers["location"]) == (303, "/2?127.0.0.1")


def test_an_error_has_further_members(tmp_path: Path) -> None:
    with rest_lab(tmp_path, resources=(*RESOURCES, _LEADING)) as rest:
        status, value, _headers = rest("POST", "/2/lead")
        assert (status, value["factors"]) == (401, ["totp"])


def test_an_operation_about_its_own_request_is_in_no_batch(tmp_path: Path) -> None:
    with rest_lab(tmp_path, resources=(*RESOURCES, _LEADING)) as rest:
        body: Any = {"operations": [{"method": "POST", "path": "/2/lead"}], "check": "each"}
        _status, value, _headers = rest("POST", "/2/batch", body)
        assert value[0]["status"] == 400
        assert "no batch" in value[0]["body"]["reason"]


def test_the_description_has_status_and_headers(monkeypatch: Any) -> None:
    monkeypatch.setattr(openapi.operation_names, "of", lambda *_args: "lead")
    found = openapi._path(_LEADING)["get"]["responses"]
    assert found["303"]["description"] == "go there"
    assert set(found["303"]["headers"]) == {"Location"}
