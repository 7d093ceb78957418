"""Proof 5: no operation uses, copies or leaves behind a replica which misses confirmed writes.

The cases of a review, repeated with real DRBD and LVM. A writer confirms numbered blocks through
the mirrored device, also while the mirror is interrupted. Then a command is tried, which either
succeeds or is refused. Afterwards everything works again, and what the instance uses is read: the
number of confirmed blocks which are missing there must be 0.

The instance is on node2 and node3, so that the master can be asked throughout.
"""

from __future__ import annotations

import dataclasses
import re
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ganeti.storage.drbd.parse import MinorState
from lab import drbd
from lab.cluster import GROUP, Cluster
from lab.machines import SECONDARY, Machine
from lab.waiting import wait_until

NAME = "safety"
_SIZE_MIB = 64
_BLOCKS_PER_MIB = 256
_NODES = ("node2", "node3")
_FAKE_GUESTS = "/var/run/ganeti/fake-hypervisor"
_UTIL = "/usr/lib/ganeti/daemon-util"
#: Blocks which a slow synchronisation has to copy, and its rate: half a minute.
_SLOW_BLOCKS, _SLOW_KIB = 800, 100
#: Part of each text which refuses to use a replica because it may have missed writes.
REFUSED = (
    "may have missed writes|known to miss|cannot be compared|it is not known|not connected"
    "|no complete (copy|replica)|does not connect"
)
# An OS definition which only copies blocks.


class Mirror:
    """A mirrored instance; :attr:`last` is the last block which was ever confirmed."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.last = 0

    # -- the guest -----------------------------------------------------------------

    def write(self, count: int = 300, node: str = "node2") -> None:
        """Write so many more blocks through the mirrored device."""
        writer = drbd.Writer(self.cluster.lab[node], self.cluster.device(NAME, node), self.last + 1)
        writer.more(count)
        self.last = writer.stop()

    def lost(self, machine: Machine, device: str) -> int:
        """Number of confirmed blocks which are not on a device."""
        found = drbd.lost(machine, device, self.last)
        print(f"{found} of {self.last} confirmed blocks lost", flush=True)
        return found

    def lost_in_use(self) -> int:
        """Number of confirmed blocks which the instance does not find, when it is started."""
        self.cluster.gnt("instance", "startup", NAME)
        primary = self.cluster.nodes_of(NAME)[0]
        return self.lost(self.cluster.lab[primary], self.cluster.device(NAME, primary))

    def stop(self) -> None:
        """Shut the instance down."""
        self.cluster.gnt("instance", "shutdown", "--timeout=0", NAME)

    # -- the mirror ----------------------------------------------------------------

    def state(self, node: str, what: str) -> MinorState:
        """Wait until ``connection local/remote`` on a node matches a regular expression."""
        return drbd.wait_for(self.cluster.lab[node], self.cluster.minor(NAME, node), what)

    def cut(self) -> None:
        """Interrupt the mirror; the nodes still answer the master."""
        self.cluster.lab["node3"].cable(SECONDARY, plugged=False)
        for node in _NODES:
            self.state(node, "DUnknown$")

    def join(self) -> None:
        """The network works again."""
        self.cluster.lab["node3"].cable(SECONDARY, plugged=True)

    def lose_primary_storage(self) -> None:
        """What DRBD does after an error of the storage below the primary; its content is kept."""
        minor = self.cluster.minor(NAME, "node2")
        self.cluster.lab["node2"].run(f"drbdsetup detach {minor}")
        self.state("node2", "Diskless/UpToDate$")

    def slow_down(self) -> None:
        """Let a synchronisation take long. Replicas which connect agree on one rate."""
        for node in _NODES:
            self.cluster.lab[node].run(
                f"drbdsetup disk-options {self.cluster.minor(NAME, node)}"
                f" --c-plan-ahead=0 --resync-rate={_SLOW_KIB}k"
            )

    def storage(self, node: str) -> tuple[str, str]:
        """Data and metadata device of the replica on a node."""
        minor = self.cluster.minor(NAME, node)
        shown = self.cluster.lab[node].run(f"drbdsetup show {minor}")
        data = re.search(r'\sdisk\s+"(/dev/\S+)"', shown)
        metadata = re.search(r'\smeta-disk\s+"(/dev/\S+)"', shown)
        assert data and metadata, shown
        return data[1], metadata[1]

    def split(self) -> None:
        """Let each replica have writes which the other one misses; those of node2 count."""
        other, minor = self.cluster.lab["node3"], self.cluster.minor(NAME, "node3")
        self.cut()
        other.run(f"drbdsetup primary {minor} --force")
        writer = drbd.Writer(other, self.cluster.device(NAME, "node3"), 10_000)
        writer.more(20)
        writer.stop()
        other.run(f"drbdsetup secondary {minor}")
        self.write()
        self.join()
        self.state("node2", "^StandAlone UpToDate/DUnknown")

    def restart(self, node: str) -> None:
        """Switch a machine on again; the master marks its node online if it was offline."""
        machine = self.cluster.lab[node]
        machine.start()
        machine.wait()
        self.rejoin(node)

    def rejoin(self, node: str) -> None:
        """Mark a node online if it was offline, and wait until it answers."""
        if self.cluster.fields("node", node, "offline")[0] == "Y":
            self.cluster.readd(node)
        self.cluster.wait_for_node(node)

    # -- commands ------------------------------------------------------------------

    def facts(self) -> dict[str, Any]:
        """What a refused command must not change: nodes, disks and volumes."""
        config = self.cluster.config()
        (instance,) = (one for one in config["instances"].values() if one["name"] == NAME)
        return {
            "primary": instance["primary_node"],
            "disks": [
                (uuid, config["disks"][uuid]["logical_id"], config["disks"][uuid]["size"])
                for uuid in instance["disks"]
            ],
            "volumes": [
                drbd.volumes(machine)
                for machine in self.cluster.lab
                if machine.call("true").returncode == 0
            ],
        }

    def tried(self, program: str, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command which may fail."""
        command = " ".join([f"gnt-{program}", *words])
        done = self.cluster.master.call(command)
        print(f"{command}: {done.returncode}", flush=True)
        print("".join(f"    {line}\n" for line in (done.stdout + done.stderr).splitlines()))
        return done

    def refused(self, program: str, *words: str, text: str = REFUSED) -> Callable[[], None]:
        """Run a command which must be refused, for the right reason, and change nothing.

        :returns: judges the command. The blocks are counted before, so that a fault is reported
            with the number of lost blocks.
        """
        before = self.facts()
        done = self.tried(program, *words)

        def judge() -> None:
            said = done.stdout + done.stderr
            assert done.returncode, f"gnt-{program} {' '.join(words)} succeeded: {said}"
            assert re.search(text, said), said

        if done.returncode:
            assert self.facts() == before
        return judge


@pytest.fixture(scope="module", autouse=True)
def blocks_os(cluster: Cluster) -> None:
    """Install the OS definition which only copies blocks."""
    cluster.install_blocks_os()


@pytest.fixture
def mirror(cluster: Cluster) -> Iterator[Mirror]:
    """A running instance whose replicas are in sync, with a few blocks; nothing of it is left."""
    cluster.add(NAME, ":".join(_NODES), "-o", "blocks", size=f"{_SIZE_MIB}M")
    cluster.gnt("instance", "startup", NAME)
    cluster.in_step(NAME)
    drbd.new_mark(NAME)
    found = Mirror(cluster)
    found.write(100)
    yield found
    for machine in cluster.lab:
        if not machine.on:
            found.restart(machine.name)
        machine.cable(SECONDARY, plugged=True)
        machine.call(f"pkill -9 -f '^python3 {drbd.WRITER}'; rm -f {_FAKE_GUESTS}/{NAME}")
        found.rejoin(machine.name)
    cluster.gnt("group", "modify", "-D", "drbd:resync-rate=default", "default")
    removed = cluster.master.call(f"gnt-instance remove -f --shutdown-timeout=0 {NAME}")
    left = NAME in cluster.gnt("instance", "list", "--no-headers", "-o", "name").split()
    if left:
        cluster.gnt("instance", "remove", "-f", "--ignore-failures", NAME)
    # The next test begins with nothing, whatever this one has left.
    for machine in cluster.lab:
        for minor in drbd.minors(machine):
            machine.call(f"drbdsetup secondary {minor}; drbdsetup down resource{minor}")
        for volume in drbd.volumes(machine):
            machine.call(f"lvremove -f {GROUP}/{volume}")
    assert not left, removed.stderr


def attach_by_hand(machine: Machine, minor: int, storage: str, metadata: str) -> None:
    """Make a minor with its old volumes after a restart, as an administrator could."""
    machine.run(
        f"drbdsetup new-resource resource{minor} &&"
        f" drbdsetup new-minor resource{minor} {minor} 0 &&"
        f" drbdmeta /dev/drbd{minor} v08 {metadata} flex-external apply-al &&"
        f" drbdsetup attach {minor} {storage} {metadata} flexible"
    )


def plain_device(cluster: Cluster, node: str) -> str:
    """The only logical volume of the cluster's group on a node."""
    (volume,) = drbd.volumes(cluster.lab[node])
    return f"/dev/{GROUP}/{volume}"


# -- a replica which missed writes is promoted -----------------------------------------


def test_failover_of_a_stopped_instance(mirror: Mirror) -> None:
    """Interrupted until the instance is stopped: first nobody can compare, then everybody can."""
    mirror.cut()
    mirror.write()
    mirror.stop()
    judge = mirror.refused("instance", "failover", "-f", NAME)
    mirror.join()
    assert mirror.lost_in_use() == 0
    judge()


def test_failover_of_a_stopped_instance_whose_secondary_came_back(mirror: Mirror) -> None:
    """The node of the secondary was off during the writes; it is in sync before it is promoted."""
    cluster = mirror.cluster
    cluster.lab["node3"].power_off()
    mirror.state("node2", "DUnknown$")
    mirror.write()
    mirror.tried("instance", "shutdown", "--timeout=0", NAME)
    mirror.restart("node3")
    done = mirror.tried("instance", "failover", "-f", NAME)
    assert mirror.lost_in_use() == 0
    assert done.returncode == 0 and cluster.nodes_of(NAME) == ("node3", "node2")
    mirror.write(50, "node3")
    cluster.in_step(NAME)


def test_a_start_while_the_mirror_is_interrupted(mirror: Mirror) -> None:
    """The replica which took part until the end may be used alone; the other one is recorded."""
    cluster = mirror.cluster
    mirror.cut()
    mirror.write()
    mirror.stop()
    mirror.tried("instance", "activate-disks", NAME)
    assert mirror.lost_in_use() == 0
    mirror.write()
    mirror.join()
    cluster.in_step(NAME)
    assert mirror.lost_in_use() == 0


def test_both_nodes_restart_and_the_stale_one_first(mirror: Mirror) -> None:
    """A failover to the stale replica is refused while the node of the other one is dead."""
    cluster = mirror.cluster
    cluster.lab["node3"].power_off()
    mirror.state("node2", "DUnknown$")
    mirror.write()
    cluster.lab["node2"].power_off()
    mirror.restart("node3")
    cluster.gnt("node", "modify", "--offline=yes", "--auto-promote", "node2")
    judge = mirror.refused("instance", "failover", "-f", NAME)
    mirror.restart("node2")
    assert mirror.lost_in_use() == 0
    judge()


def test_the_kernel_refuses_an_outdated_replica(mirror: Mirror) -> None:
    """It is marked in the metadata of DRBD, which a restart keeps and a connection ends."""
    cluster, machine = mirror.cluster, mirror.cluster.lab["node3"]
    minor = cluster.minor(NAME, "node3")
    promote = f"drbdsetup primary {minor} 2>&1"
    mirror.cut()
    mirror.write()
    mirror.stop()
    cluster.gnt("instance", "activate-disks", NAME)
    mirror.state("node3", "^WFConnection Outdated/DUnknown")
    storage, metadata = mirror.storage("node3")
    assert "Need access to UpToDate data" in machine.call(promote).stdout
    machine.power_off()
    mirror.restart("node3")
    attach_by_hand(machine, minor, storage, metadata)
    mirror.state("node3", "^StandAlone Outdated/DUnknown")
    assert "Need access to UpToDate data" in machine.call(promote).stdout
    mirror.join()
    assert mirror.lost_in_use() == 0
    cluster.in_step(NAME)


def test_a_loss_which_is_accepted(mirror: Mirror) -> None:
    """Only an option which names the loss makes the stale replica the one in use."""
    cluster = mirror.cluster
    mirror.cut()
    before = mirror.last
    mirror.write()
    cluster.gnt("cluster", "verify-disks")
    cluster.lab["node2"].power_off()
    cluster.gnt("node", "modify", "--offline=yes", "--auto-promote", "node2")
    mirror.refused("instance", "failover", "-f", NAME, text="known to miss the writes since")()
    said = cluster.gnt("instance", "failover", "-f", "--ignore-consistency", NAME)
    assert "known to miss the writes since" in said, said
    assert cluster.nodes_of(NAME) == ("node3", "node2")
    alone = mirror.last - before
    assert mirror.lost(cluster.lab["node3"], cluster.device(NAME, "node3")) <= alone
    mirror.last = before
    mirror.write(50, "node3")
    # The other replica has writes which this one misses. It comes back, and is not used.
    mirror.restart("node2")
    mirror.join()
    mirror.tried("instance", "activate-disks", NAME)
    assert drbd.minors(cluster.lab["node3"])[cluster.minor(NAME, "node3")].primary
    assert mirror.lost_in_use() == 0
    cluster.gnt("instance", "replace-disks", "-s", NAME)
    cluster.in_step(NAME)
    assert mirror.lost_in_use() == 0


# -- a replica which missed writes stays or is copied ----------------------------------


@pytest.mark.parametrize("compared", [False, True])
def test_conversion_to_plain(mirror: Mirror, compared: bool) -> None:
    """The primary lost its storage and wrote through its peer; then the storage is back."""
    cluster = mirror.cluster
    mirror.lose_primary_storage()
    mirror.write()
    mirror.stop()
    if not compared:
        cluster.lab["node3"].cable(SECONDARY, plugged=False)
        judge = mirror.refused("instance", "modify", "-t", "plain", NAME)
        mirror.join()
        if cluster.fields("instance", NAME, "disk_template")[0] == "drbd":
            assert mirror.lost_in_use() == 0
            judge()
            return
    else:
        done = mirror.tried("instance", "modify", "-t", "plain", NAME)
        if done.returncode:
            assert mirror.lost_in_use() == 0
            assert re.search(REFUSED, done.stdout + done.stderr)
            return
    cluster.gnt("instance", "activate-disks", NAME)
    assert mirror.lost(cluster.lab["node2"], plain_device(cluster, "node2")) == 0
    assert compared, "the replicas could not be compared"


@pytest.mark.parametrize("stopped", [False, True])
def test_export_and_removal(mirror: Mirror, stopped: bool) -> None:
    """What is exported has all blocks, or nothing is removed."""
    cluster = mirror.cluster
    mirror.lose_primary_storage()
    mirror.write()
    if stopped:
        mirror.stop()
    done = mirror.tried(
        "backup",
        "export",
        "--force",
        "--remove-instance",
        "--shutdown-timeout=0",
        "-n",
        "node1",
        NAME,
    )
    if done.returncode:
        assert mirror.lost_in_use() == 0
        assert re.search(f"{REFUSED}|no local storage", done.stdout + done.stderr)
        return
    cluster.gnt(
        "backup",
        "import",
        "-t",
        "plain",
        "--src-node=node1",
        "-n",
        "node2",
        "--no-nics",
        "--no-name-check",
        "--no-ip-check",
        NAME,
    )
    cluster.gnt("instance", "activate-disks", NAME)
    found = mirror.lost(cluster.lab["node2"], plain_device(cluster, "node2"))
    cluster.gnt("backup", "remove", NAME)
    assert found == 0


@pytest.mark.parametrize("stopped", [False, True])
def test_the_storage_of_the_primary_is_replaced(mirror: Mirror, stopped: bool) -> None:
    """The replica of the secondary, which missed writes, must not fill the new storage."""
    mirror.cut()
    mirror.write()
    if stopped:
        mirror.stop()
    judge = mirror.refused("instance", "replace-disks", "-p", NAME)
    mirror.join()
    assert mirror.lost_in_use() == 0
    judge()


def test_another_secondary_for_a_primary_without_storage(mirror: Mirror) -> None:
    """The good replica is on the old secondary; it must not go before there is another one.

    The command brings the storage of the primary back first. If it is in sync soon enough, the
    replacement succeeds; otherwise it is refused.
    """
    cluster = mirror.cluster
    mirror.lose_primary_storage()
    mirror.write()
    before = mirror.facts()
    done = mirror.tried("instance", "replace-disks", "-n", "node1", NAME)
    if done.returncode:
        assert re.search(REFUSED, done.stdout + done.stderr), done.stdout + done.stderr
        assert mirror.facts() == before
    mirror.stop()
    assert mirror.lost_in_use() == 0
    if done.returncode:
        # With the storage back and in sync, it works.
        cluster.in_step(NAME)
        cluster.gnt("instance", "replace-disks", "-n", "node1", NAME)
    assert cluster.nodes_of(NAME) == ("node2", "node1")
    cluster.in_step(NAME)
    assert mirror.lost_in_use() == 0


def test_the_old_storage_stays_until_the_new_one_is_good(mirror: Mirror) -> None:
    """A replacement is interrupted when the volumes it replaced are the last good ones."""
    cluster = mirror.cluster
    # Slow enough that the synchronisation cannot end before it is interrupted.
    cluster.gnt("group", "modify", "-D", "drbd:resync-rate=256", "default")
    replacing = cluster.master.spawn(f"gnt-instance replace-disks -p {NAME}")
    mirror.state("node2", "^SyncTarget Inconsistent/UpToDate")
    cluster.lab["node3"].power_off()
    replacing.wait(timeout=600)
    old = [name for name in drbd.volumes(cluster.lab["node2"]) if name.endswith("_data_old")]
    assert len(old) == 1
    judge = mirror.refused("instance", "replace-disks", "-p", NAME, text=f"{REFUSED}|node3")
    left = drbd.volumes(cluster.lab["node2"])
    assert old[0] in left, f"the last good replica is gone: {left}"
    assert mirror.lost(cluster.lab["node2"], f"/dev/{GROUP}/{old[0]}") == 0
    judge()
    # Somebody who wants to repair this finds the volume where the instance is described.
    assert old[0] in cluster.gnt("instance", "info", NAME)


def test_a_former_secondary_comes_back(mirror: Mirror) -> None:
    """Its kernel still has the old configuration, and offers itself as the peer."""
    cluster = mirror.cluster
    port = cluster.config()["disks"]
    ((_uuid, disk),) = port.items()
    old_minor, number = cluster.minor(NAME, "node3"), disk["logical_id"][2]
    shown = cluster.lab["node3"].run(f"drbdsetup show {old_minor}")
    secret = re.search(r'shared-secret\s+"(\w+)"', shown)
    storage, metadata = mirror.storage("node3")
    assert secret, shown
    # It does not answer, so nobody tells it that it is not the secondary any more.
    cluster.lab["node3"].power_off()
    cluster.gnt("node", "modify", "--offline=yes", "--auto-promote", "node3")
    cluster.gnt("instance", "replace-disks", "-n", "node1", NAME)
    mirror.write()
    cluster.in_step(NAME)
    # The new secondary is away for a moment, and the former one is back as it was.
    cluster.lab["node1"].cable(SECONDARY, plugged=False)
    mirror.state("node2", "DUnknown$")
    mirror.write()
    machine = cluster.lab["node3"]
    machine.start()
    machine.wait()
    attach_by_hand(machine, old_minor, storage, metadata)
    machine.run(
        f"drbdsetup connect resource{old_minor} ipv4:10.77.2.3:{number} ipv4:10.77.2.2:{number}"
        f" --protocol C --cram-hmac-alg md5 --shared-secret {secret[1]}"
    )
    # It was heard and turned away, or it was taken for the peer.
    wait_until(
        lambda: (
            "Authentication of peer failed" in machine.run("dmesg")
            or not drbd.minors(machine)[old_minor].connection.startswith(("WF", "Stand"))
        ),
        "the former secondary was answered",
        180,
    )
    state = drbd.minors(machine)[old_minor]
    assert not state.connected and not state.resyncing, f"it took the place of the new one: {state}"
    assert drbd.minors(cluster.lab["node2"])[cluster.minor(NAME, "node2")].primary
    machine.run(f"drbdsetup down resource{old_minor}")
    cluster.lab["node1"].cable(SECONDARY, plugged=True)
    cluster.gnt("instance", "activate-disks", NAME)
    cluster.in_step(NAME)
    assert mirror.lost_in_use() == 0


# -- interrupted by a dead master ------------------------------------------------------


def kill_master_when(mirror: Mirror, node: str, event: str) -> None:
    """Kill the master daemon as soon as the node daemon of a node writes this line.

    The node daemon is stopped at once and goes on later, so that the master is dead before it gets
    an answer. The program whose start was written down goes on meanwhile.
    """
    machine = mirror.cluster.lab[node]
    machine.call("pkill -x tail")
    machine.run(
        "nohup sh -c 'tail -n 0 -F /var/log/ganeti/node-daemon.log |"
        f' grep -m 1 -E "{event}" && {{ pkill -STOP -f [s]bin/ganeti-noded;'
        " ssh node1 pkill -9 -f [s]bin/ganeti-masterd; pkill -CONT -f [s]bin/ganeti-noded;"
        " touch /tmp/killed; }' >/dev/null 2>&1 & sleep 1; rm -f /tmp/killed"
    )


def start_master_again(mirror: Mirror, node: str) -> None:
    """Wait until the master daemon was killed, and start it again."""
    machine, cluster = mirror.cluster.lab[node], mirror.cluster
    wait_until(lambda: machine.call("test -e /tmp/killed").returncode == 0, "the event came", 120)
    cluster.master.run(f"{_UTIL} start ganeti-masterd")
    statuses = ("job", "list", "--no-headers", "-o", "status")
    wait_until(lambda: "running" not in cluster.gnt(*statuses), "all jobs have ended", 600)


@pytest.mark.parametrize("event", ["running lvextend", "running drbdsetup resize"])
def test_a_growth_without_its_commit(mirror: Mirror, event: str) -> None:
    """What a guest wrote to the end of its disk is there after the next start, and stays."""
    cluster, machine = mirror.cluster, mirror.cluster.lab["node2"]
    device = cluster.device(NAME, "node2")

    def size_mib() -> int:
        return int(machine.run(f"blockdev --getsize64 {device}")) >> 20

    kill_master_when(mirror, "node2", event)
    mirror.tried("instance", "grow-disk", NAME, "0", f"{_SIZE_MIB}M")
    start_master_again(mirror, "node2")
    if "resize" in event:
        # The guest sees the new size, whatever the master wrote down.
        wait_until(lambda: size_mib() == 2 * _SIZE_MIB, "the device has grown", 60)
    found_mib = size_mib()
    first = found_mib * _BLOCKS_PER_MIB - 4000
    writer = drbd.Writer(machine, device, first)
    writer.more(100)
    last = writer.stop()
    mirror.stop()
    assert mirror.lost_in_use() == 0
    found = drbd.lost(machine, device, last, first)
    print(f"{found} of {last - first + 1} confirmed blocks at the end lost")
    assert found == 0
    assert size_mib() >= found_mib
    # The command can be repeated, and nothing of it is wiped.
    cluster.gnt("instance", "grow-disk", "--absolute", NAME, "0", f"{2 * _SIZE_MIB}M")
    wait_until(lambda: size_mib() == 2 * _SIZE_MIB, "the device has grown", 60)
    assert drbd.lost(machine, device, last, first) == 0
    assert mirror.lost_in_use() == 0


def test_a_migration_without_its_end(mirror: Mirror) -> None:
    """A dead master has left the mirror dual-primary; the next activation ends that."""
    cluster = mirror.cluster

    def dual_primary(node: str) -> bool:
        minor = cluster.minor(NAME, node)
        return "allow-two-primaries yes" in re.sub(
            r"\s+", " ", cluster.lab[node].run(f"drbdsetup show {minor}")
        )

    kill_master_when(mirror, "node3", "running drbdsetup connect .*--allow-two-primaries")
    mirror.tried("instance", "migrate", "-f", NAME)
    start_master_again(mirror, "node3")
    assert any(dual_primary(node) for node in _NODES), "nothing was left open"
    assert NAME in cluster.fails("cluster", "verify", "--error-codes")
    # The guest of the fake hypervisor still is where it was: there was no time to migrate it.
    running = [
        node
        for node in _NODES
        if cluster.lab[node].call(f"test -e {_FAKE_GUESTS}/{NAME}").returncode == 0
    ]
    assert running == ["node2"] and cluster.nodes_of(NAME)[0] == "node2"
    mirror.write(50)
    cluster.gnt("instance", "activate-disks", NAME)
    assert not any(dual_primary(node) for node in _NODES)
    cluster.in_step(NAME)
    assert not drbd.minors(cluster.lab["node3"])[cluster.minor(NAME, "node3")].primary
    assert mirror.lost_in_use() == 0


# -- a guest which runs elsewhere --------------------------------------------------------


ELSEWHERE = {
    "remove": ("instance", "remove", "-f", "--shutdown-timeout=0", NAME),
    "reinstall": ("instance", "reinstall", "-f", NAME),
    "convert": ("instance", "modify", "-t", "plain", NAME),
    "recreate": ("instance", "recreate-disks", NAME),
    "rename": ("instance", "rename", NAME, "other"),
    "grow": ("instance", "grow-disk", NAME, "0", "64M"),
    "export": ("backup", "export", "--force", "--remove-instance", "-n", "node1", NAME),
    "shutdown": ("instance", "shutdown", "--timeout=0", NAME),
}


def test_a_guest_which_runs_elsewhere(mirror: Mirror) -> None:
    """Its disks are left alone, and it goes on writing."""
    cluster = mirror.cluster
    mirror.stop()
    # As an interrupted migration leaves it: the guest and the writable replica are on the other
    # node, and the configuration does not know.
    cluster.gnt("instance", "activate-disks", NAME)
    cluster.in_step(NAME)
    for node, verb in zip(_NODES, ("secondary", "primary"), strict=True):
        cluster.lab[node].run(f"drbdsetup {verb} {cluster.minor(NAME, node)}")
    cluster.lab["node3"].run(
        f"mkdir -p {_FAKE_GUESTS}; printf '1\\n64\\n1\\n' >{_FAKE_GUESTS}/{NAME}"
    )
    minor = cluster.minor(NAME, "node3")
    writer = drbd.Writer(cluster.lab["node3"], f"/dev/drbd{minor}", mirror.last + 1)
    writer.more(100)
    wrong = []
    for operation, words in ELSEWHERE.items():
        before = mirror.facts()
        done = mirror.tried(*words)
        said = done.stdout + done.stderr
        if not done.returncode or "node3" not in said or mirror.facts() != before:
            wrong.append(f"{operation}: {done.returncode} {said}")
            break
        writer.more(10)
    mirror.last = writer.stop()
    assert mirror.lost(cluster.lab["node3"], f"/dev/drbd{minor}") == 0
    assert not wrong, wrong
    cluster.lab["node3"].run(f"rm {_FAKE_GUESTS}/{NAME}; drbdsetup secondary {minor}")
    assert mirror.lost_in_use() == 0


# -- states of replicas, and operations ----------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class Combination:
    """A state in which a mirror is left, and a command which is tried then.

    :ivar state: name of a function below.
    :ivar words: program and arguments.
    :ivar may_succeed: the command may also reach its end, with all blocks.
    """

    state: str
    words: tuple[str, ...]
    may_succeed: bool = False

    @property
    def label(self) -> str:
        return f"{self.state}-{self.words[1]}{''.join(w for w in self.words[2:] if w != NAME)}"


def _missed(mirror: Mirror) -> None:
    """The secondary missed writes, and is still not connected."""
    mirror.cut()
    mirror.write()


def _synchronising(mirror: Mirror) -> None:
    """The secondary missed writes, and is being synchronised, slowly."""
    mirror.cut()
    mirror.write(_SLOW_BLOCKS)
    mirror.slow_down()
    mirror.join()
    mirror.state("node3", "^SyncTarget Inconsistent/UpToDate")


def _primary_synchronising(mirror: Mirror) -> None:
    """The primary lost its storage, got it back, and is being synchronised, slowly."""
    cluster = mirror.cluster
    storage, metadata = mirror.storage("node2")
    mirror.lose_primary_storage()
    mirror.write(_SLOW_BLOCKS)
    minor, other = (cluster.minor(NAME, node) for node in _NODES)
    # The rate of a synchronisation can be set when the storage is attached, not before.
    cluster.lab["node3"].run(f"drbdsetup pause-sync {other}")
    cluster.lab["node2"].run(
        f"drbdmeta /dev/drbd{minor} v08 {metadata} flex-external apply-al &&"
        f" drbdsetup attach {minor} {storage} {metadata} flexible"
    )
    mirror.state("node2", "^PausedSyncT Inconsistent/UpToDate")
    mirror.slow_down()
    cluster.lab["node3"].run(f"drbdsetup resume-sync {other}")
    mirror.state("node2", "^SyncTarget Inconsistent/UpToDate")


def _split(mirror: Mirror) -> None:
    """Split brain: each replica has writes which the other one missed."""
    mirror.split()


def _dead(mirror: Mirror) -> None:
    """The secondary missed writes; then the primary node lost its power, and is marked offline."""
    _missed(mirror)
    mirror.cluster.lab["node2"].power_off()
    mirror.cluster.gnt("node", "modify", "--offline=yes", "--auto-promote", "node2")


STATES: dict[str, Callable[[Mirror], None]] = {
    "missed": _missed,
    "synchronising": _synchronising,
    "primary-synchronising": _primary_synchronising,
    "split": _split,
    "dead": _dead,
}
COMBINATIONS = (
    Combination("missed", ("instance", "failover", "-f", "--shutdown-timeout=0", NAME)),
    Combination("missed", ("instance", "failover", "-f", "-n", "node1", NAME), may_succeed=True),
    Combination("missed", ("node", "failover", "-f", "node2")),
    Combination(
        "synchronising", ("instance", "migrate", "-f", "--allow-failover", NAME), may_succeed=True
    ),
    Combination(
        "synchronising",
        ("instance", "failover", "-f", "--shutdown-timeout=0", NAME),
        may_succeed=True,
    ),
    Combination(
        "primary-synchronising",
        ("instance", "replace-disks", "-n", "node1", NAME),
        may_succeed=True,
    ),
    Combination(
        "primary-synchronising", ("instance", "replace-disks", "-s", NAME), may_succeed=True
    ),
    Combination("split", ("instance", "replace-disks", "-p", NAME)),
    Combination("split", ("instance", "failover", "-f", "--shutdown-timeout=0", NAME)),
    Combination("dead", ("instance", "failover", "-f", "-n", "node1", NAME)),
)


@pytest.mark.parametrize("combination", COMBINATIONS, ids=lambda one: one.label)
def test_the_worst_combinations(mirror: Mirror, combination: Combination) -> None:
    STATES[combination.state](mirror)
    before = mirror.facts()
    program, *words = combination.words
    done = mirror.tried(program, *words)
    after = mirror.facts()
    if combination.state == "dead":
        mirror.restart("node2")
    mirror.join()
    assert mirror.lost_in_use() == 0
    said = done.stdout + done.stderr
    # The exit code of commands for a whole node is 0 all the same.
    if done.returncode or "There were errors" in said:
        assert re.search(REFUSED + "|in sync|synchronis", said), said
        assert after == before
    else:
        assert combination.may_succeed, said


def test_the_record_of_the_configuration(mirror: Mirror) -> None:
    """The configuration remembers which replica missed writes, until it is in sync."""
    cluster = mirror.cluster
    (name3,) = (uuid for uuid, one in cluster.config()["nodes"].items() if one["name"] == "node3")

    def record() -> tuple[str | None, bool]:
        (disk,) = cluster.config()["disks"].values()
        return disk.get("outdated_node"), disk.get("in_sync_at") is not None

    assert record() == (None, False)
    mirror.stop()
    assert record() == (None, True)
    cluster.gnt("instance", "startup", NAME)
    cluster.in_step(NAME)
    assert record()[1] is False
    mirror.cut()
    mirror.write()
    mirror.stop()
    assert record() == (name3, False)
    mirror.join()
    cluster.gnt("instance", "startup", NAME)
    cluster.in_step(NAME)
    mirror.stop()
    assert record() == (None, True)
