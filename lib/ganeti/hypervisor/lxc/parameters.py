"""Whether this node can run containers, and use the hypervisor parameters of one.

The master has checked the syntax of parameters (:mod:`ganeti.objects.hypervisors.lxc`).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from typing import Any

from ganeti import errors
from ganeti.hypervisor import rootfs
from ganeti.hypervisor.lxc import config, parse
from ganeti.hypervisor.lxc.cgroups import Cgroups
from ganeti.objects.hypervisors import cpu_masks, lxc
from ganeti.utils import process

_TIMEOUT_S = 60.0
_START_PROGRAM = "lxc-start"
_PROGRAMS = (_START_PROGRAM, "lxc-info", "lxc-stop", "lxc-console", *rootfs.PROGRAMS)
#: Older versions do not know the keys of control groups of version 2.
_OLDEST = (4, 0, 0)


def missing_program() -> str | None:
    """Return the first program which this machine lacks, or None."""
    for program in _PROGRAMS:
        if shutil.which(program, path=process.DEFAULT_PATH) is None:
            return program
    return None


def version() -> tuple[int, int, int]:
    """Return the version of LXC.

    :raises HypervisorError: it is not installed, or gives no version.
    """
    try:
        done = process.run([_START_PROGRAM, "--version"], timeout_s=_TIMEOUT_S)
        return parse.parse_version(done.stdout)
    except (errors.CommandError, errors.ParseError) as err:
        raise errors.HypervisorError(f"the version of LXC is not known: {err}") from err


def problem() -> str | None:
    """Return why this node cannot run containers, or None."""
    if os.geteuid() != 0:
        return "containers need root, and the node daemon runs as an ordinary user"
    lacking = missing_program()
    if lacking is not None:
        return f"the program {lacking} is missing (packages lxc, mount, util-linux)"
    try:
        found = version()
        if found < _OLDEST:
            return (
                f"LXC has version {'.'.join(map(str, found))}, at least"
                f" {'.'.join(map(str, _OLDEST))} is needed"
            )
        return Cgroups().problem()
    except errors.HypervisorError as err:
        return str(err)


def check(hvparams: Mapping[str, Any]) -> None:
    """Check that this node can use filled parameters.

    :raises HypervisorError: names the parameter which it cannot use, or what the node lacks.
    """
    lacking = problem()
    if lacking is not None:
        raise errors.HypervisorError(lacking)
    groups = Cgroups()
    for controller in lxc.split_list(hvparams.get("extra_cgroups") or ""):
        if not groups.has(controller):
            raise errors.HypervisorError(
                f"parameter extra_cgroups: this node has no control group controller {controller}"
            )
    check_cpu_mask(hvparams)
    known = _known_capabilities()
    for name in lxc.split_list(hvparams.get("drop_capabilities") or ""):
        if known and name not in known:
            raise errors.HypervisorError(
                f"parameter drop_capabilities: there is no capability {name}"
            )


def check_cpu_mask(hvparams: Mapping[str, Any]) -> None:
    """Check that this node has the processors of the parameter ``cpu_mask``.

    :raises HypervisorError: it lacks one.
    """
    count = os.sysconf("SC_NPROCESSORS_CONF")
    for cpu in cpu_masks.parse_cpu_mask(config.cpus_of(hvparams)):
        if cpu >= count:
            raise errors.HypervisorError(
                f"parameter cpu_mask: processor {cpu} is not one of the {count} of this node"
            )


def _known_capabilities() -> frozenset[str]:
    """Return the names in capabilities(7) up to Linux 6.1.

    LXC refuses others when a container starts.
    """
    return frozenset(
        (
            "chown dac_override dac_read_search fowner fsetid kill setgid setuid setpcap"
            " linux_immutable net_bind_service net_broadcast net_admin net_raw ipc_lock ipc_owner"
            " sys_module sys_rawio sys_chroot sys_ptrace sys_pacct sys_admin sys_boot sys_nice"
            " sys_resource sys_time sys_tty_config mknod lease audit_write audit_control setfcap"
            " mac_override mac_admin syslog wake_alarm block_suspend audit_read perfmon bpf"
            " checkpoint_restore none"
        ).split()
    )
