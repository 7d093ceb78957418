"""Exports on a node, transfers from and to it, and the keys for them."""

import configparser
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from types import SimpleNamespace

import cryptography.x509
import pytest

from fakes.config import cluster_of, disk_of, instance_of
from fakes.transfer_options import keyed as options
from ganeti import errors, ht, storage
from ganeti.backend.backup import exports, transfers
from ganeti.backend.storage import extstorage
from ganeti.objects import Nic, fill
from ganeti.platform import machine, paths
from ganeti.storage.file import FileDevice
from ganeti.utils import fs, process, receipt, x509
from ganeti.wire.calls import backup as calls

PATIENCE_S = 60
NAME = "web.example.com"


def instance(os_name="", **changes):
    stored = instance_of(
        "web",
        os=os_name,
        disks=(disk_of("web", template="file").uuid,),
        tags=("a", "b"),
        nics=(Nic(mac="aa:00:00:00:00:01", ip="192.0.2.7", nicparams={}, uuid="nic-uuid"),),
        **changes,
    )
    data = cluster_of(instances=(stored,), disks=(disk_of("web", template="file"),))
    return fill.filled_instance(data, stored)


def export_of(here, name, text="[export]\nversion = 0\n[instance]\nname = web\n"):
    directory = f"{here.export_dir}/{name}"
    os.makedirs(directory)
    with open(f"{directory}/config.ini", "w") as stream:
        stream.write(text)
    return directory


# -- exports ---------------------------------------------------------------------


def test_list_and_remove(here):
    assert exports.export_list() == []
    for name in ("one", "two", "three~new", "four~old", "one.new", "one.old"):
        export_of(here, name)
    os.makedirs(f"{here.export_dir}/empty")
    # Instances may have names such as one.new.
    assert sorted(exports.export_list()) == ["one", "one.new", "one.old", "two"]
    exports.export_remove("one")
    exports.export_remove("three~new")
    exports.export_remove("three~new")
    assert exports.export_list() == ["one.new", "one.old", "two"]
    with pytest.raises(errors.OpExecError, match="no export one"):
        exports.export_remove("one")


def test_details_of_exports(here):
    path = export_of(
        here,
        "web",
        "[export]\ntimestamp = 1000\nsource = uuid-1\n[instance]\nname = web.example.com\n"
        "disk_count = 2\ndisk0_dump = a\ndisk1_dump = b\n",
    )
    for name, size in (("a", 1000), ("b", 24)):
        with open(f"{path}/{name}", "wb") as stream:
            stream.truncate(size)
    export_of(here, "bare")
    export_of(here, "odd", "no description")
    export_of(here, "short", "[export]\n[instance]\ndisk_count = 1\ndisk0_dump = a\n")
    nothing = {"ctime": None, "size": None, "instance": None, "source": None}
    assert exports.export_details() == {
        "web": {"ctime": 1000, "size": 1024, "instance": "web.example.com", "source": "uuid-1"},
        "bare": {"ctime": None, "size": 0, "instance": "web", "source": None},
        "odd": nothing,
        "short": nothing,
    }


def test_an_export_is_removed_by_its_identity(here, monkeypatch):
    """Another node with the same directory is asked to remove the older one, maybe late."""
    assert exports.export_find("one") == (None, [])
    export_of(here, "one")
    for name in ("one~new", "one~new.5", "one~old", "one.new", "ones"):
        export_of(here, name)
    older, left = exports.export_find("one")
    assert left == ["one~new", "one~new.5", "one~old"]
    assert exports.export_find("one.new") == (older, [])
    for name in left:
        exports.export_remove(name)
        exports.export_remove(name)
    shutil.rmtree(f"{here.export_dir}/one")
    export_of(here, "one", "[export]\nidentity = 1-2-3\n[instance]\n")
    assert exports.export_find("one") == ("1-2-3", [])
    assert exports.export_remove("one", older) is False
    assert exports.export_remove("two", older) is False
    # A network file system may answer from its memory, until the directory has another name.
    real = exports._identity
    final = f"{here.export_dir}/one"
    monkeypatch.setattr(exports, "_identity", lambda path: older if path == final else real(path))
    with pytest.raises(errors.OpExecError, match="another export has taken its place"):
        exports.export_remove("one", older)
    assert sorted(os.listdir(here.export_dir)) == ["one", "one.new", "ones"]
    monkeypatch.undo()
    assert exports.export_remove("one", "1-2-3") is True
    assert exports.export_list() == ["one.new", "ones"]


def test_two_nodes_remove_the_same_directory(here, monkeypatch):
    path = export_of(here, "one~new")
    for name in "abc":
        with open(f"{path}/{name}", "w"):
            pass
    real = os.unlink

    def met(name, **where):
        """The other node is always faster."""
        real(name, **where)
        real(name, **where)

    monkeypatch.setattr(os, "unlink", met)
    exports.export_remove("one~new")
    assert os.listdir(here.export_dir) == []


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", ".hidden"])
def test_names_that_lead_elsewhere(here, name):
    with pytest.raises(errors.OpExecError, match="not the name of an export"):
        exports.export_remove(name)


def test_info(here):
    export_of(here, "one")
    everywhere = paths.Paths().export_dir
    for path in ("one", f"{everywhere}/one", f"{here.export_dir}/one"):
        assert "name = web" in exports.export_info(path)
    export_of(here, "bad", "no ini")
    export_of(here, "half", "[export]\n")
    for path, fragment in (
        ("none", "no export in"),
        ("bad", "no section headers"),
        ("half", "no section instance"),
        ("/etc", "not below"),
        ("../..", "not below"),
        (everywhere, "no export in"),
    ):
        with pytest.raises(errors.OpExecError, match=fragment):
            exports.export_info(path)


def test_finalize(here):
    found = instance(
        "tiny+small", osparams={"Size": "9"}, osparams_private=ht.PrivateDict({"pass": "x"})
    )
    (disk,) = found.disks_info
    new = f"{here.export_dir}/{NAME}~new"
    with pytest.raises(errors.OpExecError, match="has not arrived"):
        exports.finalize_export(found, [disk])
    assert exports.export_list() == []
    arrive(f"{new}/{disk.uuid}", b"data")
    arrive(f"{new}/left-by-another-attempt", b"data")
    old = export_of(here, NAME)
    exports.finalize_export(found, [disk])
    assert sorted(os.listdir(here.export_dir)) == [NAME]
    assert sorted(os.listdir(old)) == sorted([disk.uuid, "config.ini"])
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str
    parser.read(f"{old}/config.ini")
    assert os.stat(f"{old}/config.ini").st_mode & 0o777 == 0o600
    assert {name: dict(parser[name]) for name in ("os", "os_private", "hypervisor")} == {
        "os": {"Size": "9"},
        "os_private": {"pass": "x"},
        "hypervisor": {},
    }
    described = dict(parser["instance"])
    assert described.pop("memory") == described["maxmem"]
    assert {
        key: described[key]
        for key in (
            "name",
            "disk_template",
            "hypervisor",
            "tags",
            "nic_count",
            "nic0_mac",
            "nic0_ip",
            "nic0_network",
            "nic0_mode",
            "nic0_vlan",
            "disk_count",
            "disk0_ivname",
            "disk0_dump",
            "disk0_size",
            "disk0_name",
            "disk0_bytes",
            "disk0_sha256",
        )
    } == {
        "name": NAME,
        "disk_template": "file",
        "hypervisor": "fake",
        "tags": "a b",
        "nic_count": "1",
        "nic0_mac": "aa:00:00:00:00:01",
        "nic0_ip": "192.0.2.7",
        "nic0_network": "None",
        "nic0_mode": "bridged",
        "nic0_vlan": "",
        "disk_count": "1",
        "disk0_ivname": "disk/0",
        "disk0_dump": disk.uuid,
        "disk0_size": "1024",
        "disk0_name": "None",
        "disk0_bytes": "4",
        "disk0_sha256": hashlib.sha256(b"data").hexdigest(),
    }


def arrive(path, data):
    """What a complete transfer of a file leaves."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as stream:
        stream.write(data)
    tally, found = receipt.Tally(), os.stat(path)
    tally.add(data)
    receipt.write(path, tally, (found.st_dev, found.st_ino))


def exported(here, data, *, finalize=True):
    """Export the instance; returns the path of its file."""
    found = instance()
    (disk,) = found.disks_info
    arrive(f"{here.export_dir}/{NAME}~new/{disk.uuid}", data)
    if finalize:
        exports.finalize_export(found, [disk])
    return f"{here.export_dir}/{NAME}/{disk.uuid}"


def read(path):
    with open(path, "rb") as stream:
        return stream.read()


def without_receipt(path):
    os.unlink(path + receipt.SUFFIX)


def cut_off(path):
    os.truncate(path, 3)


def written_by_another(path):
    with open(f"{path}.other", "wb") as stream:
        stream.write(b"newer")
    os.rename(f"{path}.other", path)


def with_damaged_receipt(path):
    with open(path + receipt.SUFFIX, "w") as stream:
        stream.write("5\n")


@pytest.mark.parametrize(
    ("break_it", "fragment"),
    [
        (without_receipt, "was not received completely"),
        (cut_off, "has 3 bytes, but 5 were received"),
        (written_by_another, "is not the file that was received"),
        (with_damaged_receipt, "has a damaged receipt"),
        (os.unlink, "is missing"),
    ],
)
def test_an_older_export_stays_when_the_new_one_is_not_complete(here, break_it, fragment):
    path = exported(here, b"good")
    before = exports.export_info(NAME)
    exported(here, b"newer", finalize=False)
    break_it(path.replace(NAME, f"{NAME}~new", 1))
    found = instance()
    with pytest.raises(errors.OpExecError, match=fragment):
        exports.finalize_export(found, found.disks_info)
    assert (exports.export_list(), exports.export_info(NAME)) == ([NAME], before)
    assert read(path) == b"good"
    exports.export_remove(f"{NAME}~new")
    assert os.listdir(here.export_dir) == [NAME]


@pytest.mark.parametrize("exchanges", [True, False])
def test_there_is_an_export_at_every_moment(here, monkeypatch, exchanges):
    """The replacement is broken off at each step, and done again."""
    path = exported(here, b"good")
    steps, breaks = [], []
    real = {"rename": os.rename, "exchange": fs.exchange}

    def step(name):
        def act(*args):
            if name == "exchange" and not exchanges:
                return False
            # Not the files in the directories.
            if args[0].endswith((NAME, f"{NAME}~new")):
                steps.append(name)
                if len(steps) in breaks:
                    raise KeyboardInterrupt
            return real[name](*args)

        return act

    monkeypatch.setattr(os, "rename", step("rename"))
    monkeypatch.setattr(fs, "exchange", step("exchange"))
    wanted = 1 if exchanges else 2
    for number in range(1, wanted + 1):
        steps.clear()
        breaks[:] = [number]
        with pytest.raises(KeyboardInterrupt):
            exported(here, b"newer")
        # The next export begins so.
        breaks.clear()
        exports.export_remove(f"{NAME}~new")
        assert (exports.export_list(), read(path)) == ([NAME], b"good")
        assert os.listdir(here.export_dir) == [NAME]
    steps.clear()
    exported(here, b"newer")
    assert steps == (["exchange"] if exchanges else ["rename", "rename"])
    assert read(path) == b"newer"
    assert os.listdir(here.export_dir) == [NAME]


def test_the_export_of_an_instance_with_a_similar_name_stays(here):
    path = exported(here, b"good")
    similar = export_of(here, f"{NAME}.new")
    exports.export_remove(f"{NAME}~new")
    exported(here, b"newer")
    assert os.path.isdir(similar) and read(path) == b"newer"


@pytest.mark.parametrize(
    ("break_it", "fragment"),
    [
        (os.unlink, "disk 0: file .* is missing"),
        (cut_off, "has 3 bytes, but must have 4"),
        (lambda path: os.truncate(path, 0), "has 0 bytes, but must have 4"),
        (lambda path: (os.unlink(path), os.mkdir(path)), "is not a file"),
    ],
)
def test_a_damaged_export_is_not_offered(here, break_it, fragment):
    break_it(exported(here, b"good"))
    with pytest.raises(errors.OpExecError, match=fragment):
        exports.export_info(NAME)


def test_exports_of_other_versions(here):
    """They do not have the sizes of the files."""
    text = "[export]\nversion = 0\n[instance]\nname = web\ndisk_count = 1\ndisk0_dump = d\n"
    directory = export_of(here, "other", text)
    with pytest.raises(errors.OpExecError, match="file d is missing"):
        exports.export_info("other")
    open(f"{directory}/d", "w").close()
    with pytest.raises(errors.OpExecError, match="file d is empty"):
        exports.export_info("other")
    with open(f"{directory}/d", "w") as stream:
        stream.write("x")
    assert exports.export_info("other") == text
    assert exports.recorded_checksum(f"{directory}/d") is None


def test_an_instance_without_disks(here):
    exports.finalize_export(instance(), [])
    assert exports.export_list() == [NAME]


# -- keys ------------------------------------------------------------------------


def test_keys(here):
    name, certificate = transfers.x509_cert_create(86400)
    directory = f"{here.crypto_keys_dir}/{name}"
    assert sorted(os.listdir(directory)) == ["cert", "key"]
    assert "PRIVATE" not in certificate
    with open(f"{directory}/key") as stream:
        assert "PRIVATE" in stream.read()
    info = x509.describe(certificate)
    assert 0 < info.not_after - time.time() <= 86400
    # The original in version 3.0 wants the common name, in version 3.1 the name of the machine.
    assert info.subject == x509.DEFAULT_COMMON_NAME
    names = cryptography.x509.load_pem_x509_certificate(certificate.encode())
    names = names.extensions.get_extension_for_class(cryptography.x509.SubjectAlternativeName)
    assert names.value.get_values_for_type(cryptography.x509.DNSName) == [
        x509.DEFAULT_COMMON_NAME,
        machine.current().hostname(),
    ]
    transfers.x509_cert_remove(name)
    transfers.x509_cert_remove(name)
    assert os.listdir(here.crypto_keys_dir) == []
    for wrong in ("..", "a/b", ""):
        with pytest.raises(errors.OpExecError, match="not the name of a key"):
            transfers.x509_cert_remove(wrong)


def test_what_was_forgotten_goes(here):
    old, _certificate = transfers.x509_cert_create(60)
    past = time.time() - 3 * 86400
    os.utime(f"{here.crypto_keys_dir}/{old}", (past, past))
    new, _certificate = transfers.x509_cert_create(60)
    third, _certificate = transfers.x509_cert_create(60)
    assert sorted(os.listdir(here.crypto_keys_dir)) == sorted([new, third])


# -- transfers -------------------------------------------------------------------


@pytest.fixture
def node(here, monkeypatch):
    """A node, whose transfers are gone after the test."""
    monkeypatch.setenv("GANETI_ROOTDIR", here.root)
    yield here
    if os.path.isdir(here.import_export_dir):
        for name in os.listdir(here.import_export_dir):
            transfers.impexp_cleanup(name)


def until(name, condition):
    deadline = time.monotonic() + PATIENCE_S
    while True:
        (status,) = transfers.impexp_status([name])
        if status is not None and condition(status):
            return status
        assert time.monotonic() < deadline, status
        time.sleep(0.01)


def ended(status):
    return status.exit_status is not None


@pytest.mark.parametrize("validity_s", [0, -1, 1 << 64, 10**400])
def test_a_validity_that_no_certificate_has(here, validity_s):
    with pytest.raises(errors.ParameterError, match="valid for 1 to"):
        transfers.x509_cert_create(validity_s)
    assert not os.path.exists(here.crypto_keys_dir)


@pytest.mark.parametrize(
    ("changes", "fragment"),
    [
        ({"connect_timeout": 1 << 64}, "seconds to connect"),
        ({"connect_timeout": 10**400}, "seconds to connect"),
        ({"connect_timeout": -1}, "seconds to connect"),
        ({"compress": "gzip\0"}, "compress"),
        ({"compress": "\ud800"}, "compress"),
        ({"compress": "--file"}, "compress"),
        ({"key_name": "\0"}, "key_name"),
        ({"ca_pem": "\udfff"}, "not a PEM text"),
        # As a master of an older version sends it: with the key which all nodes have.
        ({"key_name": None, "ca_pem": None}, "needs a key of its own"),
        ({"key_name": None}, "needs a key of its own"),
        ({"ca_pem": None}, "needs a key of its own"),
        ({"ca_pem": ""}, "needs a key of its own"),
        ({"magic": "\ud800"}, "magic word"),
        ({"magic": "a\0b"}, "magic word"),
    ],
)
def test_odd_options_of_a_transfer(node, changes, fragment):
    found = instance()
    target = (calls.FILE, f"{paths.current().to_virtual(node.export_dir)}/web~new/disk0")
    with pytest.raises(errors.ParameterError, match=fragment):
        transfers.import_start(options(**changes), found, "disk/0", target)
    assert not os.path.exists(node.import_export_dir)


@pytest.mark.parametrize(
    ("host", "port", "component", "fragment"),
    [
        ("a\0b", 1, "disk/0", "host"),
        ("\ud800", 1, "disk/0", "host"),
        ("--port", 1, "disk/0", "host"),
        ("h", 1 << 64, "disk/0", "from 1 to 65535"),
        ("h", 10**400, "disk/0", "from 1 to 65535"),
        ("h", 0, "disk/0", "from 1 to 65535"),
        ("h", 1, "disk/\0", "component"),
        ("h", 1, "\udc00", "component"),
    ],
)
def test_an_odd_other_end(node, host, port, component, fragment):
    found = instance()
    disk = replace(found.disks_info[0], size=1)
    source = storage.device(disk).path
    os.makedirs(os.path.dirname(source))
    with open(source, "wb") as stream:
        stream.write(bytes(1 << 20))
    with pytest.raises(errors.ParameterError, match=fragment):
        transfers.export_start(options(), host, port, found, component, (calls.RAW, disk))
    assert not os.path.exists(node.import_export_dir)


@pytest.mark.programs
@pytest.mark.parametrize(
    "words",
    [
        ("--host", "h", "--port", str(1 << 64)),
        ("--host", "a" * 70_000, "--port", "1"),
        ("--host", "127.0.0.1", "--port", "1", "--connect-timeout", "1e300"),
        ("--host", "127.0.0.1", "--port", "1", "--connect-timeout", "nan"),
        ("--host", "127.0.0.1", "--port", "1", "--connect-timeout", "-1"),
    ],
)
def test_the_program_gives_a_reason_for_odd_arguments(node, tmp_path, words):
    pem, status = str(tmp_path / "pem"), tmp_path / "status"
    fs.write_file(pem, x509.create_self_signed())
    data = tmp_path / "data"
    data.write_bytes(b"x")
    argv = [str(status), "export", "--key", pem, "--cert", pem, "--ca", pem, "--file", str(data)]
    done = subprocess.run(
        [sys.executable, "-m", "ganeti.helpers.import_export", *argv, *words],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
    )
    assert done.returncode == 1 and "Traceback" not in done.stderr
    found = json.loads(status.read_text())
    assert found["exit_status"] == 1 and found["error_message"]


@pytest.mark.programs
def test_a_transfer(node):
    """From a disk of an instance without OS to a file of an export, and its ends."""
    found = instance()
    disk = replace(found.disks_info[0], size=1)
    source = storage.device(disk).path
    os.makedirs(os.path.dirname(source))
    with open(source, "wb") as stream:
        stream.write(b"content" * 1000)
        stream.truncate(disk.size << 20)
    target = f"{paths.Paths().export_dir}/{NAME}~new/{disk.uuid}"
    receiver = transfers.import_start(options(), found, "disk/0", (calls.FILE, target))
    port = until(receiver, lambda status: status.listen_port).listen_port
    sender = transfers.export_start(
        options(), "127.0.0.1", port, found, "disk/0", (calls.SCRIPT, (disk, 0))
    )
    assert until(sender, ended).exit_status == 0
    assert until(receiver, ended).exit_status == 0
    arrived = node.to_local(target)
    with open(arrived, "rb") as stream:
        assert stream.read(7000) == b"content" * 1000
    assert receipt.check(arrived).size == disk.size << 20 == os.path.getsize(arrived)
    exports.finalize_export(found, [disk])
    assert os.path.isdir(f"{node.import_export_dir}/{sender}")
    for name in (sender, receiver, receiver):
        transfers.impexp_cleanup(name)
    assert os.listdir(node.import_export_dir) == []
    assert transfers.impexp_status([sender]) == [None]


@pytest.mark.programs
def test_a_disk_which_ends_within_a_mib_is_sent_to_its_last_byte(node):
    """The end of a disk has the second copy of its partition table."""
    found = instance()
    disk = replace(found.disks_info[0], size=9)
    source = storage.device(disk).path
    os.makedirs(os.path.dirname(source))
    size = (8 << 20) + (1 << 19)
    with open(source, "wb") as stream:
        stream.truncate(size - 33 * 512)
        stream.seek(0, os.SEEK_END)
        stream.write(b"EFI PART".ljust(33 * 512, b"g"))
    target = f"{paths.Paths().export_dir}/{NAME}~new/{disk.uuid}"
    receiver = transfers.import_start(options(), found, "disk/0", (calls.FILE, target))
    port = until(receiver, lambda status: status.listen_port).listen_port
    sender = transfers.export_start(
        options(), "127.0.0.1", port, found, "disk/0", (calls.RAW, disk)
    )
    assert until(sender, ended).exit_status == 0
    assert until(receiver, ended).exit_status == 0
    with open(source, "rb") as before, open(node.to_local(target), "rb") as after:
        assert before.read() == after.read()
    assert receipt.check(node.to_local(target)).size == size


@pytest.mark.parametrize(
    ("device_bytes", "size_mib", "sent"),
    [
        (9 << 20, 9, 9 << 20),
        ((8 << 20) + 512, 9, (8 << 20) + 512),
        # LVM made the volume larger than the mirror above it.
        (12 << 20, 9, 9 << 20),
        ((8 << 20) - 512, 8, (8 << 20) - 512),
        (8 << 20, 9, None),
    ],
)
def test_how_much_of_a_device_is_sent(node, device_bytes, size_mib, sent):
    disk = replace(instance().disks_info[0], size=size_mib)
    source = storage.device(disk).path
    os.makedirs(os.path.dirname(source))
    with open(source, "wb") as stream:
        stream.truncate(device_bytes)
    if sent is None:
        with pytest.raises(errors.BlockDeviceError, match="fewer than the 9 MiB of the disk"):
            transfers._raw("export", disk)
    else:
        words = transfers._raw("export", disk).words
        assert words[words.index("--bytes") + 1] == str(sent)


def test_how_much_an_export_will_have(node, monkeypatch):
    """A raw export has the bytes of the disk; a disk which is not active has its recorded size."""
    found = instance()
    disk = replace(found.disks_info[0], size=9)
    assert transfers.export_sizes(found, [disk]) == [9 << 20]
    source = storage.device(disk).path
    os.makedirs(os.path.dirname(source))
    with open(source, "wb") as stream:
        stream.truncate((8 << 20) + 512)
    assert transfers.export_sizes(found, [disk]) == [(8 << 20) + 512]
    script = SimpleNamespace(export_script="/srv/os/export")
    monkeypatch.setattr(transfers.os_definitions, "require", lambda _name: script)
    assert transfers.export_sizes(replace(found, os="packs"), [disk, disk]) == [None, None]


@pytest.mark.programs
def test_a_file_whose_content_has_changed_is_not_sent_completely(node):
    path = exported(node, b"good" * 1000)
    with open(path, "r+b") as stream:
        stream.write(b"evil")
    found = instance()
    receiver = transfers.import_start(
        options(), found, "disk/0", (calls.FILE, f"{paths.Paths().export_dir}/x/y")
    )
    port = until(receiver, lambda status: status.listen_port).listen_port
    sender = transfers.export_start(
        options(),
        "127.0.0.1",
        port,
        found,
        "disk/0",
        (calls.FILE, f"{NAME}/{os.path.basename(path)}"),
    )
    assert "is damaged" in until(sender, ended).error_message
    assert until(receiver, ended).exit_status == 1
    assert not os.path.exists(f"{node.export_dir}/x/y{receipt.SUFFIX}")


@pytest.mark.programs
def test_cleanup_ends_what_a_killed_transfer_has_left(node):
    """Its script goes on, and would hold the lock of the disk until it ends by itself."""
    leader = subprocess.Popen(
        ["sh", "-c", "sleep 1000 & echo $!; exec sleep 1000"],
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    script = int(leader.stdout.readline())
    leader.kill()
    leader.wait()
    assert process.is_alive(script)
    os.makedirs(f"{node.import_export_dir}/left")
    fs.write_file(f"{node.import_export_dir}/left/pid", f"{leader.pid}\n")
    transfers.impexp_cleanup("left")
    assert not process.is_alive(script)
    transfers.impexp_cleanup("left")
    leader.stdout.close()


@pytest.mark.programs
def test_abort_and_cleanup(node):
    found = instance()
    target = (calls.FILE, f"{paths.Paths().export_dir}/x/y")
    name = transfers.import_start(options(), found, "disk/0", target)
    until(name, lambda status: status.listen_port)
    transfers.impexp_abort(name)
    status = until(name, ended)
    assert (status.exit_status, status.error_message) == (1, "the transfer was aborted")
    other = transfers.import_start(options(), found, "disk/1", target)
    until(other, lambda status: status.listen_port)
    with open(f"{node.import_export_dir}/{other}/pid") as stream:
        pid = int(stream.read())
    transfers.impexp_cleanup(other)
    assert not process.is_alive(pid)
    third = transfers.import_start(options(), found, "disk/1", target)
    until(third, lambda status: status.listen_port)
    with open(f"{node.import_export_dir}/{third}/pid") as stream:
        os.kill(int(stream.read()), 9)
    assert until(third, ended).error_message == "its process ended without a reason"


@pytest.mark.parametrize("mode", ["export", "import"])
def test_scripts_get_the_address_of_a_disk(node, script, monkeypatch, mode):
    path = f"{node.os_search_path[0]}/tiny"
    os.makedirs(path)
    for name, text in (("ganeti_api_version", "20\n"), ("parameters.list", "")):
        with open(f"{path}/{name}", "w") as stream:
            stream.write(text)
    for name in ("create", "verify", mode):
        script(f"{path}/{name}", "exit 0")
    found = instance("tiny")
    (disk,) = found.disks_info
    key = f"{mode.upper()}_DISK_URI"
    assert key not in transfers._script(mode, found, "disk/0", disk, 0).env
    kind = type(storage.device(disk))
    monkeypatch.setattr(kind, "uri", lambda self, hypervisor: f"rbd:x for {hypervisor}")
    env = transfers._script(mode, found, "disk/0", disk, 0).env
    assert env[key] == env["DISK_0_URI"] == f"rbd:x for {found.hypervisor}"


@pytest.mark.programs
def test_scripts_of_the_os_do_the_work(node, script):
    path = f"{node.os_search_path[0]}/tiny"
    for name, text in (("ganeti_api_version", "20\n"), ("parameters.list", "")):
        os.makedirs(path, exist_ok=True)
        with open(f"{path}/{name}", "w") as stream:
            stream.write(text)
    for name in ("create", "verify"):
        script(f"{path}/{name}", "exit 0")
    script(f"{path}/export", 'echo "$EXPORT_INDEX $INSTANCE_NAME $EXPORT_DEVICE"; echo no >&2')
    found = instance("tiny")
    (disk,) = found.disks_info
    target = f"{paths.Paths().export_dir}/x/y"
    receiver = transfers.import_start(options(), found, "disk/0", (calls.FILE, target))
    port = until(receiver, lambda status: status.listen_port).listen_port
    sender = transfers.export_start(
        options(), "127.0.0.1", port, found, "disk/0", (calls.SCRIPT, (disk, 7))
    )
    assert until(sender, ended).recent_output == ("no",)
    assert until(receiver, ended).exit_status == 0
    with open(node.to_local(target)) as stream:
        assert stream.read() == f"7 {NAME} {storage.device(disk).path}\n"
    (log,) = os.listdir(node.log_os_dir)
    assert log.startswith(f"export-tiny-{NAME}-disk_0-")


@pytest.mark.parametrize(
    ("changes", "target", "fragment"),
    [
        ({}, "/etc/passwd", "not below"),
        ({}, "../../../etc/passwd", "not below"),
        ({"key_name": "no-such-key"}, "x/y", "no key no-such-key"),
        ({"key_name": "../../x"}, "x/y", "not the name of a key"),
    ],
)
def test_a_transfer_is_refused(node, changes, target, fragment):
    with pytest.raises(errors.OpExecError, match=fragment):
        transfers.import_start(options(**changes), instance(), "disk/0", (calls.FILE, target))
    assert not os.path.isdir(node.import_export_dir) or os.listdir(node.import_export_dir) == []


def test_a_disk_which_may_lack_writes_is_not_sent_but_may_be_filled(node, monkeypatch):
    found = instance()
    (disk,) = found.disks_info

    def refuse(self):
        raise self.fail("may lack writes")

    monkeypatch.setattr(FileDevice, "require_latest_data", refuse)
    for what in ((calls.SCRIPT, (disk, 0)), (calls.RAW, disk)):
        with pytest.raises(errors.BlockDeviceError, match="may lack writes"):
            transfers.export_start(options(), "127.0.0.1", 1, found, "disk/0", what)
        assert transfers._endpoint("import", found, "disk/0", what).words[0] == "--device"
    assert not os.path.isdir(node.import_export_dir) or os.listdir(node.import_export_dir) == []


def test_names_of_transfers_that_lead_elsewhere(here):
    for name in ("../x", ".", ""):
        for call in (transfers.impexp_abort, transfers.impexp_cleanup):
            with pytest.raises(errors.OpExecError, match="not the name of a transfer"):
                call(name)


# -- external storage ------------------------------------------------------------


def test_providers_of_external_storage(here, script):
    assert extstorage.extstorage_diagnose() == []
    path = f"{here.extstorage_search_path[0]}/shelf"
    for name in ("attach", "create", "detach", "grow", "remove", "setinfo", "verify"):
        script(f"{path}/{name}", "exit 0")
    with open(f"{path}/parameters.list", "w") as stream:
        stream.write("level which board\n")
    os.makedirs(f"{here.extstorage_search_path[1]}/shelf")
    first, second = extstorage.extstorage_diagnose()
    assert first == ["shelf", path, True, "", [["level", "which board"]]]
    assert (second[:1], second[2], second[4]) == (["shelf"], False, [])
    assert "missing" in second[3]
