"""The archive of a node: its files before the change, with their digests and owners.

It is made while no daemon runs. ``files.tar.gz`` has the files, ``SHA256SUMS`` their digests in the
form of sha256sum(1), and ``before.json`` what is compared with after the change: digests of the
files which must not change, the runtime files of guests, their processes or domains, and the owners
of logs.
"""

from __future__ import annotations

import grp
import hashlib
import os
import pwd
import stat
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ganeti import errors
from ganeti.constants import ssconf
from ganeti.utils import fs
from ganeti.wire import json

_MODE = 0o600
_CHUNK = 1 << 20
#: What no takeover changes, below ``/``: credentials, users, hooks, jobs and runtime files.
KEPT = (
    "etc/ganeti",
    "root/.ssh",
    "var/lib/ganeti/client.pem",
    "var/lib/ganeti/cluster-domain-secret",
    "var/lib/ganeti/hmac.key",
    "var/lib/ganeti/queue/archive",
    "var/lib/ganeti/rapi",
    "var/lib/ganeti/rapi.pem",
    "var/lib/ganeti/server.pem",
    "var/lib/ganeti/spice-ca.pem",
    "var/lib/ganeti/spice.pem",
    "var/lib/ganeti/ssconf_cluster_name",
    "var/lib/ganeti/ssconf_instance_list",
    "var/lib/ganeti/ssconf_master_candidates",
    "var/lib/ganeti/ssconf_master_ip",
    "var/lib/ganeti/ssconf_master_netdev",
    "var/lib/ganeti/ssconf_master_node",
    "var/lib/ganeti/ssconf_node_list",
    "var/lib/ganeti/ssconf_nodegroups",
    "var/run/ganeti/bdev-cache",
    "var/run/ganeti/chroot-hypervisor",
    "var/run/ganeti/fake-hypervisor",
    "var/run/ganeti/instance-disks",
    "var/run/ganeti/kvm-hypervisor",
    "var/run/ganeti/lxc",
    "var/run/ganeti/uid-pool",
    "var/run/ganeti/xen-hypervisor",
)
# The packages make and remove the links to the version in use, and clusters change their part of
# the file with the keys which may log in.
_MAY_CHANGE = (
    "etc/ganeti/lib",
    "etc/ganeti/share",
    "etc/ganeti/version",
    "root/.ssh/authorized_keys",
)
_QUEUE = "var/lib/ganeti/queue"
_LOGS = "var/log/ganeti"
_KVM_PIDS = "var/run/ganeti/kvm-hypervisor/pid"


def make(
    directory: str, sources: Iterable[str], domains: Mapping[str, str], *, root: str = ""
) -> None:
    """Write the archive. One which exists is replaced.

    :param directory: where the archive comes to; it is made.
    :param sources: absolute paths of files and directories; those which are missing are left out.
    :param domains: the guests of Xen which run, see :func:`observe`.
    :param root: directory which stands for ``/``; empty on a real machine.
    :raises OSError: a file cannot be read or written.
    """
    fs.make_dirs(directory, 0o700)
    target = f"{directory}/files.tar.gz"
    present = [path for path in sources if os.path.lexists(f"{root}{path}")]
    descriptor = os.open(f"{target}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _MODE)
    with os.fdopen(descriptor, "wb") as stream:
        with tarfile.open(fileobj=stream, mode="w:gz") as archive:
            for path in present:
                archive.add(f"{root}{path}", arcname=path.lstrip("/"))
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(f"{target}.new", target)
    sums = [
        f"{digest(f'{root}/{name}')}  {name}\n"
        for path in present
        for name in _regular_files(root, path.lstrip("/"))
    ]
    fs.write_file(f"{directory}/SHA256SUMS", "".join(sums), mode=_MODE)
    fs.write_file(f"{directory}/before.json", json.dumps_pretty(observe(domains, root)), mode=_MODE)


def observe(domains: Mapping[str, str], root: str = "") -> dict[str, Any]:
    """Return what is compared before and after: ``kept``, ``guests``, ``domains``, ``owners``.

    ``kept``, ``guests`` and ``domains`` map a name to a text which changes with the thing;
    ``owners`` maps the path of a log to the names of its owner and group.

    :param domains: the guests of Xen which run: name -> UUID of the domain.
    """
    kept = {
        name: fingerprint(f"{root}/{name}")
        for path in KEPT
        for name in _all_files(root, path)
        if name not in _MAY_CHANGE
    }
    for name in _listed(f"{root}/{_QUEUE}"):
        if name.startswith("job-"):
            kept[f"{_QUEUE}/{name}"] = fingerprint(f"{root}/{_QUEUE}/{name}")
    owners = {
        f"{_LOGS}/{name}": _owner(f"{root}/{_LOGS}/{name}") for name in _listed(f"{root}/{_LOGS}")
    }
    return {"kept": kept, "guests": guests(root), "domains": dict(domains), "owners": owners}


def read_before(directory: str) -> dict[str, Any]:
    """Return what :func:`observe` has found when the archive was made.

    :raises ConfigurationError: there is no complete archive.
    """
    path = f"{directory}/before.json"
    try:
        found = json.loads(fs.read_file(path))
    except (OSError, errors.ParseError) as err:
        raise errors.ConfigurationError(f"the archive is not complete: {path}: {err}") from err
    if not isinstance(found, dict) or not {"kept", "guests", "owners"} <= set(found):
        raise errors.ConfigurationError(f"the archive is not complete: {path}")
    # A former release has not looked at domains.
    return {"domains": {}, **found}


def read_member(directory: str, path: str) -> bytes | None:
    """Return the content of a file in the archive; None if the archive does not have it.

    :param path: absolute path of the file on the node.
    :raises OSError: there is no archive.
    """
    with tarfile.open(f"{directory}/files.tar.gz") as archive:
        try:
            stream = archive.extractfile(path.lstrip("/"))
        except KeyError:
            return None
        return None if stream is None else stream.read()


def names(directory: str) -> set[str]:
    """Return the names of all files in the archive, relative to ``/``.

    :raises OSError: there is no archive.
    """
    with tarfile.open(f"{directory}/files.tar.gz") as archive:
        return set(archive.getnames())


def differences(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Say what of the things which must stay has changed, one text for each.

    A job may have gone to the archive of the queue meanwhile.
    """
    found = []
    archived = {name.rsplit("/", 1)[1]: text for name, text in after["kept"].items()
                if "/queue/archive/" in name}  # fmt: skip
    for name, text in before["kept"].items():
        now = after["kept"].get(name)
        if now is None and archived.get(name.rsplit("/", 1)[1]) == text:
            continue
        if now != text:
            found.append(f"/{name} {'is missing' if now is None else 'has changed'}")
    for name, text in before["guests"].items():
        if after["guests"].get(name) != text:
            found.append(f"guest {name} does not run as the same process any more")
    for name, text in before["domains"].items():
        if after["domains"].get(name) != text:
            found.append(f"guest {name} does not run as the same domain of Xen any more")
    return found


def digest(path: str) -> str:
    """Return the SHA-256 digest of a file, in hexadecimal.

    :raises OSError: the file cannot be read.
    """
    found = hashlib.sha256()
    with open(path, "rb") as stream:
        while piece := stream.read(_CHUNK):
            found.update(piece)
    return found.hexdigest()


def fingerprint(path: str) -> str:
    """Return a text which changes when a file does; a link counts by its target.

    :raises OSError: the file cannot be read.
    """
    if os.path.islink(path):
        return f"link {os.readlink(path)}"
    if not os.path.isfile(path):
        return "socket or device"
    if os.path.basename(path).startswith(ssconf.FILE_PREFIX):
        # Lists of names, which the two programs sort in different ways.
        lines = sorted(fs.read_bytes(path).splitlines())
        return hashlib.sha256(b"\n".join(lines)).hexdigest()
    return digest(path)


def guests(root: str = "") -> dict[str, str]:
    """Return the guests of KVM which run: name -> process and the time of its start."""
    found = {}
    for name in _listed(f"{root}/{_KVM_PIDS}"):
        try:
            pid = fs.read_file(f"{root}/{_KVM_PIDS}/{name}").strip()
            # The name of the program in the second field may have blanks.
            fields = fs.read_file(f"{root}/proc/{pid}/stat").rpartition(")")[2].split()
        except OSError:
            continue
        found[name] = f"{pid} {fields[19]}"
    return found


def guests_without_plain_name(root: str = "") -> list[str]:
    """Return the guests of KVM whose process the original in version 3.0 would not recognise.

    It looks for the name of the guest alone behind ``-name``. For such a guest it would start a
    second process with the same disks.
    """
    found = []
    for name, text in guests(root).items():
        pid = text.partition(" ")[0]
        try:
            words = fs.read_bytes(f"{root}/proc/{pid}/cmdline").split(b"\0")
        except OSError:
            continue
        if (b"-name", name.encode()) not in zip(words, words[1:], strict=False):
            found.append(name)
    return found


def _listed(directory: str) -> list[str]:
    return sorted(fs.list_visible(directory)) if os.path.isdir(directory) else []


def _all_files(root: str, path: str) -> Iterator[str]:
    """Iterate over everything at a path except directories, by names relative to ``/``."""
    full = f"{root}/{path}"
    if os.path.islink(full) or not os.path.isdir(full):
        if os.path.lexists(full):
            yield path
        return
    for name in sorted(os.listdir(full)):
        yield from _all_files(root, f"{path}/{name}")


def _regular_files(root: str, path: str) -> Iterator[str]:
    for name in _all_files(root, path):
        if stat.S_ISREG(os.lstat(f"{root}/{name}").st_mode):
            yield name


def _owner(path: str) -> list[str]:
    found = os.lstat(path)
    try:
        return [pwd.getpwuid(found.st_uid).pw_name, grp.getgrgid(found.st_gid).gr_name]
    except KeyError:
        return [str(found.st_uid), str(found.st_gid)]


def restore_owners(owners: dict[str, list[str]], root: str = "") -> None:
    """Give logs to the users and groups which had them; those which are missing are left out.

    :raises OSError: an owner cannot be changed.
    """
    for name, (user, group) in owners.items():
        path = f"{root}/{name}"
        try:
            uid, gid = pwd.getpwnam(user).pw_uid, grp.getgrnam(group).gr_gid
            os.chown(path, uid, gid, follow_symlinks=False)
        except (KeyError, FileNotFoundError):
            continue
