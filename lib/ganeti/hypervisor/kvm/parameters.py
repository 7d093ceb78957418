"""Whether this node can use the hypervisor parameters of a guest.

The master has checked their syntax (:mod:`ganeti.objects.hvparams`). Here the files, users,
processors and programs which they name must exist, and the installed QEMU must support them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ganeti import errors
from ganeti.constants import hv
from ganeti.hypervisor import host
from ganeti.hypervisor.kvm import buses, facts, firmware, pinning, privileges, probe
from ganeti.objects import hvparams as hvparameters
from ganeti.objects.hypervisors.kvm import KVM
from ganeti.objects.hypervisors.parameter import DIRECTORY
from ganeti.utils import fs, net, process

_TIMEOUT_S = 300.0
#: Parameters with files which QEMU opens as raw images.
_RAW_IMAGES = frozenset((*buses.CDROMS, "floppy_image_path", "firmware_path", "firmware_vars_path"))


def check(hvparams: Mapping[str, Any]) -> None:
    """Check that this node can use filled parameters.

    :raises HypervisorError: names the parameter which it cannot use.
    """
    require_files(hvparams)
    qemu = facts.of(hvparams["kvm_path"])
    for parameter in ("disk_type", "cdrom_disk_type"):
        if hvparams.get(parameter) in buses.UNSUPPORTED_DISK_TYPES:
            raise errors.HypervisorError(
                f"parameter {parameter}: the machines of guests have no {hvparams[parameter]} "
                "disks. The value exists for older configurations only."
            )
    cache = hvparams.get("disk_cache")
    if hvparams.get("disk_aio") == "native" and cache not in (None, "none"):
        raise errors.HypervisorError("parameter disk_aio: native needs disk_cache=none")
    pinning.masks_of(hvparams)
    spice_address(hvparams)
    for parameter in ("vnc_bind_address", "spice_bind"):
        host.require_own_address(parameter, hvparams.get(parameter))
    privileges.check(hvparams)
    if hvparams.get("firmware") == hv.KVM_FIRMWARE_UEFI:
        firmware.find_ovmf(hvparams)
    if hvparams.get("tpm_version"):
        firmware.find_swtpm()
    if hvparams.get("kvm_flag") == "enabled" and not os.access("/dev/kvm", os.R_OK | os.W_OK):
        raise errors.HypervisorError("parameter kvm_flag: enabled, but /dev/kvm cannot be used")
    _check_machine(hvparams.get("machine_version") or "", qemu)
    probe.check_hardware(hvparams, qemu)


def require_files(hvparams: Mapping[str, Any]) -> None:
    """Check the files which a start of a guest needs.

    :raises HypervisorError: one is missing, or cannot be used; names its parameter.
    """
    for parameter, path, kind in hvparameters.paths_to_check(KVM.name, hvparams):
        exists = os.path.isdir if kind == DIRECTORY else os.path.isfile
        if not exists(path):
            raise errors.HypervisorError(
                f"parameter {parameter}: {path} is not a {kind} on this node"
            )
        if parameter in _RAW_IMAGES:
            host.require_raw(parameter, path)
    passwords(hvparams)


def passwords(hvparams: Mapping[str, Any]) -> dict[str, str]:
    """Return the passwords for the screen of a guest: protocol of QEMU -> password.

    :raises HypervisorError: a file with a password cannot be read, or is empty.
    """
    found = {}
    for protocol, enabled, parameter in (
        ("vnc", hvparams.get("vnc_bind_address"), "vnc_password_file"),
        ("spice", hvparams.get("spice_bind"), "spice_password_file"),
    ):
        path = hvparams.get(parameter)
        if not enabled or not path:
            continue
        try:
            lines = fs.read_edited_file(path).splitlines()
        except OSError as err:
            raise errors.HypervisorError(
                f"parameter {parameter}: {path} cannot be read: {err.strerror}"
            ) from err
        if not lines:
            raise errors.HypervisorError(
                f"parameter {parameter}: {path} is empty; its first line is the password"
            )
        found[protocol] = lines[0]
    return found


def _check_machine(machine: str, qemu: facts.QemuFacts) -> None:
    if not machine:
        return
    machines = process.run([qemu.program, "-machine", "?"], timeout_s=_TIMEOUT_S)
    known = {line.split()[0] for line in machines.stdout.splitlines()[1:] if line.strip()}
    if machine.split(",")[0] not in known:
        raise errors.HypervisorError(
            f"parameter machine_version: {qemu.program} knows no machine {machine}"
        )


def spice_address(hvparams: Mapping[str, Any]) -> str | None:
    """Return the address of the network interface which ``spice_bind`` names.

    :returns: None when ``spice_bind`` is empty or an address, or when the guest has VNC.
    :raises HypervisorError: there is no such interface, or it has no such address.
    """
    name = hvparams.get("spice_bind")
    if not name or hvparams.get("vnc_bind_address") or net.is_ip(name):
        return None
    return host.interface_address(name, int(hvparams.get("spice_ip_version") or 0))
