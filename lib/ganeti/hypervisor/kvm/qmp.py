"""QMP, the protocol of QEMU's control socket.

Messages are lines of JSON: a greeting, commands and their answers, and events at any time. QEMU
serves one client at a time; a second one gets no greeting before the first has closed its
connection. So connections are kept open for a few commands only, and every wait has a limit.

Source: QEMU, ``docs/interop/qmp-spec.rst``.
"""

from __future__ import annotations

import collections
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any

from ganeti import errors
from ganeti.utils import net
from ganeti.wire import json

TIMEOUT_S = 5.0
# The largest known answer has a few hundred KiB (query-qmp-schema).
_MESSAGE_MAX_BYTES = 16 << 20
#: Number of events which are kept; a guest can cause any number of them.
EVENTS_MAX = 1000


class QmpError(errors.HypervisorError):
    """QEMU refused a command."""


class ObjectNotFound(QmpError):
    """QEMU has no device, block node or other object of the name in the command."""


class UnplugPending(QmpError):
    """QEMU has already asked the guest to release the device."""


# Words in the description of an error for which QEMU has no class but GenericError.
_DESCRIBED = (("already in the process", UnplugPending), ("find", ObjectNotFound))


def error_class(kind: str, description: str) -> type[QmpError]:
    """Return the class of an answer of QEMU.

    :param kind: QEMU's own class. It publishes one for missing devices only; other errors are
        ``GenericError`` and differ in their description.
    """
    if kind == "DeviceNotFound":
        return ObjectNotFound
    return next((one for words, one in _DESCRIBED if words in description), QmpError)


class Qmp:
    """A connection to the QEMU of one instance; a context manager.

    :ivar events: the events which have come so far, at most the last :data:`EVENTS_MAX`.
    :param path: the socket.
    :param instance_name: for messages.
    :param timeout_s: limit for the greeting and for each answer; None for :data:`TIMEOUT_S`.
    :raises HypervisorError: no QEMU listens, or its answers are not QMP.
    """

    def __init__(self, path: str, instance_name: str, *, timeout_s: float | None = None) -> None:
        self._name = instance_name
        self._timeout_s = TIMEOUT_S if timeout_s is None else timeout_s
        self._buffer = b""
        self._last_id = 0
        self.events: collections.deque[dict[str, Any]] = collections.deque(maxlen=EVENTS_MAX)
        try:
            self._socket = net.unix_connect(path, self._timeout_s)
        except OSError as err:
            raise errors.HypervisorError(
                f"cannot reach QEMU of instance {instance_name} at {path}: {err.strerror or err}"
            ) from err
        try:
            greeting = self._receive(self._deadline())
            if not isinstance(greeting.get("QMP"), dict):
                raise errors.HypervisorError(
                    f"QEMU of instance {instance_name} sent {greeting!r}, not the greeting of QMP"
                )
            self.greeting = greeting["QMP"]
            self.execute("qmp_capabilities")
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Qmp:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection, so that QEMU can serve another client."""
        self._socket.close()

    def execute(
        self, command: str, arguments: dict[str, Any] | None = None, *, fds: Sequence[int] = ()
    ) -> Any:
        """Send a command and return QEMU's answer.

        :param fds: open file descriptors which are passed with the command.
        :raises QmpError: QEMU refuses the command.
        :raises HypervisorError: QEMU does not answer in time, or its answer is not QMP.
        """
        self._last_id += 1
        request: dict[str, Any] = {"execute": command, "id": self._last_id}
        if arguments:
            request["arguments"] = arguments
        try:
            data = json.dumps(request).encode() + b"\n"
            if fds:
                data = data[socket.send_fds(self._socket, [data], list(fds)) :]
            self._socket.sendall(data)
        except OSError as err:
            raise self._lost(command, err) from err
        deadline = self._deadline()
        while True:
            message = self._receive(deadline, command)
            if "event" in message:
                self.events.append(message)
            elif message.get("id", self._last_id) != self._last_id:
                # The answer to an earlier command, which came too late.
                continue
            elif "error" in message:
                error = message["error"] if isinstance(message["error"], dict) else {}
                description = str(error.get("desc", message["error"]))
                raise error_class(str(error.get("class", "")), description)(
                    f"QEMU of instance {self._name} refuses {command}: {description}"
                )
            elif "return" in message:
                return message["return"]
            else:
                raise errors.HypervisorError(
                    f"QEMU of instance {self._name} answers {command} with {message!r}, which is"
                    " neither a result nor an error"
                )

    def wait_event(
        self, wanted: Callable[[dict[str, Any]], bool], timeout_s: float
    ) -> dict[str, Any] | None:
        """Wait for an event; those in :attr:`events` count, too.

        :param wanted: says whether an event is the right one.
        :returns: the first such event, or None when none came in time.
        :raises HypervisorError: the connection broke.
        """
        deadline = time.monotonic() + timeout_s
        for event in self.events:
            if wanted(event):
                return event
        while True:
            try:
                message = self._receive(deadline, "an event")
            except NoAnswer:
                return None
            if "event" in message:
                self.events.append(message)
                if wanted(message):
                    return message

    def _deadline(self) -> float:
        return time.monotonic() + self._timeout_s

    def _receive(self, deadline: float, command: str = "") -> dict[str, Any]:
        while True:
            # Also when a message is there: a QEMU which sends events without end is too late.
            left_s = deadline - time.monotonic()
            if left_s > 0 and b"\n" in self._buffer:
                break
            if len(self._buffer) > _MESSAGE_MAX_BYTES:
                raise errors.HypervisorError(
                    f"QEMU of instance {self._name} sends a message of more than "
                    f"{_MESSAGE_MAX_BYTES >> 20} MiB"
                )
            try:
                if left_s <= 0:
                    raise TimeoutError
                self._socket.settimeout(left_s)
                data = self._socket.recv(65536)
            except TimeoutError as err:
                hint = "" if command else " Another program may be connected to it."
                raise NoAnswer(
                    f"QEMU of instance {self._name} does not answer "
                    f"{command or 'on its control socket'} within {self._timeout_s:g} s"
                    f"{'.' + hint if hint else ''}"
                ) from err
            except OSError as err:
                raise self._lost(command, err) from err
            if not data:
                raise self._lost(command, None)
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        try:
            message = json.loads(line)
        except errors.ParseError as err:
            raise errors.HypervisorError(
                f"QEMU of instance {self._name} sends a message which is not JSON: {line[:80]!r}"
            ) from err
        if not isinstance(message, dict):
            raise errors.HypervisorError(
                f"QEMU of instance {self._name} sends {message!r}, expected an object"
            )
        return message

    def _lost(self, command: str, err: OSError | None) -> errors.HypervisorError:
        reason = f": {err.strerror or err}" if err else ""
        during = f" during {command}" if command else ""
        return ConnectionLost(
            f"QEMU of instance {self._name} closed its control socket{during}{reason}"
        )


class NoAnswer(errors.HypervisorError):
    """QEMU did not answer in time."""


class ConnectionLost(errors.HypervisorError):
    """QEMU closed the connection before it answered."""
