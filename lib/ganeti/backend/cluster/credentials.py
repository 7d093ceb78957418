"""The credentials of this node: its client certificate, and their removal when it leaves.

The digest of the client certificate (the *token* of type ``ssl``) is what the master writes into
the list of master candidates' certificates.
"""

from __future__ import annotations

import contextlib
import glob
import os
import secrets
import shutil
import signal
from typing import Any

from ganeti import errors
from ganeti.backend.cluster import jobqueue
from ganeti.backend.cluster.master_vote import DEMOTED_SUFFIX
from ganeti.backend.registry import serves
from ganeti.configfile import files as configfile
from ganeti.constants import ssconf
from ganeti.platform import machine, paths, ssh_keys, users
from ganeti.utils import daemonize, fs, x509
from ganeti.wire import calls

SSL = "ssl"
GET, CREATE, DELETE = "get", "create", "delete"
_OPTION_SERIAL = "serial_no"
_OPTION_FILE = "cert_file"
_CERT_MODE = 0o440


@serves(calls.NODE_CRYPTO_TOKENS)
def crypto_tokens(requests: list[list[Any]]) -> list[list[str]]:
    """Read, create or remove the client certificate.

    :param requests: list of [type, action, options]; options of ``create``: ``serial_no`` and
        ``cert_file`` (the client certificate's own path or that with ``.tmp`` at its end).
    :returns: list of [type, digest] for ``get`` and ``create``.
    :raises ParameterError: an unknown or malformed request; nothing was done.
    :raises X509CertError: a certificate is missing or damaged.
    """
    for request in requests:
        _check_request(request)
    tokens = []
    for kind, action, options in requests:
        path = _cert_file(options or {})
        if action == DELETE:
            fs.remove_file(path)
            continue
        if action == CREATE:
            _create(path, (options or {}).get(_OPTION_SERIAL))
        tokens.append([kind, x509.digest_file(path)])
    return tokens


def _check_request(request: list[Any]) -> None:
    if len(request) != 3:
        raise errors.ParameterError("a token request needs type, action and options")
    kind, action, options = request
    if kind != SSL:
        raise errors.ParameterError(f"unknown type of token {kind!r:.80}")
    if action not in (GET, CREATE, DELETE):
        raise errors.ParameterError(f"unknown action {action!r:.80} on a token")
    if options is None:
        return
    if not isinstance(options, dict) or options.keys() - {_OPTION_SERIAL, _OPTION_FILE}:
        raise errors.ParameterError(f"unknown options of a token request: {options!r:.200}")
    _cert_file(options)
    _serial(options.get(_OPTION_SERIAL))


def _cert_file(options: dict[str, Any]) -> str:
    here = paths.current()
    default = here.noded_client_cert_file
    path = options.get(_OPTION_FILE)
    if path is None:
        return default
    for allowed in (default, f"{default}.tmp"):
        if path in (allowed, here.to_virtual(allowed)):
            return allowed
    raise errors.ParameterError(f"file {path!r:.200} is not for a client certificate")


def _serial(value: Any) -> int:
    if value is None:
        return 1 + secrets.randbits(62)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 1 << 159:
        raise errors.ParameterError(f"not a serial number of a certificate: {value!r:.80}")
    return value


def _create(path: str, serial_no: Any) -> None:
    here = paths.current()
    authority = x509.read_pem(here.noded_cert_file)
    pem = x509.create_signed(machine.current().hostname(), authority, serial_no=_serial(serial_no))
    uid, gid = users.same_owner(here.noded_cert_file)
    fs.write_file(path, pem, mode=_CERT_MODE, uid=uid, gid=gid)


@serves(calls.NODE_LEAVE_CLUSTER)
def leave_cluster(modify_ssh_setup: bool) -> None:
    """Remove the credentials and files which make this machine a node, then end the daemon.

    Guests, their disks and the logs stay.

    :param modify_ssh_setup: the cluster set SSH up: its keys may no longer log in here.
    :raises ConfigurationError: the master daemon runs here; nothing was removed.
    :raises QuitGanetiException: always after success; asks the daemon to end.
    """
    here = paths.current()
    if daemonize.read_pid(here.pid_file("ganeti-masterd")) is not None:
        raise errors.ConfigurationError(
            "the master daemon runs on this node, so the node cannot leave the cluster"
        )
    if modify_ssh_setup:
        ssh_keys.forget(here)
    remove_files(here)
    for daemon in ("ganeti-failoverd", "ganeti-confd"):
        pid = daemonize.read_pid(here.pid_file(daemon))
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
    raise errors.QuitGanetiException(
        True, f"node {machine.current().hostname()} has left the cluster"
    )


def leave_files(here: paths.Paths) -> list[str]:
    """Return the files and directories which make a machine a node, in the order of their removal.

    The server certificate is the last one: while it exists, the removal can be repeated. The jobs
    of the queue are not among them (:func:`ganeti.backend.cluster.jobqueue.remove_jobs`).
    """
    return [
        *configfile.own_files(here.cluster_conf_file),
        here.cluster_conf_file + DEMOTED_SUFFIX,
        here.master_state_file,
        here.known_hosts_file,
        here.queue_serial_file,
        here.queue_version_file,
        here.queue_drain_file,
        here.server_ca_file,
        here.lvm_state_file,
        here.witness_ca_file,
        *glob.glob(f"{glob.escape(here.data_dir)}/{ssconf.FILE_PREFIX}*"),
        # Its pause, and what it remembers about instances of this cluster.
        *glob.glob(f"{glob.escape(here.data_dir)}/watcher.*"),
        # Earlier configurations, with their secrets.
        here.cluster_conf_history_dir,
        here.noded_client_cert_file,
        here.rapi_cert_file,
        here.hmac_key,
        here.cluster_domain_secret,
        here.spice_cert_file,
        here.spice_cacert_file,
        here.witness_auth_file,
        # Of a process which died while it wrote one of these files.
        *fs.unfinished_files(here.data_dir),
        here.noded_cert_file,
    ]


def remove_files(here: paths.Paths) -> None:
    """Remove the jobs of the queue and :func:`leave_files`.

    :raises OSError: a file cannot be removed; the call can be repeated.
    """
    jobqueue.remove_jobs()
    for path in leave_files(here):
        if os.path.isdir(path):
            shutil.rmtree(path)
        else:
            fs.remove_file(path)
    fs.flush_dir(here.data_dir)
