"""The main function of the REST daemon: options, TLS, files that change. See :mod:`ganeti.rapi`.

``ganeti-rapi`` normally runs on the master. It needs the local socket of the master daemon and
three files: certificate, users, log. On another node, and while no master daemon runs, it answers
502 with the reason to all requests which need the master, and serves the others.

One loop serves all clients (:mod:`ganeti.http.event_server`). It starts after the daemon has
dropped its privileges; the socket and the certificate are opened before.

Source: Ganeti design 2.0, *Remote API changes*.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import gc
import ipaddress
import logging
import os
import socket
import ssl
from collections.abc import Callable
from typing import Final, NamedTuple

from ganeti import __version__, errors
from ganeti.constants import ssconf
from ganeti.http import event_server
from ganeti.http.access_log import AccessLog
from ganeti.platform import hosts, machine, paths
from ganeti.rapi import job_limits, sealed, sessions
from ganeti.rapi.application import AT_ONCE, RestApplication
from ganeti.rapi.certificates import Asking, Certificates
from ganeti.rapi.demand import Demand
from ganeti.rapi.events import Hub
from ganeti.rapi.identify import Identities, PasswordAlone, Way
from ganeti.rapi.kept_records import KeptRecords
from ganeti.rapi.master import Master
from ganeti.rapi.oidc.logins import OidcLogins
from ganeti.rapi.passkeys import Passkeys
from ganeti.rapi.proofs import Proofs
from ganeti.rapi.quotas import Quotas
from ganeti.rapi.resources import RESOURCES
from ganeti.rapi.scope import Scopes
from ganeti.rapi.sealed import Seal
from ganeti.rapi.tokens import Tokens
from ganeti.rapi.totp_factor import TotpFactor
from ganeti.rapi.users import Users
from ganeti.rapi.webhooks import addresses
from ganeti.rapi.webhooks.courier import Poster
from ganeti.rapi.webhooks.sender import Webhooks
from ganeti.server import daemon, event_loop
from ganeti.utils import fs, inotify, x509

NAME: Final = "ganeti-rapi"
PORT: Final = hosts.RAPI_PORT
_UNFINISHED_OF_AN_ADDRESS: Final = 100
_STOP_S: Final = 5.0


def _from_one(text: str) -> int:
    number = daemon.limit_or_zero(text)
    if not number:
        raise argparse.ArgumentTypeError("0 would end every session at once")
    return number


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this daemon."""
    daemon.add_server_options(parser, default_clients=AT_ONCE, certificate="rapi.pem")
    add = parser.add_argument
    add(
        "--ssl-chain",
        metavar="FILE",
        help="certificates of the authorities between that certificate and a known authority",
    )
    add(
        "--require-authentication",
        action="store_true",
        help="demand a password for every request, also if the parameter of the cluster does not",
    )
    add(
        "--max-user-jobs",
        type=daemon.limit_or_zero,
        default=job_limits.UNFINISHED,
        metavar="NUMBER",
        help="number of unfinished jobs of each user; 0 for no limit"
        f" (default {job_limits.UNFINISHED})",
    )
    add(
        "--max-user-jobs-per-minute",
        type=daemon.limit_or_zero,
        default=job_limits.PER_MINUTE,
        metavar="NUMBER",
        help="number of jobs that each user may submit in a minute; 0 for no limit"
        f" (default {job_limits.PER_MINUTE})",
    )
    add(
        "--webhook-network",
        action="append",
        default=[],
        type=_network,
        metavar="NETWORK",
        help="also send webhooks to these addresses of this machine or of its links, such as"
        " 127.0.0.0/8; may be given several times",
    )
    add(
        "--webhook-ca",
        default="",
        metavar="FILE",
        help="certificates of the authorities which receivers of webhooks may have (default: those"
        " of the system)",
    )
    _add_login_options(add)


def _add_login_options(add: Callable[..., object]) -> None:
    """Add the options about sessions and passkeys."""
    add(
        "--session-idle",
        type=_from_one,
        default=int(sessions.IDLE_S / 60),
        metavar="MINUTES",
        help="end a session after this time without a request"
        f" (default {int(sessions.IDLE_S / 60)})",
    )
    add(
        "--session-hours",
        type=_from_one,
        default=int(sessions.WHOLE_S / 3600),
        metavar="HOURS",
        help=f"end a session this time after the login (default {int(sessions.WHOLE_S / 3600)})",
    )
    add(
        "--passkey-host",
        metavar="NAME",
        default="",
        help="host name in the addresses of pages which use passkeys (default: the name of the"
        " cluster)",
    )


def _network(value: str) -> addresses.Network:
    try:
        return ipaddress.ip_network(value)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"'{value}' is not a network, such as 127.0.0.0/8 or fe80::/10"
        ) from None


class RestDaemon(NamedTuple):
    """The parts of a REST daemon that has started.

    :ivar tls: settings of TLS; None for plain HTTP.
    :ivar watch: notices changes of the file with the users; None where that is not possible.
    :ivar seal: encrypts the secrets of users; None on a machine without a confd key.
    """

    sock: socket.socket
    tls: ssl.SSLContext | None
    access_log: AccessLog
    watch: inotify.DirectoryWatch | None
    seal: Seal | None


def check(options: argparse.Namespace) -> None:
    """Refuse to start with options that exclude each other, or without a certificate.

    :raises StartRefused: the options or the missing certificate.
    """
    here = paths.current()
    daemon.check_server_options(options)
    if options.no_ssl:
        if options.ssl_chain:
            raise daemon.StartRefused("options --ssl-... and --no-ssl exclude each other")
        return
    if not options.ssl_cert and not os.path.exists(here.rapi_cert_file):
        raise daemon.StartRefused(
            f"the certificate {here.rapi_cert_file} is missing. Make a cluster with gnt-cluster"
            " init, or add this machine with gnt-node add; --no-ssl needs no certificate."
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
    address = daemon.served_address(options)
    with daemon.serving(address, options.port):
        sock = event_server.listen(address, options.port)
    access_log = AccessLog(here.rapi_access_log_file)
    ours = [access_log.path]
    if not os.path.isdir(here.rapi_data_dir):
        # An existing directory has the owner that ensure-dirs has set.
        fs.make_dirs(here.rapi_data_dir, 0o750)
        ours.append(here.rapi_data_dir)
    daemon.hand_over(ours, options.user, options.group)
    # Before the file is first read, so that no change is missed between the two.
    watch = inotify.watch(here.rapi_data_dir)
    logging.info("serving %s port %d%s", address, options.port, "" if tls else ", without TLS")
    return RestDaemon(sock, tls, access_log, watch, _seal())


def run(options: argparse.Namespace, rapi: RestDaemon, signals: daemon.Signals) -> int | None:
    """Serve until a signal says to stop."""
    gc.collect()
    gc.freeze()
    asyncio.run(_serve(options, rapi, signals))
    return None


async def _serve(options: argparse.Namespace, rapi: RestDaemon, signals: daemon.Signals) -> None:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(event_loop.log_unawaited)
    master = Master()
    users = _users()
    proofs = _proofs(KeptRecords(master), users, options, rapi.seal)
    hub = Hub(master)
    webhooks = _webhooks(options, master, hub)
    application = RestApplication(
        master,
        _identities(proofs, users),
        require_authentication=Demand(
            paths.current().ssconf_file(ssconf.RAPI_REQUIRE_AUTHENTICATION),
            always=options.require_authentication,
        ),
        at_once=options.max_clients,
        scopes=Scopes(master, users),
        job_limits=_job_limits(options, master, users),
        webhooks=webhooks,
    )
    server = event_server.Server(
        application,
        tls=rapi.tls,
        limits=_limits(),
        note=rapi.access_log.write,
        server_name=f"Ganeti {__version__}",
    )

    def on_hangup() -> None:
        rapi.access_log.reopen()
        users.refresh()

    stop = event_loop.stop_event(signals, on_hangup)
    watch = rapi.watch
    if watch is not None:
        users.watched = True

        def on_change() -> None:
            if watch.take():
                users.refresh()

        loop.add_reader(watch.fileno(), on_change)
    asking = asyncio.create_task(Asking(proofs.records, rapi.tls).run())
    await server.start([rapi.sock])
    webhooks.start()
    try:
        await stop.wait()
    finally:
        await webhooks.stop()
        asking.cancel()
        await hub.close()
        await server.stop(_STOP_S)
        await proofs.records.close()
        master.close()


def _limits() -> event_server.Limits:
    most = event_server.Limits()
    clients = event_server.client_limit(most.clients)
    # A proxy has one address for many clients, but sends whole requests.
    return most._replace(
        clients=clients,
        per_address=max(1, clients // 2),
        unfinished_per_address=_UNFINISHED_OF_AN_ADDRESS,
        bodies_per_address=most.bodies_bytes // 2,
        # The others are for requests beside them.
        sockets_per_address=max(1, clients // 3),
    )


def _job_limits(options: argparse.Namespace, master: Master, users: Users) -> job_limits.JobLimits:
    return job_limits.JobLimits(
        master,
        options.max_user_jobs,
        options.max_user_jobs_per_minute,
        quotas=Quotas(master, users),
    )


def _webhooks(options: argparse.Namespace, master: Master, hub: Hub) -> Webhooks:
    name_file = paths.current().ssconf_file(ssconf.CLUSTER_NAME)

    def cluster() -> str:
        try:
            return fs.read_file(name_file).strip()
        except OSError:
            return ""

    allowed = functools.partial(addresses.allowed, networks=tuple(options.webhook_network))
    return Webhooks(master, hub, Poster(cluster, allowed, ca_file=options.webhook_ca).post)


def _proofs(
    records: KeptRecords, users: Users, options: argparse.Namespace, seal: Seal | None
) -> Proofs:
    limits = sessions.Limits(options.session_idle * 60.0, options.session_hours * 3600.0)
    of_browsers = sessions.Sessions(records, users, limits, tls=not options.no_ssl)
    oidc = OidcLogins(paths.current().rapi_oidc_file, users)
    codes = TotpFactor(records, seal, _cluster_name)
    keys = Passkeys(records, lambda: options.passkey_host or _cluster_name())
    return Proofs(records, users, of_browsers, [codes], oidc=oidc, totp=codes, passkeys=keys)


def _identities(proofs: Proofs, users: Users) -> Identities:
    """Return the ways in which users may identify themselves, in their order."""
    records, codes = proofs.records, proofs.totp
    of_browsers = () if proofs.sessions is None else (proofs.sessions,)
    passwords: Way = users if codes is None else PasswordAlone(users, codes)
    ways = (Tokens(records, users), passwords, *of_browsers, Certificates(records, users))
    return Identities(ways, proofs)


def _seal() -> Seal | None:
    """Read the confd key, before the daemon drops its privileges."""
    try:
        return sealed.of_cluster()
    except errors.ConfigurationError as err:
        logging.warning("one-time codes of users cannot be checked: %s", err)
        return None


def _cluster_name() -> str:
    try:
        return fs.read_file(paths.current().ssconf_file(ssconf.CLUSTER_NAME)).strip()
    except OSError:
        return ""


def _users() -> Users:
    here = paths.current()
    handlers = {resource.handler for resource in RESOURCES}
    return Users(here.rapi_users_file, handlers, roles_path=here.rapi_roles_file)


def _default_port() -> int:
    return machine.current().service_port(NAME, PORT)


DAEMON: Final = daemon.Daemon(
    NAME, check, prepare, run, port=_default_port, add_options=add_options
)
main = DAEMON.main
