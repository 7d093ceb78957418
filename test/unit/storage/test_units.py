"""Storage units: commands, readers of their output, directories."""

from __future__ import annotations

import os

import pytest

from ganeti import errors
from ganeti.backend.storage import units as storage_units
from ganeti.platform import paths
from ganeti.storage import units
from ganeti.utils.process import Completed

PVS = "  /dev/sda3|9996.00|4096.00|5900.00|a--\n  /dev/sdb1|100.00|0|100.00|u--\n"
VGS = "  xenvg|10096.00|6000.00\n"
LVS = "  disk0|1024.00|/dev/sda3(0)|xenvg\n  disk1|2048.00|/dev/sda3(256),/dev/sdb1(0)|xenvg\n"


class Programs:
    """LVM as far as these functions see it; ``outputs``: program -> (exit code, output)."""

    def __init__(self, **outputs):
        self.outputs = outputs
        self.seen = []

    def __call__(self, argv, *, timeout_s, check=True):
        self.seen.append(argv)
        code, out = self.outputs.get(argv[0], (0, ""))
        if isinstance(out, list):
            out = out.pop(0)
        if check and code:
            raise errors.CommandError(argv, code, out)
        return Completed(tuple(argv), code, out, "", None)


def test_physical_volumes():
    run = Programs(pvs=(0, PVS))
    rows = units.list_units("lvm-pv", [], None, units.FIELDS, run)
    assert rows == [["/dev/sda3", 9996, 4096, 5900, True], ["/dev/sdb1", 100, 0, 100, False]]
    assert run.seen == [
        [
            "pvs",
            "--noheadings",
            "--units=m",
            "--nosuffix",
            "--separator",
            "|",
            "--options",
            "pv_name,pv_size,pv_used,pv_free,pv_attr",
        ]
    ]


def test_volume_groups():
    run = Programs(vgs=(0, VGS))
    assert units.list_units("lvm-vg", [], "xenvg", ["name", "used"], run) == [["xenvg", 4096]]
    assert run.seen[0][-1] == "xenvg"


def test_logical_volumes_have_a_row_for_each_device():
    assert units.volumes(Programs(lvs=(0, LVS))) == [
        {"name": "disk0", "size": 1024, "vg": "xenvg", "dev": "/dev/sda3"},
        {"name": "disk1", "size": 2048, "vg": "xenvg", "dev": "/dev/sda3"},
        {"name": "disk1", "size": 2048, "vg": "xenvg", "dev": "/dev/sdb1"},
    ]


@pytest.mark.parametrize("text", ["xenvg|1", "xenvg|a|b", "no volume groups found"])
def test_output_that_makes_no_sense(text):
    with pytest.raises(errors.StorageError, match="lvm-vg"):
        units.list_units("lvm-vg", [], None, ["name"], Programs(vgs=(0, text)))


def test_lvm_that_fails():
    with pytest.raises(errors.StorageError, match="oops"):
        units.volumes(Programs(lvs=(5, "oops")))


def test_a_unit_that_is_not_there():
    with pytest.raises(errors.StorageError, match="nosuch"):
        units.list_units("lvm-vg", [], "nosuch", ["name"], Programs())


def test_directories(tmp_path):
    with paths.override(paths.Paths(str(tmp_path))):
        os.makedirs(tmp_path / "srv/disks/inst")
        (tmp_path / "srv/disks/inst/d0").write_bytes(b"x" * (3 << 20))
        [[name, size, used, free, allocatable]] = storage_units.storage_list(
            "file", [["/srv/disks"]], None, list(units.FIELDS)
        )
        assert name == "/srv/disks"
        assert used == 3
        assert size >= free >= 0
        assert allocatable is True
        with pytest.raises(errors.FileStoragePathError):
            storage_units.storage_list("file", [["/etc"]], None, ["name"])
        with pytest.raises(errors.ParameterError):
            storage_units.storage_list("file", ["/srv"], None, ["name"])


def test_unknown_kind_and_field():
    with pytest.raises(errors.StorageError, match="rados"):
        units.list_units("rados", [], None, ["name"])
    with pytest.raises(errors.StorageError, match="colour"):
        units.list_units("file", [], None, ["colour"])


@pytest.mark.parametrize(("allowed", "letter"), [(True, "y"), (False, "n")])
def test_closing_a_physical_volume(allowed, letter):
    run = Programs()
    units.modify("lvm-pv", "/dev/sda3", {"allocatable": allowed}, run)
    assert run.seen == [["pvchange", "--allocatable", letter, "/dev/sda3"]]


@pytest.mark.parametrize(
    ("kind", "name", "changes"),
    [
        ("lvm-vg", "xenvg", {"allocatable": True}),
        ("lvm-pv", "/dev/sda3", {}),
        ("lvm-pv", "/dev/sda3", {"size": 3}),
        ("lvm-pv", "/dev/sda3", {"allocatable": "yes"}),
        ("lvm-pv", "--all", {"allocatable": True}),
    ],
)
def test_what_cannot_be_changed(kind, name, changes):
    with pytest.raises(errors.StorageError):
        units.modify(kind, name, changes, Programs())


def test_repair_forces_only_when_needed():
    good = Programs(vgreduce=(0, "  Wrote out consistent volume group xenvg"))
    units.execute("lvm-vg", "xenvg", units.FIX_CONSISTENCY, good)
    assert good.seen == [
        ["vgreduce", "--removemissing", "xenvg"],
        ["vgs", "--noheadings", "--nosuffix", "xenvg"],
    ]
    stubborn = Programs(vgreduce=(0, "  There are still partial LVs"))
    units.execute("lvm-vg", "xenvg", units.FIX_CONSISTENCY, stubborn)
    assert ["vgreduce", "--removemissing", "--force", "xenvg"] in stubborn.seen


def test_repair_that_does_not_help():
    run = Programs(
        vgreduce=(0, "Wrote out consistent volume group"),
        vgs=(0, "Couldn't find device with uuid x"),
    )
    with pytest.raises(errors.StorageError, match="still lacks"):
        units.execute("lvm-vg", "xenvg", units.FIX_CONSISTENCY, run)
    for kind, operation in (("lvm-pv", units.FIX_CONSISTENCY), ("lvm-vg", "shrink")):
        with pytest.raises(errors.StorageError):
            units.execute(kind, "xenvg", operation, run)


class OneBroken(Programs):
    """LVM with one volume group, or physical volume, which makes each list fail."""

    def __call__(self, argv, *, timeout_s, check=True):
        self.seen.append(argv)
        asked = argv[-1]
        if asked == "broken" or (check and asked.startswith("--options=")) or "," in asked:
            raise errors.CommandError(argv, 5, "broken: Input/output error")
        out = {
            ("vgs", "vg_name"): "  broken\n  xenvg\n",
            ("pvs", "pv_name"): "  broken\n  /dev/sda3\n",
            ("vgs", "xenvg"): VGS,
            ("pvs", "/dev/sda3"): PVS.splitlines()[0] + "\n",
            ("lvs", "xenvg"): LVS,
        }[argv[0], asked]
        return Completed(tuple(argv), 5 if asked.endswith("_name") else 0, out, "", None)


@pytest.mark.parametrize(
    ("kind", "good"),
    [
        ("lvm-vg", ["xenvg", 10096, 4096, 6000, True]),
        ("lvm-pv", ["/dev/sda3", 9996, 4096, 5900, True]),
    ],
)
def test_a_broken_unit_of_lvm_does_not_hide_the_others(kind, good):
    first, second = units.list_units(kind, [], None, units.FIELDS, OneBroken(), apart=True)
    assert first == [*good, None]
    assert second[:5] == ["broken", None, None, None, None]
    assert "Input/output error" in second[5]
    with pytest.raises(errors.StorageError, match="Input/output error"):
        units.list_units(kind, [], None, units.FIELDS, OneBroken())


def test_a_broken_volume_group_does_not_hide_the_volumes_of_others():
    problem, *volumes = units.volumes(OneBroken(), apart=True)
    assert [one["name"] for one in volumes] == ["disk0", "disk1", "disk1"]
    assert problem["vg"] == "broken" and "Input/output error" in problem["problem"]
    with pytest.raises(errors.StorageError, match="Input/output error"):
        units.volumes(OneBroken())


def test_lvm_which_names_no_unit_fails_as_a_whole():
    for kind in ("lvm-vg", "lvm-pv"):
        with pytest.raises(errors.StorageError, match="no lock"):
            units.list_units(
                kind, [], None, ["name"], Programs(vgs=(5, "no lock"), pvs=(5, "no lock"))
            )


def test_a_missing_directory_does_not_hide_the_others(tmp_path):
    with paths.override(paths.Paths(str(tmp_path))):
        os.makedirs(tmp_path / "srv/disks")
        asked = ["/srv/none", "/srv/disks"]
        first, second = storage_units.storage_list("file", [asked], None, ["name", "free"], True)
        assert first[0] == "/srv/disks" and first[1] >= 0 and first[2] is None
        assert second[:2] == ["/srv/none", None] and "/srv/none" in second[2]
