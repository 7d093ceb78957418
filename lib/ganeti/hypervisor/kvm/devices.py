"""Options of disks and NICs, for QEMU's command line and for QMP; pure functions.

Source: qemu(1), ``-blockdev``, ``-netdev`` and ``-device``; QEMU's QMP reference.
"""

from __future__ import annotations

import urllib.parse
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from ganeti import errors
from ganeti.constants import disk as disk_constants
from ganeti.hypervisor.kvm import user_network
from ganeti.hypervisor.kvm.runtime import RuntimeDisk
from ganeti.hypervisor.net import communication
from ganeti.objects import disk_templates
from ganeti.wire import json

GLUSTER_PORT = 24007
# hvparam disk_cache -> (write-cache of the device, direct, no-flush).
_CACHE_MODES = {
    "default": ("on", "off", "off"),
    "writeback": ("on", "off", "off"),
    "none": ("on", "on", "off"),
    "writethrough": ("off", "off", "off"),
}


def escape(value: str) -> str:
    """Escape a value for a list with commas: QEMU reads a doubled comma as one."""
    return value.replace(",", ",,")


def join(options: Iterable[tuple[str, Any]]) -> str:
    """Write options as ``key=value,...``, with the commas of values doubled."""
    return ",".join(f"{key}={escape(str(value))}" for key, value in options)


def _address(info: Mapping[str, Any]) -> list[tuple[str, Any]]:
    keys = ("id", "bus", "addr", "channel", "scsi-id", "lun")
    return [(key, info[key]) for key in keys if key in info]


def cache_mode(
    hvparams: Mapping[str, Any], dev_type: str, *, direct_works: bool = True
) -> tuple[str, str, str]:
    """Return the options write-cache, direct and no-flush of a disk.

    An externally mirrored disk has no cache on the host, even if the parameter ``disk_cache`` asks
    for one: after a migration another node opens it, and must find all data.

    :param direct_works: False when the file system refuses direct access; the cache is harmless
        then only where all nodes share one kernel.
    :raises HypervisorError: the value of ``disk_cache`` is not known.
    """
    mode = hvparams["disk_cache"]
    if dev_type in disk_templates.EXT_MIRRORED - {disk_constants.RBD} and direct_works:
        mode = "none"
    if mode not in _CACHE_MODES:
        raise errors.HypervisorError(f"disk_cache '{mode}' is not known")
    return _CACHE_MODES[mode]


class DiskOptions(NamedTuple):
    """Options of the two objects which are a disk."""

    device: list[tuple[str, Any]]  # the device in the guest
    node: list[tuple[str, Any]]  # the block node, which accesses the data


def disk_options(
    disk: RuntimeDisk,
    hvparams: Mapping[str, Any],
    *,
    is_block: bool,
    bootable: bool,
    direct_works: bool = True,
) -> DiskOptions:
    """Return the options of the device and of the block node of one disk.

    :param is_block: the disk is a block device of the host, and not a file.
    :param bootable: the guest boots from it.
    :param direct_works: see :func:`cache_mode`.
    """
    info = disk.hvinfo
    write_cache, direct, no_flush = cache_mode(
        hvparams, disk.disk.get("dev_type", ""), direct_works=direct_works
    )
    device = [*_address(info), ("drive", info["id"])]
    # scsi-block and scsi-generic pass commands through and have no cache of their own.
    if info["driver"] not in ("scsi-block", "scsi-generic"):
        device.append(("write-cache", write_cache))
    if bootable:
        device.append(("bootindex", 1))
    node = [
        ("driver", "raw"),
        ("node-name", info["id"]),
        ("discard", hvparams.get("disk_discard") or "ignore"),
        ("cache.direct", direct),
        ("cache.no-flush", no_flush),
    ]
    node += file_options(disk, hvparams, is_block=is_block)
    if disk.disk.get("mode") == disk_constants.RDONLY:
        node.append(("read-only", "on"))
    else:
        node.append(("auto-read-only", "off"))
    return DiskOptions(device, node)


def disk_argv(
    disk: RuntimeDisk,
    hvparams: Mapping[str, Any],
    *,
    is_block: bool,
    bootable: bool,
    direct_works: bool = True,
) -> list[str]:
    """Return the command line options of one disk; for the parameters see :func:`disk_options`."""
    options = disk_options(
        disk, hvparams, is_block=is_block, bootable=bootable, direct_works=direct_works
    )
    return [
        "-device",
        f"{disk.hvinfo['driver']},{join(options.device)}",
        "-blockdev",
        join(options.node),
    ]


def qmp_arguments(options: Iterable[tuple[str, Any]], *, flat: bool = False) -> dict[str, Any]:
    """Turn options of a command line into arguments of a QMP command.

    :param flat: for ``device_add``: only ``mq`` becomes a boolean. Else, as ``blockdev-add`` needs
        it, dots in keys separate levels, a level of numbers from 0 becomes a list, and each ``on``
        and ``off`` becomes a boolean.
    """
    result: dict[str, Any] = {}
    for key, value in options:
        switch = value in ("on", "off") and (not flat or key == "mq")
        target = result
        *levels, last = [key] if flat else key.split(".")
        for level in levels:
            target = target.setdefault(level, {})
        target[last] = value == "on" if switch else value
    return {key: _with_lists(value) for key, value in result.items()}


def _with_lists(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    inner = {key: _with_lists(one) for key, one in value.items()}
    numbers = [str(number) for number in range(len(inner))]
    return [inner[number] for number in numbers] if set(numbers) == set(inner) else inner


def file_options(
    disk: RuntimeDisk, hvparams: Mapping[str, Any], *, is_block: bool
) -> list[tuple[str, Any]]:
    """Return the options ``file.*`` of a block node: the place of the data."""
    if disk.uri is not None:
        return [(f"file.{key}", value) for key, value in uri_options(disk.uri)]
    return [
        ("file.driver", "host_device" if is_block else "file"),
        ("file.filename", disk.path),
        ("file.aio", hvparams.get("disk_aio") or "threads"),
    ]


def uri_options(uri: str) -> list[tuple[str, Any]]:
    """Return the options of the QEMU driver which opens a disk by URI.

    :param uri: ``rbd:pool/volume[:key=value...]``, ``gluster://server[:port]/volume/path``, or
        ``json:{"driver": ...}`` with the options of any driver.
    :raises HypervisorError: the URI has another form.
    """
    scheme, _, rest = uri.partition(":")
    if scheme == "rbd":
        image, *settings = rest.split(":")
        pool, _, volume = image.partition("/")
        options: list[tuple[str, Any]] = [("driver", "rbd"), ("pool", pool), ("image", volume)]
        names = {"id": "user", "conf": "conf"}
        for setting in settings:
            key, _, value = setting.partition("=")
            if key not in names:
                raise errors.HypervisorError(f"disk {uri}: setting {key} is not known")
            options.append((names[key], value))
        if pool and volume:
            return options
    elif scheme == "json":
        try:
            return list(_flat(json.loads(rest)))
        except (errors.ParseError, TypeError) as err:
            raise errors.HypervisorError(f"disk {uri}: {err}") from err
    elif scheme.partition("+")[0] == "gluster":
        parts = urllib.parse.urlsplit(uri)
        volume, _, path = parts.path.lstrip("/").partition("/")
        if parts.hostname and volume and path:
            return [
                ("driver", "gluster"),
                ("volume", volume),
                ("path", path),
                ("server.0.type", "inet"),
                ("server.0.host", parts.hostname),
                ("server.0.port", str(parts.port or GLUSTER_PORT)),
            ]
    raise errors.HypervisorError(f"disk access through {uri} is not supported by this hypervisor")


def _flat(options: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Flatten nested options: keys with dots between the levels, as a command line has them."""
    pairs = (
        options.items()
        if isinstance(options, dict)
        else ((str(number), value) for number, value in enumerate(options))
    )
    for key, value in pairs:
        if isinstance(value, (dict, list)):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", ("on" if value else "off") if isinstance(value, bool) else value


def nic_device(
    nic: Mapping[str, Any], hvparams: Mapping[str, Any], *, tap: bool
) -> list[tuple[str, Any]]:
    """Return the options of the device of one NIC.

    :param tap: the NIC has an interface on the host.
    """
    info = nic["hvinfo"]
    device = [*_address(info), ("netdev", info["id"]), ("mac", nic["mac"])]
    queues = nic_queues(hvparams)
    if tap and queues > 1:
        # Two vectors for each pair of queues, one for control and one for configuration changes.
        device += [("mq", "on"), ("vectors", 2 * queues + 2)]
    return device


def nic_queues(hvparams: Mapping[str, Any]) -> int:
    """Return the number of pairs of queues between guest and host.

    Only paravirtual NICs have several.
    """
    paravirtual = hvparams["nic_type"] == "paravirtual"
    return int(hvparams.get("virtio_net_queues") or 1) if paravirtual else 1


def wants_vhost(hvparams: Mapping[str, Any]) -> bool:
    """Return True if the parameters let the kernel move the packets (``vhost_net``)."""
    return hvparams["nic_type"] == "paravirtual" and bool(hvparams.get("vhost_net"))


def nic_argv(
    nic: Mapping[str, Any],
    hvparams: Mapping[str, Any],
    tap: str | None,
    *,
    bootable: bool,
    vhost_works: bool = True,
    forward: str = "",
) -> list[str]:
    """Return the command line options of one NIC.

    :param tap: its interface on the host; None for user networking.
    :param bootable: the guest boots from it.
    :param vhost_works: the kernel of this node can move packets itself.
    :param forward: see :func:`ganeti.hypervisor.kvm.user_network.forwarder`.
    """
    info = nic["hvinfo"]
    device = nic_device(nic, hvparams, tap=tap is not None)
    if tap is None:
        backend = [("type", "user"), ("id", info["id"])]
        if forward and communication.is_communication(nic):
            backend += user_network.netdev_options(nic, forward)
    else:
        backend = [
            ("type", "tap"),
            ("id", info["id"]),
            ("ifname", tap),
            ("script", "no"),
            ("downscript", "no"),
        ]
        queues = nic_queues(hvparams)
        if queues > 1:
            backend.append(("queues", queues))
        if wants_vhost(hvparams) and vhost_works:
            backend.append(("vhost", "on"))
    if bootable:
        device.append(("bootindex", 1))
    return ["-netdev", join(backend), "-device", f"{info['driver']},{join(device)}"]
