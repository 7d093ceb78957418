"""What code outside of a driver needs to know of a disk template."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping

from ganeti import TYPE_CHECKING, errors
from ganeti.utils.records import NamedTuple, record

if TYPE_CHECKING:
    from typing import Any

# Who keeps the copies of a disk on other nodes.
NOT_MIRRORED = "none"
MIRRORED_BY_US = "internal"
MIRRORED_BY_STORAGE = "external"

# Whether a disk may or must be an existing device which is adopted.
NEVER, MAY, MUST = "never", "may", "must"


class Parameter(NamedTuple):
    """One parameter of a disk template.

    :ivar type: name of its type.
    :ivar default: its default.
    :ivar pattern: regular expression which a text must match as a whole; empty for any text.
    """

    type: str
    default: object
    pattern: str = ""


class DirectoryCheck(NamedTuple):
    """How the verification of a cluster checks that nodes can use the directory of a template.

    :ivar name: of the check in the call ``node_verify``.
    :ivar finding: code of its finding.
    :ivar content: what is in the directory, for messages.
    :ivar must_pass_before: whether the directory must be usable before the template is enabled.
    """

    name: str
    finding: str
    content: str = "disk files"
    must_pass_before: bool = True


class Metadata(NamedTuple):
    """The metadata which a disk has beside its content, on each of its nodes.

    :ivar needed_mib: size of a disk (MiB) -> size of its metadata (MiB).
    :ivar enough_for_mib: size of metadata (MiB) -> size of the largest disk which may have them.
    """

    needed_mib: Callable[[int], int]
    enough_for_mib: Callable[[int], int]


class IdRequest(NamedTuple):
    """The facts from which the ``logical_id`` of a new disk follows.

    :ivar template: name of the disk template.
    :ivar new_uuid: makes a UUID which nothing else has.
    :ivar disk_index: number of the disk in its instance.
    :ivar spec: the completed spec of the disk.
    :ivar directory: directory of the disk files of the instance; None for other kinds of disk.
    :ivar driver: driver of disk files.
    """

    template: str
    new_uuid: Callable[[], str]
    disk_index: int
    spec: Mapping[str, Any]
    directory: str | None
    driver: str

    def name(self) -> str:
        """Make a new name for the storage of the disk."""
        return f"{self.new_uuid()}.{self.template}.disk{self.disk_index}"


def no_id(request: IdRequest) -> tuple[Any, ...]:
    """Refuse: the template has no disks, or devices of several templates make one."""
    raise errors.ProgrammerError(f"disks of template {request.template} have no single device")


def file_id(request: IdRequest) -> tuple[str, str]:
    """Make the id of a file in the directory of its instance."""
    return (request.driver, posixpath.join(request.directory or "", request.name()))


@record(frozen=True, slots=True)
class DiskTemplateDescriptor:
    """One disk template, as the master side, the commands and the shared packages see it."""

    name: str
    #: Type of the pools which hold its disks, as ``gnt-node list-storage`` has it.
    storage_type: str
    #: One of ``NOT_MIRRORED``, ``MIRRORED_BY_US`` and ``MIRRORED_BY_STORAGE``.
    mirroring: str
    #: Its name in the output of the placement programs.
    htools_name: str

    #: Name -> parameter.
    parameters: Mapping[str, Parameter]
    #: Facts -> ``logical_id`` of a new disk.
    new_id: Callable[[IdRequest], tuple[Any, ...]] = no_id
    #: ``module:class`` of its devices, which only nodes load; empty when it has no devices. The
    #: operations are those of :class:`ganeti.storage.base.BlockDevice`.
    device: str = ""

    #: Whether its disks are logical volumes, so that it needs a volume group.
    needs_volume_group: bool = False
    #: Whether a storage provider makes its disks, which have the provider's parameters, too.
    has_provider: bool = False
    #: Whether its disks are files, which have a driver.
    is_file_based: bool = False
    #: Whether its disks take space of the storage of the cluster.
    takes_space: bool = True
    #: Metadata for which a disk needs more space on each of its nodes.
    metadata: Metadata | None = None
    #: The largest disk (MiB); None when only its storage limits it.
    largest_mib: int | None = None
    #: Attribute of the cluster, and option of its commands, with the directory of its disks.
    directory: str = ""
    #: The directory of a new cluster.
    default_directory: str = ""
    directory_check: DirectoryCheck | None = None
    #: Whether the paths of its disks contain the name of the instance.
    has_instance_directory: bool = False
    #: Kind of the storage units which allocators get; empty when it belongs to no unit.
    unit_kind: str = ""

    can_grow: bool = False
    #: Whether the content of a disk can be copied to another node for a move.
    can_copy: bool = False
    #: Whether the storage makes snapshots; of a mirrored disk, its data volume.
    can_snapshot: bool = False
    #: Whether users' snapshots are listed, restored and removed by us, not by a storage provider.
    manages_snapshots: bool = False
    #: What a user can do instead, when no snapshots are made for users.
    snapshot_advice: str = ""
    #: Whether the size which a disk really has can be measured; of a mirrored one when active.
    can_measure: bool = False
    #: Whether an existing device is adopted: ``NEVER``, ``MAY`` or ``MUST``.
    adoption: str = NEVER
    can_convert_from: bool = True
    can_convert_to: bool = True
    #: Whether its disks can have physical volumes of their own.
    supports_exclusive_storage: bool = False
    #: Whether new storage may hold data of former owners.
    may_hold_old_data: bool = False
