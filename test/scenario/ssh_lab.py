"""SSH servers for the nodes of a virtual cluster, on the nodes' addresses and a high port.

They run as the user of the tests, and read the files which the cluster looks after.
"""

from __future__ import annotations

import getpass
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from harness import ROOT, Cluster, Finished, run_program, wait_until

SSHD = shutil.which("sshd", path=f"/usr/sbin:/usr/local/sbin:{os.environ.get('PATH', '')}")
_CLIENT = ("ssh", "ssh-add", "ssh-agent", "ssh-keygen")


def require_programs() -> None:
    """Skip the test when OpenSSH is not installed."""
    for program in _CLIENT:
        if shutil.which(program) is None:
            pytest.skip(f"there is no {program}. Run: devel/install-packages openssh-client")
    if SSHD is None:
        pytest.skip("there is no SSH server. Run: devel/install-packages openssh-server")


class Servers:
    """An SSH server for each node of a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.log = (cluster.directory.parent / "sshd.log").open("wb")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        if os.geteuid() == 0:
            # Where the server locks up its unprivileged half; made at boot otherwise.
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)

    def address(self, node: str) -> str:
        for line in (self.cluster.directory / "hosts").read_text().splitlines():
            words = line.split()
            if node in words[1:]:
                return words[0]
        raise AssertionError(f"{node} has no address")

    def start(self, node: str, *, seen_as: str | None = None) -> None:
        """Start the server of a node.

        :param seen_as: name of another node. The sessions find the files of their own node at the
            paths of that one too, because nodes that are machines have the same paths. It needs the
            rights of root.
        """
        root = self.cluster.node_root(node)
        config = root / "sshd_config"
        config.write_text(
            f"ListenAddress {self.address(node)}\nPort {self.port}\n"
            f"HostKey {root}/etc/ssh/ssh_host_ed25519_key\n"
            f"AuthorizedKeysFile {root}/root/.ssh/authorized_keys\nStrictModes no\n"
            "PasswordAuthentication no\nUsePAM no\nPermitRootLogin yes\nPidFile none\n"
            "Subsystem sftp internal-sftp\n"
            f"SetEnv NODE={node} GANETI_HOSTNAME={node} GANETI_ROOTDIR={root}"
            f" GANETI_VCLUSTER={self.cluster.directory} PYTHONPATH={ROOT / 'lib'}"
            f" PATH={os.path.dirname(sys.executable)}:{os.environ.get('PATH', os.defpath)}\n"
        )
        argv = [str(SSHD), "-D", "-e", "-f", str(config)]
        if seen_as is not None:
            mount = ["mount", "--bind", str(root), str(self.cluster.node_root(seen_as))]
            shell = f"{shlex.join(mount)} && exec {shlex.join(argv)}"
            argv = ["unshare", "--mount", "--propagation=private", "sh", "-c", shell]
        self.running[node] = subprocess.Popen(argv, stderr=self.log)

        def listens() -> bool:
            with socket.socket() as probe:
                return probe.connect_ex((self.address(node), self.port)) == 0

        wait_until(listens, f"the SSH server of {node} listens")

    def stop(self) -> None:
        for process in self.running.values():
            process.terminate()
            process.wait()
        self.log.close()

    def log_in(self, source: str, target: str, *, alias: str | None = None) -> Finished:
        """As one node would on another."""
        ssh_dir = self.cluster.path(source, "root/.ssh")
        keys = [path for path in ssh_dir.glob("id_*") if re.fullmatch("id_[a-z]+", path.name)]
        argv = [
            "ssh",
            "-F",
            "/dev/null",
            "-oBatchMode=yes",
            "-oStrictHostKeyChecking=yes",
            "-oGlobalKnownHostsFile=/dev/null",
            "-oCheckHostIP=no",
            "-oIdentitiesOnly=yes",
            f"-oUserKnownHostsFile={self.cluster.path(source, 'var/lib/ganeti/known_hosts')}",
            f"-oHostKeyAlias={alias or f'[{target}]:{self.port}'}",
            f"-p{self.port}",
            *[f"-i{path}" for path in keys],
            f"-l{getpass.getuser()}",
            self.address(target),
            "echo $NODE",
        ]
        environment = {**self.cluster.environment}
        environment.pop("SSH_AUTH_SOCK", None)
        return run_program(argv, environment)
