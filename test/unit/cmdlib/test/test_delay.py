"""Delays on nodes: repeated, with locks, refused, failed."""

from __future__ import annotations

import pytest

from fakes.config import cluster_of, uuid_of
from fakes.master import Master
from ganeti import errors
from ganeti.cmdlib import base
from ganeti.opcodes.test import OpTestDelay


@pytest.fixture
def master():
    return Master(cluster_of(2))


def test_a_delay_on_nodes(master):
    op = OpTestDelay(duration=0.0, on_master=False, on_nodes=["node1", "node2"], repeat=2)
    assert master.run(op) is None
    assert len(master.rpc.of("test_delay")) == 4
    assert master.job.said("round 2 of 2")


def test_a_delay_may_hold_locks(master):
    held = {}
    op = OpTestDelay(duration=0.0, on_master=False, on_nodes=["node2"], no_locks=False)
    master.rpc.answers["test_delay"] = lambda node, args: held.update(
        master.locks.owned(master.job.owner, base.Level.NODE)
    )
    master.run(op)
    assert held == {uuid_of("node2"): "exclusive"}


def test_a_negative_delay_is_refused(master):
    master.refused(OpTestDelay(duration=-1.0), errors.ECODE_INVAL)


def test_a_delay_that_fails_on_a_node(master):
    master.rpc.errors["test_delay"] = "broken"
    assert "broken" in master.failed(OpTestDelay(duration=0.0, on_nodes=["node1"]))
