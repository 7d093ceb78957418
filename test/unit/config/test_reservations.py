"""Names, addresses, minors and ports of jobs which run at the same time never collide.

The model: executions reserve, commit or give up in any order; whatever happens, nothing is given
to two of them, and the configuration agrees with its own pools and holds together.
"""

from __future__ import annotations

import dataclasses
import threading
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from fakes.config import commit
from ganeti import errors
from ganeti.config import Config, api, verify
from ganeti.config.index import Index
from ganeti.config.local_file import LocalFile
from ganeti.config.store import ConfigStore
from ganeti.constants import disk as disk_const
from ganeti.objects import ConfigData, Disk, Instance, Nic
from ganeti.objects.address_pool import AddressPool, empty

from .samples import disk_of, instance_of, network_of, small_cluster, uuid_of

NET = uuid_of("net1")
NODES = (uuid_of("node1"), uuid_of("node2"))


def _cluster() -> ConfigData:
    data = small_cluster(enabled_disk_templates=("diskless", "file", "drbd", "plain"))
    network = empty(
        dataclasses.replace(network_of(1), network="198.51.1.0/28", gateway="198.51.1.1")
    )
    return dataclasses.replace(data, networks={NET: network})


def _config() -> Config:
    return Config(ConfigStore(LocalFile("config.data", lambda _path, _text: None), _cluster()))


def _guest(number: int, **changes: Any) -> Instance:
    return dataclasses.replace(instance_of(number), disks=(), **changes)


def _nic(mac: str, address: str | None) -> Nic:
    return Nic(
        mac=mac,
        ip=address,
        network=None if address is None else NET,
        nicparams={},
        uuid=uuid_of(f"nic-{mac}"),
    )


def _drbd(name: str, port: int, minors: tuple[int, ...], place: int = 0) -> Disk:
    return Disk(
        dev_type=disk_const.DRBD8,
        size=1024,
        uuid=uuid_of(name),
        iv_name=f"disk/{place}",
        serial_no=1,
        nodes=NODES,
        logical_id=(*NODES, port, *minors, "secret"),
        children=tuple(
            Disk(
                dev_type=disk_const.PLAIN,
                size=size,
                nodes=NODES,
                logical_id=("vg", f"{name}_{part}"),
            )
            for size, part in ((1024, "data"), (128, "meta"))
        ),
    )


class Jobs(RuleBasedStateMachine):
    """Executions in any order."""

    numbers = st.integers(1, 5)

    def __init__(self) -> None:
        super().__init__()
        self.config = _config()
        # What each execution holds; what each instance has, by number.
        self.running: dict[int, dict[str, Any]] = {}
        self.done: dict[int, str] = {}
        self.ports: set[int] = set()
        self.count = 1

    @precondition(lambda self: len(self.running) < 4)
    @rule()
    def begin(self) -> None:
        self.count += 1
        self.running[self.count] = {"macs": [], "ips": [], "minors": [], "ports": []}

    def _job(self, data: st.DataObject) -> int:
        return data.draw(st.sampled_from(sorted(self.running)))

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def take(self, data: st.DataObject) -> None:
        number = self._job(data)
        ec_id, held = f"job-{number}", self.running[number]
        held["macs"].append(self.config.reserving_for(ec_id).generate_mac())
        held["minors"].append(self.config.reserving_for(ec_id).allocate_minors(NODES))
        held["ports"].append(commit(self.config).ports.allocate())
        try:
            held["ips"].append(self.config.reserving_for(ec_id).generate_ip(NET))
        except errors.AddressPoolError:
            pool = AddressPool(self.config.network(NET))
            reserved = sum(len(one["ips"]) for one in self.running.values())
            assert pool.free_count == reserved

    @precondition(lambda self: self.running)
    @rule(data=st.data(), last=st.integers(0, 15))
    def ask_for_an_address(self, data: st.DataObject, last: int) -> None:
        number = self._job(data)
        address = f"198.51.1.{last}"
        holders = [one for one, held in self.running.items() if address in held["ips"]]
        pool = AddressPool(self.config.network(NET))
        try:
            self.config.reserving_for(f"job-{number}").reserve_ip(NET, address)
        except errors.ReservationError:
            assert not pool.is_free(address) or (holders and holders != [number])
        else:
            assert pool.is_free(address)
            assert holders in ([], [number])
            if not holders:
                self.running[number]["ips"].append(address)

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        number = self._job(data)
        held = self.running.pop(number)
        ec_id = f"job-{number}"
        addresses = iter([*held["ips"], *[None] * len(held["macs"])])
        nics = tuple(_nic(mac, next(addresses)) for mac in held["macs"])
        disks = [
            _drbd(f"{number}-{place}", held["ports"][place], minors, place)
            for place, minors in enumerate(held["minors"])
        ]
        commit(self.config).instances.add(
            dataclasses.replace(
                _guest(number), nics=nics, disks=tuple(disk.uuid for disk in disks)
            ),
            disks,
            ec_id,
        )
        self.config.reserving_for(ec_id).release_reservations()
        self.done[number] = instance_of(number).uuid

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def give_up(self, data: st.DataObject) -> None:
        number = self._job(data)
        for port in self.running.pop(number)["ports"]:
            commit(self.config).ports.release(port)
        self.config.reserving_for(f"job-{number}").release_reservations()

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def fail_in_the_middle(self, data: st.DataObject) -> None:
        """A transaction which throws leaves index and pools as they were."""
        number = self._job(data)
        held = self.running[number]
        with pytest.raises(KeyError), self.config.transaction() as change:
            change.instances.add(
                dataclasses.replace(
                    _guest(number), nics=tuple(_nic(mac, None) for mac in held["macs"])
                ),
                [],
                f"job-{number}",
            )
            for uuid in self.done.values():
                change.instances.remove(uuid)
            raise KeyError

    @precondition(lambda self: self.done)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.done)))
        commit(self.config).instances.remove(self.done.pop(number))

    @invariant()
    def nothing_is_taken_twice(self) -> None:
        for kind in ("macs", "ips"):
            held = [value for one in self.running.values() for value in one[kind]]
            had = [
                nic.mac if kind == "macs" else nic.ip
                for uuid in self.done.values()
                for nic in self.config.instance(uuid).nics
            ]
            values = [*held, *(value for value in had if value is not None)]
            assert len(values) == len(set(values)), (kind, values)
        for place in (0, 1):
            minors = [pair[place] for one in self.running.values() for pair in one["minors"]]
            minors += [disk.logical_id[3 + place] for disk in self.config.snapshot().disks.values()]
            assert len(minors) == len(set(minors)), minors
        ports = [port for one in self.running.values() for port in one["ports"]]
        ports += [disk.logical_id[2] for disk in self.config.snapshot().disks.values()]
        assert len(ports) == len(set(ports)), ports

    @invariant()
    def the_configuration_holds_together(self) -> None:
        data = self.config.snapshot()
        assert verify.check(data) == []
        had = {nic.ip for instance in data.instances.values() for nic in instance.nics if nic.ip}
        pool = AddressPool(data.networks[NET])
        assert set(pool.taken_addresses(external=False)) == had
        assert self.config._store._index._owners == Index(data)._owners


TestJobs = Jobs.TestCase
TestJobs.settings = settings(max_examples=25, stateful_step_count=20, deadline=None)


def test_threads_never_get_the_same() -> None:
    config = _config()
    found: list[tuple[str, tuple[int, ...], int]] = []

    def work(number: int) -> None:
        for turn in range(10):
            ec_id = f"{number}-{turn}"
            found.append(
                (
                    config.reserving_for(ec_id).generate_mac(),
                    config.reserving_for(ec_id).allocate_minors(NODES[:1]),
                    commit(config).ports.allocate(),
                )
            )

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for values in zip(*found, strict=True):
        assert len(set(values)) == 40
    assert sorted(minors[0] for _mac, minors, _port in found) == list(range(40))


def test_the_lowest_minor_first_and_again_when_it_is_free() -> None:
    config = _config()
    assert config.reserving_for("a").allocate_minors((NODES[0], NODES[1], NODES[0])) == (0, 0, 1)
    assert config.reserving_for("b").allocate_minors(NODES) == (2, 1)
    config.reserving_for("a").release_reservations()
    assert config.reserving_for("c").allocate_minors(NODES) == (0, 0)
    with pytest.raises(errors.ConfigurationError, match="node x is not in"):
        config.reserving_for("c").allocate_minors(("x",))


def test_a_minor_in_use_is_refused() -> None:
    config = _config()
    disk = _drbd("a", 11000, (0, 0))
    commit(config).instances.add(dataclasses.replace(_guest(2), disks=(disk.uuid,)), [disk], "a")
    other = _drbd("b", 11001, (0, 5))
    with pytest.raises(errors.ConfigurationError, match="DRBD minor 0 is already in use"):
        commit(config).instances.add(
            dataclasses.replace(_guest(3), disks=(other.uuid,)), [other], "b"
        )


def test_addresses_follow_the_nics() -> None:
    config = _config()
    commit(config).instances.add(
        _guest(2, nics=(_nic("aa:00:00:00:00:02", "198.51.1.5"),)), [], "a"
    )
    assert AddressPool(config.network(NET)).taken_addresses(external=False) == ["198.51.1.5"]
    serial = config.network(NET).serial_no
    for address in ("198.51.1.6", "198.51.1.0", "198.51.1.20"):
        try:
            commit(config).instances.update(
                dataclasses.replace(
                    config.instance(instance_of(2).uuid), nics=(_nic("aa:00:00:00:00:02", address),)
                )
            )
        except errors.AddressPoolError:
            assert address == "198.51.1.20"
    assert AddressPool(config.network(NET)).taken_addresses(external=False) == ["198.51.1.0"]
    assert config.network(NET).serial_no == serial + 2
    with pytest.raises(errors.ConfigurationError, match="IP address 198.51.1.0 is already in use"):
        commit(config).instances.add(
            _guest(3, nics=(_nic("aa:00:00:00:00:03", "198.51.1.0"),)), [], "a"
        )
    config.reserving_for("other").reserve_ip(NET, "198.51.1.9")
    with pytest.raises(errors.ConfigurationError, match="198.51.1.9 is already in use"):
        commit(config).instances.add(
            _guest(3, nics=(_nic("aa:00:00:00:00:03", "198.51.1.9"),)), [], "a"
        )
    commit(config).instances.remove(instance_of(2).uuid)
    assert AddressPool(config.network(NET)).taken_addresses(external=False) == []


def test_addresses_of_others() -> None:
    config = _config()
    with pytest.raises(errors.ReservationError, match="for use outside"):
        config.reserving_for("a").reserve_ip(NET, "198.51.1.1")
    config.reserving_for("a").reserve_ip(NET, "198.51.1.1", external_ok=True)
    config.reserving_for("b").release_reservations()
    with pytest.raises(errors.ReservationError, match="198.51.1.1 is reserved by another"):
        config.reserving_for("b").reserve_ip(NET, "198.51.1.1", external_ok=True)
    config.reserving_for("a").release_reservations()
    config.reserving_for("b").reserve_ip(NET, "198.51.1.1", external_ok=True)
    with pytest.raises(errors.AddressPoolError, match="not in network"):
        config.reserving_for("a").reserve_ip(NET, "198.51.2.1")


def test_a_name_or_volume_is_taken_once() -> None:
    config = _config()
    config.reserving_for("a").reserve_lv("vg/a")
    config.reserving_for("a").reserve_lv("vg/a")
    with pytest.raises(errors.ReservationError, match="vg/a is reserved by another"):
        config.reserving_for("b").reserve_lv("vg/a")
    config.reserving_for("a").release_reservations()
    disk = dataclasses.replace(disk_of(2), dev_type=disk_const.PLAIN, logical_id=("vg", "a"))
    commit(config).instances.add(dataclasses.replace(_guest(2), disks=(disk.uuid,)), [disk], "b")
    with pytest.raises(errors.ReservationError, match="vg/a is already in use"):
        config.reserving_for("c").reserve_lv("vg/a")
    with pytest.raises(errors.ReservationError, match="already in use"):
        config.reserving_for("c").reserve_instance_name(instance_of(2).name)
    assert config.reserving_for("c").new_uuid() != config.reserving_for("c").new_uuid()


def test_nothing_is_reserved_for_an_unknown_execution() -> None:
    config = _config()
    config.reserving_for("a").reserve_lv("vg/a")
    with pytest.raises(errors.ProgrammerError):
        config.reserve_lv("vg/b")
    assert config.reserved_volumes() == {"vg/a"}


def test_after_a_write_that_failed_all_is_as_before() -> None:
    full = [False]

    def write(_path: str, _text: object) -> None:
        if full[0]:
            raise OSError(28, "No space left on device")

    config = Config(ConfigStore(LocalFile("config.data", write), _cluster()))
    full[0] = True
    with pytest.raises(errors.ConfigurationError):
        commit(config).instances.add(
            _guest(2, nics=(_nic("aa:00:00:00:00:02", "198.51.1.5"),)), [], "a"
        )
    full[0] = False
    config.reserving_for("b").reserve_instance_name(instance_of(2).name)
    config.reserving_for("b").reserve_ip(NET, "198.51.1.5")
    config.reserving_for("b").reserve_mac("aa:00:00:00:00:02")
    commit(config).instances.add(
        _guest(2, nics=(_nic("aa:00:00:00:00:02", "198.51.1.5"),)), [], "b"
    )


def test_a_node_without_a_free_minor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "MINORS", 2)
    config = _config().reserving_for("a")
    assert config.allocate_minors(NODES[:1] * 2) == (0, 1)
    with pytest.raises(errors.OpPrereqError, match="all 2 DRBD minors of node .* are in use"):
        config.allocate_minors(NODES[:1])
