"""Proves that the description of an export is as this cluster has written it.

An export lies on a node, where root can change it, and can be copied from anywhere. What it says
about things of nodes counts as the cluster's own only if the *identity* of the export ends with the
seal of the master: an HMAC (SHA256) of what the description says about them. The key is in the
configuration, which only the master candidates have.

The seal says nothing about the content of disks, and nothing about the time: an older export of the
same instance has a good seal, too.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from typing import TYPE_CHECKING, Any

from ganeti.constants import hv
from ganeti.objects import updated
from ganeti.utils.text import new_uuid
from ganeti.wire import json

if TYPE_CHECKING:
    from ganeti.cmdlib.base import Context
    from ganeti.cmdlib.ops.transfer.export_description import ExportedInstance
    from ganeti.objects import FilledInstance

_DIGITS = 40
_NIC_PARTS = ("link", "mode", "vlan")
_EMPTY = (None, "", "None", "none")


def sealed_identity(ctx: Context, instance: FilledInstance) -> str:
    """Return the identity of a new export, with a seal; makes the key with the first one.

    :param instance: with the parameters which the export will have.
    """
    random = new_uuid()
    nics = [
        {
            "network": nic.netinfo.name if nic.netinfo is not None else None,
            **{part: nic.nicparams.get(part) for part in _NIC_PARTS},
        }
        for nic in instance.nics
    ]
    said = _said(
        instance.name,
        instance.os,
        (instance.hypervisor, instance.hvparams),
        (instance.osparams, instance.osparams_private),
        nics,
        instance.tags,
    )
    return f"{random}-{_seal(_key(ctx), random, said)}"


def is_own(key: str, found: ExportedInstance) -> bool:
    """Tell whether a description has a good seal.

    :param key: of the cluster; no seal is good when it is empty.
    """
    random, _hyphen, digest = (found.identity or "").rpartition("-")
    if not key or len(digest) != _DIGITS or not digest.isascii():
        return False
    said = _said(
        found.name,
        found.os,
        (found.hypervisor, found.hvparams),
        (found.osparams, found.osparams_private),
        found.nics,
        found.tags,
    )
    return hmac.compare_digest(_seal(key, random, said), digest)


def _key(ctx: Context) -> str:
    if key := ctx.config.cluster().export_key:
        return key
    with ctx.config.transaction() as change:
        cluster = change.data.cluster
        if not cluster.export_key:
            cluster = updated(cluster, export_key=secrets.token_hex(32))
            change.cluster.update(cluster)
        return cluster.export_key


def _said(
    name: str, os: str, hypervisor: Any, osparams: Any, nics: Any, tags: Any
) -> dict[str, Any]:
    """Return what a description says about things of nodes, in one form for both ends."""
    public, private = osparams
    return {
        "name": name,
        "os": os,
        "hypervisor": hypervisor[0],
        "hvparams": {
            key: str(value)
            for key, value in hypervisor[1].items()
            if value is not None and key not in hv.GLOBAL_PARAMS
        },
        "osparams": {key: str(value) for key, value in public.items()},
        "osparams_private": {key: str(value) for key, value in private.items()},
        "nics": [_connection(nic) for nic in nics],
        "tags": sorted(tags),
    }


def _connection(nic: Any) -> dict[str, str]:
    """Return where an interface is connected; its network says all of it."""
    parts = ("network",) if nic.get("network") not in _EMPTY else _NIC_PARTS
    return {part: str(nic[part]) for part in parts if nic.get(part) not in _EMPTY}


def _seal(key: str, random: str, said: dict[str, Any]) -> str:
    text = random + json.dumps_pretty(said)
    return hmac.new(key.encode(), text.encode(), hashlib.sha256).hexdigest()[:_DIGITS]
