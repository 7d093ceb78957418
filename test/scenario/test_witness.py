"""The role of a lost master moves in a cluster of two nodes with a witness.

The witness is a real HTTPS server (``test/fakes/witness_server.py``). A node which has its own user
there can be cut off from it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import ROOT, wait_until
from role_lab import Lab, make_lab, present
from test_auto_master_failover import LIMIT_S, AutoLab

PASSWORD = "correct horse"  # noqa: S105
NODE1, NODE2 = "node1.example.com", "node2.example.com"


class WitnessLab(AutoLab):
    """Two nodes, and a witness."""

    def __init__(self, lab: Lab, directory: Path) -> None:
        self.directory = directory
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost",
             "-addext", "subjectAltName=DNS:localhost", "-days", "2",
             "-keyout", str(directory / "key"), "-out", str(directory / "ca.pem")],
            check=True, capture_output=True,
        )  # fmt: skip
        (directory / "server.pem").write_text(
            (directory / "key").read_text() + (directory / "ca.pem").read_text()
        )
        self.server = subprocess.Popen(
            [sys.executable, str(ROOT / "test/fakes/witness_server.py"), str(directory)]
        )
        self.url = ""
        self.lab = lab

    def begin(self) -> None:
        """Let the cluster use the witness, and move the role by itself."""
        directory, lab = self.directory, self.lab
        wait_until((directory / "port").exists, "the server of the witness listens")
        port = (directory / "port").read_text()
        self.url = f"https://localhost:{port}/cluster/witness.json"
        auth = self.directory / "auth"
        auth.write_text(f"user = both\npassword = {PASSWORD}\n")
        lab.cluster.run(
            "gnt-cluster",
            "modify",
            f"--witness={self.url}",
            f"--witness-auth={auth}",
            f"--witness-ca={directory / 'ca.pem'}",
        ).ok()
        super().__init__(lab)

    def log_in(self, node: str, user: str) -> None:
        """Let a node use the witness as another user."""
        path = self.lab.file(node, "witness-auth")
        path.chmod(0o640)
        path.write_text(f"user = {user}\npassword = {PASSWORD}\n")
        path.chmod(0o440)

    def fault(self, *words: str) -> None:
        """Let the server misbehave; no words heal it."""
        new = self.directory / "faults.new"
        new.write_text("".join(f"{word}\n" for word in words))
        new.rename(self.directory / "faults")

    def document(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.directory / "document").read_text())
        return found


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WitnessLab]:
    for lab in make_lab(2):
        found = WitnessLab(lab, tmp_path_factory.mktemp("witness"))
        try:
            found.begin()
            yield found
        finally:
            found.server.terminate()
            found.server.wait()


@pytest.fixture
def two(used: WitnessLab) -> Iterator[WitnessLab]:
    """Two nodes whose daemons have seen no move of the role."""
    used.forget()
    yield used
    used.fault()
    used.cluster.cut()


def other(node: str) -> str:
    return NODE2 if node == NODE1 else NODE1


@pytest.mark.long
def test_the_machine_of_the_master_dies(two: WitnessLab) -> None:
    """The other node takes the role, and what was acknowledged is there."""
    lab = two.lab
    old, _ = present(lab)
    assert lab.change(old)
    begun = time.monotonic()
    two.cluster.cut_power(old)
    new, taken_s = two.first_job([other(old)], begun)
    print(f"with a witness: first job accepted after {taken_s:.1f} s, with a limit of {LIMIT_S} s")
    assert new == other(old)
    assert lab.change(new)
    assert two.document()["master"] == new
    shown = two.cluster.on(new, "gnt-cluster", "failover-status").ok().stdout
    assert f"of {new}" in shown
    # The witness knows of a change which the dead node does not have, so that it does not start.
    two.cluster.cut_power(new)
    two.cluster.power_on(old)
    wait_until(
        lambda: "according to the witness" in lab.log(old), "the old master says why it waits"
    )
    assert lab.masters() == []
    two.cluster.power_on(new)
    assert two.master() == new, two.reasons()
    lab.settled(new)
    two.wait_watching()


@pytest.mark.long
def test_a_master_without_partner_and_witness_acknowledges_nothing(two: WitnessLab) -> None:
    """The other node has the witness, and takes the role; the old master ends when it hears."""
    lab = two.lab
    old, _ = present(lab)
    two.log_in(old, old)
    two.fault(f"cut {old}")
    two.cluster.cut([old], [other(old)])
    assert not lab.change(old)
    two.cluster.on(old, "gnt-debug", "delay", "--submit", "0").failed("not the witness")
    wait_until(lambda: two.accepts(other(old)), f"{other(old)} is the master")
    assert lab.change(other(old))
    assert not lab.change(old)
    # It reaches the witness again, and nothing else: that is enough to end it.
    two.fault()
    wait_until(lambda: not lab.master_runs(old), "the old master daemon has ended")
    assert "the witness obeys master epoch" in lab.log(old)
    two.cluster.cut()
    two.log_in(old, "both")
    lab.settled(other(old))
    two.wait_watching()


@pytest.mark.long
def test_a_lost_witness_changes_nothing_but_a_warning(two: WitnessLab) -> None:
    """Both nodes are well: changes are acknowledged, and the loss is reported; then it returns."""
    lab = two.lab
    master, _ = present(lab)
    epoch = lab.epoch(master)
    two.fault("deaf")
    wait_until(lambda: "the witness does not count" in lab.log(master), "the log has a warning")
    assert lab.change(master)
    lab.verify(master).failed("the witness does not count")
    assert "does not count" in two.cluster.on(master, "gnt-cluster", "failover-status").ok().stdout
    # The document is lost as well, and made again.
    (two.directory / "document").unlink()
    two.fault()
    wait_until(lambda: (two.directory / "document").exists(), "the document is there again")
    wait_until(lambda: two.document()["epoch"].split()[0] == str(lab.epoch(master)), "its epoch")
    assert lab.epoch(master) == epoch
    lab.settled(master)


@pytest.mark.long
def test_partner_and_witness_are_lost_for_ever(two: WitnessLab) -> None:
    """Without both, nothing is acknowledged until the administrator says that they are gone."""
    lab = two.lab
    master, (lost,) = present(lab)
    two.cluster.cut_power(lost)
    two.fault("deaf")
    assert not lab.change(master)
    offline = two.cluster.on(master, "gnt-node", "modify", "--offline=yes", lost)
    assert offline.exit_code != 0
    assert "--witness=none" in offline.text + lab.log(master)
    two.cluster.on(master, "gnt-cluster", "modify", "--witness=none")
    two.cluster.on(master, "gnt-node", "modify", "--offline=yes", lost)
    assert lab.change(master)
    # With a witness again, and the partner back, everything is as before.
    two.fault()
    two.cluster.on(master, "gnt-cluster", "modify", f"--witness={two.url}").ok()
    assert lab.change(master)
    two.cluster.power_on(lost)
    # It was not informed that it is offline, and does not become the master.
    assert lab.masters() == [master]
    two.cluster.on(master, "gnt-node", "modify", "--offline=no", lost).ok()
    two.cluster.on(master, "gnt-node", "modify", "--master-candidate=yes", lost)
    lab.settled(master)


@pytest.mark.long
def test_a_server_without_conditions_is_refused(two: WitnessLab) -> None:
    lab = two.lab
    master, _ = present(lab)
    modify = ("gnt-cluster", "modify", f"--witness={two.url}")
    two.fault("unconditional")
    two.cluster.on(master, *modify).failed("cannot be a witness", "was not changed")
    two.fault("weak")
    two.cluster.on(master, *modify).failed("no strong entity tag")
    two.fault()
    two.cluster.on(master, *modify).ok()
    assert two.url in two.cluster.on(master, "gnt-cluster", "info").ok().stdout
    assert PASSWORD not in "".join(
        path.read_text() for path in two.cluster.directory.glob("node*/var/log/ganeti/*.log")
    )
