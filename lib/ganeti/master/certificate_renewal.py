"""Renews the certificates of the cluster and of its nodes before they expire.

A thread of the master daemon polls them every few hours. In the last
:data:`~ganeti.utils.x509.EXPIRATION_WARN_DAYS` days, and after the end, it submits the job which
``gnt-cluster renew-crypto`` submits. An interrupted renewal of this kind is continued.

It renews what only this cluster uses. The certificates of the REST daemon and of SPICE stay: some
programs outside of the cluster may trust just these; ``gnt-cluster verify`` and the watcher report
them. A certificate of the cluster which an administrator has made otherwise stays, too.
"""

from __future__ import annotations

import logging
import os
import threading
from typing import Final, NamedTuple, Protocol

from ganeti import errors
from ganeti.cmdlib.cluster.renew_crypto import pending_file
from ganeti.config import Config
from ganeti.constants import job as job_c
from ganeti.opcodes.base import OpCode
from ganeti.opcodes.cluster import OpClusterRenewCrypto
from ganeti.platform import paths
from ganeti.rpc import RpcRunner
from ganeti.utils import clock, fs, shortage, x509

_log = logging.getLogger(__name__)

#: Seconds from the start of the daemon to the first poll, and between two of them.
FIRST_S: Final = 120.0
PAUSE_S: Final = 6 * 3600.0
_SERVER: Final = "noded_cert_file"
_DAY_S: Final = 86400.0


class Queue(Protocol):
    """What this module needs of the job queue."""

    def submit(self, ops: list[OpCode], *, drained_ok: bool = False) -> int:
        """Submit a job and return its id."""

    def is_unfinished(self, job_id: int) -> bool:
        """Tell whether a job has not ended."""


class Need(NamedTuple):
    """What has to be renewed, and why.

    :ivar cluster: the certificate of the cluster, and with it those of all nodes; else only those
        of the nodes.
    """

    cluster: bool
    why: str


class CertificateRenewal:
    """Polls the certificates, and submits the renewal."""

    def __init__(self, config: Config, rpc: RpcRunner, queue: Queue) -> None:
        self._config = config
        self._rpc = rpc
        self._queue = queue
        self._job: int | None = None
        self._ended = threading.Event()

    def start(self) -> None:
        """Poll after :data:`FIRST_S`, and again and again, in a thread."""
        threading.Thread(target=self._run, name="certificates", daemon=True).start()

    def stop(self) -> None:
        """End the thread of :meth:`start`."""
        self._ended.set()

    def _run(self) -> None:
        pause_s = FIRST_S
        while not self._ended.wait(pause_s):
            pause_s = PAUSE_S
            try:
                with shortage.as_error():
                    self.poll()
            except (errors.GenericError, OSError) as err:
                _log.error("the certificates of the cluster cannot be renewed: %s", err)

    def poll(self) -> int | None:
        """Check the certificates once.

        :returns: the number of the job which renews them; None when nothing was submitted.
        :raises errors.GenericError: a certificate cannot be read, or the queue takes no job.
        :raises OSError: the new certificate cannot be written.
        """
        if self._job is not None and self._queue.is_unfinished(self._job):
            return None
        online = [node.uuid for node in self._config.online_nodes()]
        answers = self._rpc.show_keys(online)
        shown = {
            answer.node_name: answer.certificate
            for answer in answers.values()
            if answer.failure is None and answer.certificate
        }
        need = due(shown)
        if need is None:
            return None
        lost = sorted(one.node_name for one in answers.values() if one.failure is not None)
        if lost:
            # The job needs all nodes, and would only fail.
            _log.warning(
                "%s; it is renewed when all online nodes answer, and these do not: %s",
                need.why,
                ", ".join(lost),
            )
            return None
        if need.cluster:
            _prepare_server()
        op = OpClusterRenewCrypto(node_certificates=True)
        op.reason = [[job_c.REASON_MASTERD_CERTIFICATES, need.why, clock.now_ns()]]
        self._job = self._queue.submit([op])
        _log.warning("%s; job %d renews it", need.why, self._job)
        return self._job


def due(shown: dict[str, str]) -> Need | None:
    """Return what has to be renewed now; None when nothing has, or may be.

    :param shown: name of a node -> PEM of the certificate which it shows.
    :raises X509CertError: the certificate of the cluster cannot be read.
    """
    now = clock.now()
    path = paths.current().noded_cert_file
    pem = x509.read_pem(path)
    if _ends_soon(pem, path, now):
        if x509.describe(pem, path).subject == x509.DEFAULT_COMMON_NAME:
            return Need(True, x509.check_expiry(pem, now, path)[1])
        _log.warning(
            "%s, and was not made by this program, so it is not renewed. 'gnt-cluster renew-crypto"
            " --new-cluster-certificate' makes another one.",
            x509.check_expiry(pem, now, path)[1],
        )
    for name, certificate in sorted(shown.items()):
        what = f"of node {name}"
        if x509.digest(certificate, what) != x509.digest(pem) and _ends_soon(
            certificate, what, now
        ):
            return Need(False, x509.check_expiry(certificate, now, what)[1])
    return None


def _ends_soon(pem: str, what: str, now: float) -> bool:
    return x509.validity(pem, what)[1] - now < x509.EXPIRATION_WARN_DAYS * _DAY_S


def _prepare_server() -> None:
    """Make a new certificate of the cluster, for the job; one which is there already stays."""
    path = pending_file(_SERVER)
    if not os.path.exists(path):
        fs.make_dirs(paths.current().renewal_dir, 0o700)
        fs.write_file(path, x509.create_self_signed(), mode=0o400)
