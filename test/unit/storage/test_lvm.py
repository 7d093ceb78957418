"""Logical volumes: commands, readers, placement, the device."""

from __future__ import annotations

import pytest

from ganeti import errors
from ganeti.backend.node import info
from ganeti.backend.storage import blockdev
from ganeti.backend.storage import lvm as calls
from ganeti.objects import Disk
from ganeti.objects.transfer import LvmPvInfo
from ganeti.storage.lvm import argv, facts, parse, place
from ganeti.storage.lvm.device import LogicalVolumeDevice
from ganeti.utils.process import Completed

LVS = """\
  xenvg|u1.disk0_data|1048576.00|-wi-ao----|253|2|4096.00|1|originstname+web1|/dev/sda(0)
  xenvg|u1.disk0_meta|131072.00|-wi-ao----|253|3|4096.00|1|originstname+web1|/dev/sda(256)
  xenvg|u2.disk0|2097152.00|-wi-------|-1|-1|4096.00|2||/dev/sda(300),/dev/sdb(0)
  xenvg|u2.disk0|1048576.00|-wi-------|-1|-1|4096.00|1||/dev/sdc(7)
  other|lost|4096.00|-wi-a---p-|253|9|4096.00|1||[unknown](0)
"""
PVS = """\
  /dev/sda|xenvg|1024.00|a--|10240.00|u1.disk0_data
  /dev/sda|xenvg|1024.00|a--|10240.00|u1.disk0_meta
  /dev/sdb|xenvg|8192.00|a--|10240.00|
  /dev/sdc|xenvg|4096.00|u--|10240.00|
  /dev/sdd||10240.00|---|10240.00|
  /dev/by:path|xenvg|9999.00|a--|10240.00|
"""
VGS = "  xenvg|13312.00|wz--n-|30720.00\n  other|0|wz-pn-|1024.00\n"


class Tools:
    """LVM with fixed lists; remembers what is changed."""

    def __init__(self, **outputs):
        self.outputs = {"lvs": LVS, "pvs": PVS, "vgs": VGS, **outputs}
        self.commands = []
        self.failures = []

    def __call__(self, words, *, timeout_s, check=True, env=None):
        self.commands.append(list(words))
        code, out = 0, self.outputs.get(words[0], "")
        if words[0] not in ("lvs", "pvs", "vgs") and self.failures:
            code, out = 5, self.failures.pop(0)
        if code and check:
            raise errors.CommandError(words, code, out)
        return Completed(tuple(words), code, out, "", None)

    def changes(self):
        return [" ".join(words) for words in self.commands if words[0] not in ("lvs", "pvs", "vgs")]


@pytest.fixture
def tools():
    found = Tools()
    with facts.use(facts.Lvm(found)):
        yield found


def volume(name="u9.disk0", group="xenvg", **changes):
    return LogicalVolumeDevice(
        Disk(
            **{
                "dev_type": "plain",
                "logical_id": (group, name),
                "size": 512,
                "params": {"stripes": 1},
                **changes,
            }
        )
    )


def test_volumes_are_read_once(tools):
    first = volume("u1.disk0_data")
    assert first.exists() and first.size_bytes() == 1 << 30
    assert volume("u1.disk0_meta").sync_status().is_degraded is False
    assert not volume("nothing").exists()
    assert not volume("nor_this").exists()
    assert [words[0] for words in tools.commands] == ["lvs", "vgs"]


@pytest.mark.parametrize(
    ("group", "outputs", "reason"),
    [
        ("away", {}, "it is not known.*there is no volume group away"),
        ("other", {}, "it is not known.*physical volumes of volume group other are missing"),
        ("xenvg", {"vgs": ""}, "it is not known.*there is no volume group xenvg"),
        ("xenvg", {"vgs": "nonsense\n"}, "cannot query LVM"),
        ("xenvg", {"lvs": "nonsense\n"}, "cannot query LVM"),
    ],
)
def test_what_is_not_listed_is_not_lost(group, outputs, reason):
    with facts.use(facts.Lvm(Tools(**outputs))):
        one = volume("nothing", group)
        with pytest.raises(errors.BlockDeviceError, match=reason):
            one.exists()


def test_a_volume_of_a_missing_group_is_not_taken_for_removed():
    tools = Tools(vgs="")
    tools.failures = ['Volume group "xenvg" not found']
    with (
        facts.use(facts.Lvm(tools)),
        pytest.raises(errors.BlockDeviceError, match="there is no volume group"),
    ):
        volume("nothing").remove()
    # Of a group which is there, it is.
    tools = Tools()
    tools.failures = ["Failed to find logical volume"]
    with facts.use(facts.Lvm(tools)):
        volume("nothing").remove()


def test_a_volume_which_broken_commands_have_made_is_removed_again():
    tools = Tools()
    volume_line = "  xenvg|new|524288.00|-wi-a-----|253|9|4096.00|1||/dev/sda(0)\n"

    def run(words, **options):
        if words[0] == "lvcreate":
            tools.outputs["lvs"] = LVS + volume_line
            raise errors.CommandTimeout(words, 600.0, "")
        return tools(words, **options)

    with facts.use(facts.Lvm(run)):
        with pytest.raises(errors.BlockDeviceError, match="cannot be created") as caught:
            volume("new").create(512)
        assert not isinstance(caught.value, errors.DeviceCreationError)
        assert tools.changes() == ["lvremove -f xenvg/new"]
        # If that fails, too, the caller learns what is left.
        tools.outputs["lvs"] = LVS
        tools.failures = ["in use"]
        with pytest.raises(errors.DeviceCreationError, match="left incomplete") as caught:
            volume("new").create(512)
        assert caught.value.created_devices == ["xenvg/new"]


WARNING = (
    "  WARNING: VG name xenvg is used by VGs 7NhNhh-UiH7 and SC8bfG-ZC23.\n"
    "  Fix duplicate VG names with vgrename uuid, a device filter, or system IDs.\n"
)


@pytest.mark.parametrize(
    ("warning", "outputs"),
    [
        (WARNING, {}),
        ("  Multiple VGs found with the same name: skipping xenvg\n", {}),
        ("  WARNING: Duplicate VG name xenvg: Existing jxTl7K-P7p1 takes precedence\n", {}),
        ("", {"vgs": VGS + "  xenvg|99.00|wz--n-|100.00\n"}),
    ],
)
def test_two_volume_groups_of_one_name(warning, outputs):
    tools = Tools(**outputs)

    def run(words, **options):
        done = tools(words, **options)
        return done._replace(stderr=warning if words[0] in ("lvs", "vgs", "pvs") else "")

    with facts.use(facts.Lvm(run)):
        present = volume("u1.disk0_data")
        operations = [volume("nothing").exists, lambda: present.snapshot("s", 1)]
        if warning:
            operations += [
                present.exists,
                present.size_bytes,
                present.sync_status,
                lambda: volume("new").create(512),
                lambda: present.grow(1, dry_run=False, backing_store=True),
            ]
        for operation in operations:
            facts.here().forget()
            with pytest.raises(errors.BlockDeviceError, match="several volume groups .* xenvg"):
                operation()
        assert tools.changes() == []
        # The lists of the other groups are complete.
        facts.here().forget()
        assert volume("lost", "other").exists()
        assert info._group_space("other", []) == {"storage_free": 0, "storage_size": 1024}
        unknown = info._group_space("xenvg", [])
        assert "several volume groups" in unknown.pop("problem")
        assert unknown == {"storage_free": None, "storage_size": None}
        assert facts.here().groups_used_twice() == {"xenvg"}


def test_a_warning_does_not_outlive_its_cause():
    tools = Tools()
    stderr = [WARNING]

    def run(words, **options):
        return tools(words, **options)._replace(stderr=stderr[0])

    with facts.use(facts.Lvm(run)):
        with pytest.raises(errors.BlockDeviceError):
            volume("u1.disk0_data").exists()
        stderr[0] = ""
        facts.here().forget()
        assert volume("u1.disk0_data").exists()


def test_a_change_forgets_what_was_read(tools):
    volume("u1.disk0_data").set_info("other text")
    volume("u1.disk0_data").exists()
    assert [words[0] for words in tools.commands] == ["lvs", "lvchange", "lvchange", "lvs"]


def test_parts_of_a_volume_are_put_together():
    found = parse.parse_lvs(LVS)
    assert found["xenvg", "u2.disk0"].devices == ("/dev/sda", "/dev/sdb", "/dev/sdc")
    assert not found["xenvg", "u2.disk0"].active
    assert found["xenvg", "u1.disk0_data"].open and found["xenvg", "u1.disk0_data"].active


@pytest.mark.parametrize(
    ("attributes", "degraded"),
    [("-wi-a-----", False), ("-wi-a---p-", True), ("vwi---", True), ("-wi-ao", False)],
)
def test_volume_with_a_missing_part(attributes, degraded):
    text = f"vg|lv|4.00|{attributes}|253|1|4.00|1||/dev/sda(0)\n"
    assert parse.parse_lvs(text)["vg", "lv"].degraded is degraded


def test_degraded_volume(tools):
    status = volume("lost", "other").sync_status()
    assert status.is_degraded and status.ldisk_status == 4


def test_physical_volumes():
    found = {pv.name: pv for pv in parse.parse_pvs(PVS)}
    assert found["/dev/sda"].lv_list == ("u1.disk0_data", "u1.disk0_meta")
    assert found["/dev/sdd"].vg_name == "" and found["/dev/sdb"].lv_list == ()


@pytest.mark.parametrize("text", ["xenvg|lv\n", "a|b|c|d|e|f|g|h|i|j\n"])
def test_output_that_makes_no_sense(text):
    with (
        facts.use(facts.Lvm(Tools(lvs=text))),
        pytest.raises(errors.BlockDeviceError, match="xenvg/u1.*cannot query LVM"),
    ):
        volume("u1").exists()


# -- placement --------------------------------------------------------------------


def test_emptiest_physical_volumes_first():
    names = [pv.name for pv in place.usable(parse.parse_pvs(PVS), "xenvg")]
    # sdc is closed, sdd in no group, the last one has a colon.
    assert names == ["/dev/sdb", "/dev/sda"]


def test_volumes_of_an_instance_stay_together(tools):
    volume("u1.disk1_data").create(512, owner="web1")
    volume("u9.disk0").create(512, owner="web2")
    assert tools.changes() == [
        "lvcreate -Wn -L512m -nu1.disk1_data -i1 --addtag originstname+web1 xenvg /dev/sda",
        "lvcreate -Wn -L512m -nu9.disk0 -i1 --addtag originstname+web2 xenvg /dev/sdb",
    ]


def test_they_use_other_devices_without_free_space(tools):
    volume("u1.disk1_data").create(2048, owner="web1")
    assert tools.changes() == [
        "lvcreate -Wn -L2048m -nu1.disk1_data -i1 --addtag originstname+web1 xenvg /dev/sdb"
    ]


def test_larger_than_any_physical_volume(tools):
    volume("u9.disk0").create(9000)
    assert tools.changes() == ["lvcreate -Wn -L9000m -nu9.disk0 -i1 xenvg /dev/sdb /dev/sda"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("u1.disk0_data", "u2.disk0_data"),
        ("u1.disk0_data", "u1.disk0_data_new"),
        ("u1.disk0_data_old", "u1.disk0_data_new"),
        ("u1.disk0_data_replaced-1700000000", "u1.disk0_data"),
    ],
)
def test_a_replacement_is_not_put_beside_what_it_replaces(old, new):
    text = LVS.replace("u1.disk0_data", old)
    found = place.neighbours(parse.parse_lvs(text).values(), "xenvg", new, "originstname+web1")
    assert found == []


def test_stripes_down_to_what_is_there(tools):
    tools.failures = ["Insufficient suitable contiguous allocatable extents", "no"]
    volume("u9.disk0", params={"stripes": 4}).create(512)
    assert tools.changes() == [
        "lvcreate -Wn -L512m -nu9.disk0 -i2 xenvg /dev/sdb /dev/sda",
        "lvcreate -Wn -L512m -nu9.disk0 -i2 xenvg /dev/sdb /dev/sda",
        "lvcreate -Wn -L512m -nu9.disk0 -i1 xenvg /dev/sdb",
    ]


def test_no_free_space(tools):
    with pytest.raises(
        errors.BlockDeviceError, match="has 9216 MiB free, but 20000 MiB are needed"
    ):
        volume().create(20000)
    with pytest.raises(errors.BlockDeviceError, match="group nowhere has no physical volume"):
        volume(group="nowhere").create(10)
    assert tools.changes() == []


def test_what_exists_is_not_overwritten(tools):
    with pytest.raises(errors.BlockDeviceError, match="exists already"):
        volume("u1.disk0_data").create(10)
    assert tools.changes() == []


def test_all_attempts_fail(tools):
    tools.failures = ["one", "two", "three"]
    with pytest.raises(errors.BlockDeviceError, match="cannot be created: two"):
        volume().create(512)


def pv(name, *, size=1000.0, free=1000.0, volumes=()):
    return LvmPvInfo(
        name=name, vg_name="xenvg", size=size, free=free, attributes="a--", lv_list=volumes
    )


def test_exclusive_physical_volumes():
    some = [pv("a"), pv("b"), pv("c", free=500.0, volumes=("x",)), pv("d")]
    assert place.exclusive(some, 900, None) == ["a"]
    assert place.exclusive(some, 1500, None) == ["a", "b"]
    assert place.exclusive(some, 900, 3) == ["a", "b", "d"]
    with pytest.raises(errors.StorageError, match="more than the 1 spindles"):
        place.exclusive(some, 1500, 1)
    with pytest.raises(errors.StorageError, match="4 empty physical volumes are needed"):
        place.exclusive(some, 900, 4)
    with pytest.raises(errors.StorageError, match="no physical volume is empty"):
        place.exclusive(some[2:3], 10, None)


def test_exclusive_creation(tools):
    tools.outputs["pvs"] = "/dev/sda|xenvg|9.00|a--|10.00|x\n/dev/sdb|xenvg|1000.00|a--|1000.00|\n"
    volume(spindles=1).create(512, exclusive=True)
    assert tools.changes() == ["lvcreate -Wn -L512m -nu9.disk0 -i1 xenvg /dev/sdb"]


# -- verbs ------------------------------------------------------------------------


def test_removing_may_be_repeated(tools):
    volume("u1.disk0_data").remove()
    assert tools.commands == [["lvremove", "-f", "xenvg/u1.disk0_data"]]
    tools.failures = ["Failed to find logical volume", "Logical volume is in use"]
    volume("nothing").remove()
    with pytest.raises(errors.BlockDeviceError, match="cannot be removed: .* is in use"):
        volume("u1.disk0_data").remove()


def test_growing_tries_to_stay_in_one_piece(tools):
    tools.failures = ["not contiguous", "does not cling"]
    volume("u1.disk0_data").grow(64, dry_run=False, backing_store=True)
    path = "/dev/xenvg/u1.disk0_data"
    assert tools.changes() == [
        f"lvextend -L +65536k --alloc contiguous {path}",
        f"lvextend -L +65536k --alloc cling {path}",
        f"lvextend -L +65536k --alloc normal {path}",
    ]


def test_growing_by_whole_rows_of_stripes(tools):
    volume("u2.disk0").grow(5, dry_run=True, backing_store=True)
    assert tools.changes() == ["lvextend -L +8192k --test --alloc contiguous /dev/xenvg/u2.disk0"]
    volume("u2.disk0").grow(5, dry_run=True, backing_store=False)
    assert len(tools.changes()) == 1


def test_exclusive_volume_grows_on_its_own_devices(tools):
    volume("u1.disk0_data").grow(4, dry_run=False, backing_store=True, exclusive=True)
    assert tools.changes()[0].endswith("/dev/sda")


def test_renaming(tools):
    one = volume("u1.disk0_data")
    one.rename(("xenvg", "new"))
    assert one.path == "/dev/xenvg/new"
    assert tools.commands == [["lvrename", "xenvg", "u1.disk0_data", "new"]]
    with pytest.raises(errors.BlockDeviceError, match="another volume group"):
        volume("u1.disk0_data").rename(("other", "new"))
    tools.failures = ["already exists"]
    with pytest.raises(errors.BlockDeviceError, match="u1.disk0_meta, which exists"):
        volume("u1.disk0_data").rename(("xenvg", "u1.disk0_meta"))
    # Done before an interruption.
    tools.failures = ["not found"]
    one = volume("gone")
    one.rename(("xenvg", "u1.disk0_meta"))
    assert one.name == "u1.disk0_meta"
    tools.failures = ["not found"]
    with pytest.raises(errors.BlockDeviceError, match="cannot be renamed to new: not found"):
        volume("gone").rename(("xenvg", "new"))


def test_the_text_is_the_only_tag(tools):
    volume("u1.disk0_data").set_info("originstname+web1")
    assert tools.changes() == []
    volume("u1.disk0_data").set_info("originstname+näme 2")
    path = "/dev/xenvg/u1.disk0_data"
    assert tools.changes() == [
        f"lvchange --deltag originstname+web1 {path}",
        f"lvchange --addtag originstname+n_me_2 {path}",
    ]
    assert len(parse.safe_tag("x" * 500)) == 128


def test_a_new_volume_is_tagged_without_a_question(tools):
    one = volume("u9.disk0")
    one.create(512, owner="web2")
    one.set_info("originstname+web2")
    assert [words[0] for words in tools.commands] == ["lvs", "pvs", "lvcreate"]
    assert "--addtag originstname+web2 xenvg" in tools.changes()[0]
    # Another text replaces it.
    one = volume("u9.disk0")
    one.create(512, owner="web2")
    one.set_info("other")
    assert [words[:2] for words in tools.commands[-2:]] == [
        ["lvchange", "--deltag"],
        ["lvchange", "--addtag"],
    ]


def test_snapshot(tools):
    assert volume("u1.disk0_data").snapshot("s1", 1024) == ("xenvg", "s1")
    assert tools.changes() == [
        "lvcreate -L1024m -s -ns1 --addtag originstname+web1 /dev/xenvg/u1.disk0_data"
    ]
    with pytest.raises(
        errors.BlockDeviceError, match="has 13312 MiB free, but 20000 MiB are needed"
    ):
        volume("u1.disk0_data").snapshot("s1", 20000)


def test_activation_only_where_it_is_needed(tools, monkeypatch):
    active = []
    monkeypatch.setattr(
        LogicalVolumeDevice, "is_block_device", lambda self: bool(active) or active.append(1)
    )
    volume("u2.disk0").assemble()
    volume("u2.disk0").assemble()
    assert tools.commands == [["lvchange", "-ay", "xenvg/u2.disk0"]]


@pytest.mark.parametrize(
    ("group", "name"),
    [
        ("xenvg", "-f"),
        ("xenvg", "a b"),
        ("xenvg", ".."),
        ("xenvg", "x_mimage_0"),
        ("", "x"),
        ("xenvg", "snapshot"),
        ("a/b", "x"),
        ("xenvg", "x_mlog"),
        (7, "x"),
    ],
)
def test_wrong_names(group, name):
    with pytest.raises(errors.BlockDeviceError, match="is not a valid name for"):
        volume(name, group)


# -- calls ------------------------------------------------------------------------


def test_lists_for_the_master(tools):
    tools.outputs["lvs"] = (
        "  xenvg|u1|1024.00|-wi-ao----\n  xenvg|u2|512.00|-wi-------\n  xenvg|gone|4.00|vwi---\n"
    )
    assert calls.vg_list() == {"xenvg": 30720, "other": 1024}
    assert calls.lv_list(["xenvg"]) == {
        "xenvg/u1": ["1024.00", False, True],
        "xenvg/u2": ["512.00", True, False],
    }
    assert tools.commands[-1] == argv.lv_list_argv([])
    with pytest.raises(errors.StorageError, match="not a name of a volume group"):
        calls.lv_list(["--config"])


@pytest.mark.parametrize("kind", ["lvm-vg", "lvm-pv"])
def test_storage_units_when_lvm_fails(kind):
    def broken(words, **_options):
        raise errors.CommandError(words, 5, "oops")

    with facts.use(facts.Lvm(broken)):
        found = info._storage_unit([kind, "xenvg", [True]])
    assert "oops" in found.pop("problem")
    assert found == {
        "type": kind,
        "name": "xenvg",
        "storage_free": None,
        "storage_size": None,
    }


def test_lists_when_lvm_fails():
    def broken(words, **_options):
        raise errors.CommandError(words, 5, "oops")

    with facts.use(facts.Lvm(broken)), pytest.raises(errors.StorageError, match="oops"):
        calls.vg_list()


def test_sizes_of_devices(tmp_path):
    (tmp_path / "file").write_text("x")
    assert calls.bdev_sizes([str(tmp_path / "file"), "/nowhere", "/dev/null"]) == {}


@pytest.mark.parametrize(
    ("unit", "free", "size", "problem"),
    [
        (["lvm-vg", "xenvg", [False]], 13312, 30720, None),
        (["lvm-vg", "xenvg", [True]], 8192, 30720, None),
        (["lvm-vg", "nowhere", [False]], None, None, "there is no volume group nowhere"),
        (["lvm-pv", "xenvg", [False]], 0, 0, None),
        (["lvm-pv", "xenvg", [True]], 1, 4, None),
    ],
)
def test_storage_units(tools, unit, free, size, problem):
    found = info._storage_unit(unit)
    assert found.pop("problem", None) == problem
    assert found == {
        "type": unit[0],
        "name": unit[1],
        "storage_free": free,
        "storage_size": size,
    }


# -- a volume group which LVM cannot read ----------------------------------------------------------

LISTED = "  xenvg|u1.disk0_data|1024.00|-wi-ao----\n  other|lost|4.00|-wi-a-----\n"


class BrokenGroup(Tools):
    """A command about all groups prints the others and fails, as LVM does."""

    def __call__(self, words, *, timeout_s, check=True, env=None):
        done = super().__call__(words, timeout_s=timeout_s, check=False, env=env)
        groups = [word for word in words[1:] if not word.startswith("-")]
        text = LISTED if words[-1 - len(groups)].endswith("lv_size,lv_attr") else done.stdout
        rows = [row for row in text.splitlines() if not groups or row.strip().startswith(groups[0])]
        code = 0 if groups in (["xenvg"], ["other"]) else 5
        if code and check:
            raise errors.CommandError(words, code, "Cannot process volume group broken")
        return Completed(tuple(words), code, "".join(f"{row}\n" for row in rows), "", None)


@pytest.fixture
def broken():
    found = BrokenGroup()
    with facts.use(facts.Lvm(found)):
        yield found


def test_a_broken_volume_group_does_not_hide_the_others(broken):
    assert volume("u2.disk0").exists()
    assert not volume("absent").exists()
    assert volume("u1.disk0_data").dimensions()[0] == 1 << 30
    with pytest.raises(errors.BlockDeviceError, match="cannot query LVM"):
        volume("u3.disk0", "broken").exists()
    found = blockdev.dimensions([volume("a", "broken").disk, volume("u2.disk0").disk])
    assert isinstance(found[0], errors.BlockDeviceError)
    assert found[1] == [2 << 30, 3]
    assert info._group_space("xenvg", []) == {"storage_free": 13312, "storage_size": 30720}
    unknown = info._group_space("broken", [])
    assert "cannot query LVM" in unknown.pop("problem")
    assert unknown == {"storage_free": None, "storage_size": None}
    assert info._group_space("xenvg", [True])["storage_size"] == 30720


def test_volumes_of_a_broken_group_are_unknown_and_not_missing(broken):
    found = calls.lv_list(["broken", "xenvg"])
    assert found["xenvg/u1.disk0_data"][1:] == [False, True]
    assert "cannot query LVM" in found["broken"]
    assert sorted(found) == ["broken", "xenvg/u1.disk0_data"]
    with pytest.raises(errors.StorageError, match="broken"):
        calls.lv_list([])
