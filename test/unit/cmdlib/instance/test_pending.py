"""Changes which wait for the next start of the guest."""

from __future__ import annotations

import pytest

from fakes.config import cluster_of, disk_of, instance_of, uuid_of
from fakes.master import Master
from ganeti.opcodes.instance import (
    OpInstanceQueryData,
    OpInstanceReboot,
    OpInstanceSetParams,
    OpInstanceShutdown,
    OpInstanceStartup,
)


@pytest.fixture
def master() -> Master:
    disks = (disk_of("web", 0),)
    web = instance_of("web", disks=(disks[0].uuid,), admin_state="up", disks_active=True)
    made = Master(cluster_of(2, (web,), disks))
    made.rpc.run("web", "node1")
    return made


def pending(master: Master):
    return master.config.instance(uuid_of("web")).pending_changes


def modify(master: Master, **changes) -> None:
    master.run(OpInstanceSetParams(instance_name="web", ignore_ipolicy=True, force=True, **changes))


def test_a_change_waits_and_is_named_until_the_start(master: Master) -> None:
    before = master.config.filled(master.config.instance(uuid_of("web"))).beparams["maxmem"]
    modify(master, beparams={"maxmem": 256})
    assert pending(master) == {"be/maxmem": before}
    (facts,) = master.run(OpInstanceQueryData(instances=["web"])).values()
    assert facts["pending_changes"] == ["be/maxmem"]
    master.run(OpInstanceReboot(instance_name="web", reboot_type="soft"))
    assert pending(master) is not None
    master.run(OpInstanceReboot(instance_name="web", reboot_type="hard"))
    assert pending(master) is None


def test_a_change_back_waits_no_more(master: Master) -> None:
    modify(master, beparams={"vcpus": 3})
    modify(master, beparams={"vcpus": 2})
    assert pending(master) == {"be/vcpus": 1}
    modify(master, beparams={"vcpus": 1})
    assert pending(master) is None


def test_what_a_start_does_not_give_to_the_guest_does_not_wait(master: Master) -> None:
    modify(master, beparams={"auto_balance": False, "spindle_use": 2})
    assert pending(master) is None


def test_a_stop_and_a_start_forget_it(master: Master) -> None:
    modify(master, beparams={"vcpus": 3})
    master.run(OpInstanceShutdown(instance_name="web", no_remember=True))
    assert pending(master) is not None
    master.run(OpInstanceStartup(instance_name="web"))
    assert pending(master) is None
    modify(master, beparams={"vcpus": 4})
    master.run(OpInstanceShutdown(instance_name="web"))
    assert pending(master) is None
    modify(master, beparams={"vcpus": 5})
    assert pending(master) is None


def test_a_device_which_is_not_plugged_waits(master: Master) -> None:
    modify(master, nics=[["add", -1, {}]], hotplug=False)
    assert pending(master) == {"nic/1": "add"}


def test_nodes_do_not_get_the_record(master: Master) -> None:
    modify(master, beparams={"vcpus": 3})
    instance = master.config.instance(uuid_of("web"))
    assert master.config.filled(instance).pending_changes is None
