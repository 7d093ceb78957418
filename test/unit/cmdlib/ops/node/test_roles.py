"""The table of node roles: every pair, every requested flag, and what the unit makes of them."""

from __future__ import annotations

import itertools

import pytest

from fakes.config import cluster_of, instance_of, node_of, uuid_of
from fakes.master import Master
from ganeti import errors
from ganeti.cmdlib.ops.node.roles import (
    TRANSITIONS,
    RequestedFlags,
    Role,
    requested_role,
    role_of,
    transition,
)
from ganeti.opcodes.node import OpNodeSetParams

FLAGS = {
    Role.MASTER: {"master_candidate": True},
    Role.CANDIDATE: {"master_candidate": True},
    Role.REGULAR: {"master_candidate": False},
    Role.DRAINED: {"master_candidate": False, "drained": True},
    Role.OFFLINE: {"master_candidate": False, "offline": True},
}
# How a user asks for a role, from another one.
ASK = {
    Role.CANDIDATE: {"master_candidate": True},
    Role.DRAINED: {"drained": True},
    Role.OFFLINE: {"offline": True},
}
CLEAR = {
    Role.MASTER: {"master_candidate": False},
    Role.CANDIDATE: {"master_candidate": False},
    Role.DRAINED: {"drained": False},
    Role.OFFLINE: {"offline": False},
}
PAIRS = list(itertools.product(Role, Role))


def cluster_with(role, **cluster_changes):
    """Three nodes; the second has the role (for the master: the first)."""
    if role is Role.MASTER:
        return cluster_of(3, **cluster_changes), "node1"
    return cluster_of(3, node_changes={2: FLAGS[role]}, **cluster_changes), "node2"


def test_the_table_is_complete():
    assert set(TRANSITIONS) == set(PAIRS)


@pytest.mark.parametrize("role", Role)
def test_the_role_is_read_from_the_flags(role):
    master = uuid_of("node2") if role is Role.MASTER else uuid_of("node1")
    assert role_of(node_of(2, **FLAGS[role]), master) is role


@pytest.mark.parametrize(("present", "wanted"), PAIRS)
def test_every_pair_through_the_unit(present, wanted):
    """What the table says is what happens to the configuration and on the wire."""
    # A full pool, so that nothing becomes a candidate by itself.
    size = 3 if present in (Role.CANDIDATE, Role.MASTER) else 2
    data, name = cluster_with(present, candidate_pool_size=size)
    master = Master(data)
    if present is not wanted and (
        wanted is Role.MASTER or (present, wanted) == (Role.MASTER, Role.CANDIDATE)
    ):
        # There are no flags for it: only the table itself can be asked.
        with pytest.raises(errors.OpPrereqError, match="master-failover"):
            transition(name, present, wanted)
        return
    flags = ASK.get(wanted) or CLEAR.get(present) or {"drained": False}
    if wanted is Role.MASTER:
        flags = {"master_candidate": True}
    op = OpNodeSetParams(node_name=name, force=True, **flags)
    rule = TRANSITIONS[present, wanted]
    if rule.refusal:
        assert "master-failover" in master.refused(op, errors.ECODE_INVAL)
        return
    changes = dict(master.run(op))
    node = master.config.node_by_name(f"{name}.example.com")
    assert role_of(node, data.cluster.master_node) is wanted
    assert (changes == {}) == (present is wanted)
    was_listed = present in (Role.MASTER, Role.CANDIDATE)
    certs = master.config.cluster().candidate_certs
    assert rule.enlists == (certs.get(node.uuid) == f"CC:{node.name}")
    assert rule.leaves == (was_listed and node.uuid not in certs)
    assert rule.answers == ("version" in master.rpc.names())


@pytest.mark.parametrize("present", [Role.CANDIDATE])
@pytest.mark.parametrize("wanted", [Role.REGULAR, Role.DRAINED, Role.OFFLINE])
def test_leaving_the_pool_needs_somebody_else_or_force(present, wanted):
    data = cluster_of(3, node_changes={3: {"master_candidate": False}}, candidate_pool_size=2)
    flags = ASK.get(wanted) or CLEAR[present]
    master = Master(data)
    text = master.refused(OpNodeSetParams(node_name="node2", **flags), errors.ECODE_STATE)
    assert "--auto-promote" in text
    master.run(OpNodeSetParams(node_name="node2", auto_promote=True, **flags))
    third = master.config.node_by_name("node3.example.com")
    assert third.master_candidate
    assert master.config.cluster().candidate_certs[third.uuid] == f"CC:{third.name}"


@pytest.mark.parametrize("present", [Role.DRAINED, Role.OFFLINE])
def test_a_node_that_comes_back_fills_a_gap(present):
    data, name = cluster_with(present)
    master = Master(data)
    result = master.run(OpNodeSetParams(node_name=name, **CLEAR[present]))
    assert ("master_candidate", "True") in result
    assert master.job.said("fewer than candidate_pool_size")
    data, name = cluster_with(present)
    regular = Master(data)
    regular.run(OpNodeSetParams(node_name=name, master_candidate=False, **CLEAR[present]))
    assert not regular.config.node_by_name(f"{name}.example.com").master_candidate


def role_after(present, *, master_capable=True, pool_not_full=False, **flags):
    return requested_role(
        "n",
        present,
        RequestedFlags(**flags),
        master_capable=master_capable,
        pool_not_full=pool_not_full,
    )


def test_clearing_what_is_not_set_changes_nothing():
    assert role_after(Role.REGULAR, drained=False, offline=False) is Role.REGULAR
    assert role_after(Role.CANDIDATE, drained=False, offline=False) is Role.CANDIDATE
    assert role_after(Role.OFFLINE, drained=False, pool_not_full=True) is Role.OFFLINE
    assert role_after(Role.DRAINED, master_candidate=False) is Role.DRAINED


def test_all_flags_at_once_name_one_role():
    # As REST clients ask for a role.
    assert (
        role_after(Role.OFFLINE, master_candidate=True, offline=False, drained=False)
        is Role.CANDIDATE
    )
    assert (
        role_after(
            Role.DRAINED, master_candidate=False, offline=False, drained=False, pool_not_full=True
        )
        is Role.REGULAR
    )


def test_who_may_not_be_master_is_no_candidate():
    with pytest.raises(errors.OpPrereqError, match="capable"):
        role_after(Role.REGULAR, master_candidate=True, master_capable=False)
    assert role_after(Role.CANDIDATE, master_capable=False) is Role.REGULAR
    back = role_after(Role.OFFLINE, offline=False, master_capable=False, pool_not_full=True)
    assert back is Role.REGULAR


def test_who_becomes_capable_fills_a_gap():
    data = cluster_of(2, node_changes={2: {"master_candidate": False, "master_capable": False}})
    master = Master(data)
    result = master.run(OpNodeSetParams(node_name="node2", master_capable=True))
    assert result == [("master_capable", "True"), ("master_candidate", "True")]


@pytest.mark.parametrize(
    "flags",
    [
        {"master_candidate": True, "drained": True},
        {"drained": True, "offline": True},
        {"master_candidate": True, "offline": True},
    ],
)
def test_two_roles_at_once_are_refused(flags):
    with pytest.raises(errors.OpPrereqError, match="only one"):
        role_after(Role.REGULAR, **flags)


def test_an_offline_node_with_instances_is_pointed_out():
    master = Master(cluster_of(3, (instance_of("web", "node2"),)))
    master.run(OpNodeSetParams(node_name="node2", offline=True))
    assert master.job.said("primary node of web.example.com")
    assert master.job.said("gnt-node evacuate node2")


# -- power and addresses ---------------------------------------------------------

OOB = {"oob_program": "/usr/bin/oob"}


def test_power_goes_with_offline():
    master = Master(cluster_of(3, node_changes={2: {"ndparams": OOB}}))
    text = master.refused(OpNodeSetParams(node_name="node2", powered=False), errors.ECODE_STATE)
    assert "not marked offline" in text
    master.run(OpNodeSetParams(node_name="node2", offline=True, powered=False))
    assert not master.config.node(uuid_of("node2")).powered
    text = master.refused(OpNodeSetParams(node_name="node2", offline=False), errors.ECODE_STATE)
    assert "powered off" in text
    master.run(OpNodeSetParams(node_name="node2", offline=False, powered=True))
    node = master.config.node(uuid_of("node2"))
    assert node.powered
    assert not node.offline


def test_a_secondary_address_must_be_the_nodes_own():
    changes = {n: {"secondary_ip": f"198.51.100.{n}"} for n in (1, 2, 3)}
    master = Master(cluster_of(3, node_changes=changes))
    op = OpNodeSetParams(node_name="node2", secondary_ip="198.51.100.20")
    master.rpc.answers["node_has_ip_address"] = False
    assert "does not have" in master.refused(op, errors.ECODE_ENVIRON)
    master.rpc.answers["node_has_ip_address"] = True
    assert master.run(op) == [("secondary_ip", "198.51.100.20")]
    assert master.config.node(uuid_of("node2")).secondary_ip == "198.51.100.20"


def test_all_nodes_have_a_secondary_address_or_none():
    master = Master(cluster_of(3))
    op = OpNodeSetParams(node_name="node2", secondary_ip="198.51.100.20")
    assert "must be alike" in master.refused(op, errors.ECODE_INVAL)
    op = OpNodeSetParams(node_name="node1", secondary_ip="198.51.100.20")
    assert "--force" in master.refused(op, errors.ECODE_INVAL)
