"""A volume of an external provider as a block device.

The ``logical_id`` is ``(provider, volume)``. Each operation runs the provider's script of that name
in the provider's directory. The environment describes the volume: always ``VOL_NAME``, each disk
parameter as ``EXTP_<NAME>``, and ``VOL_SIZE`` and others for the operations which need them. The
output of a script goes to a log file. Two scripts print an answer. The first line of ``attach`` is
the block device, and each other line is a URI by which a hypervisor opens the volume itself
(``kvm:uri``). The optional ``exists`` prints ``present`` or ``absent``.

Source: ganeti-extstorage-interface(7).
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
#: Disk parameters of Ganeti, which the provider does not get.
_OWN_PARAMETERS = frozenset(("access",))
#: Scripts which get the name and the UUID of the disk.
_WITH_NAME_AND_UUID = frozenset(
    ("create", "grow", "attach", "detach", "exists", "remove", "setinfo", "open", "close")
)
#: What ``exists`` may print.
_ANSWERS = {"present": True, "absent": False}


def environment(disk: Disk, action: str, extra: Mapping[str, str]) -> dict[str, str]:
    """Return the variables which a script gets, in addition to the environment of this process."""
    env = {"VOL_NAME": disk.ext_id.name, **extra}
    if action in _WITH_NAME_AND_UUID:
        if disk.name:
            env["VOL_CNAME"] = disk.name
        if disk.uuid:
            env["VOL_UUID"] = disk.uuid
    for name, value in (disk.params or {}).items():
        if name not in _OWN_PARAMETERS:
            env[f"EXTP_{name.upper()}"] = str(value)
    return env


def parse_attach(text: str) -> tuple[str, dict[str, str]]:
    """Read the output of ``attach``.

    :returns: path of the block device (may be empty), and hypervisor -> URI.
    :raises ParseError: a line has another form, or a hypervisor occurs twice.
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
    """A disk which is a volume of a provider."""

    PATH_NEEDS_ASSEMBLY = True

    def __init__(self, disk: Disk) -> None:
        super().__init__(disk)
        fields: tuple[Any, ...] = tuple(disk.logical_id)
        if len(fields) != 2 or not isinstance(fields[1], str) or not _VOLUME.fullmatch(fields[1]):
            raise self.wrong(f"id {list(fields)} is not [provider, volume]")
        self._provider_name, self.volume = str(fields[0]), fields[1]
        self._provider: ExtStorage | None = None
        self._attached: tuple[str, dict[str, str]] | None = None

    @property
    def path(self) -> str:
        """The block device which ``attach`` prints; empty when it prints only URIs."""
        return self._attach()[0]

    @property
    def unique_id(self) -> str:
        """Provider and volume."""
        return f"{self._provider_name}/{self.volume}"

    def create(self, size_mib: int, *, exclusive: bool = False, owner: str = "") -> None:
        """Let the provider check the disk parameters and create the volume."""
        verify_parameters(self._provider_name, self.disk.params or {})
        if self._says_exists():
            raise self.fail("the volume exists already, and will not be overwritten")
        try:
            self._script("create", VOL_SIZE=str(size_mib))
        except errors.BlockDeviceError as err:
            # Whether the script made a volume before it failed is not known.
            raise errors.DeviceCreationError(str(err), [self.unique_id]) from err

    def remove(self) -> None:
        """Let the provider remove the volume; its script accepts one which does not exist."""
        self._attached = None
        self.until_free(lambda: self._try("remove"))

    def _try(self, script: str) -> errors.BlockDeviceError | None:
        """Run a script which may be repeated; return its error, whose cause only it knows."""
        try:
            self._script(script)
        except errors.BlockDeviceError as err:
            return err
        return None

    def exists(self) -> bool:
        """Return True if the volume exists: what the provider's ``exists`` says.

        Without that script, a volume which can be attached exists.

        :raises BlockDeviceError: the script does not say it; or there is none, and the volume
            cannot be attached, of which nobody knows whether it is lost.
        """
        said = self._says_exists()
        if said is not None:
            return said
        try:
            self._attach()
        except errors.BlockDeviceError as err:
            raise errors.BlockDeviceError(
                f"{err}. It is not known whether it exists: provider {self._provider_name} has no"
                " script 'exists'."
            ) from err
        return True

    def reachable(self) -> bool | None:
        """Return what the provider's ``exists`` says; None without that script.

        :raises BlockDeviceError: this node does not have the provider, or the script does not say
            it.
        """
        return self._says_exists()

    def _says_exists(self) -> bool | None:
        """Return the answer of the provider's script; None if it has none."""
        script = providers.exists_script(self._found())
        if script is None:
            return None
        answer = self._run(script, "exists").strip()
        if answer not in _ANSWERS:
            raise self.fail(
                f"its provider's exists printed {answer!r:.120}, which is not one of"
                f" {', '.join(_ANSWERS)}"
            )
        return _ANSWERS[answer]

    def assemble(self) -> None:
        """Attach the volume."""
        self._attach()

    def open(self, *, exclusive: bool = True, force: bool = False) -> None:
        """Let the provider make the volume writable."""
        self._script("open", VOL_OPEN_EXCLUSIVE=str(exclusive))

    def close(self) -> None:
        """Let the provider undo :meth:`open`."""
        self._script("close")

    def shutdown(self) -> None:
        """Detach the volume."""
        self._attached = None
        self.until_free(lambda: self._try("detach"))

    def grow(
        self, amount_mib: int, *, dry_run: bool, backing_store: bool, exclusive: bool = False
    ) -> None:
        """Let the provider make the volume larger."""
        if backing_store and not dry_run:
            self._script(
                "grow", VOL_SIZE=str(self.disk.size), VOL_NEW_SIZE=str(self.disk.size + amount_mib)
            )

    def rename(self, new_id: tuple[object, ...]) -> None:
        """Refuse: volumes keep their names.

        :raises BlockDeviceError: always.
        """
        raise self.fail(f"disks of type '{disk_constants.EXT}' cannot be renamed")

    def set_info(self, text: str) -> None:
        """Pass the text to the provider."""
        self._script("setinfo", VOL_METADATA=safe_tag(text))

    def snapshot(self, name: str, size_mib: int) -> tuple[object, ...]:
        """Let the provider take a snapshot of the volume.

        :raises BlockDeviceError: the provider has no snapshots, or failed.
        """
        if self._found().snapshot_script is None:
            raise self.fail(f"provider {self._provider_name} has no snapshots")
        self._script(
            "snapshot",
            VOL_SNAPSHOT_NAME=name,
            VOL_SNAPSHOT_SIZE=str(size_mib),
            VOL_SIZE=str(self.disk.size),
        )
        return (self._provider_name, name)

    def size_bytes(self) -> int:
        """Return the size of the attached block device in bytes."""
        path = self.path
        if not path:
            raise self.fail("has no block device on this node, so its size is not known")
        try:
            with open(path, "rb") as stream:
                return stream.seek(0, os.SEEK_END)
        except OSError as err:
            raise self.fail("cannot be measured", err) from err

    def sync_status(self) -> BlockDevStatus:
        """In sync when the volume can be attached."""
        path = self.path
        number = None
        if path and stat.S_ISBLK(os.stat(path).st_mode):
            number = os.stat(path).st_rdev
        return self.in_sync(path, number)

    def uri(self, hypervisor: str) -> str | None:
        """Return the URI which ``attach`` prints for the hypervisor.

        The result is None for a device of the kernel.

        :raises BlockDeviceError: it prints none for this hypervisor.
        """
        if (self.disk.params or {}).get("access") != disk_constants.USERSPACE:
            return None
        found = self._attach()[1].get(hypervisor)
        if found is None:
            raise self.fail(
                f"provider {self._provider_name} has no URI by which hypervisor {hypervisor} could"
                " open it without the kernel"
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
                raise self.fail(f"cannot read the output of its provider's attach: {err}") from err
            if device and not _is_device(device):
                raise self.fail(
                    f"its provider's attach printed {device!r:.120}, which is not a block"
                    " device on this node"
                )
            if not device and not uris:
                raise self.fail("its provider's attach printed neither a device nor a URI")
            self._attached = (device, uris)
        return self._attached

    def _script(self, action: str, **extra: str) -> str:
        """Run a script; skip an optional one which is missing.

        :returns: the output of ``attach``; of other scripts an empty text.
        """
        found = self._found()
        script = getattr(found, f"{action}_script")
        if script is None:
            return ""
        if action == "attach":
            return self._run(script, action)
        env = environment(self.disk, action, extra)
        log_file = self._log_file(action)
        try:
            fs.make_dirs(os.path.dirname(log_file), 0o750)
            fd = fs.open_or_create(log_file, os.O_WRONLY | os.O_APPEND, 0o640)
        except OSError as err:
            raise self.fail(f"cannot write {log_file}", err) from err
        try:
            process.run([script], timeout_s=_TIMEOUT_S, env=env, cwd=found.path, output_fd=fd)
        except errors.CommandError as err:
            tail = " | ".join(fs.read_file(log_file).strip().splitlines()[-_TAIL_LINES:])
            raise self.fail(
                f"its provider's {action} failed: {err}; last lines of {log_file}:"
                f" {tail or '(none)'}"
            ) from err
        finally:
            os.close(fd)
        return ""

    def _run(self, script: str, action: str) -> str:
        """Run a script whose output is its answer."""
        env = environment(self.disk, action, {})
        cwd = self._found().path
        try:
            return process.run([script], timeout_s=_TIMEOUT_S, env=env, cwd=cwd).stdout
        except errors.CommandError as err:
            raise self.fail(f"its provider's {action} failed: {err}") from err

    def _log_file(self, action: str) -> str:
        name = f"{action}-{self._provider_name}-{self.volume}-{int(clock.now())}.log"
        return f"{paths.current().log_extstorage_dir}/{name.replace('/', '_')}"


def _is_device(path: str) -> bool:
    # A provider for tests and virtual clusters may print the path of a file.
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return os.path.isabs(path) and (stat.S_ISBLK(mode) or stat.S_ISREG(mode))


def verify_parameters(provider_name: str, params: Mapping[str, Any]) -> None:
    """Let a provider check disk parameters.

    :raises BlockDeviceError: the provider has no such parameter, or refuses a value.
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
