"""Facts about this machine, and the pause of its watcher."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import Any

from ganeti import errors, hypervisor
from ganeti.backend.registry import attempt, serves
from ganeti.constants import disk, rpc
from ganeti.objects.transfer import LvmPvInfo
from ganeti.platform import machine, paths
from ganeti.storage import file as file_storage
from ganeti.storage.drbd import status as drbd
from ganeti.storage.lvm import facts as lvm
from ganeti.storage.lvm import place
from ganeti.utils import fs, net
from ganeti.wire import calls

_BOOT_ID_FILE = "/proc/sys/kernel/random/boot_id"
_NET_DIR = "/sys/class/net"
_PAUSE_MODE = 0o644


@serves(calls.VERSION)
def version() -> int:
    """Return the version of the node protocol."""
    return rpc.PROTOCOL_VERSION


@serves(calls.NODE_INFO)
def node_info(storage_units: list[list[Any]], hv_specs: list[list[Any]]) -> list[Any]:
    """Return boot id, storage units and facts of hypervisors.

    :param storage_units: list of [type, key, arguments].
    :param hv_specs: list of [hypervisor, hvparams].
    :returns: a unit or hypervisor which is unknown, or fails, has the key ``problem``.
    :raises ParameterError: a question has another form.
    """
    for unit in storage_units:
        if len(unit) not in (2, 3) or not all(isinstance(part, str) for part in unit[:2]):
            raise errors.ParameterError(f"not a storage unit: {unit!r:.200}")
    for spec in hv_specs:
        if len(spec) != 2 or not isinstance(spec[0], str) or not isinstance(spec[1], dict | None):
            raise errors.ParameterError(f"not a hypervisor with parameters: {spec!r:.200}")
    return [
        boot_id(),
        [_storage_unit(unit) for unit in storage_units],
        [_hypervisor_facts(*spec) for spec in hv_specs],
    ]


def boot_id() -> str:
    """Return the identifier which the kernel chose when the machine was started."""
    return fs.read_file(_BOOT_ID_FILE).strip()


def _hypervisor_facts(name: str, params: dict[str, Any] | None) -> dict[str, Any]:
    found = attempt(lambda: hypervisor.of(name).node_info(params))
    return {"problem": str(found)} if isinstance(found, Exception) else found


def _file_space(key: str, _arguments: list[Any]) -> dict[str, Any]:
    try:
        return {**file_storage.space(key)}
    except errors.FileStoragePathError as err:
        # The directory is created with the first instance, so a missing one is not an error.
        return {**_unknown(key, []), "problem": str(err)}


def _group_space(key: str, arguments: list[Any]) -> dict[str, Any]:
    """Return size and free space of a volume group.

    With exclusive storage only empty physical volumes count as free.
    """
    try:
        groups = [group for group in lvm.here().groups(key) if group.name == key]
        lvm.here().require_one(key)
        empty_mib = sum(pv.free for pv in _empty(key)) if _exclusive(arguments) else 0
    except errors.StorageError as err:
        # Memory and processors are reported nevertheless.
        logging.warning("%s", err)
        return {**_unknown(key, arguments), "problem": str(err)}
    for group in groups:
        free_mib = empty_mib if _exclusive(arguments) else group.free_mib
        found: dict[str, int | None] = {
            "storage_free": int(free_mib),
            "storage_size": int(group.size_mib),
        }
        # Beside the volumes for which the master asks; only a module before 8.4 has a limit.
        limit = drbd.minor_limit()
        return found if limit is None else {**found, "drbd_minors": limit}
    return {**_unknown(key, arguments), "problem": f"there is no volume group {key}"}


def _spindles(key: str, arguments: list[Any]) -> dict[str, Any]:
    """Count the physical volumes of a group and the empty ones; only with exclusive storage."""
    if not _exclusive(arguments):
        return {"storage_free": 0, "storage_size": 0}
    try:
        total = [pv for pv in lvm.here().physical(key) if pv.vg_name == key]
        lvm.here().require_one(key)
    except errors.StorageError as err:
        logging.warning("%s", err)
        return {**_unknown(key, arguments), "problem": str(err)}
    return {"storage_free": len(_empty(key)), "storage_size": len(total)}


def _exclusive(arguments: list[Any]) -> bool:
    return bool(arguments and arguments[0])


def _empty(group: str) -> list[LvmPvInfo]:
    return [pv for pv in place.usable(lvm.here().physical(group), group) if not pv.lv_list]


def _unknown(_key: str, _arguments: list[Any]) -> dict[str, int | None]:
    return {"storage_free": None, "storage_size": None}


# How the free space of each kind of storage is found; "unknown" is a published answer.
_MEASURES: dict[str, Callable[[str, list[Any]], dict[str, Any]]] = {
    disk.ST_FILE: _file_space,
    disk.ST_SHARED_FILE: _file_space,
    disk.ST_GLUSTER: _file_space,
    disk.ST_LVM_VG: _group_space,
    disk.ST_LVM_PV: _spindles,
    **dict.fromkeys((disk.ST_BLOCK, disk.ST_DISKLESS, disk.ST_EXT, disk.ST_RADOS), _unknown),
}


def _storage_unit(unit: list[Any]) -> dict[str, Any]:
    kind, key = unit[:2]
    arguments = unit[2] if len(unit) == 3 and isinstance(unit[2], list) else []
    measure = _MEASURES.get(kind, _not_known)
    found = attempt(measure, key, arguments)
    if isinstance(found, Exception):
        found = {**_unknown(key, arguments), "problem": str(found)}
    return {"type": kind, "name": key, **found}


def _not_known(key: str, arguments: list[Any]) -> dict[str, Any]:
    return {**_unknown(key, arguments), "problem": "this kind of storage is not known"}


@serves(calls.BRIDGES_EXIST)
def bridges_exist(bridges: list[str]) -> None:
    """Check that bridges exist.

    :raises ConfigurationError: some do not exist; the text names them.
    """
    missing = missing_bridges(bridges)
    if missing:
        raise errors.ConfigurationError(
            f"bridges do not exist on node {machine.current().hostname()}: {', '.join(missing)}"
        )


def missing_bridges(bridges: list[str]) -> list[str]:
    """Return the names for which this machine has no bridge."""
    return [
        name for name in bridges if "/" in name or not os.path.isdir(f"{_NET_DIR}/{name}/bridge")
    ]


@serves(calls.NODE_HAS_IP_ADDRESS)
def has_ip_address(address: str) -> bool:
    """Return whether an address belongs to this node.

    :raises IPAddressError: the text is not an IP address.
    """
    if not net.is_ip(address):
        raise errors.IPAddressError(f"not an IP address: {address!r:.80}")
    return machine.current().owns_address(address)


@serves(calls.GET_WATCHER_PAUSE)
def watcher_pause() -> float | None:
    """Return the end of the pause of the watcher, in seconds since 1970; None without a pause.

    :raises ParseError: the file does not hold a time.
    """
    path = paths.current().watcher_pausefile
    try:
        text = fs.read_file(path).strip()
    except FileNotFoundError:
        return None
    try:
        return float(text)
    except ValueError as err:
        raise errors.ParseError(f"file {path} does not hold a time but {text!r:.80}") from err


@serves(calls.SET_WATCHER_PAUSE)
def set_watcher_pause(until: float | None) -> None:
    """Pause the watcher until a time (seconds since 1970); None ends the pause."""
    path = paths.current().watcher_pausefile
    if until is None:
        fs.remove_file(path)
    else:
        fs.write_file(path, f"{int(until)}\n", mode=_PAUSE_MODE)
