"""Joining by a token: proofs, wrong and late tokens, a man in the middle, both ends over TLS."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ganeti import errors
from ganeti.bootstrap import join, node_state
from ganeti.bootstrap import join_protocol as protocol
from ganeti.bootstrap.join_protocol import Channel, JoinError, Token
from ganeti.config import ssconf
from ganeti.platform import hosts, paths
from ganeti.utils import clock, x509
from ganeti.utils.undo import UndoStack

NODE = "node2.example.com"
CERT, OTHER = b"c" * 32, b"o" * 32
# Valid for longer than any run of the tests takes.
TOKEN = Token(int(clock.now()) + 86400, "127.0.0.1", 4711, CERT, b"s" * 32, NODE)


# --- the token -----------------------------------------------------------------------------------


def test_a_token_survives_copying() -> None:
    word = TOKEN.encode()
    assert protocol.decode_token(word) == TOKEN
    assert protocol.decode_token(f"  {word[:40]}\n {word[40:]}\n") == TOKEN
    six = TOKEN._replace(address="2001:db8::1")
    assert protocol.decode_token(six.encode()) == six
    assert "ssss" not in repr(TOKEN) and NODE in repr(TOKEN)


@pytest.mark.parametrize(
    "word",
    [
        "",
        "hello",
        "gntjoin1-",
        "gntjoin1-!!!",
        "gntjoin1-aGVsbG8",
        TOKEN.encode()[:-1],
        TOKEN.encode() + "A",
        TOKEN.encode().replace("A", "B", 1),
        TOKEN._replace(address="nowhere").encode(),
        TOKEN._replace(node_name="").encode(),
    ],
)
def test_what_is_no_token(word: str) -> None:
    with pytest.raises(JoinError):
        protocol.decode_token(word)


# --- the proofs, over a pair of sockets ----------------------------------------------------------


def talk(
    machine: Callable[[Channel], Any],
    master: Callable[[Channel], Any],
) -> tuple[BaseException | None, BaseException | None]:
    """Let both ends speak; what each raised."""
    ends = socket.socketpair()
    raised: list[BaseException | None] = [None, None]

    def run(index: int, part: Callable[[Channel], Any]) -> None:
        with ends[index]:
            ends[index].settimeout(20)
            try:
                part(Channel(ends[index], f"end {1 - index}"))
            except JoinError as err:
                raised[index] = err

    other = threading.Thread(target=run, args=(1, master))
    other.start()
    run(0, machine)
    other.join()
    return raised[0], raised[1]


def test_both_prove_what_they_know() -> None:
    assert talk(
        lambda channel: protocol.greet(channel, TOKEN, CERT, "n1"),
        lambda channel: protocol.welcome(channel, TOKEN, CERT, "n2"),
    ) == (None, None)


def test_the_machine_finds_out_a_master_without_the_secret() -> None:
    impostor = TOKEN._replace(secret=b"x" * 32)
    machine, master = talk(
        lambda channel: protocol.greet(channel, TOKEN, CERT, "n1"),
        lambda channel: protocol.welcome(channel, impostor, CERT, "n2"),
    )
    assert "the other end does not know the secret" in str(machine)
    assert "ended the connection" in str(master), "it never saw the machine's proof"


def test_the_master_finds_out_a_machine_without_the_secret() -> None:
    def guess(channel: Channel) -> None:
        channel.send({"hello": 2, "name": NODE, "nonce": "n1"})
        channel.receive("proof")
        channel.send({"proof": "0" * 64})

    _, master = talk(guess, lambda channel: protocol.welcome(channel, TOKEN, CERT, "n2"))
    assert "the machine does not know the secret" in str(master)


def test_a_proof_sent_back_proves_nothing() -> None:
    def echo(channel: Channel) -> None:
        channel.send({"hello": 2, "name": NODE, "nonce": "n1"})
        channel.send({"proof": channel.receive("proof")["proof"]})

    _, master = talk(echo, lambda channel: protocol.welcome(channel, TOKEN, CERT, "n1"))
    assert "does not know the secret" in str(master)


def test_a_proof_of_another_connection_is_not_accepted() -> None:
    """Who has listened to a connection cannot show its proofs again."""
    session = protocol.Session(b"s" * 32, CERT, NODE, ("n1", "n2"))
    for nonces in (("n1", "other"), ("other", "n2"), ("n2", "n1")):
        another = session._replace(nonces=nonces)
        for who in (protocol.MACHINE, protocol.MASTER):
            assert another.proof(who) != session.proof(who)
            assert another.key(who) != session.key(who)


def test_another_certificate_is_noticed_before_anything_is_sent() -> None:
    machine, master = talk(
        lambda channel: protocol.greet(channel, TOKEN, OTHER, "n1"),
        lambda channel: protocol.welcome(channel, TOKEN, CERT, "n2"),
    )
    assert "another certificate" in str(machine)
    assert "ended the connection" in str(master)


def test_proofs_passed_on_between_two_certificates_do_not_fit() -> None:
    """Even a machine that would not compare the digest is safe."""
    careless = TOKEN._replace(certificate=OTHER)
    machine, _ = talk(
        lambda channel: protocol.greet(channel, careless, OTHER, "n1"),
        lambda channel: protocol.welcome(channel, TOKEN, CERT, "n2"),
    )
    assert "does not know the secret" in str(machine)


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (b"hello\n", "does not speak the join protocol"),
        (b"[1]\n", "does not speak"),
        (b'{"hello": 1}\n', "without name, nonce"),
        (b"x" * 9000 + b"\n", "too long"),
        (b'{"hello": 9, "name": "x", "nonce": "y"}\n', "version 9"),
        (b'{"hello": 2, "name": "node9", "nonce": "y"}\n', "another name, 'node9'"),
        (b'{"failed": "visit http://evil"}\n', "without hello"),
        (b"", "ended the connection"),
    ],
)
def test_strangers(line: bytes, text: str) -> None:
    def speak(channel: Channel) -> None:
        channel._stream.sendall(line)

    _, master = talk(speak, lambda channel: protocol.welcome(channel, TOKEN, CERT, "n2"))
    assert text in str(master)


def greeted(
    machine: Callable[[Channel], Any], master: Callable[[Channel], Any]
) -> tuple[BaseException | None, BaseException | None]:
    """Let both ends speak after the proofs."""

    def greet(channel: Channel) -> None:
        protocol.greet(channel, TOKEN, CERT, "n1")
        machine(channel)

    def welcome(channel: Channel) -> None:
        protocol.welcome(channel, TOKEN, CERT, "n2")
        master(channel)

    return talk(greet, welcome)


def raw(channel: Channel, line: bytes) -> None:
    channel._stream.sendall(line + b"\n")


def test_messages_after_the_proofs_are_authenticated() -> None:
    heard: list[Any] = []

    def master(channel: Channel) -> None:
        for number in range(3):
            channel.send({"number": number})
        heard.append(channel.receive("ready"))

    def machine(channel: Channel) -> None:
        heard.extend(channel.receive("number")["number"] for _ in range(3))
        channel.send({"ready": "yes"})

    assert greeted(machine, master) == (None, None)
    assert heard == [0, 1, 2, {"ready": "yes"}]


MAC = b"0" * 64
CHANGED = "was changed or replaced on its way"


@pytest.mark.parametrize(
    "line", [b'{"failed": "go away"}', MAC + b' {"ready": "x"}', MAC, b"", b"\xff" * 70 + b" {}"]
)
def test_a_message_without_the_key_is_refused_at_both_ends(line: bytes) -> None:
    _, master = greeted(
        lambda channel: raw(channel, line), lambda channel: channel.receive("ready")
    )
    assert CHANGED in str(master) and not isinstance(master, protocol.Refused)
    machine, _ = greeted(
        lambda channel: channel.receive("credentials"), lambda channel: raw(channel, line)
    )
    assert CHANGED in str(machine) and not isinstance(machine, protocol.Refused)


def test_a_message_cannot_be_repeated_left_out_or_sent_back() -> None:
    def twice(channel: Channel) -> None:
        assert channel._sending
        line = b'{"ready": "x"}'
        line = channel._sending.mac(line) + b" " + line
        raw(channel, line)
        raw(channel, line)

    def receive_two(channel: Channel) -> None:
        channel.receive("ready")
        channel.receive("ready")

    assert CHANGED in str(greeted(twice, receive_two)[1])

    def second_only(channel: Channel) -> None:
        assert channel._sending
        channel._sending.mac(b"{}")
        channel.send({"ready": "x"})

    assert CHANGED in str(greeted(second_only, receive_two)[1])

    def echo(channel: Channel) -> None:
        while b"\n" not in channel._rest:
            channel._rest += channel._stream.recv(4096)
        raw(channel, channel._rest.partition(b"\n")[0])

    def tell_and_ask(channel: Channel) -> None:
        channel.send({"ready": "x"})
        channel.receive("ready")

    assert CHANGED in str(greeted(echo, tell_and_ask)[1])


# --- both ends, over TLS -------------------------------------------------------------------------


class Lab:
    """A master's and a machine's root; daemons are only noted."""

    def __init__(self, top: Path) -> None:
        self.master = paths.Paths(str(top / "node1.example.com"))
        self.machine = paths.Paths(str(top / NODE))
        Path(self.machine.data_dir).mkdir(parents=True)
        self.shared = node_state.new_credentials()
        node_state.write_credentials(self.master, self.shared, "node1.example.com")
        ssconf.write_local({"cluster_name": "cluster.example.com\n"}, self.master)
        self.daemons: list[tuple[str, ...]] = []
        self.fail = ""
        self.strangers: list[str] = []
        self.refused: list[JoinError] = []

    def daemon_util(self, *words: str, **_: Any) -> None:
        self.daemons.append(words)
        if " ".join(words) == self.fail:
            raise errors.OpExecError(f"cannot {self.fail}")

    @contextlib.contextmanager
    def offer(self, **how: Any) -> Iterator[tuple[join.JoinOffer, list[Any]]]:
        """An offer whose wait() runs beside; what came of it is in the list."""
        offer = join.JoinOffer(
            hosts.Hostname(NODE, "127.0.0.2"),
            "127.0.0.1",
            here=self.master,
            on_refused=self.strangers.append,
            **how,
        )
        came: list[Any] = []

        def wait() -> None:
            try:
                came.append(offer.wait())
            except JoinError as err:
                came.append(err)

        waiting = threading.Thread(target=wait)
        with offer:
            waiting.start()
            yield offer, came
        waiting.join()

    def take_in(self, came: list[Any], verdict: str = "") -> threading.Thread:
        """What the command does with the machine that came."""

        def act() -> None:
            while not came:
                threading.Event().wait(0.01)
            try:
                came[0].equip(self.master)
                came[0].refuse(verdict) if verdict else came[0].accept()
            except JoinError as err:
                self.refused.append(err)
                came[0].refuse(str(err))

        thread = threading.Thread(target=act)
        thread.start()
        return thread

    def join(self, token: Token) -> None:
        join.join(token, self.machine, say=lambda text: None)

    @property
    def traces(self) -> list[str]:
        return node_state.cluster_traces(self.machine)


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    made = Lab(tmp_path)
    monkeypatch.setattr(node_state, "daemon_util", made.daemon_util)
    monkeypatch.setenv(paths.ENV_HOSTNAME, NODE)
    monkeypatch.setenv(paths.ENV_ROOT, made.machine.root)
    return made


def test_a_machine_joins(lab: Lab) -> None:
    with lab.offer() as (offer, came):
        acting = lab.take_in(came)
        lab.join(offer.token)
        acting.join()
    assert node_state.read_credentials(lab.machine) == lab.shared
    assert came[0].certificate == x509.digest_file(lab.machine.noded_client_cert_file)
    assert came[0].certificate != x509.digest_file(lab.master.noded_client_cert_file)
    assert ssconf.SimpleStore(lab.machine).cluster_name() == "cluster.example.com"
    assert lab.daemons == [("start", "ganeti-noded"), ("start", "ganeti-confd")]
    assert lab.strangers == []


def _former_node(lab: Lab) -> node_state.Credentials:
    """Let the machine be a node which has the secrets from before a renewal."""
    former = node_state.new_credentials()
    node_state.write_credentials(lab.machine, former, NODE)
    pem = lab.machine.noded_client_cert_file
    pin = x509.key_pin(Path(pem).read_text(encoding="ascii"), pem)
    facts = {"cluster_name": "cluster.example.com\n", "node_key_pins": f"{NODE} {pin}\n"}
    ssconf.write_local(facts, lab.machine)
    ssconf.write_local(facts, lab.master)
    return former


def test_a_node_with_former_secrets_joins_again(lab: Lab) -> None:
    """It was off while they were renewed. What proves its identity is its own key."""
    former = _former_node(lab)
    with lab.offer() as (offer, came):
        acting = lab.take_in(came)
        lab.join(offer.token)
        acting.join()
    assert node_state.read_credentials(lab.machine) == lab.shared != former
    assert came[0].certificate == x509.digest_file(lab.machine.noded_client_cert_file)
    assert ("stop", "ganeti-noded") in lab.daemons
    assert lab.daemons[-2:] == [("start", "ganeti-noded"), ("start", "ganeti-confd")]


def test_a_node_with_former_secrets_keeps_them_when_it_is_refused(lab: Lab) -> None:
    former = _former_node(lab)
    with lab.offer() as (offer, came):
        acting = lab.take_in(came, "no such group")
        with pytest.raises(JoinError, match="did not add this machine: no such group"):
            lab.join(offer.token)
        acting.join()
    assert node_state.read_credentials(lab.machine) == former


def test_a_node_of_another_cluster_with_this_name(lab: Lab) -> None:
    former = _former_node(lab)
    ssconf.write_local({"node_key_pins": f"{NODE} {'0' * 64}\n"}, lab.master)
    with lab.offer() as (offer, came):
        acting = lab.take_in(came)
        with pytest.raises(JoinError, match="not as node node2.example.com of the cluster of the"):
            lab.join(offer.token)
        acting.join()
    assert node_state.read_credentials(lab.machine) == former
    assert len(lab.refused) == 1


def test_a_machine_that_is_not_taken_in_forgets_everything(lab: Lab) -> None:
    with lab.offer() as (offer, came):
        acting = lab.take_in(came, "no such group")
        with pytest.raises(JoinError, match="did not add this machine: no such group"):
            lab.join(offer.token)
        acting.join()
    assert lab.traces == []
    assert lab.daemons[-2:] == [("stop", "ganeti-confd"), ("stop", "ganeti-noded")]


def test_a_daemon_that_does_not_start(lab: Lab) -> None:
    lab.fail = "start ganeti-noded"
    with lab.offer() as (offer, came):
        acting = lab.take_in(came)
        with pytest.raises(errors.OpExecError, match="cannot start ganeti-noded"):
            lab.join(offer.token)
        acting.join()
    assert lab.traces == []


def test_a_connection_that_breaks_at_the_end_leaves_the_credentials(lab: Lab) -> None:
    with lab.offer() as (offer, came):

        def act() -> None:
            while not came:
                threading.Event().wait(0.01)
            came[0].equip(lab.master)
            came[0].close()

        acting = threading.Thread(target=act)
        acting.start()
        with pytest.raises(join.Undecided, match="not known whether"):
            lab.join(offer.token)
        acting.join()
    assert lab.traces


def test_a_token_is_good_once(lab: Lab) -> None:
    with lab.offer() as (offer, came):
        acting = lab.take_in(came, "only a rehearsal")
        with pytest.raises(JoinError, match="only a rehearsal"):
            lab.join(offer.token)
        acting.join()
        with pytest.raises(JoinError, match="cannot connect to .*used already"):
            lab.join(offer.token)


def test_two_bearers_at_once(lab: Lab) -> None:
    """Both know the secret and are connected: one wins, the other is told."""
    with lab.offer() as (offer, came):

        def connect() -> tuple[Any, Channel]:
            conn = socket.create_connection(("127.0.0.1", offer.token.port), 20)
            tls = x509.pinning_client_context().wrap_socket(conn)
            return tls, Channel(tls, "master")

        pairs = [connect(), connect()]
        for _, channel in pairs:
            protocol.greet(channel, offer.token, offer.token.certificate, "n")
        acting = lab.take_in(came)
        results = []
        for tls, channel in pairs:
            try:
                results.append(sorted(channel.receive("credentials")))
            except JoinError as err:
                results.append(str(err))
            tls.close()
        acting.join()
    assert sorted(map(str, results)) == [
        "['credentials', 'ssconf']",
        "master: the token has expired or was used already",
    ]


def test_an_expired_token(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1_000_000.0]
    with lab.offer(now=lambda: now[0]) as (offer, came):
        # The machine's clock is behind; the master's counts.
        monkeypatch.setattr(clock, "now", lambda: 0.0)
        token = offer.token
        now[0] += join.LIFETIME_S
        with pytest.raises(JoinError, match="expired|cannot connect|broke|ended|TLS"):
            lab.join(token)
        monkeypatch.setattr(clock, "now", lambda: now[0])
        with pytest.raises(JoinError, match="the token expired at"):
            lab.join(token)
    assert isinstance(came[0], JoinError) and "before it expired" in str(came[0])
    assert lab.traces == []


@pytest.mark.parametrize("put_s", [-86400.0, 86400.0])
def test_the_masters_clock_is_put(lab: Lab, put_s: float) -> None:
    """Put back, it does not make the token live longer; put forward, it ends it."""
    now, tick = [1_000_000.0], [50.0]
    with lab.offer(now=lambda: now[0], monotonic=lambda: tick[0]) as (offer, came):
        token = offer.token
        now[0] += put_s
        tick[0] += join.LIFETIME_S if put_s < 0 else 1
        with pytest.raises(JoinError):
            lab.join(token)
    assert isinstance(came[0], JoinError) and "before it expired" in str(came[0])
    assert lab.traces == []


def test_a_taken_back_token(lab: Lab) -> None:
    with lab.offer() as (offer, came):
        token = offer.token
    with pytest.raises(JoinError, match="cannot connect"):
        lab.join(token)
    assert isinstance(came[0], JoinError)


def test_a_wrong_token_does_not_spend_the_right_one(lab: Lab) -> None:
    with lab.offer() as (offer, came):
        with pytest.raises(JoinError, match="does not know the secret"):
            lab.join(offer.token._replace(secret=b"x" * 32))
        assert lab.traces == [] and not came
        acting = lab.take_in(came)
        lab.join(offer.token)
        acting.join()
    assert len(lab.strangers) == 1 and "127.0.0.1 tried to join" in lab.strangers[0]


def test_a_man_in_the_middle_with_another_certificate(lab: Lab, tmp_path: Path) -> None:
    """He passes everything on, decrypted; the machine does not say a word to him."""
    theirs = tmp_path / "mitm.pem"
    theirs.write_text(x509.create_self_signed())
    heard: list[bytes] = []
    listener = socket.create_server(("127.0.0.1", 0))

    def listen() -> None:
        conn, _ = listener.accept()
        with contextlib.suppress(OSError):
            tls = x509.plain_server_context(str(theirs)).wrap_socket(conn, server_side=True)
            tls.settimeout(20)
            heard.append(tls.recv(4096))

    attack = threading.Thread(target=listen)
    with lab.offer() as (offer, came):
        attack.start()
        diverted = offer.token._replace(port=listener.getsockname()[1])
        with pytest.raises(JoinError, match="another certificate than the one in the token"):
            lab.join(diverted)
        attack.join()
        assert not came
    listener.close()
    assert heard in ([], [b""])
    assert lab.traces == []


class Between:
    """A node of the cluster between both ends: it has the certificate and passes lines on.

    :param change: gets the sender and each line; returns the line which is passed on.
    """

    def __init__(self, lab: Lab, offer: join.JoinOffer, change: Callable[[str, bytes], bytes]):
        self._context = x509.plain_server_context(lab.master.noded_cert_file)
        self._change = change
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._port = offer.token.port
        self.token = offer.token._replace(port=self._listener.getsockname()[1])
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self) -> Between:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join()
        self._listener.close()

    def _serve(self) -> None:
        conn, _ = self._listener.accept()
        machine = self._context.wrap_socket(conn, server_side=True)
        out = socket.create_connection(("127.0.0.1", self._port), 20)
        master = x509.pinning_client_context().wrap_socket(out)
        machine.settimeout(60)
        master.settimeout(60)
        with machine, master, machine.makefile("rb") as hears, master.makefile("rb") as answers:
            # Both ends speak in turn; the machine begins.
            turns = [("machine", hears, master), ("master", answers, machine)]
            with contextlib.suppress(OSError):
                # The machine answers the proof of the master, and is answered with credentials.
                for turn in range(6):
                    sender, source, target = turns[turn % 2]
                    line = source.readline()
                    if not line:
                        return
                    target.sendall(self._change(sender, line))


def test_a_node_in_the_middle_can_only_pass_messages_on(lab: Lab) -> None:
    with lab.offer() as (offer, came), Between(lab, offer, lambda sender, line: line) as between:
        acting = lab.take_in(came)
        lab.join(between.token)
        acting.join()
    assert node_state.read_credentials(lab.machine) == lab.shared


@pytest.mark.parametrize(
    ("sender", "old", "new"),
    [
        # The list of those who may call the new node.
        ("master", b"cluster.example.com", b"cluster.example.org"),
        ("master", b'"credentials"', b'"failed": "no", "credentials"'),
        ("machine", b'"ready"', b'"ready":"AA","ready"'),
        ("machine", b'{"ready"', b'{"failed":"no","ready"'),
    ],
)
def test_a_node_in_the_middle_cannot_change_what_follows_the_proofs(
    lab: Lab, sender: str, old: bytes, new: bytes
) -> None:
    changed = []

    def change(who: str, line: bytes) -> bytes:
        if who == sender and old in line:
            changed.append(line)
            return line.replace(old, new)
        return line

    with lab.offer() as (offer, came), Between(lab, offer, change) as between:
        acting = lab.take_in(came)
        with pytest.raises(JoinError) as caught:
            lab.join(between.token)
        acting.join()
    assert changed
    assert lab.traces == []
    if sender == "master":
        assert CHANGED in str(caught.value)
    else:
        assert CHANGED in str(lab.refused[0]) and came[0].certificate == ""


@pytest.mark.parametrize("digest", ["", "AA", "aa:" * 19 + "aa", 5, None, ["AA"]])
def test_what_is_no_digest(lab: Lab, monkeypatch: pytest.MonkeyPatch, digest: Any) -> None:
    monkeypatch.setattr(join, "_equip", lambda *args: digest)
    with lab.offer() as (offer, came):
        acting = lab.take_in(came)
        with pytest.raises(JoinError, match="did not add this machine: .*no digest"):
            lab.join(offer.token)
        acting.join()
    assert came[0].certificate == ""


def test_whoever_says_nothing_is_shown_the_door(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(join, "PROOF_S", 0.1)
    with lab.offer() as (offer, came):
        with socket.create_connection(("127.0.0.1", offer.token.port), 20) as conn:
            conn.settimeout(20)
            with contextlib.suppress(ConnectionResetError):
                assert conn.recv(1) == b""
        acting = lab.take_in(came)
        monkeypatch.setattr(join, "PROOF_S", 15.0)
        lab.join(offer.token)
        acting.join()
    assert len(lab.strangers) == 1


def test_peers_which_only_hold_connections_do_not_keep_the_machine_out(lab: Lab) -> None:
    with lab.offer() as (offer, came), contextlib.ExitStack() as stack:
        for _ in range(3 * join.MAX_UNAUTHENTICATED):
            stack.enter_context(socket.create_connection(("127.0.0.1", offer.token.port), 20))
        acting = lab.take_in(came)
        lab.join(offer.token)
        acting.join()
    assert node_state.read_credentials(lab.machine) == lab.shared


def test_the_address_with_the_most_connections_makes_way(lab: Lab) -> None:
    with lab.offer() as (offer, _came):
        peers = [socket.socket() for _ in range(join.MAX_UNAUTHENTICATED + 1)]
        for number, peer in enumerate(peers):
            offer._unproved[peer] = "192.0.2.1" if number in (0, 5) else f"198.51.100.{number}"  # type: ignore[index]
        assert offer._one_too_many() is peers[0]  # type: ignore[comparison-overlap]
        assert offer._one_too_many() is None
        offer._unproved.clear()


def test_a_peer_which_sends_single_bytes_is_disconnected_in_time(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(join, "PROOF_S", 0.2)
    with lab.offer() as (offer, _came):
        with socket.create_connection(("127.0.0.1", offer.token.port), 20) as conn:
            conn.settimeout(20)
            with contextlib.suppress(ConnectionResetError, BrokenPipeError):
                # The begin of a TLS record of 16 KiB.
                for byte in b"\x16\x03\x01\x3f\xff" + b"x" * 10_000:
                    conn.send(bytes([byte]))
                    threading.Event().wait(0.01)
                pytest.fail("it was not disconnected")
        offer.close()
        _came_in_time = lab.strangers
    assert len(_came_in_time) == 1


def test_which_machine_may_use_it(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(paths.ENV_HOSTNAME, "node3.example.com")
    with pytest.raises(JoinError, match="the token is for node2.example.com, this machine is"):
        lab.join(TOKEN)
    monkeypatch.setenv(paths.ENV_HOSTNAME, NODE)
    Path(lab.machine.hmac_key).write_text("x")
    with pytest.raises(JoinError, match="already belongs to a cluster"):
        lab.join(TOKEN)


@pytest.mark.parametrize(
    "message",
    [
        {"credentials": {}, "ssconf": {}},
        {"credentials": "x", "ssconf": {}},
        {"credentials": dict.fromkeys(node_state.Credentials._fields, 1), "ssconf": {}},
        {
            "credentials": dict.fromkeys(node_state.Credentials._fields, "x"),
            "ssconf": {"../x": "y"},
        },
        {"credentials": dict.fromkeys(node_state.Credentials._fields, "x"), "ssconf": []},
    ],
)
def test_damaged_credentials(lab: Lab, message: dict[str, Any]) -> None:
    with pytest.raises(JoinError), UndoStack() as undo:
        join._equip(message, NODE, lab.machine, undo)
    assert lab.traces == []


def test_tokens_are_made_on_the_master(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    ssconf.write_local(
        {"master_node": "node1.example.com\n", "node_primary_ips": "node1.example.com 127.0.0.1\n"},
        lab.machine,
    )
    with pytest.raises(JoinError, match="Make the token on node1"):
        join.master_address()
    monkeypatch.setenv(paths.ENV_HOSTNAME, "node1.example.com")
    assert join.master_address() == "127.0.0.1"


@pytest.mark.parametrize("ends", [True, False])
def test_a_peer_which_sends_a_line_without_end(ends: bool) -> None:
    class Endless:
        asked = 0

        def sendall(self, data: bytes, /) -> None:
            pass

        def recv(self, size: int, /) -> bytes:
            self.asked += 1
            if self.asked > 100:
                return b""
            return b"x" * size + (b"\n" if ends else b"")

    stream = Endless()
    with pytest.raises(JoinError, match="sends a message that is too long"):
        Channel(stream, "a stranger").receive("hello")
    assert stream.asked == 1
