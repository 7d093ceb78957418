"""What this node has for guests: its capacity, and an installed QEMU that works."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from ganeti import errors
from ganeti.constants import hv
from ganeti.hypervisor import host
from ganeti.hypervisor.kvm import facts


def info(hvparams: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the capacity of this node, and ``hv_version`` if ``kvm_path`` is given and works."""
    found = host.read_linux_node_info()
    found[hv.FACT_MIGRATION_PROTOCOL] = hv.KVM_MIGRATION_PROTOCOL
    found[hv.FACT_MIGRATION_ANY_PORT] = True
    if hvparams and hvparams.get("kvm_path"):
        try:
            found["hv_version"] = list(facts.of(hvparams["kvm_path"]).version)
        except errors.HypervisorError as err:
            logging.warning("no version of QEMU: %s", err)
    return found


def missing_program(hvparams: Mapping[str, Any]) -> str | None:
    """Return QEMU, if ``kvm_path`` is not a program."""
    kvm_path = hvparams["kvm_path"]
    try:
        facts.resolve_program(kvm_path)
    except errors.HypervisorError:
        return f"QEMU at {kvm_path} (kvm_path). Install the package qemu-system-x86 on every node."
    return None


def problem(hvparams: Mapping[str, Any] | None) -> str | None:
    """Return what keeps QEMU from working here; None when it is installed and answers."""
    kvm_path = (hvparams or {}).get("kvm_path")
    if not kvm_path:
        return None
    try:
        facts.of(kvm_path)
    except errors.HypervisorError as err:
        return str(err)
    return None
