"""Datagrams of the configuration query protocol; pure functions, used by both ends.

A datagram is the magic number and a JSON envelope ``{"salt", "msg", "hmac"}``. ``msg`` is the JSON
text of the message, ``hmac`` the HMAC-SHA1 of salt and msg with the cluster's key, in hex. The salt
of a request is the time in seconds, so that the request cannot be used again later; the salt of an
answer is the random ``rsalt`` of its request, so that it cannot serve as the answer to another one.

The messages are authenticated and not encrypted, so they must not contain secrets.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Any, NamedTuple

from ganeti import errors
from ganeti.constants import confd as const
from ganeti.wire import json


class Signed(NamedTuple):
    """A datagram with a correct signature.

    :ivar key: the key with which it was signed.
    """

    salt: str
    message: Any
    key: bytes
    signature: str


class ConfdRequest(NamedTuple):
    """A question; its ``rsalt`` becomes the salt of the answer."""

    kind: int
    query: Any
    rsalt: str


class ConfdReply(NamedTuple):
    """The answer of a daemon; a higher ``serial`` means a newer answer."""

    status: int
    answer: Any
    serial: int


class BadSignature(errors.ConfdClientError):
    """The signature was not made with one of our keys."""


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

    :param keys: the datagram may be signed with any of them.
    :raises ConfdMagicError: the magic number is missing.
    :raises BadSignature: it was signed with another key, or changed on the way.
    :raises ConfdClientError: it has not the form of a datagram.
    """
    if not datagram.startswith(const.MAGIC):
        raise errors.ConfdMagicError("the datagram has no magic number")
    envelope = _parse(datagram[len(const.MAGIC) :])
    if not isinstance(envelope, dict):
        raise errors.ConfdClientError("the envelope is not a JSON object")
    salt, text, signature = (envelope.get(name) for name in ("salt", "msg", "hmac"))
    if not (isinstance(salt, str) and isinstance(text, str) and isinstance(signature, str)):
        raise errors.ConfdClientError("the envelope lacks salt, msg or hmac")
    if not (_is_encodable(salt) and _is_encodable(text)):
        raise errors.ConfdClientError("the envelope has an incomplete surrogate pair")
    for key in keys:
        # Only ASCII text can be compared in constant time; any other signature is wrong.
        signature = signature.lower()
        if signature.isascii() and hmac.compare_digest(_signature(key, salt, text), signature):
            return Signed(salt, _parse(text.encode("utf-8")), key, signature)
    raise BadSignature("the signature is not one of this cluster's")


def _is_encodable(text: str) -> bool:
    """Return True if UTF-8 can express a text.

    JSON can escape half of a surrogate pair, UTF-8 cannot.
    """
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _parse(data: bytes) -> Any:
    try:
        return json.loads(data.decode("utf-8"))
    except (UnicodeDecodeError, errors.ParseError) as err:
        raise errors.ConfdClientError(f"not JSON: {err}") from err


def pack_request(key: bytes, request: ConfdRequest, now: float) -> bytes:
    """Return the datagram of a request.

    :param now: seconds since the epoch.
    """
    message: dict[str, Any] = {
        "protocol": const.PROTOCOL_VERSION,
        "type": request.kind,
        "rsalt": request.rsalt,
    }
    if request.query is not None:
        message["query"] = request.query
    return pack(key, str(int(now)), message)


def whole_number(value: Any) -> int | None:
    """Return the whole number that a value of JSON is; None if it is something else.

    Languages with one type of numbers write ``3.0`` for 3.
    """
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def parse_request(message: Any) -> ConfdRequest:
    """Read the message of a request.

    :raises ConfdClientError: it is not a request of this protocol.
    """
    if not isinstance(message, dict):
        raise errors.ConfdClientError("the request is not a JSON object")
    kind, rsalt = whole_number(message.get("type")), message.get("rsalt")
    if message.get("protocol") != const.PROTOCOL_VERSION:
        raise errors.ConfdClientError("the request has another protocol")
    if kind is None or not isinstance(rsalt, str):
        raise errors.ConfdClientError("the request lacks type or rsalt")
    if not _is_encodable(rsalt):
        # It becomes the salt of the answer, which is signed.
        raise errors.ConfdClientError("rsalt has an incomplete surrogate pair")
    return ConfdRequest(kind, message.get("query"), rsalt)


def pack_reply(key: bytes, request: ConfdRequest, reply: ConfdReply) -> bytes:
    """Return the datagram of an answer."""
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


def unpack_reply(keys: list[bytes], datagram: bytes) -> tuple[str, ConfdReply]:
    """Check and read the datagram of an answer.

    :returns: the ``rsalt`` of the request to which it belongs, and the answer.
    :raises ConfdClientError: the signature or the form is wrong.
    """
    signed = unpack(keys, datagram)
    message = signed.message
    if not isinstance(message, dict) or message.get("protocol") != const.PROTOCOL_VERSION:
        raise errors.ConfdClientError("the answer has another protocol")
    status, serial = message.get("status"), message.get("serial")
    if not isinstance(status, int) or not isinstance(serial, int) or "answer" not in message:
        raise errors.ConfdClientError("the answer lacks status, answer or serial")
    return signed.salt, ConfdReply(status, message["answer"], serial)
