"""The disk template ``ext``: a disk is made by the scripts of a storage provider."""

from __future__ import annotations

from ganeti.constants import disk as disk_c
from ganeti.objects.disk_templates.descriptor import (
    MIRRORED_BY_STORAGE,
    DiskTemplateDescriptor,
    IdRequest,
    Parameter,
)


def _new_id(request: IdRequest) -> tuple[str, str]:
    return (request.spec["provider"], request.name())


DESCRIPTOR = DiskTemplateDescriptor(
    name=disk_c.EXT,
    storage_type=disk_c.ST_EXT,
    mirroring=MIRRORED_BY_STORAGE,
    htools_name="DTExt",
    device="ganeti.storage.ext.device:ExtDevice",
    parameters={"access": Parameter("string", disk_c.KERNELSPACE)},
    new_id=_new_id,
    has_provider=True,
    can_grow=True,
    can_measure=True,
    can_snapshot=True,
    may_hold_old_data=True,
)
