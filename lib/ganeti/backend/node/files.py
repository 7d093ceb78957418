"""Files which the master writes on a node.

Only paths of a fixed list are accepted, so that a fault in a program of the master cannot write an
arbitrary file as root. The paths in a request are the same on all nodes; in a virtual cluster they
are converted to paths below the directory of the node.
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
from ganeti.configfile import files as config_files
from ganeti.platform import machine, master_epoch, paths
from ganeti.utils import fs
from ganeti.wire import calls
from ganeti.wire.calls import FileDetails

_MODE_MASK = 0o777


def allowed_paths() -> frozenset[str]:
    """Return the paths which may be uploaded, in the form in which all nodes name them."""
    here = paths.current()
    local = (
        here.cluster_conf_file,
        here.hmac_key,
        here.cluster_domain_secret,
        here.rapi_cert_file,
        here.rapi_users_file,
        here.rapi_roles_file,
        here.rapi_oidc_file,
        here.spice_cert_file,
        here.spice_cacert_file,
        here.witness_auth_file,
        here.witness_ca_file,
        here.known_hosts_file,
        here.vnc_password_file,
    )
    own = {here.to_virtual(path) for path in local}
    # In a virtual cluster the file of the machine itself is not changed.
    return frozenset(own if here.root else own | {"/etc/hosts"})


@serves(calls.UPLOAD_FILE)
def upload_file(file: FileDetails) -> None:
    """Write a file.

    :raises ConfigurationError: the path is not in the list, or the owner does not exist.
    :raises StaleEpochError: the file is a configuration of a former master.
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
        write = config_files.replace if is_config else fs.write_file
        write(path, file.content, mode=file.mode, uid=uid, gid=gid)
    os.utime(path, (file.atime, file.mtime))


def _refuse_late(path: str, content: str) -> None:
    """Refuse a delayed upload which would replace a later one of the same master.

    :raises ConfigurationError: the present file is newer.
    """
    if master_epoch.read().config != caller.epoch():
        return
    new = config_file.serial_of(content.encode("utf-8"))
    try:
        present = config_file.serial_of_file(path)
    except errors.ConfigurationError:
        return  # a damaged copy is useless; this upload repairs it
    if new < present:
        raise errors.ConfigurationError(
            f"the configuration with serial number {new} is refused, because this node has"
            f" number {present} of the same master already"
        )


@serves(calls.UPLOAD_FILE_SINGLE)
def upload_file_single(
    path: str, content: str, mode: int, owner: str, group: str, atime: float, mtime: float
) -> None:
    """Write a file; the same as :func:`upload_file`, with one argument for each attribute."""
    upload_file(FileDetails(path, content, mode, owner, group, atime, mtime))


def _ids(file: FileDetails) -> tuple[int, int]:
    if not machine.current().may_change_owners:
        # In a virtual cluster an ordinary user owns everything.
        return -1, -1
    try:
        return pwd.getpwnam(file.owner).pw_uid, grp.getgrnam(file.group).gr_gid
    except KeyError:
        raise errors.ConfigurationError(
            f"file {file.path}: user {file.owner} or group {file.group} does not exist on this node"
        ) from None
