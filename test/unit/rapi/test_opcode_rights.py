"""Who may submit which opcode with ``POST /2/jobs``."""

from __future__ import annotations

from typing import Any

import pytest

from ganeti import opcodes
from ganeti.http.messages import Refused
from ganeti.rapi import opcode_rights, rights
from ganeti.rapi.resources import RESOURCES
from ganeti.rapi.users import User

OFFERS = opcode_rights.offers(RESOURCES)
HANDLERS = {resource.handler for resource in RESOURCES}


def user(words: str) -> User:
    found, problems = rights.parse(words, rights.ROLES, HANDLERS)
    assert not problems
    return User("jill", found)


def refusal(words: str, op_id: str, **params: Any) -> str:
    """Return why a user with these rights may not submit an opcode; empty if he may."""
    (op,) = opcode_rights.from_dicts([{"OP_ID": op_id, **params}])
    try:
        opcode_rights.check(OFFERS, user(words), [op])
    except Refused as err:
        assert err.status == 403
        return str(err)
    return ""


def test_every_opcode_has_exactly_one_answer() -> None:
    answers = [*OFFERS, *opcode_rights.WITHOUT_OPERATION, *opcode_rights.ONLY_ON_THE_MASTER]
    assert sorted(answers) == list(opcodes.op_ids())


def test_the_right_of_an_operation_is_the_right_of_its_opcode() -> None:
    start: dict[str, Any] = {"op_id": "OP_INSTANCE_STARTUP", "instance_name": "web1"}
    for words in ("write", "@operator", "instances_name_startup", "instances_name_startup:PUT"):
        assert not refusal(words, **start), words
    for words in ("read", "instances_name_startup:GET", "instances_name_shutdown"):
        assert "may not submit OP_INSTANCE_STARTUP" in refusal(words, **start), words
    details: dict[str, Any] = {"op_id": "OP_INSTANCE_QUERY_DATA", "instances": ["web1"]}
    assert not refusal("read", **details)


def test_only_parameters_which_the_operation_takes() -> None:
    tags: dict[str, Any] = {"op_id": "OP_TAGS_SET", "name": "web1", "tags": ["a"]}
    assert not refusal("write", **tags, kind="instance")
    # The operation makes this parameter of its path.
    assert refusal("instances_name_tags", **tags, kind="cluster")
    # A role is a small part of what this opcode may change.
    role: dict[str, Any] = {"op_id": "OP_NODE_SET_PARAMS", "node_name": "node1"}
    assert refusal("nodes_name_role", **role, secondary_ip="192.0.2.9")
    assert not refusal("nodes_name_modify", **role, secondary_ip="192.0.2.9")
    remove: dict[str, Any] = {"op_id": "OP_INSTANCE_REMOVE", "instance_name": "web1"}
    assert not refusal("instances_name", **remove)
    assert refusal("instances_name", **remove, ignore_failures=True)
    assert not refusal("write", **remove, ignore_failures=True)
    tools: dict[str, Any] = {"op_id": "OP_CLUSTER_SET_PARAMS", "compression_tools": ["gzip"]}
    assert refusal("write", **tools)


def test_commands_without_an_operation() -> None:
    assert not refusal("write", "OP_CLUSTER_VERIFY_CONFIG")
    assert refusal("read", "OP_CLUSTER_VERIFY_CONFIG")
    assert not refusal("read", "OP_TAGS_SEARCH", pattern="x")


def test_the_console_needs_the_right_for_consoles() -> None:
    console: dict[str, Any] = {"op_id": "OP_INSTANCE_CONSOLE", "instance_name": "web1"}
    for words in ("read", "write", "console", "instances_name_console"):
        assert not refusal(words, **console), words
    for words in ("view", "instances_name_startup"):
        assert refusal(words, **console), words


def test_what_only_the_master_submits() -> None:
    for op_id, params in {
        "OP_CLUSTER_DESTROY": {},
        "OP_RESTRICTED_COMMAND": {"nodes": ["node1"], "command": "x"},
    }.items():
        why = refusal("write", op_id, **params)
        assert why.startswith(f"{op_id} needs a command on the master, because "), why


def test_one_opcode_of_several() -> None:
    ops = opcode_rights.from_dicts(
        [
            {"OP_ID": "OP_INSTANCE_STARTUP", "instance_name": "web1"},
            {"OP_ID": "OP_INSTANCE_REMOVE", "instance_name": "web1"},
        ]
    )
    with pytest.raises(Refused, match="OP_INSTANCE_REMOVE"):
        opcode_rights.check(OFFERS, user("@operator"), ops)
