"""First and last job of a cluster, and the distribution of its files."""

from __future__ import annotations

import os

import pytest

from fakes.config import cluster_of, instance_of, uuid_of
from fakes.master import Master
from ganeti import errors
from ganeti.opcodes.cluster import OpClusterDestroy, OpClusterPostInit, OpClusterRedistConf
from ganeti.platform import paths

NODE1, NODE2, NODE3 = (f"node{number}.example.com" for number in (1, 2, 3))


@pytest.fixture
def root(tmp_path):
    """Files of this node below a directory of the test."""
    with paths.override(paths.Paths(str(tmp_path))) as here:
        yield paths.current() if here is None else here


def test_post_init_tells_the_hooks_of_the_master():
    master = Master(cluster_of(1))
    assert master.run(OpClusterPostInit()) is True
    assert master.rpc.hooks() == [("cluster-init", "post", NODE1)]


def test_destroy_tells_the_hooks_and_gives_up_the_address():
    master = Master(cluster_of(1))
    assert master.run(OpClusterDestroy()) == uuid_of("node1")
    assert master.rpc.hooks() == [("cluster-destroy", "post", NODE1)]
    assert master.rpc.of("node_deactivate_master_ip")[0][1]["master_params"].ip == "192.0.2.100"


def test_destroy_refuses_while_something_is_left():
    text = Master(cluster_of(2)).refused(OpClusterDestroy(), errors.ECODE_INVAL)
    assert NODE2 in text
    text = Master(cluster_of(1, (instance_of("web"),))).refused(
        OpClusterDestroy(), errors.ECODE_INVAL
    )
    assert "web.example.com" in text


def test_destroy_goes_on_when_the_address_stays():
    master = Master(cluster_of(1))
    master.rpc.errors["node_deactivate_master_ip"] = "no such device"
    master.run(OpClusterDestroy())
    assert master.job.said("no such device")


def test_redistribution_copies_files_and_warns(root):
    master = Master(cluster_of(3))
    path = root.rapi_cert_file
    paths_made = path.rpartition("/")[0]
    os.makedirs(paths_made)
    with open(path, "w", encoding="utf-8") as stream:
        stream.write("pem")
    master.rpc.errors["upload_file", NODE3] = "disk full"
    master.run(OpClusterRedistConf())
    assert [node for node, _args in master.rpc.of("upload_file")] == [NODE2, NODE3]
    assert master.job.said(f"was not copied to node {NODE3}")


def test_redistribution_removes_copies_which_only_candidates_need(root):
    changes = {2: {"master_candidate": False}, 3: {"master_candidate": False, "offline": True}}
    master = Master(cluster_of(3, node_changes=changes))
    master.rpc.errors["node_demote_from_mc"] = errors.NodeUnreachable(
        NODE2, "node_demote_from_mc", "no connection"
    )
    master.run(OpClusterRedistConf())
    assert [node for node, _args in master.rpc.of("node_demote_from_mc")] == [NODE2]
    assert master.job.said(f"node {NODE2} keeps old copies of configuration and jobs")
