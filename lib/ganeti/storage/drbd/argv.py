"""Commands of DRBD; pure functions, in a class for each syntax.

The version of the kernel module decides the syntax, and not that of drbd-utils: utilities of
version 9 accept the syntax of 8.4 for a module 8.4. Sizes are in MiB or in sectors of 512 bytes,
rates in KiB/s.

The shared secret is an argument: ``drbdsetup`` reads it neither from a file nor from its standard
input. See ganeti-noded(8), *Secrets and command lines*.

Source: drbdsetup(8) of 8.3, 8.4 and 9.0, drbdmeta(8); for version 9 also what ``drbdadm -d`` of
drbd-utils 9.22 would run for two nodes (test/data/drbd/drbd-9.22-drbdadm.txt).
"""

from __future__ import annotations

import dataclasses
import shlex
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from ganeti import errors
from ganeti.utils.process import Secret

SECTORS_PER_MIB = 2048
#: Digest for the handshake of two peers.
HMAC = "md5"

#: The fencing policy which suspends I/O when the peer is lost.
WAIT_POLICY = "resource-and-stonith"

NO_BARRIERS = "n"
#: Values of ``disabled-barriers``: nothing, or combinations of barriers, flushes and drain.
VALID_BARRIERS = frozenset(
    frozenset(letters) for letters in ("n", "b", "bf", "bfd", "bd", "f", "fd", "d")
)


@dataclasses.dataclass(frozen=True, slots=True)
class Endpoint:
    """Address and port of one side of a connection."""

    address: str
    port: int

    @property
    def family(self) -> str:
        """``ipv4`` or ``ipv6``."""
        return "ipv6" if ":" in self.address else "ipv4"

    def __str__(self) -> str:
        host = f"[{self.address}]" if self.family == "ipv6" else self.address
        return f"{self.family}:{host}:{self.port}"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NetOptions:
    """Options of the connection between two peers.

    :ivar protocol: A, B or C.
    :ivar secret: empty for no authentication.
    :ivar custom: options of the administrator.
    :ivar sync: disk parameters, for versions whose connection has the rate of synchronisation.
    """

    protocol: str
    secret: str
    dual_primary: bool = False
    custom: str = ""
    sync: Mapping[str, Any] | None = None


def custom_options(custom: str, parameter: str) -> list[str]:
    """Split the options which an administrator adds to a command.

    :param parameter: its name, for messages.
    :raises BlockDeviceError: a quote is missing.
    """
    try:
        return shlex.split(custom)
    except ValueError as err:
        raise errors.BlockDeviceError(
            f"disk parameter {parameter}: cannot read {custom!r}: {err}"
        ) from err


def check_barriers(value: Any) -> frozenset[str]:
    """Read the disk parameter ``disabled-barriers``.

    :returns: letters of ``bfd``; none for the value ``n``.
    :raises BlockDeviceError: the value is not such a combination.
    """
    letters = frozenset(str(value))
    if letters not in VALID_BARRIERS or len(str(value)) != len(letters):
        raise errors.BlockDeviceError(
            f"disk parameter disabled-barriers: {value!r} is not {NO_BARRIERS!r}, nor a combination"
            " of 'b', 'f' and 'd'"
        )
    return letters - {NO_BARRIERS}


class Commands(ABC):
    """The commands for one minor, in the syntax of one version."""

    def __init__(self, minor: int) -> None:
        self.minor = minor

    @property
    def device(self) -> str:
        """Path of the device."""
        return f"/dev/drbd{self.minor}"

    @property
    def resource(self) -> str:
        """Name of the resource, which has only this device."""
        return f"resource{self.minor}"

    @abstractmethod
    def create_metadata(self, meta: str) -> list[str]:
        """Write new metadata, in which no block is in sync."""

    @abstractmethod
    def make(self) -> list[list[str]]:
        """Create the device without storage and peer; one which exists stays as it is."""

    @abstractmethod
    def prepare_attach(self, meta: str) -> list[list[str]]:
        """Make metadata ready to be read and attached, after a crash of the node, too."""

    @abstractmethod
    def dump_metadata(self, meta: str) -> list[str]:
        """Print metadata which are not attached, see :func:`.parse.parse_metadata`."""

    @abstractmethod
    def attach(
        self, data: str, meta: str, sectors: int | None, params: Mapping[str, Any]
    ) -> list[str]:
        """Attach the local storage.

        The kernel cuts the device off at the given size, without asking, even if it was larger.

        :param sectors: size of the device; None for all of the storage.
        :param params: disk parameters.
        :raises BlockDeviceError: a parameter is not valid.
        """

    @abstractmethod
    def sync_options(self, params: Mapping[str, Any]) -> list[str] | None:
        """Set the rate of synchronisation of an attached device.

        :param params: disk parameters.
        :returns: None where :meth:`attach` or :meth:`connect` sets it.
        :raises BlockDeviceError: this version cannot synchronise with a dynamic rate.
        """

    @abstractmethod
    def connect(self, local: Endpoint, remote: Endpoint, options: NetOptions) -> list[list[str]]:
        """Connect to the peer, in the background."""

    @abstractmethod
    def disconnect(self, local: Endpoint, remote: Endpoint) -> list[str]:
        """Disconnect from the peer."""

    def forget_peer(self) -> list[str] | None:
        """Remove a connection which is down, so that :meth:`connect` can make another one.

        :returns: None where a connection which is down does not exist.
        """
        return None

    def remove_unused(self) -> list[str] | None:
        """Remove the device which has neither storage nor peer; it fails if there is none.

        :returns: None where :meth:`make` can use such a device.
        """
        return None

    @abstractmethod
    def single_primary(self, local: Endpoint, remote: Endpoint) -> list[str] | None:
        """Make a dual-primary connection single-primary, without disconnecting.

        The kernel refuses it while both replicas are primary.

        :returns: None where this version must disconnect and connect again.
        """

    @abstractmethod
    def primary(self, *, force: bool) -> list[str]:
        """Make the device writable; ``force`` declares the local replica to be valid."""

    @abstractmethod
    def down(self, resource: str | None = None) -> list[str]:
        """Remove peer, storage and device.

        :param resource: its name, if it is not :attr:`resource`.
        """

    @abstractmethod
    def resize(self, size_mib: int) -> list[str]:
        """Change the size of the device, after that of its storage."""

    @abstractmethod
    def _plain(self, verb: str) -> list[str]:
        """Return a command without other arguments than the device."""

    def secondary(self) -> list[str]:
        """Make the device inaccessible, except for its peer."""
        return self._plain("secondary")

    def detach(self) -> list[str]:
        """Detach the local storage; the device then uses that of the peer."""
        return self._plain("detach")

    @abstractmethod
    def wait_for_peer(self, wait: bool) -> list[str] | None:
        """Choose whether the I/O of a writable device is suspended when the device loses its peer.

        :returns: None where this version has no such command for a device in use.
        """

    def resume_requests(self) -> list[str]:
        """Resume the I/O which is suspended since the peer was lost."""
        return self._plain("resume-io")

    def outdate(self) -> list[str]:
        """Mark the local replica as one which missed writes; no effect while it is connected."""
        return self._plain("outdate")

    def pause_sync(self) -> list[str]:
        """Pause a synchronisation."""
        return self._plain("pause-sync")

    def resume_sync(self) -> list[str]:
        """Resume a synchronisation."""
        return self._plain("resume-sync")

    def show(self, resource: str | None = None) -> list[str]:
        """Print the configuration of the device.

        :param resource: to which it belongs, if the state of the device says that; see
            :attr:`.parse.MinorState.resource`.
        """
        return self._plain("show")


class Commands84(Commands):
    """Commands of DRBD 8.4."""

    def create_metadata(self, meta: str) -> list[str]:
        return ["drbdmeta", "--force", self.device, "v08", meta, "flex-external", "create-md"]

    def make(self) -> list[list[str]]:
        # It is not an error when both exist.
        return [
            ["drbdsetup", "new-resource", self.resource],
            ["drbdsetup", "new-minor", self.resource, str(self.minor), "0"],
        ]

    def prepare_attach(self, meta: str) -> list[list[str]]:
        # Marks the blocks as out of sync which were being written when the node crashed.
        return [["drbdmeta", self.device, "v08", meta, "flex-external", "apply-al"]]

    def dump_metadata(self, meta: str) -> list[str]:
        return ["drbdmeta", self.device, "v08", meta, "flex-external", "dump-md"]

    def attach(
        self, data: str, meta: str, sectors: int | None, params: Mapping[str, Any]
    ) -> list[str]:
        off = check_barriers(params.get("disabled-barriers", NO_BARRIERS))
        options = [
            f"--{name}=no"
            for letter, name in (("b", "disk-barrier"), ("f", "disk-flushes"), ("d", "disk-drain"))
            if letter in off
        ]
        if params.get("disable-meta-flush"):
            options.append("--md-flushes=no")
        return [
            "drbdsetup",
            "attach",
            str(self.minor),
            data,
            meta,
            "flexible",
            "--on-io-error=detach",
            *(["--size", _size(sectors)] if sectors else []),
            *options,
            *self._attach_rate(params),
            *custom_options(params.get("disk-custom", ""), "disk-custom"),
        ]

    def _attach_rate(self, params: Mapping[str, Any]) -> list[str]:
        # A device which is connected already negotiates with its peer for some time after it was
        # attached. Until then it refuses a change of its disk options.
        return _rate_arguments(params)

    def sync_options(self, params: Mapping[str, Any]) -> list[str] | None:
        return None

    def connect(self, local: Endpoint, remote: Endpoint, options: NetOptions) -> list[list[str]]:
        command = [
            "drbdsetup",
            "connect",
            self.resource,
            str(local),
            str(remote),
            "--protocol",
            options.protocol,
            "--after-sb-0pri",
            "discard-zero-changes",
            "--after-sb-1pri",
            "consensus",
        ]
        if options.dual_primary:
            command.append("--allow-two-primaries")
        if options.secret:
            command += ["--cram-hmac-alg", HMAC, "--shared-secret", Secret(options.secret)]
        return [[*command, *custom_options(options.custom, "net-custom")]]

    def disconnect(self, local: Endpoint, remote: Endpoint) -> list[str]:
        return ["drbdsetup", "disconnect", str(local), str(remote)]

    def single_primary(self, local: Endpoint, remote: Endpoint) -> list[str] | None:
        return ["drbdsetup", "net-options", str(local), str(remote), "--allow-two-primaries=no"]

    def wait_for_peer(self, wait: bool) -> list[str] | None:
        policy = WAIT_POLICY if wait else "dont-care"
        return ["drbdsetup", "disk-options", str(self.minor), "--fencing", policy]

    def primary(self, *, force: bool) -> list[str]:
        return ["drbdsetup", "primary", str(self.minor), *(["--force"] if force else [])]

    def down(self, resource: str | None = None) -> list[str]:
        return ["drbdsetup", "down", resource or self.resource]

    def resize(self, size_mib: int) -> list[str]:
        return ["drbdsetup", "resize", str(self.minor), "--size", f"{size_mib}m"]

    def _plain(self, verb: str) -> list[str]:
        return ["drbdsetup", verb, str(self.minor)]


class Commands9(Commands84):
    """Commands of DRBD 9, with the two nodes which DRBD 8 has.

    A resource of version 9 has up to 32 numbered nodes. The two of ours have the numbers 0 and 1,
    in the order in which ``logical_id`` names them. The metadata of a replica keep its number for
    ever, so a replica never changes its place there.

    :param node_id: the number of this node; None when no command is needed which contains it.
    """

    _VOLUME = "0"

    def __init__(self, minor: int, node_id: int | None = None) -> None:
        super().__init__(minor)
        self._node_id = node_id

    def _own(self) -> int:
        if self._node_id not in (0, 1):
            raise errors.BlockDeviceError(
                f"DRBD minor {self.minor}: the number of this node in its resource is not known"
            )
        return self._node_id

    @property
    def _peer(self) -> list[str]:
        """The resource and the number of the other node."""
        return [self.resource, str(1 - self._own())]

    def create_metadata(self, meta: str) -> list[str]:
        # With a place for one peer. The device has no path yet.
        return [*self._metadata(meta, "--force"), "create-md", "1"]

    def make(self) -> list[list[str]]:
        # Opening the device must never promote it: only this project decides that.
        new = ["drbdsetup", "new-resource", self.resource, str(self._own()), "--auto-promote=no"]
        return [new, ["drbdsetup", "new-minor", self.resource, str(self.minor), self._VOLUME]]

    def remove_unused(self) -> list[str] | None:
        # It may have another number of this node, which cannot be changed.
        return self.down()

    def prepare_attach(self, meta: str) -> list[list[str]]:
        return [[*self._metadata(meta), "apply-al"]]

    def dump_metadata(self, meta: str) -> list[str]:
        return [*self._metadata(meta), "dump-md"]

    def _metadata(self, meta: str, *options: str) -> list[str]:
        return ["drbdmeta", *options, str(self.minor), "v09", meta, "flex-external"]

    def _attach_rate(self, params: Mapping[str, Any]) -> list[str]:
        return []

    def connect(self, local: Endpoint, remote: Endpoint, options: NetOptions) -> list[list[str]]:
        new = [
            "drbdsetup",
            "new-peer",
            *self._peer,
            # The kernel requires a name. It has no meaning for the peer.
            f"--_name=node{self._peer[-1]}",
            f"--protocol={options.protocol}",
            "--after-sb-0pri=discard-zero-changes",
            "--after-sb-1pri=consensus",
        ]
        if options.dual_primary:
            new.append("--allow-two-primaries=yes")
        if options.secret:
            new += [f"--cram-hmac-alg={HMAC}", "--shared-secret", Secret(options.secret)]
        commands = [
            [*new, *custom_options(options.custom, "net-custom")],
            ["drbdsetup", "new-path", *self._peer, str(local), str(remote)],
        ]
        if options.sync is not None:
            rate = _rate_arguments(options.sync)
            commands.append(["drbdsetup", "peer-device-options", *self._peer, self._VOLUME, *rate])
        return [*commands, ["drbdsetup", "connect", *self._peer]]

    def disconnect(self, local: Endpoint, remote: Endpoint) -> list[str]:
        return ["drbdsetup", "disconnect", *self._peer]

    def forget_peer(self) -> list[str] | None:
        return ["drbdsetup", "del-peer", *self._peer]

    def single_primary(self, local: Endpoint, remote: Endpoint) -> list[str] | None:
        return ["drbdsetup", "net-options", *self._peer, "--allow-two-primaries=no"]

    def wait_for_peer(self, wait: bool) -> list[str] | None:
        # The policy belongs to the connection, and no module 9 was there to try what it does.
        return None

    def primary(self, *, force: bool) -> list[str]:
        return ["drbdsetup", "primary", self.resource, *(["--force"] if force else [])]

    def secondary(self) -> list[str]:
        return ["drbdsetup", "secondary", self.resource]

    def pause_sync(self) -> list[str]:
        return ["drbdsetup", "pause-sync", *self._peer, self._VOLUME]

    def resume_sync(self) -> list[str]:
        return ["drbdsetup", "resume-sync", *self._peer, self._VOLUME]

    def show(self, resource: str | None = None) -> list[str]:
        return ["drbdsetup", "show", resource or self.resource]


class Commands83(Commands):
    """Commands of DRBD 8.3.

    :param release: the third number of the version; early releases lack some options.
    """

    def __init__(self, minor: int, release: int = 9) -> None:
        super().__init__(minor)
        self._release = release

    def create_metadata(self, meta: str) -> list[str]:
        return ["drbdmeta", "--force", self.device, "v08", meta, "0", "create-md"]

    def make(self) -> list[list[str]]:
        # The other commands create the device with --create-device.
        return []

    def prepare_attach(self, meta: str) -> list[list[str]]:
        # The kernel reads the activity log itself.
        return []

    def dump_metadata(self, meta: str) -> list[str]:
        return ["drbdmeta", self.device, "v08", meta, "0", "dump-md"]

    def attach(
        self, data: str, meta: str, sectors: int | None, params: Mapping[str, Any]
    ) -> list[str]:
        off = check_barriers(params.get("disabled-barriers", NO_BARRIERS))
        options = [
            f"--no-{name}"
            for letter, name in (("b", "disk-barrier"), ("f", "disk-flushes"), ("d", "disk-drain"))
            if letter in off
        ]
        if params.get("disable-meta-flush"):
            options.append("--no-md-flushes")
        return [
            "drbdsetup",
            self.device,
            "disk",
            data,
            meta,
            "0",
            "-e",
            "detach",
            "--create-device",
            *(["-d", _size(sectors)] if sectors else []),
            *options,
            *custom_options(params.get("disk-custom", ""), "disk-custom"),
        ]

    def sync_options(self, params: Mapping[str, Any]) -> list[str] | None:
        if params.get("dynamic-resync") and self._release < 9:
            raise errors.BlockDeviceError(
                f"dynamic-resync needs DRBD 8.3.9, this is 8.3.{self._release}"
            )
        return [
            "drbdsetup",
            self.device,
            "syncer",
            *_sync_arguments(params, "-r"),
            "--create-device",
        ]

    def connect(self, local: Endpoint, remote: Endpoint, options: NetOptions) -> list[list[str]]:
        command = [
            "drbdsetup",
            self.device,
            "net",
            str(local),
            str(remote),
            options.protocol,
            "-A",
            "discard-zero-changes",
            "-B",
            "consensus",
            "--create-device",
        ]
        if options.dual_primary:
            command.append("-m")
        if options.secret:
            command += ["-a", HMAC, "-x", Secret(options.secret)]
        return [[*command, *custom_options(options.custom, "net-custom")]]

    def disconnect(self, local: Endpoint, remote: Endpoint) -> list[str]:
        return self._plain("disconnect")

    def single_primary(self, local: Endpoint, remote: Endpoint) -> list[str] | None:
        return None

    def wait_for_peer(self, wait: bool) -> list[str] | None:
        return None

    def primary(self, *, force: bool) -> list[str]:
        return [*self._plain("primary"), *(["-o"] if force else [])]

    def down(self, resource: str | None = None) -> list[str]:
        return self._plain("down")

    def resize(self, size_mib: int) -> list[str]:
        return [*self._plain("resize"), "-s", f"{size_mib}m"]

    def _plain(self, verb: str) -> list[str]:
        return ["drbdsetup", self.device, verb]


_DYNAMIC = ("c-plan-ahead", "c-fill-target", "c-delay-target", "c-max-rate", "c-min-rate")


def _rate_arguments(params: Mapping[str, Any]) -> list[str]:
    """Return the rate of synchronisation for versions whose controller of the rate is on by
    default.
    """
    # With the controller, the rate would be only its initial value.
    fixed = [] if params.get("dynamic-resync") else ["--c-plan-ahead", "0"]
    return [*fixed, *_sync_arguments(params, "--resync-rate")]


def _sync_arguments(params: Mapping[str, Any], rate_option: str) -> list[str]:
    if not params.get("dynamic-resync"):
        return [rate_option, str(params["resync-rate"])]
    return [argument for name in _DYNAMIC for argument in (f"--{name}", str(params[name]))]


def _size(sectors: int) -> str:
    mib, rest = divmod(sectors, SECTORS_PER_MIB)
    return f"{sectors}s" if rest else f"{mib}m"


def commands(version: tuple[int, int, int], minor: int, *, node_id: int | None = None) -> Commands:
    """Return the commands for a version of the kernel module.

    :param node_id: the place of this node in ``logical_id`` of the disk, 0 or 1; None when the disk
        is not known. Commands of DRBD 9 which change a connection need it.
    :raises BlockDeviceError: the version is not supported.
    """
    major, middle, release = version
    if major == 9:
        return Commands9(minor, node_id)
    if major != 8:
        raise errors.BlockDeviceError(
            f"version {major}.{middle}.{release} of the DRBD kernel module is not supported, only"
            " 8.3, 8.4 and 9"
        )
    return Commands83(minor, release) if middle <= 3 else Commands84(minor)


def meta_size_argv(meta: str) -> list[str]:
    """Print the size of the metadata device in sectors of 512 bytes."""
    return ["blockdev", "--getsize", meta]


def wipe_meta_argv(meta: str, size_mib: int) -> list[str]:
    """Overwrite the metadata device, which may have metadata of a former owner.

    :param size_mib: its size.
    """
    return [
        "dd",
        "if=/dev/zero",
        f"of={meta}",
        "bs=1048576",
        f"count={size_mib}",
        "oflag=direct",
    ]
