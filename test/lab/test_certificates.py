"""Certificates which have expired, and a node with a wrong clock.

The clocks of all machines are set to a day six years ahead, at which every certificate has expired.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lab.cluster import Cluster
from lab.machines import Machine

UTIL = "/usr/lib/ganeti/daemon-util"
_YEARS_S = 6 * 366 * 86400


def restart(machine: Machine) -> None:
    machine.run(f"{UTIL} stop-all; {UTIL} start-all")


def shift_clock(machine: Machine, seconds: int) -> None:
    """Set the clock of a machine ahead, or back."""
    machine.run(f"date -s @$(($(date +%s) + {seconds}))")


def all_answer(cluster: Cluster) -> None:
    for machine in cluster.lab:
        cluster.wait_for_node(machine.name)


@pytest.fixture
def six_years_later(cluster: Cluster) -> Iterator[None]:
    """The clocks of all machines are six years ahead during the test."""
    for machine in cluster.lab:
        shift_clock(machine, _YEARS_S)
    yield
    for machine in cluster.lab:
        shift_clock(machine, -_YEARS_S)
        restart(machine)
    all_answer(cluster)
    # The others of this day would be valid in six years only.
    cluster.gnt("cluster", "renew-crypto", "--force", "--new-cluster-certificate")


@pytest.mark.usefixtures("six_years_later")
def test_expired_certificates_and_a_wrong_clock(cluster: Cluster) -> None:
    for machine in cluster.lab:
        restart(machine)
    all_answer(cluster)
    assert "server.pem expired on" in cluster.fails("cluster", "verify")
    # One machine has lost its clock, as after an empty battery.
    late = cluster.lab["node3"]
    shift_clock(late, -3 * _YEARS_S)
    restart(late)
    cluster.wait_for_node("node3")
    shift_clock(late, 3 * _YEARS_S)
    restart(late)
    cluster.wait_for_node("node3")
    cluster.gnt("cluster", "renew-crypto", "--force", "--new-cluster-certificate")
    all_answer(cluster)
    done = cluster.master.call("gnt-cluster verify")
    assert "server.pem" not in done.stdout and "client.pem" not in done.stdout
