"""The configuration of a container, as LXC reads it; pure functions.

Each line is made of a known key and a value which was checked to be one line, so that no value can
become another key.

Source: lxc.container.conf(5).
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ganeti import errors
from ganeti.hypervisor.lxc.cgroups import Limit
from ganeti.hypervisor.lxc.disks import DataDisk
from ganeti.hypervisor.lxc.layout import Layout
from ganeti.objects.hypervisors import lxc
from ganeti.objects.hypervisors.cpu_masks import CPU_ALL


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSide:
    """What the node has prepared for a container."""

    mount_argv: Sequence[str]  # mounts the root file system
    limits: Sequence[Limit]
    devices_prefix: str
    interfaces: Sequence[str | None]  # the container's end of each NIC, while it is on the node
    console_log: str  # file to which the output of the console is appended
    disks: Sequence[DataDisk] = ()  # all but the first one
    seccomp_profile: str | None = None
    relative_cgroups: bool = False  # below those of the process which starts it
    cgroup_dir: str | None = None  # the control group below which its own are, instead


def cpus_of(hvparams: Mapping[str, Any]) -> str:
    """Return the processors of the parameter ``cpu_mask``; empty for all."""
    mask = hvparams.get("cpu_mask") or ""
    return "" if mask == CPU_ALL else mask.replace(" ", "")


def text_of(layout: Layout, hvparams: Mapping[str, Any], side: HostSide) -> str:
    """Return the text of the configuration.

    :param hvparams: filled.
    :raises HypervisorError: a value cannot be written in one line.
    """
    lines: list[tuple[str, str]] = [
        ("lxc.uts.name", layout.name),
        ("lxc.rootfs.path", f"dir:{layout.rootfs}"),
        # With version 1 a hook gets no arguments besides its own.
        ("lxc.hook.version", "1"),
        # After a change of its NICs it cannot restart itself, see lxc/hotplug.py.
        ("lxc.hook.pre-start", shlex.join(["test", "!", "-e", layout.changed_file])),
        ("lxc.hook.pre-mount", shlex.join(side.mount_argv)),
        *(
            ("lxc.hook.pre-mount", shlex.join(disk.mount_argv))
            for disk in side.disks
            if disk.mount_argv
        ),
        *(("lxc.mount.entry", disk.entry) for disk in side.disks),
        ("lxc.autodev", "1"),
        ("lxc.mount.auto", "proc:mixed sys:mixed cgroup:mixed"),
        ("lxc.tty.max", str(hvparams["num_ttys"])),
        ("lxc.pty.max", "1024"),
        ("lxc.console.logfile", side.console_log),
        ("lxc.cgroup.relative", "1" if side.relative_cgroups and not side.cgroup_dir else "0"),
    ]
    if side.cgroup_dir:
        lines.append(("lxc.cgroup.dir", side.cgroup_dir.strip("/")))
    if side.seccomp_profile is not None:
        lines.append(("lxc.seccomp.profile", side.seccomp_profile))
    lines += [
        ("lxc.cap.drop", name)
        for name in lxc.split_list(hvparams.get("drop_capabilities") or "")
        if name != "none"  # LXC refuses this word here
    ]
    lines.append((f"{side.devices_prefix}.deny", "a"))
    lines += [
        (f"{side.devices_prefix}.allow", device)
        for device in lxc.split_list(hvparams.get("devices") or "")
    ]
    lines += [(f"{side.devices_prefix}.allow", disk.device) for disk in side.disks if disk.device]
    lines += side.limits
    lines += _network(side.interfaces)
    lines = [(key, _kept(value)) for key, value in lines]
    # Last, so that they count more than the lines above; written as LXC is to read them.
    lines += lxc.parse_extra_config(hvparams.get("extra_config") or "")
    for key, value in lines:
        if not value.isprintable():
            raise errors.HypervisorError(
                f"the value of {key} has a line break or another control character: {value!r:.100}"
            )
    return "".join(f"{key} = {value}\n" for key, value in lines)


def _kept(value: str) -> str:
    """Return a value in quotes if LXC would take its own quotes, or spaces at its ends, away.

    LXC removes spaces around a value, and then one pair of equal quotes around it; so the words of
    a command whose first and last one are in quotes would become others.
    """
    quoted = len(value) > 1 and value[0] in "'\"" and value[-1] == value[0]
    return f'"{value}"' if quoted or value != value.strip() else value


def _network(interfaces: Sequence[str | None]) -> list[tuple[str, str]]:
    lines = []
    for index, interface in enumerate(interfaces):
        if interface is not None:
            prefix = f"lxc.net.{index}"
            lines += [
                (f"{prefix}.type", "phys"),
                (f"{prefix}.link", interface),
                (f"{prefix}.name", f"eth{index}"),
                (f"{prefix}.flags", "up"),
            ]
    # Without any NIC it would have the network of the node.
    return lines or [("lxc.net.0.type", "empty")]
