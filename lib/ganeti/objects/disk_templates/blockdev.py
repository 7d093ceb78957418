"""The disk template ``blockdev``: a disk is a block device of the administrator."""

from __future__ import annotations

from ganeti.constants import disk as disk_c
from ganeti.objects.disk_templates.descriptor import (
    MIRRORED_BY_STORAGE,
    MUST,
    DiskTemplateDescriptor,
    IdRequest,
)


def _new_id(request: IdRequest) -> tuple[str, str]:
    return ("manual", str(request.spec["adopt"]))


DESCRIPTOR = DiskTemplateDescriptor(
    name=disk_c.BLOCK,
    storage_type=disk_c.ST_BLOCK,
    mirroring=MIRRORED_BY_STORAGE,
    htools_name="DTBlock",
    device="ganeti.storage.blockdev:ManualDevice",
    parameters={},
    new_id=_new_id,
    takes_space=False,
    can_measure=True,
    snapshot_advice="the administrator manages the device, and has to take snapshots of it",
    adoption=MUST,
    can_convert_to=False,
)
