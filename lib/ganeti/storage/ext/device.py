"""A volume of an external provider as a block device.

The ``logical_id`` is ``(provider, volume)``. Each verb runs the provider's script of that name, in
its directory, with the volume described in the environment: ``VOL_NAME`` always, ``VOL_SIZE`` and
so on where they make sense, and each disk parameter as ``EXTP_NAME``. What a script prints goes to
a file of its own, except from ``attach``, whose first line is the device and whose further lines
say how hypervisors reach the volume without one (``kvm:uri``).
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from typing import Any

from ganeti import errors
from ganeti.constants import disk as disk_constants
from ganeti.objects.disk import Disk
from ganeti.objects.transfer import BlockDevStatus, ExtStorage
from ganeti.platform import paths
from ganeti.storage.base import BlockDevice
from ganeti.storage.ext import provider as providers
from ganeti.storage.lvm.parse import safe_tag
from ganeti.utils import clock, fs, process

_TIMEOUT_S = 840.0
_VOLUME = re.compile(r"^[A-Za-z0-9_.+@-][A-Za-z0-9_.+@:/-]*$")
_TAIL_LINES = 20
#: Disk parameters which are ours, and not the provider's.
_OWN_PARAMETERS = frozenset(("access",))
#: Scripts which also learn name and UUID of the disk.
_TOLD_ALL = frozenset(("create", "grow", "attach", "detach", "remove", "setinfo", "open", "close"))


def environment(disk: Disk, action: str, extra: Mapping[str, str]) -> dict[str, str]:
    """What a script is told, on top of our own environment."""
    env = {"VOL_NAME": str(disk.logical_id[1]), **extra}
    if action in _TOLD_ALL:
        if disk.name:
            env["VOL_CNAME"] = disk.name
        if disk.uuid:
            env["VOL_UUID"] = disk.uuid
    for name, value in (disk.params or {}).items():
        if name not in _OWN_PARAMETERS:
            env[f"EXTP_{name.upper()}"] = str(value)
    return env


def parse_attach(text: str) -> tuple[str, dict[str, str]]:
    """Read what ``attach`` prints: the device (may be empty), and hypervisor -> URI.

    :raises ParseError: a line that is no URI, or the same hypervisor twice.
    """
    lines = text.split("\n")
    device, uris = lines[0].strip(), {}
    for line in lines[1:]:
        if not line.strip():
            continue
        hypervisor, colon, uri = line.strip().partition(":")
        if not colon or not hypervisor or not uri.strip():
            raise errors.ParseError(f"expected <hypervisor>:<uri>, found {line.strip()!r:.120}")
        if hypervisor in uris:
            raise errors.ParseError(f"hypervisor {hypervisor} has several URIs")
        uris[hypervisor] = uri.strip()
    return device, uris


class ExtDevice(BlockDevice):
    """A volume of a provider."""

    def __init__(self, disk: Disk) -> None:
        super().__init__(disk)
        fields: tuple[Any, ...] = tuple(disk.logical_id)
        if len(fields) != 2 or not isinstance(fields[1], str) or not _VOLUME.match(fields[1]):
            raise errors.BlockDeviceError(
                f"disk {disk.uuid or disk.iv_name}: id {list(fields)} is not [provider, volume]"
            )
        self._provider_name, self.volume = str(fields[0]), fields[1]
        self._provider: ExtStorage | None = None
        self._attached: tuple[str, dict[str, str]] | None = None

    @property
    def path(self) -> str:
        """The device which ``attach`` names; empty when the volume is reached by URI only."""
        return self._attach()[0]

    @property
    def unique_id(self) -> str:
        """Provider and volume."""
        return f"{self._provider_name}/{self.volume}"

    def create(self, size_mib: int, *, exclusive: bool = False, owner: str = "") -> None:
        """Let the provider look at the parameters, and make the volume."""
        verify_parameters(self._provider_name, self.disk.params or {})
        self._script("create", VOL_SIZE=str(size_mib))

    def remove(self) -> None:
        """Let the provider destroy the volume; its script accepts one that is gone."""
        self._attached = None
        self._script("remove")

    def exists(self) -> bool:
        """Whether it can be attached, which is the only thing a provider can be asked."""
        try:
            self._attach()
        except errors.BlockDeviceError:
            return False
        return True

    def assemble(self) -> None:
        """Attach the volume."""
        self._attach()

    def open(self, *, exclusive: bool = True, force: bool = False) -> None:
        """Tell the provider that it will be written to."""
        self._script("open", VOL_OPEN_EXCLUSIVE=str(exclusive))

    def close(self) -> None:
        """Tell it that this is over."""
        self._script("close")

    def shutdown(self) -> None:
        """Detach the volume."""
        self._attached = None
        self._script("detach")

    def grow(
        self, amount_mib: int, *, dry_run: bool, backing_store: bool, exclusive: bool = False
    ) -> None:
        """Let the provider make it larger."""
        if backing_store and not dry_run:
            self._script(
                "grow", VOL_SIZE=str(self.disk.size), VOL_NEW_SIZE=str(self.disk.size + amount_mib)
            )

    def rename(self, new_id: tuple[object, ...]) -> None:
        """Volumes keep their names."""
        raise self.fail(f"disks of type '{disk_constants.EXT}' cannot be renamed")

    def set_info(self, text: str) -> None:
        """Hand a text to the provider."""
        self._script("setinfo", VOL_METADATA=safe_tag(text))

    def snapshot(self, name: str, size_mib: int) -> tuple[object, ...]:
        """Let the provider copy the volume.

        :raises BlockDeviceError: it cannot.
        """
        if self._found().snapshot_script is None:
            raise self.fail(f"provider {self._provider_name} makes no snapshots")
        self._script(
            "snapshot",
            VOL_SNAPSHOT_NAME=name,
            VOL_SNAPSHOT_SIZE=str(size_mib),
            VOL_SIZE=str(self.disk.size),
        )
        return (self._provider_name, name)

    def size_bytes(self) -> int:
        """Size of the attached device."""
        path = self.path
        if not path:
            raise self.fail("has no device on this node that could be measured")
        try:
            with open(path, "rb") as stream:
                return stream.seek(0, os.SEEK_END)
        except OSError as err:
            raise self.fail("cannot be measured", err) from err

    def sync_status(self) -> BlockDevStatus:
        """In order when it can be attached."""
        path = self.path
        number = None
        if path and stat.S_ISBLK(os.stat(path).st_mode):
            number = os.stat(path).st_rdev
        return BlockDevStatus(
            dev_path=path,
            is_degraded=False,
            ldisk_status=disk_constants.LDS_OKAY,
            major=None if number is None else os.major(number),
            minor=None if number is None else os.minor(number),
        )

    def uri(self, hypervisor: str) -> str | None:
        """What ``attach`` said for this hypervisor, when the disk is to be reached that way."""
        if (self.disk.params or {}).get("access") != disk_constants.USERSPACE:
            return None
        found = self._attach()[1].get(hypervisor)
        if found is None:
            raise self.fail(
                f"provider {self._provider_name} gives hypervisor {hypervisor} no way to reach it"
                " without the kernel"
            )
        return found

    # -- scripts ---------------------------------------------------------------

    def _found(self) -> ExtStorage:
        if self._provider is None:
            self._provider = providers.find(self._provider_name)
        return self._provider

    def _attach(self) -> tuple[str, dict[str, str]]:
        if self._attached is None:
            output = self._script("attach")
            try:
                device, uris = parse_attach(output)
            except errors.ParseError as err:
                raise self.fail(f"attach of its provider makes no sense: {err}") from err
            if device and not _is_device(device):
                raise self.fail(
                    f"attach of its provider names {device!r:.120}, which is no block"
                    " device on this node"
                )
            if not device and not uris:
                raise self.fail("attach of its provider names neither device nor URI")
            self._attached = (device, uris)
        return self._attached

    def _script(self, action: str, **extra: str) -> str:
        """Run a script; an optional one that is missing is skipped. Returns what it printed."""
        found = self._found()
        script = getattr(found, f"{action}_script")
        if script is None:
            return ""
        env = environment(self.disk, action, extra)
        if action == "attach":
            # Its output is the answer.
            try:
                return process.run([script], timeout_s=_TIMEOUT_S, env=env, cwd=found.path).stdout
            except errors.CommandError as err:
                raise self.fail(f"{action} of its provider failed: {err}") from err
        log_file = self._log_file(action)
        try:
            fs.make_dirs(os.path.dirname(log_file), 0o750)
            fd = os.open(log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)
        except OSError as err:
            raise self.fail(f"cannot write {log_file}", err) from err
        try:
            process.run([script], timeout_s=_TIMEOUT_S, env=env, cwd=found.path, output_fd=fd)
        except errors.CommandError as err:
            tail = " | ".join(fs.read_file(log_file).strip().splitlines()[-_TAIL_LINES:])
            raise self.fail(
                f"{action} of its provider failed: {err}; last lines of {log_file}:"
                f" {tail or '(none)'}"
            ) from err
        finally:
            os.close(fd)
        return ""

    def _log_file(self, action: str) -> str:
        name = f"{action}-{self._provider_name}-{self.volume}-{int(clock.now())}.log"
        return f"{paths.current().log_extstorage_dir}/{name.replace('/', '_')}"


def _is_device(path: str) -> bool:
    # A provider for tests and virtual clusters may name a file.
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return os.path.isabs(path) and (stat.S_ISBLK(mode) or stat.S_ISREG(mode))


def verify_parameters(provider_name: str, params: Mapping[str, Any]) -> None:
    """Let a provider look at disk parameters.

    :raises BlockDeviceError: a parameter which it does not have, or a value it does not like.
    """
    found = providers.find(provider_name)
    known = {name for name, _ in found.supported_parameters or ()}
    unknown = sorted(name for name in params if name.lower() not in known | _OWN_PARAMETERS)
    if unknown:
        raise errors.BlockDeviceError(
            f"storage provider {provider_name} has no parameter {', '.join(unknown)}"
        )
    env = {
        f"EXTP_{name.upper()}": str(value)
        for name, value in params.items()
        if name not in _OWN_PARAMETERS
    }
    try:
        process.run([f"{found.verify_script}"], timeout_s=_TIMEOUT_S, env=env, cwd=found.path)
    except errors.CommandError as err:
        raise errors.BlockDeviceError(
            f"storage provider {provider_name} does not accept these parameters: {err}"
        ) from err
