"""The description of an instance for the metadata daemon.

Master and node daemon make it with :func:`describe`; the metadata daemon reads it with
:func:`ganeti.metad.guests.parse`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ganeti.constants import metad as const
from ganeti.objects import codec
from ganeti.objects.instance import Instance

#: Attributes of an instance which the daemon needs; all others are left out.
_FACTS = ("name", "uuid", "os", "hypervisor", "tags", "ctime", "mtime")
_NIC_FACTS = ("mac", "ip", "name", "uuid", "network")


def talks(instance: Instance) -> bool:
    """Return True if an instance has a communication interface to its node."""
    return any((nic.name or "").startswith(const.NIC_PREFIX) for nic in instance.nics)


def describe(
    instance: Instance,
    *,
    public: Mapping[str, Any],
    private: Mapping[str, Any],
    secret: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the description of an instance.

    :param public: OS parameters which everybody may read; `private` and `secret` are those of the
        other visibilities.
    """
    full = codec.to_dict(instance)
    return {
        **{key: full[key] for key in _FACTS if key in full},
        "nics": [{key: nic.get(key) for key in _NIC_FACTS} for nic in full.get("nics", ())],
        "osparams_public": dict(public),
        "osparams_private": dict(private),
        "osparams_secret": dict(secret),
    }
