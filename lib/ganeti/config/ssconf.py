"""Values of the configuration which every node needs, in small text files ``ssconf_<key>``.

:func:`values` derives all values from the configuration; the store on the master sends them to the
nodes when they change. :class:`SimpleStore` reads them on a node, which need not have the
configuration. Lists have one item per line, each line ends with a newline; names are in natural
order. The formats are published: other programs read these files.
"""

from __future__ import annotations

import bisect
import os
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from ganeti import TYPE_CHECKING, errors
from ganeti.constants import hv
from ganeti.constants import ssconf as const
from ganeti.platform import paths
from ganeti.utils import fs, text

if TYPE_CHECKING:
    from ganeti.objects import Cluster, ConfigData, Instance

#: Kinds of objects which occur in no value.
NOT_IN_VALUES = frozenset({"disks", "filters", "documents", "access_records"})

# Names are sorted again when an instance is added or removed; their sort keys are cached.
_natural_key = lru_cache(maxsize=100_000)(text.natural_key)


class InstanceList:
    """Names of all instances in natural order, updated when instances are added or removed.

    To sort 20,000 names for each new instance would cost more than everything else in a commit.
    """

    def __init__(self, data: ConfigData) -> None:
        names = sorted(
            (_natural_key(instance.name), instance.name) for instance in data.instances.values()
        )
        # Two lists, so that the lines of the file are joined without the keys.
        self._keys = names
        self._lines = [f"{name}\n" for _key, name in names]
        self._text: str | None = None

    def replace(self, old: Instance | None, new: Instance | None) -> None:
        """Update the list: an instance was changed, added (no ``old``) or removed (no ``new``)."""
        if old is not None and new is not None and old.name == new.name:
            return
        self._text = None
        if old is not None:
            key = (_natural_key(old.name), old.name)
            place = bisect.bisect_left(self._keys, key)
            if place < len(self._keys) and self._keys[place] == key:
                del self._keys[place], self._lines[place]
        if new is not None:
            key = (_natural_key(new.name), new.name)
            place = bisect.bisect_left(self._keys, key)
            self._keys.insert(place, key)
            self._lines.insert(place, f"{new.name}\n")

    def text(self) -> str:
        """Return the text of the file."""
        if self._text is None:
            self._text = "".join(self._lines)
        return self._text


def values(data: ConfigData, instance_list: InstanceList | None = None) -> dict[str, str]:
    """Return the text of every ssconf file except the master epoch, by key.

    :param instance_list: the names of the instances of ``data``, if the caller keeps them.
    """
    return {
        **_cluster_values(data.cluster),
        **_node_values(data),
        const.INSTANCE_LIST: (instance_list or InstanceList(data)).text(),
        const.NETWORKS: _lines(_named(data.networks)),
        const.NODEGROUPS: _lines(_named(data.nodegroups)),
    }


def _cluster_values(cluster: Cluster) -> dict[str, str]:
    from ganeti.constants import cluster as cluster_const

    found = {
        const.AUTO_FAILOVER: _line(cluster.auto_failover or 0),
        const.CLUSTER_NAME: _line(cluster.cluster_name),
        const.CLUSTER_TAGS: _lines(sorted(cluster.tags)),
        const.ENABLED_USER_SHUTDOWN: _line(cluster.enabled_user_shutdown),
        const.RAPI_REQUIRE_AUTHENTICATION: _line(cluster.rapi_require_authentication),
        const.FILE_STORAGE_DIR: _line(cluster.file_storage_dir),
        const.GLUSTER_STORAGE_DIR: _line(cluster.gluster_storage_dir),
        const.HYPERVISOR_LIST: _lines(cluster.enabled_hypervisors),
        const.MAINTAIN_NODE_HEALTH: _line(cluster.maintain_node_health),
        const.MASTER_CANDIDATES_CERTS: _lines(
            f"{uuid}={digest}" for uuid, digest in sorted(cluster.candidate_certs.items())
        ),
        const.MASTER_IP: _line(cluster.master_ip),
        const.MASTER_NETDEV: _line(cluster.master_netdev),
        const.MASTER_NETMASK: _line(cluster.master_netmask),
        const.NODE_WATCHDOG: _line(cluster.node_watchdog or 0),
        const.PRIMARY_IP_FAMILY: _line(cluster.primary_ip_family),
        const.RELEASE_VERSION: _line(cluster_const.RELEASE_VERSION),
        const.SHARED_FILE_STORAGE_DIR: _line(cluster.shared_file_storage_dir),
        const.UID_POOL: _lines(
            str(first) if first == last else f"{first}-{last}" for first, last in cluster.uid_pool
        ),
    }
    for hypervisor in hv.ALL:
        params = cluster.hvparams.get(hypervisor, {})
        found[const.HVPARAMS_PREFIX + hypervisor] = _lines(
            f"{name}={_one_line(params[name])}" for name in sorted(params)
        )
    return found


def _node_values(data: ConfigData) -> dict[str, str]:
    from ganeti.objects import fill

    nodes = sorted(data.nodes.values(), key=lambda node: _natural_key(node.name))
    candidates = [node for node in nodes if node.master_candidate]
    master = data.nodes.get(data.cluster.master_node)
    if master is None:
        raise errors.ConfigurationError(
            f"master node {data.cluster.master_node} is not in the configuration"
        )
    ssh_ports = {
        node.name: fill.fill_nd(data.cluster, data.nodegroups.get(node.group), node)["ssh_port"]
        for node in nodes
    }
    return {
        const.MASTER_CANDIDATES: _lines(node.name for node in candidates),
        const.MASTER_CANDIDATES_IPS: _lines(node.primary_ip for node in candidates),
        const.MASTER_NODE: _line(master.name),
        const.NODE_KEY_PINS: _lines(
            f"{node.name} {' '.join(node.key_pins)}" for node in nodes if node.key_pins
        ),
        const.NODE_LIST: _lines(node.name for node in nodes),
        const.NODE_PRIMARY_IPS: _lines(f"{node.name} {node.primary_ip}" for node in nodes),
        const.NODE_SECONDARY_IPS: _lines(f"{node.name} {node.secondary_ip}" for node in nodes),
        const.NODE_VM_CAPABLE: _lines(f"{node.name}={node.vm_capable}" for node in nodes),
        const.OFFLINE_NODES: _lines(node.name for node in nodes if node.offline),
        const.ONLINE_NODES: _lines(node.name for node in nodes if not node.offline),
        const.SSH_PORTS: _lines(f"{name}={port}" for name, port in ssh_ports.items()),
    }


def to_send(sent: dict[str, str] | None, now: dict[str, str]) -> dict[str, str] | None:
    """Return the values to send to nodes which have the values of the last message; None for none.

    The names of instances change often, mostly without other changes. In other cases all values are
    sent, which also repairs files which were changed by hand, and completes a node which was added.
    """
    if sent == now:
        return None
    if sent is not None and {**sent, const.INSTANCE_LIST: now[const.INSTANCE_LIST]} == now:
        return {const.INSTANCE_LIST: now[const.INSTANCE_LIST]}
    return now


def differs(
    before: ConfigData,
    data: ConfigData,
    changed: set[tuple[str, str]],
) -> bool:
    """Tell whether a value may differ between two states.

    :param changed: kind and UUID of the objects which differ.
    """
    for kind, uuid in changed:
        if kind == "instances":
            old, new = before.instances.get(uuid), data.instances.get(uuid)
            if old is None or new is None or old.name != new.name:
                return True
        elif kind not in NOT_IN_VALUES:
            return True
    return False


def _line(value: object) -> str:
    return f"{value}\n"


def _one_line(value: object) -> str:
    """Return a value as a part of one line; a text with line ends as a string of JSON.

    Otherwise the rest of the text would be read as further parameters.
    """
    found = str(value)
    if "\n" not in found and "\r" not in found:
        return found
    from ganeti.wire import json  # most readers of these files need none

    return json.dumps(found)


def _lines(items: Iterable[str]) -> str:
    return "".join(f"{item}\n" for item in items)


def _named(table: Mapping[str, Any]) -> list[str]:
    return [
        f"{uuid} {item.name}"
        for uuid, item in sorted(table.items(), key=lambda entry: _natural_key(entry[1].name))
    ]


class SimpleStore:
    """Reads the ssconf files of a node; every call reads the file again.

    All methods raise :class:`errors.ConfigurationError` when a file is missing or cannot be read:
    then this machine is not (or not yet) a node of a cluster.
    """

    def __init__(self, where: paths.Paths | None = None) -> None:
        self._where = where

    def get(self, key: str) -> str:
        """Return one value, without the last newline."""
        path = (self._where or paths.current()).ssconf_file(key)
        try:
            return fs.read_file(path).rstrip("\n")
        except FileNotFoundError as err:
            raise errors.ConfigurationError(
                f"file {path} is missing. This machine is probably not a node of a cluster.",
            ) from err
        except OSError as err:
            raise errors.ConfigurationError(f"cannot read {path}: {err.strerror}") from err

    def get_list(self, key: str) -> list[str]:
        """Return the lines of one value."""
        # Only this character ends a line; a name may have others which divide lines elsewhere.
        found = self.get(key)
        return found.split("\n") if found else []

    def get_map(self, key: str, separator: str) -> dict[str, str]:
        """Return the lines of one value as a dictionary; each has a key, the separator, a value."""
        pairs: dict[str, str] = {}
        for line in self.get_list(key):
            name, found, value = line.partition(separator)
            if not found:
                raise errors.ConfigurationError(f"ssconf value {key}: cannot read line {line!r}")
            pairs[name] = value
        return pairs

    def cluster_name(self) -> str:
        """Return the name of the cluster."""
        return self.get(const.CLUSTER_NAME)

    def master_node(self) -> str:
        """Return the name of the master node, according to the files of this node."""
        return self.get(const.MASTER_NODE)

    def node_list(self) -> list[str]:
        """Return the names of all nodes."""
        return self.get_list(const.NODE_LIST)

    def online_nodes(self) -> list[str]:
        """Return the names of the nodes which are not marked offline."""
        return self.get_list(const.ONLINE_NODES)

    def master_candidates(self) -> list[str]:
        """Return the names of the master candidates."""
        return self.get_list(const.MASTER_CANDIDATES)

    def candidate_certs(self) -> dict[str, str]:
        """Return the SHA1 digests of the client certificates of candidates, by node UUID."""
        return self.get_map(const.MASTER_CANDIDATES_CERTS, "=")

    def node_primary_ips(self) -> dict[str, str]:
        """Return the primary addresses by node name."""
        return self.get_map(const.NODE_PRIMARY_IPS, " ")

    def node_key_pins(self) -> dict[str, tuple[str, ...]]:
        """Return the pins of the keys of nodes by node name; nodes without are left out.

        A master of an older release writes no such file; then no key is known.
        """
        if not os.path.exists((self._where or paths.current()).ssconf_file(const.NODE_KEY_PINS)):
            return {}
        found = self.get_map(const.NODE_KEY_PINS, " ")
        return {name: tuple(pins.split()) for name, pins in found.items()}


def write_local(found: Mapping[str, str], where: paths.Paths | None = None) -> None:
    """Write ssconf files on this machine; used before a node daemon runs.

    :raises OSError: a file could not be written; those before it have been.
    """
    place = where or paths.current()
    for key, value in found.items():
        fs.write_file(place.ssconf_file(key), value, mode=const.FILE_MODE)
