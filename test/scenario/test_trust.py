"""Trust between nodes over real daemons: joining by token, renewals, confd, where secrets are.

One cluster for all tests, in order: what one does (new keys, a node more) the next ones live with.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import ROOT, VCLUSTER, Cluster, Finished, run_program, wait_until

SECRET_FILES = (
    "server.pem",
    "client.pem",
    "rapi.pem",
    "spice.pem",
    "hmac.key",
    "cluster-domain-secret",
)
CONFD_CLIENT = str(ROOT / "tools" / "confd-client")


class Watcher:
    """Collects every command line that is seen while the tests run, and every secret there was."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.command_lines: set[bytes] = set()
        self.secrets: dict[str, str] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            for name in os.listdir("/proc"):
                if name.isdecimal():
                    with contextlib.suppress(OSError):
                        self.command_lines.add(Path(f"/proc/{name}/cmdline").read_bytes())
            self._stop.wait(0.02)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def learn(self) -> None:
        """Remember the secrets as they are now: keys, and each line of a private key."""
        for node in self.directory.glob("node*"):
            for name in SECRET_FILES:
                path = node / "var/lib/ganeti" / name
                if not path.exists():
                    continue
                text = path.read_text()
                if name.endswith(".pem"):
                    body = re.search(r"PRIVATE KEY-----\n(.*?)-----END", text, re.S)
                    assert body is not None, path
                    # The first line of such a key is the same in all of them.
                    for line in body[1].split()[1:]:
                        self.secrets[line] = f"{node.name}: {name}"
                else:
                    self.secrets[text.strip()] = f"{node.name}: {name}"


@pytest.fixture(scope="module")
def watcher(cluster: Cluster) -> Iterator[Watcher]:
    made = Watcher(cluster.directory)
    made.learn()
    yield made
    made.stop()


@pytest.fixture(autouse=True)
def _watched(watcher: Watcher) -> Iterator[None]:
    yield
    watcher.learn()


def on(cluster: Cluster, node: str, *argv: str, stdin: str | None = None) -> Finished:
    """Run a program on a node."""
    return run_program(
        (VCLUSTER, "run", "--node", node, str(cluster.directory), *argv),
        cluster.environment,
        stdin=stdin,
    )


def all_nodes_answer(cluster: Cluster) -> bool:
    rows = cluster.rows("gnt-node", "list", "-o", "name,mfree")
    return all(row[1].isdecimal() for row in rows)


# --- confd ---------------------------------------------------------------------------------------


def test_every_candidate_answers_questions(cluster: Cluster) -> None:
    master = cluster.master
    for node in cluster.node_names:
        said = on(cluster, node, CONFD_CLIENT, "-a", node, "-r", "5").ok().stdout
        assert f'master: ["{master}"' in said
        assert "5 pings in" in said


def test_an_unauthenticated_peer_gets_no_answer_and_is_counted(cluster: Cluster) -> None:
    import socket

    node = cluster.node_names[1]
    address = dict(
        reversed(line.split()[:2])
        for line in (cluster.directory / "hosts").read_text().splitlines()
    )[node]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(0.5)
        for datagram in (b"hello", b"plj0{}", b'plj0{"salt": "1", "msg": "{}", "hmac": "00"}'):
            sock.sendto(datagram, (address, 1814))
        with pytest.raises(TimeoutError):
            sock.recv(100)
    log = cluster.path(node, "var/log/ganeti/conf-daemon.log")
    os.kill(cluster.pid(node, "ganeti-confd"), signal.SIGHUP)
    wait_until(lambda: "1 wrong magic" in log.read_text(), "the counts are logged")
    assert "1 wrong key" in log.read_text() and "1 malformed" in log.read_text()


# --- joining by token ----------------------------------------------------------------------------


class Offer:
    """``gnt-node add --token``, waiting in the background."""

    def __init__(self, cluster: Cluster, *options: str) -> None:
        self.process = cluster.start("gnt-node", "add", "--token", *options)
        self.token = ""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("gntjoin1-"):
                self.token = line.strip()
                break

    def end(self) -> tuple[int, str]:
        out, err = self.process.communicate(timeout=120)
        return self.process.returncode, out + err

    def interrupt(self) -> tuple[int, str]:
        self.process.send_signal(signal.SIGINT)
        return self.end()


def join(cluster: Cluster, node: str, token: str) -> Finished:
    return on(cluster, node, "ganeti-join", "--token-file", "-", stdin=f"{token}\n")


def test_a_machine_joins_with_a_token(cluster: Cluster, watcher: Watcher) -> None:
    node = cluster.vcluster("add-node", "--machine-only", str(cluster.directory)).ok()
    name = node.stdout.split()[-1]
    offer = Offer(cluster, name)
    assert offer.token, offer.end()
    watcher.secrets[offer.token] = "join token"
    # Wrong ones first; none of them spends the right one.
    join(cluster, name, offer.token[:-8]).failed("not copied completely")
    join(cluster, cluster.node_names[1], offer.token).failed(f"the token is for {name}")
    join(cluster, name, offer.token).ok()
    code, said = offer.end()
    assert code == 0, said
    assert name in cluster.node_names
    assert all_nodes_answer(cluster)
    # A node of this cluster may join again, but with a new token.
    join(cluster, name, offer.token).failed("The token was used already")
    assert all_nodes_answer(cluster)


def test_a_token_that_is_taken_back_expired_or_used(cluster: Cluster) -> None:
    node = cluster.vcluster("add-node", "--machine-only", str(cluster.directory)).ok()
    name = node.stdout.split()[-1]
    offer = Offer(cluster, name)
    code, _ = offer.interrupt()
    assert code != 0
    join(cluster, name, offer.token).failed("cannot connect to")
    short = Offer(cluster, "--token-lifetime", "1", name)
    code, said = short.end()
    assert code == 1 and "before it expired" in said
    join(cluster, name, short.token).failed("expired")
    # The job fails, so the machine forgets everything; and the token is used.
    bad = Offer(cluster, "--node-group", "nosuch", name)
    join(cluster, name, bad.token).failed("did not add this machine", "nosuch")
    code, said = bad.end()
    assert code == 1
    join(cluster, name, bad.token).failed("cannot connect to")
    assert not list(cluster.path(name, "var/lib/ganeti").glob("*.pem"))
    assert not cluster.path(name, "var/run/ganeti/ganeti-noded.pid").exists()
    assert name not in cluster.node_names


# --- renewals ------------------------------------------------------------------------------------


def renew(cluster: Cluster, *options: str) -> Finished:
    return cluster.run("gnt-cluster", "renew-crypto", "--force", *options)


def contents(cluster: Cluster, name: str) -> set[str]:
    return {cluster.path(node, f"var/lib/ganeti/{name}").read_text() for node in cluster.node_names}


def test_everything_is_renewed(cluster: Cluster) -> None:
    before = {name: contents(cluster, name) for name in SECRET_FILES if name != "spice.pem"}
    pids = {node: cluster.pid(node, "ganeti-noded") for node in cluster.node_names}
    renew(
        cluster,
        "--new-cluster-certificate",
        "--new-confd-hmac-key",
        "--new-rapi-certificate",
        "--new-cluster-domain-secret",
        "--new-spice-certificate",
    ).ok()
    for name, old in before.items():
        new = contents(cluster, name)
        assert not new & old, name
        assert len(new) == (1 if name != "client.pem" else len(cluster.node_names))
    assert len(contents(cluster, "spice.pem")) == 1
    assert all_nodes_answer(cluster)
    assert pids == {node: cluster.pid(node, "ganeti-noded") for node in cluster.node_names}
    for node in cluster.node_names:
        on(cluster, node, CONFD_CLIENT, "-a", node, "-r", "1").ok()
    said = cluster.run("gnt-cluster", "verify").ok().text
    assert "ERROR" not in said and "renewal" not in said


@pytest.mark.long
def test_a_renewal_that_fails_on_the_way_is_repeated(cluster: Cluster) -> None:
    node = cluster.node_names[2]
    # By then all show the new certificate of the cluster, with client certificates of the old one.
    path = cluster.path(node, "var/lib/ganeti/client.pem.tmp")
    path.mkdir()
    (path / "in the way").touch()
    old = contents(cluster, "server.pem")
    renew(cluster, "--new-cluster-certificate").failed(node, "Continue with 'gnt-cluster")
    assert all_nodes_answer(cluster), "nobody is cut off"
    said = cluster.run("gnt-cluster", "verify").text
    assert "a renewal of keys and certificates was interrupted" in said
    cluster.run("gnt-node", "add", "node9").failed()
    # The master dies as well.
    cluster.kill(cluster.master, "ganeti-masterd", signal.SIGKILL)
    cluster.vcluster("start", str(cluster.directory)).ok()
    assert all_nodes_answer(cluster)
    (path / "in the way").unlink()
    path.rmdir()
    assert "Continuing the interrupted renewal" in renew(cluster).ok().stdout
    new = contents(cluster, "server.pem")
    assert len(new) == 1 and not new & old
    assert all_nodes_answer(cluster)
    assert not list(cluster.directory.glob("node*/var/lib/ganeti/server-ca.pem"))
    said = cluster.run("gnt-cluster", "verify").ok().text
    assert "ERROR" not in said and "renewal" not in said


@pytest.mark.long
def test_killed_at_any_moment(cluster: Cluster) -> None:
    """The command and the master daemon die while certificates change."""
    for pause_s in (0.25, 0.4, 0.6):
        running = cluster.start("gnt-cluster", "renew-crypto", "-f", "--new-cluster-certificate")
        threading.Event().wait(pause_s)
        cluster.kill(cluster.master, "ganeti-masterd", signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            running.communicate(timeout=120)
        cluster.vcluster("start", str(cluster.directory)).ok()
        assert all_nodes_answer(cluster)
    renew(cluster, "--new-cluster-certificate").ok()
    assert len(contents(cluster, "server.pem")) == 1
    said = cluster.run("gnt-cluster", "verify").ok().text
    assert "ERROR" not in said and "renewal" not in said


# --- the key of each node ------------------------------------------------------------------------


def restart_noded(cluster: Cluster, *nodes: str) -> None:
    for node in nodes:
        cluster.kill(node, "ganeti-noded", signal.SIGTERM)
    for node in nodes:
        wait_until(
            lambda node=node: not cluster.path(node, "var/run/ganeti/ganeti-noded.pid").exists(),
            f"the node daemon of {node} has ended",
        )
    cluster.vcluster("start", str(cluster.directory)).ok()


def test_two_nodes_exchange_their_addresses(cluster: Cluster) -> None:
    """Each is a node of the cluster, and neither is believed in the place of the other."""
    first, second = cluster.node_names[1:3]
    hosts = cluster.directory / "hosts"
    before = hosts.read_text()
    swapped = {first: second, second: first}
    lines = [line.split() for line in before.splitlines()]
    address_of = {words[1]: words[0] for words in lines}
    try:
        hosts.write_text(
            "".join(
                f"{address_of[swapped.get(words[1], words[1])]}\t{' '.join(words[1:])}\n"
                for words in lines
            )
        )
        restart_noded(cluster, first, second)
        rows = dict(cluster.rows("gnt-node", "list", "-o", "name,mfree"))
        assert rows[first] == rows[second] == "?" and rows[cluster.master].isdecimal()
        said = cluster.run("gnt-cluster", "verify", "--error-codes").failed().text
        for node in (first, second):
            assert f"ERROR:ENODERPC:node:{node}" in said
            assert f"gnt-node add --readd {node}" in said
        cluster.run("gnt-cluster", "renew-crypto", "--force", "--new-node-certificates").failed(
            "another key"
        )
    finally:
        hosts.write_text(before)
        restart_noded(cluster, first, second)
    assert all_nodes_answer(cluster)
    assert "ERROR" not in cluster.run("gnt-cluster", "verify").ok().text


def test_a_machine_that_was_set_up_again_is_accepted_by_hand_only(cluster: Cluster) -> None:
    node = cluster.node_names[2]
    data = cluster.path(node, "var/lib/ganeti")
    # It gets a new key and certificate, which the cluster's key has signed.
    script = (
        "import os; from ganeti.utils import x509; from ganeti.platform import paths;"
        "here = paths.current();"
        "pem = x509.create_signed('x', x509.read_pem(here.noded_cert_file));"
        "path = here.noded_client_cert_file; open(path + '.x', 'w').write(pem);"
        "os.rename(path + '.x', path)"
    )
    on(cluster, node, sys.executable, "-c", script).ok()
    (data / "client.pem").chmod(0o440)
    restart_noded(cluster, node)
    assert dict(cluster.rows("gnt-node", "list", "-o", "name,mfree"))[node] == "?"
    said = cluster.run("gnt-node", "add", "--readd", node).ok().text
    assert f"node {node} had the key" in said
    assert all_nodes_answer(cluster)
    renew(cluster, "--new-node-certificates").ok()
    assert all_nodes_answer(cluster)
    assert "ERROR" not in cluster.run("gnt-cluster", "verify").ok().text


def test_the_master_accepts_its_own_key_when_it_starts(cluster: Cluster) -> None:
    """Nobody else could add it again."""
    master = cluster.master
    data = cluster.path(master, "var/lib/ganeti")
    config = data / "config.data"
    cluster.kill(master, "ganeti-masterd", signal.SIGTERM)
    wait_until(
        lambda: not cluster.path(master, "var/run/ganeti/ganeti-masterd.pid").exists(),
        "the master daemon has ended",
    )
    stored = json.loads(config.read_text())
    (own,) = [node for node in stored["nodes"].values() if node["name"] == master]
    right, own["key_pins"] = own["key_pins"], ["A" * 43 + "="]
    mode = stat.S_IMODE(config.stat().st_mode)
    config.write_text(json.dumps(stored))
    config.chmod(mode)
    cluster.vcluster("start", str(cluster.directory)).ok()
    assert all_nodes_answer(cluster)
    stored = json.loads(config.read_text())
    assert [n["key_pins"] for n in stored["nodes"].values() if n["name"] == master] == [right]


# --- where secrets are ---------------------------------------------------------------------------


def test_the_masters_sockets(cluster: Cluster) -> None:
    run_dir = cluster.path(cluster.master, "var/run/ganeti")
    assert stat.S_IMODE((run_dir / "socket").stat().st_mode) == 0o1770
    for name in ("ganeti-master", "ganeti-query"):
        assert stat.S_IMODE((run_dir / "socket" / name).stat().st_mode) == 0o660


def test_secret_parameters_are_kept_by_nobody(cluster: Cluster, watcher: Watcher) -> None:
    """The OS scripts get them; no job, log or configuration does, and no list of processes."""
    password = f"pass-{os.urandom(8).hex()}"
    cluster.make_os("keeper", 'printf %s "$OSP_ROOT_PASSWORD" | sha256sum >"$OSP_DROP"')
    for node in cluster.node_names:
        directory = cluster.path(node, "srv/ganeti/os/keeper")
        (directory / "parameters.list").write_text("root_password of root\ndrop where to\n")
    drop = cluster.directory.parent / "drop"
    # From a file: on the command line everybody would see it.
    secrets = cluster.directory.parent / "secrets"
    secrets.touch(mode=0o600)
    watcher.secrets[password] = "secret parameter of an OS"
    job = [
        {
            "OP_ID": "OP_INSTANCE_CREATE",
            "instance_name": "kept.example.com",
            "mode": "create",
            "disk_template": "sharedfile",
            "disks": [{"size": 64}],
            "nics": [],
            "os_type": "keeper",
            "pnode": cluster.node_names[0],
            "start": False,
            "name_check": False,
            "ip_check": False,
            "ignore_ipolicy": True,
            "osparams": {"drop": str(drop)},
            "osparams_secret": {"root_password": password},
        }
    ]
    secrets.write_text(json.dumps(job))
    cluster.run("gnt-debug", "submit-job", str(secrets)).ok()
    wait_until(drop.exists, "the OS was created")
    assert drop.read_text().split()[0] == hashlib.sha256(password.encode()).hexdigest()
    wait_until(
        lambda: cluster.rows("gnt-job", "list", "-o", "status")[-1] == ["success"],
        "the job has ended",
    )
    listed = cluster.run("gnt-job", "info", cluster.rows("gnt-job", "list", "-o", "id")[-1][0])
    assert password not in listed.ok().text
    secrets.unlink()


def test_no_secret_where_it_does_not_belong(cluster: Cluster, watcher: Watcher) -> None:
    """Not in a log, a job, a list of processes, nor in a file that everybody may read."""
    watcher.learn()
    assert len(watcher.secrets) > 20
    wanted = re.compile(b"|".join(re.escape(secret.encode()) for secret in watcher.secrets))
    looked_at = holders = 0
    for path in cluster.directory.rglob("*"):
        if path.is_symlink() or not path.is_file():
            continue
        looked_at += 1
        found = wanted.search(path.read_bytes())
        if found is None:
            continue
        holders += 1
        secret = watcher.secrets[found[0].decode()]
        assert path.name in SECRET_FILES, f"{path} holds a secret ({secret})"
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode & 0o037 == 0, f"{path} has mode {mode:o} and holds a secret ({secret})"
    assert looked_at > 100 and holders >= 5 * len(cluster.node_names)
    logs = list(cluster.directory.glob("node*/var/log/ganeti/*.log"))
    assert len(logs) > 2 * len(cluster.node_names)
    assert any(b"ganeti-masterd" in line for line in watcher.command_lines)
    for line in watcher.command_lines:
        assert wanted.search(line) is None, line
