"""The administrator's program, which connects interfaces in place of the built-in commands.

The hypervisor names the path (for KVM, ``kvm-vif-bridge`` in the configuration directory). The
program gets the interface as its argument and the NIC in its environment; ``ACTION`` is ``up`` or
``down``.

Source: manual page **ganeti-kvm**, *NETWORK*.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from ganeti.constants import net
from ganeti.utils import process

_TIMEOUT_S = 30.0

#: Values of ``ACTION``.
UP = "up"
DOWN = "down"
#: Value of ``MIGRATION_PHASE`` on the target, while the guest still runs on the source.
PHASE_PRE = "pre"


def exists(path: str) -> bool:
    """Return True if the administrator has installed the program."""
    return os.access(path, os.X_OK)


def run(path: str, tap: str, env: Mapping[str, str]) -> None:
    """Run the program for one interface.

    :raises CommandError: it failed, or took longer than 30 seconds.
    """
    process.run([path, tap], timeout_s=_TIMEOUT_S, reset_env=True, env=env)


def environment(
    tap: str, index: int, nic: Mapping[str, Any], instance_name: str, tags: Sequence[str]
) -> dict[str, str]:
    """Return the published environment of the program, for :data:`UP`.

    :param index: position of the NIC among the NICs of the instance.
    :param tags: of the instance.
    """
    params = nic["nicparams"]
    env = {
        "PATH": process.DEFAULT_PATH,
        "INSTANCE": instance_name,
        "MAC": nic["mac"],
        "MODE": params["mode"],
        "LINK": params.get("link") or "",
        "INTERFACE": tap,
        "INTERFACE_INDEX": str(index),
        "INTERFACE_UUID": nic.get("uuid") or "",
        "TAGS": " ".join(tags),
        "ACTION": UP,
    }
    optional = {
        "IP": nic.get("ip"),
        "IP6": nic.get("ip6"),
        "INTERFACE_NAME": nic.get("name"),
        "VLAN": params.get("vlan"),
    }
    env.update({key: str(value) for key, value in optional.items() if value})
    if params["mode"] == net.NIC_MODE_BRIDGED:
        env["BRIDGE"] = env["LINK"]
    network = nic.get("netinfo")
    if isinstance(network, dict):
        for key, field in (
            ("NAME", "name"),
            ("UUID", "uuid"),
            ("SUBNET", "network"),
            ("GATEWAY", "gateway"),
            ("SUBNET6", "network6"),
            ("GATEWAY6", "gateway6"),
            ("MAC_PREFIX", "mac_prefix"),
        ):
            if network.get(field):
                env[f"NETWORK_{key}"] = str(network[field])
        env["NETWORK_TAGS"] = " ".join(network.get("tags") or ())
    return env
