"""Joining by a one-time token: the token, the proofs, the messages. No sockets, no files.

Both ends share the token, which an administrator carries from the master to the new machine. It
names where the master waits, the new node, the moment it expires, the digest of the cluster's
certificate, and a secret. Over a TLS connection they then speak, a JSON object per line::

    machine -> master   {"hello": 1, "name": ..., "nonce": ...}
    master  -> machine  {"nonce": ..., "proof": ...}
    machine -> master   {"proof": ...}
    master  -> machine  {"credentials": {...}, "ssconf": {...}}
    machine -> master   {"ready": digest of its client certificate}   or {"failed": text}
    master  -> machine  {"taken in": true}                            or {"failed": text}

A proof is an HMAC with the token's secret over who proves, the certificate *as this end sees it*,
the name and both nonces. A man in the middle with a certificate of his own is refused by the digest
in the token; were it not so, his two connections would have different certificates and the proofs
would not fit. ``doc/design-join.rst`` has the whole consideration.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import struct
from typing import Any, NamedTuple, Protocol

from ganeti import errors
from ganeti.utils import net
from ganeti.wire import json

VERSION = 1
SECRET_BYTES = 32
NONCE_BYTES = 16
MASTER, MACHINE = "master", "machine"

_PREFIX = "gntjoin1-"
_HEAD = struct.Struct("!QH32s32s")
_CHECK_BYTES = 4
#: Before the other end has proved that it knows the secret, and afterwards.
STRANGER_LINE_BYTES = 4096
FRIEND_LINE_BYTES = 64 * 1024 * 1024


class JoinError(errors.OpPrereqError):
    """The two ends do not come together; nothing confidential was sent."""

    def __init__(self, text: str) -> None:
        super().__init__(text, errors.ECODE_ENVIRON)


class Token(NamedTuple):
    """What the administrator carries over; ``expires`` in seconds since 1970.

    ``certificate`` is the SHA256 digest of the cluster's certificate in its binary form.
    """

    expires: int
    address: str
    port: int
    certificate: bytes
    secret: bytes
    node_name: str

    def __repr__(self) -> str:
        return f"<join token for {self.node_name}>"

    def encode(self) -> str:
        """As one word to copy."""
        head = _HEAD.pack(self.expires, self.port, self.certificate, self.secret)
        body = head + f"{self.address} {self.node_name}".encode()
        check = hashlib.sha256(body).digest()[:_CHECK_BYTES]
        return _PREFIX + base64.urlsafe_b64encode(body + check).decode("ascii").rstrip("=")


def decode_token(text: str) -> Token:
    """Read a token; whether it is still good only the master knows.

    :raises JoinError: it is none, or was not copied completely.
    """
    word = "".join(text.split())
    if not word.startswith(_PREFIX):
        raise JoinError("this is no join token. One is made by 'gnt-node add --token'.")
    packed = word.removeprefix(_PREFIX)
    try:
        data = base64.b64decode(packed + "=" * (-len(packed) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as err:
        raise JoinError("the join token was not copied completely") from err
    body, check = data[:-_CHECK_BYTES], data[-_CHECK_BYTES:]
    if len(body) <= _HEAD.size or hashlib.sha256(body).digest()[:_CHECK_BYTES] != check:
        raise JoinError("the join token was not copied completely")
    expires, port, certificate, secret = _HEAD.unpack_from(body)
    address, _, name = body[_HEAD.size :].decode("utf-8", "replace").partition(" ")
    if not net.is_ip(address) or not name or not port:
        raise JoinError("the join token makes no sense")
    return Token(expires, address, port, certificate, secret, name)


def proof(secret: bytes, who: str, certificate: bytes, name: str, nonces: tuple[str, str]) -> str:
    """What shows that somebody knows the secret, here and now, on this connection.

    :param who: :data:`MASTER` or :data:`MACHINE`.
    :param certificate: digest of the certificate of this connection, as this end sees it.
    :param nonces: the machine's and the master's.
    """
    transcript = json.dumps([VERSION, who, certificate.hex(), name, *nonces])
    return hmac.new(secret, transcript.encode("utf-8"), hashlib.sha256).hexdigest()


def require_proof(given: Any, wanted: str, whose: str) -> None:
    """Compare, in constant time.

    :raises JoinError: the proof is wrong.
    """
    if not isinstance(given, str) or not given.isascii() or not hmac.compare_digest(given, wanted):
        raise JoinError(f"{whose} does not know the secret of the token")


class Stream(Protocol):
    """A connection: as much of a socket as is needed here."""

    def sendall(self, data: bytes, /) -> object:
        """Send everything."""

    def recv(self, size: int, /) -> bytes:
        """Receive something; empty at the end."""


class Channel:
    """Lines of JSON over a connection."""

    def __init__(self, stream: Stream, peer: str) -> None:
        self._stream = stream
        self._peer = peer
        self._rest = b""
        self.limit = STRANGER_LINE_BYTES

    def send(self, message: dict[str, Any]) -> None:
        """Send one message.

        :raises JoinError: the connection broke.
        """
        try:
            self._stream.sendall(json.dumps(message).encode("utf-8") + b"\n")
        except OSError as err:
            raise JoinError(f"the connection to {self._peer} broke: {err}") from err

    def receive(self, *keys: str) -> dict[str, Any]:
        """Wait for one message.

        :param keys: what it must have.
        :raises JoinError: the connection broke, or the message is another one.
        """
        while b"\n" not in self._rest:
            if len(self._rest) > self.limit:
                raise JoinError(f"{self._peer} sends a message that is too long")
            try:
                chunk = self._stream.recv(65536)
            except OSError as err:
                raise JoinError(f"the connection to {self._peer} broke: {err}") from err
            if not chunk:
                raise JoinError(f"{self._peer} ended the connection")
            self._rest += chunk
        line, _, self._rest = self._rest.partition(b"\n")
        if len(line) > self.limit:
            raise JoinError(f"{self._peer} sends a message that is too long")
        try:
            message = json.loads(line)
        except errors.ParseError as err:
            raise JoinError(f"{self._peer} does not speak the join protocol") from err
        if not isinstance(message, dict):
            raise JoinError(f"{self._peer} does not speak the join protocol")
        failed = message.get("failed")
        # A stranger's words are not shown to anybody.
        if isinstance(failed, str) and self.limit == FRIEND_LINE_BYTES:
            raise Refused(self._peer, failed)
        missing = [key for key in keys if key not in message]
        if missing:
            raise JoinError(f"{self._peer} sends a message without {', '.join(missing)}")
        return message


class Refused(JoinError):
    """The other end gave up and said why; after the proofs only, so it is to be believed."""

    def __init__(self, peer: str, text: str) -> None:
        super().__init__(f"{peer}: {text}")
        self.text = text


def greet(channel: Channel, token: Token, certificate: bytes, nonce: str) -> None:
    """The machine's part up to the proofs.

    :param certificate: digest of the certificate the other end showed.
    :raises JoinError: that is not the cluster's certificate, or the other end is not the master.
    """
    if not hmac.compare_digest(certificate, token.certificate):
        raise JoinError(
            f"{token.address} port {token.port} shows another certificate than the one the token"
            " names. Somebody may be in between; nothing was sent."
        )
    channel.send({"hello": VERSION, "name": token.node_name, "nonce": nonce})
    answer = channel.receive("nonce", "proof")
    nonces = nonce, str(answer["nonce"])
    require_proof(
        answer["proof"],
        proof(token.secret, MASTER, certificate, token.node_name, nonces),
        "the other end",
    )
    channel.send({"proof": proof(token.secret, MACHINE, certificate, token.node_name, nonces)})
    channel.limit = FRIEND_LINE_BYTES


def welcome(channel: Channel, token: Token, certificate: bytes, nonce: str) -> None:
    """The master's part up to the proofs.

    :param certificate: digest of the certificate we showed.
    :raises JoinError: the other end does not know the secret, or is another node.
    """
    hello = channel.receive("hello", "name", "nonce")
    if hello["hello"] != VERSION:
        raise JoinError(f"the machine speaks version {hello['hello']!r:.20} of the join protocol")
    if hello["name"] != token.node_name:
        raise JoinError(f"the machine calls itself {hello['name']!r:.100}")
    nonces = str(hello["nonce"]), nonce
    channel.send(
        {"nonce": nonce, "proof": proof(token.secret, MASTER, certificate, token.node_name, nonces)}
    )
    answer = channel.receive("proof")
    require_proof(
        answer["proof"],
        proof(token.secret, MACHINE, certificate, token.node_name, nonces),
        "the machine",
    )
    channel.limit = FRIEND_LINE_BYTES
