"""Reading the cluster from a REST interface, or from files with its answers."""

from __future__ import annotations

import urllib.parse
from pathlib import Path
from typing import Any

from ganeti import errors
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


def without_user(address: str) -> str:
    """Return an address without user and password, so that it can be shown."""
    scheme, found, rest_of_it = address.rpartition("://")
    if scheme == "file":
        return address
    return f"{scheme}{found}{rest_of_it.rpartition('@')[2]}"


def _from_files(directory: str) -> dict[str, Any]:
    return {name: json.loads(read_file(f"{Path(directory, name)}.json")) for name in _FILES}


def _from_network(address: str) -> dict[str, Any]:
    from ganeti.rapi import client

    where = _split(address)
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
        raise errors.ParseError(f"{without_user(address)}: {failure}") from failure


def _split(address: str) -> urllib.parse.SplitResult:
    """Split the address of a REST interface; its port is checked.

    :raises ParseError: it is not valid; the message has no password.
    """
    scheme, found, _ = address.partition("://")
    if found and scheme != "https":
        raise errors.ParseError(f"{without_user(address)}: the REST interface speaks only https")
    if address.count(":") > 1 and not found and "[" not in address and "@" not in address:
        address = f"[{address}]"  # an IPv6 address without a port
    wrong = errors.ParseError(
        f"'{without_user(address)}' is not an address; give HOST, HOST:PORT or"
        " https://HOST:PORT, with a number as the port"
    )
    try:
        where = urllib.parse.urlsplit(address if found else f"https://{address}")
        port = where.port
    except ValueError as failure:
        raise wrong from failure
    if not where.hostname or port == 0 or where.path.rstrip("/") or where.query:
        raise wrong
    return where


def _decoded(text: str | None) -> str | None:
    return None if text is None else urllib.parse.unquote(text)
