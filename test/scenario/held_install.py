"""A cluster whose operating system can be held in the middle of its installation."""

from __future__ import annotations

from pathlib import Path

from harness import Cluster

NAME = "web1.example.com"
MASTERD = "ganeti-masterd"

#: A script which notes its beginning and its end, and waits in between as long as a file exists.
CREATE = """\
echo "begin $INSTANCE_REINSTALL" >> {log}
while [ -e {hold} ]; do sleep 0.05; done
echo end >> {log}
"""


class HeldInstall:
    """The cluster, with an instance on its third node.

    :ivar hold: the script waits as long as this file exists.
    :ivar log: what the script has noted.
    """

    def __init__(self, cluster: Cluster, directory: Path) -> None:
        self.cluster = cluster
        self.hold = directory / "hold"
        self.log = directory / "log"
        self.log.touch()
        cluster.make_os("slow", CREATE.format(log=self.log, hold=self.hold))
        # Neither the master nor the node which takes over.
        self.node = cluster.node_names[2]
        self.configure()
        cluster.run(
            *("gnt-instance", "add", "-t", "file", "-o", "slow", "-n", self.node, "-s", "64M"),
            *("--no-start", "--no-name-check", "--no-ip-check", NAME),
        ).ok()

    def configure(self) -> None:
        """Change the cluster before it gets the instance."""

    def lines(self) -> list[str]:
        """The lines which the script has noted."""
        return self.log.read_text().split("\n")[:-1]
