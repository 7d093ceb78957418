"""The driver with pretended programs: wherever one fails or dies, nothing stays mounted."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fakes.config import cluster_of, disk_of, instance_of
from ganeti import errors
from ganeti.hypervisor import rootfs
from ganeti.hypervisor.base import AttachedDisk
from ganeti.hypervisor.chroot import driver
from ganeti.hypervisor.chroot.driver import ChrootHypervisor
from ganeti.objects import fill, hvparams
from ganeti.objects.instance import FilledInstance
from ganeti.platform import paths
from ganeti.utils import process


class Node:
    """Mounts which are lines of a file.

    :ivar fails: number of the program which fails.
    :ivar dies: number of the program with which the caller's process ends.
    """

    def __init__(self, table: Path) -> None:
        self.table = table
        self.programs: list[list[str]] = []
        self.fails: int | None = None
        self.dies: int | None = None
        table.write_text("")

    def mounts(self) -> list[str]:
        return self.table.read_text().splitlines()

    def run(self, argv: Sequence[str], *, check: bool = True, **_: object) -> process.Completed:
        self.programs.append(list(argv))
        failing = self.fails == len(self.programs)
        if not failing and argv[0].endswith("umount"):
            self.table.write_text("".join(f"{m}\n" for m in self.mounts() if m != argv[-1]))
        elif not failing and argv[0].endswith("mount"):
            self.table.write_text("".join(f"{m}\n" for m in [*self.mounts(), argv[-1]]))
        if self.dies == len(self.programs):
            os._exit(0)
        if failing and check:
            raise errors.CommandError(list(argv), 1, "it fails")
        out = "TYPE=ext4\n" if argv[0] == "blkid" else ""
        return process.Completed(tuple(argv), int(failing), out, "", None)


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    monkeypatch.setenv("GANETI_ROOTDIR", str(tmp_path / "node"))
    made = Node(tmp_path / "mounts")
    monkeypatch.setattr(process, "run", made.run)
    monkeypatch.setattr(driver, "_mounts", made.mounts)
    monkeypatch.setattr(driver, "_users", lambda _root: [])
    monkeypatch.setattr(rootfs, "is_in_use", lambda _path: False)
    return made


@pytest.fixture
def mail(tmp_path: Path) -> tuple[FilledInstance, list[AttachedDisk]]:
    disk = disk_of("mail")
    cluster = cluster_of(1, (instance_of("mail", disks=(disk.uuid,)),), (disk,))
    filled = fill.filled_instance(cluster, next(iter(cluster.instances.values())))
    image = tmp_path / "disk.raw"
    image.write_bytes(bytes(512))
    instance = replace(
        filled, name="mail", hypervisor="chroot", hvparams=hvparams.defaults("chroot"), nics=()
    )
    return instance, [AttachedDisk(disk, str(image))]


def left(node: Node) -> list[str]:
    """What an instance has left: mounts and files."""
    top = Path(paths.current().chroot_root)
    names = [path.name for path in top.iterdir()] if top.exists() else []
    return node.mounts() + [name for name in names if name != ".lock"]


def test_life(node: Node, mail: Any) -> None:
    instance, disks = mail
    guest = ChrootHypervisor()
    guest.start(instance, disks)
    root = f"{os.path.realpath(paths.current().chroot_root)}/mail"
    assert guest.list_instances() == ["mail"] and node.mounts() == [root]
    assert node.programs[-1] == ["chroot", root, "/ganeti-chroot", "start"]
    assert guest.complete_start(instance)
    with pytest.raises(errors.HypervisorError, match="is running already"):
        guest.start(instance, disks)
    # What was mounted below by its script is unmounted first.
    node.table.write_text(f"{root}\n{root}/proc\n")
    node.programs.clear()
    guest.stop("mail", instance.hvparams)
    assert [argv[-1] for argv in node.programs] == ["stop", f"{root}/proc", root]
    assert left(node) == []


def test_the_script_is_the_parameter(node: Node, mail: Any) -> None:
    """The table has one parameter, and its value is what runs."""
    instance, disks = mail
    assert list(hvparams.defaults("chroot")) == ["init_script"]
    ChrootHypervisor().start(replace(instance, hvparams={"init_script": "/etc/run it"}), disks)
    assert node.programs[-1][2:] == ["/etc/run it", "start"]


def test_a_start_whose_script_did_not_end_is_removed(node: Node, mail: Any) -> None:
    """The node daemon died while the script ran, before it recorded that the instance runs."""
    instance, disks = mail
    guest = ChrootHypervisor()
    guest.start(instance, disks)
    root = os.path.realpath(f"{paths.current().chroot_root}/mail")
    os.unlink(driver._state_file(root))
    assert not guest.complete_start(instance)
    assert not guest.is_running("mail") and left(node) == []


def test_a_failure_at_every_step_leaves_nothing(node: Node, mail: Any) -> None:
    instance, disks = mail
    guest = ChrootHypervisor()
    guest.start(instance, disks)
    steps = len(node.programs)
    guest.stop("mail", {}, force=True)
    for number in range(1, steps + 1):
        node.programs.clear()
        node.fails = number
        with pytest.raises(errors.HypervisorError):
            guest.start(instance, disks)
        assert left(node) == []


def test_a_script_which_does_not_stop(node: Node, mail: Any) -> None:
    instance, disks = mail
    guest = ChrootHypervisor()
    guest.start(instance, disks)
    node.fails = len(node.programs) + 1
    with pytest.raises(errors.HypervisorError, match="its script does not stop it"):
        guest.stop("mail", instance.hvparams)
    assert guest.is_running("mail")
    node.fails = len(node.programs) + 1
    guest.stop("mail", instance.hvparams, force=True)
    assert left(node) == []


@pytest.mark.parametrize("what", ["start", "stop", "reboot"])
def test_an_operation_which_dies_is_completed_by_the_next_one(
    node: Node, mail: Any, what: str
) -> None:
    """Wherever the process of the node call ends, the same operation sets it right."""
    instance, disks = mail
    guest = ChrootHypervisor()

    def start() -> None:
        if not (guest.is_running("mail") and guest.complete_start(instance)):
            guest.start(instance, disks)

    work: dict[str, Callable[[], object]] = {
        "start": start,
        "stop": lambda: guest.stop("mail", instance.hvparams),
        "reboot": lambda: guest.reboot(instance, disks, timeout_s=1),
    }
    for number in itertools.count(1):
        if what != "start":
            start()
        child = os.fork()
        if child == 0:
            node.dies = number
            node.programs.clear()
            try:
                work[what]()
            finally:
                os._exit(1)
        died = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        (start if what == "reboot" else work[what])()
        assert guest.is_running("mail") == (what != "stop")
        guest.stop("mail", {}, force=True)
        guest.cleanup("mail")
        assert left(node) == []
        if not died:
            break
    assert number > 2
