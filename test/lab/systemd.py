"""Machines which boot with systemd, as most machines do."""

from __future__ import annotations

from lab.cluster import Cluster
from lab.machines import Lab, Machine


def enable(machine: Machine) -> None:
    """Let the daemons start now and with the machine, as the documentation says."""
    # systemd-udevd loads these modules; a guest would be emulated by an emulated SVM, and stop the
    # whole machine for up to half a minute.
    machine.write("/etc/modprobe.d/no-kvm.conf", "blacklist kvm_amd\nblacklist kvm_intel\n")
    machine.call("modprobe -q -r kvm_amd; modprobe -q -r kvm_intel")
    machine.run("systemctl enable --now ganeti.target")


def cluster_of(lab: Lab) -> Cluster:
    """A cluster of machines which boot with systemd, made as the documentation says."""
    for machine in lab:
        enable(machine)
    found = Cluster(lab)
    found.make()
    return found


def active(machine: Machine, unit: str) -> bool:
    """Whether a unit is active."""
    return machine.call(f"systemctl --quiet is-active {unit}").returncode == 0


def failed_units(lab: Lab) -> list[str]:
    """The failed units of all machines."""
    listed = "systemctl list-units --state=failed --plain --no-legend"
    return [line for machine in lab for line in machine.run(listed).splitlines()]
