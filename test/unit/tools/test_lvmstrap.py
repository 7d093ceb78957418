"""``lvmstrap``: what is on the disks, which of them are used, and the commands."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from ganeti import errors
from ganeti.tools import lvmstrap
from ganeti.utils import process


def device(name: str, type_: str = "disk", **values: Any) -> dict[str, Any]:
    return {
        "name": name, "path": f"/dev/{name}", "type": type_, "size": 10 << 30, "rm": False,
        "ro": False, "mountpoints": [None], "fstype": None, "pttype": None, **values,
    }  # fmt: skip


DISKS = [
    device("sda", pttype="gpt", children=[device("sda1", "part", mountpoints=["/"])]),
    device("sdb"),
    device("sdc", rm=True),
    device("sdd", fstype="LVM2_member", children=[device("vg-lv", "lvm")]),
    device("sde", fstype="ext4"),
    device("sdf", pttype="dos", children=[device("sdf1", "part", fstype="linux_raid_member",
                                                 children=[device("md0", "raid1")])]),
    device("sdg", ro=True),
    device("nvme0n1"),
    device("sr0", "rom"),
    device("loop0", "loop", size=0),
]  # fmt: skip
LSBLK = json.dumps({"blockdevices": DISKS})


class Machine:
    """Answers lsblk and vgs, and records the other commands."""

    def __init__(self, groups: str = "", **signatures: str) -> None:
        self.groups = groups
        self.signatures = signatures
        self.ran: list[tuple[list[str], Any]] = []

    def __call__(self, argv: Sequence[str], **values: Any) -> process.Completed:
        out = {"lsblk": LSBLK, "vgs": self.groups}.get(argv[0], "")
        if argv[:3] == ["wipefs", "--json", "--no-act"]:
            kind = self.signatures.get(argv[3].removeprefix("/dev/"))
            out = json.dumps({"signatures": [{"type": kind}]}) if kind else ""
        elif argv[0] not in ("lsblk", "vgs"):
            self.ran.append((list(argv), values.get("stdin")))
        return process.Completed(tuple(argv), 0, out, "", None)


def options(*argv: str) -> argparse.Namespace:
    return lvmstrap.make_parser().parse_args(argv)


def test_what_is_on_the_disks() -> None:
    found = {disk.name: disk for disk in lvmstrap.parse_lsblk(LSBLK)}
    assert sorted(found) == ["nvme0n1", "sda", "sdb", "sdc", "sdd", "sde", "sdf", "sdg"]
    assert found["sda"].used_by == "mounted on /" and found["sda"].content == "gpt, partitions"
    assert found["sdd"].used_by == "part of vg-lv (lvm); a physical volume of LVM"
    assert found["sdf"].used_by == "part of md0 (raid1)"
    assert (found["sde"].content, found["sde"].used_by) == ("ext4", "")
    assert found["sdb"].content == found["sdb"].used_by == ""


@pytest.mark.parametrize("text", ["", "{}", '{"blockdevices": [{}]}', '{"blockdevices": 1}'])
def test_other_output_is_refused(text: str) -> None:
    with pytest.raises(errors.ParseError):
        lvmstrap.parse_lsblk(text)


def test_only_empty_disks_are_all_disks() -> None:
    machine = Machine()
    assert lvmstrap.run(options("create", "--alldisks"), machine) == 0
    assert machine.ran == [
        (["pvcreate", "--yes", "/dev/sdb"], None),
        (["pvcreate", "--yes", "/dev/nvme0n1"], None),
        (["vgcreate", "xenvg", "/dev/sdb", "/dev/nvme0n1"], None),
    ]


def test_partitions_are_made(capsys: pytest.CaptureFixture[str]) -> None:
    machine = Machine()
    lvmstrap.run(
        options("create", "-d", "nvme0n1,/dev/sdb", "--use-sfdisk", "-g", "vg1", "-v"), machine
    )
    assert machine.ran[0] == (
        ["sfdisk", "--quiet", "--wipe=always", "--label=dos", "/dev/nvme0n1"], ",,8e\n",
    )  # fmt: skip
    assert machine.ran[-1][0] == ["vgcreate", "vg1", "/dev/nvme0n1p1", "/dev/sdb1"]
    assert "pvcreate --yes /dev/sdb1" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "why"),
    [
        (["-d", "sda"], "in use: mounted on /"),
        (["-d", "sda", "--force"], "in use: mounted on /"),
        (["-d", "sdd", "--force"], "physical volume"),
        (["-d", "sdf", "--force"], "md0"),
        (["-d", "sde"], "not empty: ext4"),
        (["-d", "sdc"], "removable"),
        (["-d", "sdg"], "read-only"),
        (["-d", "sdz"], "no disk"),
        ([], "either"),
        (["--alldisks", "-d", "sdb"], "either"),
        (["--alldisks", "-g", "a b"], "a b"),
    ],
)
def test_refusals_change_nothing(argv: list[str], why: str) -> None:
    machine = Machine()
    with pytest.raises(errors.OpPrereqError, match=why):
        lvmstrap.run(options("create", *argv), machine)
    assert machine.ran == []


def test_content_is_overwritten_when_that_is_allowed() -> None:
    machine = Machine()
    lvmstrap.run(options("create", "-d", "sde,sdc", "-f", "-r"), machine)
    assert machine.ran[0][0] == ["wipefs", "--all", "--quiet", "/dev/sde"]
    assert machine.ran[-1][0] == ["vgcreate", "xenvg", "/dev/sde", "/dev/sdc"]


@pytest.mark.parametrize(("kind", "why"), [("xfs", "not empty: xfs"), ("LVM2_member", "LVM")])
def test_what_only_the_disk_itself_says(kind: str, why: str) -> None:
    """Without udev, lsblk does not know what is on a disk."""
    machine = Machine(sdb=kind)
    with pytest.raises(errors.OpPrereqError, match=why):
        lvmstrap.run(options("create", "-d", "sdb"), machine)
    lvmstrap.run(options("create", "--alldisks"), machine)
    assert machine.ran[-1][0] == ["vgcreate", "xenvg", "/dev/nvme0n1"]


@pytest.mark.parametrize("text", ["[]", "{}", '{"signatures": [1]}', "x"])
def test_other_output_of_wipefs_is_refused(text: str) -> None:
    with pytest.raises(errors.ParseError):
        lvmstrap.parse_wipefs(text)


def test_an_existing_group_is_not_changed() -> None:
    machine = Machine("  xenvg|51200.00|wz--n-|102400.00\n")
    with pytest.raises(errors.OpPrereqError, match="vgextend"):
        lvmstrap.run(options("create", "--alldisks"), machine)
    assert machine.ran == []


def test_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert lvmstrap.run(options("diskinfo"), Machine()) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["sda", "10.0", "GiB", "is", "in", "use:", "mounted", "on", "/"]
    assert lines[1].endswith("can be used")


@pytest.fixture
def loop(tmp_path: Path) -> Iterator[str]:
    """An empty loop device of 64 MiB."""
    image = tmp_path / "disk"
    image.touch()
    os.truncate(image, 64 << 20)
    made = subprocess.run(
        ["losetup", "--find", "--show", image], capture_output=True, text=True, check=False
    )
    if made.returncode:
        pytest.skip(f"loop devices cannot be made: {made.stderr.strip()}")
    yield made.stdout.strip()
    subprocess.run(["losetup", "--detach", made.stdout.strip()], check=True)


@pytest.mark.programs
@pytest.mark.skipif(
    os.geteuid() != 0 or not all(map(shutil.which, ("lsblk", "losetup", "vgcreate"))),
    reason="needs root and LVM (lvm2)",
)
def test_a_real_disk(loop: str, capsys: pytest.CaptureFixture[str]) -> None:
    name = f"gnttest{os.getpid()}"
    done = subprocess.run(["pvcreate", "--test", "--yes", loop], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"LVM does not work here: {done.stderr.strip()[-200:]}")
    try:
        assert lvmstrap.main(["create", "-d", loop, "-g", name]) == 0
        capsys.readouterr()
        assert lvmstrap.main(["create", "-d", loop, "-g", f"{name}b", "--force"]) == 1
        assert "is in use: a physical volume of LVM" in capsys.readouterr().err
    finally:
        subprocess.run(["vgremove", "--force", name], check=False)
        subprocess.run(["pvremove", "--force", "--yes", loop], check=False)
