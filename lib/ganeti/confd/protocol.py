"""Datagrams of the configuration query protocol; pure functions, used by both ends.

A datagram is the magic number and a JSON envelope ``{"salt", "msg", "hmac"}``. ``msg`` is the JSON
text of the inner message, ``hmac`` the HMAC-SHA1 of salt and msg with the cluster's key, in hex. A
request's salt is the time in seconds, so that it cannot be used again later; an answer's salt is
the random ``rsalt`` of its request, so that it cannot be passed off as the answer to another.

The messages are authenticated, not secret: nothing confidential may be put into them.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Any, NamedTuple

from ganeti import errors
from ganeti.constants import confd as const
from ganeti.wire import json


class Signed(NamedTuple):
    """A datagram whose signature is right."""

    salt: str
    message: Any
    key: bytes
    signature: str


class Request(NamedTuple):
    """What a client wants to know; ``rsalt`` comes back as the salt of the answer."""

    kind: int
    query: Any
    rsalt: str


class Reply(NamedTuple):
    """What a daemon says; ``serial`` tells newer answers from older ones."""

    status: int
    answer: Any
    serial: int


class BadSignature(errors.ConfdClientError):
    """The signature is not one of our keys'."""


def _signature(key: bytes, salt: str, message: str) -> str:
    return hmac.new(key, (salt + message).encode("utf-8"), hashlib.sha1).hexdigest()


def pack(key: bytes, salt: str, message: Any) -> bytes:
    """Sign a message.

    :returns: the datagram.
    """
    text = json.dumps(message)
    envelope = {"salt": salt, "msg": text, "hmac": _signature(key, salt, text)}
    return const.MAGIC + json.dumps(envelope).encode("utf-8")


def unpack(keys: list[bytes], datagram: bytes) -> Signed:
    """Check a datagram's form and signature.

    :param keys: any of them may have signed.
    :raises ConfdMagicError: the magic number is missing.
    :raises BadSignature: signed with another key, or changed on the way.
    :raises ConfdClientError: not in the form of a datagram.
    """
    if not datagram.startswith(const.MAGIC):
        raise errors.ConfdMagicError("a datagram without the magic number")
    envelope = _parse(datagram[len(const.MAGIC) :])
    if not isinstance(envelope, dict):
        raise errors.ConfdClientError("the envelope is no JSON object")
    salt, text, signature = (envelope.get(name) for name in ("salt", "msg", "hmac"))
    if not (isinstance(salt, str) and isinstance(text, str) and isinstance(signature, str)):
        raise errors.ConfdClientError("the envelope lacks salt, msg or hmac")
    for key in keys:
        # A text with strange characters cannot be compared in constant time, and is wrong anyway.
        if signature.isascii() and hmac.compare_digest(_signature(key, salt, text), signature):
            return Signed(salt, _parse(text.encode("utf-8")), key, signature)
    raise BadSignature("the signature is not one of this cluster's")


def _parse(data: bytes) -> Any:
    try:
        return json.loads(data.decode("utf-8"))
    except (UnicodeDecodeError, errors.ParseError) as err:
        raise errors.ConfdClientError(f"not JSON: {err}") from err


def pack_request(key: bytes, request: Request, now: float) -> bytes:
    """The datagram of a request."""
    message: dict[str, Any] = {
        "protocol": const.PROTOCOL_VERSION,
        "type": request.kind,
        "rsalt": request.rsalt,
    }
    if request.query is not None:
        message["query"] = request.query
    return pack(key, str(int(now)), message)


def parse_request(message: Any) -> Request:
    """The inner message of a request.

    :raises ConfdClientError: it cannot be answered.
    """
    if not isinstance(message, dict):
        raise errors.ConfdClientError("the request is no JSON object")
    kind, rsalt = message.get("type"), message.get("rsalt")
    if message.get("protocol") != const.PROTOCOL_VERSION:
        raise errors.ConfdClientError(f"protocol {message.get('protocol')!r:.20} is not known")
    if not isinstance(kind, int) or isinstance(kind, bool) or not isinstance(rsalt, str):
        raise errors.ConfdClientError("the request lacks type or rsalt")
    return Request(kind, message.get("query"), rsalt)


def pack_reply(key: bytes, request: Request, reply: Reply) -> bytes:
    """The datagram of an answer."""
    return pack(
        key,
        request.rsalt,
        {
            "protocol": const.PROTOCOL_VERSION,
            "status": reply.status,
            "answer": reply.answer,
            "serial": reply.serial,
        },
    )


def unpack_reply(keys: list[bytes], datagram: bytes) -> tuple[str, Reply]:
    """Check an answer.

    :returns: the ``rsalt`` of the request it belongs to, and the answer.
    :raises ConfdClientError: wrong signature or form.
    """
    signed = unpack(keys, datagram)
    message = signed.message
    if not isinstance(message, dict) or message.get("protocol") != const.PROTOCOL_VERSION:
        raise errors.ConfdClientError("the answer is of another protocol")
    status, serial = message.get("status"), message.get("serial")
    if not isinstance(status, int) or not isinstance(serial, int) or "answer" not in message:
        raise errors.ConfdClientError("the answer lacks status, answer or serial")
    return signed.salt, Reply(status, message["answer"], serial)
