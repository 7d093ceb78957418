"""The example OS definition ``image``: parameters, download, partitions, the seed disk."""

from __future__ import annotations

import functools
import hashlib
import http.server
import importlib
import json
import os
import shutil
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

DEFINITION = Path(__file__).resolve().parents[3] / "doc/examples/os/image"
NAMES = ("settings", "source", "partitions", "filesystem", "seed")
pytestmark = pytest.mark.programs


@pytest.fixture(scope="module", autouse=True)
def modules() -> Iterator[dict[str, ModuleType]]:
    """The modules of the definition, which is not a package and has names of its own."""
    sys.path.insert(0, str(DEFINITION))
    try:
        yield {name: importlib.import_module(name) for name in NAMES}
    finally:
        sys.path.remove(str(DEFINITION))
        for name in NAMES:
            del sys.modules[name]


def run(script: str, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
    """A script in the environment that the node daemon gives it."""
    return subprocess.run(
        [str(DEFINITION / script), *args],
        cwd=DEFINITION,
        text=True,
        env={"PATH": "/sbin:/bin:/usr/sbin:/usr/bin", **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )


def needs(*programs: str) -> None:
    missing = [name for name in programs if shutil.which(name) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} is not installed")


# Parameters


@pytest.mark.parametrize(
    "env, problem",
    [
        ({}, "parameter image"),
        ({"OSP_IMAGE": "images/debian.raw"}, "neither the name of an image nor an absolute"),
        ({"OSP_IMAGE": "ftp://host/x"}, "only http and https"),
        ({"OSP_IMAGE": "http://host/x"}, "parameter checksum: needed"),
        ({"OSP_IMAGE": "/x", "OSP_CHECKSUM": "md5:00"}, "neither sha256"),
        ({"OSP_IMAGE": "/x", "OSP_CHECKSUM": "sha256:" + "0" * 63}, "neither sha256"),
        ({"OSP_IMAGE": "/x", "OSP_FORMAT": "vmdk"}, "neither raw nor qcow2"),
        ({"OSP_IMAGE": "/x", "OSP_GROW": "maybe"}, "neither yes nor no nor filesystem"),
        ({"OSP_IMAGE": "/x", "OSP_USER_DATA": "u"}, "neither an absolute path nor user data"),
        ({"OSP_IMAGE": "/x", "OSP_SSH_KEY": "-----BEGIN PRIVATE KEY-----"}, "has a private key"),
        ({"OSP_IMAGE": "/x", "OSP_CACHE_DIR": "c"}, "not an absolute path"),
    ],
)
def test_wrong_parameters_are_named(
    modules: dict[str, Any], env: dict[str, str], problem: str
) -> None:
    with pytest.raises(modules["settings"].ScriptError, match=problem):
        modules["settings"].read(env)


def test_verify_is_called_as_published() -> None:
    assert run("verify", "parameters").returncode == 0
    assert run("verify", "parameters", OSP_IMAGE="/x", OSP_GROW="no").returncode == 0
    done = run("verify", "parameters", OSP_IMAGE="./x")
    assert (done.returncode, done.stderr) == (
        1,
        "image: error: parameter image: './x' is neither the name of an image nor an absolute path"
        " nor an address\n",
    )
    assert run("verify", "colours").returncode == 1


# The image


class Handler(http.server.SimpleHTTPRequestHandler):
    asked: list[str] = []

    def do_GET(self) -> None:
        self.asked.append(self.path)
        super().do_GET()

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def web(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A directory and its address."""
    directory = tmp_path / "web"
    directory.mkdir()
    Handler.asked = []
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Handler, directory=str(directory))
    )
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield directory, f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


def disk(path: Path, mib: int, content: bytes = b"") -> Path:
    path.write_bytes(content)
    os.truncate(path, mib << 20)
    return path


def create(target: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return run(
        "create", DISK_COUNT="1", DISK_0_PATH=str(target), INSTANCE_NAME="web1.example.com", **env
    )


@pytest.mark.parametrize("kind", ["raw", "qcow2"])
def test_image_of_a_path(tmp_path: Path, kind: str) -> None:
    needs("qemu-img")
    image = disk(tmp_path / "image", 2, b"system" * 1000)
    if kind == "qcow2":
        subprocess.run(["qemu-img", "convert", "-O", "qcow2", image, tmp_path / "q"], check=True)
        image = tmp_path / "q"
    target = disk(tmp_path / "disk", 4, b"\xff" * (4 << 20))
    done = create(target, OSP_IMAGE=str(image))
    assert done.returncode == 0, done.stderr
    written = target.read_bytes()
    # Also the holes of the image are written; behind it the disk is left alone.
    assert written[:6000] == b"system" * 1000 and not written[6000 : 2 << 20].strip(b"\0")
    assert "no partition table" in done.stdout


def test_image_that_does_not_fit_or_refers_to_others(tmp_path: Path) -> None:
    needs("qemu-img")
    target = disk(tmp_path / "disk", 1)
    done = create(target, OSP_IMAGE=str(disk(tmp_path / "large", 2)))
    assert "the image needs 2 MiB, the disk has 1" in done.stderr
    subprocess.run(
        [
            "qemu-img",
            "create",
            "-q",
            "-f",
            "qcow2",
            "-F",
            "raw",
            "-b",
            tmp_path / "disk",
            tmp_path / "thief",
        ],
        check=True,
    )
    done = create(disk(tmp_path / "disk2", 4), OSP_IMAGE=str(tmp_path / "thief"))
    assert (done.returncode, "refers to another file" in done.stderr) == (1, True)
    assert "no image /nowhere" in create(target, OSP_IMAGE="/nowhere").stderr


def test_image_from_the_web_is_checked_and_kept(web: tuple[Path, str], tmp_path: Path) -> None:
    needs("qemu-img")
    directory, address = web
    image = disk(directory / "image.raw", 1, b"from the web")
    digest = "sha256:" + hashlib.sha256(image.read_bytes()).hexdigest()
    env = {
        "OSP_IMAGE": f"{address}/image.raw",
        "OSP_CHECKSUM": digest,
        "OSP_CACHE_DIR": str(tmp_path / "cache"),
    }
    for _ in range(2):
        target = disk(tmp_path / "disk", 1)
        done = create(target, **env)
        assert done.returncode == 0, done.stderr
        assert target.read_bytes().startswith(b"from the web")
    assert Handler.asked == ["/image.raw"]  # the second one was fetched before
    (kept,) = [path for path in (tmp_path / "cache").iterdir() if not path.name.startswith(".")]
    kept.write_bytes(b"damaged")
    assert create(disk(tmp_path / "disk", 1), **env).returncode == 0
    assert len(Handler.asked) == 2
    done = create(target, **{**env, "OSP_CHECKSUM": "sha256:" + "0" * 64})
    assert "wanted 0000" in done.stderr
    done = create(
        target, **{**env, "OSP_IMAGE": f"{address}/missing", "OSP_CHECKSUM": "sha256:" + "1" * 64}
    )
    assert "File not found" in done.stderr
    assert not [path for path in (tmp_path / "cache").iterdir() if path.name.endswith(".part")]


def test_image_of_the_catalogue(tmp_path: Path) -> None:
    needs("qemu-img")
    image = disk(tmp_path / "image", 2, b"system" * 1000)
    digest = hashlib.sha256(image.read_bytes()).hexdigest()
    top = tmp_path / "images"
    top.mkdir()
    env = {"OSP_IMAGE": "debian-12", "IMAGES_DIR": str(top)}
    share = "on the master, run: gnt-os images share debian-12"
    target = disk(tmp_path / "disk", 4)

    def fails(problem: str) -> None:
        done = create(target, **env)
        assert done.returncode == 1
        assert problem in done.stderr and share in done.stderr, done.stderr
        assert not target.read_bytes().strip(b"\0")

    fails("this node does not have the image debian-12")
    (top / "debian-12.json").write_text(json.dumps({"sha256": digest, "format": "raw"}))
    fails("this node does not have the image debian-12")
    stored = top / f"{digest}.raw"
    stored.write_bytes(image.read_bytes()[:-1])
    fails("image debian-12 is damaged on this node")
    stored.write_bytes(image.read_bytes())
    for entry in ("{", "[]", '{"sha256": "../x", "format": "raw"}', '{"sha256": 1}'):
        (top / "debian-12.json").write_text(entry)
        fails("the entry of image debian-12 on this node is damaged")
    (top / "debian-12.json").write_text(json.dumps({"sha256": digest, "format": "raw"}))
    done = create(target, **env)
    assert done.returncode == 0, done.stderr
    assert target.read_bytes()[: 2 << 20] == image.read_bytes()
    other = create(target, **env, OSP_CHECKSUM="sha256:" + "0" * 64)
    assert (other.returncode, "wanted 0000" in other.stderr) == (1, True)


# File systems


@pytest.mark.parametrize("table", ["", "gpt", "dos"])
def test_file_system_grows(modules: dict[str, Any], tmp_path: Path, table: str) -> None:
    needs("sfdisk", "mkfs.ext4", "resize2fs", "e2fsck", "qemu-img")
    image = disk(tmp_path / "image", 12)
    start = 0
    if table:
        start = 1 << 20
        subprocess.run(
            ["sfdisk", "-q", image],
            input=f"label: {table}\nstart=2048, size=20000\n",
            text=True,
            check=True,
        )
    inside = disk(tmp_path / "fs", 9 if table else 12)
    subprocess.run(["mkfs.ext4", "-q", "-b", "1024", inside], check=True)
    with open(image, "r+b") as stream:
        stream.seek(start)
        stream.write(inside.read_bytes())
    target = disk(tmp_path / "disk", 64)
    done = create(target, OSP_IMAGE=str(image), OSP_GROW="filesystem")
    assert done.returncode == 0, done.stderr
    begin, length = modules["partitions"].last(str(target))
    assert begin == start and length >= 62 << 20
    said = subprocess.run(
        ["e2fsck", "-fn", f"{target}?offset={start}"], capture_output=True, text=True, check=False
    )
    assert said.returncode == 0, said.stdout
    # resize2fs leaves a last group out that is too small for its own tables.
    blocks, kib = int(said.stdout.split("/")[-1].split()[0]), length >> 10
    assert kib - (8 << 10) < blocks <= kib
    assert f"the file system has {blocks >> 10} MiB now" in done.stdout
    # The program cuts files; the disk must keep its size.
    assert target.stat().st_size == 64 << 20


def test_other_file_systems_are_left_to_the_guest(modules: dict[str, Any], tmp_path: Path) -> None:
    path = disk(tmp_path / "disk", 4, b"XFSB")
    said = modules["filesystem"].grow(str(path), modules["partitions"].last(str(path)))
    assert "the guest has to grow its own" in said
    assert modules["filesystem"].grow(str(path), (0, 0)) == said


@pytest.mark.parametrize("sectors", [8192, 0xFFFFFF00])
def test_a_partition_which_ends_after_the_disk(tmp_path: Path, sectors: int) -> None:
    """The table of an image from elsewhere may lie; the disk keeps its size and its data."""
    needs("mkfs.ext4", "resize2fs", "e2fsck", "qemu-img")
    inside = disk(tmp_path / "fs", 3)
    subprocess.run(["mkfs.ext4", "-q", "-b", "1024", inside], check=True)
    entry = struct.pack("<B3sB3sII", 0, bytes(3), 0x83, bytes(3), 2048, sectors)
    table = bytes(446) + entry + bytes(48) + b"\x55\xaa"
    image = tmp_path / "image"
    image.write_bytes(table.ljust(1 << 20, b"\0") + inside.read_bytes())
    target = disk(tmp_path / "disk", 4)
    done = create(target, OSP_IMAGE=str(image), OSP_GROW="filesystem")
    assert done.returncode == 0, done.stderr
    assert "ends behind the end of the disk" in done.stdout
    assert target.read_bytes() == image.read_bytes()


def test_a_table_with_huge_entries_is_not_read(modules: dict[str, Any], tmp_path: Path) -> None:
    path = disk(tmp_path / "disk", 2)
    with open(path, "r+b") as stream:
        stream.seek(450)
        stream.write(b"\xee")
        stream.seek(510)
        stream.write(b"\x55\xaa")
        stream.write(
            struct.pack(
                "<8sIIIIQQQQ16sQIII",
                b"EFI PART", 0x10000, 92, 0, 0, 1, 1, 34, 99, bytes(16), 2, 1024, 1 << 30, 0,
            )
        )  # fmt: skip
    assert modules["partitions"].last(str(path)) == (0, 0)


# Partitions


def test_gpt_grows(modules: dict[str, Any], tmp_path: Path) -> None:
    needs("sfdisk")
    path = disk(tmp_path / "disk", 8)
    subprocess.run(
        ["sfdisk", "-q", path],
        input="label: gpt\nstart=2048, size=2048, type=uefi\n"
        "start=4096, size=8192, type=linux, name=root\n",
        text=True,
        check=True,
    )
    os.truncate(path, 64 << 20)
    assert modules["partitions"].grow(str(path)) == "partition 2 grew from 4 to 61 MiB"
    table = json.loads(
        subprocess.run(
            ["sfdisk", "--json", path], capture_output=True, text=True, check=True
        ).stdout
    )["partitiontable"]
    first, last = table["partitions"]
    assert (first["start"], first["size"], last["start"], last["name"]) == (
        2048,
        2048,
        4096,
        "root",
    )
    assert last["size"] == 61 << 11
    said = subprocess.run(["sfdisk", "--verify", path], capture_output=True, text=True, check=False)
    assert said.returncode == 0 and "backup GPT" not in said.stderr, said.stderr
    # The copy at the end is good, too.
    with open(path, "r+b") as stream:
        stream.seek(512)
        stream.write(bytes(512))
    assert (
        "root"
        in subprocess.run(["sfdisk", "-d", path], capture_output=True, text=True, check=True).stdout
    )


def test_gpt_of_the_same_size_and_damaged_ones(modules: dict[str, Any], tmp_path: Path) -> None:
    needs("sfdisk")
    path = disk(tmp_path / "disk", 8)
    subprocess.run(
        ["sfdisk", "-q", path], input="label: gpt\nstart=2048, type=linux\n", text=True, check=True
    )
    assert "to the end of the disk already" in modules["partitions"].grow(str(path))
    for at in (512 + 24, 1024 + 40):
        data = bytearray(path.read_bytes())
        data[at] ^= 1
        path.write_bytes(data)
        assert "damaged and is not changed" in modules["partitions"].grow(str(path))
        assert path.read_bytes() == data


def test_dos_table_grows(modules: dict[str, Any], tmp_path: Path) -> None:
    needs("sfdisk")
    path = disk(tmp_path / "disk", 8)
    subprocess.run(
        ["sfdisk", "-q", path],
        input="label: dos\nstart=2048, size=4096\nstart=8192, size=4096, type=83, bootable\n",
        text=True,
        check=True,
    )
    os.truncate(path, 16 << 20)
    assert modules["partitions"].grow(str(path)) == "partition 2 grew from 2 to 12 MiB"
    table = subprocess.run(
        ["sfdisk", "-d", path], capture_output=True, text=True, check=True
    ).stdout
    assert "start=        8192, size=       24576, type=83, bootable" in table
    assert (
        modules["partitions"].grow(str(path))
        == "partition 2 extends to the end of the disk already"
    )
    assert modules["partitions"].grow(str(disk(tmp_path / "empty", 1))) == "no partition table"


# The seed

ENV = {
    "INSTANCE_NAME": "web1.example.com",
    "INSTANCE_UUID": "0f4c",
    "NIC_COUNT": "2",
    "NIC_0_MAC": "AA:00:00:00:00:01",
    "NIC_0_IP": "192.0.2.7",
    "NIC_0_NETWORK_SUBNET": "192.0.2.0/24",
    "NIC_0_NETWORK_GATEWAY": "192.0.2.1",
    "NIC_1_MAC": "aa:00:00:00:00:02",
}


def test_network_of_the_seed(modules: dict[str, Any]) -> None:
    cards = modules["seed"].network(ENV)["ethernets"]
    assert cards["nic0"] == {
        "match": {"macaddress": "aa:00:00:00:00:01"},
        "set-name": "eth0",
        "addresses": ["192.0.2.7/24"],
        "routes": [{"to": "0.0.0.0/0", "via": "192.0.2.1"}],
    }
    assert cards["nic1"]["dhcp4"] is True


@pytest.mark.parametrize("mib", [1, 4, 40])
def test_file_system_of_the_seed(modules: dict[str, Any], tmp_path: Path, mib: int) -> None:
    """Read by programs that were not written here."""
    needs("mtype", "fsck.fat")
    wanted = modules["settings"].read({"OSP_IMAGE": "/x", "OSP_SSH_KEY": "ssh-ed25519 AAAA me"})
    files = modules["seed"].contents(ENV, wanted)
    files |= {"large": bytes(range(256)) * 800, "empty": b"", "thirteen-char": b"x"}
    path = disk(tmp_path / "seed", mib)
    modules["seed"].write(str(path), files)
    checked = subprocess.run(
        ["fsck.fat", "-n", "-v", path], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout
    for name, content in files.items():
        assert (
            subprocess.run(
                ["mtype", "-i", path, f"::{name}"], capture_output=True, check=True
            ).stdout
            == content
        )
    label = subprocess.run(
        ["blkid", "-p", "-o", "export", path], capture_output=True, text=True, check=True
    ).stdout
    assert "LABEL=CIDATA" in label and "TYPE=vfat" in label
    user = files["user-data"].decode()
    assert user.startswith("#cloud-config\n") and "ssh-ed25519 AAAA me" in user
    assert json.loads(files["meta-data"])["local-hostname"] == "web1.example.com"


def test_user_data_as_a_text_with_several_keys(modules: dict[str, Any]) -> None:
    text = "#cloud-config\npackages: [nginx]"
    keys = "ssh-ed25519 AAAA me\n\nssh-rsa BBBB you\n"
    wanted = modules["settings"].read(
        {"OSP_IMAGE": "debian-12", "OSP_USER_DATA": text, "OSP_SSH_KEY": keys}
    )
    files = modules["seed"].contents(ENV, wanted)
    assert files["user-data"].decode() == text + "\n"
    assert json.loads(files["meta-data"])["public-keys"] == [
        "ssh-ed25519 AAAA me",
        "ssh-rsa BBBB you",
    ]


def test_seed_disk_that_is_too_small(modules: dict[str, Any]) -> None:
    with pytest.raises(modules["settings"].ScriptError, match="seed disk is too small"):
        modules["seed"].file_system(64 << 10, {"user-data": bytes(100 << 10)})


def test_create_and_rename_write_the_seed(tmp_path: Path) -> None:
    needs("qemu-img", "mtype")
    env = {
        "DISK_COUNT": "2",
        "DISK_0_PATH": str(disk(tmp_path / "disk", 1)),
        "DISK_1_PATH": str(disk(tmp_path / "seed", 1)),
        "DISK_1_NAME": "cidata",
        "OSP_IMAGE": str(disk(tmp_path / "image", 1, b"x")),
        **ENV,
    }
    assert run("create", **env).returncode == 0
    done = run(
        "rename",
        **{**env, "INSTANCE_NAME": "db1.example.com", "OLD_INSTANCE_NAME": "web1.example.com"},
    )
    assert done.returncode == 0, done.stderr
    meta = subprocess.run(
        ["mtype", "-i", tmp_path / "seed", "::meta-data"], capture_output=True, check=True
    ).stdout
    assert json.loads(meta)["local-hostname"] == "db1.example.com"
    del env["DISK_1_NAME"]
    assert "need a disk named cidata" in run("create", **env, OSP_SSH_KEY="k").stderr


def test_export_and_import(tmp_path: Path) -> None:
    source, target = disk(tmp_path / "a", 1, b"data"), disk(tmp_path / "b", 1)
    for size, problem in ((1, ""), (2, "larger than")):
        os.truncate(source, size << 20)
        piped = subprocess.run(
            f"{DEFINITION}/export | {DEFINITION}/import",
            shell=True,
            capture_output=True,
            text=True,
            check=False,
            env={
                "PATH": os.environ["PATH"],
                "EXPORT_DEVICE": str(source),
                "IMPORT_DEVICE": str(target),
            },
        )
        assert (problem in piped.stderr) if problem else piped.returncode == 0
        assert target.read_bytes()[:4] == b"data" and target.stat().st_size == 1 << 20
