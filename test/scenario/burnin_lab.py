"""A guest that answers the check of ``burnin``, in a network of its own.

A program for ``unshare --net --mount``: ``python burnin_lab.py DIRECTORY BUSYBOX``. It makes a
bridge with a DHCP server which has one address, and a cluster of two nodes, and runs ``burnin``
with ``--http-check``. The output and the exit code are those of ``burnin``.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from harness import Cluster, run_program, wait_until

NAME = "web1.example.com"
ADDRESS = "198.51.100.50"

_DHCP = f"""\
start {ADDRESS}
end {ADDRESS}
interface br0
lease_file {{directory}}/leases
pidfile {{directory}}/udhcpd.pid
option subnet 255.255.255.0
"""


def main(directory: Path, busybox: str) -> int:
    """Set up the network and the cluster, run the program, stop everything."""
    for command in (
        "ip link set lo up",
        "ip link add br0 type bridge",
        "ip addr add 198.51.100.1/24 dev br0",
        "ip link set br0 up",
    ):
        run_program(tuple(command.split()), Cluster.outside()).ok()
    run_program(("mount", "-t", "sysfs", "sys", "/sys"), Cluster.outside()).ok()
    conf = directory / "udhcpd.conf"
    conf.write_text(_DHCP.format(directory=directory))
    (directory / "leases").touch()
    dhcp = subprocess.Popen([busybox, "udhcpd", "-f", str(conf)])
    cluster = Cluster(directory / "cluster", 2, "--hypervisor", "kvm")
    try:
        cluster.create.ok()
        wait_until((directory / "udhcpd.pid").exists, "the DHCP server runs")
        with (directory / "cluster/hosts").open("a") as hosts:
            hosts.write(f"{ADDRESS} {NAME}\n")
        cluster.run("gnt-cluster", "modify", "--nic-parameters", "mode=bridged,link=br0").ok()
        done = cluster.run(
            "burnin", "-o", "tiny", "-t", "sharedfile", "--disk-size", "16m", "--mem-size", "128m",
            "--vcpu-count", "1", "-C", "--net-timeout", "120",
            "--steps", "migrate,reboot,importexport,hotplug", NAME,
        )  # fmt: skip
        print(done.text)
        return done.exit_code
    finally:
        cluster.vcluster("destroy", str(cluster.directory))
        dhcp.terminate()
        dhcp.wait()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2]))
