"""The words for rights, and what they allow."""

from __future__ import annotations

import pytest

from ganeti.rapi.declare import ANYBODY, READERS, USERS, WRITERS
from ganeti.rapi.resources import RESOURCES
from ganeti.rapi.rights import ROLES, Rights, parse
from ganeti.rapi.selectors import Facts, Selector

HANDLERS = {resource.handler for resource in RESOURCES}
WEB = Facts("web1.example.com", "u1", frozenset({"web", "owner:alice"}), frozenset({"rack1"}))
DB = Facts("db1.example.com", "u2", frozenset({"db"}), frozenset({"rack2"}))
POOLS = {"shop": (Selector("tag", "web"),)}


def rights(text: str, roles: dict[str, frozenset[str]] | None = None) -> Rights:
    found, problems = parse(text, {**ROLES, **(roles or {})}, HANDLERS)
    assert not problems
    return found


def may(one: Rights, needed: frozenset[str], handler: str, method: str, facts: Facts) -> bool:
    area = one.area("alice", needed, handler, method)
    assert one.may(needed, handler, method) == (area is None or bool(area.choices))
    return area is None or area.has(facts, POOLS)


START = (WRITERS, "instances_name_startup", "PUT")
CONSOLE = (READERS, "instances_name_console", "GET")
QUERY = (READERS, "query", "GET")
TAGS = (WRITERS, "instances_name_tags", "PUT")
LIST = (ANYBODY, "instances", "GET")
INFO = (USERS, "instances_name_info", "GET")


@pytest.mark.parametrize(
    ("words", "on_web", "on_db"),
    [
        ("", [LIST, INFO], [LIST, INFO]),
        ("write", [START, CONSOLE, QUERY, TAGS, LIST, INFO], [START, CONSOLE, QUERY, TAGS]),
        ("read", [CONSOLE, QUERY, LIST, INFO], [CONSOLE, QUERY]),
        ("@viewer", [QUERY, LIST, INFO], [QUERY]),
        ("@console", [CONSOLE, LIST, INFO], [CONSOLE]),
        ("@operator", [START, CONSOLE, QUERY, LIST, INFO], [START, CONSOLE, QUERY]),
        ("operator@tag:web", [START, CONSOLE, QUERY, LIST, INFO], []),
        ("@operator@tag:web", [START, CONSOLE, QUERY, LIST, INFO], []),
        ("write@own", [START, CONSOLE, QUERY, TAGS, LIST, INFO], []),
        ("write@pool:shop", [START, CONSOLE, QUERY, TAGS, LIST, INFO], []),
        ("write@group:rack2", [], [START, CONSOLE, QUERY, TAGS, LIST, INFO]),
        ("viewer@tag:web,console@tag:db", [QUERY, LIST, INFO], [CONSOLE, LIST, INFO]),
        ("instances_name_tags:PUT@instance:web1", [TAGS, LIST, INFO], []),
        ("read,instances_name_startup@tag:web", [START, CONSOLE, QUERY], [CONSOLE, QUERY]),
        ("view@tag:db,instances_name_tags", [TAGS], [QUERY, TAGS]),
    ],
)
def test_what_words_allow(words: str, on_web: list, on_db: list) -> None:
    one = rights(words)
    for facts, allowed in ((WEB, on_web), (DB, on_db)):
        found = [case for case in (START, CONSOLE, QUERY, TAGS) if may(one, *case, facts)]
        assert found == [case for case in allowed if case not in (LIST, INFO)], facts.name
    for case in (LIST, INFO):
        if case in on_web or case in on_db:
            assert may(one, *case, WEB) == (case in on_web or not one.limited)


def test_who_is_limited() -> None:
    assert not any(rights(words).limited for words in ("", "read", "write", "view", "console"))
    assert not rights("read,write@tag:web").limited
    assert rights("write@tag:web,documents_name").limited
    # A right for the whole cluster that is named counts for the limited user, too.
    seen = rights("write@tag:web,nodes").area("alice", ANYBODY, "nodes", "GET")
    assert seen is None
    assert rights("write@tag:web").area("alice", ANYBODY, "nodes", "GET") is not None


def test_a_mistake_shows_nothing() -> None:
    for words in ("write@tga:web", "@tenant", "writ@tag:web", "write@"):
        found, problems = parse(words, ROLES, HANDLERS)
        assert len(problems) == 1 and "is not a right" in problems[0]
        assert found.limited and not may(found, *LIST, WEB)
        assert not found.may(WRITERS, "instances_name", "DELETE")
    # A word without a selector has no effect, as ever.
    found, problems = parse("writ", ROLES, HANDLERS)
    assert problems == ["'writ' is not a right. Did you mean 'write'?"] and not found.limited


def test_a_role_of_the_file() -> None:
    roles = {"@tenant": frozenset({"write@own", "networks"})}
    one = rights("@tenant", roles)
    assert one.words == {"networks"} and may(one, *START, WEB) and not may(one, *START, DB)
    # Both selectors have to hold.
    both = rights("@tenant@group:rack1", roles)
    assert may(both, *START, WEB)
    assert not may(rights("tenant@group:rack2", roles), *START, WEB)


def test_rights_within_others() -> None:
    token, owner = rights("write"), rights("operator@tag:web")
    both = token.within(owner)
    assert both.limited and may(both, *START, WEB) and not may(both, *START, DB)
    assert not both.may(*TAGS)
    narrow = rights("instances_name_startup@group:rack1").within(owner)
    assert may(narrow, *START, WEB) and not narrow.may(*QUERY)
    assert not may(rights("write@group:rack2").within(owner), *START, WEB)
    assert not rights("write@tag:web").within(rights("read")).may(*START)
    # Rights which the owner has lost are lost for his token.
    assert not token.within(Rights()).may(*START)


def test_which_right_decides() -> None:
    one = rights("@viewer,operator@tag:web,instances_name_startup:PUT")
    assert one.deciding(*START) == ["instances_name_startup:PUT", "instances_name_startup@tag:web"]
    assert one.deciding(*QUERY) == ["view", "read@tag:web"]
    assert one.deciding(*LIST) == ["this operation needs no right"]
    assert rights("write@own").deciding(*LIST) == ["write@own"]
    assert one.deciding(*TAGS) == []
