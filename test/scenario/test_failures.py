"""What users do wrong and what breaks: each gives a clear message and leaves nothing half made."""

from __future__ import annotations

import http.client
import os
import re
import signal
import socket
import ssl
import subprocess
from pathlib import Path

import pytest
from harness import IN_PROCESSES, PATIENCE_S, Cluster, alive, wait_until

from ganeti.utils import x509

FILE = ("gnt-instance", "add", "-t", "file", "-s", "8M", "--no-nics")
DISKLESS = ("gnt-instance", "add", "-t", "diskless", "--no-nics")


@pytest.fixture(scope="module", autouse=True)
def systems(cluster: Cluster) -> None:
    cluster.make_os("noop")
    cluster.make_os("broken", "echo the disk is the wrong colour >&2; exit 3")
    cluster.make_os("filler", 'exec dd if=/dev/zero of="$DISK_0_PATH" bs=1M count=512 conv=notrunc')


def leftovers(cluster: Cluster) -> list[Path]:
    """Disk files below the storage directories of all nodes."""
    return [
        path
        for node in cluster.node_names
        for path in cluster.path(node, "srv/ganeti/file-storage").rglob("*")
        if path.is_file()
    ]


def names(cluster: Cluster) -> list[str]:
    return [row[0] for row in cluster.rows("gnt-instance", "list", "-o", "name")]


def consistent(cluster: Cluster) -> None:
    assert "ERROR" not in cluster.run("gnt-cluster", "verify").ok().text


def test_unknown_instance_and_node(cluster: Cluster) -> None:
    run = cluster.run
    for verb in ("start", "shutdown", "reboot", "info"):
        run("gnt-instance", verb, "nosuch.example.com").failed("nosuch.example.com")
    run("gnt-instance", "remove", "--force", "nosuch").failed("nosuch", "unknown_entity")
    run("gnt-node", "info", "nosuch").failed("nosuch")
    run("gnt-node", "remove", "nosuch").failed("nosuch", "unknown_entity")
    run(*DISKLESS, "-o", "noop", "-n", "nosuch", "a.example.com").failed("nosuch", "unknown_entity")
    assert names(cluster) == []


def test_wrong_state(cluster: Cluster) -> None:
    run, node = cluster.run, cluster.node_names[1]
    run(*DISKLESS, "-o", "noop", "-n", node, "a.example.com").ok()
    run("gnt-instance", "start", "a.example.com").ok()
    run(*DISKLESS, "-o", "noop", "-n", node, "a.example.com").failed("already_exists")
    run("gnt-node", "remove", node).failed("instance")
    run("gnt-node", "remove", cluster.master).failed("master")
    run("gnt-instance", "migrate", "-f", "-n", node, "a.example.com").failed(node)
    run("gnt-instance", "remove", "--force", "a.example.com").ok()


def test_name_that_does_not_resolve(cluster: Cluster) -> None:
    cluster.run(
        *DISKLESS, "--name-check", "-o", "noop", "-n", cluster.master, "unresolvable.invalid"
    ).failed("unresolvable.invalid", "resolver_error")
    cluster.run("gnt-node", "add", "unresolvable.invalid").failed("unresolvable.invalid")
    assert names(cluster) == []


def test_missing_os(cluster: Cluster) -> None:
    cluster.run(*FILE, "-o", "nosuchos", "-n", cluster.master, "a.example.com").failed("nosuchos")
    assert names(cluster) == [] and leftovers(cluster) == []


def test_os_script_that_fails_shows_its_output(cluster: Cluster) -> None:
    done = cluster.run(*FILE, "-o", "broken", "-n", cluster.node_names[2], "a.example.com")
    done.failed("the disk is the wrong colour", "a.example.com")
    after(cluster, done.text)


def after(cluster: Cluster, text: str) -> None:
    """Either nothing is left, or the message said how to clean up, and that works."""
    if names(cluster):
        assert "gnt-instance remove" in text, text
        cluster.run("gnt-instance", "remove", "--force", "a.example.com").ok()
    assert names(cluster) == [] and leftovers(cluster) == []
    consistent(cluster)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount a small file system")
def test_full_disk(cluster: Cluster) -> None:
    node = cluster.node_names[1]
    storage = cluster.path(node, "srv/ganeti/file-storage")
    storage.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4M", "tmpfs", str(storage)], check=True)
    try:
        done = cluster.run(*FILE, "-o", "filler", "-n", node, "a.example.com")
        done.failed("No space left on device")
        after(cluster, done.text)
    finally:
        subprocess.run(["umount", str(storage)], check=True)


def test_noded_down(cluster: Cluster) -> None:
    node = cluster.node_names[2]
    pid = cluster.kill(node, "ganeti-noded", signal.SIGKILL)
    wait_until(lambda: not alive(pid), "noded is gone")
    done = cluster.run(*DISKLESS, "-o", "noop", "-n", node, "a.example.com")
    done.failed(node)
    assert names(cluster) == []
    verify = cluster.run("gnt-cluster", "verify").failed(node)
    assert "ENODERPC" in cluster.run("gnt-cluster", "verify", "--error-codes").text, verify.text
    cluster.vcluster("start", str(cluster.directory)).ok()
    consistent(cluster)


def test_noded_hangs_at_one_call_only(cluster: Cluster) -> None:
    """A stopped node daemon makes calls to it fail; everything else goes on."""
    node = cluster.node_names[2]
    pid = cluster.kill(node, "ganeti-noded", signal.SIGSTOP)
    try:
        slow = cluster.start(*DISKLESS, "-o", "noop", "-n", node, "slow.example.com")
        cluster.run(*DISKLESS, "-o", "noop", "-n", cluster.node_names[1], "quick.example.com").ok()
        assert "quick.example.com" in names(cluster)
    finally:
        os.kill(pid, signal.SIGCONT)
    slow.communicate(timeout=PATIENCE_S)
    for name in names(cluster):
        cluster.run("gnt-instance", "remove", "--force", name).ok()
    # The node missed changes meanwhile; the master sends them again by itself.
    wait_until(
        lambda: cluster.run("gnt-cluster", "verify").exit_code == 0, "the node has caught up"
    )


def luxi_socket(cluster: Cluster) -> socket.socket:
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(PATIENCE_S)
    client.connect(str(cluster.path(cluster.master, "var/run/ganeti/socket/ganeti-master")))
    return client


def read_answer(client: socket.socket) -> bytes:
    """Everything up to the end-of-message byte or the end of the stream."""
    answer = b""
    while not answer.endswith(b"\x03"):
        chunk = client.recv(65536)
        if not chunk:
            break
        answer += chunk
    return answer


@pytest.mark.parametrize(
    "message",
    [
        b"garbage",
        b"{}",
        b"[1, 2]",
        b'{"method": "NoSuchMethod", "args": []}',
        b'{"method": "SubmitJob", "args": "x"}',
        b'{"method": "SubmitJob", "args": [[{"OP_ID": "OP_NO_SUCH"}]]}',
        b"\xff\xfe\x00",
    ],
)
def test_garbage_on_the_luxi_socket(cluster: Cluster, message: bytes) -> None:
    with luxi_socket(cluster) as client:
        client.sendall(message + b"\x03")
        answer = read_answer(client)
    assert b'"success":false' in answer.replace(b" ", b""), answer
    cluster.run("gnt-cluster", "getmaster").ok()


def test_oversized_luxi_message(cluster: Cluster) -> None:
    """It is swallowed, not stored, answered, and the connection goes on."""
    with luxi_socket(cluster) as client:
        block = b"x" * 65536
        for _ in range(4096):
            client.sendall(block)
        client.sendall(b"\x03")
        assert b"larger than" in read_answer(client)
        client.sendall(b'{"method": "QueryClusterInfo", "args": []}\x03')
        assert b'"success":true' in read_answer(client).replace(b" ", b"")


def https_status(cluster: Cluster, node: str, certificate: Path | None = None) -> int | None:
    """HTTP status of a call to a node daemon; None when there was no answer at all."""
    address = cluster.rows("gnt-node", "list", "-o", "pip", node)[0][0]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if certificate is not None:
        context.load_cert_chain(certificate)
    connection = http.client.HTTPSConnection(address, 1811, context=context, timeout=PATIENCE_S)
    try:
        connection.request("PUT", "/version", body="[]")
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def test_rpc_needs_a_certificate_of_the_cluster(cluster: Cluster, tmp_path: Path) -> None:
    node = cluster.node_names[1]
    foreign = tmp_path / "foreign.pem"
    foreign.write_text(x509.create_self_signed("foreign"))
    assert https_status(cluster, node) in (None, 401, 403)
    assert https_status(cluster, node, foreign) in (None, 401, 403)
    good = cluster.path(cluster.master, "var/lib/ganeti/client.pem")
    assert https_status(cluster, node, good) == 200


def test_killed_masterd_marks_the_job_failed(cluster: Cluster) -> None:
    job = cluster.run("gnt-debug", "delay", "--submit", "--print-jobid", "600").ok().stdout.strip()
    wait_until(
        lambda: cluster.rows("gnt-job", "list", "-o", "status", job) == [["running"]],
        "the job runs",
    )
    pid = cluster.kill(cluster.master, "ganeti-masterd", signal.SIGKILL)
    wait_until(lambda: not alive(pid), "masterd is gone")
    cluster.run("gnt-job", "list").failed("master daemon does not run")
    cluster.vcluster("start", str(cluster.directory)).ok()
    if IN_PROCESSES:
        # It goes on in its process.
        assert cluster.rows("gnt-job", "list", "-o", "status", job) == [["running"]]
        cluster.run("gnt-job", "cancel", "--kill", "--yes-do-it", job).ok()
    assert cluster.rows("gnt-job", "list", "-o", "status", job) == [["error"]]
    assert re.search("master", cluster.run("gnt-job", "info", job).ok().stdout)
    consistent(cluster)


def test_second_masterd_is_refused(cluster: Cluster) -> None:
    before = cluster.pid(cluster.master, "ganeti-masterd")
    done = cluster.run("ganeti-masterd", "--foreground")
    assert done.exit_code != 0
    assert re.search("running|lock", done.text), done.text
    assert cluster.pid(cluster.master, "ganeti-masterd") == before
    cluster.run("gnt-cluster", "getmaster").ok()


def test_interrupted_client_leaves_the_job_running(cluster: Cluster) -> None:
    def running() -> list[list[str]]:
        return cluster.rows("gnt-job", "list", "--running", "-o", "id")

    for _ in range(10):
        client = cluster.start("gnt-debug", "delay", "5")
        wait_until(lambda: running() != [], "the job runs")
        job = running()[0][0]
        os.killpg(client.pid, signal.SIGINT)
        out, err = client.communicate(timeout=PATIENCE_S)
        # On a loaded machine the job may run before the client knows its number.
        if "before the master daemon confirmed" not in err:
            break
        cluster.run("gnt-job", "wait", job).ok()
    assert f"gnt-job watch {job}" in out + err
    cluster.run("gnt-job", "wait", job).ok()
    assert cluster.rows("gnt-job", "list", "-o", "status", job) == [["success"]]
