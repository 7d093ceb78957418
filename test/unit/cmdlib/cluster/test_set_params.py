"""Changing the parameters of the cluster: what is refused, what is merged, what follows."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from fakes.config import GROUP, cluster_of, commit, disk_of, instance_of, node_of, uuid_of
from fakes.master import Master
from ganeti import errors, ht
from ganeti.locking import Level
from ganeti.opcodes.cluster import OpClusterSetParams
from ganeti.opcodes.network import OpNetworkAdd, OpNetworkConnect
from ganeti.platform import machine, paths
from ganeti.platform.real import RealMachine

NODE1, NODE2, NODE3 = (f"node{number}.example.com" for number in (1, 2, 3))


def change(master: Master, **values: Any) -> Any:
    return master.run(OpClusterSetParams(**values))


def refused(master: Master, ecode: str = errors.ECODE_INVAL, **values: Any) -> str:
    return master.refused(OpClusterSetParams(**values), ecode)


@pytest.mark.parametrize(
    ("given", "attribute", "stored"),
    [
        ({"mac_prefix": "AA:00:11"}, "mac_prefix", "aa:00:11"),
        ({"max_running_jobs": 7}, "max_running_jobs", 7),
        ({"max_tracked_jobs": 30}, "max_tracked_jobs", 30),
        ({"maintain_node_health": True}, "maintain_node_health", True),
        ({"prealloc_wipe_disks": True}, "prealloc_wipe_disks", True),
        ({"enabled_user_shutdown": True}, "enabled_user_shutdown", True),
        ({"rapi_require_authentication": True}, "rapi_require_authentication", True),
        ({"job_execution": "processes"}, "job_execution", "processes"),
        ({"auto_instance_failover": 15}, "auto_instance_failover", 15),
        ({"auto_failover": 5}, "auto_failover", 5),
        ({"node_watchdog": 10}, "node_watchdog", 10),
        (
            {"auto_balance": {"moves_per_hour": 2}},
            "auto_balance",
            {"moves_per_hour": 2, "min_gain": 0.01},
        ),
        ({"install_image": "http://example.com/i"}, "install_image", "http://example.com/i"),
        ({"zeroing_image": "/srv/zero"}, "zeroing_image", "/srv/zero"),
        ({"compression_tools": ["gzip", "lzop"]}, "compression_tools", ("gzip", "lzop")),
        ({"reserved_lvs": ["xenvg/swap.*"]}, "reserved_lvs", ("xenvg/swap.*",)),
        ({"default_iallocator_params": {"a": "b"}}, "default_iallocator_params", {"a": "b"}),
        ({"gluster_storage_dir": "/run/other/"}, "gluster_storage_dir", "/run/other"),
        ({"uid_pool": [[30, 40], [10, 20]]}, "uid_pool", ((10, 20), (30, 40))),
        ({"vg_name": "xenvg"}, "volume_group_name", "xenvg"),
        ({"drbd_helper": "/bin/true"}, "drbd_usermode_helper", "/bin/true"),
        ({"hidden_os": [["add", "a"], ["add", "b"], ["remove", "a"]]}, "hidden_os", ("b",)),
        ({"blacklisted_os": [["add", "a"]]}, "blacklisted_os", ("a",)),
        (
            {"hv_state": {"fake": {"mem_total": "1024"}}},
            "hv_state_static",
            {"fake": {"mem_total": 1024}},
        ),
        (
            {"disk_state": {"plain": {"xenvg": {"disk_total": 9}}}},
            "disk_state_static",
            {"plain": {"xenvg": {"disk_total": 9}}},
        ),
    ],
)
def test_plain_values(given: dict[str, Any], attribute: str, stored: Any) -> None:
    master = Master(cluster_of(2))
    facts = {"vglist": {"xenvg": 1 << 20}, "drbd-helper": [True, "/bin/true"]}
    master.rpc.answers["node_verify"] = lambda node, args: {
        name: facts[name] for name in args["checks"]
    }
    assert change(master, **given) is None
    assert getattr(master.config.cluster(), attribute) == stored
    assert len(master.config.writes) == 1


def test_dictionaries_are_merged() -> None:
    master = Master(cluster_of(2))
    change(
        master,
        beparams={"memory": 512},
        nicparams={"link": "br7"},
        ndparams={"spindle_count": "3", "oob_program": "/bin/oob"},
        diskparams={"drbd": {"protocol": "B"}},
        hvparams={"kvm": {"kvm_flag": "enabled"}},
    )
    cluster = master.config.cluster()
    assert cluster.beparams["default"]["minmem"] == cluster.beparams["default"]["maxmem"] == 512
    assert cluster.beparams["default"]["vcpus"] == 1
    assert cluster.nicparams["default"] == {"link": "br7", "mode": "bridged", "vlan": ""}
    assert cluster.ndparams["spindle_count"] == 3
    assert cluster.diskparams["drbd"]["protocol"] == "B"
    assert cluster.diskparams["drbd"]["data-stripes"] == 1
    assert cluster.hvparams["kvm"]["kvm_flag"] == "enabled"
    assert cluster.hvparams["kvm"]["acpi"] is True
    change(master, ndparams={"spindle_count": "default"})
    assert master.config.cluster().ndparams["spindle_count"] == 1


@pytest.mark.parametrize(
    ("given", "fact", "fragment"),
    [
        ({"nicparams": {"link": "br7"}}, {"bridges": ["br7"]}, "it has no bridge br7"),
        (
            {"nicparams": {"mode": "openvswitch", "link": "sw7"}},
            {"openvswitch": "there is no Open vSwitch sw7"},
            "there is no Open vSwitch sw7",
        ),
        (
            {"diskparams": {"drbd": {"metavg": "fast"}}},
            {"vglist": {"xenvg": 1024}},
            "it has no volume group fast",
        ),
    ],
)
def test_a_default_which_one_node_cannot_use_is_refused(
    given: dict[str, Any], fact: dict[str, Any], fragment: str
) -> None:
    """Otherwise every later start of a guest with this default would fail."""
    good = {"bridges": [], "openvswitch": None, "vglist": {"xenvg": 1024, "fast": 1024}}
    data = cluster_of(
        2, enabled_disk_templates=("plain", "drbd"), volume_group_name="xenvg",
    )  # fmt: skip
    master = Master(data)
    asked: list[dict[str, Any]] = []

    def answer(node: str, args: dict[str, Any]) -> dict[str, Any]:
        asked.append(args["checks"])
        known = {**good, **fact} if node == NODE2 else good
        return {name: known[name] for name in args["checks"]}

    master.rpc.answers["node_verify"] = answer
    text = refused(master, errors.ECODE_ENVIRON, **given)
    assert text.startswith(f"node {NODE2}: {fragment}")
    assert [list(checks) for checks in asked] == [list(fact)] * 2
    assert not master.config.writes
    change(master, force=True, **given)
    assert master.job.said(f"node {NODE2}: {fragment}")
    assert len(master.config.writes) == 1


def test_a_node_whose_group_has_its_own_volume_group_for_metadata_is_not_asked() -> None:
    """It does not use the one of the cluster."""
    data = cluster_of(
        2,
        enabled_disk_templates=("plain", "drbd"),
        volume_group_name="xenvg",
        node_changes={2: {"group": "group-2"}},
    )
    second = dataclasses.replace(
        data.nodegroups[GROUP],
        name="rack2",
        uuid="group-2",
        diskparams={"drbd": {"metavg": "own"}},
    )
    master = Master(dataclasses.replace(data, nodegroups={**data.nodegroups, "group-2": second}))
    master.rpc.answers["node_verify"] = lambda node, args: {
        name: {"vglist": {"own" if node == NODE2 else "fast": 1024}, "bridges": []}[name]
        for name in args["checks"]
    }
    change(master, diskparams={"drbd": {"metavg": "fast"}})
    assert [node for node, _args in master.rpc.of("node_verify")] == [NODE1]
    # Both are asked for the bridge, and only the first one needs the volume group.
    change(master, diskparams={"drbd": {"metavg": "fast"}}, nicparams={"link": "br7"})
    assert [node for node, _args in master.rpc.of("node_verify")] == [NODE1, NODE1, NODE2]
    # When each group has its own, there is nothing to ask.
    first = dataclasses.replace(second, name="default", uuid=GROUP)
    commit(master.config).groups.update(first)
    change(master, diskparams={"drbd": {"metavg": "none"}})
    assert len(master.rpc.of("node_verify")) == 3
    assert master.config.cluster().diskparams["drbd"]["metavg"] == "none"


def test_mirrored_disks_are_enabled_where_the_nodes_have_the_volume_group_for_metadata() -> None:
    """Each node needs that of its group, else that of the cluster."""
    data = cluster_of(
        2,
        enabled_disk_templates=("plain",),
        volume_group_name="xenvg",
        diskparams={"drbd": {"metavg": "all"}},
        node_changes={2: {"group": "group-2"}},
    )
    second = dataclasses.replace(
        data.nodegroups[GROUP],
        name="rack2",
        uuid="group-2",
        diskparams={"drbd": {"metavg": "own"}},
    )
    present = {NODE1: {"xenvg": 1 << 20, "all": 9}, NODE2: {"xenvg": 1 << 20, "all": 9}}
    master = Master(dataclasses.replace(data, nodegroups={**data.nodegroups, "group-2": second}))
    master.rpc.answers["node_verify"] = lambda node, args: {
        name: {"vglist": present[node], "drbd-helper": [True, "/bin/true"]}[name]
        for name in args["checks"]
    }
    given = {"enabled_disk_templates": ["plain", "drbd"], "drbd_helper": "/bin/true"}
    text = refused(master, errors.ECODE_ENVIRON, **given)
    assert text == f"node {NODE2}: it has no volume group own"
    present[NODE2]["own"] = 9
    del present[NODE2]["all"]
    change(master, **given)
    assert master.config.cluster().enabled_disk_templates == ("plain", "drbd")


def test_nodes_are_not_asked_about_a_default_link_which_stays() -> None:
    master = Master(cluster_of(2))
    change(master, nicparams={"link": "xen-br0"})
    change(master, nicparams={"mode": "routed", "link": "main"})
    assert master.rpc.of("node_verify") == []


def test_names_which_are_given_twice_are_taken_once() -> None:
    master = Master(cluster_of(2))
    change(
        master,
        enabled_disk_templates=["file", "diskless", "file", "sharedfile"],
        enabled_hypervisors=["fake", "kvm", "fake"],
    )
    cluster = master.config.cluster()
    assert cluster.enabled_disk_templates == ("file", "diskless", "sharedfile")
    assert cluster.enabled_hypervisors == ("fake", "kvm")


def test_parameters_of_operating_systems_come_and_go() -> None:
    master = Master(cluster_of(2))
    change(
        master,
        osparams={"noop": {"a": "1", "b": "2"}},
        osparams_private_cluster={"noop": {"secret": "x"}},
        os_hvp={"noop": {"kvm": {"acpi": "false"}}},
    )
    cluster = master.config.cluster()
    assert cluster.osparams == {"noop": {"a": "1", "b": "2"}}
    assert isinstance(cluster.osparams_private_cluster["noop"], ht.PrivateDict)
    assert "x" not in repr(cluster.osparams_private_cluster)
    assert cluster.os_hvp == {"noop": {"kvm": {"acpi": False}}}
    asked = master.rpc.of("os_validate")
    assert [node for node, _args in asked] == [NODE1, NODE2]
    assert asked[0][1]["params"] == {"a": "1", "b": "2", "secret": "x"}
    change(
        master,
        osparams={"noop": {"a": None, "b": "default"}},
        osparams_private_cluster={"noop": {"secret": None}},
        os_hvp={"noop": {"kvm": {"acpi": "default"}}},
    )
    cluster = master.config.cluster()
    assert not cluster.osparams
    assert not cluster.osparams_private_cluster
    assert not cluster.os_hvp


@pytest.mark.parametrize(
    ("given", "fragment"),
    [
        ({"mac_prefix": "zz"}, "'zz' is not the first three bytes"),
        ({"mac_prefix": "01:00:00"}, "multicast addresses"),
        ({"master_netmask": 33}, "1 to 32 bits"),
        ({"master_netdev": ""}, "is empty"),
        ({"enabled_hypervisors": []}, "at least one hypervisor"),
        ({"osparams": {"noop": {"os-image": "x.img"}}}, "os-image must be the absolute path"),
        ({"enabled_disk_templates": []}, "at least one disk template"),
        ({"enabled_disk_templates": ["plain", "file", "diskless", "sharedfile"]}, "volume group"),
        (
            {"enabled_disk_templates": ["file", "diskless", "sharedfile"], "file_storage_dir": ""},
            "needs a directory",
        ),
        ({"file_storage_dir": "relative"}, "is relative"),
        ({"beparams": {"minmem": 1024}}, "above the maximum"),
        ({"beparams": {"nosuch": 1}}, "nosuch"),
        ({"beparams": {"vcpus": "default"}}, "vcpus"),
        ({"nicparams": {"mode": "pool"}}, "NIC mode 'pool'"),
        ({"nicparams": {"link": ""}}, "needs a link"),
        ({"ndparams": {"ssh_port": "x"}}, "ssh_port"),
        ({"diskparams": {"plain": {"protocol": "C"}}}, "has no parameter protocol"),
        ({"diskparams": {"rbd": {"pool": ""}}}, "disk template rbd: pool cannot be ''"),
        ({"diskparams": {"rbd": {"pool": "a/b"}}}, "disk template rbd: pool cannot be 'a/b'"),
        ({"diskparams": {"gluster": {"volume": ""}}}, "gluster: volume cannot be ''"),
        ({"diskparams": {"gluster": {"host": ""}}}, "gluster: host cannot be ''"),
        ({"diskparams": {"drbd": {"protocol": ""}}}, "drbd: protocol cannot be ''"),
        ({"diskparams": {"drbd": {"disk-barriers": "bb"}}}, "disk-barriers cannot be 'bb'"),
        ({"diskparams": {"rbd": {"access": "magic"}}}, "access is one of"),
        ({"hvparams": {"fake": {"migration_mode": "bogus"}}}, "migration_mode"),
        ({"hvparams": {"nosuch": {}}}, "no hypervisor 'nosuch'"),
        ({"hvparams": {"fake": {"acpi": True}}}, "acpi"),
        ({"os_hvp": {"noop": {"kvm": {"migration_port": 1}}}}, "whole cluster only"),
        ({"osparams": {"noop": {"a": True}}}, "needs a value"),
        ({"uid_pool": [[20, 10]]}, "not a range"),
        ({"uid_pool": [[10, 20], [15, 30]]}, "overlap"),
        ({"remove_uids": [[10, 20]]}, "not in one of its ranges"),
        ({"auto_failover": 2}, "3 to 86400 s"),
        ({"auto_failover": 100_000}, "3 to 86400 s"),
        ({"install_image": "relative"}, "neither an absolute path nor a URL"),
        ({"compression_tools": ["lzop"]}, "gzip must be"),
        ({"compression_tools": ["gzip", "../x"]}, "not the name"),
        ({"reserved_lvs": ["("]}, "reserved volumes: bad regular expression '('"),
        ({"reserved_lvs": ["(?!x)"]}, "look-ahead and look-behind cannot be used"),
        ({"enabled_data_collectors": {"nosuch": True}}, "no data collector"),
        ({"data_collector_interval": {"lv": 0}}, "above zero"),
        ({"auto_instance_failover": 1}, "5 to 3600 s"),
        ({"node_watchdog": 4}, "5 to 120 s"),
        ({"drbd_helper": "drbdadm"}, "not an absolute path"),
        ({"ipolicy": {"nosuch": 1}}, "unknown key"),
        ({"ipolicy": {"minmax": "default"}}, "cannot have the value default"),
        ({"ipolicy": {"disk-templates": ["plain"]}}, "not enabled: plain"),
        ({"ipolicy": {"std": {"memory-size": 1}}}, "outside of every"),
        ({"hidden_os": [["attach", "a"]]}, "must be add or remove"),
        ({"hv_state": {"nosuch": {}}}, "nosuch"),
    ],
)
def test_wrong_values_change_nothing(given: dict[str, Any], fragment: str) -> None:
    assert fragment in refused(Master(cluster_of(1)), **given)


def test_uid_pool_grows_and_shrinks() -> None:
    master = Master(cluster_of(1, uid_pool=((10, 20),)))
    change(master, add_uids=[[30, 30]], remove_uids=[[12, 13]])
    assert master.config.cluster().uid_pool == ((10, 11), (14, 20), (30, 30))


def test_what_instances_use_cannot_be_disabled() -> None:
    disk = disk_of("web")
    data = cluster_of(1, (instance_of("web", disks=(disk.uuid,)),), (disk,))
    text = refused(Master(data), errors.ECODE_STATE, enabled_hypervisors=["kvm"])
    assert "web.example.com" in text
    text = refused(Master(data), errors.ECODE_STATE, enabled_disk_templates=["file", "diskless"])
    assert "sharedfile" in text
    assert "web.example.com" in text
    master = Master(data)
    change(master, enabled_disk_templates=["sharedfile"])
    assert master.config.cluster().ipolicy["disk-templates"] == [
        name for name in data.cluster.ipolicy["disk-templates"] if name not in ("file", "diskless")
    ]
    assert master.job.said("the disabled disk templates are removed from the instance policy")


def test_a_change_that_breaks_an_instance_is_refused() -> None:
    data = cluster_of(1, (instance_of("web"),))
    text = refused(Master(data), errors.ECODE_STATE, nicparams={"mode": "routed"})
    assert "web.example.com: nic 0: mode routed needs an address" in text
    data = cluster_of(1, (instance_of("web", beparams={"maxmem": 256}),))
    text = refused(Master(data), errors.ECODE_STATE, beparams={"memory": 512})
    assert "minmem 512 is above maxmem 256" in text


def test_exclusive_storage_is_for_plain_disks() -> None:
    disk = disk_of("web")
    data = cluster_of(1, (instance_of("web", disks=(disk.uuid,)),), (disk,))
    assert "web.example.com" in refused(
        Master(data), errors.ECODE_STATE, ndparams={"exclusive_storage": True}
    )


# -- what nodes say --------------------------------------------------------------


def test_nodes_judge_hypervisor_parameters() -> None:
    master = Master(cluster_of(3, node_changes={3: {"offline": True, "master_candidate": False}}))
    master.rpc.errors["hypervisor_validate_params", NODE2] = "no such file"
    given = {"hvparams": {"kvm": {"kernel_path": "/boot/x", "root_path": "/dev/vda"}}}
    assert f"node {NODE2}: no such file" in refused(master, **given)
    change(master, force=True, **given)
    assert master.job.said("no such file")
    assert master.config.cluster().hvparams["kvm"]["kernel_path"] == "/boot/x"
    asked = [node for node, _args in master.rpc.of("hypervisor_validate_params")]
    assert NODE3 not in asked


def test_operating_systems_judge_their_parameters() -> None:
    master = Master(cluster_of(2))
    master.rpc.errors["os_validate", NODE2] = "no parameter a"
    assert "no parameter a" in refused(master, osparams={"noop": {"a": "1"}})


@pytest.mark.parametrize(
    ("answer", "fragment"),
    [
        ({"vglist": {}}, "has no volume group xenvg"),
        ({"vglist": {"xenvg": 100}}, "at least 20480"),
        ({"vglist": "vgs is missing"}, "vgs is missing"),
        ({"vglist": {"xenvg": 1 << 20}, "drbd-helper": [True, "/bin/x"]}, "helper is /bin/x"),
        ({"vglist": {"xenvg": 1 << 20}, "drbd-helper": [False, "no module"]}, "no module"),
    ],
)
def test_nodes_need_the_storage(answer: dict[str, Any], fragment: str) -> None:
    master = Master(cluster_of(1))
    master.rpc.answers["node_verify"] = lambda node, args: {
        name: answer.get(name) for name in args["checks"] if name in answer
    }
    given = {
        "vg_name": "xenvg",
        "drbd_helper": "/bin/true",
        "enabled_disk_templates": ["drbd", "file", "diskless", "sharedfile"],
    }
    text = master.refused(OpClusterSetParams(**given), errors.ECODE_ENVIRON)
    assert fragment in text


def test_nodes_need_the_directories() -> None:
    master = Master(cluster_of(2))
    master.rpc.answers["node_verify"] = lambda node, args: {
        "file-storage-path": None if node == NODE1 else "/srv/new is not a directory"
    }
    text = refused(master, errors.ECODE_ENVIRON, file_storage_dir="/srv/new")
    assert text.startswith(f"node {NODE2}: ")
    change(master, file_storage_dir="/srv/new", force=True)
    assert master.config.cluster().file_storage_dir == "/srv/new"


def test_allocator_has_to_exist(tmp_path: Any) -> None:
    with paths.override(paths.Paths(str(tmp_path))):
        master = Master(cluster_of(1))
        assert "allocator mine is in none of" in refused(
            master, errors.ECODE_NOENT, default_iallocator="mine"
        )
        text = refused(master, errors.ECODE_NOENT, default_iallocator="hial")
        assert text.endswith("Did you mean 'hail'?")
        place = tmp_path / "usr/lib/ganeti/iallocators"
        place.mkdir(parents=True)
        (place / "mine").write_text("#!/bin/sh\n")
        (place / "mine").chmod(0o755)
        change(master, default_iallocator="mine")
        assert master.config.cluster().default_iallocator == "mine"
        change(master, default_iallocator="")
        assert master.config.cluster().default_iallocator == ""


def test_etc_hosts_get_all_nodes(tmp_path: Any) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/hosts").write_text("127.0.0.1 localhost\n")
    with paths.override(paths.Paths(str(tmp_path))):
        master = Master(cluster_of(2))
        assert "virtual cluster" in refused(master, errors.ECODE_ENVIRON, modify_etc_hosts=True)
        with machine.override(RealMachine(paths.current())):
            change(master, modify_etc_hosts=True)
    assert [args["name"] for _node, args in master.rpc.of("etc_hosts_modify")] == [NODE1, NODE2]
    assert NODE2 in [node for node, _args in master.rpc.of("upload_file")]
    assert master.config.cluster().modify_etc_hosts is True


# -- what follows ----------------------------------------------------------------


def test_pool_size_makes_and_unmakes_candidates() -> None:
    master = Master(cluster_of(3))
    change(master, candidate_pool_size=2)
    assert [node.name for node in master.config.master_candidates()] == [NODE1, NODE2]
    assert [node for node, _args in master.rpc.of("node_demote_from_mc")] == [NODE3]
    change(master, candidate_pool_size=3)
    assert len(master.config.master_candidates()) == 3


def test_nothing_given_changes_nothing() -> None:
    master = Master(cluster_of(1))
    assert change(master) is None
    assert change(master, mac_prefix="aa:00:00") is None
    assert master.config.writes == []


def test_hooks() -> None:
    master = Master(cluster_of(2))
    master.rpc.answers["node_verify"] = {"vglist": {"xenvg": 1 << 20}}
    change(master, vg_name="xenvg")
    assert master.rpc.hooks() == [
        ("cluster-modify", "pre", NODE1),
        ("cluster-modify", "post", NODE1),
        ("config-update", "post", NODE1),
    ]
    env = master.rpc.of("hooks_runner")[0][1]["env"]
    assert env["GANETI_OP_TARGET"] == "cluster.example.com"
    assert env["GANETI_NEW_VG_NAME"] == "xenvg"


def test_locks() -> None:
    master = Master(cluster_of(2))
    seen: dict[Level, dict[str, str]] = {}

    def look(node: str, args: dict[str, Any]) -> list[Any]:
        for level in (Level.INSTANCE, Level.NODEGROUP, Level.NODE):
            seen[level] = dict(master.locks.owned(master.job.owner, level))
        return []

    master.rpc.answers["hooks_runner"] = look
    change(master, mac_prefix="aa:11:11")
    assert not any(seen.values())
    change(master, candidate_pool_size=5)
    assert set(seen[Level.NODE].values()) == {"exclusive"}
    change(master, hvparams={"fake": {"migration_mode": "non-live"}})
    assert set(seen[Level.NODE].values()) == {"shared"}


def test_instances_outside_of_the_new_policy_are_named() -> None:
    master = Master(cluster_of(1, (instance_of("web", beparams={"vcpus": 4, "maxmem": 4096}),)))
    bounds = master.config.cluster().ipolicy["minmax"][0]
    small = {**bounds["max"], "cpu-count": 2}
    change(master, ipolicy={"minmax": [{"min": bounds["min"], "max": small}]})
    assert master.job.said("violate the new policy: web.example.com")


def test_group_policies_still_allow_something() -> None:
    data = cluster_of(1)
    group = dataclasses.replace(data.nodegroups[GROUP], ipolicy={"disk-templates": ["diskless"]})
    master = Master(dataclasses.replace(data, nodegroups={GROUP: group}))
    assert "node group default" in refused(master, enabled_disk_templates=["file", "sharedfile"])


# -- the master's address --------------------------------------------------------


def test_the_address_moves_to_another_device() -> None:
    master = Master(cluster_of(1))
    change(master, master_netdev="eth1", master_netmask=24)
    (down,) = master.rpc.of("node_deactivate_master_ip")
    (up,) = master.rpc.of("node_activate_master_ip")
    assert (down[1]["master_params"].netdev, up[1]["master_params"].netdev) == ("lo", "eth1")
    assert up[1]["master_params"].netmask == 24
    assert master.rpc.of("node_change_master_netmask") == []


def test_an_address_that_does_not_come_up_takes_everything_back() -> None:
    master = Master(cluster_of(1))
    devices: list[str] = []

    def activate(node: str, args: dict[str, Any]) -> None:
        devices.append(args["master_params"].netdev)
        if args["master_params"].netdev == "eth1":
            master.rpc.errors["node_activate_master_ip"] = "no device eth1"

    master.rpc.answers["node_activate_master_ip"] = activate
    master.rpc.errors["node_activate_master_ip"] = "no device eth1"
    with pytest.raises(errors.OpExecError, match="no device eth1"):
        change(master, master_netdev="eth1", mac_prefix="aa:11:11")
    cluster = master.config.cluster()
    assert (cluster.master_netdev, cluster.mac_prefix) == ("lo", "aa:00:00")


def test_an_address_that_does_not_go_down_changes_nothing() -> None:
    master = Master(cluster_of(1))
    master.rpc.errors["node_deactivate_master_ip"] = "busy"
    assert "busy" in master.failed(OpClusterSetParams(use_external_mip_script=True))
    assert master.config.writes == []


def test_netmask() -> None:
    master = Master(cluster_of(1))
    master.rpc.errors["node_change_master_netmask"] = "not now"
    change(master, master_netmask=24)
    ((_node, args),) = master.rpc.of("node_change_master_netmask")
    assert (args["old_netmask"], args["netmask"]) == (32, 24)
    assert master.job.said("not now")


# -- the network of guests -------------------------------------------------------


def test_naming_the_network_of_guests_makes_it() -> None:
    master = Master(cluster_of(1))
    assert change(master, instance_communication_network="talk") == {
        "jobs": [[True, 100], [True, 101]]
    }
    (add,), (connect,) = master.job.submitted
    assert isinstance(add, OpNetworkAdd)
    assert (add.network, add.network6) == ("169.254.0.0/16", "fe80::/10")
    assert isinstance(connect, OpNetworkConnect)
    assert connect.depends == [[-1, ["success"]]]
    add.validate()
    connect.validate()
    assert master.config.cluster().instance_communication_network == "talk"
    assert change(master, instance_communication_network="") is None


def test_two_changes_at_once_are_merged() -> None:
    """The second was planned before the first was committed."""
    master = Master(cluster_of(1))
    first = OpClusterSetParams(hidden_os=[["add", "a"]])

    def meanwhile(node: str, args: dict[str, Any]) -> list[Any]:
        if args["phase"] == "pre" and not master.config.cluster().hidden_os:
            now = master.config.cluster()
            commit(master.config).cluster.update(
                dataclasses.replace(now, hidden_os=("z",), mac_prefix="aa:22:22")
            )
        return []

    master.rpc.answers["hooks_runner"] = meanwhile
    master.run(first)
    cluster = master.config.cluster()
    assert (cluster.hidden_os, cluster.mac_prefix) == (("z", "a"), "aa:22:22")


def test_nodes_that_run_nothing_are_not_asked() -> None:
    assert node_of(2).vm_capable
    master = Master(cluster_of(2, node_changes={2: {"vm_capable": False}}))
    change(master, hvparams={"fake": {"migration_mode": "non-live"}})
    assert [node for node, _a in master.rpc.of("hypervisor_validate_params")] == [NODE1]
    assert master.config.node(uuid_of("node2")).vm_capable is False


def test_a_dry_run_says_what_would_be_done() -> None:
    master = Master(cluster_of(3))
    change(
        master,
        dry_run=True,
        candidate_pool_size=2,
        master_netdev="eth1",
        uid_pool=[[1, 2]],
        beparams={"vcpus": 2},
        osparams_private_cluster={"noop": {"key": "geheim"}},
        vg_name="",
        instance_communication_network="talk",
    )
    for text in (
        "take the master address down",
        "set master_netdev to eth1",
        "set candidate_pool_size to 2",
        "set beparams default vcpus to 2",
        "change private parameters of OS noop",
        "demote nodes, so that there are 2 instead of 3 master candidates",
        "submit 2 jobs for network talk",
    ):
        assert master.job.said(text), text
    assert not master.job.said("geheim")
    assert master.config.writes == []
