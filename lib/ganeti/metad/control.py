"""The control socket of the metadata daemon: the node daemon sends the descriptions of its guests.

Requests and answers have the form of LUXI messages (:mod:`ganeti.luxi.protocol`). Only root and the
daemon's user may open the socket, because guests see the data which it receives, and the data
contain secrets.

=================  ==================================================================
Echo(text)         the text, to check that the daemon runs
UpdateConfig(data) a guest's description (:func:`ganeti.metad.guests.parse`) -> None
RemoveInstance(n)  remove a guest -> whether it was known
ListInstances()    list of [name, address, OS, task or None, time of first contact or None]
ReadReport(name)   report of the guest -> dictionary, or None for an unknown guest
=================  ==================================================================
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable
from typing import Any

from ganeti import errors
from ganeti.luxi import protocol as wire
from ganeti.metad import guests as guests_module
from ganeti.metad.guests import Guests

_log = logging.getLogger(__name__)

_PIECE_BYTES = 1 << 16
_IDLE_S = 60.0


class Control:
    """Serves the control socket."""

    def __init__(self, guests: Guests) -> None:
        self._guests = guests
        self._server: asyncio.Server | None = None
        self._methods: dict[str, tuple[int, Callable[..., Any]]] = {
            "Echo": (1, _echo),
            "UpdateConfig": (1, self._update),
            "RemoveInstance": (1, self._remove),
            "ListInstances": (0, self._list),
            "ReadReport": (1, self._report),
        }

    async def start(self, listener: socket.socket) -> None:
        """Begin to accept."""

        def connection() -> asyncio.StreamReaderProtocol:
            return asyncio.StreamReaderProtocol(asyncio.StreamReader(), self._connected)

        # The functions of asyncio for Unix sockets would look for the file by the name of the
        # socket, and remove it. That name may be one below /proc/self/fd (utils.net.unix_listen).
        self._server = await asyncio.get_running_loop().create_server(connection, sock=listener)

    async def stop(self) -> None:
        """Accept nothing more."""
        if self._server is not None:
            self._server.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        splitter = wire.Splitter()
        try:
            while True:
                async with asyncio.timeout(_IDLE_S):
                    data = await reader.read(_PIECE_BYTES)
                if not data:
                    return
                for message in splitter.feed(data):
                    writer.write(self.answer(message))
                    await writer.drain()
        except (TimeoutError, OSError) as err:
            _log.debug("control connection lost: %r", err)
        finally:
            with contextlib.suppress(OSError, RuntimeError):
                writer.close()

    def answer(self, message: bytes | None) -> bytes:
        """Return the answer to one message.

        :param message: None for a message that was too long.
        """
        if message is None:
            return wire.encode_refusal("the request is too long")
        try:
            method, args, _trace = wire.parse_request(message)
        except errors.ParseError as err:
            return wire.encode_refusal(str(err))
        try:
            if method not in self._methods:
                raise errors.ParameterError(
                    f"there is no method '{method:.80}', only {', '.join(self._methods)}"
                )
            count, function = self._methods[method]
            if len(args) != count:
                raise errors.ParameterError(
                    f"{method} takes {count} argument{'s' * (count != 1)}, not {len(args)}"
                )
            return wire.encode_answer(function(*args))
        except errors.GenericError as err:
            return wire.encode_error(err)

    def _update(self, description: object) -> None:
        guest = guests_module.parse(description)
        self._guests.update(guest)
        _log.info(
            "guest %s has address %s%s",
            guest.name,
            guest.ip,
            f" and the task '{guest.task}'" if guest.task else "",
        )

    def _remove(self, name: object) -> bool:
        found = self._guests.remove(_name(name))
        if found:
            _log.info("guest %s was removed", name)
        return found

    def _list(self) -> list[list[Any]]:
        return [
            [guest.name, guest.ip, guest.os, guest.task, guest.report.contact]
            for guest in self._guests.all()
        ]

    def _report(self, name: object) -> dict[str, Any] | None:
        guest = self._guests.named(_name(name))
        return None if guest is None else guest.report.to_wire()


def _echo(text: object) -> object:
    return text


def _name(value: object) -> str:
    if not isinstance(value, str):
        raise errors.ParameterError("the name of a guest is a string")
    return value
