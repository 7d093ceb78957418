"""Values of known settings which versions of the original do not have.

:mod:`ganeti.config.upgrade` has the settings which no version of the original has. Here are
settings which it has, with values which it refuses, or which have no effect there: some exist only
here, others came with its version 3.1.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from ganeti.constants import net as net_const

Config = dict[str, Any]

#: Kinds of settings, for the remedy.
HYPERVISOR, NIC, NETWORK, STORAGE, SSH_KEYS = "hypervisor", "nic", "network", "storage", "ssh-keys"

_V3_1 = 3_010_000
# Hypervisor -> parameter -> values which version 3.0 does not have.
_HV_SINCE_3_1: dict[str, dict[str, tuple[str, ...]]] = {
    "kvm": {"disk_aio": ("io_uring",), "scsi_controller_type": ("dc390",)},
}
_SSH_KEY_TYPES = ("dsa", "ecdsa", "rsa")
_RBD, _USER_ID = "rbd", "user-id"


class NewerValue(NamedTuple):
    """A value which a version of the original does not have.

    :ivar kind: one of the kinds above.
    :ivar owner: whose it is, such as ``instance web1``.
    :ivar place: for people, such as ``NIC 0``; empty if the name says enough.
    :ivar name: of the setting.
    :ivar value: its value.
    :ivar settings: the dictionary in the configuration which has it.
    :ivar replacement: settings which replace it there; None leaves it out.
    """

    kind: str
    owner: str
    place: str
    name: str
    value: str
    settings: Config
    replacement: Config | None = None

    @property
    def text(self) -> str:
        """For people, such as ``instance web1: disk_aio=io_uring of kvm``."""
        where = f" of {self.place}" if self.place else ""
        return f"{self.owner}: {self.name}={self.value}{where}"

    def replace(self) -> None:
        """Put the replacement into the configuration."""
        self.settings.pop(self.name, None)
        self.settings.update(self.replacement or {})


def find(
    config: Config, to: int, hypervisor_sets: Iterator[tuple[str, Config]]
) -> Iterator[NewerValue]:
    """Find the values which a version of the original does not have.

    :param config: of this version.
    :param to: number of the version of the original, such as 3000000.
    :param hypervisor_sets: all sets of parameters of hypervisors: whose, parameters by hypervisor.
    """
    cluster = config["cluster"]
    if cluster.get("ssh_key_type", "rsa") not in _SSH_KEY_TYPES:
        yield NewerValue(
            SSH_KEYS, "the cluster", "", "ssh_key_type", cluster["ssh_key_type"], cluster,
            {"ssh_key_type": "rsa", "ssh_key_bits": 2048},
        )  # fmt: skip
    if to >= _V3_1:
        return
    for owner, by_hypervisor in hypervisor_sets:
        for hypervisor, values in _HV_SINCE_3_1.items():
            own = by_hypervisor.get(hypervisor) or {}
            for name, newer in values.items():
                if own.get(name) in newer:
                    yield NewerValue(HYPERVISOR, owner, hypervisor, name, own[name], own)
    yield from _networks(config)
    for owner, entry in (
        ("the cluster", cluster),
        *((f"nodegroup {one.get('name')}", one) for one in _entries(config, "nodegroups")),
    ):
        rbd = (entry.get("diskparams") or {}).get(_RBD) or {}
        if rbd.get(_USER_ID):
            yield NewerValue(STORAGE, owner, _RBD, _USER_ID, rbd[_USER_ID], rbd)


def _entries(config: Config, key: str) -> list[Config]:
    return list((config.get(key) or {}).values())


def _networks(config: Config) -> Iterator[NewerValue]:
    """Find where the mode ``ext`` is used, which came with version 3.1."""
    bridged = {"mode": net_const.NIC_MODE_BRIDGED}
    names = {one.get("uuid"): one.get("name") for one in _entries(config, "networks")}
    places = [("the cluster", "", NIC, (config["cluster"].get("nicparams") or {}).get("default"))]
    for instance in _entries(config, "instances"):
        places += [
            (f"instance {instance.get('name')}", f"NIC {index}", NIC, nic.get("nicparams"))
            for index, nic in enumerate(instance.get("nics") or ())
        ]
    for group in _entries(config, "nodegroups"):
        places += [
            (f"nodegroup {group.get('name')}", f"network {names.get(uuid, uuid)}", NETWORK, params)
            for uuid, params in (group.get("networks") or {}).items()
        ]
    for owner, place, kind, params in places:
        if params and params.get("mode") == net_const.NIC_MODE_EXT:
            yield NewerValue(kind, owner, place, "mode", net_const.NIC_MODE_EXT, params, bridged)
