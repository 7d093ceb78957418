"""Reading the cluster from a REST interface, or from files with its answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ganeti import errors
from ganeti.htools.cluster import Cluster
from ganeti.htools.loading import rest
from ganeti.wire import json

_FILES = ("groups", "nodes", "instances", "info")


def load(address: str, *, kvm_memory: int = 0) -> Cluster:
    """Read the cluster.

    :param address: a host, ``https://host:port``, or ``file://directory`` with ``groups.json``,
        ``nodes.json``, ``instances.json`` and ``info.json``.
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
    found = {}
    for name in _FILES:
        path = Path(directory, f"{name}.json")
        try:
            found[name] = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as failure:
            raise errors.ParseError(f"cannot read {path}: {failure}") from failure
    return found


def _from_network(address: str) -> dict[str, Any]:
    from ganeti.rapi import client

    host, port = address.removeprefix("https://").rstrip("/"), 0
    if "://" in host:
        raise errors.ParseError(f"{address}: the REST interface speaks only https")
    if ":" in host:
        host, _, number = host.partition(":")
        if not number.isdecimal():
            raise errors.ParseError(f"{address}: the port is not a number")
        port = int(number)
    rapi = client.GanetiRapiClient(host, port=port or client.GANETI_RAPI_PORT)
    try:
        return {
            "groups": rapi.GetGroups(bulk=True),
            "nodes": rapi.GetNodes(bulk=True),
            "instances": rapi.GetInstances(bulk=True),
            "info": rapi.GetInfo(),
        }
    except client.Error as failure:
        raise errors.ParseError(f"{address}: {failure}") from failure
