"""Handlers of the node calls about disks and storage units.

==================== =======================================================================
:mod:`.blockdev`     the life of block devices: create, assemble, link, grow, rename, remove
:mod:`.disk_content` the content of disks: wiping, images, snapshots
:mod:`.convert`      copies the content of one disk of this node to another one
:mod:`.drbd`         mirrored disks: connection, synchronisation, the storage below them
:mod:`.lvm`          LVM, and block devices which do not belong to a disk
:mod:`.units`        storage units and logical volumes of this machine
:mod:`.directories`  whether this machine and others see the same directory
:mod:`.extstorage`   the list of providers of external storage
==================== =======================================================================
"""
