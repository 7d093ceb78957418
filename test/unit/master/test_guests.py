"""What the master asks the nodes about running guests."""

from __future__ import annotations

from typing import Any

import pytest

from fakes.config import FakeConfig, cluster_of, instance_of
from fakes.rpc import FakeRpc
from ganeti import errors
from ganeti.cmdlib.base import MasterContext
from ganeti.locking import LockManager
from ganeti.master.queries import guests
from ganeti.objects import ConfigData, hvparams, updated

USED = dict.fromkeys(
    ("cpu_s", "memory", "vcpus", "disk_read", "disk_written", "net_in", "net_out"), 1
)
PART = {"text": "boot\n", "position": "0:5", "lost": False}


def context_of(**changes: Any) -> MasterContext:
    web = updated(instance_of("web", "node1"), **{"hypervisor": "kvm", **changes})
    data: ConfigData = cluster_of(2, enabled_hypervisors=("kvm", "fake"))
    data = updated(
        data,
        instances={web.uuid: web},
        cluster=updated(data.cluster, hvparams={"kvm": hvparams.defaults("kvm")}),
    )
    config = FakeConfig(data)
    return MasterContext(config, LockManager({}), FakeRpc(config))  # type: ignore[arg-type]


def test_the_log_is_read_on_the_primary_node() -> None:
    context = context_of()
    asked: list[Any] = []

    def answer(node: str, args: dict[str, Any]) -> dict[str, Any]:
        asked.append((node, args))
        return PART

    context.rpc.answers["console_log_read"] = answer  # type: ignore[attr-defined]
    found = guests.read_console_log(context, "web", 7, "")
    assert found == {**PART, "node": "node1.example.com"}
    (instance,) = context.config.instances()
    assert asked == [
        ("node1.example.com", {"instance_uuid": instance.uuid, "lines": 7, "position": ""})
    ]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"hypervisor": "fake"},
            "hypervisor fake of instance web.example.com keeps no console log",
        ),
        ({"hvparams": {"serial_console": False}}, "hypervisor parameter serial_console to yes"),
        ({"forthcoming": True}, "is forthcoming"),
    ],
)
def test_why_there_is_no_log(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(errors.OpPrereqError, match=words):
        guests.read_console_log(context_of(**changes), "web", 7, "")


def test_a_node_without_the_file_says_from_when_on_there_is_one() -> None:
    context = context_of()
    context.rpc.answers["console_log_read"] = {}  # type: ignore[attr-defined]
    with pytest.raises(errors.OpPrereqError, match="kept from the next start"):
        guests.read_console_log(context, "web", 7, "")


def test_an_unknown_instance() -> None:
    with pytest.raises(errors.OpPrereqError, match="nosuch"):
        guests.read_console_log(context_of(), "nosuch", 7, "")


def test_usage_of_all_nodes_in_one_fan_out() -> None:
    context = context_of()
    context.rpc.answers["guests_usage"] = lambda node, args: (  # type: ignore[attr-defined]
        {"clock": 5.0, "guests": {f"guest-{node}": USED}}
    )
    found = guests.usage(context)
    assert found["failures"] == {}
    assert found["guests"] == [
        {"name": f"guest-{node}", "node": node, "clock": 5.0, **USED}
        for node in ("node1.example.com", "node2.example.com")
    ]
