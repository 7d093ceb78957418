"""The REST daemon ``ganeti-rapi``: start-up, TLS, files that change; the rest is in the room rapi.

It runs where it is started, normally on the master, and needs nothing but the master's local socket
and three files: certificate, users, logs. On a node which is not the master, and while no master
daemon runs, it serves what needs no master and answers 502 to the rest, saying why; when the master
is there again so is everything else.

One loop serves all clients (:mod:`ganeti.http.event_server`). It is started after privileges were
dropped, on a socket and with a certificate which were opened before.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import logging
import os
import socket
import ssl
import sys
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, NoReturn

from ganeti import __version__, errors
from ganeti.http import event_server
from ganeti.http.access_log import AccessLog
from ganeti.platform import machine, paths
from ganeti.rapi.application import AT_ONCE, RestApplication
from ganeti.rapi.events import Hub
from ganeti.rapi.master import Master
from ganeti.rapi.resources import RESOURCES
from ganeti.rapi.users import Users
from ganeti.server import daemon
from ganeti.utils import fs, inotify, net, x509

NAME: Final = "ganeti-rapi"
PORT: Final = 5080
_STOP_S: Final = 5.0


def add_options(parser: argparse.ArgumentParser) -> None:
    """What this daemon has beside the options of all."""
    add = parser.add_argument
    add("-i", "--interface", metavar="NAME", help="serve the address of this interface")
    add(
        "--max-clients",
        type=_positive,
        default=AT_ONCE,
        metavar="NUMBER",
        help=f"requests worked on at the same time (default {AT_ONCE})",
    )
    add("--no-ssl", action="store_true", help="serve plain HTTP, without TLS")
    add("-K", "--ssl-key", metavar="FILE", help="private key, instead of the one in rapi.pem")
    add("-C", "--ssl-cert", metavar="FILE", help="certificate, instead of the one in rapi.pem")
    add("--ssl-chain", metavar="FILE", help="certificates between ours and a known authority's")
    add(
        "--require-authentication",
        action="store_true",
        help="answer nothing at all without a password",
    )


def _positive(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or not 0 < int(text) <= 100_000:
        raise argparse.ArgumentTypeError(f"not a number above 0: {text}")
    return int(text)


class RestDaemon(NamedTuple):
    """What is ready before privileges are dropped."""

    sock: socket.socket
    tls: ssl.SSLContext | None
    access_log: AccessLog
    watch: inotify.DirectoryWatch | None


def check(options: argparse.Namespace) -> None:
    """Refuse what cannot work.

    :raises StartRefused: options that exclude each other, or there is no certificate.
    """
    here = paths.current()
    if options.interface and options.bind:
        raise daemon.StartRefused("options --interface and --bind exclude each other")
    if options.no_ssl:
        if options.ssl_key or options.ssl_cert or options.ssl_chain:
            raise daemon.StartRefused("options --ssl-... make no sense with --no-ssl")
        return
    if bool(options.ssl_key) != bool(options.ssl_cert):
        raise daemon.StartRefused("options --ssl-key and --ssl-cert go together")
    if not options.ssl_cert and not os.path.exists(here.rapi_cert_file):
        raise daemon.StartRefused(
            f"there is no certificate to show: {here.rapi_cert_file} is missing. A cluster is made"
            " by gnt-cluster init, a node joins by gnt-node add; --no-ssl does without."
        )


def prepare(options: argparse.Namespace) -> RestDaemon:
    """Open the socket, the certificate and the access log.

    :raises ConfigurationError: the address or the interface cannot be served.
    :raises X509CertError: the certificate cannot be used.
    """
    here = paths.current()
    tls = None
    if not options.no_ssl:
        tls = x509.plain_server_context(
            options.ssl_cert or here.rapi_cert_file, options.ssl_key, options.ssl_chain
        )
    address = options.bind or _default_address(options.interface)
    try:
        sock = event_server.listen(address, options.port)
    except OSError as err:
        raise errors.ConfigurationError(
            f"cannot serve {address} port {options.port}: {err.strerror}"
        ) from err
    access_log = AccessLog(here.rapi_access_log_file)
    ours = [access_log.path]
    if not os.path.isdir(here.rapi_data_dir):
        # Else it belongs to whom ensure-dirs has given it.
        fs.make_dirs(here.rapi_data_dir, 0o750)
        ours.append(here.rapi_data_dir)
    daemon.hand_over(ours, options.user, options.group)
    # Before the file is first read, so that no change falls between the two.
    watch = inotify.watch(here.rapi_data_dir)
    logging.info("serving %s port %d%s", address, options.port, "" if tls else ", without TLS")
    return RestDaemon(sock, tls, access_log, watch)


def _default_address(interface: str | None) -> str:
    if not interface:
        return machine.current().default_bind_address()
    try:
        return net.interface_address(interface)
    except OSError as err:
        raise errors.ConfigurationError(
            f"interface {interface} has no IPv4 address: {err.strerror}"
        ) from err


def run(options: argparse.Namespace, prepared: RestDaemon, signals: daemon.Signals) -> int | None:
    """Serve until a signal says to stop."""
    gc.collect()
    gc.freeze()
    asyncio.run(_serve(options, prepared, signals))
    return None


async def _serve(
    options: argparse.Namespace, prepared: RestDaemon, signals: daemon.Signals
) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    users = Users(paths.current().rapi_users_file, {resource.handler for resource in RESOURCES})
    master = Master()
    hub = Hub(master)
    application = RestApplication(
        master,
        users,
        require_authentication=options.require_authentication,
        at_once=options.max_clients,
        hub=hub,
    )
    most = event_server.Limits()
    limits = most._replace(clients=event_server.client_limit(most.clients))
    server = event_server.Server(
        application,
        tls=prepared.tls,
        limits=limits,
        note=prepared.access_log.write,
        server_name=f"Ganeti {__version__}",
    )

    def on_signal() -> None:
        for number in signals.take():
            if number in daemon.STOP_SIGNALS:
                stop.set()
            else:
                prepared.access_log.reopen()
                users.refresh()

    loop.add_reader(signals.fileno(), on_signal)
    watch = prepared.watch
    if watch is not None:
        users.watched = True

        def on_change() -> None:
            if watch.take():
                users.refresh()

        loop.add_reader(watch.fileno(), on_change)
    loop.set_exception_handler(_report)
    await server.start([prepared.sock])
    try:
        await stop.wait()
    finally:
        await hub.close()
        await server.stop(_STOP_S)
        master.close()
        for source in (signals, watch):
            if source is not None:
                with contextlib.suppress(OSError, ValueError):
                    loop.remove_reader(source.fileno())


def _report(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """What went wrong where nobody was waiting for it."""
    error = context.get("exception")
    if isinstance(error, OSError | ssl.SSLError | TimeoutError):
        # A client that went away, or does not speak TLS.
        logging.debug("%s: %s", context.get("message"), error)
    else:
        logging.error("%s", context.get("message"), exc_info=error)


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Entry point of ``ganeti-rapi``."""
    daemon.main(
        NAME,
        sys.argv[1:] if argv is None else argv,
        check=check,
        prepare=prepare,
        run=run,
        port=machine.current().service_port(NAME, PORT),
        add_options=add_options,
    )
