"""What instances may have after a job: how opcodes let them grow.

:func:`after` reads the opcodes of a job in their order. What an opcode makes smaller or removes
does not count before it has happened, because the job may fail; so an :class:`Instance` has the
most that it may have. Opcodes without an entry in :data:`_READERS` let nothing grow.

Memory counts whether an instance runs or not, so a start is no growth. Disks count with the sizes
that a guest sees, and a snapshot with those of its disks: it may come to need as much space.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from ganeti import errors
from ganeti.constants import disk as disk_const
from ganeti.constants import instance as instance_const
from ganeti.constants import tags as tags_const
from ganeti.constants.net import VALUE_DEFAULT
from ganeti.opcodes.base import OpCode
from ganeti.rapi.roles import DISK, INSTANCES, MEMORY, VCPUS
from ganeti.rapi.selectors import Facts
from ganeti.utils import text


@dataclass(frozen=True, slots=True)
class Instance:
    """What an instance may have, at present and after the jobs that have not ended.

    :ivar facts: what may decide about selectors: name and tags before and after each change.
    :ivar memory: in MiB, as ``disk``.
    :ivar disks: the size of each disk after the last change.
    :ivar disk: the most space of the disks together.
    :ivar snapshots: the space of the snapshots.
    :ivar unknown: what only the job will find out.
    """

    facts: tuple[Facts, ...]
    memory: int = 0
    vcpus: int = 0
    disks: tuple[int, ...] = ()
    disk: int = 0
    snapshots: int = 0
    unknown: frozenset[str] = frozenset()

    def has(self, what: str) -> int:
        """Return how much it has of what a quota limits."""
        disk = self.disk + self.snapshots
        return {INSTANCES: 1, MEMORY: self.memory, DISK: disk, VCPUS: self.vcpus}[what]

    def with_other(self, other: Instance) -> Instance:
        """Return the most that this and another state of the same instance have."""
        same = len(self.disks) == len(other.disks)
        both = zip(self.disks, other.disks, strict=False)
        return Instance(
            tuple(dict.fromkeys((*self.facts, *other.facts))),
            max(self.memory, other.memory),
            max(self.vcpus, other.vcpus),
            tuple(max(pair) for pair in both) if same else other.disks,
            max(self.disk, other.disk),
            max(self.snapshots, other.snapshots),
            self.unknown | other.unknown,
        )

    def with_disks(self, disks: Sequence[int]) -> Instance:
        """Return the instance with other disks."""
        more = max(0, sum(disks) - sum(self.disks))
        return replace(self, disks=tuple(disks), disk=self.disk + more)


class Instances:
    """The instances around a request.

    :param defaults: the backend parameters of the cluster.
    """

    def __init__(self, defaults: Mapping[str, Any]) -> None:
        self.defaults = defaults
        self._found: dict[str, Instance] = {}
        # Name, also a short one -> keys of the instances.
        self._names: dict[str, set[str]] = {}

    def items(self) -> Iterable[tuple[str, Instance]]:
        """Return the instances by their keys: the UUID, or the name of one that is to be made."""
        return self._found.items()

    def key(self, name: str, uuid: str = "") -> str:
        """Return the key of the instance with a UUID or a name; short names are enough.

        :returns: the name, if there is none.
        """
        for key in (uuid, name):
            if key in self._found:
                return key
        keys = self._names.get(name, set())
        exact = {key for key in keys if any(f.name == name for f in self._found[key].facts)}
        keys = exact or keys
        return next(iter(keys)) if len(keys) == 1 else name

    def get(self, key: str) -> Instance | None:
        """Return an instance by its key."""
        return self._found.get(key)

    def put(self, key: str, one: Instance) -> None:
        """Note what an instance may have, besides what is known of it."""
        before = self._found.get(key)
        self._found[key] = one if before is None else before.with_other(one)
        for facts in one.facts:
            parts = facts.name.split(".")
            for count in range(1, len(parts) + 1):
                self._names.setdefault(".".join(parts[:count]), set()).add(key)

    def add_snapshot(self, key: str, size: int) -> None:
        """Note a snapshot of a disk of an instance, with its size in MiB."""
        before = self._found[key]
        self._found[key] = replace(before, snapshots=before.snapshots + size)

    def copy(self) -> Instances:
        """Return the same instances; changes of one are not seen in the other."""
        found = Instances(self.defaults)
        for key, one in self._found.items():
            found.put(key, one)
        return found


#: What a job may lead to: the key of each instance, and what it may have.
Changes = list[tuple[str, Instance]]


def may_grow(ops: Iterable[OpCode]) -> bool:
    """Return whether opcodes may let an instance grow."""
    return any(op.OP_ID in _READERS for op in ops)


def named(ops: Iterable[OpCode]) -> set[str]:
    """Return names and UUIDs of the instances in opcodes, also of those which they make."""
    found: set[str | None] = set()
    for op in ops:
        if op.OP_ID == _MULTI_ALLOC:
            found.update(one.get("instance_name") for one in _made_together(op))
        elif op.OP_ID in _READERS:
            found.add(getattr(op, "instance_uuid", None) or getattr(op, "instance_name", None))
            found.add(getattr(op, "new_name", None))
            if op.OP_ID == _TAGS_SET:
                found.add(getattr(op, "name", None))
    return {name for name in found if isinstance(name, str) and name}


def needs_defaults(ops: Iterable[OpCode]) -> bool:
    """Return whether the backend parameters of the cluster decide what opcodes make."""
    return any(op.OP_ID in (_CREATE, _MULTI_ALLOC, _SET_PARAMS) for op in ops)


def needs_snapshots(ops: Iterable[OpCode]) -> bool:
    """Return whether one has to know the snapshots of the instances in opcodes."""
    return any(op.OP_ID == _SNAPSHOT for op in ops)


def after(ops: Iterable[OpCode], known: Instances) -> Changes:
    """Note what instances may have after the opcodes of a job, and return it.

    :param known: is changed.
    """
    changes: Changes = []
    for op in ops:
        reader = _READERS.get(op.OP_ID)
        for key, one in reader(op, known) if reader is not None else ():
            known.put(key, one)
            changes.append((key, one))
    return changes


# -- opcodes -------------------------------------------------------------------------------------


def _create(op: Any, known: Instances) -> Changes:
    return [_created(op.instance_name, op.to_dict(), known)]


def _created(name: str, given: Mapping[str, Any], known: Instances) -> tuple[str, Instance]:
    beparams, disks = given.get("beparams") or {}, given.get("disks") or []
    memory, vcpus = _memory(beparams), _count(beparams.get("vcpus"))
    unknown: set[str] = set()
    if given.get("mode") not in (None, instance_const.CREATE):
        # What is not given comes from the description of the export.
        unknown.update({MEMORY} if memory is None else (), {VCPUS} if vcpus is None else ())
        if not disks and given.get("disk_template") != disk_const.DISKLESS:
            unknown.add(DISK)
    sizes = tuple(_size(one.get("size")) for one in disks if isinstance(one, Mapping))
    made = Instance(
        (Facts(name, "", frozenset(given.get("tags") or ())),),
        _number(known.defaults.get("maxmem")) or 0 if memory is None else memory,
        _count(known.defaults.get("vcpus")) or 0 if vcpus is None else vcpus,
        sizes,
        sum(sizes),
        0,
        frozenset(unknown),
    )
    return known.key(name), made


def _made_together(op: Any) -> list[Mapping[str, Any]]:
    return [one for one in op.instances if isinstance(one, Mapping)]


def _multi_alloc(op: Any, known: Instances) -> Changes:
    return [_created(str(one.get("instance_name")), one, known) for one in _made_together(op)]


def _existing(op: Any, known: Instances) -> tuple[str, Instance | None]:
    key = known.key(op.instance_name, op.instance_uuid or "")
    return key, known.get(key)


def _copy(op: Any, known: Instances) -> Changes:
    _key, source = _existing(op, known)
    if source is None:
        return []
    disks = list(source.disks)
    for index, given in enumerate(op.disks[: len(disks)]):
        disks[index] = max(disks[index], _size(given.get("size")))
    facts = tuple(replace(one, name=op.new_name, uuid="") for one in source.facts)
    made = replace(source, facts=facts, disks=tuple(disks), disk=sum(disks), snapshots=0)
    return [(known.key(op.new_name), made)]


def _grow_disk(op: Any, known: Instances) -> Changes:
    key, before = _existing(op, known)
    if before is None or op.disk >= len(before.disks):
        return []
    disks = list(before.disks)
    amount = _size(op.amount)
    disks[op.disk] = max(disks[op.disk], amount if op.absolute else disks[op.disk] + amount)
    return [(key, before.with_disks(disks))]


def _recreate_disks(op: Any, known: Instances) -> Changes:
    key, before = _existing(op, known)
    if before is None:
        return []
    disks = list(before.disks)
    for item in op.disks:
        index, changes = (item, {}) if isinstance(item, int) else item
        if index < len(disks) and "size" in changes:
            disks[index] = _size(changes["size"])
    return [(key, before.with_disks(disks))]


def _set_params(op: Any, known: Instances) -> Changes:
    key, before = _existing(op, known)
    if before is None:
        return []
    given = {
        name: known.defaults.get({"memory": "maxmem"}.get(name, name))
        if value in (None, VALUE_DEFAULT)
        else value
        for name, value in op.beparams.items()
    }
    memory, vcpus = _memory(given), _count(given.get("vcpus"))
    found = before.with_disks(_changed_disks(op.disks, before.disks))
    if any(change[0] == disk_const.MOD_ATTACH for change in op.disks):
        found = replace(found, unknown=found.unknown | {DISK})
    if memory is not None:
        found = replace(found, memory=memory)
    if vcpus is not None:
        found = replace(found, vcpus=vcpus)
    return [(key, found)]


def _changed_disks(changes: Sequence[Sequence[Any]], disks: Sequence[int]) -> list[int]:
    """Return the sizes of disks after changes of an opcode.

    A disk that is removed by its name or UUID counts on: no size is known by a name here.
    """
    found = list(disks)
    for action, *middle, params in changes:
        index = middle[0] if middle else -1
        if not isinstance(index, int) and str(index).lstrip("-").isdigit():
            index = int(index)
        if action == disk_const.MOD_ADD:
            size = _size(params.get("size"))
            found.insert(index if isinstance(index, int) and index >= 0 else len(found), size)
        elif action in (disk_const.MOD_REMOVE, disk_const.MOD_DETACH):
            if isinstance(index, int) and -len(found) <= index < len(found):
                del found[index]
    return found


def _snapshot(op: Any, known: Instances) -> Changes:
    key, before = _existing(op, known)
    if before is None:
        return []
    wanted = op.disks or range(len(before.disks))
    more = sum(before.disks[index] for index in set(wanted) if index < len(before.disks))
    return [(key, replace(before, snapshots=before.snapshots + more))]


def _rename(op: Any, known: Instances) -> Changes:
    key, before = _existing(op, known)
    if before is None:
        return []
    return [(key, replace(before, facts=tuple(replace(f, name=op.new_name) for f in before.facts)))]


def _tags_set(op: Any, known: Instances) -> Changes:
    if op.kind != tags_const.INSTANCE or not op.name:
        return []
    key = known.key(op.name, op.name)
    before = known.get(key)
    if before is None:
        return []
    return [(key, replace(before, facts=tuple(f.changed(more=op.tags) for f in before.facts)))]


_DIGITS: Final = 10
_CREATE: Final = "OP_INSTANCE_CREATE"
_MULTI_ALLOC: Final = "OP_INSTANCE_MULTI_ALLOC"
_SNAPSHOT: Final = "OP_INSTANCE_SNAPSHOT"
_SET_PARAMS: Final = "OP_INSTANCE_SET_PARAMS"
_TAGS_SET: Final = "OP_TAGS_SET"
_READERS: Final[Mapping[str, Callable[[Any, Instances], Changes]]] = {
    _CREATE: _create,
    _MULTI_ALLOC: _multi_alloc,
    _SET_PARAMS: _set_params,
    _TAGS_SET: _tags_set,
    "OP_INSTANCE_COPY": _copy,
    "OP_INSTANCE_GROW_DISK": _grow_disk,
    "OP_INSTANCE_RECREATE_DISKS": _recreate_disks,
    "OP_INSTANCE_RENAME": _rename,
    _SNAPSHOT: _snapshot,
}


def _memory(beparams: Mapping[str, Any]) -> int | None:
    """Return the most memory in MiB; None if it is not given."""
    given = [_number(beparams[name]) for name in ("maxmem", "memory") if name in beparams]
    return max((value for value in given if value is not None), default=None)


def _number(value: Any) -> int | None:
    """Return memory in MiB; None for the value of the cluster."""
    if value in (None, VALUE_DEFAULT):
        return None
    return max(0, value) if isinstance(value, int) else _size(value)


def _count(value: Any) -> int | None:
    """Return a number of processors; None for the value of the cluster."""
    if value in (None, VALUE_DEFAULT):
        return None
    word = str(value)
    # The job refuses another value.
    return int(word) if word.isascii() and word.isdigit() and len(word) < _DIGITS else 0


def _size(value: Any) -> int:
    """Return a size in MiB; 0 for a value that the job will refuse."""
    try:
        return text.parse_unit(value)
    except errors.UnitParseError:
        return 0
