"""How long ago this master could last commit a change; the end of a master which cannot.

A master which answers may be unable to commit: its requests to the candidates are cut off, or its
disk is full, read-only or does not respond. Where the role moves by itself (``auto_failover``), the
time since the last *confirmation* decides whether the master is well. A confirmation is a commit
which a majority of the candidates has, or a probe:

* A majority of the candidates answers a call of this master, which they refuse when they obey
  another one. With two candidates, the witness counts when the other one does not answer. These
  calls write nothing; there are several within the time of the parameter.
* The disk takes a file of the size of a commit. A commit of the last :data:`DISK_S` seconds shows
  the same, so the probe flushes only on an idle cluster: once in ten seconds, on the master alone.
  After a write which failed, the next probe follows at once.

The candidates learn the time from ``master_status``. A master which knows longer than the time of
the parameter that it cannot commit ends, so that it does not go on to answer with old data; but not
while the watcher is paused, and not where nobody else could become the master.

Source: ``doc/design-auto-failover.rst``, *A master which answers and cannot commit*.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import logging
import os
import threading
import time
from collections.abc import Callable
from typing import Final

from ganeti import errors
from ganeti.config import Config
from ganeti.configfile.files import JOURNAL_FROM_BYTES
from ganeti.jqueue.replication import MAJORITY_WAIT_S
from ganeti.master.fence import Fence
from ganeti.master.witness import MasterWitness
from ganeti.objects import ConfigData
from ganeti.platform import paths
from ganeti.replication.majority import WITNESS, has_quorum
from ganeti.replication.quorum import members, online_candidates
from ganeti.rpc import RpcRunner
from ganeti.rpc.results import Result
from ganeti.rpc.runner import Question
from ganeti.utils import fs, shortage
from ganeti.wire.calls import NODE_WORK
from ganeti.wire.calls.base import Call

_log = logging.getLogger(__name__)

#: Seconds after which the disk is tried again, if nothing was written meanwhile.
DISK_S: Final = 10.0
#: A master does not end before this time, so that who waits for a majority gets the answer.
PATIENCE_S: Final = MAJORITY_WAIT_S + 3.0
# The pause between two rounds of calls, and the time for an answer: parts of the parameter, and
# limits in seconds.
_PAUSE_PART, _PAUSE_MIN_S, _PAUSE_MAX_S = 5, 0.5, 5.0
_ANSWER_PART, _ANSWER_MIN_S, _ANSWER_MAX_S = 3, 1.0, 5.0
_IDLE_S: Final = 5.0
# So many members can elect another master without this one.
_ELECTORATE: Final = 3
# A commit needs this in addition to the text of a small configuration.
_SPARE_BYTES: Final = 1 << 16
_PROBE: Final = "probe"
_NO_ALLOCATION: Final = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)


def write_probe(here: paths.Paths | None = None) -> None:
    """Write a file as large as a commit beside the configuration and in the queue, and flush it.

    :raises OSError: a directory does not take it.
    """
    here = here or paths.current()
    size = min(os.stat(here.cluster_conf_file).st_size, JOURNAL_FROM_BYTES) + _SPARE_BYTES
    seen = set()
    for directory in (here.data_dir, here.queue_dir):
        device = os.stat(directory).st_dev
        if device not in seen:
            seen.add(device)
            _write_to(f"{directory}/.commit-probe", size)


def _write_to(path: str, size: int) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        try:
            os.posix_fallocate(fd, 0, size)
        except OSError as err:
            if err.errno not in _NO_ALLOCATION:
                raise
        os.pwrite(fd, b"probe\n", 0)
        os.fsync(fd)
    except OSError as err:
        raise OSError(err.errno, err.strerror, path) from err
    finally:
        os.close(fd)
        with contextlib.suppress(OSError):
            fs.remove_file(path)


class _Disk:
    """Whether the disk of this node takes a commit. Thread-safe."""

    def __init__(self, write: Callable[[], None], now: Callable[[], float]) -> None:
        self._write = write
        self._now = now
        self._lock = threading.Lock()
        # A master which has just started has written nothing yet.
        self._good_at: float | None = None
        self._begun_at: float | None = None
        # Why the last write of each kind has failed.
        self._failures: dict[str, str] = {}

    def note(self, kind: str, failure: str | None) -> None:
        """Note the end of a write: None, or why it failed.

        :param kind: what was written; a probe which succeeds stands for all kinds.
        """
        with self._lock:
            if failure is not None:
                self._failures[kind] = failure
                return
            self._good_at = self._now()
            if kind == _PROBE:
                self._failures.clear()
            else:
                self._failures.pop(kind, None)

    def failure(self, patience_s: float) -> str:
        """Return why the disk takes no commit; empty if it does, as far as this process knows.

        :param patience_s: seconds which a probe may take.
        """
        with self._lock:
            if self._begun_at is not None and self._now() - self._begun_at > patience_s:
                return f"a write has not ended for {self._now() - self._begun_at:.0f} s"
            return next(iter(self._failures.values()), "")

    def try_soon(self) -> None:
        """Begin a probe in another thread, if one is due and none is under way."""
        with self._lock:
            due = self._good_at is None or self._now() - self._good_at >= DISK_S
            if not (due or self._failures) or self._begun_at is not None:
                return
            self._begun_at = self._now()
        if shortage.start_thread(self._try, name="disk-probe") is None:
            with self._lock:
                self._begun_at = None

    def _try(self) -> None:
        try:
            self._write()
        except OSError as err:
            failure: str | None = f"{err.filename or 'the disk'}: {err.strerror or err}"
        else:
            failure = None
        with self._lock:
            self._begun_at = None
        self.note(_PROBE, failure)


class CommitProbe:
    """Knows when a majority confirmed last that this master can commit.

    :param write: tries the disk; raises :exc:`OSError`.
    :param override: the vote was overridden, so that this master may have no majority at all. It
        does not end before it had one.
    """

    def __init__(
        self,
        config: Config,
        runner: RpcRunner,
        fence: Fence,
        witness: MasterWitness,
        *,
        write: Callable[[], None] = write_probe,
        paused: Callable[[], bool] = lambda: False,
        override: bool = False,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config = config
        self._runner = runner
        self._fence = fence
        self._witness = witness
        self._paused = paused
        self._exempt = override
        self._now = monotonic
        self._disk = _Disk(write, monotonic)
        self._wake = threading.Event()
        self._confirmed_at: float | None = None
        self._failing_since: float | None = None
        self._said = ""

    # -- what others ask and report --------------------------------------------------------------

    def age_s(self) -> float | None:
        """Return the seconds since the last confirmation; None where the role does not move."""
        confirmed_at = self._confirmed_at
        return None if confirmed_at is None else max(0.0, self._now() - confirmed_at)

    def note_write(self, kind: str, failure: str | None) -> None:
        """Note that this node has written a change, or why it could not.

        :param kind: of the file, as :meth:`ganeti.master.fence.Fence.writing` has it.
        """
        self._disk.note(kind, failure)
        if failure is not None:
            self._wake.set()

    def note_commit(self, failure: str | None) -> None:
        """Note that a majority has a change of the configuration, or why it has not."""
        if failure is None:
            self._confirm()
        else:
            self._wake.set()

    def _confirm(self) -> None:
        if self._confirmed_at is not None:
            self._confirmed_at = self._now()
        self._failing_since = None
        self._exempt = False

    # -- the thread ------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the thread."""
        threading.Thread(target=self._run, name="commit-probe", daemon=True).start()

    def _run(self) -> None:
        while True:
            try:
                with shortage.as_error():
                    pause_s = self.round()
            except errors.GenericError as err:
                pause_s = _IDLE_S
                _log.error("cannot probe whether a majority takes changes: %s", err)
            # After a write which failed, the next round follows soon, but not without a pause.
            if self._wake.wait(pause_s):
                time.sleep(_PAUSE_MIN_S)
                self._wake.clear()

    def round(self) -> float:
        """Probe once, and end the master when its time is over.

        :returns: seconds until the next round.
        :raises errors.GenericError: a node call is not possible.
        """
        data = self._config.snapshot()
        limit_s = data.cluster.auto_failover
        candidates = online_candidates(data)
        if not limit_s or len(candidates) < 2:  # noqa: PLR2004
            self._confirmed_at = self._failing_since = None
            return _IDLE_S
        if self._confirmed_at is None:
            self._confirmed_at = self._now()
        self._disk.try_soon()
        failure = self._disk.failure(max(limit_s, DISK_S))
        local = bool(failure)
        failure = failure or self._ask(data, candidates, limit_s)
        if not failure:
            self._confirm()
        self._judge(data, limit_s, failure, local=local)
        return min(_PAUSE_MAX_S, max(_PAUSE_MIN_S, limit_s / _PAUSE_PART))

    def _ask(self, data: ConfigData, candidates: list[str], limit_s: int) -> str:
        """Ask the candidates, and if necessary the witness; return why there is no majority."""
        me = data.cluster.master_node
        have = {me}

        def note(_call: Call, uuid: str, result: Result) -> None:
            if result.failure is None:
                have.add(uuid)
                if has_quorum(have, members(data)):
                    # A node which does not answer must not delay the confirmation.
                    self._confirm()

        answer_s = min(_ANSWER_MAX_S, max(_ANSWER_MIN_S, limit_s / _ANSWER_PART))
        call = dataclasses.replace(NODE_WORK, timeout_s=answer_s)
        others = [uuid for uuid in candidates if uuid != me]
        self._runner.call_together([Question(call, others, {"revoke": []})], note)
        needed = members(data)
        text = f"only {len(have)} of {len(candidates)} master candidates answer"
        if not has_quorum(have, needed) and has_quorum({*have, WITNESS}, needed):
            refused = self._witness.record(0)
            if refused is None:
                return ""
            text = f"{text}, and the witness does not count ({refused})"
        return "" if has_quorum(have, needed) else text

    def _judge(self, data: ConfigData, limit_s: int, failure: str, *, local: bool) -> None:
        if failure != self._said:
            if failure:
                _log.warning("this master cannot commit changes: %s", failure)
            else:
                _log.info("this master can commit changes again")
            self._said = failure
        if not failure:
            return
        now = self._now()
        if self._failing_since is None:
            self._failing_since = now
        if now - self._failing_since <= max(limit_s, PATIENCE_S) or self._exempt:
            return
        if _others_decide(data, local=local) and not self._paused():
            self._fence.give_up(
                f"this master has not been able to commit changes for"
                f" {now - self._failing_since:.0f} s: {failure}"
            )


def _others_decide(data: ConfigData, *, local: bool) -> bool:
    """Tell whether other members can elect a master without this one.

    A master which has lost its only partner and the witness stays: the administrator marks the
    partner as offline there.

    :param local: the fault is the disk of this node.
    """
    return len(members(data) if local else online_candidates(data)) >= _ELECTORATE
