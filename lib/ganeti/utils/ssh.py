"""Command lines of OpenSSH, and the formats of its keys, files and output. Pure functions.

A connection is made only to a host whose key is known: the keys which the host shows are fetched
first, a file or a person confirms them, and then ``ssh`` gets a file with exactly these keys and
strict checking. So no program trusts a key only because it is the first one that it sees.

Source: ssh(1), ssh-keyscan(1), sshd(8) *SSH_KNOWN_HOSTS FILE FORMAT*; OpenSSH 9.2.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Collection, Sequence
from typing import NamedTuple

from ganeti import errors
from ganeti.utils import text

LOGIN_USER = "root"
PORT = 22
# The kinds of host keys, best first.
KEY_TYPES = ("ed25519", "ecdsa", "rsa")
_CONNECT_S = 10
#: The exit code of ssh for its own errors; any other one is that of the program which it ran.
EXIT_FAILURE = 255


class HostKey(NamedTuple):
    """A public key of a host: ``ssh-ed25519`` and base64."""

    kind: str
    key: str

    @property
    def fingerprint(self) -> str:
        """The fingerprint, in the form of ``ssh-keygen -l``: ``SHA256:...``."""
        digest = hashlib.sha256(base64.b64decode(self.key)).digest()
        return "SHA256:" + base64.b64encode(digest).decode("ascii").rstrip("=")


def parse_key(words: Sequence[str]) -> HostKey:
    """Read a key from its two words, the kind and the key in base64.

    :raises ParseError: the words are not a key, or a key of another kind.
    """
    if len(words) < 2:
        raise errors.ParseError(f"not a public key: {' '.join(words)!r:.100}")
    kind, key = words[0], words[1]
    if not kind.isascii():
        raise errors.ParseError(f"not a kind of public keys: {kind!r:.100}")
    try:
        blob = base64.b64decode(key, validate=True)
    except (binascii.Error, ValueError) as err:
        raise errors.ParseError(f"not a public key: {key!r:.100}") from err
    # A key begins with its own kind, after four bytes with the length of that.
    if blob[4 : 4 + len(kind)] != kind.encode() or int.from_bytes(blob[:4]) != len(kind):
        raise errors.ParseError(f"not a public key of kind {kind}: {key!r:.100}")
    return HostKey(kind, key)


def keyscan_argv(address: str, port: int) -> list[str]:
    """Return the command that asks a host for its keys."""
    return [
        "ssh-keyscan",
        "-T",
        str(_CONNECT_S),
        "-p",
        str(port),
        "-t",
        ",".join(KEY_TYPES),
        "--",
        address,
    ]


def parse_keyscan(output: str) -> list[HostKey]:
    """Read keys from the output of :func:`keyscan_argv`.

    :returns: the keys, best kind first.
    :raises ParseError: a line has another form.
    """
    found = [
        parse_key(line.split()[1:])
        for line in output.splitlines()
        if line.strip() and not line.startswith("#")
    ]
    order = {f"ssh-{kind}": number for number, kind in enumerate(KEY_TYPES)}
    return sorted(set(found), key=lambda one: (order.get(one.kind, 1), one))


def known_name(name: str, port: int) -> str:
    """Return the name of a host in a file of known hosts."""
    return name if port == PORT else f"[{name}]:{port}"


def known_hosts_text(name: str, port: int, keys: Collection[HostKey]) -> str:
    """Return the lines for a file of known hosts."""
    return "".join(f"{known_name(name, port)} {one.kind} {one.key}\n" for one in keys)


def known_keys(content: str, name: str, port: int) -> set[HostKey]:
    """Return the keys of a host in a file of known hosts.

    Patterns are ignored, names may be hashed.
    """
    found = set()
    wanted = known_name(name, port)
    for line in content.splitlines():
        words = line.split()
        if len(words) < 3 or words[0].startswith(("#", "@")):
            continue
        if wanted in words[0].split(",") or _is_hash_of(words[0], wanted):
            try:
                found.add(parse_key(words[1:]))
            except errors.ParseError:
                continue
    return found


def _is_hash_of(word: str, name: str) -> bool:
    """Return True if a word is the hashed form of a name: ``|1|``, salt, ``|``, HMAC-SHA1, both in
    base64.

    Debian's ssh writes names in this form (``HashKnownHosts``).
    """
    if not word.startswith("|1|"):
        return False
    salt, _, digest = word[3:].partition("|")
    try:
        key, wanted = base64.b64decode(salt, validate=True), base64.b64decode(digest, validate=True)
    except (binascii.Error, ValueError):
        return False
    return hmac.compare_digest(hmac.digest(key, name.encode(), "sha1"), wanted)


def ssh_argv(
    name: str,
    command: Sequence[str],
    *,
    known_hosts: str,
    address: str | None = None,
    port: int = PORT,
    user: str = LOGIN_USER,
    identity: str | None = None,
    batch: bool = True,
) -> list[str]:
    """Return the command that runs a program on another machine.

    :param name: name of the host in the file of known hosts.
    :param command: the program and its arguments.
    :param known_hosts: the only file of known hosts that ssh uses.
    :param address: address to connect to; None for the name.
    :param identity: file with the private key to use, instead of the keys which ssh finds.
    :param batch: never ask for a password; otherwise ssh asks on the terminal.
    """
    argv = [
        "ssh",
        "-oEscapeChar=none",
        *_options(name, known_hosts, port, batch=batch),
        f"-p{port}",
    ]
    if identity is not None:
        argv += ["-i", identity, "-oIdentitiesOnly=yes"]
    # The shell of the other machine splits the command into words again.
    words = " ".join(text.shell_quote(word) for word in command)
    return [*argv, f"-l{user}", "--", address or name, words]


def scp_argv(
    name: str,
    path: str,
    *,
    known_hosts: str,
    address: str,
    port: int = PORT,
    user: str = LOGIN_USER,
) -> list[str]:
    """Return the command that copies a file to the same path on another machine, with mode and
    times.

    :param path: the file, absolute.

    The other parameters are those of :func:`ssh_argv`.
    """
    host = f"[{address}]" if ":" in address else address
    return [
        "scp",
        "-pq",
        *_options(name, known_hosts, port, batch=True),
        f"-P{port}",
        "--",
        path,
        f"{user}@{host}:{path}",
    ]


def _options(name: str, known_hosts: str, port: int, *, batch: bool) -> list[str]:
    """Return the options of every connection: the host key must be known, and nothing is
    forwarded.
    """
    return [
        "-oStrictHostKeyChecking=yes",
        f"-oUserKnownHostsFile={known_hosts}",
        "-oGlobalKnownHostsFile=/dev/null",
        f"-oHostKeyAlias={known_name(name, port)}",
        "-oCheckHostIP=no",
        f"-oConnectTimeout={_CONNECT_S}",
        f"-oBatchMode={'yes' if batch else 'no'}",
        "-oClearAllForwardings=yes",
        "-oForwardAgent=no",
    ]
