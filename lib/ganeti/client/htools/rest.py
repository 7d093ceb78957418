"""Reading the cluster from a REST interface, or from files with its answers."""

from __future__ import annotations

import urllib.parse
from pathlib import Path
from typing import Any

from ganeti import errors
from ganeti.cli import rest_address
from ganeti.client.htools.program import read_file
from ganeti.htools.cluster import Cluster
from ganeti.htools.loading import rest
from ganeti.wire import json

_FILES = ("groups", "nodes", "instances", "info")


def load(address: str, *, kvm_memory: int = 0) -> Cluster:
    """Read the cluster.

    :param address: a host, ``host:port``, ``https://user:password@host:port``, or
        ``file://directory`` with ``groups.json``, ``nodes.json``, ``instances.json`` and
        ``info.json``.
    :raises ParseError: it cannot be read.
    """
    if not address:
        raise errors.ParseError("the address of the REST interface is empty")
    if address.startswith("file://"):
        answers = _from_files(address.removeprefix("file://"))
    else:
        answers = _from_network(address)
    return rest.make(
        answers["groups"], answers["nodes"], answers["instances"], answers["info"],
        kvm_memory=kvm_memory,
    )  # fmt: skip


def _from_files(directory: str) -> dict[str, Any]:
    return {name: json.loads(read_file(f"{Path(directory, name)}.json")) for name in _FILES}


def _from_network(address: str) -> dict[str, Any]:
    from ganeti.rapi import client

    where = rest_address.split(address)
    rapi = client.GanetiRapiClient(
        str(where.hostname), port=where.port or client.GANETI_RAPI_PORT,
        username=_decoded(where.username), password=_decoded(where.password),
    )  # fmt: skip
    try:
        return {
            "groups": rapi.GetGroups(bulk=True),
            "nodes": rapi.GetNodes(bulk=True),
            "instances": rapi.GetInstances(bulk=True),
            "info": rapi.GetInfo(),
        }
    except client.Error as failure:
        raise errors.ParseError(f"{rest_address.without_user(address)}: {failure}") from failure


def _decoded(text: str | None) -> str | None:
    return None if text is None else urllib.parse.unquote(text)
