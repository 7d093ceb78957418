"""The program which waits for the source of a migration, on its target. Node daemons start it.

It accepts connections at a port of this migration, and authenticates all who connect at the same
time (:class:`ganeti.utils.peers.Peers`). The one which has the certificate of this migration gets
the word that QEMU is ready; then both ends end TLS, and QEMU of this node gets the connection
(:mod:`ganeti.hypervisor.kvm.migration_connection`). All others are sent away.

It ends when QEMU has the connection, when nobody has come for some minutes, or at a signal. What
it says is in a log file of the instance.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import socket
import ssl
import sys
from collections.abc import Sequence
from typing import Final

from ganeti import errors
from ganeti.hypervisor.kvm.migration_connection import CONNECT_S, FD_NAME, READY, URI
from ganeti.hypervisor.kvm.qmp import Qmp
from ganeti.utils import peers, x509

# The master asks the source to send as soon as the target listens.
_SOURCE_S: Final = 180.0
# The source gives up after CONNECT_S; a later word of it would be of no use.
_HANDSHAKE_S: Final = CONNECT_S
# Another program may ask QEMU something at this moment.
_QMP_S: Final = 30.0


def await_source(listener: socket.socket, context: ssl.SSLContext) -> ssl.SSLSocket:
    """Return the connection to the source of this migration.

    :raises TimeoutError: it has not come.
    """

    def authenticate(sock: socket.socket) -> ssl.SSLSocket:
        return context.wrap_socket(sock, server_side=True)

    def refused(address: str, problem: str) -> None:
        logging.warning("connection from %s refused: %s", address, problem)

    with peers.Peers(listener, authenticate, refused, handshake_s=_HANDSHAKE_S) as waiting:
        return waiting.first(_SOURCE_S)


def hand_over(connection: ssl.SSLSocket, control: Qmp, command: str) -> None:
    """Give a connection to QEMU, and end TLS on it.

    The source begins to send when it has heard that QEMU has the connection.

    :param command: of QMP, by which QEMU takes it.
    :raises OSError: the source is gone.
    :raises HypervisorError: QEMU does not take it.
    """
    try:
        control.execute("getfd", {"fdname": FD_NAME}, fds=[connection.fileno()])
        with peers.limited(connection, CONNECT_S):
            connection.sendall(READY)
            plain = connection.unwrap()
        # As in `take`: QEMU goes on while the source says nothing.
        plain.setblocking(False)
        control.execute(command, {"uri": URI})
    except BaseException:
        with contextlib.suppress(OSError):
            # QEMU may have it, too.
            connection.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(errors.HypervisorError):
            control.execute("closefd", {"fdname": FD_NAME})
        raise
    plain.close()


def parse_options(argv: Sequence[str]) -> argparse.Namespace:
    """Read the arguments."""
    parser = argparse.ArgumentParser(prog="kvm-incoming")
    parser.add_argument("name", help="the instance")
    parser.add_argument("listener", type=int, help="number of the open socket which listens")
    parser.add_argument("command", choices=("migrate-incoming", "migrate-recover"))
    parser.add_argument("qmp", help="control socket of QEMU")
    parser.add_argument("certificate", help="certificate of this migration, with its key")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; returns its exit code."""
    options = parse_options(sys.argv[1:] if argv is None else argv)
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(message)s")
    try:
        with socket.socket(fileno=options.listener) as listener:
            context = x509.one_peer_context(options.certificate, options.certificate, server=True)
            connection = await_source(listener, context)
        logging.info("the source has connected from %s", connection.getpeername()[0])
        with connection, Qmp(options.qmp, options.name, timeout_s=_QMP_S) as control:
            hand_over(connection, control, options.command)
    except (OSError, ValueError, errors.GenericError) as err:
        logging.error("%s", err)
        return 1
    logging.info("QEMU has the connection")
    return 0


if __name__ == "__main__":
    sys.exit(main())
