"""``gnt-filter``."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fakes.luxi_master import FakeMaster
from ganeti import errors

from ..conftest import Gnt

UUID = "a5552c57-9ff3-48d7-9ba3-c2a17a18abd9"
OTHER = "cbe02c55-a92b-4485-b964-9af8921b0f37"
FIELDS = ("uuid", "watermark", "priority", "predicates", "action", "reason_trail")
TITLES = ("UUID", "Watermark", "Priority", "Predicates", "Action", "ReasonTrail")
ROWS: list[list[Any]] = [
    [
        UUID,
        192,
        10,
        [["jobid", [">", "id", "watermark"]]],
        "CONTINUE",
        [["luxid", "", 1795213260957487000]],
    ],
    [
        OTHER,
        192,
        5,
        [["opcode", ["==", "OP_ID", "OP_TEST_DELAY"]]],
        "REJECT",
        [["gnt:user", "norejoice", 1795213261143946240], ["luxid", "", 1795213261144316000]],
    ],
]


@pytest.fixture
def rules(master: FakeMaster) -> FakeMaster:
    """The two rules of the recording."""
    master.fields["filter"] = [
        {"name": name, "title": title, "kind": "other", "doc": f"the {name}"}
        for name, title in zip(FIELDS, TITLES, strict=True)
    ]
    master.rows["filter"] = [dict(zip(FIELDS, row, strict=True)) for row in ROWS]
    master.answers["QueryFilters"] = lambda uuids, fields: [
        [dict(zip(FIELDS, row, strict=True))[name] for name in fields]
        for row in ROWS
        if not uuids or row[0] in uuids
    ]
    return master


def test_list_as_recorded(gnt: Gnt, rules: FakeMaster) -> None:
    lines = gnt("filter list").out.splitlines()
    assert lines == [
        "UUID                                 Watermark Priority Predicates               "
        "                      Action   ReasonTrail",
        f"{UUID} 192       10       [['jobid', ['>', 'id', 'watermark']]]          CONTINUE "
        "[['luxid', '', 1795213260957487000]]",
        f"{OTHER} 192       5        [['opcode', ['==', 'OP_ID', 'OP_TEST_DELAY']]] REJECT   "
        "[['gnt:user', 'norejoice', 1795213261143946240], ['luxid', '', 1795213261144316000]]",
    ]
    assert (
        gnt("filter list --no-headers --separator=| -o action,priority").out
        == "CONTINUE|10\nREJECT|5\n"
    )
    assert json.loads(gnt("filter list -o json").out)[1]["action"] == "REJECT"


def test_list_of_some_and_of_none(gnt: Gnt, rules: FakeMaster) -> None:
    gnt(f"filter list {UUID}")
    assert rules.requests[-1] == ("Query", ["filter", list(FIELDS), ["|", ["==", "uuid", UUID]]])
    rules.rows["filter"] = []
    assert gnt("filter list").out == "UUID Watermark Priority Predicates Action ReasonTrail\n"


def test_fields(gnt: Gnt, rules: FakeMaster) -> None:
    assert (
        gnt("filter list-fields --no-headers --separator=| uuid").out
        == "uuid|Custom|UUID|the uuid\n"
    )


def test_info_as_recorded(gnt: Gnt, rules: FakeMaster) -> None:
    assert (
        gnt(f"filter info {OTHER}").out
        == f"""\
UUID: {OTHER}
  Watermark: 192
  Priority: 5
  Predicates: [['opcode', ['==', 'OP_ID', 'OP_TEST_DELAY']]]
  Action: REJECT
  Reason trail: [['gnt:user', 'norejoice', 1795213261143946240], ['luxid', '', 1795213261144316000]]
"""
    )
    assert gnt("filter info").out.count("UUID: ") == 2
    (shown,) = json.loads(gnt(f"filter info --output json {UUID}").out)
    assert shown == dict(zip(FIELDS, ROWS[0], strict=True))


def test_add(gnt: Gnt, master: FakeMaster) -> None:
    master.answers["ReplaceFilter"] = lambda *args: UUID
    assert gnt(
        "filter add --priority=10 --action=CONTINUE",
        '--predicates=[["jobid", [">", "id", "watermark"]]]',
    ) == (0, f"{UUID}\n", "")
    assert master.requests == [
        ("ReplaceFilter", [None, 10, [["jobid", [">", "id", "watermark"]]], "CONTINUE", []])
    ]
    gnt("filter add", "--action=RATE_LIMIT 3", "--reason=too many")
    uuid, priority, predicates, action, reason = master.requests[-1][1]
    assert (uuid, priority, predicates, action) == (None, 0, [], ["RATE_LIMIT", 3])
    ((source, text, time_ns),) = reason
    assert (source, text) == ("gnt:user", "too many")
    assert isinstance(time_ns, int) and time_ns > 10**18


def test_replace_says_nothing(gnt: Gnt, master: FakeMaster) -> None:
    master.answers["ReplaceFilter"] = lambda *args: args[0]
    assert gnt(f"filter replace --action PAUSE {UUID}") == (0, "", "")
    assert master.requests == [("ReplaceFilter", [UUID, 0, [], "PAUSE", []])]


def test_delete(gnt: Gnt, master: FakeMaster) -> None:
    master.answers["DeleteFilter"] = lambda uuid: None
    assert gnt(f"filter delete {UUID}") == (0, "", "")
    master.errors["DeleteFilter"] = errors.OpPrereqError(
        "filter rule nosuch does not exist", errors.ECODE_NOENT
    )
    ended = gnt("filter delete nosuch")
    assert ended.code == 1
    assert "filter rule nosuch does not exist" in ended.err


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ("filter add --predicates=[", "--predicates"),
        ("filter add --priority=high", "--priority"),
        ("filter add --action='RATE_LIMIT many'", "RATE_LIMIT needs a number"),
    ],
)
def test_mistakes_are_found_before_anything_is_sent(
    gnt: Gnt, master: FakeMaster, line: str, part: str
) -> None:
    ended = gnt(line)
    assert ended.code == 2
    assert part in ended.err
    assert gnt("filter replace").code == 1
    assert gnt("filter delete a b").code == 1
    assert master.requests == []


@pytest.mark.parametrize(
    ("option", "part"),
    [
        ("--predicates={}", "predicates must be a list"),
        ("--predicates=7", "predicates must be a list"),
        ("--predicates='[1]'", "a predicate must be a pair"),
        ("--predicates='[[\"nosuch\", []]]'", "there is no kind of predicate 'nosuch'"),
        ("--priority=-1", "priority"),
    ],
)
@pytest.mark.parametrize("command", ["add", f"replace {UUID}"])
def test_a_wrong_rule_is_named_and_not_sent(
    gnt: Gnt, master: FakeMaster, command: str, option: str, part: str
) -> None:
    ended = gnt(f"filter {command} {option}")
    assert ended.code != 0
    assert part in ended.err and "nhandled" not in ended.err
    assert master.requests == []
