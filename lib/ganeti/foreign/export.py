"""Writes a machine of another program as an export, from which the cluster makes an instance.

An export is a directory with ``config.ini`` and a raw image of each disk, as ``gnt-backup export``
writes it (:mod:`ganeti.backend.backup.exports`). Reads such a description, too, for the way back.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ganeti import errors
from ganeti.foreign.machine import USUAL_HYPERVISOR, Disk, Machine, Nic, mac_address, positive
from ganeti.objects.description import DEFAULT_OS
from ganeti.utils import clock
from ganeti.wire import ini

VERSION = "0"
CONFIG_FILE = "config.ini"
_EMPTY = ("", "None", "none")


class Dump(NamedTuple):
    """The raw image of a disk: name of its file, and its size in MiB."""

    file: str
    size_mib: int


def describe(machine: Machine, name: str, dumps: Sequence[Dump], *, source: str) -> str:
    """Return the text of ``config.ini``.

    :param name: name of the instance.
    :param source: name of the node which has the export.
    """
    instance: dict[str, object] = {
        "name": name,
        "maxmem": machine.memory_mib,
        "minmem": machine.memory_mib,
        "memory": machine.memory_mib,
        "vcpus": machine.vcpus,
        "disk_template": machine.disk_template or "plain",
        "hypervisor": machine.hypervisor,
        "tags": " ".join(machine.tags),
        "nic_count": len(machine.nics),
        "disk_count": len(dumps),
    }
    for index, nic in enumerate(machine.nics):
        for key in ("mac", "ip", "mode", "link", "vlan"):
            if value := getattr(nic, key):
                instance[f"nic{index}_{key}"] = value
    for index, dump in enumerate(dumps):
        instance |= {
            f"disk{index}_ivname": f"disk/{index}",
            f"disk{index}_dump": dump.file,
            f"disk{index}_size": dump.size_mib,
        }
    sections: dict[str, Mapping[str, object]] = {
        "export": {
            "version": VERSION,
            "timestamp": int(clock.now()),
            "source": source,
            "os": machine.os or DEFAULT_OS,
            "compression": "none",
        },
        "instance": instance,
        "hypervisor": machine.hvparams,
        "backend": machine.beparams,
        "os": machine.osparams,
    }
    return ini.describe(sections)


def parse_export(text: str) -> Machine:
    """Read the description of an export, in order to write it in another form.

    :raises ParseError: the text is not such a description.
    """
    try:
        sections = ini.parse(text).sections
    except errors.ParseError as err:
        raise errors.ParseError(f"the description of the export cannot be read: {err}") from err
    if "instance" not in sections or "export" not in sections:
        raise errors.ParseError("the description has no sections 'instance' and 'export'")
    instance, backend = sections["instance"], sections.get("backend", {})
    memory = instance.get("maxmem") or instance.get("memory") or backend.get("memory") or ""
    name = instance.get("name", "")
    if not name:
        raise errors.ParseError("the description has no name")
    return Machine(
        name=name,
        memory_mib=positive(memory, "the memory"),
        vcpus=positive(instance.get("vcpus") or backend.get("vcpus") or "1", "vcpus"),
        disks=tuple(_disks(instance)),
        nics=tuple(_nics(instance)),
        hypervisor=instance.get("hypervisor", USUAL_HYPERVISOR),
        hvparams=dict(sections.get("hypervisor", {})),
        beparams={"auto_balance": backend.get("auto_balance", "True") == "True"},
        osparams=sections.get("os", {}),
        disk_template=instance.get("disk_template", ""),
        os=sections["export"].get("os", ""),
        tags=tuple(instance.get("tags", "").split()),
    )


def _count(instance: Mapping[str, str], key: str) -> int:
    text = instance.get(key, "0")
    if not re.fullmatch(r"[0-9]{1,2}", text):
        raise errors.ParseError(f"{key} is {text!r:.40}")
    return int(text)


def _disks(instance: Mapping[str, str]) -> list[Disk]:
    found = []
    for index in range(_count(instance, "disk_count")):
        dump = instance.get(f"disk{index}_dump", "")
        if not dump or "/" in dump or dump.startswith("."):
            raise errors.ParseError(f"{dump!r:.80} is not the name of a file of the export")
        size = instance.get(f"disk{index}_size", "0").strip()
        # Zero stands for a size which the export does not say.
        size_mib = int(size) if size.isascii() and size.isdigit() and len(size) < 10 else 0
        found.append(Disk(dump, "raw", size_mib))
    return found


def _nics(instance: Mapping[str, str]) -> list[Nic]:
    found = []
    for index in range(_count(instance, "nic_count")):
        values = {
            key: value
            for key in ("mac", "mode", "link", "ip", "vlan")
            if (value := instance.get(f"nic{index}_{key}", "")) not in _EMPTY
        }
        found.append(Nic(**{**values, "mac": mac_address(values.get("mac", ""))}))
    return found
