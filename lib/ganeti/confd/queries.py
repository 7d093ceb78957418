"""What the configuration query daemon answers: pure functions of one configuration.

:class:`Facts` holds one configuration with the indexes that make questions cheap; a new one is made
when the file changes. Answers travel unencrypted, so secrets (private OS parameters, secrets of
DRBD disks) are replaced by a fixed text wherever whole objects are told.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

from ganeti import ht
from ganeti.confd.protocol import Reply, Request
from ganeti.constants import confd as const
from ganeti.constants import disk as disk_const
from ganeti.objects import ConfigData, Instance, Node, codec
from ganeti.utils import text

_DRBD_SECRET = 5


class _Wrong(Exception):
    """The request cannot be answered; carries one of the published error numbers."""

    def __init__(self, error: int) -> None:
        super().__init__(error)
        self.error = error


_UNKNOWN = const.ERROR_UNKNOWN_ENTRY
_ARGUMENT = const.ERROR_ARGUMENT

#: A daemon without configuration (it is no master candidate, or not yet) says this to everything.
NO_CONFIG = Reply(const.STATUS_ERROR, const.ERROR_INTERNAL, 0)


def hide_secrets(value: dict[str, Any]) -> dict[str, Any]:
    """A copy of an object in its stored form, without secrets."""
    shown = {}
    for key, inner in value.items():
        if key in ("osparams_private", "osparams_private_cluster"):
            shown[key] = ht.redact(inner)
        elif key == "logical_id" and value.get("dev_type") == disk_const.DRBD8:
            shown[key] = [
                ht.REDACTED if index == _DRBD_SECRET else part for index, part in enumerate(inner)
            ]
        elif isinstance(inner, dict):
            shown[key] = hide_secrets(inner)
        elif isinstance(inner, list | tuple):
            shown[key] = [hide_secrets(one) if isinstance(one, dict) else one for one in inner]
        else:
            shown[key] = inner
    return shown


def _told(obj: Any) -> dict[str, Any]:
    return hide_secrets(codec.to_dict(obj))


class Facts:
    """One configuration, ready for questions."""

    def __init__(self, data: ConfigData) -> None:
        self.data = data
        self.serial = data.cluster.serial_no

    @cached_property
    def _nodes_by_name(self) -> dict[str, Node]:
        return {node.name: node for node in self.data.nodes.values()}

    @cached_property
    def _instances_by_name(self) -> dict[str, Instance]:
        return {instance.name: instance for instance in self.data.instances.values()}

    @cached_property
    def _by_address(self) -> dict[tuple[str, str], Instance]:
        """(link, address) -> instance."""
        cluster = self.data.cluster
        return {
            (str(cluster.fill_nic(nic.nicparams).get("link", "")), nic.ip): instance
            for instance in self.data.instances.values()
            for nic in instance.nics
            if nic.ip is not None
        }

    @cached_property
    def _document(self) -> dict[str, Any]:
        return _told(self.data)

    # -- words of a query --------------------------------------------------------

    def node(self, name: Any) -> Node:
        if not isinstance(name, str):
            raise _Wrong(_ARGUMENT)
        full = text.match_name_component(name, self._nodes_by_name)
        if full is None:
            raise _Wrong(_UNKNOWN)
        return self._nodes_by_name[full]

    def instance(self, name: Any) -> Instance:
        if not isinstance(name, str):
            raise _Wrong(_ARGUMENT)
        found = self.data.instances.get(name)
        if found is not None:
            return found
        full = text.match_name_component(name, self._instances_by_name)
        if full is None:
            raise _Wrong(_UNKNOWN)
        return self._instances_by_name[full]

    def link(self, name: Any) -> str:
        if name is None or name == "":
            return str(self.data.cluster.nicparams["default"].get("link", ""))
        if not isinstance(name, str):
            raise _Wrong(_ARGUMENT)
        return name

    # -- the questions -------------------------------------------------------------

    def ping(self, _query: Any) -> tuple[Any, int]:
        return self.data.version, 0

    def node_role(self, query: Any) -> tuple[Any, int]:
        node = self.node(query)
        if node.uuid == self.data.cluster.master_node:
            role = const.ROLE_MASTER
        elif node.drained:
            role = const.ROLE_DRAINED
        elif node.offline:
            role = const.ROLE_OFFLINE
        elif node.master_candidate:
            role = const.ROLE_CANDIDATE
        else:
            role = const.ROLE_REGULAR
        return role, self.serial

    def node_by_instance_ip(self, query: Any) -> tuple[Any, int]:
        if isinstance(query, str):
            query = {const.KEY_IP: query}
        if not isinstance(query, dict) or (const.KEY_IP in query) == (const.KEY_IPLIST in query):
            raise _Wrong(_ARGUMENT)
        link = self.link(query.get(const.KEY_LINK))
        if const.KEY_IP in query:
            return self._node_of_address(link, query[const.KEY_IP]), self.serial
        addresses = query[const.KEY_IPLIST]
        if not isinstance(addresses, list):
            raise _Wrong(_ARGUMENT)
        found: list[list[Any]] = []
        for address in addresses:
            try:
                found.append([const.STATUS_OK, self._node_of_address(link, address), self.serial])
            except _Wrong as err:
                found.append([const.STATUS_ERROR, err.error, self.serial])
        return found, self.serial

    def _node_of_address(self, link: str, address: Any) -> str:
        if not isinstance(address, str):
            raise _Wrong(_ARGUMENT)
        instance = self._by_address.get((link, address))
        if instance is None or instance.primary_node not in self.data.nodes:
            raise _Wrong(_UNKNOWN)
        return self.data.nodes[instance.primary_node].primary_ip

    def cluster_master(self, query: Any) -> tuple[Any, int]:
        master = self.data.nodes[self.data.cluster.master_node]
        if query is None or query == "":
            return master.name, self.serial
        fields = query.get(const.KEY_FIELDS) if isinstance(query, dict) else None
        if not isinstance(fields, list):
            raise _Wrong(_ARGUMENT)
        known = {
            const.FIELD_NAME: master.name,
            const.FIELD_CLUSTER_IP: self.data.cluster.master_ip,
            const.FIELD_MASTER_IP: master.primary_ip,
        }
        found = []
        for field in fields:
            if not isinstance(field, int) or isinstance(field, bool) or field not in known:
                raise _Wrong(_ARGUMENT)
            found.append(known[field])
        return found, self.serial

    def node_ips(self, _query: Any) -> tuple[Any, int]:
        return [node.primary_ip for node in self.data.nodes.values()], self.serial

    def candidate_ips(self, _query: Any) -> tuple[Any, int]:
        return [
            node.primary_ip for node in self.data.nodes.values() if node.master_candidate
        ], self.serial

    def instance_ips(self, query: Any) -> tuple[Any, int]:
        wanted = self.link(query)
        return [address for link, address in self._by_address if link == wanted], self.serial

    def node_drbd(self, query: Any) -> tuple[Any, int]:
        node = self.node(query)
        rows = []
        for instance in self.data.instances.values():
            for index, uuid in enumerate(instance.disks):
                for disk in self.data.disks[uuid].walk() if uuid in self.data.disks else ():
                    if disk.dev_type != disk_const.DRBD8:
                        continue
                    first, second, _, first_minor, second_minor = disk.logical_id[:5]
                    if node.uuid not in (first, second):
                        continue
                    here = node.uuid == first
                    peer = self.data.nodes.get(second if here else first)
                    rows.append(
                        [
                            node.name,
                            first_minor if here else second_minor,
                            instance.name,
                            f"disk/{index}",
                            "primary" if instance.primary_node == node.uuid else "secondary",
                            peer.name if peer is not None else "",
                        ]
                    )
        return rows, node.serial_no

    def node_instances(self, query: Any) -> tuple[Any, int]:
        node = self.node(query)
        primaries, secondaries = [], []
        for instance in self.data.instances.values():
            if instance.primary_node == node.uuid:
                primaries.append(_told(instance))
            elif any(
                node.uuid in self.data.disks[uuid].all_node_uuids()
                for uuid in instance.disks
                if uuid in self.data.disks
            ):
                secondaries.append(_told(instance))
        return [primaries, secondaries], node.serial_no

    def instance_disks(self, query: Any) -> tuple[Any, int]:
        instance = self.instance(query)
        disks = [_told(self.data.disks[uuid]) for uuid in instance.disks if uuid in self.data.disks]
        return disks, instance.serial_no

    def config(self, query: Any) -> tuple[Any, int]:
        """The value at a JSON pointer (RFC 6901)."""
        if not isinstance(query, str) or (query and not query.startswith("/")):
            raise _Wrong(_ARGUMENT)
        value: Any = self._document
        for escaped in query.split("/")[1:]:
            step = escaped.replace("~1", "/").replace("~0", "~")
            if isinstance(value, dict) and step in value:
                value = value[step]
            elif isinstance(value, list) and step.isdecimal() and int(step) < len(value):
                value = value[int(step)]
            else:
                raise _Wrong(_UNKNOWN)
        return value, self.serial

    def data_collectors(self, _query: Any) -> tuple[Any, int]:
        return self.data.cluster.data_collectors, self.serial

    # -- the door ------------------------------------------------------------------

    def reply(self, request: Request) -> Reply:
        """Answer a request; what is wrong with it becomes an answer, too."""
        question = _QUESTIONS.get(request.kind)
        if question is None:
            return Reply(const.STATUS_NOT_IMPLEMENTED, "not implemented", 0)
        try:
            answer, serial = question(self, request.query)
        except _Wrong as err:
            return Reply(const.STATUS_ERROR, err.error, self.serial)
        return Reply(const.STATUS_OK, answer, serial)


_QUESTIONS: dict[int, Callable[[Facts, Any], tuple[Any, int]]] = {
    const.REQ_PING: Facts.ping,
    const.REQ_NODE_ROLE: Facts.node_role,
    const.REQ_NODE_BY_INSTANCE_IP: Facts.node_by_instance_ip,
    const.REQ_CLUSTER_MASTER: Facts.cluster_master,
    const.REQ_NODE_IPS: Facts.node_ips,
    const.REQ_CANDIDATE_IPS: Facts.candidate_ips,
    const.REQ_INSTANCE_IPS: Facts.instance_ips,
    const.REQ_NODE_DRBD: Facts.node_drbd,
    const.REQ_NODE_INSTANCES: Facts.node_instances,
    const.REQ_INSTANCE_DISKS: Facts.instance_disks,
    const.REQ_CONFIG: Facts.config,
    const.REQ_DATA_COLLECTORS: Facts.data_collectors,
}
