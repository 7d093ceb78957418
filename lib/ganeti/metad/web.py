"""The pages which the metadata daemon offers to guests, below ``/ganeti/latest``.

A guest is identified by its address alone, so it sees only its own data; an address which belongs
to no guest gets no data. A path that does not exist gives status 404, a wrong method 405. Files of
OS definitions are read at each request, by the daemon's own user.

``os/environment``, ``read`` and the events of ``write`` are for helper guests: the task, its
variables, and its progress. A shell can read their text forms.
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
from ganeti.metad import nocloud
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
#: Attributes of an instance which guests do not see.
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


class _GuestRequest(NamedTuple):
    """One request of a guest."""

    guest: Guest
    arguments: Mapping[str, Sequence[str]]
    body: bytes


class _Page(NamedTuple):
    """A page: its HTTP method, and the function that answers.

    :ivar files: the function reads files, which may take time.
    """

    method: str
    answer: Callable[[MetadataApplication, _GuestRequest], Response]
    files: bool = False


class MetadataApplication:
    """Answers the requests of guests.

    :param os_search_path: directories with OS definitions; the first one with a name counts.
    """

    def __init__(self, guests: Guests, os_search_path: Sequence[str]) -> None:
        self._guests = guests
        self._os_search_path = os_search_path

    async def begin(self, incoming: Incoming) -> Accepted | Response:
        """Find the page and the guest of a request.

        :raises Refused: 404 for an unknown path or address, 405 for a wrong method.
        """
        head = incoming.head
        page = _PAGES.get(messages.decode_path(head.path))
        if page is None:
            raise Refused(404, "there is no such page")
        if head.method != page.method:
            raise Refused(405, f"this page is for {page.method}", headers=[("Allow", page.method)])
        guest = self._guests.asking(incoming.peer)
        if guest is None:
            _log.warning(
                "refused a request from %s, which is the address of no guest", incoming.peer
            )
            raise Refused(404, "there are no data for this address")
        arguments = messages.parse_query(head.query)

        async def answer(body: bytes) -> Response:
            request = _GuestRequest(guest, arguments, body)
            if page.files:
                return await asyncio.to_thread(page.answer, self, request)
            return page.answer(self, request)

        most_bytes = const.REQUEST_MAX_BYTES if head.method == "POST" else 0
        return Accepted(guest.name, answer, most_body_bytes=most_bytes)

    def refusal(self, refused: Refused) -> Response:
        """Return the answer to a refused request, with the reason."""
        return Response(
            refused.status, _encoded(f"{refused}\n"), [("Content-Type", _TEXT), *refused.headers]
        )

    # -- pages -----------------------------------------------------------------

    def facts(self, request: _GuestRequest) -> Response:
        """Return the attributes of the guest."""
        guest = request.guest
        found = {key: value for key, value in guest.facts.items() if key not in _HIDDEN_FACTS}
        found["os"] = guest.os
        found["nics"] = [
            {key: nic.get(key) for key in _NIC_FACTS}
            for nic in guest.facts.get("nics") or ()
            if isinstance(nic, dict)
        ]
        return _json(found)

    def parameters(self, request: _GuestRequest) -> Response:
        """Return the OS parameters: ``[value, visibility]`` by name."""
        return _json({name: list(pair) for name, pair in sorted(request.guest.parameters.items())})

    def cloud_meta_data(self, request: _GuestRequest) -> Response:
        """Return the meta-data of cloud-init."""
        return _text(nocloud.meta_data(request.guest))

    def cloud_user_data(self, request: _GuestRequest) -> Response:
        """Return the user data of cloud-init."""
        found = nocloud.user_data(request.guest)
        if found is None:
            raise Refused(404, "the user data are a file of the node")
        return _text(found)

    def cloud_vendor_data(self, request: _GuestRequest) -> Response:
        """Return the vendor data of cloud-init, for which it asks: there are none."""
        return _text("")

    def environment(self, request: _GuestRequest) -> Response:
        """Return the variables of the script which a helper guest runs, quoted for a shell."""
        if request.guest.task is None:
            raise Refused(404, "this is not a helper guest")
        lines = [
            f"{name}={shlex.quote(value)}\n"
            for name, value in sorted(request.guest.environment.items())
        ]
        return _text("".join(lines))

    def package(self, request: _GuestRequest) -> Response:
        """Return the directory of the OS definition, as a tar archive."""
        directory = self._definition(request.guest)
        spool = tempfile.TemporaryFile()
        try:
            with tarfile.open(fileobj=spool, mode="w") as archive:
                # Without an entry for the directory itself, which some tar programs cannot unpack.
                for name in sorted(os.listdir(directory)):
                    archive.add(f"{directory}/{name}", arcname=name, filter=_without_owner)
            spool.seek(0)
        except OSError as err:
            spool.close()
            raise _unreadable(request.guest, err) from err
        return Response(200, _pieces(spool), [("Content-Type", _TAR)])

    def install_package(self, request: _GuestRequest) -> Response:
        """Return the file of the OS definition which a parameter names."""
        value, _visibility = request.guest.parameters.get(PACKAGE_PARAMETER, ("", ""))
        if not value:
            raise Refused(404, f"OS parameter {PACKAGE_PARAMETER} is not set")
        return self._file(request.guest, value)

    def script(self, request: _GuestRequest, name: str) -> Response:
        """Return a script of the OS definition."""
        return self._file(request.guest, name)

    def read(self, request: _GuestRequest) -> Response:
        """Return the task of a helper guest; an empty text for any other guest."""
        return _text(f"{request.guest.task}\n" if request.guest.task else "")

    def write(self, request: _GuestRequest) -> Response:
        """Take an event or output of a guest."""
        event = (request.arguments.get("event") or [const.EVENT_LOG])[-1]
        report = request.guest.report
        if event == const.EVENT_START:
            report.started = True
        elif event == const.EVENT_LOG:
            report.add_log(request.body)
        elif event == const.EVENT_EXIT:
            report.exit_code = _exit_code(request.body)
        else:
            raise Refused(400, f"there is no event '{event:.40}', only {', '.join(const.EVENTS)}")
        return _text("")

    # -- files -----------------------------------------------------------------

    def _definition(self, guest: Guest) -> str:
        name = OS.base_name(guest.os)
        if name not in ("", ".", "..") and "/" not in name and _can_be_path(name):
            for base in self._os_search_path:
                if os.path.isdir(f"{base}/{name}"):
                    return f"{base}/{name}"
        raise Refused(404, f"OS {name or '(none)'} is not on this node")

    def _file(self, guest: Guest, name: str) -> Response:
        """Return a file of the guest's OS definition.

        :raises Refused: 404 when there is no such file inside the OS definition.
        """
        if not _can_be_path(name):
            raise Refused(404, f"{name!r} cannot be the name of a file")
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


def _can_be_path(name: str) -> bool:
    try:
        return b"\0" not in os.fsencode(name)
    except UnicodeEncodeError:
        return False


def _exit_code(body: bytes) -> int:
    text = body.strip()
    if not text.isdigit() or len(text) > 3 or int(text) > 255:
        raise Refused(400, "an exit code is a number from 0 to 255")
    return int(text)


def _without_owner(member: tarfile.TarInfo) -> tarfile.TarInfo:
    # The owner of a file on the node has no meaning in a guest.
    member.uid = member.gid = 0
    member.uname = member.gname = "root"
    return member


def _unreadable(guest: Guest, err: OSError) -> Refused:
    _log.error("guest %s: cannot read OS definition %s: %s", guest.name, guest.os, err)
    return Refused(500, f"the files of OS {OS.base_name(guest.os)} cannot be read: {err.strerror}")


def _json(value: Any) -> Response:
    return Response(200, (json.dumps(value) + "\n").encode(), [("Content-Type", messages.JSON)])


def _text(value: str) -> Response:
    return Response(200, _encoded(value), [("Content-Type", _TEXT)])


def _encoded(value: str) -> bytes:
    """Encode a text; a surrogate without its pair, which UTF-8 has not, becomes ``\\udXXX``."""
    return value.encode("utf-8", "backslashreplace")


async def _pieces(stream: IO[bytes]) -> AsyncIterator[bytes]:
    with stream:
        while piece := await asyncio.to_thread(stream.read, _PIECE_BYTES):
            yield piece


def _script_page(name: str) -> _Page:
    return _Page("GET", lambda application, request: application.script(request, name), files=True)


_PAGES: Final[dict[str, _Page]] = {
    f"{PREFIX}meta_data.json": _Page("GET", MetadataApplication.facts),
    f"{PREFIX}os/os-install-package": _Page("GET", MetadataApplication.install_package, files=True),
    f"{PREFIX}os/package": _Page("GET", MetadataApplication.package, files=True),
    f"{PREFIX}os/parameters.json": _Page("GET", MetadataApplication.parameters),
    f"{PREFIX}os/environment": _Page("GET", MetadataApplication.environment),
    f"{PREFIX}nocloud/meta-data": _Page("GET", MetadataApplication.cloud_meta_data),
    f"{PREFIX}nocloud/user-data": _Page("GET", MetadataApplication.cloud_user_data),
    f"{PREFIX}nocloud/vendor-data": _Page("GET", MetadataApplication.cloud_vendor_data),
    f"{PREFIX}read": _Page("GET", MetadataApplication.read),
    f"{PREFIX}write": _Page("POST", MetadataApplication.write),
    **{f"{PREFIX}os/scripts/{name}": _script_page(name) for name in SCRIPTS},
}
