"""Whether this node can use the hypervisor parameters of a guest under Xen.

The master has checked their syntax (:mod:`ganeti.objects.hvparams`). Here the files, processors and
programs which they name must exist.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from ganeti import errors
from ganeti.constants import hv
from ganeti.hypervisor import host
from ganeti.hypervisor.xen import config, xl
from ganeti.objects import hvparams as hvparameters
from ganeti.objects.hypervisors import cpu_masks
from ganeti.objects.hypervisors.xen import GRUB, GUEST_PVH
from ganeti.utils import fs

_XL_CONF = "/etc/xen/xl.conf"
_AUTOBALLOON = re.compile(r"^\s*autoballoon\s*=\s*[\"']?(?P<value>[a-z0-9]+)", re.MULTILINE)
_HVM_PROGRAMS = ("device_model", "kernel_path")


def check(hypervisor: str, hvparams: Mapping[str, Any]) -> None:
    """Check that this node can use filled parameters.

    :raises HypervisorError: names the parameter which it cannot use.
    """
    require_files(hypervisor, hvparams)
    config.check_prefix(hvparams)
    config.bootloader_words(hvparams)
    config.pci_devices(hvparams)
    for parameter, value in hvparams.items():
        if isinstance(value, str):
            config.quoted(value, f"parameter {parameter}")
    if hvparams.get("vif_script"):
        config.part(str(hvparams["vif_script"]), "parameter vif_script")
    _check_processors(hvparams)
    host.require_own_address("vnc_bind_address", hvparams.get("vnc_bind_address"))
    if hypervisor == hv.XEN_HVM or hvparams.get("type") == GUEST_PVH:
        _require_hardware(hypervisor)


def require_files(hypervisor: str, hvparams: Mapping[str, Any]) -> None:
    """Check the files which a start of a guest needs.

    :raises HypervisorError: one is missing, or cannot be used; names its parameter.
    """
    vnc_password(hypervisor, hvparams)
    for parameter, path, _kind in hvparameters.paths_to_check(hypervisor, hvparams):
        if _is_unused(hypervisor, parameter, hvparams):
            continue
        if not os.path.isfile(path):
            hint = "; Debian's package grub-xen-host has it" if path in GRUB.values() else ""
            raise errors.HypervisorError(
                f"parameter {parameter}: {path} is not a file on this node{hint}"
            )
        if parameter == "cdrom_image_path":
            host.require_raw(parameter, path)


def vnc_password(hypervisor: str, hvparams: Mapping[str, Any]) -> str | None:
    """Return the password for the screen of a guest; None when it has no screen, or one without a
    password, because the file is empty.

    :raises HypervisorError: the file of the password cannot be read, or has an empty first line.
    """
    if hypervisor != hv.XEN_HVM or not hvparams.get("vnc_bind_address"):
        return None
    path = str(hvparams.get("vnc_password_file") or "")
    try:
        lines = fs.read_edited_file(path).splitlines()
    except OSError as err:
        raise errors.HypervisorError(
            f"parameter vnc_password_file: {path} cannot be read: {err.strerror}. Write a password"
            " into it, or set vnc_bind_address to an empty text for a guest without a screen."
        ) from err
    if not lines:
        return None
    if not lines[0]:
        raise errors.HypervisorError(
            f"parameter vnc_password_file: the first line of {path}, which is the password, is"
            " empty. Only an empty file stands for no password."
        )
    return lines[0]


def _is_unused(hypervisor: str, parameter: str, hvparams: Mapping[str, Any]) -> bool:
    """Return True if the guest needs no file at the path in a parameter."""
    if hypervisor == hv.XEN_HVM:
        if parameter == "vnc_password_file":
            return not hvparams.get("vnc_bind_address")
        return parameter in _HVM_PROGRAMS and not config.chosen_file(hvparams, parameter)
    if hvparams.get("use_bootloader"):
        return parameter in ("kernel_path", "initrd_path")
    return parameter == "bootloader_path"


def _check_processors(hvparams: Mapping[str, Any]) -> None:
    try:
        masks = cpu_masks.parse_cpu_masks(hvparams.get("cpu_mask") or cpu_masks.CPU_ALL)
    except errors.ParseError as err:
        raise errors.HypervisorError(f"parameter cpu_mask: {err}") from err
    named = [cpu for mask in masks for cpu in mask if cpu != cpu_masks.CPU_ALL_VALUE]
    if not named:
        return
    # The system of this node may have fewer processors than the machine.
    count = int(xl.info().get("nr_cpus") or 0)
    for cpu in named:
        if cpu >= count:
            raise errors.HypervisorError(
                f"parameter cpu_mask: processor {cpu} is not one of the {count} of this node"
            )


def autoballoon_problem(facts: Mapping[str, str]) -> str | None:
    """Return what is wrong with the memory of domain 0: None, or what to do.

    Xen must not take memory from domain 0 for guests: the memory which the cluster believes to be
    free would change with each start.

    :param facts: of ``xl info``.
    """
    try:
        text = fs.read_file(_XL_CONF)
    except OSError:
        text = ""
    match = _AUTOBALLOON.search(text)
    setting = match["value"] if match else "auto"
    if setting in ("off", "0"):
        return None
    if setting == "auto" and "dom0_mem=" in facts.get("xen_commandline", ""):
        # xl switches it off by itself then.
        return None
    return (
        "domain 0 gives memory away to guests (autoballoon). Give the hypervisor the option"
        f' dom0_mem, such as dom0_mem=1024M,max:1024M, or set autoballoon="off" in {_XL_CONF}.'
    )


def _require_hardware(hypervisor: str) -> None:
    """Check that Xen can use the virtualisation of the processor.

    :raises HypervisorError: it cannot.
    """
    found = xl.info().get("virt_caps")
    if found is not None and "hvm" not in found.split():
        raise errors.HypervisorError(
            f"hypervisor {hypervisor}: Xen cannot use the virtualisation of the processors of this"
            f" node (virt_caps: {found.strip() or 'none'}). Switch it on in the firmware, or use"
            " guests of type pv."
        )
