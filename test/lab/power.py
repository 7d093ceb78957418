"""The out-of-band helper of the machines: it knows which of them have no power.

In a real cluster the helper of a node (``oob_program``) switches its machine off. Here a test cuts
the power, and writes that to a file on the other machines, which their helpers read.
"""

from __future__ import annotations

from lab.cluster import Cluster
from lab.machines import Machine

_PROGRAM = "/usr/local/sbin/power"
_HELPER = """#!/bin/sh
case $1 in
power-status)
    if test -e /root/off.$2; then echo '{"powered": false}'; else echo '{"powered": true}'; fi ;;
power-off) test -e /root/off.$2 ;;
esac
"""


def install(cluster: Cluster) -> None:
    """Let all nodes of a cluster have the helper."""
    for machine in cluster.lab:
        machine.write(_PROGRAM, _HELPER, 0o755)
    cluster.gnt("cluster", "modify", "--node-parameters", f"oob_program={_PROGRAM}")


def cut(machine: Machine) -> None:
    """Cut the power of a machine; the helpers of the others know it then."""
    machine.power_off()
    for other in machine.lab:
        if other.on:
            other.run(f"touch /root/off.{machine.name}")


def restore(machine: Machine) -> None:
    """Switch a machine on again, and wait until it is ready."""
    machine.start()
    machine.wait()
    for other in machine.lab:
        if other.on:
            other.run(f"rm -f /root/off.{machine.name}")
