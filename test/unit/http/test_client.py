"""The client against servers that answer, refuse, hang, or are not there."""

import contextlib
import gc
import os
import socket
import threading

import pycurl
import pytest

from fakes import endless_server
from fakes.endless_server import EndlessServer
from fakes.tls_lab import ADDRESS, Lab, clock_of_maker
from ganeti import http
from ganeti.http import client, received
from ganeti.utils import x509


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    lab = Lab(str(tmp_path_factory.mktemp("lab")))
    yield lab
    lab.close()


@pytest.fixture
def asker(lab):
    return client.Client(lab.server_pem, lab.client_pem, connect_timeout_s=10.0)


@pytest.fixture
def deaf():
    """A port where connections stand but nobody ever speaks."""
    with socket.socket() as sock:
        sock.bind((ADDRESS, 0))
        sock.listen(16)
        yield sock.getsockname()[1]


@pytest.fixture
def absent():
    """A port whose system drops what arrives, as if the machine were off."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind((ADDRESS, 0))
        listener.listen(0)
        while True:
            waiting = stack.enter_context(socket.socket())
            waiting.settimeout(0.3)
            try:
                waiting.connect(listener.getsockname())
            except TimeoutError:
                # The queue is full.
                break
        yield listener.getsockname()[1]


@pytest.fixture
def closed():
    """A port where nobody listens."""
    with socket.socket() as sock:
        sock.bind((ADDRESS, 0))
        return sock.getsockname()[1]


def ask(lab, procedure="echo", body=b"hi", port=None, timeout_s=30.0):
    return client.OutgoingRequest(ADDRESS, port or lab.port, procedure, body, timeout_s)


def test_nothing_to_do(asker):
    assert asker.perform([]) == []


def test_outcomes_keep_their_order(lab, asker):
    requests = [ask(lab, body=b"%d" % number) for number in range(40)]
    assert [reply.body for reply in asker.perform(requests)] == [
        b"%d" % number for number in range(40)
    ]


def test_more_requests_than_places(lab):
    asker = client.Client(lab.server_pem, lab.client_pem, max_parallel=3)
    assert len(asker.perform([ask(lab)] * 20)) == 20


def test_the_kernel_watches_connections_that_are_kept(lab, asker, monkeypatch):
    """A node that lost its power says nothing; nobody waits for it as long as a call may take."""
    seen = []
    original = client.watch_peer

    def spy(descriptor, purpose):
        result = original(descriptor, purpose)
        with socket.socket(fileno=os.dup(descriptor)) as connection:
            seen.append(
                (
                    connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE),
                    connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT),
                )
            )
        return result

    monkeypatch.setattr(client, "watch_peer", spy)
    (reply,) = asker.perform([ask(lab)._replace(keep=True)])
    assert reply.body == b"hi"
    assert seen == [(1, client.SILENCE_S * 1000)]
    asker.perform([ask(lab)])
    assert len(seen) == 1


resumes = pytest.mark.skipif(not client.RESUMES, reason="libcurl on GnuTLS takes no tickets")


@resumes
@pytest.mark.parametrize("count", [1, 3, 12])
def test_sessions_are_resumed(lab, asker, count):
    first = asker.perform([ask(lab, "resumed")] * count)
    later = asker.perform([ask(lab, "resumed")] * count)
    assert first[0].body == b"False"
    assert [reply.body for reply in later] == [b"True"] * count


@resumes
def test_sessions_are_shared_between_threads(lab, asker):
    assert asker.perform([ask(lab, "resumed")])[0].body == b"False"
    found = []
    thread = threading.Thread(target=lambda: found.extend(asker.perform([ask(lab, "resumed")])))
    thread.start()
    thread.join()
    assert found[0].body == b"True"


@resumes
def test_pinned_sessions_are_resumed(lab, asker):
    """A pin costs no handshake; another pin does not use what was agreed with the former one."""
    right = client.pin_text([x509.key_pin(x509.read_pem(lab.server_pem))])
    wrong = client.pin_text([x509.key_pin(x509.read_pem(lab.other_pem))])

    def resumed(pin, count=1):
        requests = [ask(lab, "resumed")._replace(pin=pin)] * count
        return [getattr(one, "body", b"") for one in asker.perform(requests)]

    assert resumed(right, 2) == [b"False"] * 2
    assert resumed(right, 2) == [b"True"] * 2
    assert resumed(wrong, 2) == [b""] * 2
    assert resumed(f"{wrong};{right}") == [b"False"]
    assert resumed(f"{wrong};{right}") == [b"True"]


@pytest.mark.parametrize("pad", [0, 1])
@pytest.mark.parametrize("keep", [False, True])
def test_another_key_than_the_pinned_one(lab, asker, pad, keep):
    wrong = client.pin_text([x509.key_pin(x509.read_pem(lab.other_pem))])
    request = ask(lab, "kept" if keep else "echo")._replace(keep=keep)
    # There are sessions and connections of the same node without a pin.
    asker.perform([request] * (pad + 1))
    got = asker.perform([request._replace(pin=wrong)] + [request] * pad)
    assert got[0].kind == client.REFUSED and got[0].wrong_key and not got[0].sent
    assert f"the machine at {ADDRESS}" in got[0].message
    assert all(isinstance(one, client.Reply) for one in got[1:])
    # A certificate of another cluster is something else.
    foreign = client.Client(lab.foreign_pem, lab.client_pem).perform([request._replace(pin=wrong)])
    assert foreign[0].kind == client.REFUSED and not foreign[0].wrong_key


def test_reset_forgets_sessions(lab, asker):
    asker.perform([ask(lab)])
    asker.reset()
    assert asker.perform([ask(lab, "resumed")])[0].body == b"False"


@pytest.mark.parametrize("pad", [0, 1])
def test_every_kind_of_failure(lab, asker, deaf, closed, pad):
    """Alone (one transfer) and among others (a multi)."""
    quick = client.Client(lab.server_pem, lab.client_pem, connect_timeout_s=0.3)

    def one(asker, request):
        return asker.perform([request] + [ask(lab)] * pad)[0]

    gone = one(asker, ask(lab, port=closed))
    assert gone.kind == client.UNREACHABLE
    assert gone.machine_is_on, "a system which refuses a connection runs"
    assert not gone.sent
    unresponsive = one(quick, ask(lab, port=deaf))
    assert unresponsive.kind == client.UNREACHABLE
    assert unresponsive.machine_is_on, "the system has accepted the connection"
    slow = one(asker, ask(lab, "sleep", b"5", timeout_s=0.5))
    assert slow == client.Failure(
        client.UNREACHABLE, "no answer within 0.5 s", machine_is_on=True, sent=True
    )
    for procedure in ("die", "cut"):
        broken = one(asker, ask(lab, procedure))
        assert broken.kind == client.FAILED
        assert "may have been carried out or not" in broken.message
        assert broken.sent


@pytest.mark.parametrize("pad", [0, 1])
def test_a_machine_that_may_be_off(lab, absent, pad):
    quick = client.Client(lab.server_pem, lab.client_pem, connect_timeout_s=0.3)
    outcome = quick.perform([ask(lab, port=absent)] + [ask(lab)] * pad)[0]
    assert outcome.kind == client.UNREACHABLE
    assert not outcome.machine_is_on


def test_slow_ones_do_not_hold_up_others(lab, asker):
    done = []
    thread = threading.Thread(
        target=lambda: done.append(asker.perform([ask(lab, "sleep", b"3")] * 2))
    )
    thread.start()
    lab.wait_for_log("sleeping")
    for _ in range(5):
        assert asker.perform([ask(lab)] * 2)[0].status == 200
    assert not done
    thread.join()
    assert done


def test_server_of_another_cluster_is_refused(lab, tmp_path):
    other = Lab(str(tmp_path))
    try:
        asker = client.Client(lab.server_pem, lab.client_pem)
        failure = asker.perform([ask(lab, port=other.port)])[0]
        assert failure.kind == client.REFUSED
        assert "certificate" in failure.message
    finally:
        other.close()


@pytest.fixture(params=[-3000, 3000], ids=["expired", "not-yet"])
def out_of_date(request, tmp_path):
    """A node whose certificates, and those of its callers, are out of date."""
    with clock_of_maker(request.param):
        lab = Lab(str(tmp_path))
    yield lab
    lab.close()


@pytest.mark.parametrize("pad", [0, 1])
@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("pinned", [False, True])
def test_the_key_decides_and_not_the_date(out_of_date, pad, keep, pinned):
    lab = out_of_date
    asker = client.Client(lab.server_pem, lab.client_pem)
    right = client.pin_text([x509.key_pin(x509.read_pem(lab.server_pem))])
    request = ask(lab, "kept" if keep else "echo")._replace(keep=keep, pin=right if pinned else "")
    for _ in range(3):
        got = asker.perform([request] * (pad + 1))
        assert [getattr(one, "status", one) for one in got] == [200] * (pad + 1)
    (shown,) = asker.perform([request._replace(keep=False, procedure="echo", show=True)])
    assert x509.key_pin(shown.certificate) in right


@pytest.mark.parametrize("pad", [0, 1])
def test_an_expired_certificate_excuses_no_other_key(out_of_date, pad):
    lab = out_of_date
    wrong = client.pin_text([x509.key_pin(x509.read_pem(lab.other_pem))])
    asker = client.Client(lab.server_pem, lab.client_pem)
    for outcome in asker.perform([ask(lab)._replace(pin=wrong)] * (pad + 1)):
        assert outcome.kind == client.REFUSED and not outcome.sent
    # Without a pin, the signature of the cluster is needed.
    foreign = client.Client(lab.foreign_pem, lab.client_pem)
    for outcome in foreign.perform([ask(lab)] * (pad + 1)):
        assert outcome.kind == client.REFUSED and not outcome.wrong_key
    # A caller which is no candidate stays one.
    stranger = client.Client(lab.server_pem, lab.other_pem)
    assert stranger.perform([ask(lab)])[0].status == 403


def test_own_certificate_missing(lab, tmp_path):
    asker = client.Client(lab.server_pem, str(tmp_path / "none.pem"))
    failure = asker.perform([ask(lab)])[0]
    assert failure.kind == client.REFUSED


def test_error_header(lab, asker):
    reply = asker.perform([ask(lab, "error")])[0]
    assert reply == client.Reply(200, b'[false, "x"]', '["GenericError",["x"]]')


@pytest.mark.parametrize("answer", endless_server.ANSWERS)
@pytest.mark.parametrize("keep", [True, False])
def test_an_answer_without_end_is_not_received(lab, asker, monkeypatch, answer, keep):
    monkeypatch.setattr(http, "MAX_ANSWER_BYTES", 1 << 20)
    with EndlessServer(lab.server_pem, answer) as server:
        request = ask(lab, port=server.port)._replace(address=endless_server.ADDRESS, keep=keep)
        for _ in range(2):
            failure = asker.perform([request])[0]
            assert failure.kind == client.FAILED and failure.sent
            assert "more than" in failure.message and "not received to its end" in failure.message
            assert server.sent_bytes < 16 << 20
    # The client serves others as before.
    assert asker.perform([ask(lab)])[0].body == b"hi"


def test_answers_which_come_at_once_share_what_there_is(lab, asker, monkeypatch):
    monkeypatch.setattr(received, "MOST_TOGETHER_BYTES", 3 << 20)
    bodies = [b"x" * (2 << 20), b"y" * (2 << 20), b"small"]
    held = [received.Received(http.MAX_ANSWER_BYTES) for _ in range(2)]
    assert held[0].write(bodies[0])
    before = received._together.size
    # One of them is still being received, so there is no place for another large one.
    failure, small = asker.perform([ask(lab, body=bodies[1]), ask(lab, body=bodies[2])])
    assert failure.kind == client.FAILED and "together" in failure.message
    assert small.body == b"small"
    gc.collect()
    assert received._together.size == before
    del held
    assert asker.perform([ask(lab, body=bodies[1])])[0].body == bodies[1]
    assert received._together.size == before - len(bodies[0])


def test_environment_proxy_is_ignored(lab, asker, monkeypatch):
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    assert asker.perform([ask(lab)])[0].status == 200


def test_many_threads_and_no_descriptor_left(lab, asker):
    wrong = []

    def work(number):
        for turn in range(3):
            body = b"%d.%d" % (number, turn)
            replies = asker.perform([ask(lab, body=body)] * (1 + turn % 3))
            if any(reply.body != body for reply in replies):
                wrong.append(replies)

    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        threads = [threading.Thread(target=work, args=(number,)) for number in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong
    # At most twelve idle multis with three files each; nothing for 60 threads, handles or calls.
    assert len(os.listdir("/proc/self/fd")) <= before + 36


def test_high_descriptors(lab, asker):
    """More than 1024 open files: the master has thousands of clients."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    held = []
    try:
        held.extend(os.open(os.devnull, os.O_RDONLY) for _ in range(1100))
        for count in (1, 5):
            assert all(reply.status == 200 for reply in asker.perform([ask(lab)] * count))
    finally:
        for fd in held:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_public_authorities_are_not_trusted(lab, asker):
    """A libcurl of a distribution trusts a compiled-in directory unless told otherwise."""
    told = []
    transfer = asker.open(0, ask(lab))
    transfer.handle.setopt(pycurl.VERBOSE, 1)
    transfer.handle.setopt(pycurl.DEBUGFUNCTION, lambda kind, data: told.append(str(data)))
    transfer.handle.perform()
    assert transfer.reply().status == 200
    about = [
        line
        for line in told
        if lab.server_pem in line or "CApath" in line or "certificates in" in line
    ]
    assert about
    assert not [line for line in about if "/etc/ssl" in line or "/usr" in line]


def test_answers_which_are_not_needed_are_not_waited_for(lab, asker, deaf):
    """One answer is enough for this caller; the other node would take the whole time limit."""
    seen = []

    def until():
        return 0.0 if seen else None

    outcomes = asker.perform(
        [ask(lab), ask(lab, port=deaf, timeout_s=3600.0)],
        lambda index, outcome: seen.append(index),
        until,
    )
    assert outcomes[0].body == b"hi"
    assert outcomes[1].kind == client.UNREACHABLE
    assert "enough others" in outcomes[1].message
    assert seen == [0, 1]
    # The handles of the client are still good.
    assert asker.perform([ask(lab)])[0].body == b"hi"


def test_connections_which_were_not_used_again_are_closed(lab, asker, monkeypatch):
    """Calls to a thousand nodes would otherwise leave a thousand of them open."""
    gc.collect()  # closes the connections of clients of other tests now, not in between
    before = set(os.listdir("/proc/self/fd"))
    requests = [ask(lab, "kept")._replace(keep=True) for _ in range(5)]
    assert all(isinstance(one, client.Reply) for one in asker.perform(requests))
    kept = set(os.listdir("/proc/self/fd")) - before
    asker.sweep()
    assert set(os.listdir("/proc/self/fd")) - before == kept, "they may be used again"
    assert len(kept) >= 5
    monkeypatch.setattr(client, "_KEEP_S", 0)
    asker.sweep()
    assert not set(os.listdir("/proc/self/fd")) - before
    # It goes on with new ones.
    assert all(isinstance(one, client.Reply) for one in asker.perform(requests))
    asker.reset()


def test_calls_to_the_same_nodes_use_the_same_connections(lab, asker):
    """Many threads call the nodes of their group; each would connect to all nodes otherwise."""
    other = f"{ADDRESS.rpartition('.')[0]}.2"
    with socket.socket() as sock:
        sock.bind((other, 0))
        sock.listen(16)
        elsewhere = sock.getsockname()[1]
        here = [ask(lab, "kept")._replace(keep=True) for _ in range(3)]
        there = [one._replace(address=other, port=elsewhere, timeout_s=0.05) for one in here]
        connects = []
        for requests, kind in ((here, client.Reply), (there, client.Failure), (here, client.Reply)):
            assert all(isinstance(one, kind) for one in asker.perform(requests))
            idle = [handle for _since, handle in asker._idle[client._kind(requests[0], False)]]
            connects.append(sum(handle.getinfo(pycurl.NUM_CONNECTS) for handle in idle))
    assert connects == [3, 3, 0]
    peers = [driver.peers for _since, driver in asker._drivers]
    assert peers == [{(other, elsewhere)}, {(ADDRESS, lab.port)}]
    asker.reset()


def test_there_are_never_too_many_idle_handles_and_connections(lab, asker, monkeypatch):
    monkeypatch.setattr(client, "MAX_IDLE", 4)
    for keep in (False, True):
        requests = [
            ask(lab)._replace(keep=keep, connection_class=f"class {number}") for number in range(7)
        ]
        for request in requests:
            assert isinstance(asker.perform([request])[0], client.Reply)
        assert asker.idle_handles() == 4
    # The kind which was used last stays.
    assert [kind[3] for kind in asker._idle] == [one.connection_class for one in requests[3:]]
    asker.reset()
    assert asker.idle_handles() == 0
