"""The forking server against clients that behave, and clients that do not."""

import contextlib
import os
import signal
import socket
import ssl
import threading

import pytest

from fakes.tls_lab import ADDRESS, Lab, read_all
from ganeti.http import client, server
from ganeti.utils.net import wait_readable


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    lab = Lab(str(tmp_path_factory.mktemp("lab")))
    yield lab
    lab.close()


@pytest.fixture
def own_lab(tmp_path):
    labs = []

    def make(**limits):
        labs.append(Lab(str(tmp_path), server.Limits(**limits)))
        return labs[-1]

    yield make
    for each in labs:
        each.close()


def call(lab, procedure, body=b"", pem=None, timeout_s=30.0):
    asker = client.Client(lab.server_pem, pem or lab.client_pem)
    request = client.OutgoingRequest(ADDRESS, lab.port, procedure, body, timeout_s)
    return asker.perform([request])[0]


def alive(lab):
    assert call(lab, "echo", b"hello") == client.Reply(200, b"hello", "")


def raw_request(lab, data):
    with lab.tls() as tls:
        tls.sendall(data)
        return read_all(tls)


def test_echo(lab):
    alive(lab)


def test_large_body_both_ways(lab):
    body = b"x" * (9 * 1024 * 1024)
    assert call(lab, "echo", body) == client.Reply(200, body, "")


def test_post_is_as_good_as_put(lab):
    data = b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi"
    assert raw_request(lab, data).startswith(b"HTTP/1.1 200 OK\r\n")


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET /echo HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"PUT echo HTTP/1.1\r\n\r\n", 400),
        (b"nonsense\r\n\r\n", 400),
        (b"\x00\xff\xfe\r\n\r\n", 400),
        (b"PUT /echo HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (b"PUT /echo HTTP/1.1\r\nX: a\rContent-Length: 1\r\n\r\n", 400),
        (b"PUT /echo HTTP/1.1\r\nX: a\nContent-Length: 1\r\n\r\n", 400),
        (b"PUT /echo\r HTTP/1.1\r\n\r\n", 400),
        (b"PUT /echo HTTP/2.0\r\n\r\n", 505),
        (b"PUT /echo HTTP/1.1\r\nContent-Length: 0\r\nContent-Length: 1\r\n\r\n", 400),
        (b"PUT /echo HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400),
        (b"PUT /echo HTTP/1.1\r\nContent-Length: 1\r\n\r\nabc", 400),
        (b"PUT /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 411),
        (b"PUT /echo HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n", 413),
        (b"PUT /echo HTTP/1.1\r\nX: " + b"y" * 20000 + b"\r\n\r\n", 431),
        (b"PUT /unknown HTTP/1.1\r\n\r\n", 404),
    ],
)
def test_bad_requests(lab, data, status):
    assert raw_request(lab, data).startswith(b"HTTP/1.1 %d " % status)
    alive(lab)


def test_oversized_body_gets_its_answer(lab):
    reply = call(lab, "echo", b"x" * (11 * 1024 * 1024))
    assert isinstance(reply, client.Reply)
    assert reply.status == 413
    assert b"larger than 10485760 bytes" in reply.body


def test_garbage_instead_of_tls(lab):
    with lab.raw() as sock:
        sock.sendall(b"hello, is this the node daemon?\r\n\r\n")
        read_all(sock)
    lab.wait_for_log("no TLS connection with 127.0.0.1")
    alive(lab)


def test_no_certificate(lab):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(lab.server_pem)
    with pytest.raises(OSError), context.wrap_socket(lab.raw()) as tls:
        tls.sendall(b"PUT /echo HTTP/1.1\r\n\r\n")
        read_all(tls)
        raise AssertionError("the server took a client without a certificate")
    alive(lab)


def test_foreign_certificate_is_refused_with_a_reason(lab):
    failure = call(lab, "echo", pem=lab.foreign_pem)
    assert isinstance(failure, client.Failure)
    assert failure.kind == client.REFUSED
    assert "certificate" in failure.message


def test_certificate_of_no_candidate_is_refused(lab):
    reply = call(lab, "echo", pem=lab.other_pem)
    assert isinstance(reply, client.Reply)
    assert reply.status == 403
    assert b"does not belong to a master candidate" in reply.body


def test_demotion_counts_at_once_even_in_a_resumed_session(lab):
    asker = client.Client(lab.server_pem, lab.other_pem)
    request = client.OutgoingRequest(ADDRESS, lab.port, "echo", b"x", 30.0)
    lab.allow(lab.client_pem, lab.other_pem)
    try:
        assert asker.perform([request])[0].status == 200
        assert asker.perform([request])[0].status == 200
    finally:
        lab.allow(lab.client_pem)
    assert asker.perform([request])[0].status == 403


def test_handler_that_raises(lab):
    reply = call(lab, "raise")
    assert reply.status == 500
    assert b"broken" not in reply.body
    lab.wait_for_log("ValueError: broken")
    alive(lab)


def test_killed_child_hurts_one_call(lab):
    outcome = []
    thread = threading.Thread(target=lambda: outcome.append(call(lab, "sleep", b"1")))
    thread.start()
    failure = call(lab, "die")
    assert isinstance(failure, client.Failure)
    assert failure.kind == client.FAILED
    assert "may have been carried out or not" in failure.message
    lab.wait_for_log("was ended by signal 9")
    thread.join()
    assert outcome == [client.Reply(200, b"slept", "")]


def test_each_request_has_its_own_process(lab):
    pids = {call(lab, "pid").body for _ in range(5)}
    assert len(pids) == 5
    assert str(lab.pid).encode() not in pids


def test_unresponsive_and_slow_clients_do_not_block_others(own_lab):
    lab = own_lab(request_s=6.0)
    with (
        lab.raw() as unresponsive,
        lab.raw() as slow,
        lab.tls() as mute,
        lab.tls() as incomplete,
        lab.tls() as later,
    ):
        unresponsive.sendall(b"\x16")
        incomplete.sendall(b"PUT /echo HTTP/1.1\r\nContent-Length: 10\r\n\r\nabc")
        # A whole request, and half of another one on the same connection.
        later.sendall(b"PUT /kept HTTP/1.1\r\nContent-Length: 0\r\n\r\n")
        assert later.recv(65536).startswith(b"HTTP/1.1 200")
        later.sendall(b"PUT /kept HTTP/1.1\r\nContent-Le")
        # The beginning of a TLS record, a byte now and then.
        slow.sendall(b"\x16\x03\x01\x02\x00")
        alive(lab)
        slow.sendall(b"\x01")
        # The server hangs up on all of them.
        for sock in (unresponsive, slow, mute, incomplete):
            try:
                assert read_all(sock) == b""
            except ConnectionResetError:
                pass
            except ssl.SSLEOFError:
                pass
        with contextlib.suppress(ConnectionResetError, ssl.SSLEOFError):
            read_all(later)
        lab.wait_for_log("sent no complete request within 6 s")
    alive(lab)


def test_unauthenticated_peers_cannot_take_all_places(own_lab):
    lab = own_lab(children=4, request_s=600.0)
    unknown = [lab.raw() for _ in range(12)]
    for sock in unknown:
        sock.sendall(b"\x16")  # A handshake begins so; nothing follows.
    try:
        alive(lab)
        lab.wait_for_log("too many connections: dropping the one of 127.0.0.1")
    finally:
        for sock in unknown:
            sock.close()


def test_idle_peers_take_no_place_at_all(own_lab):
    """The kernel keeps them apart, also many more than the server may have children."""
    lab = own_lab(children=4, request_s=600.0)
    silent = [lab.raw() for _ in range(600)]
    try:
        alive(lab)
        assert "dropping" not in lab.log_text()
    finally:
        for sock in silent:
            sock.close()


def test_calls_beyond_the_limit_wait_for_a_place(own_lab):
    lab = own_lab(children=2)
    asker = client.Client(lab.server_pem, lab.client_pem, connect_timeout_s=30.0)
    request = client.OutgoingRequest(ADDRESS, lab.port, "sleep", b"0.3", 60.0)
    assert asker.perform([request] * 6) == [client.Reply(200, b"slept", "")] * 6


def test_quit_ends_the_server_after_the_answer(own_lab):
    lab = own_lab()
    assert call(lab, "quit") == client.Reply(200, b"bye", "")
    assert lab.wait() == 0
    failure = call(lab, "echo")
    assert failure.kind == client.UNREACHABLE


def test_child_goes_on_when_the_server_stops(own_lab):
    lab = own_lab()
    outcome = []
    thread = threading.Thread(target=lambda: outcome.append(call(lab, "sleep", b"2")))
    thread.start()
    lab.wait_for_log("sleeping")
    assert call(lab, "quit").status == 200
    assert lab.wait() == 0
    # The port is free for a successor while the old child works.
    server.listen(ADDRESS, lab.port).close()
    thread.join()
    assert outcome == [client.Reply(200, b"slept", "")]


def test_listen_on_foreign_address():
    with pytest.raises(OSError):
        server.listen("192.0.2.1", 0)


def test_connection_reset_before_anything(lab):
    for _ in range(3):
        sock = lab.raw()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        sock.close()
    alive(lab)


def kept(lab, procedure="kept"):
    return client.OutgoingRequest(ADDRESS, lab.port, procedure, b"", 30.0, keep=True)


def test_a_kept_connection_is_served_by_one_process(lab):
    asker = client.Client(lab.server_pem, lab.client_pem)
    first = asker.perform([kept(lab)])[0].body
    assert [asker.perform([kept(lab)])[0].body for _ in range(20)] == [first] * 20
    # Whatever is not to be kept has a process of its own, which does not disturb the other one.
    assert asker.perform([kept(lab, "pid")])[0].body == first
    assert asker.perform([kept(lab)])[0].body != first
    lab.wait_for_log(f"{first.decode()} is at rest")


def test_a_kept_connection_at_rest(lab):
    asker = client.Client(lab.server_pem, lab.client_pem)
    first = asker.perform([kept(lab)])[0].body
    lab.wait_for_log(f"{first.decode()} is at rest")
    assert asker.perform([kept(lab)])[0].body == first


@pytest.mark.parametrize("count", [1, 2])
def test_a_broken_kept_connection_is_made_anew(lab, count):
    """Alone and in a fan-out; it may break while the next request is sent."""
    asker = client.Client(lab.server_pem, lab.client_pem)
    for _ in range(20):
        pids = {int(reply.body) for reply in asker.perform([kept(lab)] * count)}
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        outcomes = asker.perform([kept(lab)] * count)
        assert [outcome.status for outcome in outcomes] == [200] * count
        assert pids.isdisjoint(int(reply.body) for reply in outcomes)


class Cable:
    """Passes connections on to a server, until it is cut when the next bytes come."""

    def __init__(self, port: int) -> None:
        self._listener = socket.create_server((ADDRESS, 0))
        self.port = self._listener.getsockname()[1]
        self._server = port
        self._cut = False
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        self._cut = True
        # To close it would leave it open for the thread which waits for the next connection.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client_side = self._listener.accept()[0]
                server_side = socket.create_connection((ADDRESS, self._server))
                for ends in ((client_side, server_side), (server_side, client_side)):
                    threading.Thread(target=self._pass_on, args=ends, daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while (data := source.recv(65536)) and not self._cut:
                target.sendall(data)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("count", [1, 2])
def test_a_request_which_cannot_be_sent_again_may_have_arrived(lab, count):
    cable = Cable(lab.port)
    asker = client.Client(lab.server_pem, lab.client_pem)
    request = kept(lab)._replace(port=cable.port)
    assert [reply.status for reply in asker.perform([request] * count)] == [200] * count
    cable.cut()
    for outcome in asker.perform([request] * count):
        assert (outcome.kind, outcome.sent) == (client.UNREACHABLE, True)


def test_a_request_with_a_connection_of_its_own_was_not_sent(lab):
    """Although the multi which makes it has an open connection to the same node."""
    cable = Cable(lab.port)
    asker = client.Client(lab.server_pem, lab.client_pem)
    request = kept(lab)._replace(port=cable.port)
    both = [request, kept(lab)]
    assert [reply.status for reply in asker.perform(both)] == [200, 200]
    cable.cut()
    outcome = asker.perform([request._replace(keep=False), kept(lab)])[0]
    assert (outcome.kind, outcome.sent) == (client.UNREACHABLE, False)


def test_a_request_to_a_server_which_has_ended_was_not_sent(own_lab):
    lab = own_lab()
    asker = client.Client(lab.server_pem, lab.client_pem)
    child = os.pidfd_open(int(asker.perform([kept(lab)])[0].body))
    call(lab, "quit")
    assert lab.wait() == 0
    wait_readable([child])
    os.close(child)
    outcome = asker.perform([kept(lab)])[0]
    assert (outcome.kind, outcome.sent) == (client.UNREACHABLE, False)


def test_demotion_counts_at_once_on_a_kept_connection(lab):
    asker = client.Client(lab.server_pem, lab.other_pem)
    lab.allow(lab.client_pem, lab.other_pem)
    try:
        assert asker.perform([kept(lab)])[0].status == 200
    finally:
        lab.allow(lab.client_pem)
    assert asker.perform([kept(lab)])[0].status == 403


def test_idle_kept_connections_make_way_for_those_who_wait(own_lab):
    """Otherwise the connections of each class of calls would take all places of a small limit."""
    lab = own_lab(children=2)
    askers = [client.Client(lab.server_pem, lab.client_pem) for _ in range(2)]
    pids = {asker.perform([kept(lab)])[0].body for asker in askers}
    assert len(pids) == 2
    alive(lab)
    assert all(asker.perform([kept(lab)])[0].status == 200 for asker in askers)


def test_an_idle_kept_connection_ends_with_the_server(own_lab):
    lab = own_lab()
    asker = client.Client(lab.server_pem, lab.client_pem)
    pidfd = os.pidfd_open(int(asker.perform([kept(lab)])[0].body))
    try:
        call(lab, "quit")
        assert lab.wait() == 0
        assert wait_readable([pidfd], 30), "the child stays"
    finally:
        os.close(pidfd)
    assert asker.perform([kept(lab)])[0].kind == client.UNREACHABLE


def test_fan_outs_keep_connections_of_their_own(lab):
    asker = client.Client(lab.server_pem, lab.client_pem)
    alone = asker.perform([kept(lab)])[0].body
    # Two requests to one address are a fan-out, too, and take two connections.
    both = {reply.body for reply in asker.perform([kept(lab)] * 2)}
    assert len(both) == 2
    assert alone not in both
    for _ in range(5):
        assert asker.perform([kept(lab)])[0].body == alone
        assert {reply.body for reply in asker.perform([kept(lab)] * 2)} <= both


def test_connection_classes_share_no_process(lab):
    asker = client.Client(lab.server_pem, lab.client_pem)
    first = asker.perform([kept(lab)])[0].body
    other = asker.perform([kept(lab)._replace(connection_class="queue")])[0].body
    assert other != first
    assert asker.perform([kept(lab)])[0].body == first
    assert asker.perform([kept(lab)._replace(connection_class="queue")])[0].body == other


def test_a_chore_is_done_by_a_child(own_lab):
    lab = own_lab()
    due = os.path.join(lab.directory, "due")
    with open(f"{due}.new", "w") as stream:
        stream.write("no space left")
    os.rename(f"{due}.new", due)
    lab.wait_for_log("the task 'the chore' failed")
    # A failed chore ends neither the server nor the next one.
    with open(due, "w"):
        pass
    lab.wait_for_log("is done")
    assert f"chore of {lab.pid} is done" not in lab.log_text()
    alive(lab)
