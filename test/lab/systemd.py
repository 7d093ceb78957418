"""Machines which boot with systemd, as most machines do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import image, machines
from lab.cluster import Cluster
from lab.machines import Lab, Machine


def booted(directory: Path, count: int, logs: str, *, flavour: str = image.PLAIN) -> Iterator[Lab]:
    """Start machines for a fixture; skip its tests where they cannot run.

    :param logs: name of the directory for their logs.
    :param flavour: of their image, see :func:`lab.image.built`.
    """
    missing = machines.missing_programs()
    if missing:
        pytest.skip(f"the laboratory needs {', '.join(missing)}")
    try:
        found = Lab(directory, count, init=machines.SYSTEMD, flavour=flavour)
        found.prepare()
    except image.CannotBuild as err:
        pytest.skip(f"no image for the laboratory: {err}")
    with machines.ended_in_order(), found:
        yield found
        found.collect_logs(image.cache_dir() / logs)


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
