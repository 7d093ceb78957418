"""Which nodes see one directory."""

from __future__ import annotations

import pytest

from fakes.config import cluster_of, uuid_of
from fakes.master import Master
from ganeti.cmdlib.ops.disks import same_directory

PATH = "/srv/ganeti/file-storage"
NAMES = [f"node{number}.example.com" for number in range(1, 5)]
UUIDS = [uuid_of(f"node{number}") for number in range(1, 5)]


@pytest.fixture
def rpc():
    return Master(cluster_of(4)).rpc


def test_two_of_four(rpc):
    rpc.one_directory = {NAMES[0], NAMES[2]}
    views = same_directory.compare(rpc, [PATH], UUIDS)[PATH]
    assert sorted(map(sorted, views.groups)) == sorted(
        map(sorted, [(UUIDS[0], UUIDS[2]), (UUIDS[1],), (UUIDS[3],)])
    )
    assert views.shared_with(UUIDS[2]) == (UUIDS[0],)
    assert views.shared_with(UUIDS[1]) == ()
    assert views.unknown == {}
    assert len(rpc.of("directory_unmark")) == 4


def test_who_only_looks_and_sees_nothing_is_in_no_group(rpc):
    rpc.one_directory = {NAMES[0], NAMES[2]}
    views = same_directory.compare(rpc, [PATH], UUIDS[:1], UUIDS[1:3])[PATH]
    assert sorted(map(sorted, views.groups)) == [sorted((UUIDS[0], UUIDS[2]))]
    assert [node for node, _args in rpc.of("directory_mark")] == NAMES[:1]


def test_not_known_is_neither_the_same_nor_another_one(rpc):
    rpc.one_directory = set(NAMES)
    rpc.errors["directory_seen", NAMES[1]] = "lost"
    rpc.answers["directory_mark"] = lambda node, args: {
        PATH: "read-only" if node == NAMES[3] else None
    }
    rpc.answers["directory_seen"] = lambda node, args: {
        PATH: "stale" if node == NAMES[3] else [UUIDS[0], UUIDS[1]]
    }
    views = same_directory.compare(rpc, [PATH], UUIDS)[PATH]
    # The others have seen the mark of the second one.
    assert [sorted(one) for one in views.groups] == [sorted(UUIDS[:3])]
    assert views.unknown == {UUIDS[3]: "read-only"}


def test_marks_are_removed_after_a_failure(rpc):
    rpc.answers["directory_seen"] = lambda node, args: 1 / 0
    with pytest.raises(ZeroDivisionError):
        same_directory.compare(rpc, [PATH], UUIDS)
    assert len(rpc.of("directory_unmark")) == 4
