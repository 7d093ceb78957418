"""A cluster of two nodes whose witness is a document in the REST interface of another cluster."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from harness import Cluster, wait_until
from role_lab import Lab, make_lab, present, read_only
from test_auto_master_failover import LIMIT_S, AutoLab
from test_rapi import Rest, address, passwd


class Two(NamedTuple):
    """The cluster of two nodes, and the one which keeps its document."""

    auto: AutoLab
    store: Cluster
    name: str

    def documents(self) -> Any:
        return Rest(address(self.store, self.store.master)).get("/2/documents")


def _certificate(directory: Path, names: list[str]) -> None:
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=store",
         "-addext", f"subjectAltName={','.join(f'IP:{one}' for one in names)}", "-days", "60",
         "-keyout", str(directory / "key"), "-out", str(directory / "ca.pem")],
        check=True, capture_output=True,
    )  # fmt: skip
    pem = (directory / "key").read_text() + (directory / "ca.pem").read_text()
    (directory / "rapi.pem").write_text(pem)


@pytest.fixture(scope="module")
def two() -> Iterator[Two]:
    directory = Path(tempfile.mkdtemp(prefix="gnt-"))
    store = Cluster(directory / "store", 1, "--hypervisor", "fake")
    try:
        for lab in make_lab(2):
            yield _joined(lab, store, directory)
    finally:
        store.destroy()
        shutil.rmtree(directory, ignore_errors=True)


def _joined(lab: Lab, store: Cluster, directory: Path) -> Two:
    store.create.ok()
    where = address(store, store.master)
    _certificate(directory, [where])
    store.run(
        "gnt-cluster", "renew-crypto", "--force", f"--rapi-certificate={directory / 'rapi.pem'}"
    ).ok()
    passwd(store, "root", "write")
    passwd(store, "cluster1", "documents_name")
    (directory / "auth").write_text("user = cluster1\npassword = secret\n")
    modify = (
        "gnt-cluster",
        "modify",
        f"--witness=https://{where}:5080/2/documents/cluster1",
        f"--witness-auth={directory / 'auth'}",
    )
    # Without the certificate of the other cluster, nothing is changed.
    lab.cluster.run(*modify).failed("certificate")
    lab.cluster.run(*modify, f"--witness-ca={directory / 'ca.pem'}").ok()
    return Two(AutoLab(lab), store, where)


@pytest.mark.long
def test_the_machine_of_the_master_dies(two: Two) -> None:
    """The other node takes the role with the promise of the document, and keeps all changes."""
    lab = two.auto.lab
    assert two.documents() == [{"name": "cluster1", "uri": "/2/documents/cluster1"}]
    old, (other,) = present(lab)
    assert lab.change(old)
    begun = time.monotonic()
    two.auto.cluster.cut_power(old)
    new, taken_s = two.auto.first_job([other], begun)
    print(f"first job accepted after {taken_s:.1f} s, with a limit of {LIMIT_S} s")
    assert new == other
    assert lab.change(other)
    found = Rest(two.name).get("/2/documents/cluster1")
    assert found["master"] == other
    two.auto.cluster.power_on(old)
    lab.settled(other)
    two.auto.wait_watching()


@pytest.mark.long
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount a file system")
def test_the_disk_of_the_master_is_read_only(two: Two) -> None:
    """Its promise of the document is refused by nobody, but it cannot commit: the other one takes
    the role, and it ends."""
    lab = two.auto.lab
    two.auto.forget()
    old, (other,) = present(lab)
    assert lab.change(old)
    with read_only(lab.cluster.path(old, "var/lib/ganeti")):
        new, _ = two.auto.first_job([other], time.monotonic())
        assert new == other and lab.change(other)
        assert "cannot commit changes" in two.auto.log(other)
        wait_until(lambda: not lab.master_runs(old), "the old master daemon has ended")
        assert "Read-only file system" in two.auto.master_log(old)
        assert Rest(two.name).get("/2/documents/cluster1")["master"] == other
    lab.settled(other)
    two.auto.wait_watching()


@pytest.mark.long
def test_the_other_cluster_starts_again(two: Two) -> None:
    """The document is in its configuration, so it is still there; meanwhile there is a warning."""
    lab = two.auto.lab
    master, _ = present(lab)
    before = Rest(two.name).get("/2/documents/cluster1")
    store = two.store
    store.run("daemon-util", "stop-all").ok()
    wait_until(lambda: "the witness does not count" in lab.log(master), "the log has a warning")
    assert lab.change(master)
    store.run("daemon-util", "start-all").ok()
    wait_until(
        lambda: lab.verify(master).exit_code == 0, "gnt-cluster verify has no error any more"
    )
    after = Rest(two.name).get("/2/documents/cluster1")
    assert after["generation"] >= before["generation"]
    assert after["epoch"] == before["epoch"]
    store.run("gnt-cluster", "verify").ok()
    shown = store.run("gnt-cluster", "history").ok().stdout
    assert "document cluster1" in shown and "ReplaceDocument" in shown
