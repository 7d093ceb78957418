"""The disk template ``sharedfile``: a disk is a file which all nodes of a group can access."""

from __future__ import annotations

from ganeti.constants import disk as disk_c
from ganeti.objects.disk_templates.descriptor import (
    MIRRORED_BY_STORAGE,
    DiskTemplateDescriptor,
    file_id,
)

DESCRIPTOR = DiskTemplateDescriptor(
    name=disk_c.SHARED_FILE,
    storage_type=disk_c.ST_SHARED_FILE,
    mirroring=MIRRORED_BY_STORAGE,
    htools_name="DTSharedFile",
    device="ganeti.storage.file:SharedFileDevice",
    parameters={},
    new_id=file_id,
    is_file_based=True,
    directory="shared_file_storage_dir",
    has_instance_directory=True,
    unit_kind=disk_c.ST_SHARED_FILE,
    can_grow=True,
    manages_snapshots=True,
    can_measure=True,
)
