"""What a node remembers of a guest: a file in ``RUN_DIR/xen-hypervisor/conf``.

The record says how the guest was started, so that a reboot gives it the hardware it had even if the
configuration of the cluster has changed. It outlives the daemons, like the domain itself. The
configuration file for ``xl`` is made from it (:mod:`ganeti.hypervisor.xen.config`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ganeti import errors
from ganeti.hypervisor import guest_errors
from ganeti.hypervisor.base import AttachedDisk
from ganeti.objects import codec
from ganeti.objects.disk import Disk
from ganeti.objects.instance import FilledInstance, FilledNic
from ganeti.platform import paths
from ganeti.utils import fs
from ganeti.wire import json

#: States of a record.
STARTING = "starting"  # the program which starts the guest has not said that it is complete
COMPLETE = "complete"
INCOMING = "arriving"  # the target of a migration; the guest does not run before its end

_MAX_DISKS = 16


@dataclass(frozen=True, slots=True)
class RecordedDisk:
    """One disk of a guest."""

    disk: Mapping[str, Any]  # as in the configuration of the cluster
    path: str  # of the link to its device
    vdev: str  # its name in the guest, such as ``xvda``


@dataclass(frozen=True, slots=True)
class RecordedNic:
    """One NIC of a guest, with the number by which Xen knows it."""

    nic: Mapping[str, Any]
    devid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """How a guest was started.

    :ivar uuid: of the instance; also of its domain, unless there is a `domain_uuid`.
    :ivar domain_uuid: of a domain which another program has started; empty for one of ours.
    """

    name: str
    uuid: str
    hypervisor: str
    hvparams: Mapping[str, Any]
    memory_mib: int
    vcpus: int
    port: int | None
    tags: Sequence[str]
    nics: Sequence[RecordedNic]
    disks: Sequence[RecordedDisk]
    state: str
    domain_uuid: str = ""

    def dumps(self) -> str:
        """Return the text of the file."""
        return json.dumps(
            {
                "name": self.name,
                "uuid": self.uuid,
                "hypervisor": self.hypervisor,
                "hvparams": dict(self.hvparams),
                "memory": self.memory_mib,
                "vcpus": self.vcpus,
                "port": self.port,
                "tags": list(self.tags),
                "nics": [[dict(one.nic), one.devid] for one in self.nics],
                "disks": [[dict(one.disk), one.path, one.vdev] for one in self.disks],
                "state": self.state,
                **({"domain_uuid": self.domain_uuid} if self.domain_uuid else {}),
            }
        )

    def plain_nics(self) -> list[Mapping[str, Any]]:
        """Return the NICs in the order in which the guest has them."""
        return [one.nic for one in self.nics]


def of_instance(
    instance: FilledInstance, disks: Sequence[AttachedDisk], *, state: str = STARTING
) -> Record:
    """Return the record of a guest which is about to start from the configuration.

    :raises HypervisorError: it has more disks than Xen offers names for.
    """
    prefix = str(instance.hvparams.get("blockdev_prefix") or "xvd")
    return Record(
        name=instance.name,
        uuid=instance.uuid,
        hypervisor=instance.hypervisor,
        hvparams=dict(instance.hvparams),
        memory_mib=int(instance.beparams["maxmem"]),
        vcpus=int(instance.beparams["vcpus"]),
        port=instance.network_port,
        tags=tuple(instance.tags),
        nics=tuple(
            RecordedNic(codec.to_dict(nic), number) for number, nic in enumerate(instance.nics)
        ),
        disks=tuple(
            RecordedDisk(codec.to_dict(one.disk), one.path, vdev_name(prefix, number))
            for number, one in enumerate(disks)
        ),
        state=state,
    )


def vdev_name(prefix: str, number: int) -> str:
    """Return the name in the guest of the disk of a number, from 0.

    :raises HypervisorError: Xen has no name for a disk with this number.
    """
    if number >= _MAX_DISKS:
        raise errors.HypervisorError(f"a guest under Xen can have {_MAX_DISKS} disks at most")
    return f"{prefix}{chr(ord('a') + number)}"


def free_vdev(record: Record) -> str:
    """Return the first name for a disk which the guest does not use.

    :raises HypervisorError: all are in use.
    """
    prefix = str(record.hvparams.get("blockdev_prefix") or "xvd")
    used = {one.vdev for one in record.disks}
    number = 0
    while vdev_name(prefix, number) in used:
        number += 1
    return vdev_name(prefix, number)


def free_devid(record: Record) -> int:
    """Return the first number of a NIC which the guest does not use."""
    used = {one.devid for one in record.nics}
    number = 0
    while number in used:
        number += 1
    return number


def nic_dict(nic: FilledNic) -> dict[str, Any]:
    """Return a NIC in the form of a record."""
    return dict(codec.to_dict(nic))


def disk_dict(disk: Disk) -> dict[str, Any]:
    """Return a disk in the form of a record."""
    return dict(codec.to_dict(disk))


# Files


def check_name(instance_name: str) -> str:
    """Return the name, which becomes the name of files.

    :raises HypervisorError: it cannot.
    """
    if "/" in instance_name or instance_name.startswith((".", "-")) or not instance_name:
        raise errors.HypervisorError(f"'{instance_name}' is not an instance name")
    return instance_name


def conf_dir() -> str:
    """Return the directory of the records."""
    return f"{paths.current().xen_root}/conf"


def record_file(instance_name: str) -> str:
    """Return the file of a guest's record."""
    return f"{conf_dir()}/{check_name(instance_name)}.json"


def nic_dir(instance_name: str) -> str:
    """Directory with a file for each NIC, which holds the name of its interface."""
    return f"{paths.current().xen_root}/nic/{check_name(instance_name)}"


def config_file(instance_name: str) -> str:
    """Return the configuration file of a guest for ``xl``."""
    return f"{paths.current().xen_config_dir}/{check_name(instance_name)}"


def save(record: Record) -> None:
    """Write the record of a guest.

    :raises HypervisorError: it cannot be written; an old one stays as it was.
    """
    try:
        fs.make_dirs(conf_dir(), 0o750)
        fs.write_file(record_file(record.name), record.dumps(), mode=0o600)
    except OSError as err:
        raise errors.HypervisorError(
            f"cannot write the record of instance {record.name}: {err}"
        ) from err


def find(instance_name: str) -> Record | None:
    """Return the record of a guest; None when this node has none.

    :raises HypervisorError: it is damaged.
    """
    try:
        text = fs.read_file(record_file(instance_name))
    except FileNotFoundError:
        return None
    except OSError as err:
        raise errors.HypervisorError(
            f"cannot read the record of instance {instance_name}: {err}"
        ) from err
    return loads(text, instance_name)


def load(instance_name: str) -> Record:
    """Return the record of a guest.

    :raises HypervisorError: there is none, or it is damaged.
    """
    record = find(instance_name)
    if record is None:
        raise errors.HypervisorError(
            f"instance {instance_name} has no record on this node. Stop it and start it again."
        )
    return record


def names() -> list[str]:
    """Return the names of all guests with a record, sorted."""
    try:
        return [
            name.removesuffix(".json")
            for name in fs.list_visible(conf_dir())
            if name.endswith(".json")
        ]
    except FileNotFoundError:
        return []


def hypervisor_of(instance_name: str) -> str:
    """Return the hypervisor in a guest's record; empty when there is none, or it is damaged."""
    try:
        record = find(instance_name)
    except errors.HypervisorError:
        return ""
    return record.hypervisor if record else ""


def loads(text: str, instance_name: str) -> Record:
    """Read the text of a record.

    :raises HypervisorError: it has another form.
    """
    try:
        value = json.loads(text)
        if not isinstance(value, dict):
            raise TypeError("an object expected")
        record = Record(
            name=_typed(value, "name", str),
            uuid=_typed(value, "uuid", str),
            hypervisor=_typed(value, "hypervisor", str),
            hvparams=_typed(value, "hvparams", dict),
            memory_mib=_typed(value, "memory", int),
            vcpus=_typed(value, "vcpus", int),
            port=None if value.get("port") is None else _typed(value, "port", int),
            tags=tuple(str(tag) for tag in _typed(value, "tags", list)),
            nics=tuple(
                RecordedNic(_mapping(nic), int(devid)) for nic, devid in _typed(value, "nics", list)
            ),
            disks=tuple(
                RecordedDisk(_mapping(disk), str(path), str(vdev))
                for disk, path, vdev in _typed(value, "disks", list)
            ),
            state=_typed(value, "state", str),
            domain_uuid=_typed({"domain_uuid": "", **value}, "domain_uuid", str),
        )
    except (errors.ParseError, KeyError, ValueError, TypeError, OverflowError) as err:
        raise errors.HypervisorError(
            f"the record of instance {instance_name} is damaged: {err}"
        ) from err
    if record.name != instance_name:
        raise errors.HypervisorError(
            f"the record of instance {instance_name} is damaged: it is that of '{record.name}'"
        )
    return record


def _typed(value: Mapping[str, Any], key: str, kind: type) -> Any:
    found = value[key]
    if not isinstance(found, kind) or isinstance(found, bool):
        raise TypeError(f"{key} is {found!r:.100}")
    return found


def _mapping(value: object) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise TypeError(f"a device expected, found {value!r:.100}")
    return value


def with_attached(record: Record, disks: Sequence[AttachedDisk]) -> Record:
    """Return the record with the paths which the disks have now; the guest keeps its own order.

    :raises HypervisorError: the guest has a disk which the instance has not.
    """
    attached = {one.disk.uuid: one for one in disks}
    found = []
    for old in record.disks:
        new = attached.get(str(old.disk.get("uuid") or ""))
        if new is None:
            raise guest_errors.unknown_disk(record.name, old.disk.get("uuid"))
        found.append(replace(old, path=new.path))
    return replace(record, disks=tuple(found))


def remove(instance_name: str) -> None:
    """Remove record and configuration file; none is not an error."""
    fs.remove_file(config_file(instance_name))
    fs.remove_file(record_file(instance_name))


def write_config(instance_name: str, text: str) -> str:
    """Write the configuration file, which may hold a password; return its path.

    :raises HypervisorError: it cannot be written.
    """
    path = config_file(instance_name)
    try:
        fs.make_dirs(os.path.dirname(path), 0o755)
        fs.write_file(path, text, mode=0o600)
    except OSError as err:
        raise errors.HypervisorError(f"cannot write {path}: {err}") from err
    return path
