"""A virtual cluster like a real one, for tests: its nodes, groups, instances and networks.

The real configuration is the base. What belongs to the machines comes from a virtual cluster which
was created with nodes of the same names: addresses, certificates, directories. Instances become
small guests of the hypervisor ``fake`` without disks and NICs, because the disks and bridges of the
real nodes are not there.
"""

from __future__ import annotations

import copy
import os
import shutil
from typing import Any, NamedTuple

from ganeti import errors
from ganeti.config import upgrade
from ganeti.configfile import files
from ganeti.constants import disk as disk_const
from ganeti.objects import ConfigData, codec
from ganeti.vcluster.description import NAME, VirtualCluster
from ganeti.wire import json

_FAKE = "fake"
# What belongs to the machines and not to the configuration which is tried.
_OF_THE_VIRTUAL_CLUSTER = (
    "cluster_name", "master_ip", "master_netdev", "master_netmask", "modify_etc_hosts",
    "modify_ssh_setup", "file_storage_dir", "shared_file_storage_dir", "gluster_storage_dir",
    "volume_group_name", "drbd_usermode_helper", "enabled_hypervisors", "enabled_disk_templates",
    "use_external_mip_script", "ipolicy", "node_watchdog", "auto_failover",
    "auto_instance_failover", "witness", "rsahostkeypub", "dsahostkeypub", "ssh_key_type",
    "ssh_key_bits", "primary_ip_family", "tcpudp_port_pool", "highest_used_port",
)  # fmt: skip
_OF_THE_VIRTUAL_NODE = (
    "primary_ip", "secondary_ip", "auto_failover", "key_pins", "watchdog", "maintenance",
)  # fmt: skip
_SMALL = {"minmem": 4, "maxmem": 4, "vcpus": 1, "spindle_use": 1}


class Model(NamedTuple):
    """A configuration which a virtual cluster imitates.

    :ivar config: of this version, as a dictionary.
    :ivar nodes: the names of its nodes, the master first.
    """

    config: dict[str, Any]
    nodes: tuple[str, ...]

    @property
    def cluster_name(self) -> str:
        """The name of the cluster."""
        return str(self.config["cluster"]["cluster_name"])


def read_model(path: str) -> Model:
    """Read a file ``config.data`` of this version, or of an earlier one.

    :raises ConfigurationError: it is not a configuration which this version can read, or its nodes
        have names which virtual nodes cannot have.
    """
    try:
        config = upgrade.upgrade(json.loads(files.read(path)))
        codec.from_dict(ConfigData, config)
    except errors.ParseError as err:
        raise errors.ConfigurationError(f"{path}: {err}") from err
    master = config["nodes"][config["cluster"]["master_node"]]["name"]
    others = sorted(one["name"] for one in config["nodes"].values() if one["name"] != master)
    names = (master, *others)
    wrong = [name for name in names if not NAME.fullmatch(name)]
    if wrong:
        raise errors.ConfigurationError(f"a virtual node cannot be named {wrong[0]}")
    return Model(config, names)


def transformed(model: dict[str, Any], virtual: dict[str, Any]) -> dict[str, Any]:
    """Put the objects of a real configuration into a virtual cluster.

    :param model: the real configuration.
    :param virtual: the one of a virtual cluster whose nodes have the same names.
    :returns: a new dictionary.
    """
    found = copy.deepcopy(model)
    cluster, own = found["cluster"], virtual["cluster"]
    for key in _OF_THE_VIRTUAL_CLUSTER:
        cluster.pop(key, None)
        if key in own:
            cluster[key] = copy.deepcopy(own[key])
    cluster["hvparams"] = {**cluster["hvparams"], _FAKE: own["hvparams"].get(_FAKE, {})}
    by_name = {node["name"]: node for node in virtual["nodes"].values()}
    certificates = own.get("candidate_certs", {})
    cluster["candidate_certs"] = {}
    for uuid, node in found["nodes"].items():
        twin = by_name[node["name"]]
        for key in _OF_THE_VIRTUAL_NODE:
            node.pop(key, None)
            if key in twin:
                node[key] = copy.deepcopy(twin[key])
        node.update(offline=False, drained=False, powered=True, vm_capable=True)
        node["master_candidate"] = node["master_capable"] = True
        if twin["uuid"] in certificates:
            cluster["candidate_certs"][uuid] = certificates[twin["uuid"]]
    for group in found["nodegroups"].values():
        group["ipolicy"] = {}
        group.pop("enabled_hypervisors", None)
    for instance in found["instances"].values():
        instance.update(hypervisor=_FAKE, hvparams={}, disks=[], nics=[], beparams=dict(_SMALL))
        # In versions which have the field.
        if "disk_template" in instance:
            instance["disk_template"] = disk_const.DISKLESS
    found["disks"] = {}
    found.pop("damaged", None)
    cluster["candidate_pool_size"] = max(10, len(found["nodes"]))
    found["serial_no"] = 10 + max(int(found["serial_no"]), int(virtual["serial_no"]))
    return found


def put_in(cluster: VirtualCluster, model: Model) -> None:
    """Give a virtual cluster whose daemons are stopped the configuration of a real one.

    :raises ConfigurationError: the result is not a configuration.
    """
    for node in cluster.nodes:
        here = cluster.paths(node)
        path = here.cluster_conf_file
        if os.path.isdir(here.cluster_conf_history_dir):
            shutil.rmtree(here.cluster_conf_history_dir)
        if not os.path.exists(path):
            continue
        config = transformed(model.config, json.loads(files.read(path)))
        # In the order in which a master daemon writes it, so that all copies are equal.
        ordered = codec.to_dict(codec.from_dict(ConfigData, config))
        files.write_config_file(path, json.dumps(ordered).encode() + b"\n")
