"""Arms the device, feeds it while that is allowed, and disarms it when the master agrees.

The order of the steps is the promise. The device is opened only with a valid lease, because opening
feeds it. The promise is durable before the device is reported as armed, and it ends only when the
master has released the node: it has removed its record before. Until then the device is fed by the
rule, also when the administrator has asked this process to stop.

Times are those of a clock which also counts while the machine sleeps.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple

from ganeti import errors
from ganeti.constants import node_watchdog as const
from ganeti.platform import watchdog_files as files
from ganeti.platform.watchdog_files import Promise, Report
from ganeti.utils import text
from ganeti.watchdogd import rule
from ganeti.watchdogd.candidate_poll import CandidatePoll
from ganeti.watchdogd.device import Device

_log = logging.getLogger(__name__)

#: Seconds between two polls, two questions, and two attempts to open a device.
POLL_S = 0.5
ASK_S = 1.0
_RETRY_S = 10.0


class Facts(NamedTuple):
    """What the files of this node say.

    :ivar timeout_s: the parameter ``node_watchdog``; 0 for never.
    :ivar candidates: primary addresses of the master candidates.
    :ivar key: with which questions are signed.
    """

    timeout_s: int
    candidates: tuple[str, ...]
    key: bytes


class Feeder:
    """The memory of the daemon, and one poll at a time.

    :param open_device: opens and arms the device with a timeout.
    :param facts: reads the files of the node; raises ConfigurationError.
    :param now: the clock.
    """

    def __init__(
        self,
        poll: CandidatePoll,
        open_device: Callable[[int], Device],
        facts: Callable[[], Facts],
        now: Callable[[], float],
    ) -> None:
        self._poll = poll
        self._open_device = open_device
        self._read_facts = facts
        self._now = now
        self._lease = rule.Lease()
        self._verdict = rule.judge({})
        self._device: Device | None = None
        self._refused = ""
        self._open_at = float("-inf")
        self._stopping = False
        self._promise = files.read_promise()
        self._wanted_s = 0 if self._promise is None else self._promise.timeout_s
        self._facts = Facts(self._wanted_s, (), b"")
        self._unfed = ""
        self._report: Report | None = None

    def stop(self) -> None:
        """Ask for the release of this node; :meth:`is_done` tells when the process may end."""
        self._stopping = True

    def is_done(self) -> bool:
        """Tell whether the process may end, because it is to stop and nothing is promised."""
        return self._stopping and self._promise is None and self._device is None

    def poll(self) -> None:
        """Take in answers, feed the device, and do what is due."""
        self._poll.take()
        self._verdict = rule.judge(self._poll.opinions)
        self._lease.take(self._poll.asked_at, self._verdict)
        self._feed()
        try:
            self._facts = self._read_facts()
        except errors.ConfigurationError as err:
            # Nothing new is promised, and what was promised is kept.
            _log.warning("%s", err)
        now = self._now()
        if now - self._poll.asked_at >= ASK_S and self._facts.key:
            peers = rule.peers(self._facts.candidates, self._poll.opinions)
            self._poll.ask(self._facts.key, sorted(peers), now)
        try:
            self._end_promise()
            reason = self._why_not()
            if not reason:
                reason = self._arm()
            self._tell(reason)
        except (OSError, errors.GenericError) as err:
            _log.error("%s", err)
        self._feed()

    # -- feeding ---------------------------------------------------------------------------------

    def _feed(self) -> None:
        """Feed the device if that is allowed; the time is read last."""
        if self._device is None or not self._lease.is_valid(self._now()):
            return
        try:
            self._device.feed()
            self._unfed = ""
        except errors.HypervisorError as err:
            # It stays open: if it still counts, it restarts the machine, as promised.
            if not self._unfed:
                _log.critical("%s", err)
            self._unfed = str(err)

    # -- promise ---------------------------------------------------------------------------------

    def _why_not(self) -> str:
        """Return why this node should not have a promise; empty if it should."""
        if self._stopping:
            return f"{files.DAEMON} is being stopped"
        if not self._facts.timeout_s:
            return "the cluster does not use the watchdogs of its nodes"
        if self._verdict.allowed and self._verdict.candidates < const.LEAST_CANDIDATES:
            return (
                f"the cluster has fewer than {const.LEAST_CANDIDATES} master candidates, so the"
                " loss of one would restart all nodes"
            )
        wanted_s = self._facts.timeout_s
        if self._promise is not None and wanted_s not in (
            self._wanted_s,
            self._promise.timeout_s,
        ):
            return f"the timeout changes to {wanted_s} s"
        return self._unfed

    def _arm(self) -> str:
        """Open the device and promise; returns why that is not done now."""
        if self._device is not None and self._promise is not None:
            return ""
        if self._device is None:
            if not self._lease.is_valid(self._now()):
                return self._verdict.reason or "the master candidates have not answered yet"
            if self._refused and self._now() < self._open_at:
                return self._refused
            promised_s = 0 if self._promise is None else self._promise.timeout_s
            timeout_s = promised_s or self._facts.timeout_s
            try:
                device = self._open_device(timeout_s)
                if promised_s and device.timeout_s > promised_s:
                    # It would fire later than the master expects.
                    device.disarm()
                    raise errors.HypervisorError(
                        f"the device has the timeout {device.timeout_s} s instead of {promised_s} s"
                    )
            except errors.HypervisorError as err:
                return self._refuse(str(err))
            self._refused = ""
            self._device, self._wanted_s = device, timeout_s
            _log.info("the device is armed, with a timeout of %d s", device.timeout_s)
        if self._promise is None:
            promise = Promise(text.new_uuid(), self._device.timeout_s)
            try:
                files.write_promise(promise)
            except OSError as err:
                self._device.disarm()
                self._device = None
                return self._refuse(f"the promise cannot be stored: {err.strerror}")
            self._promise = promise
        return ""

    def _refuse(self, reason: str) -> str:
        self._refused, self._open_at = reason, self._now() + _RETRY_S
        return reason

    def _end_promise(self) -> None:
        """Disarm the device when the master has released this node."""
        if self._promise is None or files.read_release() != self._promise.token:
            return
        _log.info("the master has released this node from its promise")
        if self._device is not None:
            self._device.disarm()
            self._device = None
        files.write_promise(None)
        self._promise = None

    def _tell(self, reason: str) -> None:
        """Report what this daemon does."""
        promise = self._promise
        if promise is None:
            report = Report(const.NONE, "", 0, reason)
        elif self._device is not None and not reason:
            left = "" if self._verdict.allowed else self._verdict.reason
            report = Report(const.ARMED, promise.token, promise.timeout_s, left)
        elif self._device is None and self._is_waiting(reason):
            # After a restart: the promise is kept, and the device is opened as soon as possible.
            report = Report(const.NONE, "", 0, reason)
        else:
            report = Report(const.RELEASE, promise.token, promise.timeout_s, reason)
        if report != self._report:
            if self._report is None or report.state != self._report.state:
                _log.info("%s: %s", report.state, report.text or "the device is fed")
            files.write_report(report)
            self._report = report

    def _is_waiting(self, reason: str) -> bool:
        return not self._stopping and bool(self._facts.timeout_s) and reason != self._refused
