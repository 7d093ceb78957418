"""The disk template ``sharedfile``: a disk is a file which all nodes of a group can access."""

from __future__ import annotations

from ganeti.constants import disk as disk_c
from ganeti.constants import node_verify as nv
from ganeti.objects.disk_templates.descriptor import (
    MIRRORED_BY_STORAGE,
    DirectoryCheck,
    DiskTemplateDescriptor,
    file_id,
)
from ganeti.platform import paths

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
    default_directory=paths.DEFAULT_SHARED_FILE_STORAGE_DIR,
    directory_check=DirectoryCheck(
        nv.SHARED_FILE_STORAGE_PATH, "ENODESHAREDFILESTORAGEPATHUNUSABLE"
    ),
    has_instance_directory=True,
    unit_kind=disk_c.ST_SHARED_FILE,
    can_grow=True,
    manages_snapshots=True,
    can_measure=True,
)
