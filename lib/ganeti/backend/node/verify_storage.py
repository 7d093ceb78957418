"""Checks of LVM and DRBD on this node for ``gnt-cluster verify``.

The tools may be missing or broken on one node only, which verification must report. So an answer
has either the facts or, in their place, a text with the reason why there are none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from ganeti import errors, ht
from ganeti.constants import node_verify as nv
from ganeti.platform import paths
from ganeti.storage.drbd import connections
from ganeti.storage.drbd import status as drbd
from ganeti.storage.lvm import facts as lvm


class CheckContext(Protocol):
    """Facts for a check, besides its own argument."""

    @property
    def vm_capable(self) -> bool: ...


_Check = Callable[[Any, CheckContext], Any]


def _or_why(ask: Callable[[Any], Any], nothing: Callable[[], Any]) -> _Check:
    """Make a check whose failure is its answer; a node without guests needs no storage."""

    def check(argument: Any, request: CheckContext) -> Any:
        if not request.vm_capable:
            return nothing()
        try:
            return ask(argument)
        except (errors.StorageError, errors.BlockDeviceError) as err:
            return str(err)

    return check


def _groups(_argument: Any) -> dict[str, float]:
    """Return the size of each volume group, in MiB."""
    return {group.name: group.size_mib for group in lvm.here().groups()}


def _used_twice(_argument: Any) -> list[str]:
    """Return the names which several volume groups have."""
    return sorted(lvm.here().groups_used_twice())


def _volumes(argument: Any) -> dict[str, Any]:
    """Return volumes: ``vg/lv`` -> [size in MiB as text, inactive, open].

    :param argument: a group, or None for all. With a list of groups it is also for all; if LVM
        cannot read all, for these, and the name of one which cannot be read -> why.
    """
    if not isinstance(argument, list):
        return lvm.here().listed([argument] if argument else [])
    try:
        return lvm.here().listed([])
    except errors.StorageError:
        return {**lvm.here().listed_apart(argument)}


def _physical(argument: Any) -> list[list[Any]]:
    """Return physical volumes: [name, group, size MiB, free MiB, attributes, volumes] each."""
    return [
        [pv.name, pv.vg_name, pv.size, pv.free, pv.attributes, list(pv.lv_list or ())]
        for pv in lvm.here().physical(argument[0] if len(argument) == 1 else "")
        if pv.vg_name in argument
    ]


def _shared_physical(argument: Any) -> list[list[Any]]:
    """Return the physical volumes with more than one volume: [name, volumes] each."""
    return [
        [name, volumes]
        for name, _vg, _size, _free, _attr, volumes in _physical(argument)
        if len(volumes) > 1
    ]


def _minors(_argument: Any) -> list[int]:
    """Return the DRBD minors in use."""
    return sorted(drbd.minors())


def _connections(_argument: Any) -> list[dict[str, Any]]:
    """Return how the DRBD minors in use are connected, see :func:`.connections.listed`."""
    return connections.listed()


def _minor_limit(_argument: Any, _request: CheckContext) -> int | None:
    """Return how many minors the DRBD module can have, see :func:`.status.minor_limit`."""
    return drbd.minor_limit()


def _version(_argument: Any) -> list[int]:
    """Return the version of the DRBD module, as a list, because a text would mean a problem."""
    return list(drbd.version())


def _helper(_argument: Any, request: CheckContext) -> list[Any]:
    """Return ``[True, usermode helper of DRBD]``, or ``[False, reason]``."""
    try:
        return [True, drbd.usermode_helper()]
    except errors.BlockDeviceError as err:
        return [False, str(err)]


def _devices(argument: Any, _request: CheckContext) -> dict[str, list[list[str]] | str]:
    """Return the names of devices: path -> :data:`.device_names.WIRE`, or why there are none."""
    # Few clusters have such disks; the others do not load it.
    from ganeti.storage import device_names

    found: dict[str, list[list[str]] | str] = {}
    for path in argument:
        try:
            # The nodes of a virtual cluster have their own files, and the devices of the machine.
            local = path if path.startswith("/dev/") else paths.current().to_local(path)
            found[path] = device_names.find(local).wire()
        except errors.BlockDeviceError as err:
            found[path] = str(err)
    return found


_NAMES = ht.ListOf(ht.NonEmptyString)

#: Name of a check -> (type of its argument, function).
CHECKS: dict[str, tuple[ht.Type, _Check]] = {
    nv.DEVICES: (_NAMES, _devices),
    nv.DRBDCONNECTIONS: (ht.Any, _or_why(_connections, list)),
    nv.DRBDHELPER: (ht.Any, _helper),
    nv.DRBDLIST: (ht.Any, _or_why(_minors, list)),
    nv.DRBDMINORS: (ht.Any, _minor_limit),
    nv.DRBDVERSION: (ht.Any, _or_why(_version, list)),
    nv.EXCLUSIVEPVS: (_NAMES, _or_why(_shared_physical, list)),
    nv.LVLIST: (ht.Or(ht.Maybe(ht.Str), ht.ListOf(ht.NonEmptyString)), _or_why(_volumes, dict)),
    nv.PVLIST: (_NAMES, _or_why(_physical, list)),
    nv.VGDUPLICATES: (ht.Any, _or_why(_used_twice, list)),
    nv.VGLIST: (ht.Any, _or_why(_groups, dict)),
}
