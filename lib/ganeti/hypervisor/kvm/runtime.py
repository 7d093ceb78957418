"""The runtime file, which says how a running guest was started; in the published JSON form.

``RUN_DIR/kvm-hypervisor/conf/<instance>.runtime`` holds ``[argv, nics, hvparams, disks]``: the
command line without devices, the NICs and disks with the address of each in the guest (``hvinfo``),
and the filled hypervisor parameters. A reboot starts QEMU from it, so that the guest keeps its
hardware even if the configuration has changed. The source of a migration sends it, and the target
reads the hardware from it (:mod:`ganeti.hypervisor.kvm.hardware`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ganeti import errors
from ganeti.hypervisor import guest_errors
from ganeti.hypervisor.base import AttachedDisk
from ganeti.objects import codec
from ganeti.utils import fs
from ganeti.wire import json


@dataclass(frozen=True, slots=True)
class RuntimeDisk:
    """One disk of a running guest."""

    disk: dict[str, Any]  # as in the configuration, and ``hvinfo``
    path: str  # the link which QEMU opens
    uri: str | None  # the URI which QEMU opens in place of the link

    @property
    def hvinfo(self) -> dict[str, Any]:
        """Driver, id, bus and address in the guest."""
        info: dict[str, Any] = self.disk["hvinfo"]
        return info


@dataclass(frozen=True, slots=True)
class Runtime:
    """The content of a runtime file."""

    argv: tuple[str, ...]
    nics: tuple[dict[str, Any], ...]
    hvparams: dict[str, Any]
    disks: tuple[RuntimeDisk, ...]

    def dumps(self) -> str:
        """Return the text of the file."""
        return json.dumps(
            [
                list(self.argv),
                list(self.nics),
                self.hvparams,
                [[d.disk, d.path, d.uri] for d in self.disks],
            ]
        )


def loads(text: str, instance_name: str) -> Runtime:
    """Read the text of a runtime file of this or another version.

    :raises HypervisorError: the text has another form.
    """
    try:
        data = json.loads(text)
        argv, nics, hvparams, disks = data
        runtime = Runtime(
            # Old files have numbers among the arguments.
            tuple(str(argument) for argument in argv),
            tuple(_checked(nic, "NIC") for nic in nics),
            _mapping(hvparams, "hypervisor parameters"),
            tuple(RuntimeDisk(_checked(disk, "disk"), str(path), uri) for disk, path, uri in disks),
        )
    except (errors.ParseError, ValueError, TypeError) as err:
        raise errors.HypervisorError(
            f"runtime data of instance {instance_name} is damaged: {err}"
        ) from err
    if not runtime.argv:
        raise errors.HypervisorError(f"runtime data of instance {instance_name} is empty")
    return runtime


def _mapping(value: object, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError(f"{what} expected, found {value!r}")
    return value


def _checked(value: object, what: str) -> dict[str, Any]:
    device = _mapping(value, what)
    info = _mapping(device.get("hvinfo"), f"hvinfo of a {what}")
    for key in ("driver", "id"):
        if not isinstance(info.get(key), str) or not info[key]:
            raise ValueError(f"hvinfo of a {what} has no {key}")
    if not isinstance(device.get("uuid"), str | None):
        raise TypeError(f"UUID of a {what} is not text")
    return device


def load(path: str, instance_name: str) -> Runtime:
    """Read a runtime file.

    :raises HypervisorError: it is missing or damaged.
    """
    try:
        text = fs.read_file(path)
    except OSError as err:
        raise errors.HypervisorError(
            f"cannot read the runtime data of instance {instance_name}: {err}"
        ) from err
    return loads(text, instance_name)


def save(path: str, runtime: Runtime) -> None:
    """Write a runtime file.

    :raises OSError: it cannot be written; an old file stays as it was.
    """
    fs.write_file(path, runtime.dumps(), mode=0o600)


def device_dict(device: Any, hvinfo: Mapping[str, Any]) -> dict[str, Any]:
    """Return a disk or NIC object in the form of the file."""
    result: dict[str, Any] = dict(codec.to_dict(device))
    result["hvinfo"] = dict(hvinfo)
    return result


def matching_disks(
    runtime: Runtime, instance_name: str, disks: Sequence[AttachedDisk]
) -> tuple[RuntimeDisk, ...]:
    """Return the disks of a guest in its own order, each with the path which the disk has now.

    The order in the configuration may have changed since the guest was started; the UUID of a disk
    does not change.

    :param disks: the disks of the instance, attached on this node.
    :raises HypervisorError: the guest has a disk which the instance has not.
    """
    attached = {new.disk.uuid: new for new in disks}
    found = []
    for old in runtime.disks:
        uuid = old.disk.get("uuid")
        new = attached.get(uuid) if uuid else None
        if new is None:
            raise guest_errors.unknown_disk(instance_name, uuid)
        found.append(replace(old, path=new.path, uri=new.uri))
    return tuple(found)


def values_of(runtime: Runtime, option: str) -> Sequence[str]:
    """Return the values of an option in the command line, in order."""
    pairs = zip(runtime.argv, runtime.argv[1:], strict=False)
    return [value for argument, value in pairs if argument == option]
