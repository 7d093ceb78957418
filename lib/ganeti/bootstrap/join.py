"""Joining a cluster with a one-time token, without SSH: the master's command and the new machine.

:class:`JoinOffer` waits for one machine, in the command ``gnt-node add --token`` on the master;
:func:`join` is the program ``ganeti-join`` on that machine. They transfer the credentials of the
cluster. The token is only in the memory of the waiting command, so it ends with the command; it is
valid for one machine, once, until it expires.

On the master a connection is an unauthenticated peer until it has proved that it knows the secret.
The first one which does so uses up the token: no other connection is served, and the credentials
are sent. See :mod:`ganeti.bootstrap.join_protocol` for the messages.
"""

from __future__ import annotations

import contextlib
import secrets
import socket
import ssl
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from ganeti import errors
from ganeti.bootstrap import join_protocol as protocol
from ganeti.bootstrap import node_state, renewal
from ganeti.bootstrap.join_protocol import Channel, JoinError, Token
from ganeti.config import ssconf
from ganeti.platform import hosts, machine, paths
from ganeti.utils import clock, net, x509
from ganeti.utils.undo import UndoStack

#: Seconds until a token expires, unless the user says otherwise.
LIFETIME_S = 3600
#: Seconds in which an unauthenticated peer must prove that it knows the secret.
PROOF_S = 15.0
#: Maximum number of unauthenticated peers at the same time.
MAX_UNAUTHENTICATED = 16
# Between the proofs and the report of the machine, it starts its daemons.
_MACHINE_S = 600.0
# The job that adds the node may wait for others.
_VERDICT_S = 24 * 3600.0
_CONNECT_S = 20.0


class JoiningMachine:
    """A machine which has proved that it knows the secret, and waits to be added.

    :ivar certificate: the digest of its client certificate; empty before :meth:`equip`.
    """

    def __init__(self, tls: ssl.SSLSocket, channel: Channel) -> None:
        self._tls = tls
        self._channel = channel
        self.certificate = ""

    def equip(self, here: paths.Paths) -> None:
        """Send the credentials, and wait until the node daemon of the machine runs.

        :param here: the paths of this node.
        :raises JoinError: the machine could not be set up, and has undone its changes.
        """
        self._tls.settimeout(_MACHINE_S)
        shared = node_state.read_credentials(here)
        self._channel.send(
            {"credentials": shared._asdict(), "ssconf": node_state.read_ssconf(here)}
        )
        digest = self._channel.receive("ready")["ready"]
        if not isinstance(digest, str) or not x509.is_digest(digest):
            raise JoinError("the machine has sent no digest of its certificate")
        self.certificate = digest

    def accept(self) -> None:
        """Inform the machine that it is a node now, and end the connection."""
        # The machine is a node even if it does not get the message.
        with contextlib.suppress(JoinError):
            self._channel.send({"taken in": True})
        self.close()

    def refuse(self, text: str) -> None:
        """Inform the machine why it was not added; it then removes the credentials.

        :param text: the reason.
        """
        with contextlib.suppress(JoinError):
            self._channel.send({"failed": text})
        self.close()

    def close(self) -> None:
        """End the connection."""
        with contextlib.suppress(OSError):
            self._tls.close()


class JoinOffer:
    """A token, and the socket on which the machine with the token connects; a context manager.

    :param host: the node that may join.
    :param address: address of this master for the machine.
    :param lifetime_s: seconds until the token expires.
    :param now: the time of day in seconds since 1970.
    :param monotonic: a clock in seconds which never jumps.
    :param on_refused: gets a message about each peer which was refused.
    :raises JoinError: the address cannot be served.
    :raises OpPrereqError: the keys of the cluster are being renewed.
    """

    def __init__(
        self,
        host: hosts.Hostname,
        address: str,
        *,
        lifetime_s: int = LIFETIME_S,
        here: paths.Paths | None = None,
        now: Callable[[], float] = clock.now,
        monotonic: Callable[[], float] = clock.monotonic,
        on_refused: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._here = here or paths.current()
        renewal.require_none_pending(self._here)
        self._now = now
        self._monotonic = monotonic
        # The time of day may be set back; the other clock stops while the machine is suspended.
        self._deadline = monotonic() + lifetime_s
        self._on_refused = on_refused
        self._context = x509.plain_server_context(self._here.noded_cert_file)
        family = socket.AF_INET6 if net.is_ipv6(address) else socket.AF_INET
        self._sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._sock.bind((address, machine.current().service_port("ganeti-join", 0)))
            self._sock.listen(MAX_UNAUTHENTICATED)
        except OSError as err:
            self._sock.close()
            raise JoinError(
                f"cannot serve {address} for the machine that joins: {err.strerror}"
            ) from err
        self.token = Token(
            int(now()) + lifetime_s,
            address,
            self._sock.getsockname()[1],
            x509.fingerprint(x509.read_pem(self._here.noded_cert_file)),
            secrets.token_bytes(protocol.SECRET_BYTES),
            host.name,
        )
        self._lock = threading.Lock()
        self._winner: JoiningMachine | None = None
        # The garbage collector closes them when no thread needs them any more.
        self._wake, self._waker = socket.socketpair()
        # Connections of peers which have not proved anything yet, with their addresses, in order.
        self._unproved: dict[ssl.SSLSocket, str] = {}

    def __enter__(self) -> JoinOffer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Make the token invalid, and close the socket."""
        with self._lock:
            self.token = self.token._replace(expires=0)
        self._sock.close()

    def wait(self) -> JoiningMachine:
        """Wait for the machine with the token.

        :raises JoinError: the token expired before a machine used it.
        """
        while True:
            left_s = self._left_s()
            if left_s <= 0:
                self.close()
                raise JoinError(
                    f"no machine used the token for {self.token.node_name} before it expired"
                )
            ready = net.wait_readable([self._sock, self._wake], min(left_s, 1.0))
            with self._lock:
                if self._winner is not None:
                    self._sock.close()
                    return self._winner
            if self._sock.fileno() in ready:
                self._accept()

    def _left_s(self) -> float:
        """Seconds until the token expires, by the earlier of two clocks."""
        return min(self.token.expires - self._now(), self._deadline - self._monotonic())

    def _accept(self) -> None:
        try:
            conn, peer = self._sock.accept()
            tls = self._context.wrap_socket(conn, server_side=True, do_handshake_on_connect=False)
        except OSError:
            return
        with self._lock:
            self._unproved[tls] = peer[0]
            crowd = self._one_too_many()
        if crowd is not None:
            _shut(crowd)
        threading.Thread(target=self._talk, args=(tls, peer[0]), daemon=True).start()

    def _one_too_many(self) -> ssl.SSLSocket | None:
        """Forget and return a connection which makes way for a new one; None below the limit.

        It is the oldest one of the address with the most connections, so that peers which only hold
        connections do not keep the machine with the token out.
        """
        if len(self._unproved) <= MAX_UNAUTHENTICATED:
            return None
        count = Counter(self._unproved.values())
        most = max(count.values())
        oldest = next(conn for conn, peer in self._unproved.items() if count[peer] == most)
        del self._unproved[oldest]
        return oldest

    def _talk(self, tls: ssl.SSLSocket, peer: str) -> None:
        """Authenticate a peer."""
        # The socket is closed in time, even if the peer sends single bytes slowly.
        alarm = threading.Timer(PROOF_S, partial(_shut, tls))
        alarm.daemon = True
        alarm.start()
        try:
            tls.settimeout(PROOF_S)
            tls.do_handshake()
            channel = Channel(tls, peer)
            protocol.welcome(
                channel, self.token, self.token.certificate, secrets.token_hex(protocol.NONCE_BYTES)
            )
            alarm.cancel()
            with self._lock:
                if self._unproved.pop(tls, None) is None:
                    raise JoinError(
                        "too many machines were connected, so its connection was closed"
                    )
            machine = JoiningMachine(tls, channel)
            if not self._spend(machine):
                machine.refuse("the token has expired or was used already")
        except (OSError, JoinError) as err:
            alarm.cancel()
            with self._lock:
                self._unproved.pop(tls, None)
            _shut(tls)
            tls.close()
            self._on_refused(f"{peer} tried to join and was refused: {err}")

    def _spend(self, machine: JoiningMachine) -> bool:
        with self._lock:
            if self._winner is not None or self._left_s() <= 0:
                return False
            self._winner = machine
        self._waker.send(b"!")
        return True


def master_address() -> str:
    """Return the primary address of this master, which the other nodes use.

    :raises JoinError: this machine is not the master.
    """
    store = ssconf.SimpleStore()
    name = store.master_node()
    own = machine.current().hostname()
    if name.lower() != own:
        raise JoinError(f"this node ({own}) is not the master. Make the token on {name}.")
    address = store.node_primary_ips().get(name)
    if address is None:
        raise JoinError(f"the primary address of {name} is not known here")
    return address


def _shut(conn: socket.socket) -> None:
    with contextlib.suppress(OSError):
        # The method of the base: another thread may be reading, and ssl would forget its state.
        socket.socket.shutdown(conn, socket.SHUT_RDWR)


# --- the new machine ---------------------------------------------------------------------------


def check_machine(token: Token, here: paths.Paths, now: float) -> None:
    """Check that this machine may use the token.

    :param now: the time of day in seconds since 1970.
    :raises JoinError: the token is for another machine or has expired, or this machine belongs to a
        cluster in which it is not the node of the token.
    """
    own = machine.current().hostname()
    if own != token.node_name.lower():
        raise JoinError(f"the token is for {token.node_name}, this machine is {own}")
    if now >= token.expires:
        raise JoinError(
            f"the token expired at {clock.format_time(token.expires)}. Make a new one with"
            f" 'gnt-node add --token {token.node_name}', and compare the clocks."
        )
    # The cluster of the token may be the one to which this machine belongs; the master will say it.
    if node_state.cluster_traces(here):
        _require_own_node(here, token.node_name, _known_facts(here))


def _known_facts(here: paths.Paths) -> dict[str, str]:
    try:
        return node_state.read_ssconf(here)
    except (OSError, UnicodeDecodeError):
        return {}


def _require_own_node(here: paths.Paths, name: str, facts: Mapping[str, str]) -> None:
    """Check that this machine, which has secrets, is a node of a cluster, also with former ones.

    :param facts: ssconf values of the cluster.
    :raises JoinError: it belongs to another cluster, or its master daemon runs.
    """
    if not node_state.is_own_node(here, name, facts):
        raise JoinError(
            f"this machine already belongs to a cluster, but not as node {name} of the cluster of"
            f" the token: {node_state.cluster_traces(here)[0]} exists. If that cluster needs it no"
            " more, run 'node-cleanup' on this machine, and this program again."
        )
    try:
        node_state.require_no_master(here)
    except errors.OpPrereqError as err:
        raise JoinError(str(err)) from err


@contextlib.contextmanager
def _connected(token: Token, address: str | None) -> Iterator[ssl.SSLSocket]:
    origin = (address, 0) if address is not None else None
    where = f"{token.address} port {token.port}"
    try:
        conn = socket.create_connection((token.address, token.port), _CONNECT_S, origin)
    except OSError as err:
        raise JoinError(
            f"cannot connect to {where}: {err.strerror or err}. The token was used already, or"
            " 'gnt-node add --token' does not run any more."
        ) from err
    with conn:
        try:
            tls = x509.pinning_client_context().wrap_socket(conn)
        except OSError as err:
            raise JoinError(f"no TLS connection to {where}: {err}") from err
        with tls:
            yield tls


def join(
    token: Token,
    here: paths.Paths,
    *,
    say: Callable[[str], None] = print,
    address: str | None = None,
) -> None:
    """Become the node that the token names.

    :param here: the paths of this machine.
    :param say: gets a message before each step. A node of this cluster may have former secrets,
        because it was off while they were renewed; they are replaced.
    :param address: address of this machine from which to connect; None lets the system choose.
    :raises JoinError: the master cannot be reached, did not prove that it is the master, or refused
        this machine; nothing is left.
    :raises Undecided: the connection broke while the master was adding this machine.
    :raises OpExecError: a daemon does not start; the credentials were removed again.
    """
    check_machine(token, here, clock.now())
    with UndoStack() as undo, _connected(token, address) as tls:
        channel = Channel(tls, "the master")
        shown = tls.getpeercert(binary_form=True) or b""
        protocol.greet(
            channel, token, x509.fingerprint_der(shown), secrets.token_hex(protocol.NONCE_BYTES)
        )
        say("the master is the one that the token names; waiting for the credentials")
        tls.settimeout(_MACHINE_S)
        message = channel.receive("credentials", "ssconf")
        try:
            digest = _equip(message, token.node_name, here, undo)
        except (OSError, errors.GenericError) as err:
            channel.send({"failed": str(err)})
            raise
        channel.send({"ready": digest})
        say("the daemons run; waiting until the master has added this machine")
        tls.settimeout(_VERDICT_S)
        try:
            channel.receive("taken in")
        except protocol.Refused as err:
            raise JoinError(f"the master did not add this machine: {err.text}") from err
        except JoinError as err:
            undo.commit()
            raise Undecided(token.node_name, str(err)) from err
        undo.commit()


class Undecided(errors.OpExecError):
    """It is not known whether the machine was added. It keeps the credentials, in case it was."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(
            f"{reason}, so it is not known whether this machine was added. Run 'gnt-node list"
            f" {name}' on the master; if the node is not listed, run 'daemon-util stop-all' on this"
            f" machine and remove the files server.pem, client.pem, hmac.key, rapi.pem,"
            f" cluster-domain-secret and ssconf_* from {paths.current().data_dir}."
        )


def _equip(message: dict[str, object], name: str, here: paths.Paths, undo: UndoStack) -> str:
    given, facts = message["credentials"], message["ssconf"]
    fields = node_state.Credentials._fields
    if (
        not isinstance(given, dict)
        or set(given) != set(fields)
        or not all(isinstance(text, str) for text in given.values())
    ):
        raise JoinError("the master has sent credentials which this release does not know")
    if not isinstance(facts, dict) or not all(
        isinstance(key, str) and isinstance(text, str) and "/" not in key
        for key, text in facts.items()
    ):
        raise JoinError("the master has sent damaged ssconf values")
    shared = node_state.Credentials(**given)
    if node_state.cluster_traces(here):
        _require_own_node(here, name, facts)
        node_state.stop_node_daemons(here)
    digest = node_state.equip(here, shared, name, facts, undo)
    for daemon in (node_state.NODED, node_state.CONFD):
        undo.add(daemon, partial(node_state.daemon_util, "stop", daemon))
        node_state.daemon_util("start", daemon)
    return digest
