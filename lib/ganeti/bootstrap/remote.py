"""Preparing a real machine over SSH: what :mod:`ganeti.bootstrap.node` does elsewhere locally.

The machine's host key is fetched; when this cluster does not know it, its fingerprint is shown and
somebody has to agree. Then the program ``node-daemon-setup`` of the same release is run there as
root, and gets the cluster's credentials on its standard input. It checks, writes, starts the
daemons, and undoes everything when it fails; the same program takes it back when the master does
not take the machine in.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from typing import NamedTuple

from ganeti import errors
from ganeti.bootstrap import local
from ganeti.constants import ssconf as ssconf_const
from ganeti.platform import hosts, paths
from ganeti.utils import fs, process, ssh
from ganeti.wire import json

_SETUP_S = 600.0
_SCAN_S = 60.0
# What the program is told; the first four are published names.
CLUSTER_NAME = "cluster_name"
CERTIFICATE = "node_daemon_certificate"
SSCONF = "ssconf"
START = "start_node_daemon"
NODE_NAME = "node_name"
HMAC = "hmac_key"
RAPI = "rapi_certificate"
DOMAIN_SECRET = "cluster_domain_secret"


class Access(NamedTuple):
    """How to get at the machine.

    ``confirm`` is asked before an unknown host key is accepted, unless ``check_key`` is False;
    ``say`` is told what happens; with ``batch`` ssh never asks for a password.
    """

    port: int = ssh.PORT
    user: str = ssh.LOGIN_USER
    check_key: bool = True
    confirm: Callable[[str], bool] = lambda question: False
    say: Callable[[str], object] = lambda text: None
    identity: str | None = None
    batch: bool = False


def scan_host_keys(name: str, address: str, port: int) -> list[ssh.HostKey]:
    """Fetch the keys which a machine shows, best kind first. They are not confirmed yet.

    :raises OpPrereqError: there is no SSH server, or none of the keys can be used.
    """
    try:
        done = process.run(ssh.keyscan_argv(address, port), timeout_s=_SCAN_S, check=False)
        keys = ssh.parse_keyscan(done.stdout)
    except (errors.CommandError, errors.ParseError) as err:
        raise errors.OpPrereqError(
            f"cannot get the SSH keys of {name}: {err}", errors.ECODE_ENVIRON
        ) from err
    if not keys:
        raise errors.OpPrereqError(
            f"no SSH server answers at {name} ({address} port {port})", errors.ECODE_ENVIRON
        )
    return keys


def accepted_keys(host: hosts.Hostname, access: Access, here: paths.Paths) -> list[ssh.HostKey]:
    """The host keys of the machine, known or agreed to.

    :raises OpPrereqError: it shows other ones than before, or nobody agreed.
    """
    shown = scan_host_keys(host.name, host.ip, access.port)
    try:
        content = fs.read_file(here.known_hosts_file)
    except FileNotFoundError:
        content = ""
    known = ssh.known_keys(content, host.name, access.port)
    good = [key for key in shown if key in known]
    if good:
        return good
    best = shown[0]
    if known:
        raise errors.OpPrereqError(
            f"{host.name} shows another SSH host key ({best.kind}, {best.fingerprint}) than the"
            f" one in {here.known_hosts_file}. If the machine was installed anew, remove its line"
            " there.",
            errors.ECODE_ENVIRON,
        )
    if access.check_key:
        question = (
            f"The SSH host key of {host.name} ({host.ip}) is not known. Its fingerprint"
            f" is\n  {best.kind} {best.fingerprint}\nIs that right?"
        )
        if not access.confirm(question):
            raise errors.OpPrereqError(
                f"the SSH host key of {host.name} ({best.fingerprint}) was not accepted",
                errors.ECODE_ENVIRON,
            )
        # Only what was shown to somebody counts.
        shown = [best]
    fs.write_file(
        here.known_hosts_file,
        content + ssh.known_hosts_text(host.name, access.port, shown),
        mode=0o644,
    )
    return shown


def message(host: hosts.Hostname, here: paths.Paths) -> str:
    """What the program on the machine is told; full of secrets."""
    shared = local.read_credentials(here)
    facts = local.read_ssconf(here)
    return json.dumps(
        {
            CLUSTER_NAME: facts[ssconf_const.CLUSTER_NAME].strip(),
            NODE_NAME: host.name,
            CERTIFICATE: shared.server_pem,
            HMAC: shared.hmac_key,
            RAPI: shared.rapi_pem,
            DOMAIN_SECRET: shared.domain_secret,
            SSCONF: facts,
            START: True,
        }
    )


def _run(
    host: hosts.Hostname,
    access: Access,
    here: paths.Paths,
    keys: list[ssh.HostKey],
    *options: str,
    stdin: str | None = None,
) -> str:
    with tempfile.TemporaryDirectory(prefix="gnt-ssh-") as directory:
        known = f"{directory}/known_hosts"
        fs.write_file(known, ssh.known_hosts_text(host.name, access.port, keys))
        argv = ssh.ssh_argv(
            host.name,
            [paths.node_daemon_setup(), *options],
            known_hosts=known,
            address=host.ip,
            port=access.port,
            user=access.user,
            identity=access.identity,
            batch=access.batch,
        )
        # On our terminal, because ssh may have to ask for a password there.
        return process.run(argv, timeout_s=_SETUP_S, stdin=stdin, terminal=True).output


def set_up(
    host: hosts.Hostname, access: Access, undo: local.Undo, *, force_join: bool = False
) -> None:
    """Give a machine the cluster's credentials and start its daemons, over SSH.

    :param force_join: take it out of another cluster, which is not told.
    :param undo: gets the step that takes it back.
    :raises OpPrereqError: the host key was not accepted; nothing was done.
    :raises OpExecError: it cannot be reached, or could not be prepared; it is as before.
    """
    here = paths.current()
    keys = accepted_keys(host, access, here)
    access.say(f"Preparing {host.name} over SSH")
    try:
        options = ("--force-join",) if force_join else ()
        _run(host, access, here, keys, *options, stdin=message(host, here))
    except errors.CommandError as err:
        raise errors.OpExecError(
            f"cannot prepare {host.name} over SSH: {err.output.strip() or err}"
        ) from err
    undo.add(f"the preparation of {host.name}", lambda: _run(host, access, here, keys, "--undo"))


def default_port(name: str) -> int:
    """The SSH port that the cluster knows for a node, else the usual one."""
    path = paths.current().ssconf_file(ssconf_const.SSH_PORTS)
    if os.path.exists(path):
        for line in fs.read_file(path).splitlines():
            node, _, port = line.partition("=")
            if node == name and port.isdecimal():
                return int(port)
    return ssh.PORT
