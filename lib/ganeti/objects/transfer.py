"""Objects which daemons send to each other and which are not in the configuration."""

from __future__ import annotations

import dataclasses
from typing import Any

from ganeti import errors


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OS:
    """An OS definition on a node."""

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
    # Ganeti design 2.2, *OS version*; Ganeti design 2.0, *OS interface*.
    os_version: str = ""
    hypervisors: tuple[str, ...] | None = None

    @staticmethod
    def base_name(name: str) -> str:
        """Return the name of the definition without variant: ``debian`` for ``debian+minimal``."""
        return name.split("+", 1)[0]

    @staticmethod
    def variant(name: str) -> str:
        """Return the variant in a name, or an empty text."""
        return name.split("+", 1)[1] if "+" in name else ""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ExtStorage:
    """A provider of external storage on a node."""

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
    """State of a block device. Unknown values are None.

    :ivar sync_percent: how much is in sync, up to 100.
    :ivar estimated_time: seconds until it is in sync.
    :ivar ldisk_status: state of the local storage, one of ``constants.disk.LDS_*``.
    :ivar writable: DRBD only: whether the device is primary on this node.
    """

    dev_path: str
    major: int | None = None
    minor: int | None = None
    sync_percent: float | None = None
    estimated_time: float | None = None
    is_degraded: bool | None = None
    ldisk_status: int | None = None
    writable: bool | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MigrationStatus:
    """Progress of a migration; sizes are in bytes, times in milliseconds.

    :ivar total_time: duration of the migration, after its end.
    :ivar downtime: how long the guest was stopped, after the end of the migration.
    :ivar error: why the migration failed, as the hypervisor says it; None when it does not.
    """

    status: str
    transferred_ram: float | None = None
    total_ram: float | None = None
    postcopy_status: str | None = None
    total_time: int | None = None
    downtime: int | None = None
    error: str | None = None


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
        """Check that the values which the kind needs are present; return self.

        :raises errors.ProgrammerError: a value is missing.
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
    """The address of the master, and where it is configured."""

    uuid: str
    ip: str
    netmask: int
    netdev: str
    ip_family: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MasterVote:
    """Vote of a node about the master. Epochs are texts, ``NUMBER OWNER``.

    :ivar master: name of the node which it regards as master.
    :ivar epoch: the highest master epoch which it knows.
    :ivar config_epoch: epoch of its copy of the configuration; ``config_serial`` is the serial
        number.
    :ivar config_digest: digest of the content of that copy; empty if there is no copy.
    :ivar queue_epoch: epoch of its copy of the job queue; ``last_job`` is the last job ID.
    """

    master: str
    epoch: str
    config_epoch: str
    config_serial: int
    config_digest: str
    queue_epoch: str
    last_job: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MasterStatus:
    """What a node knows about the master daemon, for the automatic failover of its role.

    :ivar master: name of the node which it regards as master.
    :ivar epoch: the highest master epoch which it knows, ``NUMBER OWNER``.
    :ivar daemon: the master daemon of the node itself: ``serving``, ``stopped``, ``dead`` or
        ``mute`` (:mod:`ganeti.constants.failover`).
    :ivar watching: whether ``ganeti-failoverd`` runs on the node.
    :ivar watched: the node which that daemon watches; empty for none. The members below are its
        report.
    :ivar state: the state in which it saw the master daemon of that node last.
    :ivar seen_s: seconds since that one served; None if it never did. In the answer of a node whose
        own master daemon serves: seconds since a majority confirmed that it can commit changes.
    :ivar text: what it does, and why.
    :ivar acted: what it did last, and when; empty for nothing.
    :ivar paused_until: end of the watcher's pause in seconds since 1970, or None.
    """

    master: str
    epoch: str
    daemon: str
    watching: bool
    watched: str = ""
    state: str = ""
    seen_s: float | None = None
    text: str = ""
    acted: str = ""
    paused_until: float | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class WatchdogStatus:
    """What a node says about its hardware watchdog.

    :ivar state: ``armed``, ``release`` or ``none`` (:mod:`ganeti.constants.node_watchdog`).
    :ivar token: UUID of the promise to which the state belongs; empty for ``none``.
    :ivar timeout_s: the timeout of the device.
    :ivar text: the reason of the state.
    :ivar promised: UUID of the promise which is stored on the node; empty for none.
    """

    state: str
    token: str = ""
    timeout_s: int = 0
    text: str = ""
    promised: str = ""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NodeWork:
    """A call which a node is carrying out, and which changes instances or disks.

    :ivar job: the job which made the call; None for a caller without a job.
    :ivar epoch: the epoch of the master which made it.
    :ivar token: the caller's name for this call; empty for callers which give none.
    :ivar call: its procedure; ``doing`` says the same for people.
    :ivar instances: UUIDs of the instances in its arguments; ``disks`` those of the disks.
    :ivar since: its beginning, in seconds since the epoch.
    :ivar transfer: name of the transfer which it started, if it did.
    :ivar processes: the processes which work, each as ``4711 (create)``.
    """

    job: int | None = None
    epoch: str
    token: str
    call: str
    doing: str
    instances: tuple[str, ...]
    disks: tuple[str, ...]
    since: float
    transfer: str | None = None
    processes: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LvmPvInfo:
    """An LVM physical volume; sizes are in MiB."""

    name: str
    vg_name: str
    size: float
    free: float
    attributes: str
    lv_list: tuple[str, ...] | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ImportExportOptions:
    """Options of the connection between both ends of an export."""

    key_name: str | None = None
    ca_pem: str | None = None
    compress: str | None = None
    magic: str | None = None
    ipv6: bool | None = None
    connect_timeout: int | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ImportExportStatus:
    """Progress of an export or import."""

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
    """A request to the configuration daemon."""

    protocol: int
    type: int
    query: Any = None
    rsalt: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ConfdReply:
    """An answer of the configuration daemon."""

    protocol: int
    status: int
    answer: Any = None
    serial: int
