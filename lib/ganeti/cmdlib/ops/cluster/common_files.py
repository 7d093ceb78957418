"""Copying the files which are the same on all nodes, such as keys and certificates.

These files change seldom. They are copied when a node joins the cluster, or on request. The
configuration and ssconf files are not part of them; the package :mod:`ganeti.config` distributes
these with every change.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ganeti import errors
from ganeti.cmdlib.base import Context, why
from ganeti.platform import paths, users
from ganeti.wire.calls import UPLOAD_FILE, FileDetails

if TYPE_CHECKING:
    pass

# Mode, role of the owner, role of the group; as the program ensure-dirs sets them.
_SHAPES = {
    "cluster_domain_secret": (0o640, users.MASTERD, users.MASTERD),
    "hmac_key": (0o440, users.CONFD, users.MASTERD),
    "rapi_cert_file": (0o440, users.RAPI, users.MASTERD),
    "rapi_users_file": (0o640, users.RAPI, users.MASTERD),
    "rapi_roles_file": (0o640, users.RAPI, users.MASTERD),
    "rapi_oidc_file": (0o640, users.RAPI, users.MASTERD),
    "spice_cert_file": (0o440, users.NODED, users.MASTERD),
    "spice_cacert_file": (0o440, users.NODED, users.MASTERD),
    "witness_auth_file": (0o440, users.MASTERD, users.MASTERD),
    "witness_ca_file": (0o440, users.MASTERD, users.MASTERD),
}


def shape(name: str) -> tuple[int, str, str]:
    """Mode, owner and group of a common file.

    :param name: attribute of :class:`ganeti.platform.paths.Paths`.
    """
    who = users.current()
    mode, owner, group = _SHAPES[name]
    return mode, who.roles[owner].user, who.group(group)


def common_files(*, etc_hosts: bool) -> dict[str, tuple[int, str, str]]:
    """Find the common files which exist on the master.

    :param etc_hosts: ``/etc/hosts`` is one of them, because the cluster manages it.
    :returns: local path -> mode, owner and group.
    """
    here = paths.current()
    named = {str(getattr(here, name)): shape(name) for name in _SHAPES}
    if etc_hosts:
        named[here.etc_hosts_file] = (0o644, "root", "root")
    return {path: shape for path, shape in named.items() if os.path.exists(path)}


def read_details(
    path: str, mode: int, owner: str, group: str, *, target: str | None = None
) -> FileDetails:
    """Read a file of the master in order to send it.

    :param target: path on the nodes; None for the same path.
    :raises errors.OpExecError: the file cannot be read.
    """
    try:
        status = os.stat(path)
        with open(path, encoding="utf-8") as stream:
            content = stream.read()
    except (OSError, UnicodeDecodeError) as err:
        raise errors.OpExecError(f"cannot read {path} for distribution: {err}") from err
    return FileDetails(
        path=paths.current().to_virtual(target or path),
        content=content,
        mode=mode,
        owner=owner,
        group=group,
        atime=status.st_atime,
        mtime=status.st_mtime,
    )


def distribute_files(ctx: Context, node_uuids: Sequence[str] | None = None) -> None:
    """Copy the common files to nodes, except the master.

    A failure is a warning; cluster verification reports it until it is repaired.

    :param node_uuids: UUIDs of the nodes; all online nodes by default.
    """
    master = ctx.config.cluster().master_node
    if node_uuids is None:
        node_uuids = [node.uuid for node in ctx.config.online_nodes()]
    targets = [uuid for uuid in node_uuids if uuid != master]
    if not targets:
        return
    for path, shape in common_files(etc_hosts=ctx.config.cluster().modify_etc_hosts).items():
        answers = ctx.rpc.call_many(UPLOAD_FILE, targets, file=read_details(path, *shape))
        for answer in answers.values():
            if answer.failure is not None:
                ctx.log.warn(
                    f"file {path} was not copied to node {answer.node_name}: {why(answer.failure)}"
                )
