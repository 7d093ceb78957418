"""Files the master puts on a node.

Only paths of a fixed list are accepted: whoever may call a node daemon must still not be able to
write an arbitrary file as root by a mistake in a program. Paths arrive as all nodes name them and
are turned into this node's own.
"""

from __future__ import annotations

import contextlib
import grp
import os
import pwd

from ganeti import errors
from ganeti.backend import caller
from ganeti.backend.cluster import config_file
from ganeti.backend.registry import serves
from ganeti.platform import machine, master_epoch, paths
from ganeti.utils import fs
from ganeti.wire import calls
from ganeti.wire.calls import FileDetails

_MODE_MASK = 0o777


def allowed_paths() -> frozenset[str]:
    """Virtual paths that may be uploaded."""
    here = paths.current()
    local = (
        here.cluster_conf_file,
        here.hmac_key,
        here.cluster_domain_secret,
        here.rapi_cert_file,
        here.rapi_users_file,
        here.spice_cert_file,
        here.spice_cacert_file,
        here.known_hosts_file,
        here.vnc_password_file,
    )
    own = {here.to_virtual(path) for path in local}
    # In a virtual cluster the machine's own file stays untouched.
    return frozenset(own if here.root else own | {"/etc/hosts"})


@serves(calls.UPLOAD_FILE)
def upload_file(file: FileDetails) -> None:
    """Write a file.

    :raises ConfigurationError: the path is not one of the list, or the owner does not exist.
    :raises StaleEpochError: a configuration of somebody who is master no more.
    """
    if file.path not in allowed_paths():
        raise errors.ConfigurationError(f"file {file.path!r:.200} may not be uploaded to a node")
    if file.mode & ~_MODE_MASK:
        raise errors.ConfigurationError(f"file {file.path}: mode {file.mode:o} is not allowed")
    uid, gid = _ids(file)
    path = paths.current().to_local(file.path)
    fs.make_dirs(os.path.dirname(path))
    is_config = path == paths.current().cluster_conf_file
    with caller.writing(master_epoch.CONFIG) if is_config else contextlib.nullcontext():
        if is_config:
            _refuse_late(path, file.content)
        fs.write_file(path, file.content, mode=file.mode, uid=uid, gid=gid)
    os.utime(path, (file.atime, file.mtime))


def _refuse_late(path: str, content: str) -> None:
    """An upload that was held up must not replace a later one of the same master.

    :raises ConfigurationError: it would.
    """
    if master_epoch.read().config != caller.epoch():
        return
    new = config_file.serial_of(content.encode("utf-8"))
    try:
        present = config_file.serial_of_file(path)
    except errors.ConfigurationError:
        return  # a damaged copy is worth nothing; this one heals it
    if new < present:
        raise errors.ConfigurationError(
            f"configuration {new} arrived after configuration {present} of the same master"
        )


@serves(calls.UPLOAD_FILE_SINGLE)
def upload_file_single(
    path: str, content: str, mode: int, owner: str, group: str, atime: float, mtime: float
) -> None:
    """As :func:`upload_file`, with separate arguments."""
    upload_file(FileDetails(path, content, mode, owner, group, atime, mtime))


def _ids(file: FileDetails) -> tuple[int, int]:
    if not machine.current().may_change_owners:
        # An ordinary user owns everything in a virtual cluster.
        return -1, -1
    try:
        return pwd.getpwnam(file.owner).pw_uid, grp.getgrnam(file.group).gr_gid
    except KeyError:
        raise errors.ConfigurationError(
            f"file {file.path}: user {file.owner} or group {file.group} does not exist on this node"
        ) from None
