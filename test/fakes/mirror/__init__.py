"""Logical volumes and mirrored disks for :mod:`fakes.node_side`, without LVM and without DRBD.

Volumes are files below ``<node>/lvm``. For mirrored disks the real driver
(:mod:`ganeti.storage.drbd.device`) gives its commands to a made-up kernel, which knows the minors
of all nodes and behaves like the real one where it matters here: replicas connect some time after
both look for each other with the same secret; data are copied from the newer replica; a replica
which was primary while it was alone is newer, because guests always write; two of these are a split
brain and leave each other, which :attr:`Kernel.split` remembers.

A test lets replicas lose contact (:meth:`Kernel.cut`), machines start again
(:meth:`Kernel.restart_node`) and come back with old data (:meth:`Kernel.old_data`), and copying
take time (:attr:`Kernel.sync_s`). Nobody waits for real: the time is that of the made-up kernel.
"""

from __future__ import annotations

from fakes.mirror.content import LVM, Image, agree_on, agreed_sectors, device_path
from fakes.mirror.kernel import Kernel
from fakes.mirror.links import Key
from fakes.mirror.nodes import MirrorNodeSide, install
from fakes.mirror.replica import Replica
from fakes.mirror.volume import Volume

__all__ = [
    "LVM",
    "Image",
    "Kernel",
    "Key",
    "MirrorNodeSide",
    "Replica",
    "Volume",
    "agree_on",
    "agreed_sectors",
    "device_path",
    "install",
]
