"""Read the nodes of the cluster from the configuration file, and nothing else.

A node which wants to become master asks the other nodes for their votes. It needs their addresses
before the configuration may be used.
"""

from __future__ import annotations

from typing import NamedTuple

from ganeti import errors
from ganeti.config import upgrade
from ganeti.configfile import files
from ganeti.objects import Node, codec
from ganeti.wire import json


class Members(NamedTuple):
    """The nodes by name, the UUID of the master, and the serial number of the configuration."""

    nodes: dict[str, Node]
    master_uuid: str
    serial_no: int
    #: URL of the witness; empty for none.
    witness: str = ""
    #: UUID of the cluster.
    cluster: str = ""

    @property
    def candidates(self) -> frozenset[str]:
        """Names of the master candidates which are online."""
        return frozenset(
            name for name, node in self.nodes.items() if node.master_candidate and not node.offline
        )

    @property
    def online(self) -> frozenset[str]:
        """Names of the nodes which are not marked offline."""
        return frozenset(name for name, node in self.nodes.items() if not node.offline)

    @property
    def master(self) -> Node:
        """The master node."""
        return next(node for node in self.nodes.values() if node.uuid == self.master_uuid)


def read_members(path: str) -> Members:
    """Read the nodes from a configuration file, also one of an older version.

    :raises ConfigurationError: the file is missing, damaged or no configuration. The message names
        the file.
    """
    try:
        text = files.read(path)
    except FileNotFoundError as err:
        why = files.why_missing(path, "This node is not a master candidate.")
        raise errors.ConfigurationError(f"file {path} is missing. {why}") from err
    except OSError as err:
        raise errors.ConfigurationError(
            f"cannot read {err.filename or path}: {err.strerror}"
        ) from err
    return members_of(text, path)


def members_of(text: str | bytes, source: str) -> Members:
    """Read the nodes from the text of a configuration file, also one of an older version.

    :param source: where the text is from, for messages.
    :raises ConfigurationError: it is damaged or no configuration.
    """
    try:
        raw = upgrade.upgrade(json.loads(text))
        nodes = [
            codec.from_dict(Node, {**value, "uuid": uuid}) for uuid, value in raw["nodes"].items()
        ]
        found = Members(
            {node.name.lower(): node for node in nodes},
            raw["cluster"]["master_node"],
            raw["serial_no"],
            str(raw["cluster"].get("witness") or ""),
            str(raw["cluster"].get("uuid") or ""),
        )
    except errors.ConfigVersionMismatch:
        raise
    except (errors.ParseError, errors.ConfigurationError) as err:
        raise errors.ConfigurationError(f"{source}: {err}") from err
    except (KeyError, TypeError, AttributeError) as err:
        raise errors.ConfigurationError(f"{source} is not a configuration: {err!r:.200}") from err
    if all(node.uuid != found.master_uuid for node in found.nodes.values()):
        raise errors.ConfigurationError(
            f"{source}: cluster/master_node: node {found.master_uuid} is not in the configuration"
        )
    return found
