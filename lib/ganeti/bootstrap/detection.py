"""What ``gnt-cluster init`` chooses by itself, from what this machine really has.

An option that is given is never changed. Without it, the hypervisor is one whose program is
installed; disks are on a volume group if there is one, otherwise in files; the network interface of
the master is the one with this machine's address; instances use a bridge that exists. Guests boot
from their disks where the kernel which they would boot otherwise is not on this machine. When there
is nothing to choose, that is a finding, and nothing is changed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ganeti import errors, hypervisor
from ganeti.bootstrap.init_params import InitParams
from ganeti.bootstrap.requirements import SMALLEST_VG_MIB, Findings, is_installed
from ganeti.constants import disk, net
from ganeti.hypervisor.net.addresses import parse_addresses
from ganeti.objects import hvparams, hypervisors
from ganeti.platform import machine, paths
from ganeti.utils import process

_TIMEOUT_S = 60.0
_NET_DIR = "/sys/class/net"


class Choice(NamedTuple):
    """The completed parameters, and what was chosen for the user.

    :ivar words: a text for each choice, such as ``the hypervisor kvm``.
    :ivar makes_file_storage: the default directory of file storage is made if it is missing.
    """

    params: InitParams
    words: list[str]
    makes_file_storage: bool = False


def complete(params: InitParams, address: str, findings: Findings) -> Choice:
    """Choose what was not given; what cannot be chosen is added to the findings.

    :param address: the primary address of this machine.
    """
    found: dict[str, Any] = {}
    words: list[str] = []
    makes_file_storage = False
    if params.enabled_hypervisors is None:
        name = _hypervisor(params.hvparams)
        if name is None:
            findings.lacks(
                "there is no hypervisor. Install the package qemu-system-x86, or choose one with"
                f" --enabled-hypervisors: {', '.join(hypervisor.known())}."
            )
            name = hypervisor.known()[0]  # for the other checks
        found["enabled_hypervisors"] = (name,)
        words.append(f"the hypervisor {name}")
    disk_boot = _disk_boot(
        found.get("enabled_hypervisors") or params.enabled_hypervisors or (), params.hvparams
    )
    for name, own in disk_boot.items():
        given = found.setdefault("hvparams", dict(params.hvparams))
        given[name] = {**given.get(name, {}), **own}
        pairs = ",".join(f"{key}={value}" for key, value in own.items())
        words.append(f"guests of {name} boot what is on their disks ({name}:{pairs})")
    if params.enabled_disk_templates is None:
        templates, group = _storage(params.vg_name)
        found["enabled_disk_templates"] = templates
        if group is None:
            makes_file_storage = params.file_storage_dir is None
            words.append("disks in files, because there is no volume group with enough space")
        else:
            found["vg_name"] = group
            words.append(f"the disk templates {' and '.join(templates)}, in volume group {group}")
    if params.master_netdev is None and machine.current().has_own_system:
        device = _interface_of(address)
        if device is not None:
            found["master_netdev"] = device
            words.append(f"the network interface {device} for the address of the cluster")
    if machine.current().has_own_system:
        link = _bridge(params.nicparams, found.get("master_netdev") or params.master_netdev)
        if link is not None:
            found["nicparams"] = {**params.nicparams, "link": link}
            words.append(f"the bridge {link} for instances")
    return Choice(dataclasses.replace(params, **found), words, makes_file_storage)


def _hypervisor(given: Mapping[str, Mapping[str, Any]]) -> str | None:
    """Return a hypervisor which runs guests on this machine; None when there is none."""
    for name in hypervisor.known():
        own = {**hvparams.defaults(name), **given.get(name, {})}
        descriptor = hypervisors.of(name)
        if not (descriptor.runs_guests and descriptor.may_be_chosen):
            continue
        if hypervisor.of(name).missing_program(own) is None:
            return name
    return None


def _disk_boot(
    enabled: Iterable[str], given: Mapping[str, Mapping[str, Any]]
) -> dict[str, dict[str, Any]]:
    """Return the parameters with which guests boot from their disks: hypervisor -> parameters.

    Only for hypervisors whose usual kernel is not on this machine, and where nobody has chosen one.
    """
    found = {}
    for name in enabled:
        if name not in hypervisors.ALL:
            continue  # refused with the configuration
        usual, own = hvparams.defaults(name), given.get(name, {})
        if not usual.get("kernel_path") or _has_file(usual["kernel_path"]):
            continue
        needed = hypervisors.of(name).boot_from_disk({**usual, **own}, own)
        kernel = needed.get("kernel_path")
        if kernel == "" or kernel and _has_file(kernel):
            found[name] = needed
    return found


def _has_file(path: str) -> bool:
    return os.path.exists(path)


def _storage(wanted: str | None) -> tuple[tuple[str, ...], str | None]:
    """Return the disk templates, and the volume group if they use one.

    :param wanted: the volume group which was given; whether it exists is checked later.
    """
    group = wanted or _volume_group()
    if group is None:
        return (disk.FILE, disk.DISKLESS), None
    if not is_installed("drbdsetup"):
        return (disk.PLAIN, disk.DISKLESS), group
    return (disk.DRBD8, disk.PLAIN, disk.DISKLESS), group


def _volume_group() -> str | None:
    """Return the usual volume group or, if there is only one, this one; it must be large enough."""
    if not is_installed("vgs"):
        return None
    argv = ["vgs", "--noheadings", "--nosuffix", "--units", "m", "-o", "vg_name,vg_size"]
    try:
        sizes = parse_groups(process.run(argv, timeout_s=_TIMEOUT_S, log=False).stdout)
    except errors.CommandError:
        return None
    large = [name for name, size_mib in sizes.items() if size_mib >= SMALLEST_VG_MIB]
    if disk.DEFAULT_VG in large:
        return disk.DEFAULT_VG
    return large[0] if len(large) == 1 else None


def parse_groups(text: str) -> dict[str, float]:
    """Read the output of ``vgs -o vg_name,vg_size``: name -> MiB; other lines are ignored."""
    sizes = {}
    for words in map(str.split, text.splitlines()):
        if len(words) == 2:
            with contextlib.suppress(ValueError):
                sizes[words[0]] = float(words[1])
    return sizes


def _interface_of(address: str) -> str | None:
    """Return the network interface which has an address; None when none has."""
    if not is_installed("ip"):
        return None
    try:
        done = process.run(
            ["ip", "-json", "address", "show"], timeout_s=_TIMEOUT_S, check=False, log=False
        )
        found = [] if done.failed else parse_addresses(done.stdout)
    except (errors.CommandError, errors.ParseError):
        return None
    return next((one.interface for one in found if one.address == address), None)


def _bridge(given: Mapping[str, Any], netdev: str | None) -> str | None:
    """Return the bridge for instances; None when it was given, or when there is nothing to choose.

    :param netdev: the network interface of the master, which often is the bridge.
    """
    mode = given.get("mode", net.NIC_DEFAULTS["mode"])
    if given.get("link") is not None or mode != net.NIC_MODE_BRIDGED:
        return None
    bridges = [name for name in sorted(_interfaces()) if os.path.isdir(f"{_NET_DIR}/{name}/bridge")]
    if net.NIC_DEFAULTS["link"] in bridges:
        return None
    if netdev in bridges:
        return netdev
    return bridges[0] if len(bridges) == 1 else None


def _interfaces() -> list[str]:
    try:
        return os.listdir(_NET_DIR)
    except OSError:
        return []


def make_file_storage(here: paths.Paths) -> list[str]:
    """Make the default directory of file storage, and the file which allows it; keeps what exists.

    :returns: paths of what was made, for the undo; the directory first.
    :raises OSError: a file or directory cannot be made.
    """
    made = []
    directory = here.to_local(paths.DEFAULT_FILE_STORAGE_DIR)
    if not os.path.isdir(directory):
        os.makedirs(directory, 0o750)
        made.append(directory)
    if not os.path.exists(here.file_storage_paths_file):
        os.makedirs(here.conf_dir, 0o755, exist_ok=True)
        with open(here.file_storage_paths_file, "x", encoding="ascii") as stream:
            stream.write(
                "# Directories which may contain disks of instances, one per line.\n"
                f"{paths.DEFAULT_FILE_STORAGE_DIR}\n"
            )
        made.append(here.file_storage_paths_file)
    return made


def remove_file_storage(made: list[str]) -> None:
    """Undo :func:`make_file_storage`; a directory which has content meanwhile stays."""
    for path in reversed(made):
        try:
            os.rmdir(path) if os.path.isdir(path) else os.unlink(path)
        except OSError:
            continue
