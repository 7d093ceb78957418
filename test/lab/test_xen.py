"""Guests under a real Xen: two machines whose own system is domain 0, and the real daemons.

A guest writes numbered, checksummed blocks to a mirrored disk, and says on its console which of
them are there for good. It is started, migrated, ended and failed over, and goes on after each
step. At its last start it reads all blocks. Not part of the other runs: ``make lab LAB=xen``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from lab.booted import booted
from lab.cluster import Cluster
from lab.machines import Lab, Machine
from lab.waiting import wait_until

NAME = "guest"
_CONSOLE = f"/var/log/xen/console/guest-{NAME}.log"
#: Emulated on a busy machine, each step may take minutes.
_PATIENCE_S = 900.0
_WORDS = "console=hvc0 quiet mitigations=off nokaslr lab.pause=0.3"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Two machines under Xen."""
    yield from booted(tmp_path_factory.mktemp("xen"), 2, "logs-xen", memory_mib=1536, dom0_mib=800)


@pytest.fixture(scope="module")
def cluster(lab: Lab) -> Cluster:
    """A cluster of them."""
    found = Cluster(lab)
    found.make()
    found.enable_xen(_WORDS)
    return found


def console(machine: Machine) -> str:
    return machine.call(f"tr -d '\\r' <{_CONSOLE}").stdout


def confirmed(machine: Machine) -> int:
    """The last block which the guest has confirmed on the console of this machine."""
    found = re.findall(r"^confirmed (\d+)$", console(machine), re.MULTILINE)
    return int(found[-1]) if found else 0


def primary(cluster: Cluster) -> Machine:
    return cluster.machine_of(cluster.nodes_of(NAME)[0])


def goes_on(cluster: Cluster) -> int:
    """Wait until the guest confirms new blocks on its node; return the last one."""
    machine = primary(cluster)
    before = confirmed(machine)
    wait_until(lambda: confirmed(machine) > before + 3, "the guest goes on", _PATIENCE_S)
    assert len(domains(cluster)) == 1
    return confirmed(machine)


def domains(cluster: Cluster) -> list[str]:
    """The nodes which have a domain of the guest."""
    return [one.name for one in cluster.lab if one.call(f"xl domid {NAME}").returncode == 0]


def forget_console(cluster: Cluster) -> None:
    for machine in cluster.lab:
        machine.call(f": >{_CONSOLE}")


def test_the_node_is_known_as_xen_knows_it(cluster: Cluster) -> None:
    total, own, free = (
        int(value)
        for value in cluster.master.run(
            "gnt-node list --no-headers --separator='|' --units=m -o mtotal,mnode,mfree node1"
        )
        .strip()
        .split("|")
    )
    assert own == 800 and total > own + free > own
    cluster.gnt("cluster", "verify")


def test_start(cluster: Cluster) -> None:
    cluster.add(
        NAME, "node1:node2", "-B", "minmem=96,maxmem=96", "--net", "0:link=labbr", size="32M"
    )
    cluster.in_step(NAME)
    cluster.gnt("instance", "start", NAME)
    goes_on(cluster)
    assert "guest ready, 0 blocks found" in console(primary(cluster))
    assert "vif" in primary(cluster).run("ip -o link show master labbr")
    assert cluster.fields("instance", NAME, "status", "oper_ram", "oper_vcpus")[0] == "running"


def test_changes_while_it_runs(cluster: Cluster) -> None:
    """A NIC and a disk come and go, and memory is given back; the guest goes on."""
    machine = primary(cluster)

    def count(command: str) -> int:
        return len(machine.run(f"xl {command} {NAME}").splitlines()) - 1

    nics, disks = count("network-list"), count("block-list")
    cluster.gnt("instance", "modify", "--net", "add:link=labbr", NAME)
    assert count("network-list") == nics + 1
    assert len(machine.run("ip -o link show master labbr").splitlines()) == nics + 1
    cluster.gnt("instance", "modify", "--disk", "add:size=16M", NAME)
    assert count("block-list") == disks + 1
    goes_on(cluster)
    cluster.gnt("instance", "modify", "--disk", "remove", NAME)
    cluster.gnt("instance", "modify", "--net", "remove", NAME)
    # Xen takes a NIC out when the guest has given it up.
    wait_until(
        lambda: (count("network-list"), count("block-list")) == (nics, disks),
        lambda: f"both are gone: {machine.run(f'xl network-list {NAME}')}",
        60.0,
    )
    cluster.gnt("instance", "modify", "-B", "minmem=80", "--runtime-memory=88", NAME)
    found = json.loads(machine.run(f"xl list --long {NAME}"))
    assert found[0]["config"]["b_info"]["target_memkb"] == 88 << 10, found
    goes_on(cluster)


def test_the_monitoring_data(cluster: Cluster) -> None:
    """The collector knows the guest, its uptime, its state, and who started it."""
    node = primary(cluster)
    found = json.loads(node.run("/usr/lib/ganeti/mon-collector inst-status-xen"))
    assert found["data"]["status"]["code"] == 0, found
    (one,) = found["data"]["instances"]
    assert (one["name"], one["adminState"]) == (NAME, "up")
    assert one["actualState"] in ("running", "blocked")
    assert re.fullmatch(r"[0-9]+:[0-9]{2}:[0-9]{2}", one["uptime"]), one
    assert one["state_reason"][-1][0].startswith("gnt:daemon:noded"), one


def test_a_migration_which_stops_the_guest(cluster: Cluster) -> None:
    cluster.gnt("instance", "migrate", "-f", "--non-live", NAME)
    assert cluster.nodes_of(NAME) == ("node2", "node1")
    goes_on(cluster)
    # It was not started anew.
    assert "guest ready" not in console(cluster.lab["node2"])


def test_a_live_migration_which_xen_cannot_do_changes_nothing(cluster: Cluster) -> None:
    forget_console(cluster)
    before = cluster.nodes_of(NAME)
    said = cluster.fails("instance", "migrate", "-f", NAME)
    assert re.search(r"failed: .*logdirty", said, re.DOTALL), said
    assert cluster.nodes_of(NAME) == before
    goes_on(cluster)
    assert "guest ready" not in console(primary(cluster))


def test_reboot_and_stop(cluster: Cluster) -> None:
    forget_console(cluster)
    cluster.gnt("instance", "reboot", "--shutdown-timeout=60", NAME)
    last = goes_on(cluster)
    assert "guest ready" in console(primary(cluster))
    cluster.gnt("instance", "shutdown", "--timeout=60", NAME)
    assert domains(cluster) == []
    assert last > 3


def test_a_live_migration_of_type_pvh(cluster: Cluster) -> None:
    cluster.gnt("instance", "shutdown", "--timeout=60", NAME)
    cluster.gnt("instance", "modify", "-H", "type=pvh", NAME)
    forget_console(cluster)
    cluster.gnt("instance", "start", NAME)
    goes_on(cluster)
    source = primary(cluster)
    cluster.gnt("instance", "migrate", "-f", NAME)
    assert primary(cluster) is not source
    goes_on(cluster)
    assert "guest ready" not in console(primary(cluster))


def test_a_crashed_guest_is_started_by_the_watcher(cluster: Cluster) -> None:
    machine = primary(cluster)
    forget_console(cluster)
    machine.run(f"xl destroy $(xl domid {NAME})")
    cluster.master.run("ganeti-watcher --wait-children")
    wait_until(lambda: domains(cluster) == [machine.name], "it runs again", _PATIENCE_S)
    goes_on(cluster)


def test_a_paused_guest_is_reported_and_waits(cluster: Cluster) -> None:
    """Its domain lives. Neither a start, a migration nor the watcher lets it run unasked."""
    machine = primary(cluster)
    before = console(machine).count("guest ready")
    machine.run(f"xl pause {NAME}")
    assert cluster.fields("instance", NAME, "status", "guest_state") == ["running", "paused"]
    assert "halted: paused" in cluster.gnt("instance", "info", NAME)
    said = cluster.master.call("gnt-cluster verify").stdout
    assert f"instance {NAME}: does not run, although it was started: paused" in said
    found = json.loads(machine.run("/usr/lib/ganeti/mon-collector inst-status-xen"))
    assert found["data"]["instances"][0]["actualState"] == "paused"
    assert found["data"]["status"]["code"] == 1
    assert "--continue" in cluster.fails("instance", "start", NAME)
    assert "would run afterwards" in cluster.fails("instance", "migrate", "-f", "--non-live", NAME)
    cluster.master.run("ganeti-watcher --wait-children")
    assert cluster.fields("instance", NAME, "guest_state") == ["paused"]
    cluster.gnt("instance", "start", "--continue", NAME)
    assert cluster.fields("instance", NAME, "guest_state") == ["running"]
    goes_on(cluster)
    assert console(machine).count("guest ready") == before


def test_the_daemons_are_restarted_and_know_the_guest(cluster: Cluster) -> None:
    """The guest does not notice it, and what was known of it is found again."""
    before = cluster.fields("instance", NAME, "status", "oper_ram", "oper_vcpus", "pnode")
    assert before[0] == "running"
    machine = primary(cluster)
    domain = machine.run(f"xl domid {NAME}")
    for one in cluster.lab:
        one.run("/usr/lib/ganeti/daemon-util stop-all; /usr/lib/ganeti/daemon-util start-all")
    for name in ("node1", "node2"):
        cluster.wait_for_node(name)
    wait_until(
        lambda: (
            cluster.fields("instance", NAME, "status", "oper_ram", "oper_vcpus", "pnode") == before
        ),
        "the master knows the guest again",
        _PATIENCE_S,
    )
    assert machine.run(f"xl domid {NAME}") == domain
    goes_on(cluster)


def test_failover_and_every_block(cluster: Cluster) -> None:
    source = primary(cluster)
    last = goes_on(cluster)
    cluster.gnt("instance", "failover", "-f", "--shutdown-timeout=60", NAME)
    target = primary(cluster)
    assert target is not source
    # At its start the guest checks every block, from the first one on.
    wait_until(lambda: "guest ready" in console(target), "the guest starts", _PATIENCE_S)
    found = re.search(r"guest ready, (\d+) blocks found", console(target))
    assert found is not None and int(found[1]) >= last
    goes_on(cluster)
    cluster.remove(NAME)
    assert domains(cluster) == []
    for machine in cluster.lab:
        assert machine.call("ls /etc/xen/guest").returncode != 0


def test_a_guest_with_emulated_hardware(cluster: Cluster) -> None:
    """It starts, is listed with what Xen says of it, and ends; its firmware finds no system."""
    cluster.gnt(
        "cluster",
        "modify",
        "--enabled-hypervisors",
        "xen-pvm,xen-hvm",
        "-H",
        "xen-hvm:vnc_bind_address=",
    )
    cluster.add(
        "full",
        "node2",
        "-H",
        "xen-hvm",
        "--net",
        "0:link=labbr",
        template="plain",
        size="16M",
    )
    cluster.gnt("instance", "start", "full")
    machine = cluster.lab["node2"]
    assert cluster.fields("instance", "full", "status", "oper_vcpus") == ["running", "1"]
    found = json.loads(machine.run("xl list --long full"))
    assert found[0]["config"]["c_info"]["type"] == "hvm"
    assert "-emu" in machine.run("ip -o link show master labbr")
    # The brackets keep the pattern from the command line of its own shell.
    emulator = "pgrep -f '[x]en-qemu-system-i386.* -name full'"
    machine.run(emulator)
    cluster.gnt("instance", "shutdown", "--timeout=0", "full")
    wait_until(
        lambda: machine.call(emulator).returncode != 0,
        "the program which emulates the hardware ends",
        _PATIENCE_S,
    )
    cluster.remove("full")
