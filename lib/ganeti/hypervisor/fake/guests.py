"""The files that stand for guests: one for each guest, in RUN_DIR/fake-hypervisor.

A file holds three lines: a number, the memory in MiB, the number of processors. The number is
:data:`RUNS`, :data:`WAITS` on the target of a migration, or :data:`SENT` on its source, where the
guest never runs on. It may also be one of :data:`HALTS`, which a test or an administrator writes
to see what the cluster does with a guest that lives and does not run.
"""

from __future__ import annotations

import os
from typing import Final

from ganeti import errors
from ganeti.constants import hv
from ganeti.hypervisor import base, guest_errors
from ganeti.objects.halt import Halt
from ganeti.platform import paths
from ganeti.utils import fs

RUNS, WAITS, SENT = 1, 2, 3

#: Number in the file -> why the guest does not run.
HALTS: Final = {
    SENT: Halt("sent", hv.HALT_MIGRATES, "it was sent to another node"),
    4: Halt("paused", hv.HALT_PAUSED, "the number in its file says so"),
    5: Halt("io-error", hv.HALT_CONTINUES, "the number in its file says so"),
    6: Halt("crashed", hv.HALT_ENDED, "the number in its file says so"),
}


def names() -> list[str]:
    """Return the names of the files, sorted."""
    try:
        return fs.list_visible(paths.current().fake_root)
    except FileNotFoundError:
        return []


def written_at(instance_name: str) -> float | None:
    """Return when the file was written, in seconds since 1970; None when there is none."""
    try:
        return os.stat(_path(instance_name)).st_mtime
    except FileNotFoundError:
        return None


def find(instance_name: str) -> base.InstanceInfo | None:
    """Return the content of a file, its number as ``id``; None when there is no file.

    :raises HypervisorError: the file is damaged.
    """
    path = _path(instance_name)
    try:
        text = fs.read_file(path)
    except FileNotFoundError:
        return None
    try:
        number, memory_mib, vcpus = (int(line) for line in text.split())
    except ValueError as err:
        raise errors.HypervisorError(
            f"file {path} is damaged, expected three numbers. Stop the instance to remove it."
        ) from err
    state = hv.STATE_SHUTDOWN if number == WAITS else hv.STATE_RUNNING
    return base.InstanceInfo(
        instance_name, number, memory_mib, vcpus, state, 0.0, HALTS.get(number)
    )


def require(instance_name: str) -> base.InstanceInfo:
    """Return the content of a file.

    :raises HypervisorError: there is no file, or it is damaged.
    """
    info = find(instance_name)
    if info is None:
        raise guest_errors.not_running(instance_name)
    return info


def write(instance_name: str, memory_mib: int, vcpus: int, number: int = RUNS) -> None:
    """Write a file.

    :raises HypervisorError: it cannot be written.
    """
    path = _path(instance_name)
    try:
        fs.make_dirs(os.path.dirname(path), 0o775)
        fs.write_file(path, f"{number}\n{memory_mib}\n{vcpus}\n", sync=False)
    except OSError as err:
        raise errors.HypervisorError(
            f"cannot write the state of instance {instance_name}: {err}"
        ) from err


def remove(instance_name: str) -> None:
    """Remove a file; none is not an error."""
    fs.remove_file(_path(instance_name))


def _path(instance_name: str) -> str:
    return f"{paths.current().fake_root}/{base.require_file_name(instance_name)}"
