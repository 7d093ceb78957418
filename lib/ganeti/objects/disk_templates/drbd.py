"""The disk template ``drbd``: two logical volumes on each of two nodes, mirrored by DRBD.

Rates are in KiB/s, delays and plan-ahead in tenths of a second.
"""

from __future__ import annotations

from ganeti.constants import disk as disk_c
from ganeti.objects.disk_templates.descriptor import (
    MIRRORED_BY_US,
    DiskTemplateDescriptor,
    Parameter,
)

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
        "disk-barriers": Parameter("string", "n"),
        "disk-custom": Parameter("string", ""),
        "dynamic-resync": Parameter("bool", False),
        "meta-barriers": Parameter("bool", False),
        "meta-stripes": Parameter("int", 1),
        "metavg": Parameter("string", disk_c.DEFAULT_VG),
        "net-custom": Parameter("string", ""),
        "protocol": Parameter("string", "C"),
        "resync-rate": Parameter("int", 61440),
    },
    needs_volume_group=True,
    metadata_mib=disk_c.DRBD_META_SIZE_MIB,
    unit_kind=disk_c.UNIT_DRBD,
    can_grow=True,
    can_snapshot=True,
    manages_snapshots=True,
    can_measure=True,
)
