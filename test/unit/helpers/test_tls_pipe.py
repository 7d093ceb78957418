"""How a connection ends, seen from the side that has sent everything."""

from __future__ import annotations

import socket
import ssl
import threading

import pytest

from ganeti.helpers.tls_pipe import TlsPipe
from ganeti.utils import x509


@pytest.fixture(scope="module")
def pem(tmp_path_factory):
    path = tmp_path_factory.mktemp("keys") / "pem"
    path.write_text(x509.create_self_signed())
    return str(path)


def context(pem, side, *, trusts=True):
    made = ssl.SSLContext(side)
    made.options |= ssl.OP_IGNORE_UNEXPECTED_EOF  # as the Python of Debian 12 has it
    made.check_hostname = False
    made.load_cert_chain(pem)
    made.verify_mode = ssl.CERT_REQUIRED
    if trusts:
        made.load_verify_locations(pem)
    return made


def converse(pem, receive, *, trusts=True):
    """Send something to a receiver that has done all it ever does when we end."""
    left, right = socket.socketpair()
    errors = []

    def receiver():
        with TlsPipe(
            right, context(pem, ssl.PROTOCOL_TLS_SERVER, trusts=trusts), server_side=True
        ) as pipe:
            try:
                pipe.handshake()
                receive(pipe)
            except OSError as err:
                errors.append(err)
            right.shutdown(socket.SHUT_WR)
            done.wait()

    done, thread = threading.Event(), threading.Thread(target=receiver)
    with TlsPipe(left, context(pem, ssl.PROTOCOL_TLS_CLIENT), server_side=False) as sender:
        thread.start()
        try:
            sender.handshake()
            sender.sendall(b"data")
            sender.finish()
        finally:
            done.set()
            thread.join()
    return errors


def read_all(pipe):
    buffer = memoryview(bytearray(100))
    while pipe.recv_into(buffer):
        pass


def test_the_end_is_heard(pem):
    def receive(pipe):
        read_all(pipe)
        pipe.finish()

    assert converse(pem, receive) == []


def test_a_connection_that_just_ends_is_an_error(pem):
    with pytest.raises(OSError, match="EOF"):
        converse(pem, read_all)


def test_a_refusal_after_our_handshake_is_an_error(pem):
    with pytest.raises(ssl.SSLError, match="(?i)unknown.ca"):
        converse(pem, read_all, trusts=False)


def test_more_data_are_no_end(pem):
    def receive(pipe):
        read_all(pipe)
        pipe.sendall(b"wait")

    with pytest.raises(ssl.SSLError, match="after the end"):
        converse(pem, receive)
