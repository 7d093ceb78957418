"""Joining a cluster with a one-time token: the token, the proofs, the messages. Pure functions.

Both ends have the token, which an administrator copies from the master to the new machine. It has
the address of the master, the name of the new node, the time at which it expires, the digest of the
cluster's certificate, and a secret. The ends use a TLS connection, with a JSON object per line::

    machine -> master   {"hello": 2, "name": ..., "nonce": ...}
    master  -> machine  {"nonce": ..., "proof": ...}
    machine -> master   {"proof": ...}
    master  -> machine  {"credentials": {...}, "ssconf": {...}}
    machine -> master   {"ready": digest of its client certificate}   or {"failed": text}
    master  -> machine  {"taken in": true}                            or {"failed": text}

A proof is an HMAC, with the secret of the token as its key, over the role of the sender, the
certificate *as this end sees it*, the name of the node and both nonces. A man in the middle needs a
certificate of his own: its digest is not the one in the token, and because his two connections
have different certificates, the proofs do not match. A node of the cluster has the certificate, and
can pass the proofs on. Therefore each line after the proofs begins with an HMAC over its number and
its text, with a key for each direction which is derived from the secret and from what the proofs
cover. ``doc/design-join.rst`` has the details.
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

VERSION = 2
SECRET_BYTES = 32
NONCE_BYTES = 16
MASTER, MACHINE = "master", "machine"

_PREFIX = "gntjoin1-"
_HEAD = struct.Struct("!QH32s32s")
_CHECK_BYTES = 4
#: The longest line before and after the other end has proved that it knows the secret.
UNAUTHENTICATED_LINE_BYTES = 4096
AUTHENTICATED_LINE_BYTES = 64 * 1024 * 1024


class JoinError(errors.OpPrereqError):
    """The machine cannot join; nothing confidential was sent."""

    def __init__(self, text: str) -> None:
        super().__init__(text, errors.ECODE_ENVIRON)


class Token(NamedTuple):
    """The facts in a token, which the administrator copies to the new machine.

    :ivar expires: time in seconds since 1970.
    :ivar address: address of the master.
    :ivar port: TCP port on which the master waits.
    :ivar certificate: SHA256 digest of the cluster's certificate in its binary form.
    :ivar secret: the shared secret of both ends.
    :ivar node_name: name of the node which may join.
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
        """Return the token as one word, which can be copied."""
        head = _HEAD.pack(self.expires, self.port, self.certificate, self.secret)
        body = head + f"{self.address} {self.node_name}".encode()
        check = hashlib.sha256(body).digest()[:_CHECK_BYTES]
        return _PREFIX + base64.urlsafe_b64encode(body + check).decode("ascii").rstrip("=")


def decode_token(text: str) -> Token:
    """Read a token from its word. Only the master knows whether it is still valid.

    :raises JoinError: the text is not a token, or was not copied completely.
    """
    word = "".join(text.split())
    if not word.startswith(_PREFIX):
        raise JoinError("this is not a join token. Make one with 'gnt-node add --token'.")
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
        raise JoinError("the join token is damaged")
    return Token(expires, address, port, certificate, secret, name)


class Session(NamedTuple):
    """What both ends know of one connection.

    :ivar secret: of the token.
    :ivar certificate: digest of the certificate of the connection, as this end sees it.
    :ivar name: name of the node which may join.
    :ivar nonces: the nonce of the machine and that of the master.
    """

    secret: bytes
    certificate: bytes
    name: str
    nonces: tuple[str, str]

    def proof(self, who: str) -> str:
        """Return the proof that an end of this connection knows the secret.

        :param who: the end which sends the proof, :data:`MASTER` or :data:`MACHINE`.
        """
        return self._derived("proof", who).hex()

    def key(self, who: str) -> bytes:
        """Return the key which authenticates the messages that an end sends after the proofs.

        :param who: the end which sends the messages, :data:`MASTER` or :data:`MACHINE`.
        """
        return self._derived("key", who)

    def _derived(self, purpose: str, who: str) -> bytes:
        transcript = json.dumps(
            [VERSION, purpose, who, self.certificate.hex(), self.name, *self.nonces]
        )
        return hmac.new(self.secret, transcript.encode("utf-8"), hashlib.sha256).digest()


def require_proof(given: Any, wanted: str, whose: str) -> None:
    """Compare a proof with the expected one, in constant time.

    :param whose: the end which has sent the proof, for the message.
    :raises JoinError: the proof is wrong.
    """
    if not isinstance(given, str) or not given.isascii() or not hmac.compare_digest(given, wanted):
        raise JoinError(f"{whose} does not know the secret of the token")


class Stream(Protocol):
    """A connection: the methods of a socket which this module needs."""

    def sendall(self, data: bytes, /) -> object:
        """Send all data."""

    def recv(self, size: int, /) -> bytes:
        """Receive at most this number of bytes; none at the end of the connection."""


class Channel:
    """Messages over a connection, each a line of JSON.

    :param stream: the connection.
    :param peer: name of the other end, for messages.
    """

    def __init__(self, stream: Stream, peer: str) -> None:
        self._stream = stream
        self._peer = peer
        self._rest = b""
        self._limit = UNAUTHENTICATED_LINE_BYTES
        self._sending: _Numbered | None = None
        self._receiving: _Numbered | None = None

    def authenticate(self, sending: bytes, receiving: bytes) -> None:
        """Authenticate every message from now on; both ends have proved what they know.

        :param sending: the key for the messages of this end.
        :param receiving: the key for those of the other end.
        """
        self._sending, self._receiving = _Numbered(sending), _Numbered(receiving)
        self._limit = AUTHENTICATED_LINE_BYTES

    def send(self, message: dict[str, Any]) -> None:
        """Send one message.

        :raises JoinError: the connection broke.
        """
        line = json.dumps(message).encode("utf-8")
        if self._sending is not None:
            line = self._sending.mac(line) + b" " + line
        try:
            self._stream.sendall(line + b"\n")
        except OSError as err:
            raise JoinError(f"the connection to {self._peer} broke: {err}") from err

    def receive(self, *keys: str) -> dict[str, Any]:
        """Wait for one message.

        :param keys: keys which the message must have.
        :raises Refused: the other end sends the reason of a failure instead.
        :raises JoinError: the connection broke, or the message has another form, or the other end
            did not write it.
        """
        while b"\n" not in self._rest:
            if len(self._rest) > self._limit:
                raise JoinError(f"{self._peer} sends a message that is too long")
            try:
                chunk = self._stream.recv(65536)
            except OSError as err:
                raise JoinError(f"the connection to {self._peer} broke: {err}") from err
            if not chunk:
                raise JoinError(f"{self._peer} ended the connection")
            self._rest += chunk
        line, _, self._rest = self._rest.partition(b"\n")
        if len(line) > self._limit:
            raise JoinError(f"{self._peer} sends a message that is too long")
        if self._receiving is not None:
            mac, _, line = line.partition(b" ")
            if not hmac.compare_digest(mac, self._receiving.mac(line)):
                raise JoinError(
                    f"a message of {self._peer} was changed or replaced on its way. A node of the"
                    " cluster may stand between both machines; nothing of the message was used."
                )
        try:
            message = json.loads(line)
        except errors.ParseError as err:
            raise JoinError(f"{self._peer} does not speak the join protocol") from err
        if not isinstance(message, dict):
            raise JoinError(f"{self._peer} does not speak the join protocol")
        failed = message.get("failed")
        # The text of an unauthenticated peer is not shown to users.
        if isinstance(failed, str) and self._receiving is not None:
            raise Refused(self._peer, failed)
        missing = [key for key in keys if key not in message]
        if missing:
            raise JoinError(f"{self._peer} sends a message without {', '.join(missing)}")
        return message


class _Numbered:
    """Makes the HMAC of each message of one direction; each has the next number."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._number = 0

    def mac(self, line: bytes) -> bytes:
        """Return the HMAC of the next message, in hexadecimal digits."""
        self._number += 1
        numbered = b"%d " % self._number + line
        return hmac.new(self._key, numbered, hashlib.sha256).hexdigest().encode("ascii")


class Refused(JoinError):
    """The other end has failed and sent the reason; only authenticated ends raise this error.

    :ivar text: the reason.
    """

    def __init__(self, peer: str, text: str) -> None:
        super().__init__(f"{peer}: {text}")
        self.text = text


def greet(channel: Channel, token: Token, certificate: bytes, nonce: str) -> None:
    """Exchange proofs with the master; the part of the machine.

    :param certificate: digest of the certificate which the other end has shown.
    :param nonce: a random text of the machine.
    :raises JoinError: the certificate is not that of the cluster, or the proof of the other end is
        wrong.
    """
    if not hmac.compare_digest(certificate, token.certificate):
        raise JoinError(
            f"{token.address} port {token.port} shows another certificate than the one in the"
            " token. The connection may be intercepted; nothing was sent."
        )
    channel.send({"hello": VERSION, "name": token.node_name, "nonce": nonce})
    answer = channel.receive("nonce", "proof")
    session = Session(token.secret, certificate, token.node_name, (nonce, str(answer["nonce"])))
    require_proof(answer["proof"], session.proof(MASTER), "the other end")
    channel.send({"proof": session.proof(MACHINE)})
    channel.authenticate(session.key(MACHINE), session.key(MASTER))


def welcome(channel: Channel, token: Token, certificate: bytes, nonce: str) -> None:
    """Exchange proofs with the machine; the part of the master.

    :param certificate: digest of the certificate which the master has shown.
    :param nonce: a random text of the master.
    :raises JoinError: the other end does not know the secret, or is another node.
    """
    hello = channel.receive("hello", "name", "nonce")
    if hello["hello"] != VERSION:
        raise JoinError(f"the machine speaks version {hello['hello']!r:.20} of the join protocol")
    if hello["name"] != token.node_name:
        raise JoinError(f"the machine has another name, {hello['name']!r:.100}")
    session = Session(token.secret, certificate, token.node_name, (str(hello["nonce"]), nonce))
    channel.send({"nonce": nonce, "proof": session.proof(MASTER)})
    answer = channel.receive("proof")
    require_proof(answer["proof"], session.proof(MACHINE), "the machine")
    channel.authenticate(session.key(MASTER), session.key(MACHINE))
