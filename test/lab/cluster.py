"""A cluster on the machines of the laboratory: real daemons, started as on real machines."""

from __future__ import annotations

import json
from typing import Any

from lab.machines import Lab, Machine

NAME = "lab"
GROUP = "xenvg"


class Cluster:
    """The cluster; commands run on its master."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.master = lab.machines[0]

    def make(self, *options: str) -> None:
        """Volume groups on all machines, a cluster on the first, the others join it."""
        for machine in self.lab:
            machine.run(f"pvcreate -q /dev/mapper/lab0 && vgcreate -q {GROUP} /dev/mapper/lab0")
        self.gnt("cluster", "init", "--secondary-ip", self.master.secondary_ip,
                 "--master-netdev", "eth0", "--vg-name", GROUP,
                 "--enabled-disk-templates", "drbd,plain", "--enabled-hypervisors", "fake",
                 "--drbd-usermode-helper", "/bin/true", "--no-etc-hosts", *options, NAME)
        for machine in self.lab.machines[1:]:
            self.gnt("node", "add", "--secondary-ip", machine.secondary_ip,
                     "--no-ssh-key-check", machine.name)

    def gnt(self, program: str, *words: str, timeout_s: float = 1200.0) -> str:
        """Run ``gnt-PROGRAM`` on the master; returns what it printed.

        :raises Failed: its exit code is not 0.
        """
        return self.master.run(_line(program, words), timeout_s=timeout_s)

    def fails(self, program: str, *words: str) -> str:
        """As :meth:`gnt`, of a command which must fail; returns what it printed."""
        done = self.master.call(_line(program, words))
        assert done.returncode, f"gnt-{program} {' '.join(words)} succeeded: {done.stdout}"
        return done.stdout + done.stderr

    def fields(self, program: str, name: str, *fields: str) -> list[str]:
        """Fields of one object, as ``gnt-PROGRAM list`` prints them."""
        out = self.gnt(program, "list", "--no-headers", "--separator=|", "-o", ",".join(fields),
                       name)
        return out.strip().split("|")

    def config(self) -> dict[str, Any]:
        """The configuration as it is stored."""
        found: dict[str, Any] = json.loads(
            self.master.run("cat /var/lib/ganeti/config.data"))
        return found

    def machine_of(self, node_name: str) -> Machine:
        """The machine of a node."""
        return self.lab[node_name]


def _line(program: str, words: tuple[str, ...]) -> str:
    return " ".join(["gnt-" + program, *("'" + word.replace("'", "'\\''") + "'" for word in words)])
