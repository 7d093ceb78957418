"""An instance as the metadata daemon wants it; both wings write it, the daemon reads it.

See :func:`ganeti.metad.guests.parse` for the other end.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ganeti.constants import metad as const
from ganeti.objects import codec
from ganeti.objects.instance import Instance

#: What the daemon shows, or hides, of an instance; the rest is not its business.
_FACTS = ("name", "uuid", "os", "hypervisor", "tags", "ctime", "mtime")
_NIC_FACTS = ("mac", "ip", "name", "uuid", "network")


def talks(instance: Instance) -> bool:
    """Whether an instance has an interface to its node."""
    return any((nic.name or "").startswith(const.NIC_PREFIX) for nic in instance.nics)


def describe(
    instance: Instance,
    *,
    public: Mapping[str, Any],
    private: Mapping[str, Any],
    secret: Mapping[str, Any],
) -> dict[str, Any]:
    """The description of an instance with these parameters of its OS."""
    full = codec.to_dict(instance)
    return {
        **{key: full[key] for key in _FACTS if key in full},
        "nics": [{key: nic.get(key) for key in _NIC_FACTS} for nic in full.get("nics", ())],
        "osparams_public": dict(public),
        "osparams_private": dict(private),
        "osparams_secret": dict(secret),
    }
