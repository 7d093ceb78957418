"""What guests see of the metadata daemon: a few paths below ``/ganeti/latest``.

Who asks is known by its address alone, so a guest sees its own data and nobody else's; an address
which belongs to no guest sees nothing. A path that does not exist is 404, a method that it does not
have 405. Files of OS definitions are read when they are asked for, by the daemon's own user.

``os/environment``, ``read`` and the events of ``write`` serve helper guests: what to do, with which
variables, and how it went. Their text forms need no more than a shell to be read.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shlex
import stat
import tarfile
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import IO, Any, Final, NamedTuple

from ganeti.constants import metad as const
from ganeti.http import messages
from ganeti.http.event_server import Accepted, Incoming
from ganeti.http.messages import Refused, Response
from ganeti.metad.guests import Guest, Guests
from ganeti.objects.transfer import OS
from ganeti.wire import json

_log = logging.getLogger(__name__)

PREFIX: Final = "/ganeti/latest/"
#: The OS parameter which names the file behind ``os/os-install-package``.
PACKAGE_PARAMETER: Final = "os-install-package"
SCRIPTS: Final = ("create", "create_untrusted", "export", "import", "rename", "verify")

_TEXT: Final = "text/plain; charset=utf-8"
_BINARY: Final = "application/octet-stream"
_TAR: Final = "application/x-tar"
_PIECE_BYTES: Final = 1 << 18
#: Facts of an instance that are the node's business.
_HIDDEN_FACTS: Final = frozenset(
    (
        "hvparams",
        "beparams",
        "primary_node",
        "secondary_nodes",
        "disks",
        "disks_info",
        "network_port",
        "admin_state",
        "admin_state_source",
        "disks_active",
        "serial_no",
        "forthcoming",
    )
)
_NIC_FACTS: Final = ("mac", "ip", "name", "uuid")


class _Asked(NamedTuple):
    """One request of a guest."""

    guest: Guest
    arguments: Mapping[str, Sequence[str]]
    body: bytes


class _Page(NamedTuple):
    """What a path offers: one method, and the function that answers it.

    :ivar files: it reads files, which may take time.
    """

    method: str
    answer: Callable[[MetadataApplication, _Asked], Response]
    files: bool = False


class MetadataApplication:
    """Answers guests.

    :param os_search_path: directories with OS definitions; the first of a name counts.
    """

    def __init__(self, guests: Guests, os_search_path: Sequence[str]) -> None:
        self._guests = guests
        self._os_search_path = os_search_path

    async def begin(self, incoming: Incoming) -> Accepted | Response:
        """Find page and guest.

        :raises Refused: 404 for a path or a guest that is not there, 405 and 413.
        """
        head = incoming.head
        page = _PAGES.get(messages.decode_path(head.path))
        if page is None:
            raise Refused(404, "there is no such page")
        if head.method != page.method:
            raise Refused(405, f"this page is for {page.method}", headers=[("Allow", page.method)])
        if head.length > const.REQUEST_MAX_BYTES:
            raise Refused(413, f"at most {const.REQUEST_MAX_BYTES} bytes at once")
        guest = self._guests.asking(incoming.peer)
        if guest is None:
            _log.warning("asked by %s, which is the address of no guest", incoming.peer)
            raise Refused(404, "there is nothing for this address")
        arguments = messages.parse_query(head.query)

        async def answer(body: bytes) -> Response:
            # A chunked body shows its size only now.
            if len(body) > const.REQUEST_MAX_BYTES:
                raise Refused(413, f"at most {const.REQUEST_MAX_BYTES} bytes at once")
            asked = _Asked(guest, arguments, body)
            if page.files:
                return await asyncio.to_thread(page.answer, self, asked)
            return page.answer(self, asked)

        return Accepted(guest.name, answer)

    def refusal(self, refused: Refused) -> Response:
        """The answer that says why."""
        return Response(
            refused.status, f"{refused}\n".encode(), [("Content-Type", _TEXT), *refused.headers]
        )

    # -- pages -----------------------------------------------------------------

    def facts(self, asked: _Asked) -> Response:
        """Who the guest is."""
        guest = asked.guest
        found = {key: value for key, value in guest.facts.items() if key not in _HIDDEN_FACTS}
        found["os"] = guest.os
        found["nics"] = [
            {key: nic.get(key) for key in _NIC_FACTS}
            for nic in guest.facts.get("nics") or ()
            if isinstance(nic, dict)
        ]
        return _json(found)

    def parameters(self, asked: _Asked) -> Response:
        """OS parameters: name -> [value, visibility]."""
        return _json({name: list(pair) for name, pair in sorted(asked.guest.parameters.items())})

    def environment(self, asked: _Asked) -> Response:
        """Variables of the script which a helper guest runs, quoted for a shell."""
        if asked.guest.task is None:
            raise Refused(404, "this is no helper guest")
        lines = [
            f"{name}={shlex.quote(value)}\n"
            for name, value in sorted(asked.guest.environment.items())
        ]
        return _text("".join(lines))

    def package(self, asked: _Asked) -> Response:
        """The directory of the OS definition, as a tar archive."""
        directory = self._definition(asked.guest)
        spool = tempfile.TemporaryFile()
        try:
            with tarfile.open(fileobj=spool, mode="w") as archive:
                # Without an entry for the directory itself, which not every tar can unpack.
                for name in sorted(os.listdir(directory)):
                    archive.add(f"{directory}/{name}", arcname=name, filter=_without_owner)
            spool.seek(0)
        except OSError as err:
            spool.close()
            raise _unreadable(asked.guest, err) from err
        return Response(200, _pieces(spool), [("Content-Type", _TAR)])

    def install_package(self, asked: _Asked) -> Response:
        """The file of the OS definition which a parameter names."""
        value, _visibility = asked.guest.parameters.get(PACKAGE_PARAMETER, ("", ""))
        if not value:
            raise Refused(404, f"OS parameter {PACKAGE_PARAMETER} is not set")
        return self._file(asked.guest, value)

    def script(self, asked: _Asked, name: str) -> Response:
        """A script of the OS definition."""
        return self._file(asked.guest, name)

    def read(self, asked: _Asked) -> Response:
        """The task of a helper guest; nothing for any other."""
        return _text(f"{asked.guest.task}\n" if asked.guest.task else "")

    def write(self, asked: _Asked) -> Response:
        """What a guest tells."""
        event = (asked.arguments.get("event") or [const.EVENT_LOG])[-1]
        report = asked.guest.report
        if event == const.EVENT_START:
            report.started = True
        elif event == const.EVENT_LOG:
            report.add_log(asked.body)
        elif event == const.EVENT_EXIT:
            report.exit_code = _exit_code(asked.body)
        else:
            raise Refused(400, f"there is no event '{event:.40}', only {', '.join(const.EVENTS)}")
        return _text("")

    # -- files -----------------------------------------------------------------

    def _definition(self, guest: Guest) -> str:
        name = OS.base_name(guest.os)
        if name not in ("", ".", "..") and "/" not in name:
            for base in self._os_search_path:
                if os.path.isdir(f"{base}/{name}"):
                    return f"{base}/{name}"
        raise Refused(404, f"OS {name or '(none)'} is not on this node")

    def _file(self, guest: Guest, name: str) -> Response:
        """A file of the guest's OS definition; a name may not lead out of it."""
        directory = os.path.realpath(self._definition(guest))
        path = os.path.realpath(os.path.join(directory, name))
        if not path.startswith(f"{directory}/"):
            raise Refused(404, f"'{name}' is not within the OS definition")
        try:
            stream = open(path, "rb")
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            raise Refused(404, f"the OS definition has no file '{name}'") from None
        except OSError as err:
            raise _unreadable(guest, err) from err
        if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            stream.close()
            raise Refused(404, f"the OS definition has no file '{name}'")
        return Response(200, _pieces(stream), [("Content-Type", _BINARY)])


def _exit_code(body: bytes) -> int:
    text = body.strip()
    if not text.isdigit() or int(text) > 255:
        raise Refused(400, "an exit code is a number from 0 to 255")
    return int(text)


def _without_owner(member: tarfile.TarInfo) -> tarfile.TarInfo:
    # Who owns a file on the node means nothing in a guest.
    member.uid = member.gid = 0
    member.uname = member.gname = "root"
    return member


def _unreadable(guest: Guest, err: OSError) -> Refused:
    _log.error("guest %s: cannot read OS definition %s: %s", guest.name, guest.os, err)
    return Refused(500, f"the files of OS {OS.base_name(guest.os)} cannot be read: {err.strerror}")


def _json(value: Any) -> Response:
    return Response(200, (json.dumps(value) + "\n").encode(), [("Content-Type", messages.JSON)])


def _text(value: str) -> Response:
    return Response(200, value.encode(), [("Content-Type", _TEXT)])


async def _pieces(stream: IO[bytes]) -> AsyncIterator[bytes]:
    with stream:
        while piece := await asyncio.to_thread(stream.read, _PIECE_BYTES):
            yield piece


def _script_page(name: str) -> _Page:
    return _Page("GET", lambda application, asked: application.script(asked, name), files=True)


_PAGES: Final[dict[str, _Page]] = {
    f"{PREFIX}meta_data.json": _Page("GET", MetadataApplication.facts),
    f"{PREFIX}os/os-install-package": _Page("GET", MetadataApplication.install_package, files=True),
    f"{PREFIX}os/package": _Page("GET", MetadataApplication.package, files=True),
    f"{PREFIX}os/parameters.json": _Page("GET", MetadataApplication.parameters),
    f"{PREFIX}os/environment": _Page("GET", MetadataApplication.environment),
    f"{PREFIX}read": _Page("GET", MetadataApplication.read),
    f"{PREFIX}write": _Page("POST", MetadataApplication.write),
    **{f"{PREFIX}os/scripts/{name}": _script_page(name) for name in SCRIPTS},
}
