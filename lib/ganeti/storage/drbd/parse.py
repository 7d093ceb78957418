"""Reading ``/proc/drbd`` and the output of ``drbdsetup show``; pure functions.

``/proc/drbd`` has the state of all minors, and reading it runs no program (:func:`parse_proc`).
Only ``drbdsetup show`` prints the configuration of a minor (:func:`parse_show`); its language has
nested blocks and is parsed with pyparsing, which is loaded when it is needed: it takes 5 MiB and
80 ms.

Source: drbdsetup(8) of 8.3, 8.4 and 9.0; captured samples in test/data/drbd.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from ganeti import errors
from ganeti.storage.drbd import argv
from ganeti.utils.digits import is_number

if TYPE_CHECKING:
    import pyparsing as pp

UNCONFIGURED = "Unconfigured"
STANDALONE = "StandAlone"
CONNECTED = "Connected"
WF_CONNECTION = "WFConnection"
#: Connection states in which DRBD synchronises, or prepares to.
RESYNCING = frozenset(
    (
        "StartingSyncS",
        "StartingSyncT",
        "WFBitMapS",
        "WFBitMapT",
        "WFSyncUUID",
        "SyncSource",
        "SyncTarget",
        "PausedSyncS",
        "PausedSyncT",
    )
)
#: Those of them in which this node receives blocks.
SYNC_TARGETS = frozenset(("StartingSyncT", "WFBitMapT", "WFSyncUUID", "SyncTarget", "PausedSyncT"))
PRIMARY = "Primary"
UP_TO_DATE = "UpToDate"
DISKLESS = "Diskless"
#: A complete replica which is marked as one that missed writes.
OUTDATED = "Outdated"

# Numbers of bounded length: Python refuses to read thousands of digits.
_VERSION = re.compile(r"^version:\s*(\d{1,9})\.(\d{1,9})(?!\d)(?:\.(\d{1,9}))?")
_MINOR = re.compile(r"^\s*(\d{1,9}):\s+cs:(\S+)(.*)$")
_STATES = re.compile(r"\b(?:ro|st):([^/\s]+)/(\S+)\s+ds:([^/\s]+)/(\S+)")
_PERCENT = re.compile(r"sync'ed:\s*(\d{1,9}(?:\.\d+)?)%")
_FINISH = re.compile(r"finish:\s*(\d{1,9}):(\d{1,9}):(\d{1,9})")
_AGREED = re.compile(r"^la-size-sect\s+(\d{1,20});", re.MULTILINE)
_OWN_SIZE = re.compile(r"^# md_size_sect\s+(\d{1,20})$", re.MULTILINE)
_OUT_OF_SYNC = re.compile(r"\boos:(\d{1,20})(?!\d)")
# The first flag after the protocol, which is missing without a connection: running or suspended.
_SUSPENDED = re.compile(r"\bds:\S+\s+(?:[ABC]\s+)?s")


class MetadataSizes(NamedTuple):
    """Sizes in the metadata of a replica, in sectors of 512 bytes.

    :ivar agreed_sectors: size of the device on which the replicas last agreed; 0 for new metadata.
    :ivar own_sectors: size of the metadata; None where the version of DRBD does not tell it.
    """

    agreed_sectors: int
    own_sectors: int | None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MinorState:
    """The state of one minor in ``/proc/drbd``; time in seconds.

    :ivar resource: to which it belongs; None where ``/proc/drbd`` does not say it.
    :ivar suspended: requests to the device wait, for example because it lost its peer.
    """

    minor: int
    connection: str
    local_role: str = ""
    remote_role: str = ""
    local_disk: str = ""
    remote_disk: str = ""
    sync_percent: float | None = None
    finish_s: int | None = None
    out_of_sync_kib: int | None = None
    suspended: bool = False
    resource: str | None = None

    @property
    def configured(self) -> bool:
        """True if it has local storage or a peer."""
        return self.connection != UNCONFIGURED

    @property
    def connected(self) -> bool:
        """True if both replicas are connected and in sync."""
        return self.connection == CONNECTED

    @property
    def resyncing(self) -> bool:
        """True if a replica is being synchronised."""
        return self.connection in RESYNCING

    @property
    def standalone(self) -> bool:
        """True if it does not try to connect to its peer."""
        return self.connection == STANDALONE

    @property
    def diskless(self) -> bool:
        """True if it has no local storage."""
        return self.local_disk == DISKLESS

    @property
    def up_to_date(self) -> bool:
        """True if the local replica is valid, as far as this node knows."""
        return self.local_disk == UP_TO_DATE

    @property
    def outdated(self) -> bool:
        """True if the local replica is complete, but marked as one that missed writes."""
        return self.local_disk == OUTDATED

    @property
    def primary(self) -> bool:
        """True if the device is writable on this node."""
        return self.local_role == PRIMARY


def parse_version(text: str) -> tuple[int, int, int]:
    """Read the version of the kernel module from ``/proc/drbd``.

    :raises ParseError: the text does not begin with a version.
    """
    for line in text.splitlines():
        match = _VERSION.match(line)
        if match:
            major, middle, release = match.groups()
            return int(major), int(middle), int(release or 0)
        if line.strip():
            break
    raise errors.ParseError(f"no version of DRBD in {text[:80]!r}")


def parse_proc(text: str) -> dict[int, MinorState]:
    """Read the states of all minors from ``/proc/drbd``.

    :raises ParseError: the state of a minor has another form; the message has the line.
    """
    blocks: dict[int, list[str]] = {}
    current: list[str] | None = None
    for line in text.splitlines():
        match = _MINOR.match(line)
        if match:
            current = blocks[int(match.group(1))] = [line]
        elif current is not None:
            current.append(line)
    return {minor: _state(minor, lines) for minor, lines in blocks.items()}


def _state(minor: int, lines: list[str]) -> MinorState:
    match = _MINOR.match(lines[0])
    assert match is not None
    connection, rest = match.group(2), match.group(3)
    if connection == UNCONFIGURED:
        return MinorState(minor=minor, connection=connection)
    states = _STATES.search(rest)
    if states is None:
        raise errors.ParseError(f"expected the state of a DRBD minor, found {lines[0]!r:.200}")
    text = "\n".join(lines)
    percent, finish, out_of_sync = (p.search(text) for p in (_PERCENT, _FINISH, _OUT_OF_SYNC))
    return MinorState(
        minor=minor,
        connection=connection,
        local_role=states.group(1),
        remote_role=states.group(2),
        local_disk=states.group(3),
        remote_disk=states.group(4),
        sync_percent=float(percent.group(1)) if percent else None,
        finish_s=_seconds(finish) if finish else None,
        out_of_sync_kib=int(out_of_sync.group(1)) if out_of_sync else None,
        suspended=_SUSPENDED.search(rest) is not None,
    )


def _seconds(match: re.Match[str]) -> int:
    hours, minutes, seconds = (int(part) for part in match.groups())
    return hours * 3600 + minutes * 60 + seconds


# -- drbdsetup show ------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MinorConfig:
    """The configuration of a minor; parts which it does not have are None.

    Addresses are ``(address, port)``. ``waits_for_peer``: it confirms no write without its peer.
    ``node_id`` and ``peer_node_id`` exist with DRBD 9 only; the latter also for a connection which
    is down.
    """

    resource: str | None = None
    minor: int | None = None
    data_device: str | None = None
    meta_device: str | None = None
    meta_index: str | None = None
    local_address: tuple[str, int] | None = None
    remote_address: tuple[str, int] | None = None
    protocol: str | None = None
    hmac: str | None = None
    secret: str | None = None
    dual_primary: bool = False
    waits_for_peer: bool = False
    node_id: int | None = None
    peer_node_id: int | None = None


@functools.cache
def show_grammar() -> pp.ParserElement:
    """Statements ``a b c;`` and nested blocks ``a b { ... }``; comments begin with ``#``."""
    import pyparsing as pp

    quoted = pp.QuotedString('"', esc_char="\\")
    plain = pp.Regex(r"[^\s;{}\"#]+")
    word = quoted | plain
    block = pp.Forward()
    statement = pp.Group(pp.OneOrMore(word))("statement") + pp.Suppress(";")
    body = pp.Suppress("{") + pp.Group(pp.ZeroOrMore(block)) + pp.Suppress("}")
    nested = pp.Group(pp.OneOrMore(word)) + body
    block <<= pp.Group(nested | statement)
    return pp.ZeroOrMore(block).ignore(pp.Regex(r"#[^\n]*"))


_IPV6 = re.compile(r"^\[(.*)\]:(\d+)$")
_YES = ("yes", "allow-two-primaries")
_PATH_ENDS = {"_this_host": "local_address", "_remote_host": "remote_address"}
_LEVELS = ("resource", "volume", "connection")


def parse_show(text: str) -> MinorConfig:
    """Read the output of ``drbdsetup show`` for one minor, of 8.3 or 8.4, or one resource of 9.

    Of several connections, which only DRBD 9 can have, the first one counts.

    :raises ParseError: the text is not such output.
    """
    import pyparsing as pp

    try:
        tree = show_grammar().parse_string(text, parse_all=True)
    except pp.ParseException as err:
        raise errors.ParseError(
            f"cannot read the output of drbdsetup show (line {err.lineno}): {err.line!r:.120}"
        ) from err
    found: dict[str, Any] = {}
    _collect(tree, (), found)
    return MinorConfig(**found)


def parse_metadata(text: str) -> MetadataSizes:
    """Read the sizes from the output of ``drbdmeta dump-md``.

    :raises ParseError: the text is not such output.
    """
    agreed, own = _AGREED.search(text), _OWN_SIZE.search(text)
    if agreed is None:
        raise errors.ParseError(f"no size in the output of drbdmeta dump-md: {text!r:.120}")
    return MetadataSizes(int(agreed.group(1)), int(own.group(1)) if own else None)


def _collect(items: Any, path: tuple[str, ...], found: dict[str, Any]) -> None:
    for item in items:
        if "statement" in item:
            _statement(list(item["statement"]), path, found)
            continue
        heading, body = list(item[0]), item[1]
        if heading[0] == "resource" and len(heading) == 2:
            found["resource"] = heading[1]
        if heading[0] == "connection" and "peer_node_id" in found:
            continue
        # 8.3 lacks the levels of resource and volume which 8.4 has, and both that of a connection
        # which 9 has, so the path omits them.
        inner = path if heading[0] in _LEVELS else (*path, heading[0])
        _collect(body, inner, found)


def _statement(given: list[str], path: tuple[str, ...], found: dict[str, Any]) -> None:
    # Old versions print all options, and mark those which have their defaults.
    values = [value for value in given[1:] if value != "_is_default"]
    name = given[0]
    if path == () and name == "protocol" and values:
        found["protocol"] = values[0]
    elif path == ("net",):
        _net_option(name, values, found)
    elif path == ("_this_host",):
        _this_host(name, values, found)
    elif path[-1:] == ("disk",) and name == "fencing":
        found["waits_for_peer"] = values == [argv.WAIT_POLICY]
    elif path == ("_remote_host",) and name == "address":
        found["remote_address"] = _address(values)
    elif path == ("path",) and name in _PATH_ENDS:
        found.setdefault(_PATH_ENDS[name], _address(values))
    elif path == () and name == "_peer_node_id" and values:
        found["peer_node_id"] = _integer(values[0])


def _net_option(name: str, values: list[str], found: dict[str, Any]) -> None:
    if name == "allow-two-primaries":
        found["dual_primary"] = not values or values[0] in _YES
    elif name == "fencing":
        found["waits_for_peer"] = values == [argv.WAIT_POLICY]
    elif name in ("protocol", "cram-hmac-alg", "shared-secret") and values:
        key = {"cram-hmac-alg": "hmac", "shared-secret": "secret"}.get(name, name)
        found[key] = values[0]


def _this_host(name: str, values: list[str], found: dict[str, Any]) -> None:
    if name == "address":
        found["local_address"] = _address(values)
    elif name == "device" and len(values) == 2 and values[0] == "minor":
        found["minor"] = _integer(values[1])
    elif name == "node-id" and values:
        found["node_id"] = _integer(values[0])
    elif name == "disk" and values and values != ["none"]:
        found["data_device"] = values[0]
    elif name == "meta-disk" and values:
        found["meta_device"] = values[0]
        found["meta_index"] = "".join(values[1:]).strip("[]") or None


def _address(values: list[str]) -> tuple[str, int]:
    """Read ``ipv4 192.0.2.1:11000`` or ``ipv6 [2001:db8::1]:11000``."""
    text = values[-1] if values else ""
    match = _IPV6.match(text)
    host, port = match.groups() if match else text.rpartition(":")[::2]
    return host, _integer(port)


def _integer(text: str) -> int:
    if not is_number(text):
        raise errors.ParseError(f"expected a number from drbdsetup, found {text!r:.80}")
    return int(text)
