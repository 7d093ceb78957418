"""Changes to the disks and NICs of an instance, as opcodes carry them.

By default a device is added to and removed from the end of the list. A number, a name or a UUID
identifies a device; the number ``-1`` is the last device, or the place after it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ganeti import errors
from ganeti.constants.disk import (
    MOD_ADD,
    MOD_ATTACH,
    MOD_DETACH,
    MOD_MODIFY,
    MOD_REMOVE,
)
from ganeti.constants.net import VALUE_NONE
from ganeti.utils import suggest
from ganeti.utils.digits import is_number
from ganeti.utils.text import wrong_variable

END = -1


class Device(Protocol):
    """A disk or a NIC: a device which has a name and a UUID."""

    @property
    def name(self) -> str | None: ...

    @property
    def uuid(self) -> str: ...


@dataclass(frozen=True, slots=True)
class DeviceChange:
    """One change of a device.

    :ivar action: one of ``MOD_*``.
    :ivar ident: number, name or UUID of the device.
    :ivar params: parameters of the device.
    """

    action: str
    ident: int | str
    params: dict[str, Any]


def changes_of(given: Sequence[Sequence[Any]]) -> list[DeviceChange]:
    """Read the changes of an opcode: ``[action, device, parameters]``, or the older pairs."""
    found = []
    for item in given:
        if len(item) == 3:
            action, ident, params = item
        elif item[0] in (MOD_ADD, MOD_ATTACH, MOD_DETACH, MOD_REMOVE):
            action, ident, params = item[0], END, item[1]
        else:
            action, ident, params = MOD_MODIFY, item[0], item[1]
        if isinstance(ident, str) and is_number(ident.removeprefix("-")):
            ident = int(ident)
        found.append(DeviceChange(action, ident, dict(params)))
    return found


def find(what: str, devices: Sequence[Device], ident: int | str) -> int:
    """Find the number of a device by its number, name or UUID.

    :param what: kind of device, for errors.
    :raises errors.OpPrereqError: there is no such device, or its name is not unique.
    """
    if isinstance(ident, int):
        number = ident + len(devices) if ident == END else ident
        if 0 <= number < len(devices):
            return number
        has = f"it has {len(devices)}" if devices else "it has none"
        shown = "last" if ident == END else str(ident)
        raise errors.OpPrereqError(f"the instance has no {what} {shown}, {has}", errors.ECODE_NOENT)
    for match in (
        [index for index, device in enumerate(devices) if device.uuid == ident],
        [index for index, device in enumerate(devices) if device.name == ident],
    ):
        if len(match) > 1:
            raise errors.OpPrereqError(
                f"several {what}s are named {ident!r}. Use the number or the UUID.",
                errors.ECODE_INVAL,
            )
        if match:
            return match[0]
    raise errors.OpPrereqError(
        f"the instance has no {what} with name or UUID {ident!r}", errors.ECODE_NOENT
    )


def checked_name(what: str, name: Any) -> str | None:
    """Return the name of a new or changed device; None for ``none`` and for an empty name.

    :param what: the device, for errors.
    :raises errors.OpPrereqError: the name consists of digits, and would be taken for a number.
    """
    if name in (None, VALUE_NONE, ""):
        return None
    text = str(name)
    if wrong := wrong_variable("name", text):
        # Scripts and hooks get it.
        raise errors.OpPrereqError(f"{what}: name: {wrong}", errors.ECODE_INVAL)
    if text.isdigit():
        raise errors.OpPrereqError(
            f"{what}: the name {text!r} consists of digits only, so commands would take it for the"
            " number of a device. Add a letter.",
            errors.ECODE_INVAL,
        )
    return text


def place(what: str, devices: Sequence[Device], ident: int | str, limit: int) -> int:
    """Check the number of a new device.

    :param limit: how many devices an instance may have.
    :returns: the number, counted from 0.
    :raises errors.OpPrereqError: there are too many devices, or a new one cannot have that number.
    """
    if len(devices) >= limit:
        raise errors.OpPrereqError(f"an instance has at most {limit} {what}s", errors.ECODE_STATE)
    if not isinstance(ident, int):
        raise errors.OpPrereqError(f"a new {what} gets a number, not {ident!r}", errors.ECODE_INVAL)
    number = len(devices) if ident == END else ident
    if not 0 <= number <= len(devices):
        raise errors.OpPrereqError(
            f"a new {what} cannot be number {ident}, the next is {len(devices)}",
            errors.ECODE_INVAL,
        )
    return number


def require_no_params(what: str, change: DeviceChange) -> None:
    """Check that the removal of a device has no parameters."""
    if change.params:
        raise errors.OpPrereqError(
            f"parameters {', '.join(sorted(change.params))} are not allowed when a {what} is"
            f" {_PAST[change.action]}",
            errors.ECODE_INVAL,
        )


_PAST = {
    MOD_ADD: "added",
    MOD_ATTACH: "attached",
    MOD_DETACH: "detached",
    MOD_MODIFY: "changed",
    MOD_REMOVE: "removed",
}


def updated_params(
    what: str,
    own: Mapping[str, Any],
    changes: Mapping[str, Any],
    check: Callable[[Mapping[str, Any]], dict[str, Any]],
    known: Collection[str],
) -> dict[str, Any]:
    """Return an object's own parameters after changes; ``default`` and None reset one.

    :param check: checks names and types of parameters which are set.
    :param known: names of all parameters; a parameter which is reset must exist, too.
    :raises errors.OpPrereqError: a parameter is unknown or has a wrong type.
    """
    gone = {key for key, value in changes.items() if value in (None, "default")}
    unknown = sorted(gone - set(known))
    if unknown:
        raise errors.OpPrereqError(
            f"{what}: unknown parameter {', '.join(unknown)}.{suggest.hint(unknown[0], known)}",
            errors.ECODE_INVAL,
        )
    checked = check({key: value for key, value in changes.items() if key not in gone})
    return {**{key: value for key, value in own.items() if key not in gone}, **checked}
