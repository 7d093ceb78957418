"""Disks which several nodes see: rbd, gluster, blockdev, and those of external providers."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from ganeti import errors, storage
from ganeti.backend.storage import blockdev as calls
from ganeti.objects import Disk
from ganeti.platform import hosts, paths
from ganeti.storage import blockdev, gluster, rbd
from ganeti.storage.ext import device as ext
from ganeti.storage.ext import provider
from ganeti.utils.process import Completed

DATA = Path(__file__).resolve().parents[2] / "data" / "rbd"
NAME = "d7ab910a-4933-4ffe-88d0-faf2ce31390a.rbd.disk0"


def disk(dev_type, *logical_id, size=100, **fields):
    return Disk(dev_type=dev_type, logical_id=logical_id, size=size, uuid="u1", **fields)


# -- rbd --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "read", "expected"),
    [
        ("json_output_ok.txt", rbd.parse_mapped, "/dev/rbd3"),
        ("json_output_empty.txt", rbd.parse_mapped, None),
        ("json_output_no_matches.txt", rbd.parse_mapped, None),
        ("plain_output_new_ok.txt", rbd.parse_mapped_plain, "/dev/rbd3"),
        ("plain_output_new_empty.txt", rbd.parse_mapped_plain, None),
        ("plain_output_new_no_matches.txt", rbd.parse_mapped_plain, None),
        ("plain_output_old_ok.txt", rbd.parse_mapped_plain, "/dev/rbd3"),
        ("plain_output_old_empty.txt", rbd.parse_mapped_plain, None),
        ("plain_output_old_no_matches.txt", rbd.parse_mapped_plain, None),
    ],
)
def test_mapped_images(file, read, expected):
    assert read((DATA / file).read_text(), "rbd", NAME) == expected


@pytest.mark.parametrize(
    ("file", "read"),
    [
        ("json_output_extra_matches.txt", rbd.parse_mapped),
        ("plain_output_new_extra_matches.txt", rbd.parse_mapped_plain),
        ("plain_output_old_extra_matches.txt", rbd.parse_mapped_plain),
        ("output_invalid.txt", rbd.parse_mapped),
        ("output_invalid.txt", rbd.parse_mapped_plain),
    ],
)
def test_mapped_images_that_make_no_sense(file, read):
    with pytest.raises(errors.ParseError):
        read((DATA / file).read_text(), "rbd", NAME)


def test_newer_list_of_mapped_images():
    text = json.dumps(
        [
            {
                "id": "0",
                "pool": "p",
                "namespace": "",
                "name": NAME,
                "snap": "-",
                "device": "/dev/rbd0",
            }
        ]
    )
    assert rbd.parse_mapped(text, "p", NAME) == "/dev/rbd0"


def mapped(device, *, namespace="", snap="-", name=NAME):
    return {
        "id": device[-1],
        "pool": "p",
        "namespace": namespace,
        "name": name,
        "snap": snap,
        "device": device,
    }


@pytest.mark.parametrize(
    "others",
    [
        [mapped("/dev/rbd1", snap="before-upgrade")],
        [mapped("/dev/rbd1", namespace="tenant")],
        [mapped("/dev/rbd1", namespace="tenant", snap="a"), mapped("/dev/rbd2", name="x")],
        # Old versions of the program know no namespaces, and name devices in other forms.
        [{"pool": "p", "name": NAME, "snap": "a", "device": "/dev/rbd1"}],
    ],
)
def test_a_mapped_snapshot_or_image_of_a_namespace_is_not_the_disk(others):
    assert rbd.parse_mapped(json.dumps(others), "p", NAME) is None
    as_object = {str(number): one for number, one in enumerate(others)}
    assert rbd.parse_mapped(json.dumps(as_object), "p", NAME) is None
    # Beside the disk, they do not make it ambiguous.
    both = [*others, mapped("/dev/rbd9")]
    assert rbd.parse_mapped(json.dumps(both), "p", NAME) == "/dev/rbd9"


def test_an_image_without_a_device_is_not_understood():
    with pytest.raises(errors.ParseError, match="its device is not named"):
        rbd.parse_mapped(json.dumps([{"pool": "p", "name": NAME, "snap": "-"}]), "p", NAME)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (["1  rbd         {0} before  /dev/rbd1"], None),
        (["1  rbd tenant  {0} -       /dev/rbd1"], None),
        (["1  rbd tenant  {0} before  /dev/rbd1", "2  rbd         {0} - /dev/rbd2"], "/dev/rbd2"),
        # The name of a snapshot may have blanks; it does not hide other images.
        (["1  rbd         img a b c   /dev/rbd1", "2  rbd         {0} - /dev/rbd2"], "/dev/rbd2"),
    ],
)
def test_the_plain_list_with_snapshots_and_namespaces(rows, expected):
    text = "id pool namespace image snap device\n" + "\n".join(rows).format(NAME) + "\n"
    assert rbd.parse_mapped_plain(text, "rbd", NAME) == expected


def test_a_plain_line_which_may_be_the_image_is_not_understood():
    text = f"id pool namespace image snap device\n1 rbd {NAME} a b c /dev/rbd1\n"
    with pytest.raises(errors.ParseError, match="expected a mapped image"):
        rbd.parse_mapped_plain(text, "rbd", NAME)


class Ceph:
    """``rbd`` with one image."""

    ASKING = ("showmapped", "info", "ls")

    def __init__(self):
        self.commands = []
        self.size = None
        #: Bytes of the image after its last whole MiB.
        self.odd_bytes = 0
        self.mapped = False
        #: Exit codes of the programs which fail, by their first argument.
        self.broken = {}
        self.listed = None

    def run(self, words, *, timeout_s, check=True):
        self.commands.append(" ".join(words))
        verb, code, out = words[1], 0, ""
        if verb in self.broken:
            code, out = self.broken[verb], "rbd: error"
        elif verb == "create" and self.size is not None:
            code, out = 17, "rbd: create error: (17) File exists"
        elif verb == "create":
            self.size = int(words[words.index("--size") + 1])
        elif verb == "resize":
            self.size = int(words[words.index("--size") + 1])
        elif verb == "rm":
            self.size = None
        elif verb in ("map", "unmap"):
            self.mapped = verb == "map"
        elif verb == "showmapped":
            out = json.dumps(
                [{"pool": "pool1", "name": "img", "device": "/dev/rbd7"}] if self.mapped else []
            )
        elif verb == "info" and self.size is None:
            code, out = 2, "rbd: error opening image img: (2) No such file or directory"
        elif verb == "ls":
            out = json.dumps(self.listed or (["img"] if self.size is not None else ["other"]))
        elif verb == "info":
            out = json.dumps(
                {"name": "img", "id": "1a2b", "size": (self.size << 20) + self.odd_bytes}
            )
        if code and check:
            raise errors.CommandError(words, code, out)
        return Completed(tuple(words), code, out, "", None)

    def changes(self):
        found = [line for line in self.commands if line.split()[1] not in self.ASKING]
        self.commands.clear()
        return found


@pytest.fixture
def ceph(monkeypatch):
    found = Ceph()
    monkeypatch.setattr(rbd.process, "run", found.run)
    return found


def image(**params):
    return storage.device(disk("rbd", "rbd", "img", params={"pool": "pool1", **params}))


def test_life_of_an_image(ceph):
    one = image()
    assert not one.exists()
    one.remove()
    assert ceph.changes() == []
    one.create(100)
    one.assemble()
    one.assemble()
    assert (one.path, one.size_bytes()) == ("/dev/rbd7", 100 << 20)
    one.grow(20, dry_run=True, backing_store=True)
    one.grow(20, dry_run=False, backing_store=False)
    one.grow(20, dry_run=False, backing_store=True)
    one.shutdown()
    one.shutdown()
    one.remove()
    assert ceph.changes() == [
        "rbd create -p pool1 img --size 100",
        "rbd map -p pool1 img",
        "rbd resize -p pool1 img --size 120",
        "rbd unmap /dev/rbd7",
        "rbd rm -p pool1 img",
    ]


def test_an_image_which_ends_within_a_mib_grows_to_whole_ones(ceph):
    """Its size in the configuration counts the incomplete MiB."""
    ceph.size, ceph.odd_bytes = 8, 1 << 19
    image().grow(1, dry_run=False, backing_store=True)
    assert ceph.changes() == ["rbd resize -p pool1 img --size 10"]


@pytest.mark.parametrize(
    ("image_id", "is_other"), [("1a2b\n", False), ("\n", False), (None, False), ("77ff\n", True)]
)
def test_an_image_of_another_cluster_with_the_same_name(
    ceph, tmp_path, monkeypatch, image_id, is_other
):
    monkeypatch.setattr(rbd, "DEVICES_DIR", str(tmp_path))
    if image_id is not None:
        (tmp_path / "7").mkdir()
        (tmp_path / "7" / "image_id").write_text(image_id)
    ceph.size, ceph.mapped = 100, True
    if is_other:
        with pytest.raises(errors.BlockDeviceError, match="another image of that name is mapped"):
            image().assemble()
    else:
        image().assemble()
    assert ceph.changes() == []


@pytest.mark.parametrize(
    ("broken", "listed", "reason"),
    [
        ({"info": 1}, None, "cannot be examined"),
        ({"info": 110}, None, "cannot be examined"),
        # A missing pool and a missing key are the same error as a missing image.
        ({"info": 2, "ls": 2}, None, "it is not known whether it exists"),
        ({"info": 2}, ["img"], "cannot be opened, but its pool lists it"),
        ({"showmapped": 1}, None, "cannot find out whether it is mapped"),
    ],
)
def test_an_image_which_cannot_be_asked_for_is_not_lost(ceph, broken, listed, reason):
    ceph.size, ceph.broken, ceph.listed = 100, broken, listed
    for verb in (image().exists, image().remove):
        with pytest.raises(errors.BlockDeviceError, match=reason):
            verb()
    assert ceph.size == 100


def test_an_image_which_exists_is_not_made(ceph):
    ceph.size = 100
    with pytest.raises(errors.BlockDeviceError, match="exists already") as caught:
        image().create(5)
    assert not isinstance(caught.value, errors.DeviceCreationError) and ceph.size == 100
    ceph.broken = {"create": 110}
    with pytest.raises(errors.DeviceCreationError, match="cannot be created") as caught:
        image().create(5)
    assert caught.value.created_devices == ["pool1/img"]


def test_user_of_an_image(ceph):
    one = image(**{"user-id": "vm"})
    one.create(1)
    one.assemble()
    assert ceph.changes() == [
        "rbd create -p pool1 img --size 1 --id vm",
        "rbd map -p pool1 img --id vm",
    ]


def test_image_without_the_kernel(ceph):
    assert image().uri("kvm") is None
    assert image(access="userspace").uri("kvm") == "rbd:pool1/img"
    assert image(access="userspace", **{"user-id": "vm"}).uri("kvm") == "rbd:pool1/img:id=vm"
    with pytest.raises(errors.BlockDeviceError, match="xen-pvm cannot reach it"):
        image(access="userspace").uri("xen-pvm")


def test_image_with_a_bad_name():
    with pytest.raises(errors.BlockDeviceError, match="not the name of an image"):
        storage.device(disk("rbd", "rbd", "--pool", params={"pool": "p"}))


# -- gluster ----------------------------------------------------------------------


@pytest.fixture
def volume(tmp_path, monkeypatch):
    """A Gluster volume, mounted by a program that makes a directory."""
    here = paths.Paths(str(tmp_path / "node1"))
    commands = []

    def mount(words, *, timeout_s):
        commands.append(words)
        monkeypatch.setattr(os.path, "ismount", lambda path: path == words[-1])

    monkeypatch.setattr(gluster.process, "run", mount)
    with paths.override(here):
        file = Path(here.ssconf_file("gluster_storage_dir"))
        file.parent.mkdir(parents=True)
        file.write_text("/srv/gluster\n")
        yield commands


def file_on_gluster(path="ganeti/u1.gluster.disk0", **params):
    return storage.device(
        disk(
            "gluster",
            "loop",
            path,
            params={"host": "192.0.2.7", "port": 24007, "volume": "gv0", **params},
        )
    )


def test_nothing_beside_a_file_on_gluster_is_ours(volume):
    one = file_on_gluster()
    one.create(4)
    mine = Path(f"{one.path}.snap.mine")
    mine.touch()
    assert one.kept_snapshots() == []
    one.remove()
    assert mine.exists()
    with pytest.raises(errors.BlockDeviceError, match="have no snapshots"):
        one.keep_snapshot("a", 4, at_rest=True)


def test_life_of_a_file_on_gluster(volume):
    one = file_on_gluster()
    one.create(4)
    assert one.exists() and one.size_bytes() == 4 << 20
    assert one.path.endswith("/srv/gluster/192.0.2.7:24007.gv0/ganeti/u1.gluster.disk0")
    one.grow(1, dry_run=False, backing_store=True)
    one.assemble()
    one.rename(("loop", "ganeti/new"))
    assert one.size_bytes() == 5 << 20
    one.remove()
    assert not one.exists()
    (command,) = volume
    assert command[:6] == ["mount", "-t", "glusterfs", "-o", "server-port=24007", "192.0.2.7:/gv0"]


@pytest.mark.parametrize(
    ("mounted", "host", "place"),
    [
        # By name and by address, in the order of the resolver, which changes with each answer.
        ("192.0.2.8", "storage", "192.0.2.8"),
        ("192.0.2.7", "192.0.2.7", "192.0.2.7"),
        ("2001:db8::7", "2001:db8:0:0::7", "2001:db8::7"),
        ("2001:db8:0::7", "2001:db8::7", "2001:db8:0::7"),
        # Another server, another port and another volume are no mount of this one.
        ("192.0.2.9", "storage", "192.0.2.7"),
        (None, "storage", "192.0.2.7"),
    ],
)
def test_a_gluster_volume_is_mounted_once(volume, tmp_path, monkeypatch, mounted, host, place):
    monkeypatch.setattr(
        hosts,
        "_resolved",
        lambda name: ("storage.example.com", ["192.0.2.7", "192.0.2.8"]),
    )
    base = tmp_path / "node1/srv/gluster"
    for name in ("192.0.2.8:24008.gv0", "192.0.2.8:24007.gv1", "nonsense", "x:24007.gv0"):
        (base / name).mkdir(parents=True)
    if mounted is not None:
        (base / f"{mounted}:24007.gv0").mkdir()
    monkeypatch.setattr(os.path, "ismount", lambda path: True)
    one = file_on_gluster(host=host)
    assert one.path == f"{base}/{place}:24007.gv0/ganeti/u1.gluster.disk0"
    assert volume == []


def test_a_directory_where_nothing_is_mounted_does_not_count(volume, tmp_path, monkeypatch):
    monkeypatch.setattr(
        hosts, "_resolved", lambda name: ("storage.example.com", ["192.0.2.7", "192.0.2.8"])
    )
    (tmp_path / "node1/srv/gluster/192.0.2.8:24007.gv0").mkdir(parents=True)
    file_on_gluster(host="storage").create(1)
    assert volume[0][5] == "192.0.2.7:/gv0"


def test_a_gluster_server_without_an_address(volume, monkeypatch):
    def fails(name):
        raise errors.ResolverError(name, -2, "Name or service not known")

    monkeypatch.setattr(hosts, "_resolved", fails)
    with pytest.raises(errors.BlockDeviceError, match="server storage has no address now"):
        file_on_gluster(host="storage")


def test_gluster_without_the_kernel(volume):
    assert file_on_gluster().uri("kvm") is None
    assert file_on_gluster(access="userspace").uri("kvm") == (
        "gluster://192.0.2.7:24007/gv0/ganeti/u1.gluster.disk0"
    )
    assert file_on_gluster(access="userspace", host="2001:db8::1").uri("kvm") == (
        "gluster://[2001:db8::1]:24007/gv0/ganeti/u1.gluster.disk0"
    )


@pytest.mark.parametrize("path", ["/abs", "../up", "a/../../b", "a//b"])
def test_path_outside_of_the_volume(volume, path):
    with pytest.raises(errors.BlockDeviceError, match="not a path within a volume"):
        file_on_gluster(path)


# -- blockdev ---------------------------------------------------------------------


def test_device_of_the_administrator(tmp_path, monkeypatch):
    monkeypatch.setattr(blockdev, "ROOT", f"{tmp_path}/")
    (tmp_path / "lun").write_bytes(b"")
    one = storage.device(disk("blockdev", "manual", f"{tmp_path}/lun"))
    # Nobody but the administrator knows whether a device is lost.
    away = storage.device(disk("blockdev", "manual", f"{tmp_path}/away"))
    with pytest.raises(errors.BlockDeviceError, match="not a block device on this node now"):
        away.exists()
    for verb in (one.exists, one.assemble, lambda: one.create(1)):
        with pytest.raises(errors.BlockDeviceError, match="not a block device on this node"):
            verb()
    one.remove()
    assert (tmp_path / "lun").exists()
    with pytest.raises(errors.BlockDeviceError, match="cannot grow"):
        one.grow(1, dry_run=False, backing_store=True)


@pytest.mark.parametrize(
    "logical_id",
    [("manual", "/dev/sda"), ("manual", "/dev/disk/../sda"), ("auto", "/dev/disk/x"), ("manual",)],
)
def test_devices_that_may_not_be_adopted(logical_id):
    with pytest.raises(errors.BlockDeviceError, match="u1"):
        storage.device(disk("blockdev", *logical_id))


# -- external providers -----------------------------------------------------------


@pytest.fixture
def shop(tmp_path):
    """A provider whose volumes are files; every script records its environment."""
    with paths.override(paths.Paths(str(tmp_path / "node1"))) as here:
        top = Path(here.extstorage_search_path[0]) / "shop"
        top.mkdir(parents=True)
        variables = 'env | grep -E "^(VOL|EXTP)_" | sort | tr "\\n" " "'
        note = f'echo "${{0##*/}} $({variables})" >>{top}/log; file=$EXTP_DIR/$VOL_NAME'
        bodies = {
            "attach": f"{note}; [ -e $file ] || exit 1; echo $file; echo kvm:file:$VOL_NAME",
            "create": f"{note}; truncate -s ${{VOL_SIZE}}M $EXTP_DIR/$VOL_NAME",
            "remove": f"{note}; rm -f $EXTP_DIR/$VOL_NAME",
            "grow": f"{note}; truncate -s ${{VOL_NEW_SIZE}}M $EXTP_DIR/$VOL_NAME",
            "verify": '[ "$EXTP_DIR" != /wrong ] || { echo "no such shelf"; exit 1; }',
        }
        for script in provider.REQUIRED:
            path = top / script
            path.write_text(f"#!/bin/sh\n{bodies.get(script, note)}\n")
            path.chmod(0o755)
        (top / "parameters.list").write_text("dir where the files are\nspeed\n")
        yield top


def in_shop(top, **fields):
    fields = {"params": {"access": "kernelspace", "dir": str(top)}, **fields}
    return storage.device(disk("ext", "shop", "v1.ext.disk0", **fields))


@pytest.mark.programs
def test_life_of_a_volume(shop):
    one = in_shop(shop, name="data")
    one.create(3)
    one = in_shop(shop, name="data")
    assert one.exists()
    one.set_info("a text")
    one.assemble()
    one.open()
    assert one.path == str(shop / "v1.ext.disk0") and one.size_bytes() == 3 << 20
    one.grow(2, dry_run=False, backing_store=True)
    assert one.size_bytes() == 102 << 20
    one.shutdown()
    one.remove()
    lines = [line.strip() for line in (shop / "log").read_text().splitlines()]
    base = f"EXTP_DIR={shop} VOL_CNAME=data"
    named = "VOL_NAME=v1.ext.disk0"
    assert [line for line in lines if not line.startswith("attach")] == [
        f"create {base} {named} VOL_SIZE=3 VOL_UUID=u1",
        f"setinfo {base} VOL_METADATA=a_text {named} VOL_UUID=u1",
        f"grow {base} {named} VOL_NEW_SIZE=102 VOL_SIZE=100 VOL_UUID=u1",
        f"detach {base} {named} VOL_UUID=u1",
        f"remove {base} {named} VOL_UUID=u1",
    ]
    # Once for each time its device was not known, not for each question.
    assert sum(line.startswith("attach") for line in lines) == 1
    logs = os.listdir(paths.current().log_extstorage_dir)
    assert any(name.startswith("create-shop-v1.ext.disk0-") for name in logs)
    assert not any(name.startswith("attach") for name in logs)


def say_exists(shop, body):
    script = shop / "exists"
    script.write_text(f"#!/bin/sh\n{body}\n")
    script.chmod(0o755)


@pytest.mark.programs
def test_a_volume_which_cannot_be_attached_is_not_lost(shop):
    with pytest.raises(errors.BlockDeviceError, match="It is not known.*no script 'exists'"):
        in_shop(shop).exists()
    in_shop(shop).create(3)
    assert in_shop(shop).exists()


@pytest.mark.programs
def test_the_provider_tells_whether_a_volume_exists(shop):
    say_exists(shop, "[ -e $EXTP_DIR/$VOL_NAME ] && echo present || echo absent")
    assert in_shop(shop).exists() is False
    in_shop(shop).create(3)
    assert in_shop(shop).exists() is True
    with pytest.raises(errors.BlockDeviceError, match="exists already") as caught:
        in_shop(shop).create(5)
    assert not isinstance(caught.value, errors.DeviceCreationError)
    assert (shop / "v1.ext.disk0").stat().st_size == 3 << 20
    for body, reason in [
        ("exit 1", "its provider's exists failed"),
        ("echo absent; exit 1", "its provider's exists failed"),
        ("echo perhaps", "printed 'perhaps'"),
        ("", "printed ''"),
    ]:
        say_exists(shop, body)
        for verb in (in_shop(shop).exists, lambda: in_shop(shop).create(1)):
            with pytest.raises(errors.BlockDeviceError, match=reason):
                verb()
    (shop / "exists").chmod(0o644)
    with pytest.raises(errors.BlockDeviceError, match="exists is not executable"):
        in_shop(shop).exists()


@pytest.mark.programs
def test_a_volume_which_is_shut_down_or_removed_is_not_attached_afterwards(shop):
    in_shop(shop).create(3)
    calls.shutdown(in_shop(shop).disk)
    calls.remove(in_shop(shop).disk)
    names = [line.split()[0] for line in (shop / "log").read_text().splitlines()]
    assert names == ["create", "attach", "detach", "remove"]


@pytest.mark.programs
def test_the_provider_gets_the_name_of_its_snapshot(shop):
    script = shop / "snapshot"
    script.write_text(
        f"#!/bin/sh\necho $VOL_NAME $VOL_SNAPSHOT_NAME $VOL_SNAPSHOT_SIZE >{shop}/took\n"
    )
    script.chmod(0o755)
    one = in_shop(shop)
    one.create(3)
    one.keep_snapshot("a", 109, at_rest=False)
    assert (shop / "took").read_text() == "v1.ext.disk0 v1.ext.disk0.snap.a 109\n"
    assert one.kept_snapshots() == []


@pytest.mark.programs
def test_failing_script_is_quoted(shop):
    (shop / "create").write_text("#!/bin/sh\necho the shelf is full; exit 3\n")
    with pytest.raises(
        errors.DeviceCreationError, match="its provider's create failed.*is full"
    ) as caught:
        in_shop(shop).create(1)
    # What the script has made is not known.
    assert caught.value.created_devices == ["shop/v1.ext.disk0"]


@pytest.mark.programs
def test_volume_without_the_kernel(shop):
    params = {"access": "userspace", "dir": str(shop)}
    in_shop(shop, params=params).create(1)
    one = in_shop(shop, params=params)
    assert one.uri("kvm") == "file:v1.ext.disk0"
    with pytest.raises(errors.BlockDeviceError, match="no URI by which hypervisor xen-pvm"):
        one.uri("xen-pvm")
    with pytest.raises(errors.BlockDeviceError, match="has no snapshots"):
        one.snapshot("s", 1)


@pytest.mark.programs
def test_parameters_are_verified(shop):
    ext.verify_parameters("shop", {"dir": "/here", "access": "userspace"})
    with pytest.raises(errors.BlockDeviceError, match="no parameter colour"):
        ext.verify_parameters("shop", {"colour": "red"})
    with pytest.raises(errors.BlockDeviceError, match="no such shelf"):
        in_shop(shop, params={"dir": "/wrong"}).create(1)
    assert not (shop / "log").exists()


def test_finding_providers(shop):
    (found,) = provider.all_providers()
    assert found.usable
    assert found.provider.supported_parameters == (("dir", "where the files are"), ("speed", ""))
    assert found.provider.snapshot_script is None
    (shop / "detach").chmod(0o644)
    with pytest.raises(errors.BlockDeviceError, match="detach is not executable"):
        provider.find("shop")
    (shop / "detach").unlink()
    with pytest.raises(errors.BlockDeviceError, match="detach is missing"):
        provider.find("shop")
    with pytest.raises(errors.BlockDeviceError, match="not installed on this node"):
        provider.find("kiosk")
    with pytest.raises(errors.BlockDeviceError, match="not the name of"):
        provider.find("../shop")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/dev/x\n", ("/dev/x", {})),
        ("\nkvm:rbd:a/b\nxen-pvm:phy:/x\n", ("", {"kvm": "rbd:a/b", "xen-pvm": "phy:/x"})),
    ],
)
def test_output_of_attach(text, expected):
    assert ext.parse_attach(text) == expected


@pytest.mark.parametrize("text", ["/dev/x\nnonsense\n", "/dev/x\nkvm:\n", "/d\nkvm:a\nkvm:b\n"])
def test_output_of_attach_that_makes_no_sense(text):
    with pytest.raises(errors.ParseError):
        ext.parse_attach(text)
