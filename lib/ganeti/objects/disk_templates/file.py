"""The disk template ``file``: a disk is a file of one node."""

from __future__ import annotations

from ganeti.constants import disk as disk_c
from ganeti.constants import node_verify as nv
from ganeti.objects.disk_templates.descriptor import (
    NOT_MIRRORED,
    DirectoryCheck,
    DiskTemplateDescriptor,
    file_id,
)
from ganeti.platform import paths

DESCRIPTOR = DiskTemplateDescriptor(
    name=disk_c.FILE,
    storage_type=disk_c.ST_FILE,
    mirroring=NOT_MIRRORED,
    htools_name="DTFile",
    device="ganeti.storage.file:FileDevice",
    parameters={},
    new_id=file_id,
    is_file_based=True,
    directory="file_storage_dir",
    default_directory=paths.DEFAULT_FILE_STORAGE_DIR,
    directory_check=DirectoryCheck(nv.FILE_STORAGE_PATH, "ENODEFILESTORAGEPATHUNUSABLE"),
    has_instance_directory=True,
    unit_kind=disk_c.ST_FILE,
    can_grow=True,
    can_copy=True,
    manages_snapshots=True,
    can_measure=True,
)
