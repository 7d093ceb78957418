"""Sees Ethernet frames with their VLANs, and sends some; copied to a machine like ``writer.py``.

    frames.py watch DEVICE SOURCE [COUNT]  prints "watching", then "SOURCE VLAN" of each frame that
                                           passes, from addresses that begin so; ends after COUNT
    frames.py send DEVICE VLAN...          sends a broadcast in each of these VLANs

VLAN 0 is a frame without a tag. What is sent comes from ``OURS`` and the VLAN as two more bytes.
"""

import socket
import struct
import sys

OURS = "02:00:00:00:"
_ALL = 0x0003
_TAGGED = 0x8100
_EXPERIMENTAL = 0x88B5
_SOL_PACKET, _AUXDATA = 263, 8
_VLAN_VALID = 1 << 4
_AUX = struct.Struct("=IIIHHHH")


def vlan(frame: bytes, notes: list[tuple[int, int, bytes]]) -> int:
    """Return the VLAN of a frame; the kernel stores most tags outside the frame."""
    for level, kind, data in notes:
        if (level, kind) == (_SOL_PACKET, _AUXDATA):
            status, _length, _kept, _mac, _net, tag, _protocol = _AUX.unpack(data[: _AUX.size])
            if status & _VLAN_VALID:
                return int(tag & 0xFFF)
    protocol, tag = struct.unpack("!HH", frame[12:16])
    return int(tag & 0xFFF) if protocol == _TAGGED else 0


def watch(device: str, source: str, count: int) -> None:
    """Print what passes, in both directions; without end when `count` is 0."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ALL)) as raw:
        raw.setsockopt(_SOL_PACKET, _AUXDATA, 1)
        raw.bind((device, _ALL))
        print("watching", flush=True)
        seen = 0
        while not count or seen < count:
            frame, notes, _flags, _sender = raw.recvmsg(2048, socket.CMSG_SPACE(_AUX.size))
            sender = frame[6:12].hex(":")
            if sender.startswith(source):
                print(sender, vlan(frame, notes), flush=True)
                seen += 1


def send(device: str, vlans: list[int]) -> None:
    """Send a broadcast in each VLAN."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as raw:
        raw.bind((device, 0))
        for number in vlans:
            source = bytes.fromhex(OURS.replace(":", "")) + struct.pack("!H", number)
            tag = struct.pack("!HH", _TAGGED, number) if number else b""
            raw.send(b"\xff" * 6 + source + tag + struct.pack("!H", _EXPERIMENTAL) + bytes(60))


if __name__ == "__main__":
    if sys.argv[1] == "watch":
        watch(sys.argv[2], sys.argv[3], int([*sys.argv, "0"][4]))
    else:
        send(sys.argv[2], [int(word) for word in sys.argv[3:]])
