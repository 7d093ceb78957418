"""The ports of the cluster: reserved by a job, taken by the commit of the object that has them."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from fakes.config import commit
from ganeti import errors
from ganeti.config import Config
from ganeti.config.local_file import LocalFile
from ganeti.config.store import ConfigStore

from .samples import instance_of, small_cluster


@pytest.fixture
def config(tmp_path: Path) -> Config:
    data = small_cluster()
    cluster = dataclasses.replace(data.cluster, tcpudp_port_pool=(11003,), highest_used_port=11010)
    return Config(
        ConfigStore(
            LocalFile(str(tmp_path / "config.data")), dataclasses.replace(data, cluster=cluster)
        )
    )


def known(config: Config) -> tuple[tuple[int, ...], int]:
    cluster = config.cluster()
    return cluster.tcpudp_port_pool, cluster.highest_used_port


def add(config: Config, number: int, port: int) -> str:
    one = instance_of(number, network_port=port)
    commit(config).instances.add(one, [], "job")
    return one.uuid


def test_a_reservation_changes_nothing_until_the_commit(config: Config) -> None:
    before = config.snapshot()
    assert [config.reserving_for(f"job-{n}").reserve_port() for n in range(3)] == [
        11003,
        11011,
        11012,
    ]
    assert config.snapshot() is before
    add(config, 5, 11003)
    assert known(config) == ((), 11010)


def test_a_job_which_fails_loses_no_port(config: Config) -> None:
    first, second = (
        config.reserving_for("a").reserve_port(),
        config.reserving_for("b").reserve_port(),
    )
    third = config.reserving_for("c").reserve_port()
    assert (first, second, third) == (11003, 11011, 11012)
    add(config, 7, third)
    assert known(config) == ((11003, 11011), 11012)
    config.reserving_for("b").release_reservations()
    assert config.reserving_for("d").reserve_port() == second
    add(config, 6, second)
    assert known(config) == ((11003,), 11012)


def test_a_transaction_gives_no_reserved_port_away(config: Config) -> None:
    assert config.reserving_for("a").reserve_port() == 11003
    assert commit(config).ports.allocate() == 11011


def test_a_removed_instance_returns_its_port(config: Config) -> None:
    uuid = add(config, 5, config.reserving_for("a").reserve_port())
    commit(config).instances.remove(uuid)
    assert known(config) == ((11003,), 11010)


def test_all_ports_are_in_use(config: Config) -> None:
    commit(config).cluster.update(
        dataclasses.replace(config.cluster(), tcpudp_port_pool=(), highest_used_port=14999)
    )
    with pytest.raises(errors.OpPrereqError, match="are all in use"):
        config.reserving_for("a").reserve_port()
