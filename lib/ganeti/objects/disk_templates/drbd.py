"""The disk template ``drbd``: two logical volumes on each of two nodes, mirrored by DRBD.

Rates are in KiB/s, delays and plan-ahead in tenths of a second.

The metadata of a replica are 36 KiB, and a bitmap with a bit for each 4 KiB of the disk: 32 KiB for
each GiB. The volume with them is made for the size of the disk. Other functions ask
:func:`metadata_mib` for that size, and :func:`metadata_hold_sectors` or
:func:`metadata_hold_mib` for the largest disk.

Source: the DRBD user's guide, *Estimating metadata size*.
"""

from __future__ import annotations

from ganeti.constants import disk as disk_c
from ganeti.objects.disk_templates.descriptor import (
    MIRRORED_BY_US,
    DiskTemplateDescriptor,
    Metadata,
    Parameter,
)

#: DRBD 8.4 and 9 have devices of at most 1 PiB.
LARGEST_MIB = 1 << 30
#: Volumes of this project have a size which is a multiple of it, as volume groups have by default.
_STEP_MIB = 4
_SECTORS_PER_MIB = 2048
# Superblock of 4 KiB and activity log of 32 KiB.
_FIXED_SECTORS = 72
# The bitmap is allocated in blocks of 4 KiB, each of which has the bits of 128 MiB.
_BLOCK_SECTORS = 8
_SECTORS_PER_BLOCK = 128 * _SECTORS_PER_MIB


def metadata_mib(size_mib: int) -> int:
    """Return the size (MiB) of the metadata of a new disk.

    Small disks have metadata of 128 MiB, as those of Ganeti, and can grow with them.

    :param size_mib: size of the disk.
    """
    blocks = -(-size_mib * _SECTORS_PER_MIB // _SECTORS_PER_BLOCK)
    sectors = _FIXED_SECTORS + blocks * _BLOCK_SECTORS
    steps = -(-sectors // (_STEP_MIB * _SECTORS_PER_MIB))
    return max(disk_c.DRBD_META_SIZE_MIB, steps * _STEP_MIB)


def metadata_hold_sectors(metadata_sectors: int) -> int:
    """Return the size of the largest device for metadata, in sectors of 512 bytes."""
    blocks = max(0, metadata_sectors - _FIXED_SECTORS) // _BLOCK_SECTORS
    return min(blocks * _SECTORS_PER_BLOCK, LARGEST_MIB * _SECTORS_PER_MIB)


def metadata_hold_mib(metadata_size_mib: int) -> int:
    """Return the size (MiB) of the largest disk for metadata of a size (MiB)."""
    return metadata_hold_sectors(metadata_size_mib * _SECTORS_PER_MIB) // _SECTORS_PER_MIB


DESCRIPTOR = DiskTemplateDescriptor(
    name=disk_c.DRBD8,
    storage_type=disk_c.ST_LVM_VG,
    mirroring=MIRRORED_BY_US,
    htools_name="DTDrbd8",
    device="ganeti.storage.drbd.device:DrbdDevice",
    parameters={
        "c-delay-target": Parameter("int", 1),
        "c-fill-target": Parameter("int", 0),
        "c-max-rate": Parameter("int", 61440),
        "c-min-rate": Parameter("int", 4096),
        "c-plan-ahead": Parameter("int", 20),
        "data-stripes": Parameter("int", 1),
        "disk-barriers": Parameter("string", "n", r"n|(?!.*(.).*\1)[bfd]+"),
        "disk-custom": Parameter("string", ""),
        "dynamic-resync": Parameter("bool", False),
        "meta-barriers": Parameter("bool", False),
        "meta-stripes": Parameter("int", 1),
        "metavg": Parameter("string", disk_c.DEFAULT_VG),
        "net-custom": Parameter("string", ""),
        "protocol": Parameter("string", "C", "[ABC]"),
        "resync-rate": Parameter("int", 61440),
    },
    needs_volume_group=True,
    metadata=Metadata(metadata_mib, metadata_hold_mib),
    largest_mib=LARGEST_MIB,
    unit_kind=disk_c.UNIT_DRBD,
    can_grow=True,
    can_snapshot=True,
    manages_snapshots=True,
    can_measure=True,
)
