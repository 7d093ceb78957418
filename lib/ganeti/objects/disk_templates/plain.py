"""The disk template ``plain``: a disk is a logical volume of one node."""

from __future__ import annotations

from ganeti.constants import disk as disk_c
from ganeti.objects.disk_templates.descriptor import (
    MAY,
    NOT_MIRRORED,
    DiskTemplateDescriptor,
    IdRequest,
    Parameter,
)


def _new_id(request: IdRequest) -> tuple[str, str]:
    return (request.spec["vg"], f"{request.new_uuid()}.disk{request.disk_index}")


DESCRIPTOR = DiskTemplateDescriptor(
    name=disk_c.PLAIN,
    storage_type=disk_c.ST_LVM_VG,
    mirroring=NOT_MIRRORED,
    htools_name="DTPlain",
    device="ganeti.storage.lvm.device:LogicalVolumeDevice",
    parameters={"stripes": Parameter("int", 1)},
    new_id=_new_id,
    needs_volume_group=True,
    unit_kind=disk_c.ST_LVM_VG,
    can_grow=True,
    can_copy=True,
    can_snapshot=True,
    manages_snapshots=True,
    can_measure=True,
    adoption=MAY,
    supports_exclusive_storage=True,
    may_hold_old_data=True,
)
