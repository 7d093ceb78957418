"""Turn options about disks, network interfaces and parameters of an instance into opcode fields.

Options of a new instance contain the number of the device (``--disk 0:size=1g``). Options that
change an instance also contain the action (``--disk add:size=1g``, ``--net 1:remove``, ``--disk
data:mode=ro``).
"""

from __future__ import annotations

from collections.abc import Sequence

from ganeti import TYPE_CHECKING, errors
from ganeti.cli import value_types
from ganeti.cli.command import Values
from ganeti.constants import disk as disk_const
from ganeti.constants import instance as const
from ganeti.utils.digits import is_number

if TYPE_CHECKING:
    from typing import Any


def hypervisor(values: Values) -> tuple[str | None, dict[str, Any]]:
    """Return the hypervisor and its parameters from ``-H kvm:kernel_path=...``.

    :raises ParameterError: the option removes the hypervisor (``-H no_kvm``).
    :raises TypeEnforcementError: unknown parameter, or wrong type of a value.
    """
    if values.hypervisor is None:
        return None, {}
    name, params = values.hypervisor
    if not isinstance(params, dict):
        raise errors.ParameterError(name)
    return name, hypervisor_params(params)


def hypervisor_params(params: dict[str, Any]) -> dict[str, Any]:
    """Convert hypervisor parameters from texts to their types.

    :raises TypeEnforcementError: unknown parameter, or wrong type of a value.
    """
    if not params:
        return {}
    from ganeti.objects import hvparams  # a large table; most commands set no parameter

    return value_types.typed_params(params, hvparams.TYPES, allowed=("default",))


def backend(values: Values) -> dict[str, Any]:
    """Return the backend parameters in their types.

    :raises TypeEnforcementError: unknown parameter, or wrong type of a value.
    """
    return value_types.typed_params(
        values.beparams, const.BE_PARAM_TYPES_WITH_MEMORY, allowed=("default",)
    )


def _index(text: str, what: str) -> int:
    if not is_number(text):
        raise errors.OpPrereqError(
            f"'{text}' is not the number of a {what}. Write 0:KEY=VALUE,...",
            errors.ECODE_INVAL,
        )
    return int(text)


def numbered(given: Sequence[tuple[str, Any]], what: str, limit: int) -> list[dict[str, Any]]:
    """Turn options such as ``0:a=b`` into a list of parameters, ordered by number.

    A device whose number is not given gets no parameters.

    :param what: name of the kind of device, for error texts.
    :param limit: greatest number of devices.
    :raises OpPrereqError: a number is given twice or too high, or a device is removed.
    """
    found: dict[int, dict[str, Any]] = {}
    for ident, params in given:
        number = _index(ident, what)
        if not isinstance(params, dict):
            raise errors.OpPrereqError(f"{what} {ident} cannot be removed here", errors.ECODE_INVAL)
        if number in found:
            raise errors.OpPrereqError(f"{what} {number} is given twice", errors.ECODE_INVAL)
        if number >= limit:
            raise errors.OpPrereqError(
                f"{what} {number}: an instance has at most {limit}", errors.ECODE_INVAL
            )
        found[number] = params
    return [found.get(number, {}) for number in range(max(found, default=-1) + 1)]


_MAX_DISKS = 16
_MAX_NICS = 8
_NIC_KEYS = frozenset(("bridge", "ip", "ip6", "link", "mac", "mode", "name", "network", "vlan"))


def nic_list(values: Values) -> list[dict[str, Any]]:
    """Return the network interfaces of a new instance; by default one with default parameters.

    :raises OpPrereqError: ``--net`` and ``--no-nics`` are both given.
    :raises TypeEnforcementError: an unknown key.
    """
    if values.no_nics:
        if values.nics:
            raise errors.OpPrereqError("give either --net or --no-nics", errors.ECODE_INVAL)
        return []
    return _nics(values.nics) if values.nics else [{}]


def copied_nics(values: Values) -> list[dict[str, Any]]:
    """Return what is different for the network interfaces of a copy.

    :raises TypeEnforcementError: an unknown key.
    """
    return _nics(values.nics)


def _nics(given: Sequence[tuple[str, Any]]) -> list[dict[str, Any]]:
    nics = numbered(given, "network interface", _MAX_NICS)
    for number, nic in enumerate(nics):
        if nic.get("bridge") == "auto":
            del nic["bridge"]
        unknown = sorted(set(nic) - _NIC_KEYS)
        if unknown:
            from ganeti.utils import suggest  # needed after a mistake only

            raise errors.TypeEnforcementError(
                f"unknown parameter '{unknown[0]}' of network interface {number}."
                f"{suggest.hint(unknown[0], _NIC_KEYS)}"
            )
    return nics


def disk_list(values: Values) -> list[dict[str, Any]]:
    """Return the disks of a new instance from ``--disk`` or ``-s``.

    :raises OpPrereqError: disks of a diskless instance, no disks of another one, or both options.
    """
    given = bool(values.disks) or values.sd_size is not None
    if values.disk_template == disk_const.DISKLESS:
        if given:
            raise errors.OpPrereqError(
                "Diskless instance but disk information passed", errors.ECODE_INVAL
            )
        return []
    if not given:
        raise errors.OpPrereqError(
            "no disk is given. Use -s SIZE for one disk, --disk 0:size=SIZE for each of several"
            " disks,"
            " or -t diskless for none.",
            errors.ECODE_INVAL,
        )
    if values.disks and values.sd_size is not None:
        raise errors.OpPrereqError("give either --disk or -s", errors.ECODE_INVAL)
    if values.sd_size is not None:
        return [{"size": values.sd_size}]
    disks = numbered(values.disks, "disk", _MAX_DISKS)
    missing = set(range(len(disks))) - {_index(ident, "disk") for ident, _params in values.disks}
    if missing:
        raise errors.OpPrereqError(
            f"disk {min(missing)} is not given. Number the disks from 0 on.", errors.ECODE_INVAL
        )
    return [_disk(number, params) for number, params in enumerate(disks)]


def copied_disks(values: Values) -> list[dict[str, Any]]:
    """Return what is different for the disks of a copy, with sizes in MiB.

    :raises OpPrereqError: a number is given twice or too high.
    """
    return [
        typed(f"disk {number}", params)
        for number, params in enumerate(numbered(values.disks, "disk", _MAX_DISKS))
    ]


def _disk(number: int, params: dict[str, Any]) -> dict[str, Any]:
    """Return one disk with its size in MiB.

    Unknown keys are kept: they are parameters of an external storage provider.
    """
    disk = dict(params)
    # The older key for an existing image or device.
    if "path" in disk and "adopt" not in disk:
        disk["adopt"] = disk.pop("path")
    if "size" in disk and "adopt" in disk:
        raise errors.OpPrereqError(
            f"disk {number}: size cannot be given with adopt; an adopted disk keeps its size",
            errors.ECODE_INVAL,
        )
    if "adopt" in disk:
        disk["size"] = 0
    return typed(f"disk {number}", with_size(f"disk {number}", disk))


def with_size(what: str, disk: dict[str, Any]) -> dict[str, Any]:
    """Return a new disk with its size; without one, it gets the standard size (``auto``).

    Source: Ganeti design 2.0, *Disk Device Options*.

    :param what: name of the disk, for error texts.
    :raises OpPrereqError: a key looks like a mistyped ``size``.
    """
    if "size" in disk:
        return disk
    from ganeti.utils import suggest  # only a disk without a size needs it

    misspelt = next((key for key in disk if suggest.nearest(key, ("size",))), None)
    if misspelt is not None:
        raise errors.OpPrereqError(
            f"{what} has no size. Did you mean 'size' instead of '{misspelt}'?",
            errors.ECODE_INVAL,
        )
    return {**disk, "size": "auto"}


# -- changes ------------------------------------------------------------------------------------

_ACTIONS = disk_const.MOD_ACTIONS_WITH_MODIFY


def changes(given: Sequence[tuple[str, Any]], what: str) -> list[list[Any]]:
    """Turn options such as ``add:size=1g``, ``1:remove`` or ``data:mode=ro`` into an opcode field.

    :param what: name of the kind of device, for error texts.
    :returns: ``[action, number or name, parameters]`` for each; the number -1 means the end of the
        list of devices.
    :raises OpPrereqError: several actions, or a parameter without a value.
    """
    found = []
    for ident, params in given:
        if not isinstance(params, dict):
            raise errors.OpPrereqError(
                f"{what} {ident}: write {ident}:remove to remove it", errors.ECODE_INVAL
            )
        action, where, rest = _action(ident, params, what)
        for key, value in rest.items():
            if not isinstance(value, str):
                raise errors.OpPrereqError(
                    f"{what} {ident}: {key} needs a value", errors.ECODE_INVAL
                )
        found.append([action, where, rest])
    return found


def _action(ident: str, params: dict[str, Any], what: str) -> tuple[str, int | str, dict[str, Any]]:
    if ident in _ACTIONS and ident != disk_const.MOD_MODIFY:
        return ident, -1, dict(params)
    number = ident[1:] if ident.startswith("-") else ident
    where: int | str = int(ident) if is_number(number) else ident
    asked = [name for name in _ACTIONS if params.get(name) is True]
    if len(asked) > 1:
        raise errors.OpPrereqError(
            f"{what} {ident}: give only one of the actions {', '.join(asked)}", errors.ECODE_INVAL
        )
    rest = {key: value for key, value in params.items() if key not in asked}
    return (asked[0] if asked else disk_const.MOD_MODIFY), where, rest


def disk_changes(given: Sequence[tuple[str, Any]]) -> list[list[Any]]:
    """Turn the options about disks into an opcode field, with sizes in MiB.

    :raises OpPrereqError: a mistyped or wrong size, or a wrong number of spindles.
    """
    found = changes(given, "disk")
    for change in found:
        params = change[2]
        if change[0] == disk_const.MOD_ADD:
            change[2] = typed("new disk", with_size("new disk", params))
        elif "spindles" in params:
            change[2] = typed(f"disk {change[1]}", params)
    return found


def nic_changes(given: Sequence[tuple[str, Any]]) -> list[list[Any]]:
    """Turn the options about network interfaces into an opcode field.

    :raises TypeEnforcementError: an unknown key.
    """
    found = changes(given, "network interface")
    for _action_name, where, params in found:
        unknown = sorted(set(params) - _NIC_KEYS)
        if unknown:
            from ganeti.utils import suggest  # needed after a mistake only

            raise errors.TypeEnforcementError(
                f"unknown parameter '{unknown[0]}' of network interface {where}."
                f"{suggest.hint(unknown[0], _NIC_KEYS)}"
            )
    return found


def typed(what: str, params: dict[str, Any]) -> dict[str, Any]:
    """Convert ``size`` of a disk to MiB and ``spindles`` to a number.

    :param what: name of the disk, for error texts.
    :raises OpPrereqError: a value cannot be converted.
    """
    disk = dict(params)
    for key, parse in (("size", value_types.parse_size), ("spindles", value_types.parse_int)):
        if key in disk and disk[key] != "auto":
            try:
                disk[key] = parse(str(disk[key]))
            except errors.ParameterError as err:
                raise errors.OpPrereqError(f"{what}: {key}: {err}", errors.ECODE_INVAL) from err
    return disk
