"""The answers of the configuration query daemon: pure functions of one configuration.

:class:`ConfigFacts` holds one configuration with the indexes that make questions cheap; a new one
is made when the file changes. Answers are not encrypted, so secrets (private OS parameters, secrets
of DRBD disks) are replaced by a fixed text in every object which is sent.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cached_property
from typing import Any

from ganeti import ht
from ganeti.confd.protocol import ConfdReply, ConfdRequest, whole_number
from ganeti.constants import confd as const
from ganeti.constants import disk as disk_const
from ganeti.objects import ConfigData, Instance, Node, codec, fill
from ganeti.objects.by_node import instances_of_node
from ganeti.utils import text

# An index in a JSON pointer; a number of thousands of digits cannot be converted.
_INDEX = re.compile(r"[0-9]{1,9}")

# Fields of the master, as texts.
_FIELDS = ("0", "1", "2")

# Index of the secret in the logical id of a DRBD disk.
_DRBD_SECRET = 5

#: The answer to a question, and the serial number of the object which it describes.
AnswerAndSerial = tuple[Any, int]


class _QueryError(Exception):
    """The request cannot be answered.

    :ivar error: one of the published error numbers.
    """

    def __init__(self, error: int) -> None:
        super().__init__(error)
        self.error = error


_UNKNOWN = const.ERROR_UNKNOWN_ENTRY
_ARGUMENT = const.ERROR_ARGUMENT

#: The answer to every request while the daemon has no configuration, because its node is not a
#: master candidate yet.
NO_CONFIG = ConfdReply(const.STATUS_ERROR, const.ERROR_INTERNAL, 0)


def hide_secrets(value: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of an object's stored form, without secrets."""
    copy = {}
    for key, inner in value.items():
        if key in ("osparams_private", "osparams_private_cluster"):
            copy[key] = ht.redact(inner)
        elif key == "export_key":
            copy[key] = ht.REDACTED
        elif key == "logical_id" and value.get("dev_type") == disk_const.DRBD8:
            copy[key] = [
                ht.REDACTED if index == _DRBD_SECRET else part for index, part in enumerate(inner)
            ]
        elif isinstance(inner, dict):
            copy[key] = hide_secrets(inner)
        elif isinstance(inner, list | tuple):
            copy[key] = [hide_secrets(one) if isinstance(one, dict) else one for one in inner]
        else:
            copy[key] = inner
    return copy


def _is_empty(query: Any) -> bool:
    """Return whether a request asks nothing special; clients write that in several ways."""
    return query is None or query in ("", {}, [])


def _public_form(obj: Any) -> dict[str, Any]:
    return hide_secrets(codec.to_dict(obj))


class ConfigFacts:
    """One configuration, with indexes for questions.

    The methods of a question return the answer and the serial number of the object which it
    describes.
    """

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
        """The instances by link and address."""
        cluster = self.data.cluster
        return {
            (str(fill.fill_nic(cluster, nic.nicparams).get("link", "")), nic.ip): instance
            for instance in self.data.instances.values()
            for nic in instance.nics
            if nic.ip is not None
        }

    @cached_property
    def _document(self) -> dict[str, Any]:
        return _public_form(self.data)

    # -- arguments of a query ----------------------------------------------------

    def node(self, name: Any) -> Node:
        """Return the node with a UUID, a name, or an unambiguous first part of a name."""
        if not isinstance(name, str):
            raise _QueryError(_ARGUMENT)
        found = self.data.nodes.get(name)
        if found is not None:
            return found
        full = text.match_name_component(name, self._nodes_by_name)
        if full is None:
            raise _QueryError(_UNKNOWN)
        return self._nodes_by_name[full]

    def instance(self, name: Any) -> Instance:
        """Return the instance with a UUID, a name, or an unambiguous first part of a name."""
        if not isinstance(name, str):
            raise _QueryError(_ARGUMENT)
        found = self.data.instances.get(name)
        if found is not None:
            return found
        full = text.match_name_component(name, self._instances_by_name)
        if full is None:
            raise _QueryError(_UNKNOWN)
        return self._instances_by_name[full]

    def link(self, name: Any) -> str:
        """Return the link of a query; without one the link of the default NIC."""
        if _is_empty(name):
            return str(self.data.cluster.nicparams["default"].get("link", ""))
        if not isinstance(name, str):
            raise _QueryError(_ARGUMENT)
        return name

    # -- the questions -------------------------------------------------------------

    def ping(self, _query: Any) -> AnswerAndSerial:
        """Return the version of the configuration."""
        return self.data.version, 0

    def node_role(self, query: Any) -> AnswerAndSerial:
        """Return the role of a node, one of ``constants.confd.ROLE_*``."""
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

    def node_by_instance_ip(self, query: Any) -> AnswerAndSerial:
        """Return the primary IP of the node of the instance with an address, or of several."""
        if isinstance(query, str):
            query = {const.KEY_IP: query}
        if not isinstance(query, dict):
            raise _QueryError(_ARGUMENT)
        # Clients which send every key write null, or an empty list, for what they do not ask.
        address, addresses = query.get(const.KEY_IP), query.get(const.KEY_IPLIST)
        link = self.link(query.get(const.KEY_LINK))
        if address is not None:
            return self._node_of_address(link, address), self.serial
        if addresses is None:
            addresses = []
        if not isinstance(addresses, list):
            raise _QueryError(_ARGUMENT)
        found: list[list[Any]] = []
        for address in addresses:
            try:
                found.append([const.STATUS_OK, self._node_of_address(link, address), self.serial])
            except _QueryError as err:
                found.append([const.STATUS_ERROR, err.error, 0])
        return found, self.serial

    def _node_of_address(self, link: str, address: Any) -> str:
        if not isinstance(address, str):
            raise _QueryError(_ARGUMENT)
        instance = self._by_address.get((link, address))
        if instance is None or instance.primary_node not in self.data.nodes:
            raise _QueryError(_UNKNOWN)
        return self.data.nodes[instance.primary_node].primary_ip

    def cluster_master(self, query: Any) -> AnswerAndSerial:
        """Return the name of the master node, or the fields in the query."""
        master = self.data.nodes.get(self.data.cluster.master_node)
        if master is None:
            raise _QueryError(_UNKNOWN)
        fields = query.get(const.KEY_FIELDS) if isinstance(query, dict) else None
        if _is_empty(query) or (isinstance(query, dict) and fields is None):
            return master.name, self.serial
        if not isinstance(fields, list):
            raise _QueryError(_ARGUMENT)
        known = {
            const.FIELD_NAME: master.name,
            const.FIELD_CLUSTER_IP: self.data.cluster.master_ip,
            const.FIELD_MASTER_IP: master.primary_ip,
        }
        found = []
        for field in fields:
            # The client of the original writes the numbers as texts.
            number = int(field) if field in _FIELDS else whole_number(field)
            if number not in known:
                raise _QueryError(_ARGUMENT)
            found.append(known[number])
        return found, self.serial

    def node_ips(self, _query: Any) -> AnswerAndSerial:
        """Return the primary IPs of all nodes."""
        return [node.primary_ip for node in self.data.nodes.values()], self.serial

    def candidate_ips(self, _query: Any) -> AnswerAndSerial:
        """Return the primary IPs of the master candidates."""
        return [
            node.primary_ip for node in self.data.nodes.values() if node.master_candidate
        ], self.serial

    def instance_ips(self, query: Any) -> AnswerAndSerial:
        """Return the addresses of all instances on a link."""
        wanted = self.link(query)
        return [address for link, address in self._by_address if link == wanted], self.serial

    def node_drbd(self, query: Any) -> AnswerAndSerial:
        """Return the DRBD devices of a node.

        :returns: ``[node, minor, instance, disk, role, peer node]`` for each.
        """
        node = self.node(query)
        rows = []
        for instance in self.data.instances.values():
            for index, uuid in enumerate(instance.disks):
                for disk in self.data.disks[uuid].walk() if uuid in self.data.disks else ():
                    if not disk.has_replicas:
                        continue
                    first, second, _port, first_minor, second_minor, _secret = disk.drbd_id
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

    def node_instances(self, query: Any) -> AnswerAndSerial:
        """Return the instances of a node: primary ones, then secondary ones."""
        node = self.node(query)
        found = [
            [_public_form(one) for one in sorted(instances, key=lambda one: one.name)]
            for instances in instances_of_node(self.data, node.uuid)
        ]
        return found, node.serial_no

    def instance_disks(self, query: Any) -> AnswerAndSerial:
        """Return the disks of an instance."""
        instance = self.instance(query)
        disks = [
            _public_form(self.data.disks[uuid])
            for uuid in instance.disks
            if uuid in self.data.disks
        ]
        return disks, instance.serial_no

    def config(self, query: Any) -> AnswerAndSerial:
        """Return the value at a JSON pointer (RFC 6901) in the configuration."""
        if not isinstance(query, str) or (query and not query.startswith("/")):
            raise _QueryError(_ARGUMENT)
        value: Any = self._document
        for escaped in query.split("/")[1:]:
            step = escaped.replace("~1", "/").replace("~0", "~")
            if isinstance(value, dict) and step in value:
                value = value[step]
            elif isinstance(value, list) and _INDEX.fullmatch(step) and int(step) < len(value):
                value = value[int(step)]
            else:
                raise _QueryError(_ARGUMENT)
        return value, self.serial

    def data_collectors(self, _query: Any) -> AnswerAndSerial:
        """Return the settings of the data collectors."""
        return self.data.cluster.data_collectors, self.serial

    def node_left(self, query: Any, age_s: float = 0.0) -> AnswerAndSerial:
        """Return whether a node is left behind, and the candidates of this configuration.

        A node which is not in the configuration is left behind, too.

        :param age_s: seconds for which this configuration may already have been replaced.
        """
        if not isinstance(query, str):
            raise _QueryError(_ARGUMENT)
        node = self._nodes_by_name.get(query)
        promise = None if node is None else node.watchdog
        left = node is None or (promise is not None and promise.left_at is not None)
        candidates = [one.primary_ip for one in self.data.nodes.values() if one.master_candidate]
        return {"candidates": candidates, "left": left, "age_s": age_s}, self.serial

    # -- the entry point -----------------------------------------------------------

    def reply(self, request: ConfdRequest, age_s: Callable[[], float] = lambda: 0.0) -> ConfdReply:
        """Answer a request; an error in the request becomes an answer, too.

        :param age_s: returns the seconds for which this configuration may have been replaced.
        """
        question = _QUESTIONS.get(request.kind)
        if question is None and request.kind != const.REQ_NODE_LEFT:
            return ConfdReply(const.STATUS_NOT_IMPLEMENTED, "not implemented", 0)
        try:
            if question is None:
                answer, serial = self.node_left(request.query, age_s())
            else:
                answer, serial = question(self, request.query)
        except _QueryError as err:
            return ConfdReply(const.STATUS_ERROR, err.error, self.serial)
        return ConfdReply(const.STATUS_OK, answer, serial)


_QUESTIONS: dict[int, Callable[[ConfigFacts, Any], AnswerAndSerial]] = {
    const.REQ_PING: ConfigFacts.ping,
    const.REQ_NODE_ROLE: ConfigFacts.node_role,
    const.REQ_NODE_BY_INSTANCE_IP: ConfigFacts.node_by_instance_ip,
    const.REQ_CLUSTER_MASTER: ConfigFacts.cluster_master,
    const.REQ_NODE_IPS: ConfigFacts.node_ips,
    const.REQ_CANDIDATE_IPS: ConfigFacts.candidate_ips,
    const.REQ_INSTANCE_IPS: ConfigFacts.instance_ips,
    const.REQ_NODE_DRBD: ConfigFacts.node_drbd,
    const.REQ_NODE_INSTANCES: ConfigFacts.node_instances,
    const.REQ_INSTANCE_DISKS: ConfigFacts.instance_disks,
    const.REQ_CONFIG: ConfigFacts.config,
    const.REQ_DATA_COLLECTORS: ConfigFacts.data_collectors,
}
