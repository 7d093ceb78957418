"""The disks of instances on this node, as block devices: a module or package for each kind.

:func:`of` gives the class for the type of a disk, :func:`device` an object for one disk. All
classes have the operations of :class:`ganeti.storage.base.BlockDevice`. The objects keep no state:
they read from the machine which devices exist.

==================== ================================================================
:mod:`.base`         the operations which every class has
:mod:`.lvm`          logical volumes (``plain``), also below DRBD
:mod:`.drbd`         DRBD8: a disk with replicas on two nodes
:mod:`.file`         files: ``file`` on one node, ``sharedfile`` on all nodes
:mod:`.gluster`      files on a Gluster volume
:mod:`.rbd`          images in a Ceph cluster
:mod:`.ext`          disks of an external storage provider
:mod:`.blockdev`     block devices which the administrator has made
:mod:`.content`      copies the content of files and devices
:mod:`.copy`         commands which wipe a device, write an image to it, or fetch one
:mod:`.image_format` recognises disk images which are not raw
:mod:`.device_names` finds all names of a device, to recognise it again
:mod:`.busy`         locks on disks which a program is copying, wiping or filling
:mod:`.node_work`    which calls change instances or disks of this node now
:mod:`.units`        the pools from which disks are made
==================== ================================================================
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from ganeti import errors
from ganeti.objects import disk_templates

if TYPE_CHECKING:
    from ganeti.objects.disk import Disk
    from ganeti.storage.base import BlockDevice


def of(disk: Disk) -> type[BlockDevice]:
    """Return the class for a disk, which the descriptor of its template names.

    :raises BlockDeviceError: this version does not support disks of this type.
    """
    if disk.dev_type not in disk_templates.WITH_DEVICES:
        raise errors.BlockDeviceError(
            f"disk {disk.iv_name or disk.uuid}: disks of type '{disk.dev_type}' are not supported "
            "by this version"
        )
    module, _, name = disk_templates.of(disk.dev_type).device.partition(":")
    cls: type[BlockDevice] = getattr(importlib.import_module(module), name)
    return cls


def device(disk: Disk) -> BlockDevice:
    """Return the block device of a disk, which need not exist.

    :raises BlockDeviceError: its type is not supported, or its id has the wrong form.
    """
    return of(disk)(disk)
