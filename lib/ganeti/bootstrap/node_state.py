"""The credentials, state files and daemons of a node, and taking back changes of them.

The other modules of this package use it. A parameter of class
:class:`~ganeti.platform.paths.Paths` chooses the node; in a virtual cluster it may be another node
than the one on which the command runs.
"""

from __future__ import annotations

import os
import secrets
import shutil
import stat
from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

from ganeti import errors
from ganeti.config import ssconf as ssconf_files
from ganeti.configfile import files as configfile
from ganeti.constants import job, ssconf
from ganeti.platform import machine, paths, ssh_keys, users, watchdog_files
from ganeti.utils import daemonize, fs, process, retry, x509
from ganeti.utils.undo import UndoStack

# The start of a daemon includes reading the configuration; this limit is for daemons that hang.
_DAEMON_S = 300.0
# The master daemon serves before it sets up the address, and the network looks for duplicates.
_ADDRESS_S, _ADDRESS_TRY_S = 30.0, 1.0

MASTER = "ganeti-masterd"
NODED = "ganeti-noded"
CONFD = "ganeti-confd"
RAPI = "ganeti-rapi"
FAILOVERD = "ganeti-failoverd"


def await_master_address(ip: str) -> str | None:
    """Wait until the address of the cluster answers, which the new master daemon sets up.

    The node daemon of this node serves on it, as ``gnt-cluster verify`` checks. Where all nodes
    are on one machine, the address is not set up, and nothing is waited for.

    :returns: a warning when it does not answer within 30 seconds.
    """
    this = machine.current()
    if not this.has_own_system:
        return None

    def attempt() -> None:
        if not this.answers(ip, this.noded_port(), _ADDRESS_TRY_S):
            raise retry.Again

    try:
        retry.until(attempt, timeout_s=_ADDRESS_S, delay=0.2)
    except errors.RetryTimeout:
        return (
            f"the address {ip} of the cluster does not answer after {_ADDRESS_S:.0f} seconds."
            f" {paths.current().log_file(MASTER)} says why it was not set up."
        )
    return None


class Credentials(NamedTuple):
    """The secrets which all nodes share: the contents of their files."""

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
    """Read the secrets of the cluster from the files of a node.

    :raises ConfigurationError: a file is missing or cannot be read.
    """
    names = (here.noded_cert_file, here.rapi_cert_file, here.hmac_key, here.cluster_domain_secret)
    try:
        return Credentials(*[fs.read_file(name) for name in names])
    except OSError as err:
        raise errors.ConfigurationError(
            f"cannot read {err.filename}, which every node of a cluster has: {err.strerror}"
        ) from err


def credential_files(here: paths.Paths) -> list[str]:
    """Return the paths of the files with secrets."""
    return [
        here.noded_cert_file,
        here.noded_client_cert_file,
        here.rapi_cert_file,
        here.hmac_key,
        here.cluster_domain_secret,
    ]


def write_credentials(here: paths.Paths, shared: Credentials, client_name: str) -> str:
    """Write the secrets of a node, and make a client certificate for it.

    :param client_name: name of the node, for its certificate.
    :returns: the digest of the client certificate.
    :raises OSError: a file cannot be written.
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


def is_own_node(here: paths.Paths, name: str, facts: Mapping[str, str]) -> bool:
    """Tell whether a machine is a node of this cluster, also with secrets of the past.

    A node which was off while the secrets were renewed still has the old ones. What it keeps is its
    own key, in the client certificate, which the cluster knows by its pin.

    :param here: the paths of the machine.
    :param name: the node for which it is taken.
    :param facts: ssconf values of the cluster: name -> text.
    """
    pins = [
        word
        for line in facts.get(ssconf.NODE_KEY_PINS, "").splitlines()
        for word in line.split()[1:]
        if line.split()[0] == name
    ]
    try:
        pem = fs.read_file(here.noded_client_cert_file)
        return bool(pins) and x509.key_pin(pem, here.noded_client_cert_file) in pins
    except (OSError, UnicodeDecodeError, errors.X509CertError):
        return False


def replace_credentials(
    here: paths.Paths, shared: Credentials, client_name: str, undo: UndoStack
) -> str:
    """Write the secrets of a machine in place of those which it has.

    :param undo: gets the step which restores the present ones.
    :returns: the digest of its new client certificate.
    :raises OSError: a file cannot be read or written.
    """
    present: dict[str, tuple[str, int]] = {}
    for path in (*credential_files(here), here.server_ca_file):
        if os.path.exists(path):
            present[path] = (fs.read_file(path), stat.S_IMODE(os.stat(path).st_mode))

    def restore() -> None:
        for path, (content, mode) in present.items():
            fs.write_file(path, content, mode=mode)
        for path in credential_files(here):
            if path not in present:
                fs.remove_file(path)

    undo.add(f"the secrets in {here.data_dir}", restore)
    # The node of an unfinished renewal trusts an old certificate as well.
    fs.remove_file(here.server_ca_file)
    return write_credentials(here, shared, client_name)


def equip(
    here: paths.Paths, shared: Credentials, name: str, facts: Mapping[str, str], undo: UndoStack
) -> str:
    """Write what makes a machine a node; secrets which it has already are replaced.

    :param facts: ssconf values of the cluster.
    :returns: the digest of its client certificate.
    :raises OSError: a file cannot be read or written.
    """
    if cluster_traces(here):
        digest = replace_credentials(here, shared, name, undo)
    else:
        undo.add(f"files in {here.data_dir}", partial(remove_state, here))
        digest = write_credentials(here, shared, name)
    ssconf_files.write_local(facts, here)
    make_file_directory(facts, here)
    return digest


def read_ssconf(here: paths.Paths) -> dict[str, str]:
    """Read the ssconf files of a node.

    :returns: key -> content of the file.
    :raises OSError: a file cannot be read.
    """
    return {
        name.removeprefix(ssconf.FILE_PREFIX): fs.read_file(f"{here.data_dir}/{name}")
        for name in fs.list_visible(here.data_dir)
        if name.startswith(ssconf.FILE_PREFIX)
    }


def make_queue(here: paths.Paths) -> None:
    """Make an empty job queue.

    :raises OSError: a file cannot be written.
    """
    fs.make_dirs(here.queue_dir, 0o750)
    fs.make_dirs(here.queue_archive_dir, 0o750)
    fs.write_file(here.queue_version_file, f"{job.QUEUE_VERSION}\n", mode=job.QUEUE_FILE_MODE)
    fs.write_file(here.queue_serial_file, "0\n", mode=job.QUEUE_FILE_MODE)


def renewal_traces(here: paths.Paths) -> bool:
    """Return True if a node still trusts an old certificate of the cluster in addition to the new
    one.
    """
    return os.path.exists(here.server_ca_file)


def sign_again(here: paths.Paths) -> str:
    """Sign the key of a node with the certificate of the cluster which the node has now.

    :returns: the digest of the new client certificate.
    :raises X509CertError: a file is missing or damaged.
    :raises OSError: the file cannot be written.
    """
    path = here.noded_client_cert_file
    pem = x509.sign_again(
        x509.read_pem(path),
        x509.read_pem(here.noded_cert_file),
        serial_no=1 + secrets.randbits(62),
    )
    uid, gid = users.same_owner(path)
    fs.write_file(path, pem, mode=0o440, uid=uid, gid=gid)
    return x509.digest(pem)


def make_file_directory(facts: Mapping[str, str], here: paths.Paths) -> None:
    """Make the directory for disk files on a new node, if it is the default one.

    Another one may be where a file system has to be mounted first, and is left to the
    administrator.

    :param facts: ssconf values of the cluster: name -> text.
    :raises OSError: it cannot be made.
    """
    if facts.get(ssconf.FILE_STORAGE_DIR, "").strip() == paths.DEFAULT_FILE_STORAGE_DIR:
        fs.make_dirs(here.to_local(paths.DEFAULT_FILE_STORAGE_DIR), 0o750)


def cluster_traces(here: paths.Paths) -> list[str]:
    """Return the present files which show that a machine belongs to a cluster, at least partly."""
    wanted = [here.cluster_conf_file, here.ssconf_file(ssconf.MASTER_NODE), *credential_files(here)]
    return [path for path in wanted if os.path.exists(path)]


def remove_state(here: paths.Paths) -> None:
    """Remove all files by which a machine belongs to a cluster; logs and disks stay.

    :raises OSError: a file cannot be removed.
    """
    for path in (
        *configfile.own_files(here.cluster_conf_file),
        here.master_state_file,
        here.server_ca_file,
        # Of a process which died while it wrote a key.
        *fs.unfinished_files(here.data_dir),
        *credential_files(here),
    ):
        fs.remove_file(path)
    ssh_keys.forget(here)
    # Earlier configurations have secrets, too.
    for directory in (here.renewal_dir, here.cluster_conf_history_dir):
        if os.path.isdir(directory):
            shutil.rmtree(directory)
    if os.path.isdir(here.data_dir):
        for name in os.listdir(here.data_dir):
            # What the watcher remembers belongs to the instances of the cluster.
            if name.startswith((ssconf.FILE_PREFIX, "watcher.")):
                fs.remove_file(f"{here.data_dir}/{name}")
    if os.path.isdir(here.queue_dir):
        shutil.rmtree(here.queue_dir)


def daemon_util(*words: str, env: Mapping[str, str] | None = None) -> None:
    """Run the program which starts and stops daemons.

    :param words: its arguments.
    :param env: variables which choose another node.
    :raises OpExecError: the program failed; the message has its output.
    """
    try:
        process.run([paths.daemon_util(), *words], timeout_s=_DAEMON_S, env=env, log=False)
    except errors.CommandTimeout as err:
        raise errors.OpExecError(
            f"'daemon-util {' '.join(words)}' did not end within {_DAEMON_S:g} s"
        ) from err
    except errors.CommandError as err:
        raise errors.OpExecError(f"cannot {' '.join(words)}: {err.problem}") from err


def leave_other_cluster(here: paths.Paths, env: Mapping[str, str] | None = None) -> None:
    """Stop the daemons of a node and remove its state, without informing its cluster.

    :param env: variables which choose another node than this one.
    :raises OpPrereqError: the master daemon runs on that node; nothing was changed.
    """
    stop_node_daemons(here, env=env)
    remove_state(here)


def require_no_master(here: paths.Paths) -> None:
    """Check that no master daemon runs on a node.

    :raises OpPrereqError: one runs there.
    """
    if running_daemon(here, MASTER) is not None:
        raise errors.OpPrereqError("the master daemon runs on this machine", errors.ECODE_STATE)


def stop_node_daemons(here: paths.Paths, env: Mapping[str, str] | None = None) -> None:
    """Stop the daemons of a node which is not the master.

    :param env: variables which choose another node than this one.
    :raises OpPrereqError: the master daemon runs on that node; nothing was changed.
    """
    require_no_master(here)
    for daemon in (watchdog_files.DAEMON, FAILOVERD, CONFD, NODED):
        daemon_util("stop", daemon, env=env)


def running_daemon(here: paths.Paths, name: str) -> int | None:
    """Return the process number of a daemon of a node, or None if it does not run."""
    return daemonize.read_pid(here.pid_file(name))
