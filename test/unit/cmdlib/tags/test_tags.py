"""Tags of every kind of object: set, got, searched, removed."""

from __future__ import annotations

import pytest

from fakes.config import GROUP, cluster_of, instance_of
from fakes.master import Master
from ganeti import errors
from ganeti.cmdlib import base
from ganeti.opcodes.tags import OpTagsDel, OpTagsGet, OpTagsSearch, OpTagsSet


@pytest.fixture
def master():
    return Master(cluster_of(2, (instance_of("web", tags=("a", "b")),), tags=("site:lab",)))


@pytest.mark.parametrize(
    ("kind", "name"),
    [("cluster", None), ("instance", "web"), ("node", "node2"), ("nodegroup", "default")],
)
def test_tags_of_every_kind(master, kind, name):
    before = master.run(OpTagsGet(kind=kind, name=name, use_locking=True))
    master.run(OpTagsSet(kind=kind, name=name, tags=["x", "y:z"]))
    assert master.run(OpTagsGet(kind=kind, name=name)) == sorted([*before, "x", "y:z"])
    master.run(OpTagsDel(kind=kind, name=name, tags=["x", "y:z"]))
    assert master.run(OpTagsGet(kind=kind, name=name)) == before


def test_tags_are_removed_all_or_none(master):
    op = OpTagsDel(kind="instance", name="web", tags=["a", "nosuch"])
    assert "nosuch" in master.refused(op, errors.ECODE_NOENT)
    assert master.run(OpTagsGet(kind="instance", name="web")) == ["a", "b"]


@pytest.mark.parametrize(
    ("op", "ecode"),
    [
        (OpTagsSet(kind="instance", name="nosuch", tags=["x"]), errors.ECODE_NOENT),
        (OpTagsSet(kind="instance", tags=["x"]), errors.ECODE_INVAL),
        (OpTagsSet(kind="cluster", tags=["bad tag"]), errors.ECODE_INVAL),
        (OpTagsSet(kind="cluster", tags=["x" * 129]), errors.ECODE_INVAL),
        (OpTagsSet(kind="cluster", tags=[f"t{n}" for n in range(4097)]), errors.ECODE_INVAL),
        (OpTagsSearch(pattern="("), errors.ECODE_INVAL),
        (OpTagsSearch(pattern="(?!a)"), errors.ECODE_INVAL),
    ],
)
def test_tags_are_refused(master, op, ecode):
    master.refused(op, ecode)


def test_search_answers_paths(master):
    assert master.run(OpTagsSearch(pattern="^a$|site:")) == [
        ("/cluster", "site:lab"),
        ("/instances/web.example.com", "a"),
    ]


def test_tags_take_the_lock_of_their_object(master):
    assert GROUP in master.locks.keys(base.Level.NODEGROUP)
