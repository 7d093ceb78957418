"""A minimal DHCP server, which gives the communication interface of each guest its address.

Most guests ask for an address on every interface, so the communication interface works without any
preparation in the guest. The server answers requests which arrive through an interface of the
communication network, from the MAC address that belongs to it, and no others. Each guest has one
fixed address, so the server keeps no leases. Answers name neither router nor name server, because
the network ends at the node.

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

# Numbers of options (RFC 2132).
_NETMASK, _REQUESTED_IP, _LEASE, _TYPE, _SERVER = 1, 50, 51, 53, 54
_PAD, _END = 0, 255
# Types of messages (RFC 2132).
DISCOVER, OFFER, REQUEST, ACK, NAK = 1, 2, 3, 5, 6

_MAX_BYTES = 2048
#: linux/in.h: the interface through which a message arrives or leaves.
_IP_PKTINFO = 8
#: struct in_pktinfo of ip(7): interface, our address, destination in the header of the packet.
_PKTINFO = struct.Struct("@i4s4s")


class DhcpRequest(NamedTuple):
    """The request of a client.

    :ivar kind: type of the message, such as :data:`DISCOVER`.
    :ivar address: the address which the client has or wants.
    :ivar server: the server which the client has chosen.
    """

    kind: int
    transaction: int
    flags: int
    mac: bytes
    address: str | None
    server: str | None


def parse_request(data: bytes) -> DhcpRequest | None:
    """Read a request; None for a message which is not a request, or which this server ignores."""
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
    return DhcpRequest(
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


def reply(request: DhcpRequest, guests: Guests) -> bytes | None:
    """Return the answer to a request; None for another client or server."""
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


def _message(request: DhcpRequest, kind: int, ip: str | None) -> bytes:
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
    """Open the socket of the server.

    :raises OSError: another DHCP server uses the port, or this user may not open it.
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
    """Answer all requests which have arrived."""
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
            # The client has no address yet, so the answer is a broadcast on its own link.
            sock.sendmsg(
                [answer],
                [(socket.IPPROTO_IP, _IP_PKTINFO, info)],
                0,
                ("255.255.255.255", CLIENT_PORT),
            )
        except OSError as err:
            _log.warning("cannot send an address to a guest: %s", err)


def _interface(notes: list[tuple[int, int, bytes]]) -> int | None:
    """Return the number of the interface through which a message came; None for a foreign one."""
    for level, kind, data in notes:
        if level == socket.IPPROTO_IP and kind == _IP_PKTINFO:
            index = int(_PKTINFO.unpack(data[: _PKTINFO.size])[0])
            try:
                name = socket.if_indextoname(index)
            except OSError:
                return None
            return index if name.startswith(const.TAP_PREFIX) else None
    return None
