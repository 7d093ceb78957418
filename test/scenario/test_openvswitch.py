"""The Open vSwitch of nodes, with the real database and daemon of Open vSwitch.

The daemon forwards packets itself, in its own network namespace: no kernel module is needed, and
the machine's networks are not touched.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import Cluster, made, wait_until

SWITCH, FIRST = "gntsw0", "gntsw1"
SCHEMA = "/usr/share/openvswitch/vswitch.ovsschema"

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        os.geteuid() != 0 or shutil.which("ovs-vswitchd") is None,
        reason="Open vSwitch needs root and the package openvswitch-switch",
    ),
]


@pytest.fixture(scope="module")
def switches() -> Iterator[Path]:
    """The directory of an Open vSwitch which runs; programs find it by OVS_RUNDIR."""
    directory = Path(tempfile.mkdtemp(prefix="gnt-ovs-"))
    old = dict(os.environ)
    for name in ("RUNDIR", "LOGDIR", "DBDIR", "SYSCONFDIR"):
        os.environ[f"OVS_{name}"] = str(directory)
    pid_files = [directory / "db.pid", directory / "vs.pid"]
    try:
        for command in (
            f"ovsdb-tool create {directory}/conf.db {SCHEMA}",
            f"ovsdb-server {directory}/conf.db --remote=punix:{directory}/db.sock"
            f" --pidfile={pid_files[0]} --detach --no-chdir --log-file",
            # "system" is otherwise the kernel's own datapath.
            f"unshare --net ovs-vswitchd --enable-dummy=system --pidfile={pid_files[1]} --detach"
            " --no-chdir --log-file",
        ):
            subprocess.run(command.split(), check=True, capture_output=True, timeout=60)
        yield directory
    finally:
        for pid_file in pid_files:
            if pid_file.exists():
                os.kill(int(pid_file.read_text()), signal.SIGTERM)
        os.environ.clear()
        os.environ.update(old)
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def one(switches: Path) -> Iterator[Cluster]:
    directory = Path(tempfile.mkdtemp(prefix="gnt-"))
    try:
        with made(Cluster(directory / "vc", 1, "--hypervisor", "fake")) as cluster:
            yield cluster
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def bridges() -> list[str]:
    argv = ["ovs-vsctl", "--timeout=60", "list-br"]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split()


def test_the_switch_of_a_new_node(one: Cluster) -> None:
    """Verify misses it, adding a node makes it, and a node which cannot have it is not added."""
    one.run("gnt-cluster", "modify", "--node-parameters", f"ovs=yes,ovs_name={SWITCH}").ok()
    found = one.run("gnt-cluster", "verify").failed(f"there is no Open vSwitch {SWITCH}")
    assert "gnt-node add --readd node1.example.com" in found.text
    assert bridges() == []
    one.vcluster("add-node", str(one.directory)).ok()
    assert bridges() == [SWITCH]
    wait_until(lambda: SWITCH not in one.run("gnt-cluster", "verify").text, "verify is content")
    one.run("gnt-cluster", "modify", "--node-parameters", "ovs_link=nosuch0").ok()
    one.run("gnt-cluster", "verify").failed("interface nosuch0 is a port of no switch")
    names = one.node_names
    one.vcluster("add-node", str(one.directory)).failed("does not exist")
    assert one.node_names == names


def test_the_switch_of_the_first_node(one: Cluster) -> None:
    """A cluster is made with the switch, and not without it when it cannot be had."""
    again = (
        "gnt-cluster", "init", "--no-ssh-init", "--no-etc-hosts", "--master-netdev", "lo",
        "--enabled-hypervisors", "fake", "--enabled-disk-templates", "diskless",
        "--nic-parameters", "mode=user,link=", "--node-parameters",
    )  # fmt: skip
    place = one.path("node1.example.com", "var/lib/ganeti")
    cluster_name = (place / "ssconf_cluster_name").read_text().strip()
    one.run("gnt-cluster", "destroy", "--yes-do-it").ok()
    wrong = f"ovs=yes,ovs_name={FIRST},ovs_link=nosuch0"
    one.run(*again, wrong, cluster_name).failed("does not exist")
    assert not (place / "config.data").exists()
    one.run(*again, f"ovs=yes,ovs_name={FIRST}", cluster_name).ok()
    assert FIRST in bridges()
    wait_until(lambda: FIRST not in one.run("gnt-cluster", "verify").text, "verify is content")
    bridges_gone = ("ovs-vsctl", "--timeout=60", "del-br", FIRST)
    subprocess.run(bridges_gone, check=True, capture_output=True)
    one.run("gnt-cluster", "verify").failed(f"there is no Open vSwitch {FIRST}")
