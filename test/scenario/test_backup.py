"""Exports over real daemons: content, remains of failures, a move to a second cluster."""

from __future__ import annotations

import configparser
import hashlib
import json
import os
import re
import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import ROOT, Cluster, Finished, SteadyCluster, run_program, wait_until

SIZE_MIB = 4
ADD = ("gnt-instance", "add", "-t", "file", "--disk", f"0:size={SIZE_MIB}m,name=root", "--no-nics")
# Scripts which change what they pass on, so that it shows who did the work.
EXPORT = """#!/bin/sh
echo "exporting disk $EXPORT_INDEX of $INSTANCE_NAME" >&2
echo 4 >&"$EXP_SIZE_FD"
printf 'DUMP:%s:' "$EXPORT_INDEX"
exec cat "$EXPORT_DEVICE"
"""
IMPORT = """#!/bin/sh
[ "$(head -c 7)" = DUMP:0: ] || { echo "no dump of mine" >&2; exit 3; }
exec cat > "$IMPORT_DEVICE"
"""
RENAME = """#!/bin/sh
echo "$OLD_INSTANCE_NAME $INSTANCE_NAME" > "$DISK_0_PATH.renamed"
"""


@pytest.fixture(scope="module")
def directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="gnt-") as name:
        yield Path(name)


def make_cluster(directory: Path, nodes: int) -> Cluster:
    made = SteadyCluster(directory, nodes, "--hypervisor", "fake")
    made.create.ok()
    made.make_os("plain")
    made.make_os("script")
    for node in made.node_names:
        for name, body in (("export", EXPORT), ("import", IMPORT), ("rename", RENAME)):
            script = made.path(node, f"srv/ganeti/os/script/{name}")
            script.write_text(body)
            script.chmod(0o755)
    return made


@pytest.fixture(scope="module")
def cluster(directory: Path) -> Iterator[Cluster]:
    made = make_cluster(directory / "one", 3)
    try:
        yield made
    finally:
        made.destroy()


def disk_of(cluster: Cluster, name: str) -> Path:
    """The file behind the first disk of an instance."""
    ((node,),) = cluster.rows("gnt-instance", "list", "-o", "pnode", name)
    (found,) = cluster.path(node, f"srv/ganeti/file-storage/{name}").glob("*.disk0")
    return found


def fill(path: Path) -> str:
    """Random content; its digest."""
    data = os.urandom(SIZE_MIB << 20)
    path.write_bytes(data)
    return hashlib.sha256(data).hexdigest()


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def new_instance(cluster: Cluster, name: str, os_name: str, node: str, *options: str) -> str:
    """An instance with random content on its disk; returns the digest."""
    cluster.run(*ADD, "-o", os_name, "-n", node, "--no-start", *options, name).ok()
    return fill(disk_of(cluster, name))


def exports(cluster: Cluster) -> list[list[str]]:
    return cluster.rows("gnt-backup", "list", "-o", "node,export")


def leftovers(cluster: Cluster) -> list[str]:
    """Transfers and keys which should be gone."""
    found: list[str] = []
    for node in cluster.node_names:
        for place in ("import-export", "crypto"):
            path = cluster.path(node, f"var/run/ganeti/{place}")
            found += [str(entry) for entry in path.glob("*")]
        found += [str(entry) for entry in cluster.path(node, "var/lib/ganeti/export").glob("*~*")]
    return found


@pytest.mark.parametrize("os_name", ["plain", "script"])
def test_what_is_exported_comes_back(cluster: Cluster, os_name: str) -> None:
    """With scripts of the OS and without; under the same name and as a copy; compressed or not."""
    one, two, three = cluster.node_names
    name, copy = f"{os_name}1.example.com", f"{os_name}2.example.com"
    wanted = new_instance(cluster, name, os_name, one, "--tags", "blue,fast", "-B", "memory=100")
    cluster.run("gnt-backup", "export", "-n", two, "--transport-compression", "gzip", name).ok()
    assert exports(cluster) == [[two, name]]
    found = cluster.path(two, f"var/lib/ganeti/export/{name}")
    ini = configparser.ConfigParser(interpolation=None)
    ini.read(found / "config.ini")
    assert ini.sections() == ["export", "instance", "hypervisor", "backend", "os", "os_private"]
    assert ini["export"]["os"] == os_name
    assert (ini["instance"]["disk0_size"], ini["instance"]["disk0_name"]) == ("4", "root")
    dump = found / ini["instance"]["disk0_dump"]
    size = dump.stat().st_size
    assert dump.read_bytes().startswith(b"DUMP:0:") == (os_name == "script")
    assert size == (SIZE_MIB << 20) + (7 if os_name == "script" else 0)

    done = cluster.run(
        "gnt-backup", "import", "-n", three, "--src-dir", name, "--compress", "gzip", copy
    ).ok()
    assert digest(disk_of(cluster, copy)) == wanted
    renamed = disk_of(cluster, copy).with_name(disk_of(cluster, copy).name + ".renamed")
    if os_name == "script":
        assert renamed.read_text() == f"{name} {copy}\n"
        renamed.unlink()
    else:
        assert "no script 'rename'" in done.text
    cluster.run("gnt-instance", "remove", "-f", name).ok()
    cluster.run("gnt-backup", "import", "-n", one, "--identify-defaults", name).ok()
    assert digest(disk_of(cluster, name)) == wanted
    rows = cluster.rows(
        "gnt-instance",
        "list",
        "-o",
        "pnode,status,be/maxmem,disk.names,custom_beparams",
        name,
        copy,
    )
    assert [row[:3] for row in rows] == [[one, "ADMIN_down", "100"], [three, "ADMIN_down", "100"]]
    assert rows[0][3] == "['root']"
    assert "vcpus" not in rows[0][4] and "vcpus" in rows[1][4]
    assert sorted(cluster.run("gnt-instance", "list-tags", copy).ok().stdout.split()) == [
        "blue",
        "fast",
    ]
    for gone in (name, copy):
        cluster.run("gnt-instance", "remove", "-f", gone).ok()
    cluster.run("gnt-backup", "remove", name).ok()
    assert exports(cluster) == []
    assert leftovers(cluster) == []


@pytest.fixture
def one_export_directory(cluster: Cluster) -> Iterator[Path]:
    """The second and third node have one export directory, as on a network file system."""
    _one, two, three = cluster.node_names
    here = cluster.path(three, "var/lib/ganeti/export")
    there = cluster.path(two, "var/lib/ganeti/export")
    there.mkdir(exist_ok=True)
    if here.exists():
        here.rmdir()
    here.symlink_to(there)
    try:
        yield there
    finally:
        here.unlink()


def test_nodes_with_one_export_directory(cluster: Cluster, one_export_directory: Path) -> None:
    """The export is not taken for an older one on another node, and is removed once."""
    one, two, three = cluster.node_names
    name = "nfs.example.com"
    wanted = new_instance(cluster, name, "plain", one)
    for target in (one, two):
        cluster.run("gnt-backup", "export", "-n", target, name).ok()
    assert exports(cluster) == [[two, name], [three, name]]
    done = cluster.run("gnt-backup", "export", "-n", three, "--remove-instance", "-f", name).ok()
    assert f"also seen by node {two}, which has the same directory as node {three}" in done.text
    assert cluster.rows("gnt-instance", "list") == []
    assert exports(cluster) == [[two, name], [three, name]]
    cluster.run("gnt-backup", "import", "-n", one, "--src-node", three, name).ok()
    assert digest(disk_of(cluster, name)) == wanted
    cluster.run("gnt-instance", "remove", "-f", name).ok()
    (one_export_directory / f"{name}~new.left").mkdir()
    cluster.run("gnt-backup", "remove", name).ok()
    assert list(one_export_directory.iterdir()) == []


@pytest.fixture
def not_mounted(cluster: Cluster) -> Iterator[Path]:
    """The third node has an empty directory in place of the one which all nodes share."""
    there = cluster.path(cluster.node_names[2], "srv/ganeti/shared-file-storage")
    shared = there.readlink()
    there.unlink()
    there.mkdir()
    try:
        yield there
    finally:
        shutil.rmtree(there)
        there.symlink_to(shared)


def test_a_guest_does_not_go_where_its_storage_is_not_mounted(
    cluster: Cluster, not_mounted: Path
) -> None:
    """Neither when its file is missing there, nor when an old copy of it is found."""
    one, _two, three = cluster.node_names
    name = "shared.example.com"
    cluster.run(
        "gnt-instance", "add", "-t", "sharedfile", "-s", "4M", "-o", "plain", "-n", one,
        "--no-nics", "--no-name-check", "--no-ip-check", "-B", "memory=32", name,
    ).ok()  # fmt: skip
    cluster.run(
        "gnt-instance", "add", "-t", "sharedfile", "-s", "4M", "-o", "plain", "-n", three,
        "--no-nics", "--no-name-check", "--no-ip-check", "-B", "memory=32", "new.example.com",
    ).failed(f"is not the one of {one}")  # fmt: skip
    ways = (("failover", "-f"), ("migrate", "-f"))
    for way in ways:
        done = cluster.run("gnt-instance", *way, "-n", three, name).failed("cannot use the disks")
        assert "Mount its file system" in done.text
    shutil.copytree(cluster.path(one, f"srv/ganeti/shared-file-storage/{name}"), not_mounted / name)
    for way in ways:
        cluster.run("gnt-instance", *way, "-n", three, name).failed("is not the one of node")
    rows = cluster.rows("gnt-instance", "list", "-o", "pnode,status", name)
    assert rows == [[one, "running"]]
    found = cluster.run("gnt-cluster", "verify", "--error-codes").text
    assert f"ENODESHAREDFILESTORAGEPATHUNUSABLE:node:{three}:its directory for shared" in found
    cluster.run("gnt-instance", "remove", "-f", name).ok()


def test_a_running_instance(cluster: Cluster) -> None:
    """It stays down only with leave, runs again afterwards, and can be removed with its export."""
    one, two, three = cluster.node_names
    name = "busy.example.com"
    wanted = new_instance(cluster, name, "plain", one)
    cluster.run("gnt-instance", "startup", name).ok()
    cluster.run("gnt-backup", "export", "-n", two, name).failed("--long-sleep")
    cluster.run(
        "gnt-backup", "export", "-n", two, "--noshutdown", "--remove-instance", "-f", name
    ).failed("shut down")
    done = cluster.run("gnt-backup", "export", "-n", two, "--long-sleep", name).ok()
    assert "Shutting down" in done.text and "Starting instance" in done.text
    assert cluster.rows("gnt-instance", "list", "-o", "status", name) == [["running"]]
    cluster.run("gnt-backup", "export", "-n", three, "--noshutdown", "--long-sleep", name).ok()
    # A new export replaces the one on another node.
    assert exports(cluster) == [[three, name]]
    cluster.run("gnt-backup", "export", "-n", one, "--remove-instance", "-f", name).ok()
    assert cluster.rows("gnt-instance", "list") == []
    (dump,) = (
        path
        for path in cluster.path(one, f"var/lib/ganeti/export/{name}").iterdir()
        if path.name != "config.ini"
    )
    assert digest(dump) == wanted
    cluster.run("gnt-backup", "remove", name).ok()


def test_failures_leave_nothing(cluster: Cluster) -> None:
    """A script that fails, a process that is killed, a node that does not answer."""
    one, two, _three = cluster.node_names
    name = "unlucky.example.com"
    new_instance(cluster, name, "script", one)
    cluster.run("gnt-instance", "startup", name).ok()
    script = cluster.path(one, "srv/ganeti/os/script/export")
    script.write_text("#!/bin/sh\nhead -c 100000 /dev/zero\necho 'bad block' >&2\nexit 4\n")
    done = cluster.run("gnt-backup", "export", "-n", two, "--long-sleep", name).failed(
        "disk/0 did not arrive"
    )
    assert "bad block" in done.text and "exited with code 4" in done.text

    # One that hangs, until its process is killed.
    script.write_text("#!/bin/sh\necho begun\nexec sleep 1000\n")
    waiting = cluster.start("gnt-backup", "export", "-n", two, "--long-sleep", name)
    transfers = cluster.path(one, "var/run/ganeti/import-export")
    wait_until(
        lambda: [
            path
            for path in transfers.glob("*/status")
            if json.loads(path.read_text()).get("connected")
        ],
        "it is connected",
    )
    (pid_file,) = transfers.glob("*/pid")
    os.kill(int(pid_file.read_text()), signal.SIGKILL)
    out, err = waiting.communicate()
    assert waiting.returncode == 1, out + err
    assert "did not arrive" in out + err
    assert cluster.rows("gnt-instance", "list", "-o", "status", name) == [["running"]]
    assert exports(cluster) == []
    assert leftovers(cluster) == []
    script.write_text(EXPORT)

    cluster.run("gnt-backup", "export", "-n", two, "--long-sleep", name).ok()
    cluster.run("gnt-instance", "shutdown", name).ok()
    cluster.path(two, "srv/ganeti/os/script/import").write_text("#!/bin/sh\nexit 5\n")
    done = cluster.run("gnt-backup", "import", "-n", two, "--src-dir", name, "copy.example.com")
    done.failed("disk/0 did not arrive")
    assert "exited with code 5" in done.text
    assert cluster.rows("gnt-instance", "list", "-o", "name") == [[name]]
    assert list(cluster.path(two, "srv/ganeti/file-storage").glob("copy*")) == []
    cluster.path(two, "srv/ganeti/os/script/import").write_text(IMPORT)
    # An export that somebody has changed on the node, and then damaged.
    ini = cluster.path(two, f"var/lib/ganeti/export/{name}/config.ini")
    good = ini.read_text()
    ini.write_text(good.replace("os = script", "os = plain"))
    for more in ((), ("--dry-run",)):
        cluster.run(
            "gnt-backup", "import", "-n", two, "--src-dir", name, *more, "copy.example.com"
        ).failed("os='plain'", "--accept-from-description=os")
    assert cluster.rows("gnt-instance", "list", "-o", "name") == [[name]]
    ini.write_text(good)
    ini.write_text(ini.read_text().replace("disk0_dump = ", "disk0_dump = ../"))
    cluster.run("gnt-backup", "import", "-n", two, "--src-dir", name, "copy.example.com").failed(
        "not the name of a file"
    )
    ini.write_text("[export]\n")
    cluster.run("gnt-backup", "import", "-n", two, "--src-dir", name, "copy.example.com").failed(
        "no section"
    )
    cluster.run("gnt-backup", "remove", name).ok()
    cluster.run("gnt-instance", "remove", "-f", name).ok()
    assert leftovers(cluster) == []


# -- to another cluster --------------------------------------------------------------------------


def submit(cluster: Cluster, directory: Path, **opcode: Any) -> str:
    """Submit a job of one opcode and do not wait for it; its number."""
    path = directory / "job.json"
    path.write_text(json.dumps([opcode]))
    command = cluster.start("gnt-debug", "submit-job", str(path))
    assert command.stdout is not None
    # The command goes on waiting for its job, of which nobody hears any more.
    line = command.stdout.readline()
    found = re.search(r"job (\d+)", line)
    assert found is not None, line
    threading.Thread(target=command.communicate, daemon=True).start()
    return found[1]


def result(cluster: Cluster, job: str) -> Any:
    """The result of a job which succeeds."""
    cluster.run("gnt-job", "wait", job)
    (row,) = json.loads(
        cluster.run("gnt-job", "list", "--output", "json", "-o", "status,opresult", job).ok().stdout
    )
    assert row["status"] == "success", row
    return row["opresult"][0]


def announced(cluster: Cluster, job: str) -> Any:
    """What a job in mode remote-import says in its log."""
    (row,) = json.loads(
        cluster.run("gnt-job", "list", "--output", "json", "-o", "status,oplog", job).ok().stdout
    )
    assert row["status"] in ("queued", "waiting", "running"), row
    return next((entry[3] for entry in row["oplog"][0] if entry[2] == "remote-import"), None)


@pytest.mark.long
def test_move_to_another_cluster(cluster: Cluster, directory: Path) -> None:
    """With the same domain secret it works; nobody in between can change where the disks go."""
    other = make_cluster(directory / "two", 1)
    try:
        move(cluster, other, directory)
        interrupt_a_move(cluster, other, directory)
    finally:
        other.destroy()


def prepare_move(cluster: Cluster, directory: Path, name: str) -> dict[str, Any]:
    """Let the source make a key; what its destination has to be told."""
    opcode = {"OP_ID": "OP_BACKUP_PREPARE", "instance_name": name, "mode": "remote"}
    prepared: dict[str, Any] = result(cluster, submit(cluster, directory, **opcode))
    return prepared


def create_moved(other: Cluster, directory: Path, name: str, prepared: dict[str, Any]) -> str:
    """Let the destination make an instance of the same name, which waits for its disk; the job."""
    return submit(
        other,
        directory,
        OP_ID="OP_INSTANCE_CREATE",
        instance_name=name,
        mode="remote-import",
        disk_template="file",
        disks=[{"size": SIZE_MIB}],
        nics=[],
        os_type="script",
        pnode=other.node_names[0],
        start=False,
        source_handshake=prepared["handshake"],
        source_x509_ca=prepared["x509_ca"],
        source_instance_name=name,
        compress="gzip",
    )


def interrupt_a_move(cluster: Cluster, other: Cluster, directory: Path) -> None:
    """The destination loses its power in the middle: its watcher removes what is left, in time."""
    name, (node,) = "back.example.com", other.node_names
    job = create_moved(other, directory, name, prepare_move(cluster, directory, name))
    wait_until(lambda: announced(other, job), "the destination listens")
    other.cut_power(node)
    other.power_on(node)
    wait_until(lambda: other.run("gnt-cluster", "info").exit_code == 0, "its master answers")
    log = other.path(node, "var/log/ganeti/watcher.log")

    def watch(hours: int) -> str:
        """Run the watcher as if it was so much later; what it says about the instance."""
        before = log.stat().st_size if log.exists() else 0
        other.run_later(hours, "ganeti-watcher", "--no-verify-disks", "--job-age=-1").ok()
        return "".join(line for line in log.read_text()[before:].splitlines(True) if name in line)

    # Nobody knows yet whether somebody goes on with it, and nothing starts it.
    assert "no job works on it; it is removed in" in watch(0)
    assert "it is removed in" in watch(23)
    ((status, since),) = other.rows("gnt-instance", "list", "-o", "status,importing_since", name)
    assert status == "ADMIN_down" and since != "-"
    assert disk_of(other, name).exists()
    assert "its import or copy has not ended in 24 hours" in watch(25)
    assert other.rows("gnt-instance", "list") == []
    assert list(other.path(node, "srv/ganeti/file-storage").glob(f"{name}/*")) == []
    assert [f"INSTANCE_REMOVE({name})"] in other.rows("gnt-job", "list", "-o", "summary")
    # The source has lost nothing.
    assert cluster.rows("gnt-instance", "list", "-o", "name,status") == [[name, "running"]]


def move(cluster: Cluster, other: Cluster, directory: Path) -> None:
    one, name = cluster.node_names[0], "mover.example.com"
    wanted = new_instance(cluster, name, "script", one)
    cluster.run("gnt-instance", "startup", name).ok()

    def prepare() -> dict[str, Any]:
        return prepare_move(cluster, directory, name)

    def create(prepared: dict[str, Any]) -> str:
        return create_moved(other, directory, name, prepared)

    # Another secret: the destination does not believe the greeting.
    failing = create(prepare())
    other.run("gnt-job", "wait", failing)
    assert "domain secret" in other.run("gnt-job", "info", failing).text
    secret = cluster.path(one, "var/lib/ganeti/cluster-domain-secret")
    other.run("gnt-cluster", "renew-crypto", "-f", "--cluster-domain-secret", str(secret)).ok()

    prepared = prepare()
    job = create(prepared)
    wait_until(lambda: announced(other, job), "the destination listens")
    told = announced(other, job)

    def export(target: list[Any]) -> str:
        return submit(
            cluster,
            directory,
            OP_ID="OP_BACKUP_EXPORT",
            instance_name=name,
            mode="remote",
            target_node=target,
            x509_key_name=prepared["x509_key_name"],
            destination_x509_ca=told["x509_ca"],
            compress="gzip",
            shutdown=True,
            remove_instance=True,
        )

    ((host, port, magic, signature, salt),) = told["disks"]
    forged = export([[host, port + 1, magic, signature, salt]])
    cluster.run("gnt-job", "wait", forged)
    assert "not signed" in cluster.run("gnt-job", "info", forged).text
    assert result(cluster, export(told["disks"])) == [True, [True]]
    result(other, job)
    assert digest(disk_of(other, name)) == wanted
    assert cluster.rows("gnt-instance", "list", "-o", "name") == []
    other.run("gnt-cluster", "verify").ok()
    assert leftovers(other) == []
    # Of the greeting which was not believed the key is still there, for a day.
    assert len(leftovers(cluster)) == 1
    move_back(cluster, other, directory, name, wanted)


def move_back(cluster: Cluster, other: Cluster, directory: Path, name: str, wanted: str) -> None:
    """The same with the tool which does all this over REST, to another name and kind of disks."""
    password = directory / "password"
    password.write_text("secret\n")
    addresses = []
    for one in (other, cluster):
        one.run(
            str(ROOT / "tools/rapi-passwd"),
            "mover",
            "--rights",
            "write",
            "--stdin",
            stdin="secret\n",
        ).ok()
        addresses.append(one.rows("gnt-node", "list", "-o", "pip", one.master)[0][0])
    other.run("gnt-instance", "startup", name).ok()
    accepted: list[str] = []

    def run(*options: str) -> Finished:
        return run_program(
            (
                str(ROOT / "tools/move-instance"),
                "-v",
                "--src-username",
                "mover",
                "--src-password-file",
                str(password),
                "--dest-primary-node",
                cluster.node_names[1],
                *options,
                *accepted,
                *addresses,
                name,
            ),
            Cluster.outside(),
        )

    run().failed("was not moved", "os='script'", "--accept-from-description=os")
    run("--dry-run").failed("os='script'")
    accepted = ["--accept-from-description=os"]
    assert "OS script" in run("--dry-run").ok().stdout
    run("--dest-disk-template", "drbd").failed("was not moved", "drbd is not enabled")
    assert other.rows("gnt-instance", "list", "-o", "name,status") == [[name, "running"]]
    done = run(
        "--dest-disk-template",
        "sharedfile",
        "--dest-instance-name",
        "back.example.com",
        "-B",
        "maxmem=200",
        "--compress",
        "gzip",
    ).ok()
    assert f"Instance {name} was moved to {addresses[1]}." in done.stdout
    assert cluster.rows("gnt-instance", "list", "-o", "name,status,disk_template,be/maxmem") == [
        ["back.example.com", "running", "sharedfile", "200"]
    ]
    assert other.rows("gnt-instance", "list") == []
    (disk,) = cluster.path(cluster.node_names[1], "srv/ganeti/shared-file-storage").glob(
        "back.example.com/*.disk0"
    )
    assert digest(disk) == wanted
    run().failed("was not moved")


# -- machines of other programs ------------------------------------------------------------------

DATA = ROOT / "test" / "data"
needs_qemu_img = pytest.mark.skipif(
    shutil.which("qemu-img") is None, reason="qemu-img (qemu-utils) is not installed"
)
FAKE = ("-o", "plain", "-H", "fake", "-t", "file", "-n", "node2")


def begins_with(path: Path, content: bytes) -> None:
    """The disk has the content, and then only zeros."""
    found = path.read_bytes()
    assert found[: len(content)] == content and not found[len(content) :].strip(b"\0")


@needs_qemu_img
def test_a_machine_of_libvirt_becomes_an_instance(cluster: Cluster, tmp_path: Path) -> None:
    content = bytes(range(256)) * 4096
    (tmp_path / "raw").write_bytes(content)
    for name in ("web.qcow2", "web-data"):
        form = "qcow2" if name.endswith("qcow2") else "raw"
        run_program(
            ("qemu-img", "convert", "-f", "raw", "-O", form, str(tmp_path / "raw"),
             str(tmp_path / name)), cluster.environment,
        ).ok()  # fmt: skip
    xml = str(DATA / "libvirt/web.xml")
    command = ("gnt-instance", "import", "--from=libvirt", "--disks-from", str(tmp_path))
    cluster.run(*command, "--dry-run", xml, "web8").failed("link='br0'", "nic/link")
    accept = "--accept-from-description=nic/link,nic/mode"
    shown = cluster.run(*command, "--dry-run", accept, xml, "web8").ok().stdout
    assert "memory 2048 MiB, virtual processors 4, disks 2" in shown and "hostdev" in shown
    assert ["web8"] not in cluster.rows("gnt-instance", "list", "-o", "name")
    cluster.run(*command, *FAKE, "-B", "memory=128M", "--no-nics", xml, "web8").ok()
    row = cluster.rows("gnt-instance", "list", "-o", "be/vcpus,be/maxmem,nic.count,status", "web8")
    assert row == [["4", "128", "0", "ADMIN_down"]]
    begins_with(disk_of(cluster, "web8"), content)
    # The copy of the disks is gone, and so is the working directory.
    assert list(cluster.path(cluster.master, "var/lib/ganeti/export").glob("*web*")) == []
    assert list(cluster.path(cluster.master, "var/lib/ganeti/export").glob(".import*")) == []
    cluster.run("gnt-instance", "startup", "web8").ok()
    cluster.run("gnt-instance", "remove", "-f", "web8").ok()


@needs_qemu_img
def test_an_appliance_becomes_an_instance(cluster: Cluster) -> None:
    path = str(DATA / "ovf/virtualbox.ovf")
    command = ("gnt-instance", "import", "--from=ovf", *FAKE)
    cluster.run(*command, "--no-nics", path).ok()
    fields = "name,disk.count,be/maxmem"
    (row,) = cluster.rows("gnt-instance", "list", "-o", fields, "ubuntu-freshly-created")
    assert row == ["ubuntu-freshly-created", "2", "2048"]
    cluster.run(*command, path).failed("already", exit_code=1)
    cluster.run("gnt-instance", "remove", "-f", "ubuntu-freshly-created").ok()
    cluster.run("gnt-backup", "remove", "ubuntu-freshly-created").ok()


def test_what_cannot_be_imported(cluster: Cluster, tmp_path: Path) -> None:
    xml = str(DATA / "libvirt/web.xml")
    cluster.run("gnt-instance", "import", xml).failed("--from")
    cluster.run("gnt-instance", "import", "--from=proxmox", xml).failed("not a description")
    cluster.run("gnt-instance", "import", "--from=libvirt", xml).failed("no image for disk")
    cluster.run("gnt-instance", "import", "--from=libvirt", xml, "a b").failed("after the file")
    assert list(cluster.path(cluster.master, "var/lib/ganeti/export").glob(".import*")) == []


def test_a_value_of_the_configuration(cluster: Cluster) -> None:
    """``query-config`` asks the daemon of a node, which reads the present configuration."""
    address = cluster.rows("gnt-node", "list", "-o", "pip", cluster.master)[0][0]
    done = cluster.run(
        str(ROOT / "tools/query-config"), "-a", address, "/cluster/cluster_name"
    ).ok()
    assert json.loads(done.stdout) == "cluster.example.com"
