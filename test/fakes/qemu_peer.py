"""A QEMU as its control socket shows it, which refuses commands, is late, or ends in the middle.

The socket and the messages are real; guest, devices and migration are a few attributes, which
commands change as in QEMU (QEMU's QMP reference; ``docs/interop/qmp-spec.rst``).
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
from collections.abc import Callable
from typing import Any

from ganeti.utils import net

#: QEMU does what it is told, and never answers.
SILENT = "silent"
#: QEMU does what it is told, and answers after the client has given up.
LATE = "late"
#: QEMU closes the connection before it does anything.
CLOSES = "closes"
#: QEMU ends before it does anything.
DIES = "dies"
#: QEMU sends half of its answer and closes the connection; it did what it was told.
HALF = "half"
#: All ways in which a command can fail besides a refusal.
TROUBLES = (SILENT, LATE, CLOSES, DIES, HALF)


_POLL_S = 0.02


class RefusedError(Exception):
    """QEMU refuses a command; the arguments are its class and description."""


class Qemu:
    """One QEMU.

    :ivar alive: whether its process runs.
    :ivar state: of ``query-status``.
    :ivar migration: the answer to ``query-migrate``.
    :ivar refuses: description of the error for each command which is refused.
    :ivar trouble: one of :data:`TROUBLES` for a command.
    :ivar noisy: it sends events without end.
    :ivar done: the commands which were carried out, without questions.
    :ivar devices: ids of the devices; `nodes`, `netdevs` and `fdsets` are what is behind them.
    :ivar answers_too_late: a late answer comes as soon as its :class:`Client` has given up.
    :ivar on_unplug: the event with which the guest answers ``device_del``; None for none.
    """

    def __init__(self, path: str, state: str = "prelaunch") -> None:
        self.alive = True
        self.state = state
        self.migration: dict[str, Any] = {}
        self.refuses: dict[str, str] = {}
        self.trouble: dict[str, str] = {}
        self.noisy = False
        self.greeting: bytes | None = b'{"QMP": {"version": {}, "capabilities": []}}\n'
        self.done: list[str] = []
        self.devices: set[str] = set()
        self.nodes: set[str] = set()
        self.netdevs: set[str] = set()
        self.fdsets: set[int] = set()
        self.on_unplug: str | None = "DEVICE_DELETED"
        #: Set to let a late answer go.
        self.answer_now = threading.Event()
        self.answers_too_late = False
        self._mute = False
        self.path = path
        self._next_fdset = 0
        self._connection: socket.socket | None = None
        os.makedirs(os.path.dirname(path), exist_ok=True)
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(path)
        self._listening.listen(8)
        threading.Thread(target=self._serve, daemon=True).start()

    @property
    def changed(self) -> list[str]:
        """The commands which change something."""
        return [command for command in self.done if command not in ("getfd", "qmp_capabilities")]

    @property
    def is_mute(self) -> bool:
        """Whether it does not answer before :attr:`answer_now` is set."""
        return self._mute and not self.answer_now.is_set()

    def _say_nothing(self) -> None:
        self._mute = True
        self.answer_now.wait()
        self._mute = False

    def end(self) -> None:
        """The process ends."""
        self.alive = False
        self.answer_now.set()
        for one in (self._listening, self._connection):
            if one is not None:
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
                one.close()

    def _serve(self) -> None:
        while self.alive:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            self._connection = connection
            # A client may end at any time.
            with contextlib.suppress(OSError, ValueError), connection:
                self._client(connection)

    def _client(self, connection: socket.socket) -> None:
        if self.greeting is None:
            self._say_nothing()
            return
        connection.sendall(self.greeting)
        if self.noisy:
            threading.Thread(target=self._make_noise, args=(connection,), daemon=True).start()
        buffer = b""
        while self.alive:
            while b"\n" not in buffer:
                data, fds, _, _ = socket.recv_fds(connection, 65536, 16)
                for fd in fds:
                    os.close(fd)
                if not data:
                    return
                buffer += data
            line, _, buffer = buffer.partition(b"\n")
            if not self._answer(connection, json.loads(line)):
                return

    def _make_noise(self, connection: socket.socket) -> None:
        line = b'{"event": "RTC_CHANGE", "data": {"offset": 0}}\n' * 200
        with contextlib.suppress(OSError):
            while self.alive:
                connection.sendall(line)

    def _answer(self, connection: socket.socket, request: dict[str, Any]) -> bool:
        """Carry out a command and answer it; whether the connection stays."""
        command = request["execute"]
        trouble = self.trouble.get(command)
        if trouble == CLOSES:
            return False
        if trouble == DIES:
            self.end()
            return False
        events: list[dict[str, Any]] = []
        try:
            if command in self.refuses:
                raise RefusedError("GenericError", self.refuses[command])
            answer: dict[str, Any] = {
                "return": self._do(command, request.get("arguments", {}), events)
            }
        except RefusedError as err:
            answer = {"error": {"class": err.args[0], "desc": err.args[1]}}
        if "id" in request:
            answer["id"] = request["id"]
        text = json.dumps(answer).encode() + b"\n"
        if trouble == SILENT:
            self._say_nothing()
            return False
        if trouble == LATE:
            self._say_nothing()
        if trouble == HALF:
            connection.sendall(text[: len(text) // 2])
            return False
        connection.sendall(text + b"".join(json.dumps(one).encode() + b"\n" for one in events))
        return self.alive

    def _do(self, command: str, arguments: dict[str, Any], events: list[dict[str, Any]]) -> Any:
        if command == "query-status":
            return {"status": self.state}
        if command == "query-migrate":
            return self.migration
        if command == "query-balloon":
            return {"actual": 64 << 20}
        if command == "qom-list":
            return [{"name": name} for name in ["type", *sorted(self.devices)]]
        name = f"_{command.replace('-', '_')}"
        result = {} if not hasattr(self, name) else getattr(self, name)(arguments, events)
        self.done.append(command)
        return result

    # -- the guest -------------------------------------------------------------------------------

    def _cont(self, arguments: dict[str, Any], events: list[dict[str, Any]]) -> Any:
        if self.state in ("prelaunch", "paused"):
            self.state = "running"
        return {}

    def _stop(self, arguments: dict[str, Any], events: list[dict[str, Any]]) -> Any:
        if self.state == "running":
            self.state = "paused"
        return {}

    def _quit(self, arguments: dict[str, Any], events: list[dict[str, Any]]) -> Any:
        self.alive = False
        return {}

    def _migrate(self, arguments: dict[str, Any], events: list[dict[str, Any]]) -> Any:
        self.migration = {"status": "active", "ram": {}}
        return {}

    def _migrate_cancel(self, arguments: dict[str, Any], events: list[dict[str, Any]]) -> Any:
        if self.migration.get("status") == "active":
            self.migration = {"status": "cancelled", "ram": {}}
        return {}

    # -- devices ---------------------------------------------------------------------------------

    def _add_fd(self, arguments: dict[str, Any], events: list[dict[str, Any]]) -> Any:
        self._next_fdset += 1
        self.fdsets.add(self._next_fdset)
        return {"fdset-id": self._next_fdset, "fd": 1}

    def _remove_fd(self, arguments: dict[str, Any], events: list[dict[str, Any]]) -> Any:
        self.fdsets.discard(arguments["fdset-id"])
        return {}

    def _blockdev_add(self, arguments: dict[str, Any], events: list[dict[str, Any]]) -> Any:
        _add(self.nodes, arguments["node-name"])
        return {}

    def _blockdev_del(self, arguments: dict[str, Any], events: list[dict[str, Any]]) -> Any:
        name = arguments["node-name"]
        if name in self.devices:
            raise RefusedError("GenericError", f"Node {name} is in use")
        if name not in self.nodes:
            raise RefusedError("GenericError", f"Failed to find node with node-name='{name}'")
        self.nodes.remove(name)
        return {}

    def _netdev_add(self, arguments: dict[str, Any], events: list[dict[str, Any]]) -> Any:
        _add(self.netdevs, arguments["id"])
        return {}

    def _netdev_del(self, arguments: dict[str, Any], events: list[dict[str, Any]]) -> Any:
        if arguments["id"] not in self.netdevs:
            raise RefusedError("DeviceNotFound", f"Device '{arguments['id']}' not found")
        self.netdevs.remove(arguments["id"])
        return {}

    def _device_add(self, arguments: dict[str, Any], events: list[dict[str, Any]]) -> Any:
        _add(self.devices, arguments["id"])
        return {}

    def _device_del(self, arguments: dict[str, Any], events: list[dict[str, Any]]) -> Any:
        name = arguments["id"]
        if name not in self.devices:
            raise RefusedError("DeviceNotFound", f"Device '{name}' not found")
        if self.on_unplug == "DEVICE_DELETED":
            self.devices.remove(name)
        if self.on_unplug is not None:
            # Events of other devices come first.
            events.append({"event": "DEVICE_DELETED", "data": {"device": "another"}})
            events.append({"event": self.on_unplug, "data": {"device": name}})
        return {}


def _add(known: set[str], name: str) -> None:
    if name in known:
        raise RefusedError("GenericError", f"Duplicate ID '{name}'")
    known.add(name)


class Client(socket.socket):
    """The end of a connection which a driver has.

    When nothing has come and the QEMU will say nothing more, its time is over at once.
    """

    qemu: Qemu

    def recv(self, size: int, flags: int = 0) -> bytes:
        limit_s = self.gettimeout()
        assert limit_s is not None
        for _ in range(int(limit_s / _POLL_S) + 1):
            # Asked before the data are looked for: what was sent before it fell silent is there.
            mute = self.qemu.is_mute
            if net.wait_readable([self], 0 if mute else _POLL_S):
                return super().recv(size, flags)
            if mute:
                if self.qemu.answers_too_late:
                    self.qemu.answer_now.set()
                break
        raise TimeoutError


class Node:
    """The QEMUs of a node; :meth:`run` takes the place of starting a program.

    :ivar prepare: called with each new QEMU before anybody can talk to it.
    :ivar fails: an error with which every start of the program ends.
    """

    def __init__(self, layout: Callable[[str], Any]) -> None:
        self._layout = layout
        self.qemus: dict[str, Qemu] = {}
        self.prepare: Callable[[Qemu], None] = lambda qemu: None
        self.fails: Exception | None = None
        self.commands: list[list[str]] = []

    def connect(self, path: str, timeout_s: float | None = None) -> socket.socket:
        """Take the place of :func:`ganeti.utils.net.unix_connect`."""
        made = Client(fileno=net.unix_connect(path, timeout_s).detach())
        made.settimeout(timeout_s)
        (made.qemu,) = [one for one in self.qemus.values() if one.path == path]
        return made

    def run(self, command: list[str], **_options: Any) -> None:
        """Start QEMU."""
        self.commands.append(list(command))
        if self.fails is not None:
            raise self.fails
        name = command[command.index("-name") + 1].split(",")[0]
        self.begin(name, "inmigrate" if "-incoming" in command else "prelaunch")

    def begin(self, name: str, state: str) -> Qemu:
        """Start a QEMU in a state."""
        qemu = Qemu(self._layout(name).socket("qmp"), state)
        self.qemus[name] = qemu
        self.prepare(qemu)
        return qemu

    def is_alive(self, name: str) -> bool:
        """Whether a guest's QEMU runs."""
        return name in self.qemus and self.qemus[name].alive

    def end(self, name: str) -> None:
        """End a guest's QEMU."""
        if name in self.qemus:
            self.qemus[name].end()
