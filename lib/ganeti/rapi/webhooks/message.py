"""The message for an event: its body, and headers with a signature.

A receiver makes the signature again, and compares it; a number of libraries do so. It refuses old
times, and notes the ids of the messages which it has processed: a repeated message has the same id.

Source: the Standard Webhooks specification 1.0.
"""

from __future__ import annotations

import base64
import datetime
import hashlib
import hmac
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from ganeti.rapi.webhooks import rules
from ganeti.wire import json

#: The kinds of messages besides those of events.
RESET, TEST = "reset", "test"
_AGENT: Final = "Ganeti-Webhooks"


class Message(NamedTuple):
    """What is sent, before it is signed.

    :ivar id: the same when the message is sent again.
    :ivar at: when it was made, in seconds since 1970.
    """

    id: str
    kind: str
    data: Mapping[str, Any]
    severity: str
    at: float

    def body(self, cluster: str) -> bytes:
        """Return the body.

        :param cluster: name of the cluster.
        """
        time = datetime.datetime.fromtimestamp(self.at, datetime.UTC)
        return json.dumps(
            {
                "type": self.kind,
                "timestamp": time.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
                "cluster": cluster,
                "severity": self.severity,
                "data": self.data,
            }
        ).encode("utf-8")


def signature(secret: str, ident: str, timestamp: int, body: bytes) -> str:
    """Return the signature of a message."""
    signed = f"{ident}.{timestamp}.".encode("ascii") + body
    digest = hmac.new(rules.key_of(secret), signed, hashlib.sha256).digest()
    return "v1," + base64.b64encode(digest).decode("ascii")


def headers(secret: str, ident: str, now: float, body: bytes) -> list[tuple[str, str]]:
    """Return the headers of a message which is sent now."""
    timestamp = int(now)
    return [
        ("Content-Type", "application/json"),
        ("User-Agent", _AGENT),
        ("webhook-id", ident),
        ("webhook-timestamp", str(timestamp)),
        ("webhook-signature", signature(secret, ident, timestamp, body)),
    ]
