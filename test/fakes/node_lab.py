"""Real node daemons on 127.0.0.0/8, each with a root directory of its own, for tests of calls."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

from ganeti.http.client import Client
from ganeti.platform import paths
from ganeti.rpc import RpcRunner, open_client
from ganeti.utils import x509

PROJECT = Path(__file__).resolve().parents[2]
NETWORK = "127.19.20"


class NodeLab:
    """Some nodes; the first one's certificate is the only candidate's.

    ``config`` is what the runner gets as configuration: it has the nodes and nothing else, unless a
    test replaces it.
    """

    def __init__(self, directory: str, count: int = 1) -> None:
        self.directory = directory
        self.server_pem = x509.create_self_signed()
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.names = [f"node{number}.example.com" for number in range(1, count + 1)]
        self.addresses = {name: f"{NETWORK}.{number}" for number, name in enumerate(self.names, 1)}
        Path(directory, "hosts").write_text(
            "".join(f"{ip} {name}\n" for name, ip in self.addresses.items())
        )
        with socket.socket() as probe:
            probe.bind((f"{NETWORK}.1", 0))
            self.port = probe.getsockname()[1]
        for name in self.names:
            here = self.paths(name)
            os.makedirs(here.data_dir)
            os.makedirs(here.lock_dir)
            Path(here.noded_cert_file).write_text(self.server_pem)
            Path(here.noded_client_cert_file).write_text(x509.create_signed(name, self.server_pem))
        digest = x509.digest_file(self.paths(self.names[0]).noded_client_cert_file)
        for name in self.names:
            Path(self.paths(name).ssconf_file("master_candidates_certs")).write_text(
                f"uuid-node1={digest}\n"
            )
        self.config = SimpleNamespace(
            nodes={
                f"uuid-node{number}": SimpleNamespace(
                    name=name,
                    primary_ip=self.addresses[name],
                    offline=False,
                    group="g",
                    key_pins=None,
                )
                for number, name in enumerate(self.names, 1)
            }
        )

    def paths(self, name: str) -> paths.Paths:
        """Paths of one node."""
        return paths.Paths(f"{self.directory}/{name}")

    def start(self, name: str | None = None, *options: str) -> None:
        """Start one daemon, or all, with these further options."""
        for each in [name] if name else self.names:
            self.processes[each] = subprocess.Popen(
                [
                    sys.executable,
                    str(PROJECT / "daemons" / "ganeti-noded"),
                    "-f",
                    "-p",
                    str(self.port),
                    *options,
                ],
                env=self.environment(each),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        for each in [name] if name else self.names:
            self._wait_until_served(each)

    def environment(self, name: str) -> dict[str, str]:
        """What a program needs to be on a node."""
        search = ":".join(filter(None, (str(PROJECT / "lib"), os.environ.get("PYTHONPATH"))))
        return {
            **os.environ,
            "PYTHONPATH": search,
            "GANETI_HOSTNAME": name,
            "GANETI_ROOTDIR": self.paths(name).root,
            "GANETI_VCLUSTER": self.directory,
        }

    def _wait_until_served(self, name: str, timeout_s: float = 60.0) -> None:
        deadline = time.monotonic() + timeout_s
        # Not by connecting: processes of a killed predecessor may still answer for a moment.
        word = f"pid={self.processes[name].pid} INFO serving"
        while word not in self.log(name):
            assert self.processes[name].poll() is None, self.log(name)
            assert time.monotonic() < deadline, self.log(name)
            time.sleep(0.02)

    def log(self, name: str) -> str:
        """Text of a daemon's log."""
        try:
            return Path(self.paths(name).log_file("ganeti-noded")).read_text()
        except FileNotFoundError:
            return ""

    def stop(self, name: str) -> int:
        """Stop a daemon; its exit code."""
        process = self.processes.pop(name)
        process.send_signal(signal.SIGTERM)
        return process.wait(60)

    def close(self) -> None:
        """Stop what runs."""
        for name in list(self.processes):
            self.stop(name)

    def client(self) -> Client:
        """A client with the certificate of the first node."""
        return open_client(self.paths(self.names[0]))

    def runner(self, client: Client | None = None) -> RpcRunner:
        """A runner on the configuration of the lab."""
        return RpcRunner(lambda: self.config, client or self.client(), self.port)
