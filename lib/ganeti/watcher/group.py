"""The duties of the watcher for one node group, on the master.

In this order:

1. ask for the nodes and instances, and write the status file;
2. remove the instances whose import from another cluster has never ended;
3. start the instances which should run but are down, within limits
   (:mod:`ganeti.watcher.decisions`);
4. activate the disks of the instances on machines which have started again;
5. let the master verify the disks, which records interrupted mirrors and starts the self-repair of
   LVM, and activate the disks which are not active.

Restarts are noted in the memory before their jobs are submitted, with one flush for all those which
are submitted together, so that a run which is killed loses no count. The next run then looks for
the jobs of these restarts, and takes those back whose job was never submitted. When the memory
cannot be written, nothing is restarted: without the count an instance which always crashes would be
restarted for ever.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ganeti.constants import instance as instance_c
from ganeti.constants import job as job_c
from ganeti.constants import node as node_c
from ganeti.constants import query as query_c
from ganeti.opcodes.group import OpGroupVerifyDisks
from ganeti.opcodes.instance import OpInstanceActivateDisks, OpInstanceRemove, OpInstanceStartup
from ganeti.platform import paths
from ganeti.utils import clock, fs
from ganeti.watcher import decisions, memory, restarting
from ganeti.watcher.decisions import Decision, ObservedInstance, ObservedNode

if TYPE_CHECKING:
    from ganeti.luxi.client import Client
    from ganeti.opcodes.base import OpCode

_log = logging.getLogger(__name__)

_CLOCK_S = 60.0

_NODE_FIELDS = ("name", "offline", "bootid", "maintenance")
_INSTANCE_FIELDS = (
    "name",
    "status",
    "pnode",
    "snodes",
    "disks_active",
    "disk.count",
    "tags",
    "importing_since",
    "uuid",
    "guest_state",
)


@dataclass(frozen=True, slots=True)
class Options:
    """What the options of the program say about a run.

    :ivar dry_run: print what would be done, and change nothing.
    :ivar verify_disks: let the master verify the disks.
    :ivar strict: a node which does not answer to the verification is an error.
    :ivar name: of the node group, for messages.
    :ivar job_age_s: seconds after the end of a job, after which it may be in the archive; negative
        for never.
    """

    dry_run: bool = False
    verify_disks: bool = True
    strict: bool = True
    name: str = ""
    job_age_s: int = -1


@dataclass(frozen=True, slots=True)
class Observation:
    """The state of a node group.

    :ivar busy: name of an instance -> an unfinished job which names it.
    """

    nodes: list[ObservedNode]
    instances: list[ObservedInstance]
    busy: dict[str, int]


class GroupRun:
    """One run of the watcher for one node group.

    :param client: a client of the master.
    :param group: UUID of the group.
    :param now: returns seconds since 1970.
    """

    def __init__(
        self,
        client: Client,
        group: str,
        options: Options,
        *,
        now: Callable[[], float] = clock.now,
    ) -> None:
        self._client = client
        self._group = group
        self._options = options
        self._now = now
        self._file = paths.current().watcher_state_file(group)

    def run(self) -> None:
        """Do everything that is missing.

        :raises errors.JobQueueDrainError: the queue takes no jobs; the status file is written.
        :raises errors.LuxiError: the master does not answer any more.
        :raises OSError: the memory cannot be read or written.
        """
        seen = observe(self._client, self._group)
        _log.debug("%d nodes, %d instances", len(seen.nodes), len(seen.instances))
        self._memory = memory.load(self._file)
        settle(self._client, self._memory, self._now(), self._options.job_age_s)
        if not self._options.dry_run:
            write_status(self._group, seen.instances)
            self._memory.forget(
                (node.name for node in seen.nodes),
                (one.name for one in seen.instances),
                self._now(),
                decisions.FORGET_S,
            )
            memory.store(self._file, self._memory)
        self._act(
            decisions.unfinished_imports(seen.instances, seen.busy, self._now()),
            "remove it",
            _removal,
        )
        back = decisions.rebooted(seen.nodes, self._memory)
        # A node which was never seen may have run for a long time.
        again = {name: one for name, one in back.items() if name in self._memory.boot_ids}
        started = self._restart(seen)
        if not self._options.verify_disks:
            self._after_reboots(seen, back, started)
            return
        # The verification finds the inactive disks of nodes which were never seen, which saves the
        # first run in a cluster a job for each of its instances.
        activated = self._after_reboots(seen, again, started)
        if self._verify_disks(seen, [*started, *activated]):
            self._note_boots({name: one for name, one in back.items() if name not in again})

    def _restart(self, seen: Observation) -> list[str]:
        """Start instances; returns those of which a start was tried."""
        plan = decisions.restarts(seen.instances, self._memory, seen.busy, self._now())

        def note(opcodes: Mapping[str, OpCode]) -> None:
            for instance, opcode in opcodes.items():
                self._memory.note_restart(instance, self._now(), _stamp_ns(opcode))
            memory.store(self._file, self._memory)

        def forget(instances: Sequence[str]) -> None:
            # Nobody has taken their jobs, so these were not restarts.
            if not instances:
                return
            for instance in instances:
                self._memory.take_back(instance)
            memory.store(self._file, self._memory)

        self._act(plan, "start it", _start, before=note, refused=forget)
        if self._memory.unconfirmed:
            # All jobs were taken. When this is lost, the next run looks for them.
            self._memory.unconfirmed.clear()
            memory.store(self._file, self._memory)
        return [one.instance for one in plan if one.act]

    def _after_reboots(
        self, seen: Observation, back: Mapping[str, str], started: Iterable[str]
    ) -> list[str]:
        """Activate disks; returns the instances for which that was tried."""
        plan = decisions.activations(seen.instances, back, seen.busy, started)
        succeeded = self._act(plan, "activate its disks", _activation)
        if not self._options.dry_run:
            failed = {one.instance for one in plan} - set(succeeded)
            # A node is done when all disks on it are; otherwise the next run tries again.
            open_nodes = {
                node for one in seen.instances if one.name in failed for node in one.nodes
            }
            self._note_boots({name: one for name, one in back.items() if name not in open_nodes})
        return [one.instance for one in plan if one.act]

    def _note_boots(self, boot_ids: Mapping[str, str]) -> None:
        if boot_ids:
            self._memory.boot_ids.update(boot_ids)
            memory.store(self._file, self._memory)

    def _verify_disks(self, seen: Observation, handled: Iterable[str]) -> bool:
        """Verify disks, and activate the inactive ones; returns whether the verification ended."""
        if self._options.dry_run:
            print(f"The disks of node group {self._options.name} would be verified.")
            return False
        opcode = OpGroupVerifyDisks(group_name=self._group, is_strict=self._options.strict)
        opcode.reason = restarting.reason("verify disks")
        result = restarting.run_one(self._client, opcode)
        if result is None:
            _log.error("the disks could not be verified")
            return False
        unresponsive, inactive, missing = result
        for node, why in sorted(unresponsive.items()):
            _log.error("disks on node %s cannot be verified: %s", node, why)
        for instance, volumes in sorted(missing.items()):
            listed = ", ".join(f"{volume} on {node}" for node, volume in volumes)
            _log.error(
                "instance %s: disks are missing: %s. See 'gnt-instance info %s'",
                instance,
                listed,
                instance,
            )
        present = [name for name in inactive if name not in missing]
        busy = unfinished_jobs(self._client, seen.instances) if present else {}
        self._act(
            decisions.inactive(present, seen.instances, busy, handled),
            "activate its disks",
            _activation,
        )
        return True

    def _act(
        self,
        plan: Sequence[Decision],
        what: str,
        make: Callable[[str], OpCode],
        before: Callable[[Mapping[str, OpCode]], None] = lambda opcodes: None,
        refused: Callable[[Sequence[str]], None] = lambda instances: None,
    ) -> list[str]:
        """Carry out the decisions to act, and report the others; returns who succeeded."""
        work = []
        for one in plan:
            if not one.act:
                _report(self._options.dry_run, f"instance {one.instance}: {one.why}")
                continue
            _report(self._options.dry_run, f"instance {one.instance}: {what}, because {one.why}")
            opcode = make(one.instance)
            opcode.reason = restarting.reason(one.why)
            work.append((one.instance, opcode))
        if self._options.dry_run:
            return []
        return restarting.run(self._client, work, before=before, refused=refused)


def _stamp_ns(opcode: OpCode) -> int:
    """Return the time in the reason of an opcode which the watcher submits."""
    stamp: int = opcode.reason[0][2]
    return stamp


def settle(client: Client, known: memory.Memory, now: float, job_age_s: int = -1) -> None:
    """Look whether the jobs of restarts which an earlier run has counted were submitted.

    Usually they were; a run which was killed may have counted a restart and not submitted its job.

    :param now: in seconds since 1970.
    :param job_age_s: see :class:`Options`; a restart whose job may be in the archive counts.
    """
    if not known.unconfirmed:
        return
    # The job itself came later; a small step of the clock back does not matter.
    # Few runs need it, and it takes 20 ms.
    from ganeti.query import job_rules

    first_ns = min(one.stamp_ns for one in known.unconfirmed.values())
    # A filter takes whole numbers.
    first_s = int(first_ns / 1e9 - _CLOCK_S)
    stamps = {
        entry[2]
        for _job_id, opcodes in _rows(
            client, query_c.JOB, ("id", "ops"), [">=", "received_ts", first_s]
        )
        # Other programs may have written other values.
        for entry in job_rules.reasons(opcodes or ())
        if entry[0] == job_c.REASON_WATCHER and isinstance(entry[2], int)
    }
    for instance, one in list(known.unconfirmed.items()):
        archived = 0 <= job_age_s < now - one.stamp_ns / 1e9
        if one.stamp_ns in stamps or archived:
            known.confirm(instance)
        else:
            _log.info("instance %s: an earlier run ended before it submitted the job", instance)
            known.take_back(instance)


def _start(instance: str) -> OpCode:
    # A user may shut the instance down while the job waits; that counts.
    return OpInstanceStartup(instance_name=instance, wanted_only=True)


def _removal(instance: str) -> OpCode:
    return OpInstanceRemove(instance_name=instance, unfinished_import=True)


def _activation(instance: str) -> OpCode:
    return OpInstanceActivateDisks(instance_name=instance)


def _report(dry_run: bool, text: str) -> None:
    if dry_run:
        print(text)
    else:
        _log.info("%s", text)


def observe(client: Client, group: str) -> Observation:
    """Ask the master for the nodes and instances of a group, and for jobs which are running.

    :param group: UUID of the node group.
    """
    nodes = [
        ObservedNode(
            name,
            bool(offline),
            boot_id if isinstance(boot_id, str) else None,
            state in (node_c.MAINTENANCE_LEAVING, node_c.MAINTENANCE_READY),
        )
        for name, offline, boot_id, state in _rows(
            client, query_c.NODE, _NODE_FIELDS, ["=", "group.uuid", group]
        )
    ]
    left_alone = {node.name for node in nodes if node.maintenance}
    instances = [
        ObservedInstance(
            name,
            status,
            (primary, *(secondaries or ())),
            bool(disks_active and disks),
            tuple(tags or ()),
            tuple(node for node in (primary, *(secondaries or ())) if node in left_alone),
            since,
            uuid or "",
            "" if state in (None, *instance_c.GUEST_NOT_HALTED) else state,
        )
        for name, status, primary, secondaries, disks_active, disks, tags, since, uuid, state in (
            _rows(client, query_c.INSTANCE, _INSTANCE_FIELDS, ["=", "pnode.group.uuid", group])
        )
    ]
    return Observation(nodes, instances, unfinished_jobs(client, instances))


def _rows(
    client: Client, what: str, fields: Sequence[str], qfilter: list[Any]
) -> Iterable[list[Any]]:
    """Query; a value which is not available is None."""
    for row in client.query(what, fields, qfilter)["data"]:
        yield [value if status == query_c.RS_NORMAL else None for status, value in row]


def unfinished_jobs(client: Client, instances: Iterable[ObservedInstance]) -> dict[str, int]:
    """Return which instances an unfinished job names: name of the instance -> id of the job.

    A user may have named an instance by the first part of its name, or by its UUID.
    """
    unfinished = ["!", ["|", *(["=", "status", one] for one in sorted(job_c.FINALIZED))]]
    given: dict[str, int] = {}
    for job_id, opcodes in _rows(client, query_c.JOB, ("id", "ops"), unfinished):
        for opcode in opcodes or ():
            for name in _named(opcode):
                given.setdefault(name, job_id)
    if not given:
        return {}
    return {
        one.name: given[word]
        for one in instances
        for word in (*_short_names(one.name), one.uuid)
        if word in given
    }


def _named(opcode: Any) -> Iterable[str]:
    """Yield the instances which the parameters of an opcode name."""
    if not isinstance(opcode, Mapping):
        return
    many = opcode.get("instances")
    for name in [
        opcode.get("instance_name"),
        opcode.get("instance_uuid"),
        *(many if isinstance(many, list) else ()),
    ]:
        if isinstance(name, str):
            yield name.lower()


def _short_names(name: str) -> Iterable[str]:
    parts = name.split(".")
    return (".".join(parts[:count]) for count in range(1, len(parts) + 1))


def write_status(group: str, instances: Iterable[ObservedInstance]) -> None:
    """Write the state of each instance to the status file of the group: a line ``NAME STATUS``
    each.

    :raises OSError: the file cannot be written.
    """
    lines = sorted(f"{one.name} {one.status}\n" for one in instances)
    fs.write_file(
        paths.current().watcher_status_file(group), "".join(lines), mode=0o644, sync=False
    )
