"""Files with SSH keys: keys of the nodes, keys with which one may log in, keys of known hosts.

Functions of texts, used by the master and by the nodes; no program is run. What the cluster puts
into ``authorized_keys`` stands between two comment lines (:func:`replace_block`); the rest of
that file belongs to the administrator and stays as it is. Keys are made in
:mod:`ganeti.platform.ssh_keygen`.

Source: ssh-keygen(1), sshd(8) *AUTHORIZED_KEYS FILE FORMAT* and *SSH_KNOWN_HOSTS FILE FORMAT*;
OpenSSH 9.2.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence

from ganeti import errors
from ganeti.constants import cluster as cluster_c
from ganeti.platform import paths
from ganeti.utils import fs, ssh

# The lengths in bits which ssh-keygen accepts; RSA keys may have any length of the range.
_BITS: Mapping[str, tuple[int, ...]] = {
    "dsa": (1024,),
    "ecdsa": (256, 384, 521),
    "ed25519": (256,),
}
_RSA_BITS = (2048, 16384)
_BEGIN = "# -- Ganeti: keys of the master candidates, replaced as a whole --"
_END = "# -- Ganeti: end --"


def key_bits(kind: str, bits: int | None) -> int:
    """Return the length of a key in bits; the usual one of its kind when none is given.

    :raises ParameterError: there is no such kind, or it does not have keys of that length.
    """
    if kind not in cluster_c.SSH_KEY_TYPES:
        raise errors.ParameterError(f"there is no kind of SSH key {kind!r:.80}")
    allowed = _BITS.get(kind)
    if allowed is None:
        low, high = _RSA_BITS
        if bits is not None and not low <= bits <= high:
            raise errors.ParameterError(f"an RSA key has {low} to {high} bits, not {bits}")
        return bits or cluster_c.SSH_KEY_BITS_DEFAULT
    if bits is not None and bits not in allowed:
        raise errors.ParameterError(
            f"a key of kind {kind} has {' or '.join(str(n) for n in allowed)} bits, not {bits}"
        )
    return bits or allowed[0]


def check_lines(lines: Iterable[str]) -> list[str]:
    """Check lines before they get into a file with keys for a login: each is one public key.

    :raises ParameterError: a line is something else.
    """
    found = []
    for line in lines:
        words = line.split()
        try:
            ssh.parse_key(words)
        except errors.ParseError as err:
            raise errors.ParameterError(str(err)) from err
        if line != " ".join(words) or not line.isprintable():
            raise errors.ParameterError(f"not a line with a public key: {line!r:.100}")
        found.append(line)
    return found


def replace_block(content: str, lines: Sequence[str]) -> str:
    """Replace the lines of the cluster in the text of ``authorized_keys``.

    When the end of the cluster's block is missing, all lines after its begin are kept.

    :param lines: the new lines of the cluster; without any, the whole block is removed.
    """
    kept: list[str] = []
    inside = False
    for line in content.splitlines():
        if line == _BEGIN:
            inside = True
        elif line == _END and inside:
            inside = False
        elif not inside:
            kept.append(line)
    if inside:
        # It is not known which of these lines are the cluster's: keep those which are not new ones.
        _, _, rest = content.partition(_BEGIN + "\n")
        kept += [line for line in rest.splitlines() if line not in lines]
    if lines:
        kept += [_BEGIN, *lines, _END]
    return "".join(f"{line}\n" for line in kept)


def forget(here: paths.Paths) -> None:
    """Remove the cluster's lines and files from the SSH files of a node; its own key stays.

    :raises OSError: a file cannot be written.
    """
    path = here.ssh_authorized_keys_file
    if os.path.exists(path):
        present = fs.read_file(path)
        left = replace_block(present, [])
        if left != present:
            fs.write_file(path, left, mode=0o600)
    fs.remove_file(here.known_hosts_file)
    fs.remove_file(here.ssh_public_keys_file)


def block(content: str) -> list[str]:
    """Return the lines of the cluster in the text of ``authorized_keys``."""
    _, begin, rest = content.partition(f"{_BEGIN}\n")
    inside, end, _ = rest.partition(f"{_END}\n")
    return inside.splitlines() if begin and end else []


def outside_block(content: str) -> list[str]:
    """Return the lines with keys in the text of ``authorized_keys`` which are not the cluster's."""
    return [
        line
        for line in replace_block(content, []).splitlines()
        if line.strip() and not line.lstrip().startswith("#")
    ]


def public_keys_text(keys: Mapping[str, Sequence[str]]) -> str:
    """Return the text of the file with the public keys of all nodes: on each line a UUID and a key.

    :param keys: UUID of a node -> lines with its keys.
    """
    return "".join(f"{uuid} {line}\n" for uuid in sorted(keys) for line in keys[uuid])


def parse_public_keys(content: str) -> dict[str, list[str]]:
    """Read the text of :func:`public_keys_text`; lines of another form are ignored."""
    found: dict[str, list[str]] = {}
    for line in content.splitlines():
        uuid, _, key = line.partition(" ")
        if len(key.split()) >= 2:
            found.setdefault(uuid, []).append(key)
    return found


def known_hosts_text(cluster_name: str, hosts: Collection[tuple[str, int, Sequence[str]]]) -> str:
    """Return the text of a file of known hosts: each node with its name and the name of the
    cluster.

    :param hosts: name, port and public keys of each node.
    """
    found = []
    for name, port, lines in sorted(hosts):
        names = [name, cluster_name]
        if port != ssh.PORT:
            names.insert(1, ssh.known_name(name, port))
        for line in sorted(lines):
            kind, key = line.split()[:2]
            found.append(f"{','.join(names)} {kind} {key}\n")
    return "".join(found)
