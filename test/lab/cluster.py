"""A cluster on the machines of the laboratory: real daemons, started as on real machines."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from lab import drbd
from lab.machines import Lab, Machine
from lab.waiting import wait_until

NAME = "lab"
GROUP = "xenvg"
# The instances of the tests are smaller than the usual policy allows.
_BOUNDS = (
    "min:memory-size=32,cpu-count=1,disk-count=1,disk-size=16,nic-count=0,spindle-use=1/"
    "max:memory-size=8192,cpu-count=8,disk-count=16,disk-size=1048576,nic-count=8,"
    "spindle-use=12"
)

# An OS definition which only copies blocks; the files of its directory.
_BLOCKS_OS = {
    "ganeti_api_version": "15\n",
    "create": "#!/bin/sh\nexit 0\n",
    "export": "#!/bin/sh\nexec dd if=$EXPORT_DEVICE bs=1M\n",
    "import": "#!/bin/sh\nexec dd of=$IMPORT_DEVICE bs=1M conv=fsync\n",
    "rename": "#!/bin/sh\nexit 0\n",
}


class Cluster:
    """A cluster on the machines of a laboratory; commands run on its master."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.master = lab.machines[0]

    def install_blocks_os(self) -> None:
        """Install the OS definition ``blocks``, which only copies blocks, on all machines."""
        for machine in self.lab:
            for name, text in _BLOCKS_OS.items():
                machine.write(f"/srv/ganeti/os/blocks/{name}", text, 0o755)

    def make(self, *options: str) -> None:
        """Make volume groups on all machines, create the cluster, and add the other machines."""
        _together(
            lambda machine: machine.run(
                f"pvcreate -q /dev/mapper/lab0 && vgcreate -q {GROUP} /dev/mapper/lab0"
            ),
            self.lab.machines,
        )
        self.gnt(
            "cluster",
            "init",
            "--secondary-ip",
            self.master.secondary_ip,
            "--master-netdev",
            "eth0",
            "--vg-name",
            GROUP,
            "--enabled-disk-templates",
            "drbd,plain",
            "--enabled-hypervisors",
            "fake",
            "--drbd-usermode-helper",
            "/bin/true",
            "--no-ssh-init",
            "--no-etc-hosts",
            "--ipolicy-bounds-specs",
            _BOUNDS,
            *options,
            NAME,
        )
        _together(
            lambda machine: self.gnt(
                "node",
                "add",
                "--secondary-ip",
                machine.secondary_ip,
                "--no-ssh-key-check",
                machine.name,
            ),
            self.lab.machines[1:],
        )

    def enable_kvm(self) -> None:
        """Enable guests under QEMU, with ``-H kvm``.

        They are emulated within an emulation, so parameters of their kernel replace slow
        measurements.
        """
        words = (
            "ro quiet mitigations=off nokaslr tsc=reliable no_timer_check cryptomgr.notests"
            " lpj=4000000"
        )
        # Every node must have the kernel before the hypervisor is enabled.
        self.gnt(
            "cluster",
            "modify",
            "--enabled-hypervisors",
            "fake,kvm",
            "-H",
            "kvm:kernel_path=/usr/share/lab/vmlinux,initrd_path=/usr/share/lab/initrd,"
            f"kvm_path=/usr/bin/qemu-system-x86_64,serial_console=true,kernel_args={words},"
            "disk_cache=none,vnc_bind_address=",
        )

    def enable_xen(self, words: str) -> None:
        """Enable guests under Xen, and a bridge ``labbr``; domain 0 comes before the guests.

        :param words: the command line of their kernel.
        """
        prepare_xen(self.lab)
        self.gnt(
            "cluster",
            "modify",
            "--enabled-hypervisors",
            "xen-pvm",
            "-H",
            "xen-pvm:kernel_path=/usr/share/lab/vmlinux,initrd_path=/usr/share/lab/initrd,"
            f"blockdev_prefix=xvd,root_path=,kernel_args={words}",
        )

    def gnt(self, program: str, *words: str, timeout_s: float = 1200.0) -> str:
        """Run ``gnt-PROGRAM`` on the master; returns what it printed.

        :raises Failed: its exit code is not 0.
        """
        return self.master.run(_line(program, words), timeout_s=timeout_s)

    def fails(self, program: str, *words: str) -> str:
        """Run ``gnt-PROGRAM`` on the master, which must fail; returns its output."""
        done = self.master.call(_line(program, words))
        assert done.returncode, f"gnt-{program} {' '.join(words)} succeeded: {done.stdout}"
        return done.stdout + done.stderr

    def fields(self, program: str, name: str, *fields: str) -> list[str]:
        """Return fields of one object, as ``gnt-PROGRAM list`` prints them."""
        out = self.gnt(
            program, "list", "--no-headers", "--separator=|", "-o", ",".join(fields), name
        )
        return out.strip().split("|")

    def add(
        self, name: str, nodes: str, *words: str, template: str = "drbd", size: str = "64M"
    ) -> None:
        """Create an instance and do not start it; ``nodes`` is for example ``node1:node2``."""
        self.gnt(
            "instance",
            "add",
            "-t",
            template,
            "--disk",
            f"0:size={size}",
            "-n",
            nodes,
            "-B",
            "minmem=64,maxmem=64",
            *(() if "--net" in words else ("--no-nics",)),
            "--no-install",
            "-o",
            "tiny",
            "--no-name-check",
            "--no-ip-check",
            *words,
            name,
        )

    def remove(self, name: str) -> None:
        """Remove an instance in any state."""
        self.gnt("instance", "remove", "-f", "--shutdown-timeout=0", name)

    def nodes_of(self, name: str) -> tuple[str, str]:
        """Primary and secondary node of an instance."""
        primary, secondary = self.fields("instance", name, "pnode", "snodes")
        return primary, secondary

    def minor(self, name: str, node: str) -> int:
        """DRBD minor of an instance's only disk on one of its nodes."""
        config = self.config()
        (uuid,) = (one["uuid"] for one in config["nodes"].values() if one["name"] == node)
        (instance,) = (one for one in config["instances"].values() if one["name"] == name)
        (disk,) = instance["disks"]
        first, second, _port, minor, other, _secret = config["disks"][disk]["logical_id"]
        assert uuid in (first, second), f"{name} has nothing on {node}"
        return int(minor if uuid == first else other)

    def device(self, name: str, node: str) -> str:
        """The mirrored device of an instance on a node."""
        return f"/dev/drbd{self.minor(name, node)}"

    def in_step(self, name: str) -> None:
        """Wait until both replicas of an instance's disk are connected and in sync."""
        for node in self.nodes_of(name):
            drbd.wait_for(self.lab[node], self.minor(name, node), "^Connected UpToDate/UpToDate")

    def protect(self) -> None:
        """Wait until each mirror confirms no write alone; the watcher's job makes them so.

        That is so where instances are failed over automatically (``never_alone``).
        """

        def protected() -> bool:
            self.master.call("gnt-cluster verify-disks")
            disks = self.config()["disks"].values()
            return all(disk.get("never_alone") for disk in disks if disk["dev_type"] == "drbd")

        wait_until(protected, "each mirror confirms no write alone", 900.0, pause_s=3.0)

    def settled(self, name: str, *nodes: str, blocks: int) -> None:
        """Check that both replicas of a running instance are in sync and no other node has data.

        No other instance may have volumes at that time.

        :param nodes: expected primary and secondary node; any nodes if not given.
        :param blocks: number of blocks which were written and must exist.
        """
        found = self.nodes_of(name)
        assert not nodes or found == nodes
        self.in_step(name)
        primary = self.lab[found[0]]
        assert drbd.minors(primary)[self.minor(name, primary.name)].primary
        drbd.check(primary, self.device(name, primary.name), blocks)
        for machine in self.lab:
            expected = 2 if machine.name in found else 0
            assert len(drbd.volumes(machine)) == expected, machine.name
            assert len(drbd.minors(machine)) == expected // 2, machine.name

    def readd(self, name: str) -> None:
        """Take a node which is marked offline into the cluster again, as one that was repaired."""
        machine = self.lab[name]
        self.gnt(
            "node",
            "add",
            "--readd",
            "--secondary-ip",
            machine.secondary_ip,
            "--no-ssh-key-check",
            name,
        )

    def switch_on(self, name: str) -> None:
        """Switch the machine of an offline node on, and take it into the cluster again."""
        machine = self.lab[name]
        machine.start()
        machine.wait()
        self.readd(name)

    def wait_for_node(self, name: str, timeout_s: float = 900.0) -> None:
        """Wait until the node daemon of a node answers the master."""
        listed = f"gnt-node list -o mtotal --no-headers {name} | grep -q '[0-9]'"
        wait_until(lambda: self.master.call(listed).returncode == 0, f"{name} answers", timeout_s)

    def config(self) -> dict[str, Any]:
        """The configuration as it is stored."""
        found: dict[str, Any] = json.loads(self.master.run("cat /var/lib/ganeti/config.data"))
        return found

    def machine_of(self, node_name: str) -> Machine:
        """The machine of a node."""
        return self.lab[node_name]


def prepare_xen(lab: Lab, *bridges: str) -> None:
    """Let domain 0 come before the guests, and make ``labbr`` and other bridges."""
    for machine in lab:
        machine.run("xl sched-credit2 -d 0 -w 4096")
        for name in ("labbr", *bridges):
            machine.run(f"ip link add {name} type bridge && ip link set {name} up")


def _together(work: Callable[[Machine], object], machines: Sequence[Machine]) -> None:
    """Do the same for several machines at the same time."""
    with ThreadPoolExecutor(max_workers=max(len(machines), 1)) as pool:
        list(pool.map(work, machines))


def _line(program: str, words: tuple[str, ...]) -> str:
    return " ".join(["gnt-" + program, *("'" + word.replace("'", "'\\''") + "'" for word in words)])
