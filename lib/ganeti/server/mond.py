"""The main function of the monitoring daemon: socket, timers, signals.

``ganeti-mond`` measures this node and serves the reports over HTTP (:mod:`ganeti.mond`). It runs on
every node and writes no file but its logs. Readers need no password, as published; the option
``--allow`` limits the addresses, and ``--tls`` serves HTTPS with a certificate.

Source: Ganeti daemons design, *Monitoring daemon*.
"""

from __future__ import annotations

import argparse
import asyncio
import ipaddress
import logging
import socket
import ssl
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from ganeti import __version__, errors
from ganeti.constants import ssconf
from ganeti.http import event_server
from ganeti.http.access_log import AccessLog
from ganeti.mond import configuration, guests, node_state
from ganeti.mond.collectors.cpu_load import LoadOverTime
from ganeti.mond.collectors.xen import XenGuest
from ganeti.mond.configuration import ConfdQuestions
from ganeti.mond.openmetrics import Family
from ganeti.mond.registry import Registry
from ganeti.mond.web import MonitoringApplication
from ganeti.platform import machine, paths
from ganeti.server import daemon, event_loop
from ganeti.utils import fs

NAME: Final = "ganeti-mond"
PORT: Final = 1815

_CLIENTS: Final = 200
_CLIENTS_OF_AN_ADDRESS: Final = 50
_STOP_S: Final = 2.0

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class MonitoringDaemon(NamedTuple):
    """The parts of a monitoring daemon that has started."""

    listener: socket.socket
    tls: ssl.SSLContext | None
    access_log: AccessLog


def check(options: argparse.Namespace) -> None:
    """Refuse to start on a machine that is not a node.

    :raises StartRefused: this machine is not a node.
    """
    daemon.require_member(paths.current().hmac_key)


def prepare(options: argparse.Namespace) -> MonitoringDaemon:
    """Open the socket and the log.

    :raises ConfigurationError: the address cannot be served, or the certificate cannot be read.
    """
    tls = _tls(options.tls) if options.tls else None
    address = options.bind or machine.current().default_bind_address()
    with daemon.serving(address, options.port):
        listener = event_server.listen(address, options.port)
    access_log = AccessLog(paths.current().mond_access_log_file)
    logging.info("serving %s port %d%s", address, options.port, " with TLS" if tls else "")
    return MonitoringDaemon(listener, tls, access_log)


def _tls(path: str) -> ssl.SSLContext:
    """Return the context for a file with a certificate and its key.

    :raises ConfigurationError: the file cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(path)
    except (OSError, ssl.SSLError) as err:
        raise errors.ConfigurationError(f"cannot use the certificate {path}: {err}") from err
    return context


def _network(text: str) -> Network:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError as err:
        raise argparse.ArgumentTypeError(str(err)) from err


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this daemon."""
    parser.add_argument(
        "--allow",
        metavar="NETWORK",
        type=_network,
        action="append",
        default=[],
        help="answer this address or network only; may be given several times (default: all)",
    )
    parser.add_argument(
        "--tls", metavar="FILE", help="serve HTTPS with the certificate and the key of this file"
    )


def allowed(networks: Sequence[Network]) -> Callable[[str], bool]:
    """Return a function which says whether an address may read; all may without networks."""

    def check_address(address: str) -> bool:
        try:
            peer = ipaddress.ip_address(address.partition("%")[0])
        except ValueError:
            return not networks
        mapped = getattr(peer, "ipv4_mapped", None)
        return not networks or any((mapped or peer) in network for network in networks)

    return check_address


def run(options: argparse.Namespace, mond: MonitoringDaemon, signals: daemon.Signals) -> int | None:
    """Serve until a signal says to stop."""
    asyncio.run(_serve(options, mond, signals))
    return None


def xen_guests(with_uptime: bool) -> list[XenGuest]:
    """Return the domains of this machine, for the collectors of Xen.

    :raises HypervisorError: Xen does not answer.
    """
    # Only nodes of clusters with Xen load the driver.
    from ganeti.hypervisor.xen import monitored

    return monitored.guests(with_uptime)


def measure_guests(hypervisor: str) -> Mapping[str, guests.Usage]:
    """Return what the guests of a hypervisor use on this node, by name.

    :raises HypervisorError: the hypervisor does not answer.
    """
    # Each node loads the drivers of its cluster only.
    from ganeti import hypervisor as drivers

    return drivers.of(hypervisor).usage()


def _hypervisors() -> list[str]:
    """Return the names of the enabled hypervisors."""
    return _ssconf(ssconf.HYPERVISOR_LIST).split()


def _ssconf(key: str) -> str:
    try:
        return fs.read_file(paths.current().ssconf_file(key))
    except OSError:
        return ""


async def _serve(
    options: argparse.Namespace, mond: MonitoringDaemon, signals: daemon.Signals
) -> None:
    stop = event_loop.stop_event(signals, mond.access_log.reopen)
    name = machine.current().hostname()
    questions = ConfdQuestions(name)
    registry = Registry(
        questions,
        LoadOverTime(),
        hypervisors=_hypervisors,
        xen_guests=xen_guests,
    )
    cluster = node_state.ClusterState(is_master=lambda: _ssconf(ssconf.MASTER_NODE).strip() == name)

    guest_metrics = guests.GuestMetrics(_hypervisors, measure_guests)

    def extra() -> list[Family]:
        return [
            node_state.daemons(),
            node_state.watcher(),
            *guest_metrics.families(),
            *cluster.families(),
        ]

    server = event_server.Server(
        MonitoringApplication(registry, allowed=allowed(options.allow), extra=extra),
        limits=event_server.Limits(
            clients=event_server.client_limit(_CLIENTS),
            per_address=_CLIENTS_OF_AN_ADDRESS,
            unfinished_per_address=_CLIENTS_OF_AN_ADDRESS // 2,
        ),
        note=mond.access_log.write,
        server_name=f"Ganeti {__version__}",
        tls=mond.tls,
    )
    await server.start([mond.listener])
    timers = [
        asyncio.create_task(_take_readings(registry)),
        asyncio.create_task(_configure(registry, questions)),
    ]
    try:
        await stop.wait()
    finally:
        for timer in timers:
            timer.cancel()
        await server.stop(_STOP_S)


async def _take_readings(registry: Registry) -> None:
    """Let the collectors of averages take their readings."""
    while True:
        registry.tick()
        await asyncio.sleep(registry.tick_s())


async def _configure(registry: Registry, questions: ConfdQuestions) -> None:
    """Ask again and again which collectors are active."""
    while True:
        try:
            intervals = await asyncio.to_thread(questions.intervals)
        except (OSError, RuntimeError) as err:
            # The next question may be possible again.
            logging.warning("cannot ask which collectors are active: %s", err)
            intervals = None
        if intervals is not None:
            registry.configure(intervals)
        await asyncio.sleep(configuration.REFRESH_S)


def _default_port() -> int:
    return machine.current().service_port(NAME, PORT)


DAEMON: Final = daemon.Daemon(
    NAME, check, prepare, run, port=_default_port, add_options=add_options, early_drop=True
)
main = DAEMON.main
