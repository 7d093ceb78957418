"""Directories of disk files which have the name of an instance, but hold disks of others, too.

A disk that is detached, and given to another instance, keeps its place. The files are real.
"""

from __future__ import annotations

import posixpath
from pathlib import Path
from typing import Any

import pytest

from fakes import mirror
from fakes.breaking import WEB, create, empty
from fakes.node_side import Cluster
from ganeti.objects import Disk, Instance
from ganeti.opcodes import instance as ops

NEW, OTHER = "www.example.com", "other.example.com"


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    mirror.install(monkeypatch)


class Lab:
    """Instance ``web`` with disks in one directory, and another instance."""

    def __init__(self, directory: Path, template: str) -> None:
        self.cluster: Cluster = empty(directory)
        self.run(create(template, disks=[{"size": 1}] * 3))
        self.run(create(template, instance_name=OTHER, disks=[{"size": 1}]))

    def run(self, op: Any) -> Any:
        return self.cluster.run(op)

    def instance(self, name: str) -> Instance:
        return self.cluster.config.expand_instance(name)

    def disks(self, name: str) -> tuple[Disk, ...]:
        return tuple(self.cluster.config.instance_disks(self.instance(name)))

    def modify(self, name: str, *changes: list[Any]) -> None:
        self.run(ops.OpInstanceSetParams(instance_name=name, disks=list(changes)))

    def give_away(self, index: int = 1) -> Disk:
        """Detach a disk from ``web``, and attach it to the other instance."""
        disk = self.disks(WEB)[index]
        self.modify(WEB, ["detach", index, {}])
        self.modify(OTHER, ["attach", -1, {"uuid": disk.uuid}])
        return disk

    def rename(self, old: str, new: str) -> None:
        self.run(
            ops.OpInstanceRename(instance_name=old, new_name=new, name_check=False, ip_check=False)
        )

    def remove(self, name: str) -> None:
        self.run(ops.OpInstanceRemove(instance_name=name))

    def starts(self, name: str) -> None:
        """The instance can be started with all of its disks, and is stopped again."""
        self.run(ops.OpInstanceStartup(instance_name=name))
        self.run(ops.OpInstanceShutdown(instance_name=name, timeout=0))
        self.cluster.check_clean()

    def place(self, name: str) -> Path:
        """The directory with a name, on the primary node of ``web``."""
        kind = posixpath.dirname(posixpath.dirname(self.disks(WEB)[0].file_id.path))
        node = self.cluster.config.node(self.instance(WEB).primary_node)
        return self.cluster.rpc.root(node.name) / kind.lstrip("/") / name

    def directories(self) -> list[str]:
        """The names of all directories with disks, of all nodes."""
        found = {
            path.name
            for node in self.cluster.config.nodes()
            for kind in ("file-storage", "shared-file-storage")
            for path in (self.cluster.rpc.root(node.name) / "srv/ganeti" / kind).glob("*")
        }
        return sorted(found)


def folder(disk: Disk) -> str:
    return posixpath.basename(posixpath.dirname(disk.file_id.path))


@pytest.fixture(params=["file", "sharedfile"])
def lab(request: pytest.FixtureRequest, tmp_path: Path) -> Lab:
    return Lab(tmp_path / "cluster", request.param)


def test_renaming_a_former_owner_leaves_the_disks_of_others_where_they_are(lab: Lab) -> None:
    disk = lab.give_away()
    lab.rename(WEB, NEW)
    assert lab.cluster.config.disk(disk.uuid).logical_id == disk.logical_id
    assert lab.cluster.job.said("keeps its name, because 1 disks")
    lab.starts(NEW)
    lab.starts(OTHER)


def test_renaming_with_a_detached_disk(lab: Lab) -> None:
    disk = lab.disks(WEB)[2]
    lab.modify(WEB, ["detach", 2, {}])
    lab.rename(WEB, NEW)
    lab.modify(OTHER, ["attach", -1, {"uuid": disk.uuid}])
    lab.starts(OTHER)
    lab.starts(NEW)


def test_renaming_the_present_owner_moves_only_its_own_directory(lab: Lab) -> None:
    """Its first disk may be the one which lies elsewhere."""
    disk = lab.disks(WEB)[1]
    lab.modify(WEB, ["detach", 1, {}])
    lab.modify(OTHER, ["attach", 0, {"uuid": disk.uuid}])
    lab.rename(OTHER, NEW)
    assert [folder(one) for one in lab.disks(NEW)] == [WEB, NEW]
    lab.starts(NEW)
    lab.starts(WEB)


def test_a_former_owner_is_removed_and_the_last_user_takes_the_directory_away(lab: Lab) -> None:
    lab.give_away()
    lab.remove(WEB)
    lab.starts(OTHER)
    assert lab.directories() == [OTHER, WEB]
    lab.remove(OTHER)
    assert lab.directories() == []
    lab.cluster.check_clean()


def test_the_present_owner_is_removed_first(lab: Lab) -> None:
    lab.give_away()
    lab.remove(OTHER)
    assert lab.directories() == [WEB]
    lab.starts(WEB)
    lab.remove(WEB)
    assert lab.directories() == []


def test_removing_the_last_disk_in_a_directory_removes_it(lab: Lab) -> None:
    lab.give_away()
    lab.remove(WEB)
    lab.modify(OTHER, ["remove", 1, {}])
    assert lab.directories() == [OTHER]
    lab.starts(OTHER)


def test_a_new_disk_goes_into_the_own_directory(lab: Lab) -> None:
    """The first disk of the instance lies in the directory of another one."""
    disk = lab.disks(WEB)[1]
    lab.modify(WEB, ["detach", 1, {}])
    lab.modify(OTHER, ["attach", 0, {"uuid": disk.uuid}])
    lab.modify(OTHER, ["add", -1, {"size": 1}])
    assert [folder(one) for one in lab.disks(OTHER)] == [WEB, OTHER, OTHER]
    lab.remove(WEB)
    lab.starts(OTHER)


def test_another_instance_takes_the_name_of_a_former_owner(lab: Lab) -> None:
    """It shares the directory, and takes nothing of it away."""
    template = lab.disks(WEB)[0].dev_type
    lab.give_away()
    lab.rename(WEB, NEW)
    lab.run(create(template, disks=[{"size": 1}]))
    lab.rename(WEB, "third.example.com")
    for name in ("third.example.com", NEW, OTHER):
        lab.starts(name)
    lab.remove("third.example.com")
    lab.remove(NEW)
    lab.starts(OTHER)


def test_files_of_others_do_not_keep_an_instance_from_its_removal(lab: Lab) -> None:
    """Once its disks are gone, nothing is left to be repeated."""
    directory = lab.place(WEB)
    (directory / "notes").write_text("by hand")
    lab.remove(WEB)
    assert lab.cluster.job.said("/web.example.com stays on node node1.example.com")
    assert [path.name for path in directory.iterdir()] == ["notes"]
    assert all(one.name != WEB for one in lab.cluster.config.instances())


def test_a_directory_of_the_new_name_does_not_keep_an_instance_from_its_renaming(lab: Lab) -> None:
    """A former owner, or a disk which was detached from one, may have left it."""
    left = lab.place(NEW)
    left.mkdir()
    (left / "old disk").write_text("precious")
    lab.rename(WEB, NEW)
    assert lab.cluster.job.said("/web.example.com keeps its name on node node1.example.com")
    assert not lab.cluster.job.said("could not be removed or undone")
    assert {folder(one) for one in lab.disks(NEW)} == {WEB}
    assert (left / "old disk").read_text() == "precious"
    lab.run(ops.OpInstanceStartup(instance_name=NEW))
    lab.run(ops.OpInstanceShutdown(instance_name=NEW, timeout=0))
    lab.remove(NEW)
    assert lab.directories() == sorted([OTHER, NEW])
