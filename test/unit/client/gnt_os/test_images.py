"""``gnt-os images``, with nodes which are directories, and ``gnt-instance add --image``."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from fakes.luxi_master import FakeMaster
from ganeti.cli import image_copies, remote
from ganeti.foreign import catalogue, fetching, images, short_names
from ganeti.platform import hosts, machine, paths

from ..conftest import Gnt

pytestmark = pytest.mark.programs
NODES = NODE1, NODE2, NODE3 = [f"node{number}.example.com" for number in (1, 2, 3)]
CONTENT = b"a system" * 5000
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def nodes(master: FakeMaster, here: paths.Paths, monkeypatch: pytest.MonkeyPatch) -> FakeMaster:
    """A master with three nodes, whose directories take commands; qemu-img is simulated."""
    master.rows["node"] = [
        {"name": name, "pip": "192.0.2.1", "master": name == NODE1, "offline": False, "group": "g"}
        | {"vm_capable": True}
        for name in NODES
    ]
    for name in (NODE2, NODE3):
        root = Path(here.root).parent / name
        root.mkdir()
        command = root / "cmd"
        command.write_text(f'#!/bin/sh\nGANETI_ROOTDIR={root} exec "$@"\n')
        command.chmod(0o755)
    monkeypatch.setattr(
        images,
        "inspect",
        lambda path, format_, run, shown: images.ImageInfo("qcow2", 48 << 20, ()),
    )
    return master


@pytest.fixture
def source(here: paths.Paths) -> Path:
    path = Path(here.root) / "debian.qcow2"
    path.write_bytes(CONTENT)
    return path


def directory(here: paths.Paths, node: str) -> Path:
    return Path(here.root).parent / node / "srv/ganeti/images"


def files(top: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in top.iterdir() if path.name != ".lock"}


def test_fetch_list_and_remove(
    gnt: Gnt, nodes: FakeMaster, here: paths.Paths, source: Path
) -> None:
    assert gnt("os images").out == "Name Format DiskSize FileSize Verified Source\n"
    ended = gnt(f"os images fetch --checksum=sha256:{SHA256} debian-12 {source}")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.splitlines() == [
        f"fetched image debian-12: qcow2, disk of 48 MiB, sha256 {SHA256}",
        f"{NODE2}: has debian-12",
        f"{NODE3}: has debian-12",
    ]
    whole = files(directory(here, NODE1))
    assert sorted(whole) == [f"{SHA256}.qcow2", "debian-12.json"]
    assert files(directory(here, NODE2)) == files(directory(here, NODE3)) == whole
    line = gnt("os images list --no-headers --separator=|").out
    assert line == f"debian-12|qcow2|48|1|checksum|{source}\n"
    assert json.loads(gnt("os images -o name,sha256 -o json list").out) == [
        {"name": "debian-12", "sha256": SHA256}
    ]
    assert gnt("os images check").out.splitlines() == [f"{node}: debian-12 ok" for node in NODES]
    ended = gnt("os images remove debian-12")
    assert ended.code == 0 and f"{NODE3}: removed debian-12.json" in ended.out
    for node in NODES:
        assert files(directory(here, node)) == {}


@pytest.mark.parametrize(
    ("links", "said"),
    [
        ({NODE2: NODE1}, [f"{NODE2}: has the same directory as this node", f"{NODE3}: has debian"]),
        ({NODE3: NODE2}, [f"{NODE3}: has the same directory as {NODE2}", f"{NODE2}: has debian"]),
        (
            {NODE2: NODE1, NODE3: NODE1},
            [f"{node}: has the same directory as this node" for node in (NODE2, NODE3)],
        ),
    ],
)
def test_nodes_with_one_directory_of_images(
    gnt: Gnt,
    nodes: FakeMaster,
    here: paths.Paths,
    source: Path,
    links: dict[str, str],
    said: list[str],
) -> None:
    """What is being sent to another node is not tidied away, and nothing is sent twice."""
    directory(here, NODE1).mkdir(parents=True)
    for node, other in links.items():
        directory(here, other).mkdir(parents=True, exist_ok=True)
        directory(here, node).parent.mkdir(parents=True, exist_ok=True)
        directory(here, node).symlink_to(directory(here, other))
    ended = gnt(f"os images fetch debian-12 {source}")
    assert ended.code == 0, ended.err
    for line in said:
        assert line in ended.out
    for node in NODES:
        assert sorted(files(directory(here, node))) == [f"{SHA256}.qcow2", "debian-12.json"]


def test_image_without_proof(gnt: Gnt, nodes: FakeMaster, source: Path) -> None:
    ended = gnt(f"os images fetch debian-12 {source}")
    assert (ended.code, "Note: nothing proved the content" in ended.err) == (0, True)
    assert gnt("os images -o verified --no-headers").out == "no\n"


def test_new_content_replaces_the_old_one_on_all_nodes(
    gnt: Gnt, nodes: FakeMaster, here: paths.Paths, source: Path
) -> None:
    gnt(f"os images fetch debian-12 {source}")
    source.write_bytes(b"newer")
    assert "replaced image debian-12" in gnt(f"os images fetch debian-12 {source}").out
    newer = hashlib.sha256(b"newer").hexdigest()
    for node in NODES:
        assert sorted(files(directory(here, node))) == sorted([f"{newer}.qcow2", "debian-12.json"])


def test_damaged_copy_is_found_and_repaired(
    gnt: Gnt, nodes: FakeMaster, here: paths.Paths, source: Path
) -> None:
    gnt(f"os images fetch debian-12 {source}")
    broken = directory(here, NODE2) / f"{SHA256}.qcow2"
    broken.write_bytes(b"damaged")
    (directory(here, NODE3) / "debian-12.json").unlink()
    ended = gnt("os images check debian-12")
    assert ended.code == 1
    assert ended.out.splitlines() == [
        f"{NODE1}: debian-12 ok", f"{NODE2}: debian-12 damaged", f"{NODE3}: debian-12 missing",
    ]  # fmt: skip
    assert "gnt-os images share debian-12" in ended.err
    assert gnt(f"os images check -n {NODE1}").code == 0
    ended = gnt("os images share")
    assert ended.code == 0
    assert ended.out.splitlines() == [f"{NODE2}: has debian-12", f"{NODE3}: has debian-12"]
    assert broken.read_bytes() == CONTENT
    assert gnt("os images check").code == 0
    assert gnt("os images share debian-12").out.splitlines() == [
        f"{NODE2}: has everything already", f"{NODE3}: has everything already",
    ]  # fmt: skip


def test_damaged_image_of_the_master_is_not_sent(
    gnt: Gnt, nodes: FakeMaster, here: paths.Paths, source: Path
) -> None:
    gnt(f"os images fetch --no-share debian-12 {source}")
    (directory(here, NODE1) / f"{SHA256}.qcow2").write_bytes(b"damaged")
    ended = gnt("os images share")
    assert ended.code == 1
    assert f"Fetch it again: gnt-os images fetch debian-12 {source}" in ended.err
    assert not directory(here, NODE2).exists()


def test_file_that_arrives_damaged_is_not_used(
    gnt: Gnt, nodes: FakeMaster, here: paths.Paths, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = remote.RemoteNode.copy

    def cut(node: remote.RemoteNode, path: str) -> None:
        copy(node, path)
        if node.name == NODE2:
            os.truncate(directory(here, NODE2) / os.path.basename(path), 10)

    with monkeypatch.context() as patch:
        patch.setattr(remote.RemoteNode, "copy", cut)
        ended = gnt(f"os images fetch debian-12 {source}")
    assert ended.code == 1 and f"{NODE2}: failed" in ended.err
    # Only an unfinished file is there, and the next command ends the work.
    assert all(catalogue.is_part(name) for name in files(directory(here, NODE2)))
    assert sorted(files(directory(here, NODE1))) == [f"{SHA256}.qcow2", "debian-12.json"]
    assert gnt("os images share").code == 0
    assert files(directory(here, NODE2)) == files(directory(here, NODE1))


def test_mistakes(gnt: Gnt, nodes: FakeMaster, here: paths.Paths, source: Path) -> None:
    for line, problem in (
        ("fetsch a b", "is not an action of images. Did you mean 'fetch'?"),
        ("fetch", "write 'gnt-os images fetch NAME [SOURCE]'"),
        ("fetch debain-12", "'debain-12' is no short name of an image. Did you mean 'debian-12'?"),
        ("known x", "write 'gnt-os images known'"),
        ("known --checksum=x", "images known: --checksum belongs to another action"),
        ("list debian-12", "write 'gnt-os images list'"),
        ("remove", "write 'gnt-os images remove NAME...'"),
        ("share --checksum=x", "images share: --checksum belongs to another action"),
        (f"fetch --units=m a {source}", "--units belongs to another action"),
        ("remove debian-12", "there is no image 'debian-12'"),
        (f"fetch a/b {source}", "cannot be the name of an image"),
        (f"fetch --checksum={'0' * 64} a {source}", f"has the sha256 {SHA256}, wanted 0000"),
        ("fetch a http://127.0.0.1:1/x", "needs --checksum or --signature"),
        ("fetch a /nowhere", "cannot fetch /nowhere: "),
    ):
        ended = gnt(f"os images {line}")
        assert ended.code == 1 and problem in ended.err, ended
    assert files(directory(here, NODE1)) == {}
    (directory(here, NODE1) / "a.json").write_text("{")
    assert "Warning: entry" in gnt("os images").err
    assert "Remove the file" in gnt(f"os images fetch b {source}").err
    with catalogue.lock(str(directory(here, NODE1))):
        assert "another 'gnt-os images'" in gnt(f"os images fetch b {source}").err


def test_copy_of_a_node() -> None:
    copy = image_copies.parse_copy(f"{SHA256}  a.json\n\na.json\nb\n")
    assert copy == ({"a.json": SHA256}, ["a.json", "b"])
    assert image_copies.parse_copy("\na\n") == ({}, ["a"])
    assert image_copies.parse_copy("") == ({}, [])


# Short names


def write_names(here: paths.Paths, text: str) -> None:
    Path(here.conf_dir).mkdir(parents=True, exist_ok=True)
    (Path(here.conf_dir) / "images.conf").write_text(text)


def test_a_short_name_is_enough(
    gnt: Gnt, nodes: FakeMaster, here: paths.Paths, source: Path
) -> None:
    sums = source.with_name("SHA256SUMS")
    sums.write_text(f"{SHA256}  {source.name}\n")
    write_names(here, f"# ours\n[ours-1]\nsource = {source}\nchecksum-file = {sums}\n")
    ended = gnt("os images fetch ours-1")
    assert (ended.code, ended.err) == (0, "")
    assert f"fetched image ours-1: qcow2, disk of 48 MiB, sha256 {SHA256}" in ended.out
    assert gnt("os images -o verified,source --no-headers --separator=|").out == (
        f"checksum|{source}\n"
    )
    # What is not the wanted content is refused, and the older image stays.
    sums.write_text(f"{'0' * 64}  {source.name}\n")
    ended = gnt("os images fetch ours-1")
    assert ended.code == 1 and f"wanted {'0' * 64}" in ended.err
    # The user's own proof wins.
    assert gnt(f"os images fetch --checksum=sha256:{SHA256} ours-1").code == 0


def test_the_short_names_are_listed(gnt: Gnt, here: paths.Paths) -> None:
    listed = gnt("os images known --no-headers --separator=| -o name,proof").out.splitlines()
    assert {"debian-12|checksum", "debian-13|checksum", "rocky-9|checksum"} <= set(listed)
    assert any(line.startswith("ubuntu-24.04|") for line in listed)
    write_names(
        here,
        "[debian-13]\nsource =\n\n[debian-12]\ndescription = our mirror\n"
        "source = https://mirror.example.com/debian-12.qcow2\n",
    )
    rows = json.loads(gnt("os images known -o json").out)
    found = {row["name"]: row for row in rows}
    assert "debian-13" not in found and "ubuntu-22.04" in found
    assert found["debian-12"] == {
        "name": "debian-12", "description": "our mirror", "proof": "none",
        "source": "https://mirror.example.com/debian-12.qcow2",
    }  # fmt: skip


def test_a_signature_needs_its_keyring_on_this_machine(
    gnt: Gnt, nodes: FakeMaster, here: paths.Paths, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sums, keys = source.with_name("SUMS"), source.with_name("keys.gpg")
    sums.write_text(f"{SHA256} *{source.name}\n")
    source.with_name("SUMS.gpg").write_bytes(b"a signature")
    write_names(
        here,
        f"[ours-1]\nsource = {source}\nchecksum-file = {sums}\nsignature = {sums}.gpg\n"
        f"keyring = {keys}\n",
    )
    ended = gnt("os images fetch ours-1")
    assert ended.code == 0
    assert f"Note: there is no {keys} on this machine" in ended.err
    assert gnt("os images -o verified --no-headers").out == "checksum\n"
    keys.write_bytes(b"keys")
    checked: list[str] = []
    monkeypatch.setattr(
        fetching, "_check_signature", lambda shown, path, proof, top, run: checked.append(shown)
    )
    ended = gnt("os images fetch ours-1")
    assert (ended.code, ended.err, checked) == (0, "", [str(sums)])
    assert gnt("os images -o verified --no-headers").out == "signature\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("source = x\n", "images.conf"),
        ("[a b]\nsource = x\n", "'a b' cannot be the name of an image"),
        ("[ours]\nsorce = x\n", "[ours]: there is no option 'sorce'"),
        ("[ours]\nchecksum = x\n", "[ours]: the option source is missing"),
        ("[ours]\nsource = x\n[ours]\nsource = y\n", "already exists"),
    ],
)
def test_a_wrong_file_of_short_names_is_explained(
    gnt: Gnt, nodes: FakeMaster, here: paths.Paths, text: str, message: str
) -> None:
    write_names(here, text)
    for line in ("known", "fetch ours"):
        ended = gnt(f"os images {line}")
        assert ended.code == 1 and message in ended.err and "images.conf" in ended.err, ended.err


def test_an_architecture_has_its_own_image(
    here: paths.Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(short_names.platform, "machine", lambda: "aarch64")
    found = short_names.read()
    assert found["debian-12"].source.endswith("/debian-12-generic-arm64.qcow2")
    assert found["rocky-9"].source.endswith(".aarch64.qcow2")


def test_each_known_name_has_a_proof_which_can_be_used(here: paths.Paths) -> None:
    for one in short_names.read().values():
        assert one.source.startswith("https://") and one.description
        assert one.proof.checksum_file.startswith("https://"), one.name
        fetching.check_proof(one.source, one.proof)


# gnt-instance add --image


@pytest.fixture
def cluster(gnt: Gnt, nodes: FakeMaster, source: Path) -> FakeMaster:
    """A cluster with the image debian-12 and the policy of a new cluster."""
    assert gnt(f"os images fetch --no-share debian-12 {source}").code == 0
    nodes.cluster_info = {
        "ipolicy": {"std": {"disk-size": 1024}, "minmax": [{"min": {"disk-size": 1024}}]},
        "default_hypervisor": "kvm",
        "os_hvp": {},
        "hvparams": {"kvm": {"kernel_path": "/boot/vmlinuz-3-kvmU"}, "xen-pvm": {"type": "pv"}},
    }
    return nodes


WANTED = {
    "os_type": "image",
    "osparams": {"image": "debian-12"},
    "osparams_private": {},
    "disks": [{"size": 1024}, {"size": 4, "name": "cidata"}],
    "disk_template": None,
    "iallocator": None,
    "pnode": None,
    "hypervisor": "kvm",
    "hvparams": {"kernel_path": ""},
}


def sent(master: FakeMaster) -> dict[str, Any]:
    return {key: master.opcode()[key] for key in WANTED}


def test_image_needs_nothing_else(gnt: Gnt, cluster: FakeMaster) -> None:
    assert gnt("instance add --image debian-12 web1") == (0, "", "")
    assert sent(cluster) == WANTED


def test_an_image_gets_a_disk_where_the_usual_template_has_none(
    gnt: Gnt, cluster: FakeMaster
) -> None:
    cluster.cluster_info["enabled_disk_templates"] = ["diskless", "file", "plain"]
    assert gnt("instance add --image debian-12 web1").code == 0
    assert sent(cluster)["disk_template"] == "file"
    cluster.jobs.clear()
    assert gnt("instance add --image debian-12 -t plain web1").code == 0
    assert sent(cluster)["disk_template"] == "plain"
    cluster.jobs.clear()
    cluster.cluster_info["enabled_disk_templates"] = ["diskless"]
    ended = gnt("instance add --image debian-12 web1")
    assert ended.code == 1 and "only the disk template diskless" in ended.err
    cluster.cluster_info["enabled_disk_templates"] = ["drbd", "diskless"]
    assert gnt("instance add --image debian-12 web1").code == 0
    assert sent(cluster)["disk_template"] is None


def test_the_only_node_need_not_be_named(gnt: Gnt, cluster: FakeMaster) -> None:
    for row in cluster.rows["node"][1:]:
        row["vm_capable"] = False
    assert gnt("instance add --image debian-12 web1") == (0, "", "")
    assert sent(cluster) == WANTED | {"pnode": NODE1}
    for given in ("-I hail", "--node-group g", "-n node2"):
        cluster.jobs.clear()
        assert gnt(f"instance add --image debian-12 {given} web1").code == 0, given
        assert cluster.opcode()["pnode"] != NODE1


def test_an_image_which_can_be_fetched_is_named(gnt: Gnt, cluster: FakeMaster) -> None:
    ended = gnt("instance add --image ubuntu-24.04 web1")
    assert ended.code == 1 and not cluster.jobs
    assert "Fetch it first: gnt-os images fetch ubuntu-24.04." in ended.err
    assert "there is no image 'own'" in gnt("instance add --image own web1").err


def test_settings_of_cluster_and_user_win(gnt: Gnt, cluster: FakeMaster) -> None:
    cluster.cluster_info["ipolicy"] = {
        "std": {"disk-size": 16},
        "minmax": [{"min": {"disk-size": 64}}, {"min": {"disk-size": 1}}],
    }
    cluster.cluster_info["os_hvp"] = {"image": {"kvm": {"kernel_path": "/boot/vmlinuz"}}}
    gnt("instance add --image debian-12 -O grow=no web1")
    assert sent(cluster) == WANTED | {
        "osparams": {"image": "debian-12", "grow": "no"},
        "disks": [{"size": 48}, {"size": 4, "name": "cidata"}],
        "hypervisor": None,
        "hvparams": {},
    }
    cluster.jobs.clear()
    gnt("instance add --image debian-12 -o other -s 20g -t drbd -H kvm:kernel_path=/k web1")
    assert sent(cluster) == WANTED | {
        "os_type": "other",
        "disks": [{"size": 20 << 10}, {"size": 4, "name": "cidata"}],
        "disk_template": "drbd",
        "hvparams": {"kernel_path": "/k"},
    }
    cluster.jobs.clear()
    gnt("instance add --image debian-12 --disk 0:size=5g -H xen-hvm web1")
    assert sent(cluster) == WANTED | {
        "disks": [{"size": 5 << 10}], "hypervisor": "xen-hvm", "hvparams": {},
    }  # fmt: skip


GRUB = {
    "pv": "/usr/lib/grub-xen/grub-x86_64-xen.bin",
    "pvh": "/usr/lib/grub-xen/grub-i386-xen_pvh.bin",
}
PVH = {"type": "pvh", "kernel_path": GRUB["pvh"], "initrd_path": ""}


@pytest.mark.parametrize(
    ("of_cluster", "of_os", "option", "wanted"),
    [
        ({}, {}, "xen-pvm", PVH),
        ({"initrd_path": "/i"}, {}, "xen-pvm:cpu_mask=1", PVH | {"cpu_mask": "1"}),
        ({}, {"type": "pv"}, "xen-pvm", {"kernel_path": GRUB["pv"], "initrd_path": ""}),
        ({}, {}, "xen-pvm:type=pv", {"type": "pv", "kernel_path": GRUB["pv"], "initrd_path": ""}),
        ({}, {}, "xen-pvm:kernel_path=/k", {"kernel_path": "/k"}),
        ({}, {"kernel_path": "/k"}, "xen-pvm", {}),
        ({"use_bootloader": True}, {}, "xen-pvm", {}),
        ({}, {"use_bootloader": True}, "xen-pvm:bootloader_path=/b", {"bootloader_path": "/b"}),
    ],
)
def test_image_under_xen(
    gnt: Gnt,
    cluster: FakeMaster,
    of_cluster: dict[str, Any],
    of_os: dict[str, Any],
    option: str,
    wanted: dict[str, Any],
) -> None:
    """GRUB starts the kernel of the disk of a guest, unless somebody chose another way."""
    cluster.cluster_info["hvparams"]["xen-pvm"].update(of_cluster)
    cluster.cluster_info["os_hvp"] = {"image": {"xen-pvm": of_os}}
    assert gnt(f"instance add --image debian-12 -H {option} web1") == (0, "", "")
    assert sent(cluster) == WANTED | {"hypervisor": "xen-pvm", "hvparams": wanted}


def test_metadata(
    gnt: Gnt, cluster: FakeMaster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    key = tmp_path / "id.pub"
    key.write_text("# mine\nssh-ed25519 AAAA me@desk\n\n")
    data = tmp_path / "data"
    data.write_text("#cloud-config\npassword: secret\n")
    ended = gnt(
        f"instance add --image debian-12 --metadata ssh-key={key},user-data=~/{data.name}",
        "--metadata",
        "ssh-key=ecdsa-sha2-nistp256 BBBB you",
        "web1",
    )
    assert ended == (0, "", "")
    assert sent(cluster) == WANTED | {
        "osparams": {
            "image": "debian-12",
            "ssh_key": "ssh-ed25519 AAAA me@desk\necdsa-sha2-nistp256 BBBB you",
        },
        "osparams_private": {"user_data": "#cloud-config\npassword: secret\n"},
    }


def test_mistakes_with_images(gnt: Gnt, cluster: FakeMaster, tmp_path: Path) -> None:
    private = tmp_path / "id"
    private.write_text("-----BEGIN OPENSSH PRIVATE KEY-----\n")
    (tmp_path / "binary").write_bytes(b"#\xff")
    (tmp_path / "large").write_bytes(b"#" * (121 << 10))
    for line, problem in (
        ("--image debain-12", "Did you mean 'debian-12'?"),
        ("--image debian-12 -s 40m", "needs a disk of at least 48 MiB, not 40"),
        ("--image debian-12 -t diskless", "--image and -t diskless contradict"),
        ("--image debian-12 --no-install", "--image and --no-install contradict"),
        ("--image debian-12 -O image=/x", "--image and -O image=... contradict"),
        ("--image debian-12 --metadata colour=/x", "--metadata has no 'colour'"),
        ("--image debian-12 --metadata user-data", "write user-data=FILE"),
        ("--image debian-12 --metadata user-data=/nowhere", "cannot read /nowhere"),
        ("--image debian-12 --metadata ssh-key=/nowhere", "own: ssh-keygen -t ed25519"),
        (f"--image debian-12 --metadata user-data={private}", "is not user data of cloud-init"),
        (f"--image debian-12 --metadata ssh-key={private}", "else than public SSH keys"),
        (f"--image debian-12 --metadata user-data={tmp_path}/binary", "not a text in UTF-8"),
        (f"--image debian-12 --metadata user-data={tmp_path}/large", "more than 120 KiB"),
    ):
        ended = gnt(f"instance add {line} web1")
        assert ended.code == 1 and problem in ended.err, ended
    assert cluster.opcodes() == []


def test_seed_and_image_of_a_real_disk(
    gnt: Gnt, nodes: FakeMaster, here: paths.Paths, source: Path, tmp_path: Path
) -> None:
    """The OS definition reads what ``gnt-os images`` wrote."""
    gnt(f"os images fetch debian-12 {source}")
    top = Path(__file__).resolve().parents[4]
    code = (
        "import source, settings, os\n"
        "print(source.fetch(settings.read()), source.format_of(source.fetch(settings.read()),"
        " settings.read()))"
    )
    done = subprocess.run(
        ["python3", "-B", "-c", code],
        cwd=top / "doc/examples/os/image",
        env={"OSP_IMAGE": "debian-12", "IMAGES_DIR": str(directory(here, NODE2))},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == f"{directory(here, NODE2)}/{SHA256}.qcow2 qcow2\n"


def test_a_new_node_gets_the_images(
    gnt: Gnt, cluster: FakeMaster, here: paths.Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    for row in cluster.rows["node"]:
        row["sip"] = row["pip"]
    monkeypatch.setattr(
        type(machine.current()), "_cluster_host", lambda _, name: hosts.Hostname(name, "192.0.2.3")
    )
    line = f"node add --readd --no-node-setup {NODE3}"
    gnt(f"{line} --dry-run")
    assert not directory(here, NODE3).exists()
    ended = gnt(line)
    assert (ended.code, ended.out, ended.err) == (0, f"Sent images debian-12 to {NODE3}\n", "")
    assert files(directory(here, NODE3)) == files(directory(here, NODE1))
    assert not directory(here, NODE2).exists()
    # What the node has already is not sent again.
    assert gnt(line) == (0, "", "")
    # A node without SSH is a node all the same.
    (Path(here.root).parent / NODE3 / "cmd").write_text("#!/bin/sh\necho no way; exit 255\n")
    ended = gnt(line)
    assert ended.code == 0
    assert (
        f"does not have the images: no way. Send them with 'gnt-os images share --node={NODE3}'"
        in (ended.err)
    )
