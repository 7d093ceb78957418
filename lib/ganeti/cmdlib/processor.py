"""The processor: executes one opcode with its logical unit.

The job queue calls :meth:`Processor.execute` on a worker thread, one call per opcode. The processor
acquires the locks level by level, reports to the queue that the opcode runs, and calls
``check_prereq`` of the unit, the pre hooks, ``exec`` and the post hooks. It submits the jobs which
the unit asked for and checks the type of the result. Locks and reservations of the run are always
released when the call returns or raises.

Its errors are for the user: :class:`~ganeti.errors.OpPrereqError` when nothing was changed,
:class:`~ganeti.errors.OpExecError` when something may have been changed, and the errors of hooks
and of the queue as they are.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from ganeti import cmdlib, errors
from ganeti.cmdlib import dry_run, prereq
from ganeti.cmdlib.base import (
    AnyUnit,
    JobContext,
    LuContext,
    MasterContext,
    OpCallbacks,
    ResultWithJobs,
)
from ganeti.cmdlib.hooks import HookRunner
from ganeti.config.history import Author
from ganeti.constants import job as job_const
from ganeti.locking import ALL, BGL, EXCLUSIVE, Level
from ganeti.query import job_rules
from ganeti.utils import author, tracing

if TYPE_CHECKING:
    from collections.abc import Collection

    from ganeti.opcodes.base import OpCode

__all__ = ["MasterContext", "OpCallbacks", "Processor"]

log = logging.getLogger(__name__)


def _author(op: OpCode, callbacks: OpCallbacks) -> Author:
    """Return the author of changes of the configuration while this opcode runs, for its history."""
    # Each user may send a trail, and other programs may have written other values.
    trail = list(job_rules.reasons([{"reason": op.reason}]))
    # The reason which the user gave, and the program which submitted the opcode.
    given = next((text for source, text, _ in trail if source == job_const.REASON_USER), "")
    others = (job_const.REASON_USER, job_const.REASON_PERSON)
    source = next((source for source, _, _ in trail if source not in others), "")
    return Author(
        callbacks.owner.job_id, op.OP_ID, str(source), str(given), author.person(op.reason)
    )


def _completed_op(op: OpCode, submitter: OpCode) -> OpCode:
    """Return an opcode with what it inherits from the one which asked for its job."""
    return op.replace(
        reason=[*(submitter.reason or []), *(op.reason or [])],
        priority=submitter.priority,
        debug_level=submitter.debug_level,
        comment=f"Submitted by {submitter.OP_ID}" if op.comment is None else op.comment,
    )


class Processor:
    """Executes opcodes; it has no state of its own, so all workers share one object."""

    def __init__(self, context: JobContext) -> None:
        self._context = context

    def execute(self, op: OpCode, callbacks: OpCallbacks) -> object:
        """Execute one opcode and return its result.

        :param op: a valid opcode: the job queue validated it when the job was submitted, or read
            from its file.
        :raises errors.OpPrereqError: refused, nothing was changed.
        :raises errors.OpExecError: it failed in ``exec``; the text names what is left.
        :raises errors.HooksAbort: a pre hook vetoed the operation.
        :raises errors.OpResultError: the result does not have the declared type of the opcode.
        :raises errors.JobCanceled: the job was canceled while it waited for locks.
        """
        unit_class = cmdlib.lookup(op.OP_ID)
        ctx = LuContext(self._context, callbacks, author=_author(op, callbacks))
        unit = unit_class(op, ctx)
        try:
            with tracing.span("locks"):
                self._acquire_big_lock(unit)
                unit.expand_names()
                for level in Level:
                    if level is not Level.CLUSTER:
                        self._acquire_level(unit, level)
            callbacks.check_cancel()
            callbacks.notify_start()
            result = self._run(unit)
        finally:
            self._clean_up(unit)
        if isinstance(result, ResultWithJobs):
            # The locks are released first, so that the new jobs need not wait for them.
            result = self._submit(op, callbacks, result)
        self._check_result(op, result)
        return result

    # -- locks -----------------------------------------------------------------

    def _acquire_big_lock(self, unit: AnyUnit) -> None:
        self._acquire(unit, Level.CLUSTER, [BGL], shared=not unit.REQ_BGL)

    def _acquire_level(self, unit: AnyUnit, level: Level) -> None:
        unit.ctx.callbacks.check_cancel()
        unit.declare_locks(level)
        if level not in unit.needed_locks:
            return
        wanted = unit.needed_locks[level]
        added = unit.added_locks.get(level, [])
        if added:
            self._context.locks.add(level, added)
        if wanted is ALL or wanted:
            self._acquire(unit, level, wanted, shared=level in unit.shared_levels)
        unit.locks_acquired(level)

    def _acquire(
        self, unit: AnyUnit, level: Level, keys: Collection[str] | None, *, shared: bool
    ) -> None:
        callbacks = unit.ctx.callbacks
        try:
            self._context.locks.acquire(
                callbacks.owner,
                level,
                keys,
                shared=shared,
                opportunistic=level in unit.opportunistic_levels,
                priority=callbacks.priority,
                canceled=callbacks.check_cancel,
            )
        except errors.LockError as err:
            gone = (
                [] if keys is ALL else [key for key in keys or () if not self._exists(level, key)]
            )
            if not gone:
                raise
            raise errors.OpPrereqError(
                f"{level.label} {', '.join(sorted(gone))} was removed while the job waited for it",
                errors.ECODE_NOENT,
            ) from err

    def _exists(self, level: Level, key: str) -> bool:
        """Return True if the object exists to which a lock belongs."""
        data = self._context.config.snapshot()
        if level is Level.INSTANCE:
            return key in data.instances
        if level in (Level.NODE, Level.NODE_RES):
            return key in data.nodes
        if level is Level.NODEGROUP:
            return key in data.nodegroups
        if level is Level.NETWORK:
            return key in data.networks
        return True

    def _clean_up(self, unit: AnyUnit) -> None:
        """Release reservations and locks; remove locks of objects which do not exist (any more)."""
        locks, owner = self._context.locks, unit.ctx.owner
        try:
            unit.config.release_reservations()
        finally:
            try:
                self._hand_over(unit)
                for level in reversed(Level):
                    self._remove_stale(unit, level)
            finally:
                locks.release(owner)
        for level, keys in unit.added_locks.items():
            self._remove_unused(unit, level, keys)

    def _hand_over(self, unit: AnyUnit) -> None:
        """Hand over the locks of the instances on which nodes may still work for this run."""
        orphaned, unsure = self._context.orphaned_work, unit.rpc.unsure
        if orphaned is not None and unsure:
            owner = unit.ctx.owner
            held = self._context.locks.owned(owner, Level.INSTANCE)
            orphaned.hand_over(
                owner.job_id,
                sorted(unsure),
                [uuid for uuid, mode in held.items() if mode == EXCLUSIVE],
            )

    def _remove_stale(self, unit: AnyUnit, level: Level) -> None:
        """Remove the locks for which this run asked by key and whose object does not exist.

        Locks which it holds through the lock of the whole level stay: they may belong to an object
        which another job is going to add.
        """
        locks, owner = self._context.locks, unit.ctx.owner
        held = locks.owned(owner, level)
        gone = [
            key
            for key in unit.needed_locks.get(level) or ()
            if held.get(key) == EXCLUSIVE and not self._exists(level, key)
        ]
        if gone:
            locks.remove(level, gone, owner)

    def _remove_unused(self, unit: AnyUnit, level: Level, keys: list[str]) -> None:
        """Remove locks which were added but not acquired, because the run ended before."""
        locks, owner = self._context.locks, unit.ctx.owner
        unused = [k for k in keys if k in locks.keys(level) and not self._exists(level, k)]
        if not unused:
            return
        if locks.acquire(owner, level, unused, shared=False, timeout_s=0) is None:
            log.warning("unused locks %s are held by another job and stay", ", ".join(unused))
            return
        try:
            locks.remove(level, unused, owner)
        finally:
            locks.release(owner)

    # -- phases ----------------------------------------------------------------

    def _run(self, unit: AnyUnit) -> object:
        """Call the phases after the locks, with their hooks; returns the result of the opcode."""
        config = self._context.config
        serial_before = config.snapshot().serial_no
        try:
            with prereq.recorded() as passed, tracing.span("check_prereq"):
                plan = unit.check_prereq()
        except errors.RpcError as err:
            raise errors.OpPrereqError(str(err), errors.ECODE_ENVIRON) from err
        hooks = unit.hooks = HookRunner(unit, plan, unit.log.warn)
        with tracing.span("hooks pre"):
            hooks.pre()
        if unit.op.dry_run:
            unit.log.info("dry run: everything is checked, nothing is changed")
            found = dry_run.plan_of(unit, plan, passed)
            unit.log.feedback(dry_run.text_of(found))
            return found if unit.op.plan else unit.dry_run_result(plan)
        # The last moment at which nothing has been changed.
        unit.ctx.callbacks.check_cancel()
        try:
            with tracing.span("exec"):
                result = unit.exec(plan)
            with tracing.span("hooks post"):
                result = hooks.post(result)
        except errors.RpcError as err:
            raise errors.OpExecError(str(err)) from err
        finally:
            if config.snapshot().serial_no != serial_before:
                hooks.config_update()
        return result

    @staticmethod
    def _submit(op: OpCode, callbacks: OpCallbacks, wanted: ResultWithJobs) -> dict[str, Any]:
        """Submit the jobs which the unit asked for; they inherit reason and priority.

        :returns: the result of the opcode: ``jobs`` and the other values of the unit.
        """
        jobs = [[_completed_op(one, op) for one in job] for job in wanted.jobs]
        return {"jobs": callbacks.submit_jobs(jobs), **wanted.others}

    def _check_result(self, op: OpCode, result: object) -> None:
        check = type(op).RESULT
        if op.dry_run or check is None or check(result):
            return
        raise errors.OpResultError(f"{op.OP_ID} returned {result!r}, which is not {check}")
