"""What a guest that runs learns of changes."""

from __future__ import annotations

from typing import Any

import pytest

from fakes.config import cluster_of, instance_of
from fakes.master import Master
from ganeti import ht
from ganeti.objects import Nic
from ganeti.opcodes.instance import OpInstanceSetParams

NIC = Nic(
    mac="52:54:00:00:00:01",
    ip="169.254.0.9",
    name="ganeti:communication:web.example.com",
    nicparams={"mode": "routed", "link": "communication_rt"},
    uuid="nic-uuid",
)


def master_of(**changes: Any) -> Master:
    values = {
        "nics": (NIC,),
        "admin_state": "up",
        "osparams": {"size": "1"},
        "osparams_private": ht.PrivateDict({"user": "joe"}),
    }
    return Master(
        cluster_of(
            2, (instance_of("web", **{**values, **changes}),), osparams={"noop": {"colour": "red"}}
        )
    )


def modify(**changes: Any) -> OpInstanceSetParams:
    return OpInstanceSetParams(instance_name="web", **changes)


def test_new_parameters_reach_the_guest():
    master = master_of()
    master.run(modify(osparams={"size": "2"}))
    ((node, args),) = master.rpc.of("instance_metadata_modify")
    told = args["instance"]
    assert node == "node1.example.com"
    assert told["osparams_public"] == {"colour": "red", "size": "2"}
    assert (told["osparams_private"], told["osparams_secret"]) == ({"user": "joe"}, {})
    assert told["name"] == "web.example.com" and told["nics"][0]["ip"] == "169.254.0.9"
    assert "hvparams" not in told


@pytest.mark.parametrize(
    ("instance", "changes"),
    [
        ({"nics": ()}, {"osparams": {"size": "2"}}),
        ({"admin_state": "down"}, {"osparams": {"size": "2"}}),
        ({}, {"beparams": {"vcpus": 2}}),
    ],
)
def test_nobody_is_told_what_does_not_concern_it(instance, changes):
    master = master_of(**instance)
    master.run(modify(**changes))
    assert "instance_metadata_modify" not in master.rpc.names()


def test_a_node_that_cannot_tell_is_a_warning():
    master = master_of()
    master.rpc.errors["instance_metadata_modify"] = "no daemon"
    master.run(modify(osparams={"size": "2"}))
    assert master.job.said("only at its next start: no daemon")
    assert master.config.expand_instance("web").osparams == {"size": "2"}
