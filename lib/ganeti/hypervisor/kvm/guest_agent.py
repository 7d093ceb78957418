"""Questions to the QEMU guest agent, a program which runs inside of the guest.

What it answers comes from the guest, so it is only shown, and its size and time are bounded. A
guest without a running agent does not answer, which is no error.

Source: QEMU's guest agent protocol reference (``guest-sync-delimited``,
``guest-network-get-interfaces``).
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
import time
from collections.abc import Iterator
from typing import Any

from ganeti import errors
from ganeti.wire import json

#: How long the agent may take for all answers.
TIMEOUT_S = 1.0
_MAX_BYTES = 1 << 18
_MAX_ADDRESSES = 16
# What an answer of another form raises.
_OTHER_FORM = (ValueError, KeyError, TypeError, AttributeError)


def addresses(path: str) -> list[str]:
    """Return the addresses of the guest, without those which mean itself or only its link.

    :param path: the socket of the agent.
    :returns: empty when there is no answer, or one of another form.
    """
    with contextlib.suppress(OSError, *_OTHER_FORM):
        return list(_useful(_ask(path, "guest-network-get-interfaces")))[:_MAX_ADDRESSES]
    return []


def _useful(interfaces: Any) -> Iterator[str]:
    for interface in interfaces:
        for entry in interface.get("ip-addresses", ()):
            address = ipaddress.ip_address(entry["ip-address"])
            if not (address.is_loopback or address.is_link_local):
                yield str(address)


def _ask(path: str, command: str) -> Any:
    """Give the agent a command, and return its answer.

    :raises OSError: it does not answer in time.
    :raises ValueError: it answers something else, or too much.
    """
    deadline = time.monotonic() + TIMEOUT_S
    with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as agent:
        agent.settimeout(TIMEOUT_S)
        agent.connect(path)
        # An answer to an earlier question, which nobody has read, ends before this number.
        number = int.from_bytes(os.urandom(4), "big")
        _send(agent, "guest-sync", {"id": number})
        received = b""
        asked = False
        while True:
            line, newline, rest = received.partition(b"\n")
            if newline:
                received = rest
                answer = _parsed(line)
                if not asked and answer.get("return") == number:
                    asked = True
                    _send(agent, command)
                elif asked:
                    return answer["return"]
                continue
            if len(received) > _MAX_BYTES:
                raise ValueError("the answer of the guest agent is too long")
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise TimeoutError
            agent.settimeout(left_s)
            part = agent.recv(65536)
            if not part:
                raise ConnectionError
            received += part


def _send(agent: socket.socket, command: str, arguments: dict[str, Any] | None = None) -> None:
    request: dict[str, Any] = {"execute": command}
    if arguments:
        request["arguments"] = arguments
    agent.sendall(json.dumps(request).encode() + b"\n")


def _parsed(line: bytes) -> dict[str, Any]:
    """Return an answer; an empty one for a line which is none."""
    try:
        answer = json.loads(line.lstrip(b"\xff"))
    except errors.ParseError:
        return {}
    return answer if isinstance(answer, dict) else {}
