"""Entries of the configuration which cannot be understood.

A single entry which was changed by hand, or by a program with an error, must not keep the master
daemon from starting. Such an entry is *set aside*: it moves, unchanged, into the dictionary
``damaged`` at the top of the configuration, under its path (``instances/<uuid>``), so that it is
written and distributed with the rest and never lost. ``gnt-cluster verify`` names it. At each start
the entries are tried again, at their places: after somebody has repaired one in the file, it is
back.

Instances, disks, networks, filter rules, documents and access records can be set aside, as can
single dictionaries of parameters of the cluster and of node groups. An instance of which a disk was
set aside is set aside as well, because it cannot work without the disk. Names, addresses, ports and
minors in an entry stay in use (:func:`values_of`), because its guest may be running.

Without the cluster, the nodes and the node groups there is no configuration; when one of these
cannot be understood, the master daemon does not start, and the message names the place.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from ganeti import errors
from ganeti.config.index_keys import IP, LV, MAC, MINOR, NAMES, PORT, Key
from ganeti.constants import disk as disk_const
from ganeti.objects import (
    AccessRecord,
    ConfigData,
    Disk,
    FilterRule,
    Instance,
    KeptDocument,
    Network,
    codec,
)
from ganeti.objects.address_pool import AddressPool
from ganeti.objects.addresses import same_form

#: Key of the dictionary in the file.
KEY: Final = "damaged"

# Disks come before instances, which need them.
_TABLES: Final[dict[str, type]] = {
    "filters": FilterRule,
    "documents": KeptDocument,
    "access_records": AccessRecord,
    "networks": Network,
    "disks": Disk,
    "instances": Instance,
}
# Dictionaries of dictionaries of parameters.
_OF_CLUSTER: Final = ("hvparams", "os_hvp", "beparams", "osparams", "nicparams", "diskparams")
_OF_GROUP: Final = ("diskparams", "networks")


def decode(raw: dict[str, Any]) -> ConfigData:
    """Make a configuration from the content of its file, without the entries to be set aside.

    :param raw: a configuration of the present version; it is changed.
    :raises ConfigurationError: the rest cannot be understood; the message names the place.
    """
    _put_back(raw)
    try:
        data = codec.from_dict(ConfigData, raw)
        if _usable(data):
            return data
    except errors.ConfigurationError:
        # Which entries are the reason is found out below.
        pass
    raw[KEY] = _take_out(raw)
    return codec.from_dict(ConfigData, raw)


def problems(data: ConfigData) -> list[str]:
    """Return a line for each entry which was set aside, with the reason."""
    found = []
    for path, entry in data.damaged.items():
        table, _, rest = path.partition("/")
        name = entry.get("name") if isinstance(entry, dict) else None
        what = f"{path} ({name})" if isinstance(name, str) and name else path
        reason = None
        if table in _TABLES and "/" not in rest:
            reason = _reason(table, entry)
        if reason is None:
            reason = (
                "it needs a disk which was set aside"
                if table == "instances"
                else f"it must be a dictionary, not {entry!r:.80}"
            )
        found.append(f"entry {what} cannot be understood and was set aside: {reason}")
    return found


def _put_back(raw: dict[str, Any]) -> None:
    """Try the entries which were set aside at their places again."""
    entries = raw.pop(KEY, None)
    if not isinstance(entries, dict):
        return
    for path, entry in entries.items():
        *parents, last = path.split("/")
        place: Any = raw
        for part in parents:
            place = place.get(part) if isinstance(place, dict) else None
        if isinstance(place, dict):
            place.setdefault(last, entry)


def _usable(data: ConfigData) -> bool:
    """Tell whether all entries have the structure on which the programs rely."""
    if any(True for _found in _odd_parameters(data.cluster, _OF_CLUSTER)):
        return False
    for group in data.nodegroups.values():
        if any(True for _found in _odd_parameters(group, _OF_GROUP)):
            return False
    return all(_unusable(obj) is None for obj in data.disks.values()) and all(
        _unusable(obj) is None for obj in data.networks.values()
    )


def _odd_parameters(obj: Any, names: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    for name in names:
        values = obj.get(name) if isinstance(obj, dict) else getattr(obj, name)
        if isinstance(values, dict):
            for key, value in values.items():
                if not isinstance(value, dict):
                    yield name, key


def _unusable(obj: Any) -> str | None:
    """Return why an object cannot be used although each value in it has the right type."""
    if isinstance(obj, Disk):
        for device in obj.walk():
            if not all(isinstance(part, (str, int)) for part in device.logical_id):
                return f"logical_id: must consist of texts and numbers, not {device.logical_id!r}"
    elif isinstance(obj, Network):
        try:
            AddressPool(obj)
        except errors.AddressPoolError as err:
            return str(err)
    return None


def _reason(table: str, entry: Any) -> str | None:
    try:
        return _unusable(codec.from_dict(_TABLES[table], entry))
    except errors.ConfigurationError as err:
        return str(err)


def _take_out(raw: dict[str, Any]) -> dict[str, Any]:
    """Remove the entries which cannot be understood; return them by path."""
    taken: dict[str, Any] = {}
    for table in _TABLES:
        entries = raw.get(table)
        if not isinstance(entries, dict):
            continue
        for uuid in list(entries):
            if _reason(table, entries[uuid]) is not None or (
                table == "instances"
                and any(f"disks/{disk}" in taken for disk in entries[uuid]["disks"])
            ):
                taken[f"{table}/{uuid}"] = entries.pop(uuid)
    groups = raw.get("nodegroups")
    places: list[tuple[str, Any, tuple[str, ...]]] = [("cluster", raw.get("cluster"), _OF_CLUSTER)]
    if isinstance(groups, dict):
        places += [(f"nodegroups/{uuid}", group, _OF_GROUP) for uuid, group in groups.items()]
    for path, obj, names in places:
        if isinstance(obj, dict):
            for name, key in list(_odd_parameters(obj, names)):
                taken[f"{path}/{name}/{key}"] = obj[name].pop(key)
    return taken


def values_of(path: str, entry: Any) -> Iterator[Key]:
    """Iterate over the values which an entry keeps in use; values of other types are left out."""
    table = path.partition("/")[0]
    if not isinstance(entry, dict):
        return
    if table in NAMES and isinstance(entry.get("name"), str):
        yield NAMES[table], entry["name"]
    if table == "instances":
        if isinstance(entry.get("network_port"), int):
            yield PORT, entry["network_port"]
        nics = entry.get("nics")
        for nic in nics if isinstance(nics, list) else ():
            if not isinstance(nic, dict):
                continue
            if isinstance(nic.get("mac"), str):
                yield MAC, nic["mac"].lower()
            for key in ("ip", "ip6"):
                if isinstance(nic.get("network"), str) and isinstance(nic.get(key), str):
                    yield IP, (nic["network"], same_form(nic[key]))
    elif table == "disks":
        yield from _disk_values(entry)


def values_in_use(data: ConfigData, kind: str) -> set[Any]:
    """Return the values of a kind which the entries that were set aside keep in use."""
    return {
        value
        for path, entry in data.damaged.items()
        for found, value in values_of(path, entry)
        if found == kind
    }


def _disk_values(entry: dict[str, Any]) -> Iterator[Key]:
    parts = entry.get("logical_id")
    if isinstance(parts, list) and all(isinstance(part, (str, int)) for part in parts):
        if entry.get("dev_type") == disk_const.PLAIN and len(parts) >= 2:
            yield LV, f"{parts[0]}/{parts[1]}"
        elif entry.get("dev_type") == disk_const.DRBD8 and len(parts) >= 5:
            yield MINOR, (parts[0], parts[3])
            yield MINOR, (parts[1], parts[4])
            yield PORT, parts[2]
    children = entry.get("children")
    for child in children if isinstance(children, list) else ():
        if isinstance(child, dict):
            yield from _disk_values(child)
