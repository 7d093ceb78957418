"""The containers of this node: which of them run, and what is known of each.

A container runs as long as LXC's monitor listens for it, or a process is in its control groups.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator, Sequence

from ganeti import errors
from ganeti.hypervisor import guest_errors, guest_lock
from ganeti.hypervisor.lxc import layout, parse, record
from ganeti.hypervisor.lxc.cgroups import Cgroups
from ganeti.hypervisor.lxc.layout import Layout
from ganeti.hypervisor.lxc.record import Record
from ganeti.hypervisor.net.connect import GuestNetwork
from ganeti.platform import paths
from ganeti.utils import fs, process

#: The administrator's program for interfaces, in the configuration directory.
_SCRIPT = "lxc-vif-bridge"
PROGRAM_TIMEOUT_S = 60.0


@contextlib.contextmanager
def locked(instance_name: str) -> Iterator[Layout]:
    """Exclude other operations on a container; the value has its files.

    :raises HypervisorError: another operation takes too long, or a directory cannot be made.
    """
    here = layout.of(instance_name)
    try:
        # Nobody else may reach a root file system, whose programs may belong to root.
        fs.make_dirs(here.lxc_root, 0o700)
        fs.make_dirs(here.log_dir, 0o750)
    except OSError as err:
        raise errors.HypervisorError(
            f"cannot prepare the directories for LXC: {err.strerror}: {err.filename}"
        ) from err
    with guest_lock.locked(here.lxc_root, instance_name):
        yield here


def monitored() -> list[str]:
    """Return the names of the containers whose monitor listens, sorted.

    :raises HypervisorError: the kernel's list of sockets cannot be read.
    """
    try:
        text = fs.read_file("/proc/net/unix")
    except OSError as err:
        raise errors.HypervisorError(f"cannot list the containers: {err}") from err
    return parse.parse_unix_sockets(text, paths.current().lxc_root)


def load(here: Layout) -> Record | None:
    """Return the record of a container; None when there is none. A damaged one is only logged.

    One such file must not hide the other containers of the node.
    """
    try:
        return record.load(here.record_file, here.name)
    except errors.HypervisorError as err:
        logging.error("%s", err)
        return None


def has_processes(here: Layout, groups: Cgroups) -> bool:
    """Return True if a process is in the control groups of a container."""
    found = load(here)
    return found is not None and groups.is_populated(found.groups)


def is_running(here: Layout) -> bool:
    """Return True if a container runs."""
    return here.name in monitored() or (
        os.path.exists(here.record_file) and has_processes(here, Cgroups())
    )


def running_record(here: Layout) -> Record:
    """Return the record of a container which runs.

    :raises HypervisorError: it does not run, or is just being started or has a damaged record.
    """
    if not is_running(here):
        raise guest_errors.not_running(here.name)
    found = load(here)
    if found is None or not found.groups:
        raise guest_errors.unknown_start(here.name)
    return found


def network(here: Layout, tags: Sequence[str] = ()) -> GuestNetwork:
    """Return the node's side of the network of a container."""
    script = f"{paths.current().conf_dir}/{_SCRIPT}"
    return GuestNetwork(here.name, here.nic_dir, script, tags)


def run_program(here: Layout, program: str, *words: str) -> str:
    """Run a program of LXC for a container; return what it printed.

    :raises HypervisorError: it failed.
    """
    argv = [program, f"--lxcpath={here.lxc_root}", f"--name={here.name}", *words]
    try:
        return process.run(argv, timeout_s=PROGRAM_TIMEOUT_S).stdout
    except errors.CommandError as err:
        raise errors.HypervisorError(f"instance {here.name}: {err}") from err


def init_pid(here: Layout) -> int:
    """Return the first process of a container, by its number on the node.

    :raises HypervisorError: there is none, or LXC does not answer.
    """
    text = run_program(here, "lxc-info", "--pid", "--no-humanize").strip()
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise errors.HypervisorError(f"instance {here.name} has no first process")
    return int(text)
