"""The main function of the node daemon: certificates, socket, signals.

``ganeti-noded`` runs on every node and answers node calls (:mod:`ganeti.backend`). On a real
machine it runs as root, because it handles disks and guests; in a virtual cluster it runs as its
user. Each call is served by a forked child. SIGTERM ends the parent; children finish the calls they
have accepted. SIGHUP opens the log file again.

Source: Ganeti design 2.0, *Node daemon changes*.
"""

from __future__ import annotations

import argparse
import errno
import gc
import logging
import os
import signal
import socket
from functools import partial
from typing import Final, NamedTuple

from ganeti import errors
from ganeti.backend import dispatch, leftovers, registry
from ganeti.backend.cluster import config_file, jobqueue
from ganeti.constants import ssconf
from ganeti.http import auth, server
from ganeti.hypervisor import console_log
from ganeti.platform import machine, paths
from ganeti.server import daemon
from ganeti.storage.drbd import parse, status
from ganeti.utils import fs, retry, tracing, urgent, x509
from ganeti.wire.calls import base

NAME = "ganeti-noded"
_IN_USE_S = 3.0
# Seconds between two checks of the sizes of the console logs of guests.
_CONSOLE_LOGS_S = 5.0


class NodeDaemon(NamedTuple):
    """The parts of a node daemon that has started."""

    sock: socket.socket
    context: x509.FreshContext
    authorise: auth.CandidatesOnly
    dispatcher: dispatch.Dispatcher


def check(options: argparse.Namespace) -> None:
    """Refuse to start on a machine that is not a node.

    :raises StartRefused: the certificate of the cluster is missing.
    :raises X509CertError: the certificate cannot be used.
    """
    here = paths.current()
    daemon.check_server_options(options)
    if options.no_ssl:
        raise daemon.StartRefused(
            f"{NAME} does not serve without TLS: it obeys the master because of its certificate,"
            " and without certificates it would obey everybody. Start it without --no-ssl."
        )
    daemon.require_member(here.noded_cert_file)
    x509.server_context(here.noded_cert_file)


def prepare(options: argparse.Namespace) -> NodeDaemon:
    """Open the socket and load everything that a child needs.

    :raises ConfigurationError: the address cannot be served.
    :raises X509CertError: the certificate cannot be used.
    """
    here = paths.current()
    for directory, mode in (
        (here.log_os_dir, 0o750),
        (here.queue_dir, 0o750),
        (here.queue_archive_dir, 0o750),
        (here.instance_disks_dir, 0o755),
        (here.instance_reason_dir, 0o755),
        (here.crypto_keys_dir, 0o700),
    ):
        fs.make_dirs(directory, mode)
    served = (options.ssl_cert, options.ssl_key) if options.ssl_cert else None
    context = x509.FreshContext(
        here.noded_cert_file, here.server_ca_file, here.noded_client_cert_file, served
    )
    _warm_up(context, here, options.ssl_cert)
    address = daemon.served_address(options)
    sock = _listen(address, options.port)
    leftovers.remove_all()
    authorise = auth.CandidatesOnly(
        here.ssconf_file(ssconf.MASTER_CANDIDATES_CERTS), x509.digest_file(here.noded_cert_file)
    )
    base.prepare()
    if os.path.exists(status.STATUS_FILE):
        # On other nodes it would only need memory.
        parse.show_grammar()
    problem = tracing.set_up(NAME)
    if problem:
        logging.warning("%s", problem)
    noded = NodeDaemon(sock, context, authorise, dispatch.Dispatcher(registry.handlers()))
    if not options.no_mlock and machine.current().may_lock_memory:
        problem = urgent.lock_memory()
        if problem:
            logging.warning("cannot lock the memory: %s", problem)
    logging.info("serving %s port %d", address, options.port)
    return noded


def _warm_up(context: x509.FreshContext, here: paths.Paths, served: str | None) -> None:
    """Prepare OpenSSL, which also tries whether the other nodes accept the certificate.

    :raises X509CertError: they do not, or it cannot be used.
    """
    try:
        x509.warm_up(context(), here.noded_cert_file, here.trust_file())
    except errors.X509CertError as err:
        if served is None:
            raise
        raise errors.X509CertError(
            served,
            "is not a certificate which other nodes accept. Sign it with the key in"
            f" {here.noded_cert_file}.",
        ) from err


def _listen(address: str, port: int) -> socket.socket:
    """Open the socket. Children of a daemon that was killed may still have it for some seconds."""

    def attempt() -> socket.socket:
        try:
            return server.listen(address, port)
        except OSError as err:
            if err.errno == errno.EADDRINUSE:
                raise retry.Again(str(err)) from err
            raise

    try:
        with daemon.serving(address, port):
            return retry.until(attempt, timeout_s=_IN_USE_S)
    except errors.RetryTimeout as err:
        raise errors.ConfigurationError(
            f"cannot serve {address} port {port}: another program uses it"
        ) from err


def run(options: argparse.Namespace, noded: NodeDaemon, signals: daemon.Signals) -> int | None:
    """Serve until a signal or a node call asks the daemon to stop."""
    # Present objects live as long as the process. When the garbage collector of a child does not
    # visit them, their memory is not copied.
    gc.collect()
    gc.freeze()
    forking = server.ForkingServer(
        noded.sock,
        noded.context,
        server.Service(
            noded.dispatcher,
            noded.authorise,
            in_child=lambda: daemon.leave_parent(signals),
            at_rest=partial(at_rest, os.getpid()),
        ),
        limits=server.DEFAULT_LIMITS._replace(children=options.max_clients),
        chores=(
            server.Chore(
                "console logs", _CONSOLE_LOGS_S, console_log.is_overgrown, console_log.rotate
            ),
            server.Chore(
                "journal of the configuration",
                config_file.FOLD_EVERY_S,
                config_file.FoldingTimer().is_due,
                config_file.fold,
            ),
        ),
    )
    forking.serve(signals.fileno(), lambda: after_signals(signals.take()))
    # A node daemon of an older version, which may be started next, reads the file only.
    config_file.fold()
    return None


def at_rest(parent: int) -> None:
    """Do in a child, after its answers were sent, what callers need not wait for.

    :param parent: the process which made the child.
    """
    jobqueue.settle()
    if os.getppid() != parent:
        # The daemon has ended, and folds in no journal any more.
        config_file.fold()
    problem = tracing.flush()
    if problem:
        logging.warning("%s", problem)


def after_signals(taken: list[signal.Signals]) -> server.Wakeup:
    """Return what the parent does after these signals: end, renew its waiting children, or nothing.

    :param taken: signals of :meth:`daemon.Signals.take`; empty after an alarm.
    """
    if not daemon.STOP_SIGNALS.isdisjoint(taken):
        return server.Wakeup.STOP
    return server.Wakeup.RENEW if taken else server.Wakeup.GO_ON


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this daemon."""
    daemon.add_server_options(
        parser,
        default_clients=server.DEFAULT_LIMITS.children,
        certificate="server.pem",
    )
    parser.add_argument(
        "--no-mlock", action="store_true", help="do not lock the memory of the daemon"
    )


DAEMON: Final = daemon.Daemon(
    NAME, check, prepare, run, port=lambda: machine.current().noded_port(), add_options=add_options
)
main = DAEMON.main
