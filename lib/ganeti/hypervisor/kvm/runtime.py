"""How a running guest was started: the runtime file, in the published JSON form.

``RUN_DIR/kvm-hypervisor/conf/<instance>.runtime`` holds ``[argv, nics, hvparams, disks]``: the
command line without devices, the NICs and disks with the place of each in the guest (``hvinfo``),
the filled hypervisor parameters. A reboot and the target of a migration start QEMU from it, so
that the guest finds the hardware it had, whatever was changed in the configuration since.

On the way to another node all paths below the root of this node are made virtual, and local again
over there; on real machines both are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ganeti import errors
from ganeti.objects import codec
from ganeti.utils import fs
from ganeti.wire import json

# Stands for the root of a node in data on its way to another one.
_ROOT_MARK = "${ROOTDIR}"


@dataclass(frozen=True, slots=True)
class RuntimeDisk:
    """One disk: the configuration's dict plus ``hvinfo``, the link QEMU opens, or a URI."""

    disk: dict[str, Any]
    path: str
    uri: str | None

    @property
    def hvinfo(self) -> dict[str, Any]:
        """Place in the guest: driver, id, bus, address."""
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
        """The text of the file."""
        return json.dumps(
            [
                list(self.argv),
                list(self.nics),
                self.hvparams,
                [[d.disk, d.path, d.uri] for d in self.disks],
            ]
        )


def loads(text: str, instance_name: str) -> Runtime:
    """Read the text of a runtime file, our own or one of another version.

    :raises HypervisorError: it has another form.
    """
    try:
        data = json.loads(text)
        argv, nics, hvparams, disks = data
        runtime = Runtime(
            # Old files hold numbers among the words.
            tuple(str(word) for word in argv),
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

    :raises OSError: it cannot be written; an older one is untouched.
    """
    fs.write_file(path, runtime.dumps(), mode=0o600)


def device_dict(device: Any, hvinfo: Mapping[str, Any]) -> dict[str, Any]:
    """A disk or NIC object as the file has it."""
    result: dict[str, Any] = dict(codec.to_dict(device))
    result["hvinfo"] = dict(hvinfo)
    return result


def _map_paths(runtime: Runtime, change: Callable[[str], str]) -> Runtime:
    return replace(
        runtime,
        argv=tuple(change(word) for word in runtime.argv),
        disks=tuple(replace(disk, path=change(disk.path)) for disk in runtime.disks),
    )


def to_virtual(runtime: Runtime, root: str) -> Runtime:
    """The form that travels: every mention of this node's root replaced by a mark."""
    if not root:
        return runtime
    return _map_paths(runtime, lambda word: word.replace(f"{root}/", f"{_ROOT_MARK}/"))


def to_local(runtime: Runtime, root: str) -> Runtime:
    """The inverse of :func:`to_virtual` on the node that receives."""
    return _map_paths(runtime, lambda word: word.replace(f"{_ROOT_MARK}/", f"{root}/"))


def words_of(runtime: Runtime, option: str) -> Sequence[str]:
    """The values of an option in the command line, in order."""
    return [
        value for word, value in zip(runtime.argv, runtime.argv[1:], strict=False) if word == option
    ]
