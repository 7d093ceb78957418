"""The guests which the metadata daemon knows; their data are never written to a disk.

A guest is identified by the address of its communication interface. The node daemon sends its
description: the dictionary form of an instance (:func:`parse`), with OS parameters by visibility,
and for a helper guest a part ``helper`` with its task and its environment. A new description
replaces an older one of the same guest. It also replaces that of another guest with the same
address, which cannot run on this node any more.

A guest may send a :class:`GuestReport`. The daemon does not trust the guest, so the report has a
size limit, and programs which read it must not trust its content.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ganeti import errors
from ganeti.constants import metad as const
from ganeti.utils import clock

#: Key of a description with the OS parameters of each visibility.
_PARAMETERS = (
    ("osparams_public", const.PUBLIC),
    ("osparams_private", const.PRIVATE),
    ("osparams_secret", const.SECRET),
)


@dataclass(slots=True)
class GuestReport:
    """The report of a guest.

    :ivar contact: time of its first request in seconds since the epoch; None before.
    :ivar started: whether it has begun with its task.
    :ivar exit_code: exit code of its task; None until the task has ended.
    :ivar log: the last part of its output, at most ``constants.metad.LOG_MAX_BYTES`` bytes.
    """

    contact: float | None = None
    started: bool = False
    exit_code: int | None = None
    log: bytes = b""

    def add_log(self, data: bytes) -> None:
        """Append output; the beginning of a log that is too long is dropped."""
        self.log = (self.log + data)[-const.LOG_MAX_BYTES :]

    def to_wire(self) -> dict[str, Any]:
        """Return the report as the control socket sends it."""
        return {
            "contact": self.contact,
            "started": self.started,
            "exit_code": self.exit_code,
            "log": self.log.decode("utf-8", "replace"),
        }


@dataclass(frozen=True, slots=True)
class Guest:
    """One guest.

    :ivar facts: the description, without OS parameters and without the part ``helper``.
    :ivar parameters: value and visibility of each OS parameter, by name.
    :ivar task: task of a helper guest; None for any other guest.
    :ivar environment: variables of the script that a helper guest runs.
    """

    name: str
    ip: str
    mac: str
    os: str
    facts: Mapping[str, Any]
    parameters: Mapping[str, tuple[str, str]] = field(repr=False)
    task: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    report: GuestReport = field(default_factory=GuestReport)


def parse(description: object) -> Guest:
    """Read the description of a guest.

    :raises ParameterError: it is not a description, or the guest has no communication interface.
    """
    if not isinstance(description, dict):
        raise errors.ParameterError("the description of a guest is a dictionary")
    name = description.get("name")
    if not isinstance(name, str) or not name:
        raise errors.ParameterError("the description of a guest has no name")
    ip, mac = _communication(name, description.get("nics"))
    helper = _dict(description, "helper", name)
    environment = _dict(helper, "environment", name)
    task = helper.get("task")
    if task not in (None, const.TASK_INSTALL, const.TASK_ZERO):
        raise errors.ParameterError(f"guest {name}: '{task}' is not a task of a helper guest")
    left_out = {"helper", "osparams", *(key for key, _ in _PARAMETERS)}
    return Guest(
        name,
        ip,
        mac,
        str(description.get("os") or ""),
        {key: value for key, value in description.items() if key not in left_out},
        _parameters(description, name),
        task,
        {str(key): str(value) for key, value in environment.items()},
    )


def _communication(name: str, nics: object) -> tuple[str, str]:
    """Return address and MAC of the communication interface."""
    for nic in nics if isinstance(nics, list) else ():
        if isinstance(nic, dict) and str(nic.get("name") or "").startswith(const.NIC_PREFIX):
            try:
                ip = str(ipaddress.IPv4Address(str(nic.get("ip"))))
            except ValueError:
                raise errors.ParameterError(
                    f"guest {name}: the interface {nic['name']} has no IPv4 address"
                ) from None
            return ip, str(nic.get("mac") or "").lower()
    raise errors.ParameterError(
        f"guest {name} has no interface whose name begins with {const.NIC_PREFIX}"
    )


def _parameters(description: Mapping[str, Any], name: str) -> dict[str, tuple[str, str]]:
    found: dict[str, tuple[str, str]] = {}
    tables = list(_PARAMETERS)
    if "osparams_public" not in description:
        # The stored form of an instance has its public parameters here.
        tables[0] = ("osparams", const.PUBLIC)
    for key, visibility in tables:
        for parameter, value in _dict(description, key, name).items():
            found[str(parameter)] = (str(value), visibility)
    return found


def _dict(holder: Mapping[str, Any], key: str, name: str) -> dict[str, Any]:
    value = holder.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        # The value may be a secret, so the message does not show it.
        raise errors.ParameterError(f"guest {name}: {key} is not a dictionary")
    return value


class Guests:
    """All guests with a description."""

    def __init__(self, now: Callable[[], float] = clock.now) -> None:
        self._now = now
        self._by_ip: dict[str, Guest] = {}

    def update(self, guest: Guest) -> None:
        """Add a guest, or replace its earlier description."""
        self.remove(guest.name)
        self._by_ip[guest.ip] = guest

    def remove(self, name: str) -> bool:
        """Remove a guest; False when it was not known."""
        found = [ip for ip, guest in self._by_ip.items() if guest.name == name]
        for ip in found:
            del self._by_ip[ip]
        return bool(found)

    def asking(self, ip: str) -> Guest | None:
        """Return the guest which sent a request from this address; None when there is none.

        Records the time of its first contact.
        """
        guest = self._by_ip.get(ip)
        if guest is not None and guest.report.contact is None:
            guest.report.contact = self._now()
        return guest

    def by_mac(self, mac: str) -> Guest | None:
        """Return the guest whose communication interface has this MAC address; None without any."""
        for guest in self._by_ip.values():
            if guest.mac == mac:
                return guest
        return None

    def named(self, name: str) -> Guest | None:
        """Return the guest with a name; None when there is none."""
        for guest in self._by_ip.values():
            if guest.name == name:
                return guest
        return None

    def all(self) -> list[Guest]:
        """Return all guests, sorted by name."""
        return sorted(self._by_ip.values(), key=lambda guest: guest.name)
