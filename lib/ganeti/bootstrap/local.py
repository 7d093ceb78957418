"""This machine's part in a cluster: its credentials, its state files, its daemons.

Used by the other files of this room; :class:`~ganeti.platform.paths.Paths` say which node is meant,
which in a virtual cluster may be another than the one the command runs on.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import NamedTuple

from ganeti import errors
from ganeti.constants import job, ssconf
from ganeti.platform import paths, ssh_keys
from ganeti.utils import daemonize, fs, process, x509

# Starting includes reading the configuration; bounds a hang, not the speed.
_DAEMON_S = 300.0

MASTER = "ganeti-masterd"
NODED = "ganeti-noded"
CONFD = "ganeti-confd"
RAPI = "ganeti-rapi"


class Undo:
    """Steps which take back what was done, run in reverse when the block fails.

    A step that fails itself does not hide the first error: both are told, with what is left.
    """

    def __init__(self) -> None:
        self._steps: list[tuple[str, Callable[[], object]]] = []

    def __enter__(self) -> Undo:
        return self

    def add(self, left: str, step: Callable[[], object]) -> None:
        """Register a step, before doing what it takes back.

        :param left: what remains when the step fails.
        """
        self._steps.append((left, step))

    def keep(self) -> None:
        """What was done stays."""
        self._steps.clear()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        failures = []
        while self._steps:
            left, step = self._steps.pop()
            if error is None:
                continue
            try:
                step()
            except (OSError, errors.GenericError) as err:
                failures.append(f"{left} ({err})")
        if failures and error is not None:
            raise errors.OpExecError(
                f"{error}. Not all could be undone, left are: {', '.join(failures)}"
            ) from error


class Credentials(NamedTuple):
    """The secrets all nodes share, as file contents."""

    server_pem: str
    rapi_pem: str
    hmac_key: str
    domain_secret: str


def new_credentials() -> Credentials:
    """Make the secrets of a new cluster."""
    return Credentials(
        server_pem=x509.create_self_signed(),
        rapi_pem=x509.create_self_signed(),
        hmac_key=secrets.token_hex(32) + "\n",
        domain_secret=secrets.token_hex(32) + "\n",
    )


def read_credentials(here: paths.Paths) -> Credentials:
    """The secrets of the cluster that a node belongs to.

    :raises ConfigurationError: one is missing or cannot be read.
    """
    names = (here.noded_cert_file, here.rapi_cert_file, here.hmac_key, here.cluster_domain_secret)
    try:
        return Credentials(*[fs.read_file(name) for name in names])
    except OSError as err:
        raise errors.ConfigurationError(
            f"cannot read {err.filename}, which every node of a cluster has: {err.strerror}"
        ) from err


def credential_files(here: paths.Paths) -> list[str]:
    """The files with secrets."""
    return [
        here.noded_cert_file,
        here.noded_client_cert_file,
        here.rapi_cert_file,
        here.hmac_key,
        here.cluster_domain_secret,
    ]


def write_credentials(here: paths.Paths, shared: Credentials, client_name: str) -> str:
    """Write the secrets of a node, with a client certificate of its own.

    :returns: the digest of the client certificate.
    :raises OSError: a file could not be written.
    """
    fs.make_dirs(here.data_dir)
    fs.write_file(here.noded_cert_file, shared.server_pem, mode=0o440)
    client_pem = x509.create_signed(
        client_name, shared.server_pem, serial_no=1 + secrets.randbits(62)
    )
    fs.write_file(here.noded_client_cert_file, client_pem, mode=0o440)
    fs.write_file(here.rapi_cert_file, shared.rapi_pem, mode=0o440)
    fs.write_file(here.hmac_key, shared.hmac_key, mode=0o440)
    fs.write_file(here.cluster_domain_secret, shared.domain_secret, mode=0o640)
    return x509.digest(client_pem)


def read_ssconf(here: paths.Paths) -> dict[str, str]:
    """The ssconf files of a node, by key.

    :raises OSError: one cannot be read.
    """
    return {
        name.removeprefix(ssconf.FILE_PREFIX): fs.read_file(f"{here.data_dir}/{name}")
        for name in fs.list_visible(here.data_dir)
        if name.startswith(ssconf.FILE_PREFIX)
    }


def make_queue(here: paths.Paths) -> None:
    """Make an empty job queue.

    :raises OSError: it cannot be written.
    """
    fs.make_dirs(here.queue_dir, 0o750)
    fs.make_dirs(here.queue_archive_dir, 0o750)
    fs.write_file(here.queue_version_file, f"{job.QUEUE_VERSION}\n", mode=job.QUEUE_FILE_MODE)
    fs.write_file(here.queue_serial_file, "0\n", mode=job.QUEUE_FILE_MODE)


def renewal_traces(here: paths.Paths) -> bool:
    """Whether this node still trusts an old certificate of the cluster besides the new one."""
    return os.path.exists(here.server_ca_file)


def cluster_traces(here: paths.Paths) -> list[str]:
    """Files that show that a machine belongs, or half belongs, to a cluster."""
    wanted = [here.cluster_conf_file, here.ssconf_file(ssconf.MASTER_NODE), *credential_files(here)]
    return [path for path in wanted if os.path.exists(path)]


def remove_state(here: paths.Paths) -> None:
    """Remove everything by which a machine belongs to a cluster; logs and disks stay.

    :raises OSError: a file cannot be removed.
    """
    for path in (
        here.cluster_conf_file,
        here.master_state_file,
        here.watcher_pausefile,
        here.server_ca_file,
        *credential_files(here),
    ):
        fs.remove_file(path)
    ssh_keys.forget(here)
    if os.path.isdir(here.renewal_dir):
        shutil.rmtree(here.renewal_dir)
    if os.path.isdir(here.data_dir):
        for name in os.listdir(here.data_dir):
            if name.startswith(ssconf.FILE_PREFIX):
                fs.remove_file(f"{here.data_dir}/{name}")
    if os.path.isdir(here.queue_dir):
        shutil.rmtree(here.queue_dir)


def daemon_util(*words: str, env: Mapping[str, str] | None = None) -> None:
    """Run the program that starts and stops daemons.

    :param env: variables that name another node.
    :raises OpExecError: it failed; carries what it or the daemon said.
    """
    try:
        process.run([paths.daemon_util(), *words], timeout_s=_DAEMON_S, env=env, log=False)
    except errors.CommandTimeout as err:
        raise errors.OpExecError(f"{' '.join(words)} did not end in time") from err
    except errors.CommandError as err:
        reason = err.output.strip() or str(err)
        raise errors.OpExecError(f"cannot {' '.join(words)}: {reason}") from err


def leave_other_cluster(here: paths.Paths, env: Mapping[str, str] | None = None) -> None:
    """Stop a node's daemons and remove what makes it a node; its cluster is not told.

    :param env: variables that name another node than this one.
    :raises OpPrereqError: the master daemon runs there; nothing was done.
    """
    if running_daemon(here, MASTER) is not None:
        raise errors.OpPrereqError("the master daemon runs on this machine", errors.ECODE_STATE)
    for daemon in (CONFD, NODED):
        daemon_util("stop", daemon, env=env)
    remove_state(here)


def running_daemon(here: paths.Paths, name: str) -> int | None:
    """The pid of a daemon of a node, or None."""
    return daemonize.read_pid(here.pid_file(name))
