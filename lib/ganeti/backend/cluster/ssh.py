"""The SSH keys of this node, the keys which may log in as root, and the known hosts.

The files belong to root and to the administrator; of ``authorized_keys`` only the block between the
marks of Ganeti is changed (:mod:`ganeti.platform.ssh_keys`). No function here uses SSH itself.
"""

from __future__ import annotations

import os
from typing import Any

from ganeti import errors
from ganeti.backend.registry import serves
from ganeti.platform import machine, paths, ssh_keygen, ssh_keys
from ganeti.utils import fs, net, ssh
from ganeti.wire import calls

_AUTHORIZED_MODE = 0o600
_PUBLIC_MODE = 0o644


def _own_key(kind: str) -> str:
    return f"{paths.current().ssh_dir}/id_{kind}"


def _next_key(kind: str, bits: int) -> str:
    return f"{_own_key(kind)}.{bits}.ganeti-next"


def _comment() -> str:
    return f"{ssh.LOGIN_USER}@{machine.current().hostname()}"


def host_keys() -> list[str]:
    """Return the lines with the public keys of the SSH server of this machine."""
    directory = paths.current().ssh_host_key_dir
    found = []
    for kind in ssh.KEY_TYPES:
        path = f"{directory}/ssh_host_{kind}_key.pub"
        if os.path.exists(path):
            found.append(" ".join(fs.read_file(path).split()[:2]))
    return ssh_keys.check_lines(found)


@serves(calls.NODE_SSH_KEYS)
def keys(kind: str, bits: int, make: str) -> dict[str, list[str]]:
    """Return the keys of this node, and create the missing ones.

    :raises SshUpdateError: a key cannot be made or read.
    """
    own, following = _own_key(kind), _next_key(kind, bits)
    found = []
    for path, wanted in ((own, make == "missing"), (following, make == "new")):
        if os.path.exists(path):
            found.append(ssh_keygen.public_key(path, _comment()))
        elif wanted:
            found.append(ssh_keygen.make_key(path, kind, bits, _comment()))
    return {"root": found, "hosts": host_keys()}


@serves(calls.NODE_SSH_ACTIVATE)
def activate(kind: str, bits: int) -> str:
    """Replace the old key of this node by the new one.

    :returns: the line of the key in use.
    :raises SshUpdateError: a key cannot be read.
    """
    own, following = _own_key(kind), _next_key(kind, bits)
    if os.path.exists(following):
        line = ssh_keygen.public_key(following, _comment())
        fs.write_file(f"{own}.pub", line + "\n", mode=_PUBLIC_MODE)
        os.rename(following, own)
        fs.remove_file(f"{following}.pub")
        fs.flush_dir(os.path.dirname(own))
    return ssh_keygen.public_key(own, _comment())


@serves(calls.NODE_SSH_TRUST)
def trust(authorized: list[str], known_hosts: str, public_keys: str | None) -> None:
    """Set the keys which may log in, and the known hosts.

    :raises ParameterError: a line is not a public key; nothing was changed.
    """
    here = paths.current()
    set_authorized(ssh_keys.check_lines(authorized))
    fs.write_file(here.known_hosts_file, known_hosts, mode=_PUBLIC_MODE)
    if public_keys is None:
        fs.remove_file(here.ssh_public_keys_file)
    else:
        fs.write_file(here.ssh_public_keys_file, public_keys, mode=_PUBLIC_MODE)


def set_authorized(lines: list[str]) -> None:
    """Replace the block of Ganeti in ``authorized_keys``; without keys, remove it."""
    path = paths.current().ssh_authorized_keys_file
    try:
        present = fs.read_file(path)
    except FileNotFoundError:
        present = ""
    wanted = ssh_keys.replace_block(present, lines)
    if wanted == present:
        return
    fs.make_dirs(os.path.dirname(path), 0o700)
    fs.write_file(path, wanted, mode=_AUTHORIZED_MODE)


def problems(argument: Any) -> list[str]:
    """List the differences from the keys and hosts which the master distributed.

    :param argument: ``[authorized keys, known hosts, public keys, names of the candidates]``.
    """
    authorized, known_hosts, public_keys, candidates = argument
    here = paths.current()
    if machine.current().hostname() not in candidates:
        public_keys = None
    found = []
    for path, what, wanted in (
        (here.known_hosts_file, "the file of known hosts", known_hosts),
        (here.ssh_public_keys_file, "the file of the nodes' public keys", public_keys),
    ):
        if _content(path) != wanted:
            found.append(f"{what} {path} differs from what the master distributed")
    content = _content(here.ssh_authorized_keys_file) or ""
    if ssh_keys.block(content) != list(authorized):
        found.append(
            f"{here.ssh_authorized_keys_file} does not hold the keys of the master candidates"
        )
    return found


def clutter(argument: Any) -> list[str]:
    """List the keys outside of the block whose comments name a node.

    :param argument: names of all nodes.
    """
    path = paths.current().ssh_authorized_keys_file
    owners = {f"{ssh.LOGIN_USER}@{name}" for name in argument}
    return [
        f"{path} has a key of {line.split()[-1]} which the cluster does not know"
        for line in ssh_keys.outside_block(_content(path) or "")
        if line.split()[-1] in owners
    ]


def _content(path: str) -> str | None:
    try:
        return fs.read_file(path)
    except FileNotFoundError:
        return None


def etc_hosts_text(content: str, mode: str, name: str, ip: str | None) -> str:
    """Return the text of ``/etc/hosts`` with a line for one more host, or without that line.

    Its short name is added as well. Comments and other lines stay.
    """
    kept = []
    for line in content.splitlines():
        words, hash_sign, comment = line.partition("#")
        fields = words.split()
        if len(fields) > 1 and name in fields[1:]:
            others = [word for word in fields[1:] if word not in (name, name.split(".")[0])]
            if not others:
                continue
            line = "\t".join([fields[0], " ".join(others)])
            line += f" {hash_sign}{comment}" if hash_sign else ""
        kept.append(line)
    if mode == "add":
        short = name.split(".")[0]
        kept.append(f"{ip}\t{name}" + (f" {short}" if short != name else ""))
    return "".join(f"{line}\n" for line in kept)


@serves(calls.ETC_HOSTS_MODIFY)
def etc_hosts_modify(mode: str, name: str, ip: str | None) -> None:
    """Add a node to ``/etc/hosts`` of this machine, or remove it.

    :raises ParameterError: the address is missing or malformed.
    """
    if mode == "add" and (ip is None or not net.is_ip(ip)):
        raise errors.ParameterError(f"{ip!r:.80} is not an IP address")
    if not all(character.isalnum() or character in ".-_" for character in name):
        raise errors.ParameterError(f"{name!r:.100} is not a host name")
    path = paths.current().etc_hosts_file
    present = _content(path) or ""
    wanted = etc_hosts_text(present, mode, name, ip)
    if wanted != present:
        fs.write_file(path, wanted, mode=_PUBLIC_MODE)
