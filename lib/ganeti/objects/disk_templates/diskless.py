"""The disk template ``diskless``: an instance without disks."""

from __future__ import annotations

from ganeti.constants import disk as disk_c
from ganeti.objects.disk_templates.descriptor import MIRRORED_BY_STORAGE, DiskTemplateDescriptor

DESCRIPTOR = DiskTemplateDescriptor(
    name=disk_c.DISKLESS,
    storage_type=disk_c.ST_DISKLESS,
    mirroring=MIRRORED_BY_STORAGE,
    htools_name="DTDiskless",
    parameters={},
    takes_space=False,
    can_convert_from=False,
    can_convert_to=False,
)
