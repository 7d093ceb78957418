"""The main function of the metadata daemon, from which guests read facts about themselves.

``ganeti-metad`` serves HTTP on 169.254.169.254 to guests with a communication NIC, and its control
socket to the node daemon, which starts it for the first such guest. The facts may be secret, so the
daemon keeps them in its memory only; the node daemon sends them when an instance starts.

The daemon needs root only to open port 80, and port 67 for DHCP. It may then change to a user of
its own, who must be able to read the OS definitions.

In a virtual cluster, QEMU's user networking forwards requests to that address to a local socket;
the first line of each connection has the address of the guest.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import socket
from typing import Final, NamedTuple

from ganeti import __version__
from ganeti.constants import metad as const
from ganeti.http import event_server
from ganeti.http.access_log import AccessLog
from ganeti.metad import dhcp
from ganeti.metad.control import Control
from ganeti.metad.guests import Guests
from ganeti.metad.web import MetadataApplication
from ganeti.platform import machine, paths, users
from ganeti.server import daemon, event_loop
from ganeti.utils import net

NAME = const.PROGRAM

_CLIENTS = 1000
# A guest which opens more connections gets no more, and the other guests are served.
_CLIENTS_OF_A_GUEST = 20
# Each of them may send a request of the largest size. A body in chunks tells its size too late.
_BODIES_OF_A_GUEST = _CLIENTS_OF_A_GUEST * const.REQUEST_MAX_BYTES
_STOP_S = 2.0


class MetadataDaemon(NamedTuple):
    """The parts of a metadata daemon that has started.

    :ivar direct: socket for connections of guests; the address of the peer is the guest's.
    :ivar forwarded: socket for connections which begin with a line that names the guest's address.
    :ivar dhcp: socket for requests of guests for their address.
    :ivar control: socket for the node daemon.
    """

    direct: socket.socket | None
    forwarded: socket.socket | None
    dhcp: socket.socket | None
    control: socket.socket
    access_log: AccessLog


def check(options: argparse.Namespace) -> None:
    """Refuse to start on a machine that is not a node.

    :raises StartRefused: this machine is not a node.
    """
    daemon.require_member(paths.current().noded_cert_file)


def prepare(options: argparse.Namespace) -> MetadataDaemon:
    """Open the sockets.

    :raises ConfigurationError: an address cannot be served.
    """
    here = paths.current()
    direct = forwarded = addresses = None
    through_qemu = machine.current().has_metadata_through_qemu
    if options.bind or not through_qemu:
        direct = _listen(options.bind or const.ADDRESS, options.port)
    if through_qemu:
        forwarded = net.unix_listen(here.metad_guest_socket)
    else:
        try:
            addresses = dhcp.listen()
        except OSError as err:
            logging.warning(
                "guests get no addresses by DHCP: cannot serve port %d: %s",
                dhcp.SERVER_PORT,
                err.strerror,
            )
    control = net.unix_listen(here.metad_socket, gid=users.group_id(users.current().daemons_group))
    access_log = AccessLog(here.metad_access_log_file)
    if os.geteuid() == 0 and options.user:
        daemon.hand_over([here.metad_socket, access_log.path], options.user, None)
    return MetadataDaemon(direct, forwarded, addresses, control, access_log)


def _listen(address: str, port: int) -> socket.socket:
    with daemon.serving(address, port):
        # The machine has the address only while there are guests.
        sock = net.tcp_listen(address, port, backlog=128, free_bind=True)
    logging.info("serving %s port %d", address, port)
    return sock


def run(options: argparse.Namespace, metad: MetadataDaemon, signals: daemon.Signals) -> int | None:
    """Serve until a signal says to stop."""
    asyncio.run(_serve(metad, signals))
    return None


async def _serve(metad: MetadataDaemon, signals: daemon.Signals) -> None:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(event_loop.log_unawaited)
    stop = event_loop.stop_event(signals, metad.access_log.reopen)
    guests = Guests()
    application = MetadataApplication(guests, paths.current().os_search_path)
    limits = event_server.Limits(
        clients=event_server.client_limit(_CLIENTS),
        per_address=_CLIENTS_OF_A_GUEST,
        unfinished_per_address=_CLIENTS_OF_A_GUEST,
        bodies_per_address=_BODIES_OF_A_GUEST,
    )
    servers = []
    for listener, introduced in ((metad.direct, False), (metad.forwarded, True)):
        if listener is not None:
            server = event_server.Server(
                application,
                limits=limits,
                note=metad.access_log.write,
                server_name=f"Ganeti {__version__}",
                introduced=introduced,
            )
            await server.start([listener])
            servers.append(server)
    control = Control(guests)
    await control.start(metad.control)
    addresses = metad.dhcp
    if addresses is not None:
        loop.add_reader(addresses.fileno(), dhcp.serve, addresses, guests)
    try:
        await stop.wait()
    finally:
        await control.stop()
        for server in servers:
            await server.stop(_STOP_S)


DAEMON: Final = daemon.Daemon(NAME, check, prepare, run, port=lambda: const.PORT)
main = DAEMON.main
