"""The connection of a job process to the master daemon: requests, and the way back after a restart.

The process sends a request and waits for the answer. When the connection ends, the master daemon
was stopped, killed or restarted; the process then waits until it is back, as long as its node has
the role of the master, connects again, and says which opcode it is executing. The answer of the
new daemon is its epoch, and the process continues; or it is the order to end, because the job does
not count as running.

A process ends at once, in the middle of any step, when it must not act any more: its node
is not the master's any more, or the daemon asked it to end. It has nothing to undo then: it is in
the same situation as if it had been killed. A thread looks for another master, because the job may
wait for something else.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from typing import Any, Final, NoReturn

from ganeti import errors
from ganeti.jobexec import livelock, messages
from ganeti.jobexec.messages import Channel, ChannelClosed, ChannelTimeout
from ganeti.platform import master_epoch
from ganeti.utils import net

_log = logging.getLogger(__name__)

#: Seconds between two attempts to reach the master daemon.
RETRY_S: Final = 0.1
# Seconds between two checks of the role, and of the same while the process waits for an answer to
# its greeting.
_CHECK_S: Final = 2.0
_POLL_S: Final = 1.0
# Seconds within which the master daemon takes the message that this process cannot do anything.
_TELL_S: Final = 10.0

EXIT_ENDED: Final = 0
EXIT_FENCED: Final = 11


class Link:
    """The connection of this process.

    :param address: path of the socket of the master daemon for job processes.
    :ivar epoch: the epoch of the master daemon for which this process acts.
    :ivar running: number of the opcode which this process executes; None for none.
    :ivar loaded: serial number of the configuration which the present daemon has read.
    :ivar on_welcome: called when the process is connected again.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self._job_id = 0
        self._token = ""
        self._livelock_path = ""
        self._channel: Channel | None = None
        self.epoch = master_epoch.NONE
        self.running: int | None = None
        self.loaded = 0
        self.on_welcome: Callable[[], None] = lambda: None

    def begin(self, job_id: int, token: str) -> None:
        """Note that this process has a job, and no opcode of it yet."""
        self._job_id = job_id
        self._token = token
        self.running = None

    def serve(self, livelock_path: str) -> None:
        """Begin with the job; connect, if this process is not connected.

        :param livelock_path: of this process, for this job.
        """
        self._livelock_path = livelock_path
        if self._channel is None:
            self.connect()

    def tell_unable(self, why: str) -> None:
        """Tell the master daemon that this process cannot execute its job; it ends afterwards.

        Nothing is sent without a job, after the first opcode has arrived, or when the master daemon
        cannot be reached.
        """
        if not self._token or self.running is not None:
            return
        message = {"job": self._job_id, "token": self._token, "running": None, "unable": why}
        try:
            if self._channel is None:
                self._channel = Channel(net.unix_connect(self._address))
            self._channel.send(message)
            # The end of this process shall not be noticed before the reason.
            self._channel.receive(_TELL_S)
        except (OSError, ChannelClosed, ChannelTimeout, errors.ParseError) as err:
            _log.warning("job %d: the master daemon does not know why: %s", self._job_id, err)

    # -- connecting ---------------------------------------------------------------------------

    def connect(self) -> None:
        """Connect to the master daemon, and return when it tells this process to continue."""
        while True:
            self._check_role()
            try:
                sock = net.unix_connect(self._address)
            except OSError:
                time.sleep(RETRY_S)
                continue
            channel = Channel(sock)
            try:
                channel.send({"job": self._job_id, "token": self._token, "running": self.running})
                welcome = self._first_answer(channel)
            except ChannelClosed:
                channel.close()
                time.sleep(RETRY_S)
                continue
            if "end" in welcome:
                self.end(str(welcome["end"]))
            self._channel = channel
            self.epoch = master_epoch.parse(welcome["epoch"])
            self.loaded = int(welcome["loaded"])
            return

    def _first_answer(self, channel: Channel) -> Any:
        while True:
            try:
                return channel.receive(_POLL_S)
            except ChannelTimeout:
                self._check_role()

    def watch_role(self) -> None:
        """Start a thread which ends this process when its node is not the master's any more."""
        threading.Thread(target=self._watch_role, name="fence", daemon=True).start()

    def _watch_role(self) -> None:
        while True:
            time.sleep(_CHECK_S)
            self._check_role()

    def _check_role(self) -> None:
        """End when this node is not the master's any more."""
        if self.epoch == master_epoch.NONE:
            return
        try:
            known = master_epoch.read().epoch
        except errors.ConfigurationError as err:
            _log.warning("job %d: cannot read the epoch of the master: %s", self._job_id, err)
            return
        if known.owner != self.epoch.owner:
            self.fenced(f"this node obeys epoch {known} now")

    def renew(self) -> None:
        """Connect again, after the master daemon has ended."""
        _log.warning("job %d: the master daemon has ended; waiting for the next one", self._job_id)
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        self.connect()
        _log.info("job %d: connected to the master daemon with epoch %s", self._job_id, self.epoch)
        self.on_welcome()

    def fenced(self, why: str) -> NoReturn:
        """End because this process must not act any more."""
        _log.error("job %d: its process ends: %s", self._job_id, why)
        self._leave(EXIT_FENCED)

    def end(self, why: str) -> NoReturn:
        """End because the master daemon says so."""
        if why:
            _log.warning("job %d: its process ends: %s", self._job_id, why)
        self._leave(EXIT_ENDED)

    def _leave(self, code: int) -> NoReturn:
        if self._livelock_path:
            livelock.forget(self._livelock_path)
        logging.shutdown()
        os._exit(code)

    # -- messages -----------------------------------------------------------------------------

    def _connected(self) -> Channel:
        if self._channel is None:
            self.connect()
        assert self._channel is not None
        return self._channel

    def ask(self, request: str, args: list[Any]) -> Any:
        """Send a request, again if the master daemon was restarted, and return the answer.

        :raises GenericError: the error with which the request failed.
        """
        while True:
            try:
                return self.ask_once(request, args)
            except ChannelClosed:
                self.renew()

    def ask_once(self, request: str, args: list[Any]) -> Any:
        """Send a request and return the answer.

        :raises ChannelClosed: the master daemon has ended; it is not known whether it has carried
            out the request. The caller calls :meth:`renew`.
        :raises GenericError: the error with which the request failed.
        """
        channel = self._connected()
        channel.send({"ask": request, "args": args})
        answer = channel.receive()
        if "error" in answer:
            raise messages.unpack_error(answer["error"])
        return answer["ok"]

    def settle(self, request: str, args: list[Any]) -> None:
        """Send a request which need not be repeated when the master daemon was restarted.

        The next master daemon knows its result from the record of this process.
        """
        try:
            self.ask_once(request, args)
        except ChannelClosed:
            self.renew()

    def tell(self, request: str, args: list[Any]) -> None:
        """Send a message without an answer; the caller repeats it in `on_welcome`."""
        try:
            self._connected().send({"tell": request, "args": args})
        except ChannelClosed:
            self.renew()

    def tell_later(self, request: str, args: list[Any]) -> None:
        """Send a message without an answer together with the next message.

        After a restart of the master daemon it need not be sent any more.
        """
        if self._channel is not None:
            self._channel.send_later({"tell": request, "args": args})

    def next_task(self, result: dict[str, Any] | None) -> Any:
        """Report the end of an opcode, and wait for the next order.

        :param result: the message with the result, sent again after a restart of the master daemon;
            None before the first opcode.
        """
        while True:
            try:
                channel = self._connected()
                if result is not None:
                    channel.send(result)
                return channel.receive()
            except ChannelClosed:
                self.renew()

    def next_job(self) -> tuple[int, str]:
        """Wait for another job; return its number, and the token of this process for it.

        The process ends when the master daemon has none for it, or has ended.
        """
        try:
            order = self._connected().receive()
        except ChannelClosed:
            self._leave(EXIT_ENDED)
        if "job" not in order:
            self._leave(EXIT_ENDED)
        return int(order["job"]), str(order["token"])


def listen(path: str) -> socket.socket:
    """Return the socket of the master daemon for job processes.

    :raises OSError: it cannot be made.
    """
    return net.unix_listen(path, 0o600)
