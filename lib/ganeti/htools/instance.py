"""Instances, as the placement programs see them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ganeti import TYPE_CHECKING
from ganeti.constants import disk as disk_c
from ganeti.objects import disk_templates
from ganeti.utils.records import NamedTuple

if TYPE_CHECKING:
    from typing import TypeVar

    K = TypeVar("K")

RUNNING = "running"

#: Published texts of the status of an instance.
STATUSES = (
    "ADMIN_down",
    "ADMIN_offline",
    "ERROR_down",
    "ERROR_nodedown",
    "ERROR_nodeoffline",
    RUNNING,
    "USER_down",
    "ERROR_up",
    "ERROR_wrongnode",
)

#: An instance in these states occupies memory on its primary node.
_USES_MEMORY = frozenset(
    (RUNNING, "ERROR_up", "ERROR_nodedown", "ERROR_nodeoffline", "ERROR_wrongnode")
)

#: Its disks are logical volumes: they occupy the disk space and the spindles of its nodes. Space of
#: other disks counts only where storage units are known.
LOCAL_STORAGE = disk_templates.LVM_BASED

#: The number of a node which does not exist.
NO_NODE = -1

#: The number of a primary node for which no node reserves memory yet.
NOBODY = -2


def memory_to_keep(instances: Iterable[tuple[K, int]]) -> dict[K, int]:
    """Return the memory which a node keeps free for the loss of each other node.

    :param instances: for each secondary instance of the node its primary node, and MiB of memory.
    :returns: primary node -> MiB of memory.
    """
    found: dict[K, int] = {}
    for primary, memory in instances:
        found[primary] = found.get(primary, 0) + memory
    return found


class Load(NamedTuple):
    """What an instance uses of the four shared resources, or what a node offers of them."""

    cpu: float = 1.0
    memory: float = 1.0
    disk: float = 1.0
    net: float = 1.0

    def plus(self, other: Load) -> Load:
        """Add another load."""
        return Load(
            self.cpu + other.cpu,
            self.memory + other.memory,
            self.disk + other.disk,
            self.net + other.net,
        )

    def minus(self, other: Load) -> Load:
        """Subtract another load."""
        return Load(
            self.cpu - other.cpu,
            self.memory - other.memory,
            self.disk - other.disk,
            self.net - other.net,
        )


NO_LOAD = Load(0.0, 0.0, 0.0, 0.0)
UNIT_LOAD = Load()


class Disk(NamedTuple):
    """A disk of an instance.

    :ivar size: MiB, without metadata.
    :ivar unit: the storage unit it must lie in, as ``(type, key)``; None when it is not known.
    :ivar special: a small disk of the firmware or of cloud-init, whose size no policy concerns.
    """

    size: int
    spindles: int | None = None
    unit: tuple[str, str] | None = None
    special: bool = False


class Nic(NamedTuple):
    """A network interface: only its network matters for placement."""

    mac: str | None = None
    ip: str | None = None
    mode: str | None = None
    link: str | None = None
    bridge: str | None = None
    network: str | None = None


class Size(NamedTuple):
    """What an instance takes of its nodes.

    :ivar memory: MiB.
    :ivar disk: local space (MiB) of all disks on each of its nodes.
    :ivar spindle_use: how much it uses the spindles which instances share.
    """

    memory: int
    disk: int
    vcpus: int
    disks: tuple[Disk, ...] = ()
    spindle_use: int = 1


class Instance:
    """An instance; its facts do not change, only its nodes and its number do.

    :ivar secondary: the number of the secondary node, or :data:`NO_NODE`.
    :ivar exclusion_tags: those of its tags which two instances on a node must not share.
    :ivar desired_locations: location tags which its primary node should have.
    :ivar location_score: how many location tags its nodes share, plus how many of the desired
        ones its primary node lacks.
    :ivar movable: whether a balancer may move it.
    """

    __slots__ = (
        "alias", "auto_balance", "desired_locations", "disk", "disks", "exclusion_tags",
        "forthcoming", "index", "load", "local_storage", "location_score", "memory", "mirrored",
        "movable", "name", "nics", "primary", "secondary", "secondary_memory", "shared_storage",
        "spindle_use", "spindles", "status", "tags", "template", "uses_cpu", "uses_memory",
        "vcpus",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        size: Size,
        template: str,
        nodes: Sequence[int] = (),
        *,
        status: str = RUNNING,
        auto_balance: bool = True,
        tags: tuple[str, ...] = (),
        forthcoming: bool = False,
    ) -> None:
        """:param nodes: the numbers of its nodes, the primary node first."""
        self.name = name
        self.alias = name
        self.memory, self.disk, self.vcpus, self.disks, self.spindle_use = size
        self.template = template
        self.primary, self.secondary = (*nodes, NO_NODE, NO_NODE)[:2]
        self.status = status
        self.auto_balance = auto_balance
        self.tags = tags
        self.nics: tuple[Nic, ...] = ()
        self.forthcoming = forthcoming
        self.index = -1
        self.movable = True
        self.load = UNIT_LOAD
        self.exclusion_tags: tuple[str, ...] = ()
        self.desired_locations: frozenset[str] = frozenset()
        self.location_score = 0
        self._derive()

    def _derive(self) -> None:
        self.uses_memory = not self.forthcoming and self.status in _USES_MEMORY
        self.mirrored = self.template in disk_templates.INT_MIRRORED
        self.shared_storage = (
            self.template != disk_c.DISKLESS and self.template in disk_templates.EXT_MIRRORED
        )
        self.local_storage = self.template in LOCAL_STORAGE
        self.uses_cpu = self.status != "ADMIN_offline"
        #: Memory which its secondary node keeps free for it.
        self.secondary_memory = (
            self.memory
            if self.auto_balance and self.mirrored and self.uses_cpu and not self.forthcoming
            else 0
        )
        #: Spindles of all disks; None when one of them is not known.
        counts = [disk.spindles for disk in self.disks]
        self.spindles = None if None in counts else sum(count or 0 for count in counts)

    def placed(self, primary: int, secondary: int) -> Instance:
        """Make a copy on other nodes; the location score is that of the old ones."""
        new = Instance.__new__(Instance)
        for name in Instance.__slots__:
            setattr(new, name, getattr(self, name))
        new.primary = primary
        new.secondary = secondary
        return new

    def resized(
        self,
        *,
        memory: int | None = None,
        disk: int | None = None,
        vcpus: int | None = None,
        disks: tuple[Disk, ...] | None = None,
        spindle_use: int | None = None,
        name: str | None = None,
    ) -> Instance:
        """Make a copy of another size."""
        new = self.placed(self.primary, self.secondary)
        if memory is not None:
            new.memory = memory
        if disk is not None:
            new.disk = disk
        if vcpus is not None:
            new.vcpus = vcpus
        if disks is not None:
            new.disks = disks
        if spindle_use is not None:
            new.spindle_use = spindle_use
        if name is not None:
            new.name = new.alias = name
        new._derive()
        return new

    def become_mirrored(self) -> None:
        """Count as mirrored from now on, because a secondary node is chosen for it."""
        self.template = disk_c.DRBD8
        self._derive()

    @property
    def running(self) -> bool:
        """True if the guest runs, so that moving it is a migration."""
        return self.status in (RUNNING, "ERROR_up")

    @property
    def starts_anywhere(self) -> bool:
        """True if every node of its group can start it without copying disks."""
        return self.shared_storage or self.template == disk_c.DISKLESS

    @property
    def takes_units(self) -> bool:
        """True if its disks take space of storage units when it comes to a node."""
        return self.template in disk_templates.IN_UNITS and (
            self.template not in disk_templates.EXT_MIRRORED or self.index == -1
        )

    @property
    def nodes(self) -> tuple[int, ...]:
        """The numbers of its nodes, the primary node first."""
        return (self.primary,) if self.secondary == NO_NODE else (self.primary, self.secondary)
