"""Commands of DRBD, as lists of words: one class for each syntax.

The syntax follows the version of the kernel module, not that of drbd-utils: utilities of version 9
in front of a module 8.4 take the same words. Sizes are in MiB, rates in KiB/s.

Source: drbdsetup(8) of 8.3 and 8.4, drbdmeta(8).
"""

from __future__ import annotations

import dataclasses
import shlex
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from ganeti import errors
from ganeti.utils.process import Secret

#: Digest for the handshake of two peers.
HMAC = "md5"
META_SIZE_MIN_MIB = 128
META_SIZE_MAX_MIB = 1024

NO_BARRIERS = "n"
#: What may be switched off besides nothing: barriers, drain, flushes, in these combinations.
VALID_BARRIERS = frozenset(
    frozenset(words) for words in ("n", "b", "bf", "bfd", "bd", "f", "fd", "d")
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
    """How two peers talk."""

    protocol: str
    secret: str
    dual_primary: bool = False
    custom: str = ""


def words(custom: str, what: str) -> list[str]:
    """Words which an administrator wants added to a command.

    :raises BlockDeviceError: the quotes do not match.
    """
    try:
        return shlex.split(custom)
    except ValueError as err:
        raise errors.BlockDeviceError(
            f"{what} parameter {custom!r} is not readable: {err}"
        ) from err


def check_barriers(value: Any) -> frozenset[str]:
    """Which guarantees the administrator switched off, as letters of ``bfd``.

    :raises BlockDeviceError: not such a combination.
    """
    letters = frozenset(str(value))
    if letters not in VALID_BARRIERS or len(str(value)) != len(letters):
        raise errors.BlockDeviceError(
            f"{value!r} says nothing about barriers. It is {NO_BARRIERS!r}, or some of 'b', 'f',"
            " 'd'"
        )
    return letters - {NO_BARRIERS}


class Commands(ABC):
    """Commands in the syntax of one version."""

    def __init__(self, minor: int) -> None:
        self.minor = minor

    @property
    def device(self) -> str:
        """The device file."""
        return f"/dev/drbd{self.minor}"

    @property
    def resource(self) -> str:
        """The resource which the device makes up on its own."""
        return f"resource{self.minor}"

    @abstractmethod
    def create_metadata(self, meta: str) -> list[str]:
        """Write fresh records to the metadata device: nothing is in sync with anything."""

    @abstractmethod
    def make(self) -> list[list[str]]:
        """Make the device, with neither storage nor peer; one that is there stays as it is."""

    @abstractmethod
    def attach(
        self, data: str, meta: str, size_mib: int | None, params: Mapping[str, Any]
    ) -> list[list[str]]:
        """Give it its local storage."""

    @abstractmethod
    def sync_options(self, params: Mapping[str, Any]) -> list[str]:
        """Say how fast it may be brought up to date."""

    @abstractmethod
    def connect(self, local: Endpoint, remote: Endpoint, options: NetOptions) -> list[list[str]]:
        """Let it look for its peer."""

    @abstractmethod
    def disconnect(self, local: Endpoint, remote: Endpoint) -> list[str]:
        """Cut it from its peer."""

    @abstractmethod
    def primary(self, *, force: bool) -> list[str]:
        """Make it writable; ``force`` declares what is there now to be the valid content."""

    @abstractmethod
    def down(self, resource: str | None = None) -> list[str]:
        """Take it down altogether."""

    @abstractmethod
    def resize(self, size_mib: int) -> list[str]:
        """Use more of the storage below."""

    @abstractmethod
    def _plain(self, verb: str) -> list[str]:
        """A command with no arguments but the device."""

    def secondary(self) -> list[str]:
        """Make it closed for everybody but the peer."""
        return self._plain("secondary")

    def detach(self) -> list[str]:
        """Take its local storage away; it goes on working over the network."""
        return self._plain("detach")

    def pause_sync(self) -> list[str]:
        """Let a synchronisation rest."""
        return self._plain("pause-sync")

    def resume_sync(self) -> list[str]:
        """Let it go on."""
        return self._plain("resume-sync")

    def show(self) -> list[str]:
        """Print its configuration."""
        return self._plain("show")


class Commands84(Commands):
    """DRBD 8.4."""

    def create_metadata(self, meta: str) -> list[str]:
        return ["drbdmeta", "--force", self.device, "v08", meta, "flex-external", "create-md"]

    def make(self) -> list[list[str]]:
        # Both may be there already, that is no error.
        return [
            ["drbdsetup", "new-resource", self.resource],
            ["drbdsetup", "new-minor", self.resource, str(self.minor), "0"],
        ]

    def attach(
        self, data: str, meta: str, size_mib: int | None, params: Mapping[str, Any]
    ) -> list[list[str]]:
        off = check_barriers(params.get("disabled-barriers", NO_BARRIERS))
        options = [
            f"--{name}=no"
            for letter, name in (("b", "disk-barrier"), ("f", "disk-flushes"), ("d", "disk-drain"))
            if letter in off
        ]
        if params.get("disable-meta-flush"):
            options.append("--md-flushes=no")
        return [
            # What was being written when the node died must be looked at first.
            ["drbdmeta", self.device, "v08", meta, "flex-external", "apply-al"],
            [
                "drbdsetup",
                "attach",
                str(self.minor),
                data,
                meta,
                "flexible",
                "--on-io-error=detach",
                *(["--size", f"{size_mib}m"] if size_mib else []),
                *options,
                *words(params.get("disk-custom", ""), "disk-custom"),
            ],
        ]

    def sync_options(self, params: Mapping[str, Any]) -> list[str]:
        # 8.4 has its controller switched on unless it is told not to plan: then the rate would be
        # no more than the first guess of it.
        fixed = [] if params.get("dynamic-resync") else ["--c-plan-ahead", "0"]
        return [
            "drbdsetup",
            "disk-options",
            str(self.minor),
            *fixed,
            *_sync_words(params, "--resync-rate"),
        ]

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
        return [[*command, *words(options.custom, "net-custom")]]

    def disconnect(self, local: Endpoint, remote: Endpoint) -> list[str]:
        return ["drbdsetup", "disconnect", str(local), str(remote)]

    def primary(self, *, force: bool) -> list[str]:
        return ["drbdsetup", "primary", str(self.minor), *(["--force"] if force else [])]

    def down(self, resource: str | None = None) -> list[str]:
        return ["drbdsetup", "down", resource or self.resource]

    def resize(self, size_mib: int) -> list[str]:
        return ["drbdsetup", "resize", str(self.minor), "--size", f"{size_mib}m"]

    def _plain(self, verb: str) -> list[str]:
        return ["drbdsetup", verb, str(self.minor)]


class Commands83(Commands):
    """DRBD 8.3.

    :param release: the third number of the version; some options came late.
    """

    def __init__(self, minor: int, release: int = 9) -> None:
        super().__init__(minor)
        self._release = release

    def create_metadata(self, meta: str) -> list[str]:
        return ["drbdmeta", "--force", self.device, "v08", meta, "0", "create-md"]

    def make(self) -> list[list[str]]:
        # The other commands do it, where --create-device says so.
        return []

    def attach(
        self, data: str, meta: str, size_mib: int | None, params: Mapping[str, Any]
    ) -> list[list[str]]:
        off = check_barriers(params.get("disabled-barriers", NO_BARRIERS))
        options = [
            f"--no-{name}"
            for letter, name in (("b", "disk-barrier"), ("f", "disk-flushes"), ("d", "disk-drain"))
            if letter in off
        ]
        if params.get("disable-meta-flush"):
            options.append("--no-md-flushes")
        return [
            [
                "drbdsetup",
                self.device,
                "disk",
                data,
                meta,
                "0",
                "-e",
                "detach",
                "--create-device",
                *(["-d", f"{size_mib}m"] if size_mib else []),
                *options,
                *words(params.get("disk-custom", ""), "disk-custom"),
            ]
        ]

    def sync_options(self, params: Mapping[str, Any]) -> list[str]:
        if params.get("dynamic-resync") and self._release < 9:
            raise errors.BlockDeviceError(
                f"dynamic-resync needs DRBD 8.3.9, this is 8.3.{self._release}"
            )
        return ["drbdsetup", self.device, "syncer", *_sync_words(params, "-r"), "--create-device"]

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
        return [[*command, *words(options.custom, "net-custom")]]

    def disconnect(self, local: Endpoint, remote: Endpoint) -> list[str]:
        return self._plain("disconnect")

    def primary(self, *, force: bool) -> list[str]:
        return [*self._plain("primary"), *(["-o"] if force else [])]

    def down(self, resource: str | None = None) -> list[str]:
        return self._plain("down")

    def resize(self, size_mib: int) -> list[str]:
        return [*self._plain("resize"), "-s", f"{size_mib}m"]

    def _plain(self, verb: str) -> list[str]:
        return ["drbdsetup", self.device, verb]


_DYNAMIC = ("c-plan-ahead", "c-fill-target", "c-delay-target", "c-max-rate", "c-min-rate")


def _sync_words(params: Mapping[str, Any], rate_option: str) -> list[str]:
    if not params.get("dynamic-resync"):
        return [rate_option, str(params["resync-rate"])]
    return [word for name in _DYNAMIC for word in (f"--{name}", str(params[name]))]


def commands(version: tuple[int, int, int], minor: int) -> Commands:
    """The commands for a version of the kernel module.

    :raises BlockDeviceError: a version which is not driven.
    """
    major, middle, release = version
    if major != 8:
        raise errors.BlockDeviceError(
            f"version {major}.{middle}.{release} of the DRBD kernel module is not supported, only"
            " 8.3 and 8.4"
        )
    return Commands83(minor, release) if middle <= 3 else Commands84(minor)


def meta_size_argv(meta: str) -> list[str]:
    """Print the size of the metadata device in sectors."""
    return ["blockdev", "--getsize", meta]


def wipe_meta_argv(meta: str) -> list[str]:
    """Overwrite the metadata device, so that nothing of a former owner is found there."""
    return [
        "dd",
        "if=/dev/zero",
        f"of={meta}",
        "bs=1048576",
        f"count={META_SIZE_MIN_MIB}",
        "oflag=direct",
    ]
