"""An address for the communication interface of a guest: the smallest DHCP server that works.

Guests ask for an address on every interface they have, so this gives those of the communication
network theirs without anything being prepared in the guest. Only requests that arrive through an
interface of that network count, and only from the MAC address that belongs to it; each has one
address, so there is nothing to remember. No router and no name server are named: there is nobody
behind the node.

Source: RFC 2131 *Dynamic Host Configuration Protocol*, RFC 2132 (options).
"""

from __future__ import annotations

import ipaddress
import logging
import socket
import struct
from typing import NamedTuple

from ganeti.constants import metad as const
from ganeti.metad.guests import Guests

_log = logging.getLogger(__name__)

SERVER_PORT = 67
CLIENT_PORT = 68
LEASE_S = 86400

_BOOTREQUEST, _BOOTREPLY = 1, 2
_ETHERNET = 1
_MAGIC = b"\x63\x82\x53\x63"
_HEADER = struct.Struct("!BBBBIHH4s4s4s4s16s64s128s")
_MESSAGE_BYTES = 300

# Options.
_NETMASK, _REQUESTED_IP, _LEASE, _TYPE, _SERVER = 1, 50, 51, 53, 54
_PAD, _END = 0, 255
# Types of messages.
DISCOVER, OFFER, REQUEST, ACK, NAK = 1, 2, 3, 5, 6

_MAX_BYTES = 2048
#: linux/in.h: tell through which interface a message comes, or goes.
_IP_PKTINFO = 8
#: struct in_pktinfo of ip(7): interface, our address, address in the packet's head.
_PKTINFO = struct.Struct("@i4s4s")


class Request(NamedTuple):
    """What a client wants; ``address`` is the one it would like, or has."""

    kind: int
    transaction: int
    flags: int
    mac: bytes
    address: str | None
    server: str | None


def parse_request(data: bytes) -> Request | None:
    """Read a request; None for what is none, or none we answer."""
    if len(data) < _HEADER.size + len(_MAGIC):
        return None
    (
        op,
        htype,
        hlen,
        _hops,
        transaction,
        _secs,
        flags,
        client,
        _yours,
        _next,
        _relay,
        mac,
        _name,
        _file,
    ) = _HEADER.unpack_from(data)
    if op != _BOOTREQUEST or htype != _ETHERNET or hlen != 6:
        return None
    if data[_HEADER.size : _HEADER.size + 4] != _MAGIC:
        return None
    options = _options(data[_HEADER.size + 4 :])
    if options is None or len(options.get(_TYPE, b"")) != 1:
        return None
    wanted = options.get(_REQUESTED_IP)
    if wanted is None and client != bytes(4):
        wanted = client
    return Request(
        options[_TYPE][0],
        transaction,
        flags,
        mac[:6],
        _address(wanted),
        _address(options.get(_SERVER)),
    )


def _options(data: bytes) -> dict[int, bytes] | None:
    found: dict[int, bytes] = {}
    at = 0
    while at < len(data):
        code = data[at]
        if code == _END:
            return found
        if code == _PAD:
            at += 1
            continue
        if at + 2 > len(data) or at + 2 + data[at + 1] > len(data):
            return None
        found[code] = data[at + 2 : at + 2 + data[at + 1]]
        at += 2 + data[at + 1]
    return found


def _address(data: bytes | None) -> str | None:
    if data is None or len(data) != 4:
        return None
    return str(ipaddress.IPv4Address(data))


def reply(request: Request, guests: Guests) -> bytes | None:
    """The answer to a request; None when it is not for us."""
    guest = guests.by_mac(":".join(f"{byte:02x}" for byte in request.mac))
    if guest is None:
        return None
    if request.kind == DISCOVER:
        return _message(request, OFFER, guest.ip)
    if request.kind != REQUEST or request.server not in (None, const.ADDRESS):
        return None
    if request.address != guest.ip:
        return _message(request, NAK, None)
    return _message(request, ACK, guest.ip)


def _message(request: Request, kind: int, ip: str | None) -> bytes:
    ours = ipaddress.IPv4Address(const.ADDRESS).packed
    yours = ipaddress.IPv4Address(ip).packed if ip else bytes(4)
    head = _HEADER.pack(
        _BOOTREPLY,
        _ETHERNET,
        6,
        0,
        request.transaction,
        0,
        request.flags,
        bytes(4),
        yours,
        bytes(4),
        bytes(4),
        request.mac.ljust(16, b"\0"),
        b"",
        b"",
    )
    options = [(_TYPE, bytes([kind])), (_SERVER, ours)]
    if ip:
        options += [
            (_LEASE, struct.pack("!I", LEASE_S)),
            (_NETMASK, ipaddress.IPv4Address(const.NETMASK).packed),
        ]
    body = b"".join(bytes([code, len(value)]) + value for code, value in options)
    return (head + _MAGIC + body + bytes([_END])).ljust(_MESSAGE_BYTES, b"\0")


def listen() -> socket.socket:
    """The socket of the server.

    :raises OSError: another DHCP server has the port, or we may not have it.
    """
    sock = socket.socket(
        socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
    )
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        sock.setsockopt(socket.IPPROTO_IP, _IP_PKTINFO, 1)
        sock.bind(("", SERVER_PORT))
    except BaseException:
        sock.close()
        raise
    return sock


def serve(sock: socket.socket, guests: Guests) -> None:
    """Answer what has arrived."""
    while True:
        try:
            data, notes, _flags, _peer = sock.recvmsg(_MAX_BYTES, socket.CMSG_SPACE(_PKTINFO.size))
        except BlockingIOError:
            return
        except OSError as err:
            _log.debug("cannot receive: %s", err)
            return
        index = _interface(notes)
        if index is None:
            continue
        request = parse_request(data)
        answer = reply(request, guests) if request is not None else None
        if answer is None:
            continue
        info = _PKTINFO.pack(index, socket.inet_aton(const.ADDRESS), bytes(4))
        try:
            # The client has no address yet, so everybody on its wire is told; there is nobody else.
            sock.sendmsg(
                [answer],
                [(socket.IPPROTO_IP, _IP_PKTINFO, info)],
                0,
                ("255.255.255.255", CLIENT_PORT),
            )
        except OSError as err:
            _log.warning("cannot answer a guest that asks for its address: %s", err)


def _interface(notes: list[tuple[int, int, bytes]]) -> int | None:
    """Number of the interface through which a message came, if it is one of ours."""
    for level, kind, data in notes:
        if level == socket.IPPROTO_IP and kind == _IP_PKTINFO:
            index = int(_PKTINFO.unpack(data[: _PKTINFO.size])[0])
            try:
                name = socket.if_indextoname(index)
            except OSError:
                return None
            return index if name.startswith(const.TAP_PREFIX) else None
    return None
