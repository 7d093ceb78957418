"""The disk template ``gluster``: a disk is a file of a Gluster volume."""

from __future__ import annotations

from ganeti.constants import disk as disk_c
from ganeti.constants import node_verify as nv
from ganeti.objects.disk_templates.descriptor import (
    MIRRORED_BY_STORAGE,
    DirectoryCheck,
    DiskTemplateDescriptor,
    IdRequest,
    Parameter,
)


def _new_id(request: IdRequest) -> tuple[str, str]:
    return (request.driver, f"ganeti/{request.name()}")


DESCRIPTOR = DiskTemplateDescriptor(
    name=disk_c.GLUSTER,
    storage_type=disk_c.ST_GLUSTER,
    mirroring=MIRRORED_BY_STORAGE,
    htools_name="DTGluster",
    device="ganeti.storage.gluster:GlusterDevice",
    parameters={
        "access": Parameter("string", disk_c.KERNELSPACE),
        "host": Parameter("string", "127.0.0.1", r"[A-Za-z0-9_.:-]+"),
        "port": Parameter("int", 24007),
        "volume": Parameter("string", "gv0", r"[A-Za-z0-9_][A-Za-z0-9_.-]*"),
    },
    new_id=_new_id,
    is_file_based=True,
    directory="gluster_storage_dir",
    directory_check=DirectoryCheck(
        nv.GLUSTER_STORAGE_PATH,
        "ENODEGLUSTERSTORAGEPATHUNUSABLE",
        "Gluster",
        must_pass_before=False,
    ),
    unit_kind=disk_c.ST_GLUSTER,
    can_grow=True,
    can_measure=True,
    snapshot_advice="make one of the whole Gluster volume with 'gluster snapshot'",
)
