"""Reading the description of an exported instance, the file ``config.ini`` of the export.

Exports by other versions are read, too: unknown keys are ignored with a warning, and the older
``memory`` sets both ``minmem`` and ``maxmem``. A user may have edited the file, so everything is
checked like a request of a user. The file names in it are used on the node with the export; they
must not leave its directory.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ganeti import errors
from ganeti.constants import hv as hv_c
from ganeti.constants.disk import MAX_DISKS
from ganeti.constants.instance import BE_PARAM_TYPES
from ganeti.constants.net import MAX_NICS
from ganeti.objects import hvparams as hv
from ganeti.wire import ini

VERSION = "0"
_EMPTY = (None, "", "None", "none")


@dataclass(frozen=True, slots=True)
class ExportedDisk:
    """A disk of an export.

    :ivar name: name of the disk; None when it has none.
    :ivar dump: name of the file with its content; None when it has none.
    """

    size_mib: int
    name: str | None
    dump: str | None


@dataclass(frozen=True, slots=True)
class ExportedInstance:
    """An instance as it was when it was exported.

    :ivar identity: a random text which no other export has; None in one of another version.
    """

    name: str
    os: str
    disk_template: str | None
    hypervisor: str | None
    disks: tuple[ExportedDisk, ...]
    nics: tuple[dict[str, str], ...]
    tags: tuple[str, ...]
    hvparams: dict[str, Any]
    beparams: dict[str, Any]
    osparams: dict[str, str]
    osparams_private: dict[str, str]
    identity: str | None = None


def parse(text: str, warn: Callable[[str], None]) -> ExportedInstance:
    """Read ``config.ini``.

    :param warn: called with a message for each group of ignored keys.
    :raises errors.OpPrereqError: the text is not the description of an export.
    """
    try:
        sections, exact = ini.parse(text)
        export, instance = sections["export"], sections["instance"]
    except (errors.ParseError, KeyError) as err:
        raise _wrong(f"its description cannot be read: {err}") from err
    version = export.get("version", VERSION)
    if version != VERSION:
        raise _wrong(f"it has version {version}, but only version {VERSION} is supported")

    def section(name: str) -> dict[str, str]:
        return sections.get(name, {})

    def set_parameters(name: str) -> dict[str, str]:
        """Leave out parameters whose text None stands for one which was not set."""
        return {
            key: value
            for key, value in section(name).items()
            if value != "None" or (name, key) in exact
        }

    hypervisor = instance.get("hypervisor")
    return ExportedInstance(
        name=instance.get("name", ""),
        os=export.get("os", ""),
        disk_template=instance.get("disk_template"),
        hypervisor=hypervisor,
        disks=tuple(_disks(instance, {key for name, key in exact if name == "instance"})),
        nics=tuple(_nics(instance)),
        tags=tuple(instance.get("tags", "").split()),
        hvparams=_hvparams(hypervisor, set_parameters("hypervisor"), warn),
        beparams=_beparams(instance, set_parameters("backend"), warn),
        osparams=section("os"),
        osparams_private=section("os_private"),
        identity=export.get("identity"),
    )


def _wrong(what: str) -> errors.OpPrereqError:
    return errors.OpPrereqError(f"the export cannot be used: {what}", errors.ECODE_ENVIRON)


def _count(section: Mapping[str, str], key: str, most: int) -> int:
    found = _number(section, key)
    if not 0 <= found <= most:
        raise _wrong(f"{key} is {section[key]!r:.80}, but an instance has at most {most}")
    return found


def _number(section: Mapping[str, str], key: str) -> int:
    try:
        return int(section.get(key, "0"))
    except ValueError:
        raise _wrong(f"{key} is {section[key]!r:.80}, not a number") from None


def _disks(instance: Mapping[str, str], exact: Collection[str]) -> Iterable[ExportedDisk]:
    for index in range(_count(instance, "disk_count", MAX_DISKS)):
        size_mib = _number(instance, f"disk{index}_size")
        if size_mib < 1:
            raise _wrong(f"disk {index} has no size")
        name, dump = instance.get(f"disk{index}_name"), instance.get(f"disk{index}_dump")
        if dump is not None and ("/" in dump or dump.startswith(".")):
            raise _wrong(f"{dump!r:.80} is not the name of a file in it")
        unnamed = name in _EMPTY and f"disk{index}_name" not in exact
        yield ExportedDisk(size_mib, None if unnamed else name, dump or None)


def _nics(instance: Mapping[str, str]) -> Iterable[dict[str, str]]:
    for index in range(_count(instance, "nic_count", MAX_NICS)):
        found = {}
        for key in ("mac", "ip", "ip6", "network", "name", "link", "mode", "vlan"):
            value = instance.get(f"nic{index}_{key}")
            if value not in _EMPTY:
                found[key] = str(value)
        if "network" in found:
            # The connection of the network to the node group determines these.
            for key in ("link", "mode", "vlan"):
                found.pop(key, None)
        yield found


def _hvparams(
    hypervisor: str | None, given: Mapping[str, str], warn: Callable[[str], None]
) -> dict[str, Any]:
    table = hv.TABLES.get(hypervisor or "", {})
    types = {name: parameter.type for name, parameter in table.items()}
    return _typed(
        {key: value for key, value in given.items() if key not in hv_c.GLOBAL_PARAMS},
        types,
        f"parameters of hypervisor {hypervisor}",
        warn,
    )


def _beparams(
    instance: Mapping[str, str], given: Mapping[str, str], warn: Callable[[str], None]
) -> dict[str, Any]:
    known = {key: instance[key] for key in ("maxmem", "minmem", "vcpus") if key in instance}
    if "memory" in instance:
        known.setdefault("maxmem", instance["memory"])
        known.setdefault("minmem", instance["memory"])
    older = {"memory": given["memory"]} if "memory" in given else {}
    for memory in older.values():
        known.setdefault("maxmem", memory)
        known.setdefault("minmem", memory)
    return _typed(
        {**known, **{key: value for key, value in given.items() if key not in older}},
        BE_PARAM_TYPES,
        "backend parameters",
        warn,
    )


def _typed(
    given: Mapping[str, str], types: Mapping[str, str], what: str, warn: Callable[[str], None]
) -> dict[str, Any]:
    unknown = sorted(set(given) - set(types))
    if unknown:
        warn(f"unknown {what} of the export are ignored: {', '.join(unknown)}")
    known = {key: value for key, value in given.items() if key in types}
    try:
        return hv.force_types(known, types)
    except errors.TypeEnforcementError as err:
        raise _wrong(f"{what}: {err}") from err
