"""Preparing a real machine over SSH, as a part of :mod:`ganeti.bootstrap.node`.

The host key of the machine is fetched; when the cluster does not know it, the user has to confirm
its fingerprint. Then SSH runs the program ``node-daemon-setup`` of the same release as root on the
machine, with the credentials of the cluster on its standard input. The program checks the machine,
writes the files and starts the daemons, or undoes everything when it fails. With ``--undo`` it
takes the preparation back, when the job that adds the node fails.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from typing import NamedTuple

from ganeti import errors
from ganeti.bootstrap import node_state
from ganeti.constants import ssconf as ssconf_const
from ganeti.platform import hosts, paths
from ganeti.utils import fs, process, ssh, x509
from ganeti.utils.undo import UndoStack
from ganeti.wire import json

_SETUP_S = 600.0
_SCAN_S = 60.0
#: The line which the program prints: this word and the digest of the new certificate.
PRINTED = "certificate"
# The keys of the message to the program; the first four are published names.
CLUSTER_NAME = "cluster_name"
CERTIFICATE = "node_daemon_certificate"
SSCONF = "ssconf"
START = "start_node_daemon"
NODE_NAME = "node_name"
HMAC = "hmac_key"
RAPI = "rapi_certificate"
DOMAIN_SECRET = "cluster_domain_secret"


class SshAccess(NamedTuple):
    """Parameters of the SSH connections to the machine.

    :ivar port: TCP port of its SSH server.
    :ivar user: user for the login.
    :ivar check_key: let ``confirm`` decide about an unknown host key; else it is accepted.
    :ivar confirm: gets a question; returns whether the user says yes.
    :ivar say: gets a message before each step.
    :ivar identity: file with the private key to use; None for the keys which ssh finds.
    :ivar batch: never ask for a password.
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


def accepted_keys(host: hosts.Hostname, access: SshAccess, here: paths.Paths) -> list[ssh.HostKey]:
    """Return the host keys of a machine, if the cluster knows them or the user confirms them.

    New keys are added to the known hosts of the cluster.

    :raises OpPrereqError: the machine shows other keys than before, or the user did not confirm.
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
            f" one in {here.known_hosts_file}. If the machine was installed again, remove its line"
            " from that file.",
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
        # The user has seen only this key.
        shown = [best]
    fs.write_file(
        here.known_hosts_file,
        content + ssh.known_hosts_text(host.name, access.port, shown),
        mode=0o644,
    )
    return shown


def credentials_message(host: hosts.Hostname, here: paths.Paths) -> str:
    """Return the input of the program on the machine, as JSON; it contains secrets."""
    shared = node_state.read_credentials(here)
    facts = node_state.read_ssconf(here)
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
    access: SshAccess,
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
        # With the terminal of the user, because ssh may ask for a password.
        return process.run(argv, timeout_s=_SETUP_S, stdin=stdin, terminal=True).output


def set_up(
    host: hosts.Hostname, access: SshAccess, undo: UndoStack, *, force_join: bool = False
) -> str | None:
    """Give a machine the credentials of the cluster and start its daemons, over SSH.

    :param undo: gets the step which takes the preparation back.
    :param force_join: take the machine out of another cluster, without informing that cluster.
    :returns: the digest of the certificate which the machine has made for itself; None if its
        release does not say it.
    :raises OpPrereqError: the host key was not accepted; nothing was changed.
    :raises OpExecError: the machine cannot be reached, or its preparation failed and was undone.
    """
    here = paths.current()
    keys = accepted_keys(host, access, here)
    access.say(f"Preparing {host.name} over SSH")
    try:
        options = ("--force-join",) if force_join else ()
        said = _run(host, access, here, keys, *options, stdin=credentials_message(host, here))
    except errors.CommandError as err:
        hint = ""
        if err.exit_code == ssh.EXIT_FAILURE:
            hint = (
                f"\nIf {access.user} cannot log in there, write the public key of this user into"
                f" the file ~/.ssh/authorized_keys of {access.user} on {host.name}, or run"
                f" 'gnt-node add --token {host.name}'."
            )
        # ssh ends the lines which it writes for a terminal with two characters.
        said = err.problem.replace("\r", "")
        raise errors.OpExecError(f"cannot prepare {host.name} over SSH: {said}{hint}") from err
    undo.add(f"the preparation of {host.name}", lambda: _run(host, access, here, keys, "--undo"))
    return printed_certificate(said)


def printed_certificate(output: str) -> str | None:
    """Return the digest of a certificate in the output of the program; None if it has none."""
    for line in output.splitlines():
        word, _, digest = line.strip().partition(" ")
        if word == PRINTED and x509.is_digest(digest):
            return digest
    return None


def default_port(name: str) -> int:
    """Return the port of a node's SSH server, as the cluster knows it; else the usual one."""
    path = paths.current().ssconf_file(ssconf_const.SSH_PORTS)
    if os.path.exists(path):
        for line in fs.read_file(path).splitlines():
            node, _, port = line.partition("=")
            if node == name and port.isdecimal():
                return int(port)
    return ssh.PORT
