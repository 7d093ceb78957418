"""Making SSH keys of a node with ``ssh-keygen``; only the node daemon does that.

What can be found out about keys without running a program is in :mod:`ganeti.platform.ssh_keys`.

Source: ssh-keygen(1), OpenSSH 9.2.
"""

from __future__ import annotations

import os
import tempfile

from ganeti import errors
from ganeti.utils import fs, process, ssh

_KEYGEN_S = 300.0


def keygen_argv(path: str, kind: str, bits: int, comment: str) -> list[str]:
    """Return the command that makes a pair of keys without a passphrase: ``path`` and
    ``path.pub``.
    """
    return ["ssh-keygen", "-q", "-t", kind, "-b", str(bits), "-N", "", "-C", comment, "-f", path]


def public_argv(path: str) -> list[str]:
    """Return the command that prints the public key which belongs to a private key."""
    return ["ssh-keygen", "-y", "-P", "", "-f", path]


def make_key(path: str, kind: str, bits: int, comment: str) -> str:
    """Make a pair of keys; other processes see none or both of its files.

    :param path: file for the private key; ``.pub`` is added for the public one.
    :returns: the line with the public key.
    :raises SshUpdateError: the keys cannot be made.
    """
    directory = os.path.dirname(path)
    fs.make_dirs(directory, 0o700)
    with tempfile.TemporaryDirectory(prefix=".ganeti-", dir=directory) as scratch:
        made = f"{scratch}/key"
        try:
            process.run(keygen_argv(made, kind, bits, comment), timeout_s=_KEYGEN_S)
        except (errors.CommandError, OSError) as err:
            raise errors.SshUpdateError(f"cannot make the SSH key {path}: {err}") from err
        # The private key comes last: where it is, the pair is complete.
        fs.write_file(f"{path}.pub", fs.read_file(f"{made}.pub"), mode=0o644)
        fs.write_file(path, fs.read_file(made), mode=0o600)
    return public_key(path, comment)


def public_key(path: str, comment: str) -> str:
    """Return the public key which belongs to a private key, as a line without its end.

    It is derived from the private key, because the file beside it may be older.

    :raises SshUpdateError: the file has a passphrase or holds no private key.
    """
    try:
        done = process.run(public_argv(path), timeout_s=_KEYGEN_S)
        key = ssh.parse_key(done.stdout.split())
    except (errors.CommandError, errors.ParseError) as err:
        raise errors.SshUpdateError(
            f"the SSH key {path} cannot be used: {err}. A key of a node has no passphrase."
        ) from err
    return f"{key.kind} {key.key} {comment}"
