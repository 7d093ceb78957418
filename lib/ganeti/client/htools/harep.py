"""The program ``harep``: repairs instances whose nodes are offline, as far as tags allow it.

It is run again and again. Each run looks at the jobs of earlier repairs, and submits a job for each
instance that needs a repair and may get it. What it knows between the runs is in tags of the
instances, see :mod:`ganeti.htools.repair`.
"""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from ganeti import errors
from ganeti.cli import failures, jobs
from ganeti.client.htools import execute as execute_jobs
from ganeti.client.htools import loading, luxi
from ganeti.client.htools import program as prog
from ganeti.client.htools.options import Values
from ganeti.constants import job as job_c
from ganeti.htools import cluster as model
from ganeti.htools import repair
from ganeti.htools.cluster import Cluster
from ganeti.htools.instance import RUNNING, Instance
from ganeti.htools.repair import History, Permission, Record, State
from ganeti.opcodes.base import OpCode
from ganeti.opcodes.instance import (
    OpInstanceFailover,
    OpInstanceRecreateDisks,
    OpInstanceReinstall,
    OpInstanceReplaceDisks,
    OpInstanceShutdown,
    OpInstanceStartup,
)
from ganeti.opcodes.tags import OpTagsDel, OpTagsSet
from ganeti.opcodes.test import OpTestDelay
from ganeti.wire import json

OPTIONS = ("luxi", "job-delay", "reason", "dry-run", "output")

_ALLOCATOR = "hail"
_COMMENT = "automated repairs by harep"
#: An instance in these states should run, so that it is started after it was installed again.
_SHOULD_RUN = frozenset((RUNNING, "ERROR_down", "ERROR_nodedown", "ERROR_nodeoffline"))


def execute(values: Values) -> int:
    """Look at earlier repairs, then repair what is broken."""
    try:
        cluster = luxi.load(values.luxi or "", kvm_memory=loading.kvm_memory(values))
        warnings = model.prepare(cluster)
    except errors.GenericError as failure:
        raise prog.Failure(f"failed to load data, aborting: {failure}") from failure
    if values.output is None:
        loading.print_warnings(warnings)
    with execute_jobs.interruptible(), luxi.connect(values.luxi or "") as client:
        return _Run(values, cluster, client).execute()


class _Run:
    """One run of the program.

    :ivar states: what is known about each instance, by its number.
    """

    def __init__(self, values: Values, cluster: Cluster, client: Any) -> None:
        self._values = values
        self._cluster = cluster
        self._client = client
        self._now = int(time.time())
        self.histories = {one.index: repair.history(one.tags) for one in cluster.instances}
        self.states = {index: known.state for index, known in self.histories.items()}
        self._report: dict[int, dict[str, Any]] = {}
        self._failed = False

    def execute(self) -> int:
        instances = [one for one in self._cluster.instances if not one.forthcoming]
        for one in instances:
            if self.states[one.index] == State.PENDING:
                self._each(one, self._look_at_jobs)
        for one in instances:
            if self.states[one.index] == State.HEALTHY:
                self._each(one, self._repair)
        self._print_end(instances)
        return prog.EXIT_FAILURE if self._failed else 0

    def _each(self, instance: Instance, action: Callable[[Instance], None]) -> None:
        """Do something for one instance; when it fails, the others still get their turn."""
        try:
            action(instance)
        except errors.NoMasterError:
            raise
        except errors.GenericError as failure:
            self._failed = True
            text = failures.describe(failure)[1]
            self._note(instance, error=text)
            prog.err(f"Error: {instance.name}: {text}")

    # -- earlier repairs --------------------------------------------------------------------------

    def _look_at_jobs(self, instance: Instance) -> None:
        """Write the result of a repair when all its jobs have ended."""
        known = self.histories[instance.index]
        numbers = sorted({job for one in known.pending for job in one.jobs})
        statuses = self._statuses(numbers)
        if not all(status in job_c.FINALIZED for status in statuses):
            return
        good = all(status == job_c.STATUS_SUCCESS for status in statuses)
        state = State.HEALTHY if good else State.FAILED
        self._say(f'Moving {instance.name} from "{State.PENDING.value}" to "{state.value}"')
        result = known.pending[-1].ended(repair.SUCCESS if good else repair.FAILURE, self._now)
        self._change_tags(instance, result, [*known.results, *known.pending])
        self.states[instance.index] = state
        self._note(instance, finished=result.result)

    def _statuses(self, numbers: Sequence[int]) -> list[str]:
        """Return the states of jobs.

        A job which is not even in the archive any more counts as failed.
        """
        if not numbers:
            return []
        states = luxi.parse_job_states(self._client.query_jobs(numbers, ["status"]), numbers)
        return [
            self._archived(number) if state is None else state
            for number, state in zip(numbers, states, strict=True)
        ]

    def _archived(self, number: int) -> str:
        chosen = ["&", ["=", "id", number], ["?", "archived"]]
        state = luxi.parse_archived_state(self._client.query("job", ["status"], chosen))
        return str(job_c.STATUS_ERROR) if state is None else state

    # -- new repairs ------------------------------------------------------------------------------

    def _repair(self, instance: Instance) -> None:
        wanted = repair.needed(instance, self._cluster.nodes)
        if wanted is None:
            return
        allowed = self._permission(instance)
        self._note(instance, needed=wanted)
        if allowed.type is None:
            why = repair.show_permission(allowed)
            self._say(f"Not repairing {instance.name} because it's in state {why}")
            self._note(instance, action=None, allowed=why)
            return
        self._note(instance, allowed=allowed.type)
        if not allowed.allows(wanted):
            self._refuse(instance, wanted, allowed.type)
            return
        self._say(f"Executing {repair.show_type(wanted)} repair on {instance.name}")
        numbers = self._submit(self._opcodes(instance, wanted))
        record = Record(wanted, str(uuid.uuid4()), self._now, tuple(numbers))
        self.states[instance.index] = State.PENDING
        self._note(instance, action=wanted, jobs=numbers)
        self._change_tags(instance, record, self._old_results(instance))

    def _permission(self, instance: Instance) -> Permission:
        group = self._cluster.groups[self._cluster.nodes[instance.primary].group]
        return repair.permission((instance.tags, group.tags, self._cluster.tags), self._now)

    def _refuse(self, instance: Instance, wanted: str, allowed: str) -> None:
        """Note once in the tags that a repair is needed which is not allowed."""
        self._say(
            f"Not performing a repair of type {repair.show_type(wanted)} on {instance.name} because"
            f" only repairs up to {repair.show_type(allowed)} are allowed"
        )
        self.states[instance.index] = State.NEEDS_REPAIR
        self._note(instance, action=None)
        old = self._old_results(instance)
        if any((one.type, one.result) == (wanted, repair.NOT_PERMITTED) for one in old):
            return
        record = Record(wanted, str(uuid.uuid4()), self._now, (), repair.NOT_PERMITTED)
        self._change_tags(instance, record, old)

    def _old_results(self, instance: Instance) -> list[Record]:
        """Return the results in the tags of an instance, with those which this run has written."""
        return list(self.histories[instance.index].results)

    def _opcodes(self, instance: Instance, wanted: str) -> list[OpCode]:
        name = instance.name
        steps: list[OpCode] = []
        if self._values.job_delay > 0:
            # The tag with the number of the job should be written before the job changes anything.
            steps.append(OpTestDelay(duration=self._values.job_delay, no_locks=True))
        if wanted == repair.FIX_STORAGE:
            steps.append(
                OpInstanceReplaceDisks(
                    instance_name=name, mode="replace_new_secondary", disks=[],
                    iallocator=_ALLOCATOR,
                )
            )  # fmt: skip
        elif wanted == repair.FAILOVER:
            steps.append(OpInstanceFailover(instance_name=name, ignore_consistency=False))
        else:
            starts = instance.status in _SHOULD_RUN
            if starts:
                # Disks are only created again for an instance which is marked as stopped.
                steps.append(OpInstanceShutdown(instance_name=name, ignore_offline_nodes=True))
            steps.append(OpInstanceRecreateDisks(instance_name=name, iallocator=_ALLOCATOR))
            steps.append(OpInstanceReinstall(instance_name=name))
            if starts:
                steps.append(OpInstanceStartup(instance_name=name))
        return steps

    # -- jobs -------------------------------------------------------------------------------------

    def _submit(self, steps: Sequence[OpCode]) -> list[int]:
        """Submit a job.

        :returns: its number; nothing for a dry run.
        """
        text = self._values.reason or "harep called"
        if self._values.dry_run:
            self._say(f"jobs: {json.dumps([[_shown(one) for one in steps]])}")
            return []
        for one in steps:
            one.reason = [["harep", text, time.time_ns()]]
            one.comment = _COMMENT
        with jobs.submission():
            return [self._client.submit_job(steps)]

    def _change_tags(self, instance: Instance, new: Record, old: Sequence[Record]) -> None:
        """Add a tag and remove others, with one job, and wait for it."""
        self._say(f'>>> Adding the following tag to {instance.name}:\n"{new.tag}"')
        name, gone = instance.name, [one.tag for one in old]
        steps: list[OpCode] = [OpTagsSet(kind="instance", tags=[new.tag], name=name)]
        if gone:
            lines = "\n".join(f'"{tag}"' for tag in gone)
            self._say(f">>> Removing the following tags from {instance.name}:\n{lines}")
            steps.append(OpTagsDel(kind="instance", tags=gone, name=name))
        if not self._values.dry_run:
            for number in self._submit(steps):
                jobs.wait_for_job(self._client, number, lambda _line: None)
        known = History() if new.result is None else History(results=(new,))
        self.histories[instance.index] = known

    # -- printing ---------------------------------------------------------------------------------

    def _say(self, text: str) -> None:
        if self._values.output is None:
            prog.out(text)

    def _note(self, instance: Instance, **facts: Any) -> None:
        self._report.setdefault(instance.index, {}).update(facts)

    def _print_end(self, instances: Sequence[Instance]) -> None:
        counts = Counter(self.states[one.index].value for one in instances)
        if self._values.output == "json":
            listed = [
                {
                    "name": one.name,
                    "state": self.states[one.index].value,
                    **self._report.get(one.index, {}),
                }
                for one in instances
            ]
            prog.out(json.dumps({"instances": listed, "counts": dict(sorted(counts.items()))}))
            return
        line = "-" * len("Instance status count")
        prog.out(f"{line}\nInstance status count\n{line}")
        for name, count in sorted(counts.items()):
            prog.out(f"{name}: {count}")


def _shown(step: OpCode) -> dict[str, Any]:
    """Return an opcode with the parameters which a user may want to read."""
    found = step.to_dict()
    return {
        key: value
        for key, value in found.items()
        if value is not None and key not in ("reason", "priority")
    }


PROGRAM = prog.Program("harep", OPTIONS, execute)


def run() -> int:
    """Run the program."""
    return prog.main(PROGRAM)
