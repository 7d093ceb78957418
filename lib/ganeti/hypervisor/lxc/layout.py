"""The files of a container on its node."""

from __future__ import annotations

from dataclasses import dataclass

from ganeti.hypervisor import base, console_log
from ganeti.platform import paths


@dataclass(frozen=True, slots=True)
class Layout:
    """Files of one container on this node."""

    lxc_root: str  # LXC's own directory of containers (``lxcpath``)
    log_dir: str
    name: str
    mount_root: str  # directory below which containers mount their disks

    @property
    def directory(self) -> str:
        """The directory of the container; it is removed when the container was stopped."""
        return f"{self.lxc_root}/{self.name}"

    @property
    def config_file(self) -> str:
        """The configuration for LXC."""
        return f"{self.directory}/config"

    @property
    def record_file(self) -> str:
        """What is known of the container, see :mod:`ganeti.hypervisor.lxc.record`."""
        return f"{self.directory}/ganeti.json"

    @property
    def changed_file(self) -> str:
        """A file which exists when NICs were plugged in or out since the start."""
        return f"{self.directory}/changed"

    @property
    def rootfs(self) -> str:
        """The directory on which the container mounts its disk; on the node it is always empty."""
        return f"{self.mounts}/rootfs"

    @property
    def mounts(self) -> str:
        """The directory of all mounts of the container; it is removed with it."""
        return f"{self.mount_root}/{self.name}"

    def disk_mount(self, index: int) -> str:
        """Return the directory on which the container mounts another disk, before it gets it.

        :param index: position of the disk, at least 1.
        """
        return f"{self.mounts}/disk{index}"

    @property
    def nic_dir(self) -> str:
        """Directory with a file for each NIC, which holds the name of its interface."""
        return f"{self.directory}/nic"

    @property
    def console_log_link(self) -> str:
        """Link to the output of the container's console, see ``hypervisor/console_log.py``."""
        return console_log.link_in(self.log_dir, self.name)

    @property
    def log_file(self) -> str:
        """The messages of LXC since the last start."""
        return f"{self.log_dir}/{self.name}.log"


def of(instance_name: str) -> Layout:
    """Return the files of a container on this node.

    :raises HypervisorError: the name cannot be the name of a file.
    """
    here = paths.current()
    name = base.require_file_name(instance_name)
    return Layout(here.lxc_root, here.log_lxc_dir, name, here.lxc_mount_root)
