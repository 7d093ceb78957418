"""What the metadata daemon knows of guests; nothing of it is ever written to a disk.

A guest is known by the address of its communication interface. The node daemon describes it with
the dictionary form of an instance (:func:`parse`), to which OS parameters are added by visibility,
and for a helper guest a ``helper`` with its task and its environment. A new description takes the
place of the old one, also of another guest with the same address, which cannot run here any more.

What a guest says of itself is kept as its :class:`Report`. A guest may say what it likes, so the
report has a limit and is data of a stranger for whoever reads it.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ganeti import errors
from ganeti.constants import metad as const
from ganeti.utils import clock

#: Where a description has parameters of each visibility.
_PARAMETERS = (
    ("osparams_public", const.PUBLIC),
    ("osparams_private", const.PRIVATE),
    ("osparams_secret", const.SECRET),
)


@dataclass(slots=True)
class Report:
    """What a guest has told.

    :ivar contact: when it asked for something first, in seconds since 1970; None before.
    :ivar started: whether it has begun with its task.
    :ivar exit_code: of what it ran; None as long as that is not over.
    :ivar log: the last of what it wrote.
    """

    contact: float | None = None
    started: bool = False
    exit_code: int | None = None
    log: bytes = b""

    def add_log(self, data: bytes) -> None:
        """Append, and forget the beginning when there is too much."""
        self.log = (self.log + data)[-const.LOG_MAX_BYTES :]

    def to_wire(self) -> dict[str, Any]:
        """Its form on the control socket."""
        return {
            "contact": self.contact,
            "started": self.started,
            "exit_code": self.exit_code,
            "log": self.log.decode("utf-8", "replace"),
        }


@dataclass(frozen=True, slots=True)
class Guest:
    """One guest.

    :ivar facts: the description, without OS parameters and without the helper's part.
    :ivar parameters: OS parameter -> (value, visibility).
    :ivar task: of a helper guest, else None.
    :ivar environment: of the script that a helper guest runs.
    """

    name: str
    ip: str
    mac: str
    os: str
    facts: Mapping[str, Any]
    parameters: Mapping[str, tuple[str, str]] = field(repr=False)
    task: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    report: Report = field(default_factory=Report)


def parse(description: object) -> Guest:
    """Read the description of a guest.

    :raises ParameterError: it is none, or the guest has no communication interface.
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
        raise errors.ParameterError(f"guest {name}: '{task}' is no task of a helper guest")
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
    """Address and MAC of the interface to the node."""
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
        # Who describes an instance as it is stored has the public ones here.
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
        # What it is instead may be a secret.
        raise errors.ParameterError(f"guest {name}: {key} is no dictionary")
    return value


class Guests:
    """All guests that were described."""

    def __init__(self, now: Callable[[], float] = clock.now) -> None:
        self._now = now
        self._by_ip: dict[str, Guest] = {}

    def update(self, guest: Guest) -> None:
        """Take a description in place of an earlier one."""
        self.remove(guest.name)
        self._by_ip[guest.ip] = guest

    def remove(self, name: str) -> bool:
        """Forget a guest; whether it was known."""
        found = [ip for ip, guest in self._by_ip.items() if guest.name == name]
        for ip in found:
            del self._by_ip[ip]
        return bool(found)

    def asking(self, ip: str) -> Guest | None:
        """The guest with an address, which has just shown that it lives."""
        guest = self._by_ip.get(ip)
        if guest is not None and guest.report.contact is None:
            guest.report.contact = self._now()
        return guest

    def by_mac(self, mac: str) -> Guest | None:
        """The guest whose communication interface has this address."""
        for guest in self._by_ip.values():
            if guest.mac == mac:
                return guest
        return None

    def named(self, name: str) -> Guest | None:
        """The guest of a name."""
        for guest in self._by_ip.values():
            if guest.name == name:
                return guest
        return None

    def all(self) -> list[Guest]:
        """All of them, by name."""
        return sorted(self._by_ip.values(), key=lambda guest: guest.name)
