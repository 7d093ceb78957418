"""What travels between daemons without being stored in the configuration."""

from __future__ import annotations

import dataclasses
from typing import Any

from ganeti import errors


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OS:
    """An operating system definition found on a node."""

    name: str
    path: str
    api_versions: tuple[int, ...]
    create_script: str | None = None
    create_script_untrusted: str | None = None
    export_script: str | None = None
    import_script: str | None = None
    rename_script: str | None = None
    verify_script: str | None = None
    supported_variants: tuple[str, ...] | None = None
    supported_parameters: tuple[Any, ...] | None = None
    # Seed 003 *OS version*, seed 001 *OS interface*.
    os_version: str = ""
    hypervisors: tuple[str, ...] | None = None

    @staticmethod
    def base_name(name: str) -> str:
        """The definition's name without a variant: ``debian+minimal`` -> ``debian``."""
        return name.split("+", 1)[0]

    @staticmethod
    def variant(name: str) -> str:
        """The variant in a name, empty when there is none."""
        return name.split("+", 1)[1] if "+" in name else ""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ExtStorage:
    """An external storage provider found on a node."""

    name: str
    path: str
    create_script: str | None = None
    remove_script: str | None = None
    grow_script: str | None = None
    attach_script: str | None = None
    detach_script: str | None = None
    setinfo_script: str | None = None
    verify_script: str | None = None
    snapshot_script: str | None = None
    open_script: str | None = None
    close_script: str | None = None
    supported_parameters: tuple[Any, ...] | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BlockDevStatus:
    """State of a block device. `ldisk_status` is one of ``constants.disk.LDS_*``; unknown is None.

    `sync_percent` counts to 100, `estimated_time` is in seconds.
    """

    dev_path: str
    major: int | None = None
    minor: int | None = None
    sync_percent: float | None = None
    estimated_time: float | None = None
    is_degraded: bool | None = None
    ldisk_status: int | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MigrationStatus:
    """How far a migration is; sizes in bytes, times in ms.

    The times come at the end: of the whole migration, and of the part in which the guest stood
    still.
    """

    status: str
    transferred_ram: float | None = None
    total_ram: float | None = None
    postcopy_status: str | None = None
    total_time: int | None = None
    downtime: int | None = None


CONSOLE_SSH = "ssh"
CONSOLE_VNC = "vnc"
CONSOLE_SPICE = "spice"
CONSOLE_MESSAGE = "msg"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class InstanceConsole:
    """How to reach the console of an instance."""

    instance: str
    kind: str
    message: str | None = None
    host: str | None = None
    port: int | None = None
    user: str | None = None
    command: Any = None
    display: int | None = None

    def check(self) -> InstanceConsole:
        """Return self when the facts fit the kind.

        :raises errors.ProgrammerError: they do not.
        """
        needed = {
            CONSOLE_MESSAGE: ("message",),
            CONSOLE_SSH: ("host", "user", "command"),
            CONSOLE_VNC: ("host", "port"),
            CONSOLE_SPICE: ("host", "port"),
        }.get(self.kind)
        if needed is None:
            raise errors.ProgrammerError(f"console of {self.instance}: unknown kind {self.kind!r}")
        missing = [name for name in needed if getattr(self, name) in (None, "")]
        if missing:
            raise errors.ProgrammerError(
                f"console of {self.instance}: kind {self.kind} needs {', '.join(missing)}"
            )
        return self


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MasterNetworkParameters:
    """Where the address of the master belongs."""

    uuid: str
    ip: str
    netmask: int
    netdev: str
    ip_family: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MasterVote:
    """What a node says when somebody wants to become master.

    ``master`` is the name of the master as it knows it; ``epoch`` the highest master epoch it has
    seen. ``config_epoch``, ``config_serial`` and ``config_digest`` (of the content; empty where it
    is gone) say which configuration it has, ``queue_epoch`` and ``last_job`` which job queue.
    Epochs are texts, ``NUMBER OWNER``.
    """

    master: str
    epoch: str
    config_epoch: str
    config_serial: int
    config_digest: str
    queue_epoch: str
    last_job: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LvmPvInfo:
    """A physical volume; sizes in MiB."""

    name: str
    vg_name: str
    size: float
    free: float
    attributes: str
    lv_list: tuple[str, ...] | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ImportExportOptions:
    """How the two ends of an export talk."""

    key_name: str | None = None
    ca_pem: str | None = None
    compress: str | None = None
    magic: str | None = None
    ipv6: bool | None = None
    connect_timeout: int | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ImportExportStatus:
    """How far an export or import is."""

    recent_output: tuple[str, ...] | None = None
    listen_port: int | None = None
    connected: bool | None = None
    progress_mbytes: float | None = None
    progress_throughput: float | None = None
    progress_percent: float | None = None
    progress_eta: float | None = None
    exit_status: int | None = None
    error_message: str | None = None
    ctime: float | None = None
    mtime: float | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ConfdRequest:
    """A question to the configuration daemon."""

    protocol: int
    type: int
    query: Any = None
    rsalt: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ConfdReply:
    """Its answer."""

    protocol: int
    status: int
    answer: Any = None
    serial: int
