"""Preparing a machine over SSH, with a real SSH server on a high port.

The "machine" is another root on this one, which the server's environment names.
"""

from __future__ import annotations

import getpass
import io
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ganeti import errors
from ganeti.bootstrap import node_state, remote
from ganeti.config import ssconf
from ganeti.platform import hosts, paths
from ganeti.tools import node_daemon_setup
from ganeti.utils import filelock, net, process, ssh, x509
from ganeti.utils.undo import UndoStack
from ganeti.wire import json

NODE = "node2.example.com"
SSHD = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:" + os.environ.get("PATH", ""))


@pytest.fixture
def master(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[paths.Paths]:
    here = paths.Paths(str(tmp_path / "node1.example.com"))
    node_state.write_credentials(here, node_state.new_credentials(), "node1.example.com")
    ssconf.write_local({"cluster_name": "cluster.example.com\n"}, here)
    for name in (paths.ENV_ROOT, paths.ENV_HOSTNAME, paths.ENV_VCLUSTER):
        monkeypatch.delenv(name, raising=False)
    with paths.override(here):
        yield here


class Server:
    """An SSH server whose sessions belong to the machine."""

    def __init__(self, top: Path, network: str) -> None:
        self.top = top
        self.machine = paths.Paths(str(top / NODE))
        Path(self.machine.data_dir).mkdir(parents=True)
        (top / "hosts").write_text(f"{network}.2 {NODE}\n")
        self.identity = str(top / "identity")
        self.host_key = str(top / "host_key")
        for path in (self.identity, self.host_key):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)
        keys = top / "authorized_keys"
        keys.write_text(Path(f"{self.identity}.pub").read_text())
        with socket.socket() as probe:
            probe.bind((f"{network}.2", 0))
            self.port = probe.getsockname()[1]
        self.host = hosts.Hostname(NODE, f"{network}.2")
        config = top / "sshd_config"
        config.write_text(
            f"ListenAddress {self.host.ip}\nPort {self.port}\nHostKey {self.host_key}\n"
            f"AuthorizedKeysFile {keys}\nStrictModes no\nPasswordAuthentication no\n"
            f"UsePAM no\nPermitRootLogin yes\nPidFile none\n"
            f"SetEnv {paths.ENV_ROOT}={self.machine.root} {paths.ENV_HOSTNAME}={NODE}"
            f" {paths.ENV_VCLUSTER}={top}\n"
        )
        if os.geteuid() == 0:
            # Where the server locks up its unprivileged half; made at boot otherwise.
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        self.log = open(top / "sshd.log", "w", encoding="utf-8")
        self.process = subprocess.Popen([str(SSHD), "-D", "-e", "-f", str(config)], stderr=self.log)
        deadline = time.monotonic() + 60
        while not net.tcp_listens(self.host.ip, self.port, 1.0):
            assert self.process.poll() is None, (top / "sshd.log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def access(
        self, confirm: Callable[[str], bool] = lambda question: True, **changes: Any
    ) -> remote.SshAccess:
        return remote.SshAccess(
            self.port,
            getpass.getuser(),
            confirm=confirm,
            identity=self.identity,
            batch=True,
        )._replace(**changes)

    @property
    def fingerprint(self) -> str:
        return ssh.parse_key(Path(f"{self.host_key}.pub").read_text().split()).fingerprint

    def running(self) -> list[str]:
        return [
            name
            for name in (node_state.NODED, node_state.CONFD)
            if filelock.is_locked(self.machine.pid_file(name))
        ]

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(60)
        self.log.close()
        env = {
            paths.ENV_ROOT: self.machine.root,
            paths.ENV_HOSTNAME: NODE,
            paths.ENV_VCLUSTER: str(self.top),
        }
        for name in self.running():
            node_state.daemon_util("stop", name, env=env)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    if SSHD is None:
        pytest.skip("no SSH server is installed (package openssh-server)")
    if shutil.which("ssh") is None or shutil.which("ssh-keyscan") is None:
        pytest.skip("no SSH client is installed (package openssh-client)")
    # Nobody else's node daemon listens there.
    made = Server(tmp_path, f"127.{200 + os.getpid() % 50}.{os.getpid() // 50 % 250}")
    yield made
    made.close()


@pytest.mark.programs
def test_a_machine_is_prepared_and_taken_back(server: Server, master: paths.Paths) -> None:
    asked: list[str] = []

    def confirm(question: str) -> bool:
        asked.append(question)
        return True

    with pytest.raises(RuntimeError, match="the job failed"), UndoStack() as undo:
        made = remote.set_up(server.host, server.access(confirm), undo)
        # So the master knows which machine it has to be, before it asks it anything.
        assert made == x509.digest_file(server.machine.noded_client_cert_file)
        assert server.running() == [node_state.NODED, node_state.CONFD]
        assert node_state.read_credentials(server.machine) == node_state.read_credentials(master)
        assert ssconf.SimpleStore(server.machine).cluster_name() == "cluster.example.com"
        raise RuntimeError("the job failed")
    assert len(asked) == 1 and server.fingerprint in asked[0] and NODE in asked[0]
    assert server.running() == []
    assert node_state.cluster_traces(server.machine) == []
    # The key is known now.
    with UndoStack() as undo:
        remote.set_up(server.host, server.access(lambda question: False), undo)
        undo.commit()
    assert server.running() == [node_state.NODED, node_state.CONFD]


@pytest.mark.programs
def test_a_key_that_is_not_accepted(server: Server, master: paths.Paths) -> None:
    with pytest.raises(errors.OpPrereqError, match="was not accepted"), UndoStack() as undo:
        remote.set_up(server.host, server.access(lambda question: False), undo)
    assert node_state.cluster_traces(server.machine) == []
    assert not Path(master.known_hosts_file).exists()
    # Unless nobody wants to be asked.
    keys = remote.accepted_keys(
        server.host, server.access(lambda question: False, check_key=False), master
    )
    assert keys[0].fingerprint == server.fingerprint
    assert f"[{NODE}]:{server.port} ssh-ed25519 " in Path(master.known_hosts_file).read_text()


@pytest.mark.programs
def test_a_login_that_is_refused(server: Server, master: paths.Paths) -> None:
    # The key of the host itself is none with which somebody may log in.
    with (
        pytest.raises(errors.OpExecError, match=f"'gnt-node add --token {NODE}'") as caught,
        UndoStack() as undo,
    ):
        remote.set_up(server.host, server.access(identity=server.host_key), undo)
    assert "Permission denied" in str(caught.value)
    assert node_state.cluster_traces(server.machine) == []


@pytest.mark.programs
def test_another_key_than_before(server: Server, master: paths.Paths) -> None:
    other = ssh.parse_key(Path(f"{server.identity}.pub").read_text().split())
    Path(master.known_hosts_file).write_text(ssh.known_hosts_text(NODE, server.port, [other]))
    with (
        pytest.raises(errors.OpPrereqError, match="shows another SSH host key"),
        UndoStack() as undo,
    ):
        remote.set_up(server.host, server.access(check_key=False), undo)
    assert node_state.cluster_traces(server.machine) == []


@pytest.mark.programs
def test_a_machine_of_another_cluster(server: Server, master: paths.Paths) -> None:
    node_state.write_credentials(server.machine, node_state.new_credentials(), NODE)
    with (
        pytest.raises(errors.OpExecError, match="belongs to another cluster"),
        UndoStack() as undo,
    ):
        remote.set_up(server.host, server.access(), undo)
    assert server.running() == []


@pytest.mark.programs
def test_nobody_answers(master: paths.Paths) -> None:
    if shutil.which("ssh-keyscan") is None:
        pytest.skip("no SSH client is installed (package openssh-client)")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        access = remote.SshAccess(probe.getsockname()[1])
        with (
            pytest.raises(errors.OpPrereqError, match="no SSH server answers"),
            UndoStack() as undo,
        ):
            remote.set_up(hosts.Hostname(NODE, "127.0.0.1"), access, undo)


# --- the program on the machine ------------------------------------------------------------------

HOST = hosts.Hostname(NODE, "127.0.0.2")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"extra": 1}, "another release"),
        ({remote.HMAC: 3}, "hmac_key is not"),
        ({remote.SSCONF: {"../x": "y"}}, "belong to another cluster"),
        ({remote.CLUSTER_NAME: "other"}, "belong to another cluster"),
        ({remote.CERTIFICATE: "garbage"}, "the cluster's certificate"),
    ],
)
def test_input_that_is_refused(master: paths.Paths, change: dict[str, Any], text: str) -> None:
    told = json.loads(remote.credentials_message(HOST, master))
    node_daemon_setup.parse(json.dumps(told))
    with pytest.raises(errors.OpPrereqError, match=text) as caught:
        node_daemon_setup.parse(json.dumps({**told, **change}))
    assert "PRIVATE" not in str(caught.value)


def test_input_that_is_no_json() -> None:
    with pytest.raises(errors.OpPrereqError, match="not JSON"):
        node_daemon_setup.parse("secret{")


def test_a_dry_run_changes_nothing(
    master: paths.Paths,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = remote.credentials_message(HOST, master)
    there = paths.Paths(str(tmp_path / NODE))
    monkeypatch.setenv(paths.ENV_HOSTNAME, NODE)
    with paths.override(there):
        monkeypatch.setattr(sys, "stdin", io.StringIO(text))
        assert node_daemon_setup.main(["--dry-run"]) == 0
        assert node_state.cluster_traces(there) == []
        monkeypatch.setenv(paths.ENV_HOSTNAME, "node3.example.com")
        monkeypatch.setattr(sys, "stdin", io.StringIO(text))
        assert node_daemon_setup.main([]) == 1
    assert f"this machine is node3.example.com, not {NODE}" in capsys.readouterr().err


def test_a_node_that_missed_a_renewal_gets_the_new_secrets(
    master: paths.Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_state, "daemon_util", lambda *words, **_: None)
    there = paths.Paths(str(tmp_path / NODE))
    monkeypatch.setenv(paths.ENV_HOSTNAME, NODE)
    node_state.write_credentials(there, node_state.new_credentials(), NODE)
    Path(there.server_ca_file).write_text("a former certificate\n")
    text = remote.credentials_message(HOST, master)
    pin = x509.key_pin(Path(there.noded_client_cert_file).read_text())
    with paths.override(there):
        with pytest.raises(errors.OpPrereqError, match="another cluster"):
            node_daemon_setup.check_machine(node_daemon_setup.parse(text), there)
        told = node_daemon_setup.parse(text)
        told[remote.SSCONF]["node_key_pins"] = f"{NODE} {pin}\n"  # type: ignore[index]
        assert not node_daemon_setup.check_machine(told, there)
        digest = node_daemon_setup.set_up(told, there)
    assert node_state.read_credentials(there) == node_state.read_credentials(master)
    assert digest == x509.digest_file(there.noded_client_cert_file)
    assert not Path(there.server_ca_file).exists()


@pytest.mark.parametrize(
    ("directory", "made"),
    [(paths.DEFAULT_FILE_STORAGE_DIR, True), ("/srv/disks", False), ("", False)],
)
def test_the_default_directory_of_disk_files_is_made(
    tmp_path: Path, directory: str, made: bool
) -> None:
    there = paths.Paths(str(tmp_path / NODE))
    node_state.make_file_directory({"file_storage_dir": f"{directory}\n"}, there)
    node_state.make_file_directory({"file_storage_dir": f"{directory}\n"}, there)
    assert Path(there.to_local(paths.DEFAULT_FILE_STORAGE_DIR)).is_dir() is made
    assert not Path(there.to_local("/srv/disks")).exists()


def test_a_daemon_that_does_not_start(
    master: paths.Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def daemon_util(*words: str, **_: Any) -> None:
        if words == ("start", node_state.NODED):
            raise errors.OpExecError("port 1811 is taken")

    monkeypatch.setattr(node_state, "daemon_util", daemon_util)
    told = node_daemon_setup.parse(remote.credentials_message(HOST, master))
    there = paths.Paths(str(tmp_path / NODE))
    with pytest.raises(errors.OpExecError, match="port 1811 is taken"):
        node_daemon_setup.set_up(told, there)
    assert node_state.cluster_traces(there) == []


def test_what_the_program_prints(
    master: paths.Paths,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(node_state, "daemon_util", lambda *words, **_: None)
    monkeypatch.setenv(paths.ENV_HOSTNAME, NODE)
    monkeypatch.setattr(sys, "stdin", io.StringIO(remote.credentials_message(HOST, master)))
    there = paths.Paths(str(tmp_path / NODE))
    with paths.override(there):
        assert node_daemon_setup.main([]) == 0
    printed = capsys.readouterr().out
    assert remote.printed_certificate(printed) == x509.digest_file(there.noded_client_cert_file)
    # A banner of the SSH server does no harm; an older release prints nothing.
    assert remote.printed_certificate(f"Welcome\r\n{printed}") is not None
    assert remote.printed_certificate("") is None
    assert remote.printed_certificate("certificate of the machine") is None


def test_the_port_that_the_cluster_knows(master: paths.Paths) -> None:
    assert remote.default_port(NODE) == 22
    ssconf.write_local({"ssh_ports": f"node1.example.com=22\n{NODE}=2222\n"}, master)
    assert remote.default_port(NODE) == 2222 and remote.default_port("node9") == 22


def test_a_scan_without_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(argv: list[str], **_: object) -> process.Completed:
        return process.Completed(tuple(argv), 0, "", "", None)

    monkeypatch.setattr(process, "run", run)
    with pytest.raises(errors.OpPrereqError, match="no SSH server answers at node1"):
        remote.scan_host_keys("node1", "192.0.2.1", 22)
