"""Messages between the master daemon and a job process, over a connected unix socket.

A message is a JSON value, with its length in four bytes before it. Objects of the configuration and
errors travel in it with the name of their class, in the form of their codec, so that an unknown key
is an error and never a wrong value.

A process may be older than the master daemon, which was restarted after an upgrade. They understand
each other only if both have the same *protocol* (:func:`protocol`).
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import socket
import struct
import sys
import threading
from collections.abc import Mapping, Set
from typing import Any, Final

from ganeti import errors
from ganeti.objects import (
    Cluster,
    Disk,
    FilterRule,
    Instance,
    KeptDocument,
    Network,
    Node,
    NodeGroup,
    codec,
)
from ganeti.wire import errors as wire_errors
from ganeti.wire import json

_LENGTH: Final = struct.Struct(">I")
_CHUNK: Final = 1 << 20

#: Number of the protocol. A change of requests, orders, results or the record of a process
#: increases it; a change of the classes below counts by itself.
PROTOCOL: Final = 3
# Digits of the sum of the classes in the name of the protocol.
_DIGITS: Final = 8

#: The classes of objects in messages.
CLASSES: Final = (Cluster, Disk, FilterRule, Instance, KeptDocument, Network, Node, NodeGroup)
_BY_NAME: Final = {cls.__name__: cls for cls in CLASSES}
_CLASS: Final = "class"
_VALUE: Final = "value"


@functools.cache
def protocol() -> str:
    """Return the name of the protocol: its number, and a sum of the fields of objects in messages.

    It differs when one side would refuse objects of the other, because they have other fields.
    """
    fields = [
        (name, [(field.name, str(field.type)) for field in dataclasses.fields(cls)])
        for module in sorted({cls.__module__ for cls in CLASSES})
        for name, cls in sorted(vars(sys.modules[module]).items())
        if dataclasses.is_dataclass(cls) and cls.__module__ == module
    ]
    digest = hashlib.sha256(repr(fields).encode()).hexdigest()
    return f"{PROTOCOL}-{digest[:_DIGITS]}"


class ChannelClosed(Exception):  # noqa: N818  it is not a failure of an operation
    """The other end has closed the connection, or has ended.

    This is not an error of our tree, so that no logical unit takes it for the failure of a step.
    """


class ChannelTimeout(Exception):  # noqa: N818
    """The other end has sent nothing for the given time."""


class Channel:
    """One connection. One thread at a time receives; any thread may send."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self._sending = threading.Lock()
        self._delayed = b""
        self._left = b""

    def send(self, message: Any) -> None:
        """Send a message.

        :raises ChannelClosed: the other end is gone.
        :raises ProgrammerError: JSON cannot express the message.
        """
        data = _encode(message)
        try:
            with self._sending:
                self.socket.sendall(self._delayed + data)
                self._delayed = b""
        except OSError as err:
            raise ChannelClosed(str(err)) from err

    def send_later(self, message: Any) -> None:
        """Send a message together with the next one."""
        data = _encode(message)
        with self._sending:
            self._delayed += data

    def receive(self, timeout_s: float | None = None) -> Any:
        """Wait for a message and return it; after a timeout, the next call goes on.

        :raises ChannelClosed: the other end is gone.
        :raises ChannelTimeout: nothing arrived for `timeout_s` seconds.
        """
        if self.socket.gettimeout() != timeout_s:
            try:
                self.socket.settimeout(timeout_s)
            except OSError as err:
                raise ChannelClosed(str(err)) from err
        head = self._take(_LENGTH.size)
        try:
            body = self._take(*_LENGTH.unpack(head))
        except ChannelTimeout:
            self._left = head + self._left
            raise
        return json.loads(body)

    def _take(self, size: int) -> bytes:
        parts = [self._left]
        have = len(self._left)
        while have < size:
            try:
                data = self.socket.recv(_CHUNK)
            except TimeoutError as err:
                self._left = b"".join(parts)
                raise ChannelTimeout from err
            except OSError as err:
                raise ChannelClosed(str(err)) from err
            if not data:
                raise ChannelClosed("the connection was closed")
            parts.append(data)
            have += len(data)
        data = b"".join(parts)
        self._left = data[size:]
        return data[:size]

    def shut_down(self) -> None:
        """End the connection; a thread which waits for a message gets :class:`ChannelClosed`."""
        try:
            self.socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # It has ended already.

    def close(self) -> None:
        """Close the socket."""
        self.socket.close()


def _encode(message: Any) -> bytes:
    data = json.dumps(message).encode("utf-8", "surrogatepass")
    return _LENGTH.pack(len(data)) + data


def pack(value: Any) -> Any:
    """Return a value with objects of the configuration as a value for JSON.

    Sets and tuples become lists.
    """
    if isinstance(value, Mapping):
        return {key: pack(item) for key, item in value.items()}
    if isinstance(value, Set):
        return [pack(item) for item in value]
    if isinstance(value, list | tuple):
        return [pack(item) for item in value]
    name = type(value).__name__
    if _BY_NAME.get(name) is type(value):
        return {_CLASS: name, _VALUE: codec.to_dict(value)}
    return value


def unpack(value: Any) -> Any:
    """Return the value which :func:`pack` has packed, with lists for sets and tuples.

    :raises ConfigurationError: an object is malformed.
    """
    if isinstance(value, list):
        return [unpack(item) for item in value]
    if isinstance(value, dict):
        if len(value) == 2 and value.get(_CLASS) in _BY_NAME and _VALUE in value:
            return codec.from_dict(_BY_NAME[value[_CLASS]], value[_VALUE])
        return {key: unpack(item) for key, item in value.items()}
    return value


def pack_error(error: BaseException) -> list[Any]:
    """Return ``[class, [arguments]]`` for an error, also for classes which are not published.

    One whose arguments do not say everything becomes the error which other programs get.
    """
    name = type(error).__name__
    packed = wire_errors.encode(error)
    if isinstance(error, errors.GenericError) and getattr(errors, name, None) is type(error):
        args = error.wire_args()
        try:
            whole = str(type(error)(*args)) == str(error)
        except (TypeError, ValueError):
            whole = False
        if whole:
            packed = [name, args]
    try:
        json.dumps(packed)
    except errors.ProgrammerError:
        # An argument is an object, which no message can hold.
        return ["OpExecError", [str(error)]]
    return packed


def unpack_error(value: list[Any]) -> Exception:
    """Return the error which :func:`pack_error` has packed.

    :raises ParseError: it is not the form of an error.
    """
    if not (isinstance(value, list) and len(value) == 2 and isinstance(value[1], list)):
        raise errors.ParseError(f"not an error: {value!r:.100}")
    name, args = value
    cls = getattr(errors, str(name), None)
    if isinstance(cls, type) and issubclass(cls, errors.GenericError):
        try:
            return cls(*args)
        except (TypeError, ValueError):
            return errors.GenericError(f"{name}: {', '.join(map(str, args))}")
    return wire_errors.decode(value) or errors.GenericError(f"{name}: {args}")
