"""Guests under Xen, driven by the real daemons over a program like ``xl`` (``test/fakes/xl``).

What the program prints has the form of Xen 4.17, and each node has domains of its own, in a file.
Everything else is real: the daemons, the loop devices below the disks, and the program which sends
a guest over TLS to the one of the other node. Under the real Xen it runs in the laboratory
(``make lab LAB=xen``).
"""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import ROOT, SteadyCluster, made, wait_until

WEB = "web1.example.com"
NODE1, NODE2 = "node1.example.com", "node2.example.com"
ADD = (
    "gnt-instance", "add", "-t", "sharedfile", "--disk", "0:size=16M", "-o", "noop", "--no-install",
    "--no-name-check", "--no-nics", "-n", NODE1,
)  # fmt: skip

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        os.geteuid() != 0 or shutil.which("losetup") is None, reason="loop devices need root"
    ),
]


@pytest.fixture(scope="module")
def two(cluster_directory: Path) -> Iterator[SteadyCluster]:
    """Two nodes whose machines run under a Xen which is a file."""
    programs = cluster_directory.parent / "bin"
    programs.mkdir()
    (programs / "xl").symlink_to(ROOT / "test/fakes/xl")
    kernel = cluster_directory.parent / "vmlinuz"
    kernel.write_text("a kernel")
    before = os.environ["PATH"]
    os.environ["PATH"] = f"{programs}:{before}"
    try:
        with made(SteadyCluster(cluster_directory, 2, "--hypervisor", "fake")) as one:
            for node in (NODE1, NODE2):
                capabilities = one.path(node, "proc/xen/capabilities")
                capabilities.parent.mkdir(parents=True)
                capabilities.write_text("control_d\n")
            one.make_os("noop")
            templates = "sharedfile,diskless"
            one.run(
                "gnt-cluster", "modify", "--enabled-hypervisors", "xen-pvm,fake", "--user-shutdown",
                "yes", "--enabled-disk-templates", templates,
                "--ipolicy-disk-templates", templates, "-H",
                f"xen-pvm:kernel_path={kernel},initrd_path=,blockdev_prefix=xvd",
            ).ok()  # fmt: skip
            one.run(*ADD, "-H", "xen-pvm", "-B", "minmem=64M,maxmem=128M,vcpus=2", WEB).ok()
            yield one
            one.run("gnt-instance", "remove", "-f", "--shutdown-timeout=0", WEB)
    finally:
        os.environ["PATH"] = before


@pytest.fixture
def running(two: SteadyCluster) -> Iterator[SteadyCluster]:
    """The instance runs on node 1, and all commands of ``xl`` work."""
    if primary(two) != NODE1:
        two.run("gnt-instance", "failover", "-f", "--shutdown-timeout=5", WEB).ok()
    if status(two) != "running":
        two.run("gnt-instance", "start", WEB).ok()
    yield two
    for node in (NODE1, NODE2):
        shutil.rmtree(two.path(node, "fake-xl/fail"), ignore_errors=True)
        two.path(node, "fake-xl/stubborn").unlink(missing_ok=True)


def domains(cluster: SteadyCluster, node: str) -> dict[str, dict[str, Any]]:
    """The domains of a node by name, without its own."""
    path = cluster.path(node, "fake-xl/state.json")
    found = json.loads(path.read_text())["domains"] if path.exists() else []
    return {one["name"]: one for one in found}


def change(cluster: SteadyCluster, node: str, **values: Any) -> None:
    """Change the domain of the instance behind the back of the daemons; None removes it."""
    path = cluster.path(node, "fake-xl/state.json")
    state = json.loads(path.read_text())
    (one,) = [one for one in state["domains"] if one["name"] == WEB]
    if values:
        one.update(values)
    else:
        state["domains"].remove(one)
    path.write_text(json.dumps(state))


def misbehave(cluster: SteadyCluster, node: str, command: str, mode: str) -> None:
    """Let a command of ``xl`` misbehave on a node; see ``test/fakes/xl``."""
    directory = cluster.path(node, "fake-xl/fail")
    directory.mkdir(exist_ok=True)
    (directory / command).write_text(mode)


def commands(cluster: SteadyCluster, node: str) -> list[str]:
    """The commands of ``xl`` on a node so far."""
    return cluster.path(node, "fake-xl/log").read_text().splitlines()


def status(cluster: SteadyCluster) -> str:
    return cluster.places()[WEB][1]


def primary(cluster: SteadyCluster) -> str:
    return cluster.places()[WEB][0]


def facts(cluster: SteadyCluster, *fields: str) -> list[str]:
    (row,) = cluster.rows("gnt-instance", "list", "--units=m", "-o", ",".join(fields), WEB)
    return row


def loops(cluster: SteadyCluster) -> list[str]:
    """The loop devices of disks of this cluster."""
    place = str(cluster.directory)
    files = Path("/sys/block").glob("loop*/loop/backing_file")
    return [str(one) for one in files if one.read_text().startswith(place)]


def test_the_node_and_the_guest_are_known_as_xen_knows_them(running: SteadyCluster) -> None:
    assert facts(running, "status", "oper_ram", "oper_vcpus") == ["running", "128", "2"]
    (row,) = running.rows("gnt-node", "list", "--units=m", "-o", "mtotal,mnode,mfree", NODE1)
    # Neither what domain 0 has nor what the hypervisor itself uses (20) is free.
    assert [int(value) for value in row] == [4096, 800, 4096 - 800 - 20 - 128]
    assert len(loops(running)) == 1
    running.run("gnt-cluster", "verify").ok()
    shown = running.run("gnt-instance", "console", "--show-cmd", WEB).ok().text
    assert shown.split()[-2:] == ["xl", WEB] and "xen-console-wrapper" in shown


def test_reboot_and_shutdown(running: SteadyCluster) -> None:
    for kind in ("soft", "hard", "full"):
        before = domains(running, NODE1)[WEB]["id"]
        running.run("gnt-instance", "reboot", f"--type={kind}", WEB).ok()
        assert domains(running, NODE1)[WEB]["id"] > before, kind
    running.path(NODE1, "fake-xl/stubborn").touch()
    running.run("gnt-instance", "shutdown", "--timeout=1", WEB).ok()
    assert domains(running, NODE1) == {} and loops(running) == []
    assert [one.split()[0] for one in commands(running, NODE1)].count("destroy") >= 1
    assert not running.path(NODE1, f"etc/xen/{WEB}").exists()
    assert status(running) == "ADMIN_down"


def test_its_user_shuts_it_down(running: SteadyCluster) -> None:
    change(running, NODE1, state="---s--")
    assert status(running) == "USER_down"
    running.run("ganeti-watcher", "--wait-children").ok()
    assert domains(running, NODE1)[WEB]["state"] == "---s--"
    running.run("gnt-instance", "shutdown", WEB).ok()
    assert domains(running, NODE1) == {}


def test_a_crashed_guest_is_started_by_the_watcher(running: SteadyCluster) -> None:
    change(running, NODE1)
    assert status(running) == "ERROR_down"
    running.run("ganeti-watcher", "--wait-children").ok()
    wait_until(lambda: status(running) == "running", "the watcher has started it")
    assert list(domains(running, NODE1)) == [WEB] and len(loops(running)) == 1


def test_the_daemons_are_killed_and_find_the_guest_again(running: SteadyCluster) -> None:
    before = facts(running, "status", "oper_ram", "oper_vcpus"), domains(running, NODE1)
    for node, daemon in (
        (NODE1, "ganeti-noded"),
        (NODE2, "ganeti-noded"),
        (NODE1, "ganeti-masterd"),
    ):
        running.kill_whole(node, daemon)
    for node in (NODE1, NODE2):
        running.power_on(node)
    running.on(NODE1, "daemon-util", "start", "ganeti-masterd").ok()
    wait_until(lambda: running.run("gnt-cluster", "getmaster").exit_code == 0, "the master is back")
    assert (facts(running, "status", "oper_ram", "oper_vcpus"), domains(running, NODE1)) == before


@pytest.mark.parametrize("options", [(), ("--non-live",)], ids=["live", "stopped"])
def test_migration(running: SteadyCluster, options: tuple[str, ...]) -> None:
    change(running, NODE1, memory=96)
    running.run("gnt-instance", "migrate", "-f", *options, WEB).ok()
    assert domains(running, NODE1) == {}
    there = domains(running, NODE2)[WEB]
    # It was not started anew: its balloon is as it was.
    assert (there["memory"], there["state"]) == (96, "-b----")
    assert (primary(running), status(running)) == (NODE2, "running")
    assert not running.path(NODE1, f"etc/xen/{WEB}").exists()
    running.run("gnt-cluster", "verify").ok()
    back = running.run("gnt-instance", "migrate", "-f", *options, WEB).ok()
    assert domains(running, NODE2) == {} and primary(running) == NODE1, back.text


@pytest.mark.parametrize(
    ("node", "command", "mode"),
    [
        (NODE2, "restore", "exit"),
        (NODE2, "restore", "lose"),
        (NODE1, "migrate", "exit"),
        (NODE1, "migrate", "late"),
    ],
)
def test_a_migration_which_fails_leaves_one_guest(
    running: SteadyCluster, node: str, command: str, mode: str
) -> None:
    misbehave(running, node, command, mode)
    done = running.run("gnt-instance", "migrate", "-f", WEB)
    shutil.rmtree(running.path(node, "fake-xl/fail"))
    if done.exit_code:
        running.run("gnt-instance", "migrate", "-f", "--cleanup", WEB).ok()
    here, there = domains(running, NODE1), domains(running, NODE2)
    assert len(here) + len(there) == 1, (here, there, done.text)
    assert (domains(running, primary(running)), status(running)) == (here or there, "running")
    running.run("gnt-cluster", "verify").ok()


def test_a_node_daemon_dies_while_the_guest_is_sent(running: SteadyCluster) -> None:
    """The transfer goes on without it, or not; the clean-up finds out."""
    misbehave(running, NODE2, "restore", "hang")
    job = running.run("gnt-instance", "migrate", "-f", "--submit", WEB).ok()
    wait_until(
        lambda: any(one.startswith("restore") for one in commands(running, NODE2)),
        "the target waits for the guest",
    )
    running.kill(NODE2, "ganeti-noded", signal.SIGKILL)
    running.kill(NODE1, "ganeti-noded", signal.SIGKILL)
    shutil.rmtree(running.path(NODE2, "fake-xl/fail"))
    for node in (NODE1, NODE2):
        running.power_on(node)
    number = job.text.split()[-1]
    running.run("gnt-job", "wait", number)
    running.run("gnt-instance", "migrate", "-f", "--cleanup", WEB).ok()
    assert len(domains(running, NODE1)) + len(domains(running, NODE2)) == 1
    assert list(domains(running, primary(running))) == [WEB] and status(running) == "running"


def test_memory_processors_and_disks_change(running: SteadyCluster) -> None:
    running.run("gnt-instance", "modify", "-m", "100M", WEB).ok()
    assert domains(running, NODE1)[WEB]["memory"] == 100
    running.run("gnt-instance", "modify", "--disk", "add:size=16M", WEB).ok()
    plugged = domains(running, NODE1)[WEB]["disks"]
    assert len(plugged) == 2 and "vdev=xvdb" in plugged[1]
    assert len(loops(running)) == 2
    running.run("gnt-instance", "modify", "--disk", "1:remove", WEB).ok()
    assert len(domains(running, NODE1)[WEB]["disks"]) == 1 and len(loops(running)) == 1
    running.run("gnt-instance", "modify", "-H", "cpu_mask=0:1,cpu_cap=50", WEB).ok()
    running.run("gnt-instance", "reboot", "--type=full", WEB).ok()
    known = domains(running, NODE1)[WEB]["config"]
    assert (known["cpus"], known["cap"]) == (["0", "1"], 50)


def test_a_start_which_fails_says_why_and_leaves_nothing(running: SteadyCluster) -> None:
    running.run("gnt-instance", "shutdown", "--timeout=1", WEB).ok()
    misbehave(running, NODE1, "create", "late")
    running.run("gnt-instance", "start", WEB).failed("create was told to fail afterwards")
    assert domains(running, NODE1) == {} and loops(running) == []
    assert not running.path(NODE1, f"etc/xen/{WEB}").exists()
    # A Xen which does not answer is no reason to believe that nothing runs.
    misbehave(running, NODE1, "list", "exit")
    running.run("gnt-instance", "start", WEB).failed("list was told to fail")
    running.run("gnt-cluster", "verify").failed("list was told to fail")


def test_failover_and_removal(running: SteadyCluster) -> None:
    running.run("gnt-instance", "failover", "-f", "--shutdown-timeout=5", WEB).ok()
    assert list(domains(running, NODE2)) == [WEB] and domains(running, NODE1) == {}
    running.run("gnt-instance", "remove", "-f", "--shutdown-timeout=5", WEB).ok()
    assert domains(running, NODE2) == {} and loops(running) == []
    for node in (NODE1, NODE2):
        assert list(running.path(node, "etc/xen").glob("*")) == []
    running.run(*ADD, "-H", "xen-pvm", "-B", "minmem=64M,maxmem=128M,vcpus=2", WEB).ok()
