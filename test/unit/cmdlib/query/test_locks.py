"""Queries in jobs: they wait for the locks of their objects only when that is asked for."""

from __future__ import annotations

from typing import Any

import pytest

from fakes.config import cluster_of, disk_of, instance_of, uuid_of
from fakes.master import Master
from ganeti import errors
from ganeti.locking import Level
from ganeti.opcodes.query import OpQuery

NODE1, NODE2 = uuid_of("node1"), uuid_of("node2")


@pytest.fixture
def master() -> Master:
    disks = (disk_of("web"), disk_of("db"))
    instances = (
        instance_of("web", disks=(disks[0].uuid,)),
        instance_of("db", "node2", disks=(disks[1].uuid,)),
    )
    return Master(cluster_of(3, instances, disks))


def held(
    master: Master, monkeypatch: pytest.MonkeyPatch, **params: Any
) -> dict[Level, tuple[set[str], set[str]]]:
    """Keys and modes of the locks at the moment of the query."""
    found = {}

    def look(*args: Any) -> dict[str, Any]:
        for level in (Level.INSTANCE, Level.NODEGROUP, Level.NODE, Level.NETWORK):
            owned = master.locks.owned(master.job.owner, level)
            if owned:
                found[level] = (set(owned), set(map(str, owned.values())))
        return {"fields": [], "data": []}

    monkeypatch.setattr(master.context.queries, "query", look)
    master.run(OpQuery(**{"fields": ["name"], **params}))
    return found


def test_no_locks_unless_they_are_asked_for(
    master: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert held(master, monkeypatch, what="instance") == {}
    assert held(master, monkeypatch, what="os", use_locking=True) == {}


def test_an_instance_with_its_node_and_group(
    master: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = held(
        master, monkeypatch, what="instance", use_locking=True, qfilter=["==", "name", "db"]
    )
    assert found == {
        Level.INSTANCE: ({uuid_of("db")}, {"shared"}),
        Level.NODEGROUP: ({"group-1"}, {"shared"}),
        Level.NODE: ({NODE2}, {"shared"}),
    }


def test_all_instances(master: Master, monkeypatch: pytest.MonkeyPatch) -> None:
    found = held(master, monkeypatch, what="instance", use_locking=True)
    assert found[Level.INSTANCE][0] == {uuid_of("web"), uuid_of("db")}
    assert found[Level.NODE][0] == {NODE1, NODE2}


@pytest.mark.parametrize(
    ("what", "level", "keys"),
    [("node", Level.NODE, {NODE1}), ("group", Level.NODEGROUP, {"group-1"})],
)
def test_others(
    master: Master, monkeypatch: pytest.MonkeyPatch, what: str, level: Level, keys: set[str]
) -> None:
    name = {"node": "node1", "group": "default"}[what]
    by_name = ["|", ["==", "name", name]]
    found = held(master, monkeypatch, what=what, use_locking=True, qfilter=by_name)
    assert found == {level: (keys, {"shared"})}


def test_an_unknown_object(master: Master) -> None:
    op = OpQuery(what="node", fields=["name"], use_locking=True, qfilter=["==", "name", "nosuch"])
    assert "nosuch" in master.refused(op, errors.ECODE_NOENT)
