"""The disk template ``rbd``: a disk is an image in a pool of Ceph."""

from __future__ import annotations

from ganeti.constants import disk as disk_c
from ganeti.objects.disk_templates.descriptor import (
    MIRRORED_BY_STORAGE,
    DiskTemplateDescriptor,
    IdRequest,
    Parameter,
)


def _new_id(request: IdRequest) -> tuple[str, str]:
    return ("rbd", request.name())


DESCRIPTOR = DiskTemplateDescriptor(
    name=disk_c.RBD,
    storage_type=disk_c.ST_RADOS,
    mirroring=MIRRORED_BY_STORAGE,
    htools_name="DTRbd",
    device="ganeti.storage.rbd:RbdDevice",
    parameters={
        "access": Parameter("string", disk_c.KERNELSPACE),
        "pool": Parameter("string", "rbd", r"[A-Za-z0-9_.][A-Za-z0-9_.+-]*"),
        "user-id": Parameter("string", ""),
    },
    new_id=_new_id,
    can_grow=True,
    can_measure=True,
    snapshot_advice="make one with 'rbd snap create'",
)
