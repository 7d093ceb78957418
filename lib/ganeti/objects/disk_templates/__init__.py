"""The disk templates: a descriptor each, and the sets which follow from them.

A :class:`~ganeti.objects.disk_templates.descriptor.DiskTemplateDescriptor` holds what code outside
of the drivers must know: parameters, capabilities, identity of new disks, the class of the devices
on a node. The module of a template has its name and is read when the first question is asked,
because each command imports this package.

A template exists when its module is in a directory of ``__path__``; a distribution may append one.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Set

from ganeti import TYPE_CHECKING, errors
from ganeti.constants import disk as disk_c

if TYPE_CHECKING:
    from typing import Any

    from ganeti.objects.disk_templates.descriptor import DirectoryCheck, DiskTemplateDescriptor


@functools.cache
def _read(name: str) -> DiskTemplateDescriptor:
    # The module importlib would load others; an allocator may start for each instance.
    module = __import__(f"ganeti.objects.disk_templates.{name}", fromlist=("DESCRIPTOR",))
    descriptor: DiskTemplateDescriptor = module.DESCRIPTOR
    return descriptor


_ENDING = ".py"
_NO_TEMPLATES = ("__init__", "descriptor")
#: The order of placement programs and lists of storage units; other templates follow by name.
_FIRST = (
    disk_c.DISKLESS,
    disk_c.FILE,
    disk_c.SHARED_FILE,
    disk_c.PLAIN,
    disk_c.BLOCK,
    disk_c.DRBD8,
    disk_c.RBD,
    disk_c.EXT,
    disk_c.GLUSTER,
)


@functools.cache
def _names_in(directories: tuple[str, ...]) -> tuple[str, ...]:
    found = {
        file.removesuffix(_ENDING)
        for directory in directories
        for file in os.listdir(directory)
        if file.endswith(_ENDING)
    }
    others = sorted(found.difference(_FIRST, _NO_TEMPLATES))
    return (*(name for name in _FIRST if name in found), *others)


def of(name: str) -> DiskTemplateDescriptor:
    """Return the descriptor of a disk template.

    :raises ProgrammerError: there is no disk template of this name.
    """
    if name not in ALL:
        raise errors.ProgrammerError(f"there is no disk template {name!r}")
    return _read(name)


class Templates(Set[str]):
    """The names of all templates for which a question has the answer yes, in a fixed order.

    They are found when the set is asked, so it is complete when ``__path__`` has grown.
    """

    def __init__(self, question: Callable[[DiskTemplateDescriptor], bool] | None = None) -> None:
        self._question = question
        self._path: list[str] = []
        self._found: tuple[str, ...] = ()

    @property
    def _names(self) -> tuple[str, ...]:
        if self._path != __path__:
            known, question = _names_in(tuple(__path__)), self._question
            self._found = (
                known
                if question is None
                else tuple(name for name in known if question(_read(name)))
            )
            self._path = list(__path__)
        return self._found

    @classmethod
    def _from_iterable(cls, names: Any) -> frozenset[str]:  # type: ignore[override]
        return frozenset(names)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


#: All templates; no descriptor is read for this.
ALL = Templates()
#: An instance can have disks of them.
WITH_DEVICES = Templates(lambda one: bool(one.device))
LVM_BASED = Templates(lambda one: one.needs_volume_group)
#: A disk is a logical volume itself, not a device above some.
LOGICAL_VOLUMES = Templates(lambda one: one.needs_volume_group and one.mirroring != "internal")
TAKE_SPACE = Templates(lambda one: one.takes_space)
#: A path in the file system of a node leads to a disk, without LVM or a storage system.
HAVE_PATH = Templates(lambda one: one.is_file_based or one.adoption == "must")
FILE_BASED = Templates(lambda one: one.is_file_based)
#: All nodes can access the disks without our mirroring: any node may become the primary node.
EXT_MIRRORED = Templates(lambda one: one.mirroring == "external")
#: We mirror the disks to a secondary node.
INT_MIRRORED = Templates(lambda one: one.mirroring == "internal")
MIRRORED = Templates(lambda one: one.mirroring != "none")
COPYABLE = Templates(lambda one: one.can_copy)
GROWABLE = Templates(lambda one: one.can_grow)
EXCLUSIVE_STORAGE = Templates(lambda one: one.supports_exclusive_storage)
MAY_ADOPT = Templates(lambda one: one.adoption != "never")
MUST_ADOPT = Templates(lambda one: one.adoption == "must")
#: A disk has metadata, for which a volume group can be chosen.
HAVE_METAVG = Templates(lambda one: "metavg" in one.parameters)
HAVE_PROVIDER = Templates(lambda one: one.has_provider)
HAVE_ACCESS = Templates(lambda one: "access" in one.parameters)
SNAPSHOT_CAPABLE = Templates(lambda one: one.can_snapshot)
MANAGED_SNAPSHOTS = Templates(lambda one: one.manages_snapshots)
#: A script of the storage provider takes snapshots; only the provider knows them afterwards.
FOREIGN_SNAPSHOTS = Templates(lambda one: one.can_snapshot and not one.manages_snapshots)
MEASURABLE = Templates(lambda one: one.can_measure)
#: New storage may hold data of former owners.
WIPED = Templates(lambda one: one.may_hold_old_data)
#: The paths of the disks contain the name of the instance.
INSTANCE_DEPENDENT_PATH = Templates(lambda one: one.has_instance_directory)
NOT_CONVERTIBLE_FROM = Templates(lambda one: not one.can_convert_from)
NOT_CONVERTIBLE_TO = Templates(lambda one: not one.can_convert_to)
#: The disks lie in storage units of nodes.
IN_UNITS = Templates(lambda one: bool(one.unit_kind))


def metadata_mib(name: str, size_mib: int) -> int:
    """Return the space (MiB) which the metadata of a new disk need on each of its nodes."""
    metadata = of(name).metadata
    return 0 if metadata is None else metadata.needed_mib(size_mib)


def space_mib(name: str, size_mib: int) -> int:
    """Return the space which a new disk takes on each of its nodes, with its metadata."""
    return size_mib + metadata_mib(name, size_mib) if name in TAKE_SPACE else 0


def defaults(name: str) -> dict[str, object]:
    """Return the defaults of the parameters of a disk template."""
    return {key: parameter.default for key, parameter in of(name).parameters.items()}


def all_defaults() -> dict[str, dict[str, object]]:
    """Return the defaults of the parameters of each disk template."""
    return {name: defaults(name) for name in sorted(ALL)}


def parameter_types() -> dict[str, str]:
    """Return the type of each parameter; the same name has the same type in all templates."""
    return {
        key: parameter.type
        for name in sorted(ALL)
        for key, parameter in of(name).parameters.items()
    }


def directory_fields() -> dict[str, str]:
    """Return template -> attribute of the cluster with its directory, for those which have one."""
    return {name: of(name).directory for name in ALL if of(name).directory}


def types_with_directory() -> frozenset[str]:
    """Return the storage types whose pools are directories."""
    return frozenset(of(name).storage_type for name in directory_fields())


def directory_checks() -> dict[str, DirectoryCheck]:
    """Return template -> the check of its directory, for those which have one."""
    found = {name: of(name).directory_check for name in ALL}
    return {name: check for name, check in found.items() if check is not None}
