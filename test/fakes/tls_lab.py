"""A real HTTPS server in a process of its own, for the tests of :mod:`ganeti.http`.

Not a fake: the forking server itself, on 127.0.0.0/8, with certificates made for the test. The
process is a new Python and no fork of the tests: the server forks for each request, and to fork a
process with all tests in its memory takes ten times as long.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import logging
import os
import select
import signal
import socket
import ssl
import sys
import time

from ganeti.http import auth, server
from ganeti.utils import x509

ADDRESS = "127.19.18.1"
# Files in the directory of a lab which its server uses.
SERVER_PEM, CA_FILE = "server.pem", "server-ca.pem"
CERTS_FILE = "ssconf_master_candidates_certs"
LOG, DUE = "log", "due"


@contextlib.contextmanager
def clock_of_maker(days):
    """Certificates are made with a clock which is wrong by so many days."""
    right = x509._now
    x509._now = lambda: right() + datetime.timedelta(days=days)
    try:
        yield
    finally:
        x509._now = right


class Lab:
    """Certificates and one running server.

    Procedures: ``echo`` (the body), ``sleep`` (the body's seconds), ``die`` (by SIGKILL),
    ``cut`` (leaves without an answer), ``raise``, ``quit``, ``pid`` (the child's), ``kept`` (the
    same, and the connection stays open), ``resumed`` (whether the TLS session was). A child at rest
    says so in the log.

    The server's chore is due while the file ``due`` is in the directory; it removes the file and
    fails when there is text in it, and says so in the log.
    """

    def __init__(self, directory, limits=server.DEFAULT_LIMITS):
        self.directory = directory
        self.server_pem = self._pem(SERVER_PEM, x509.create_self_signed())
        authority = x509.read_pem(self.server_pem)
        self.client_pem = self._pem("client.pem", x509.create_signed("master", authority))
        self.other_pem = self._pem("other.pem", x509.create_signed("node9", authority))
        self.foreign_pem = self._pem("foreign.pem", x509.create_self_signed())
        self.ca_file = os.path.join(directory, CA_FILE)
        self.certs_file = os.path.join(directory, CERTS_FILE)
        self.allow(self.client_pem)
        self.log = os.path.join(directory, LOG)
        open(self.log, "w").close()
        sock = server.listen(ADDRESS, 0)
        self.port = sock.getsockname()[1]
        stop, self._stop = os.pipe()
        # The server gets its socket and the pipe which stops it as its standard input and output.
        self.pid = os.posix_spawn(
            sys.executable,
            [sys.executable, __file__, directory, json.dumps(limits._asdict())],
            {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            file_actions=[
                (os.POSIX_SPAWN_DUP2, sock.fileno(), 0),
                (os.POSIX_SPAWN_DUP2, stop, 1),
            ],
        )
        os.close(stop)
        sock.close()

    def _pem(self, name, text):
        path = os.path.join(self.directory, name)
        with open(path, "w") as stream:
            stream.write(text)
        return path

    def allow(self, *pems):
        """Whose certificates are master candidates."""
        with open(self.certs_file, "w") as stream:
            for number, pem in enumerate(pems):
                stream.write(f"uuid{number}={x509.digest_file(pem)}\n")

    def wait(self, timeout_s=30):
        """Wait for the server's end; its exit code."""
        pidfd = os.pidfd_open(self.pid)
        try:
            ended = select.poll()
            ended.register(pidfd, select.POLLIN)
            assert ended.poll(timeout_s * 1000), "server does not end"
        finally:
            os.close(pidfd)
        pid, self.pid = self.pid, None
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    def close(self):
        """Stop the server."""
        os.close(self._stop)
        if self.pid is not None:
            assert self.wait() == 0

    def raw(self):
        """A plain TCP connection to the server."""
        return socket.create_connection((ADDRESS, self.port), 30)

    def tls(self, pem=None):
        """A TLS connection with a client certificate."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.load_verify_locations(self.server_pem)
        context.load_cert_chain(pem or self.client_pem)
        return context.wrap_socket(self.raw())

    def log_text(self):
        with open(self.log) as stream:
            return stream.read()

    def wait_for_log(self, text, timeout_s=30):
        deadline = time.monotonic() + timeout_s
        while text not in self.log_text():
            assert time.monotonic() < deadline, self.log_text()
            time.sleep(0.01)


def answer(request):
    if request.procedure == "echo":
        return server.Response(200, request.body)
    if request.procedure == "sleep":
        logging.info("sleeping")
        time.sleep(float(request.body))
        return server.Response(200, b"slept")
    if request.procedure == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if request.procedure == "cut":
        os._exit(0)
    if request.procedure == "raise":
        raise ValueError("broken")
    if request.procedure == "quit":
        return server.Response(200, b"bye", quit=True)
    if request.procedure == "pid":
        return server.Response(200, b"%d" % os.getpid())
    if request.procedure == "kept":
        return server.Response(200, b"%d" % os.getpid(), keep=True)
    if request.procedure == "resumed":
        return server.Response(200, str(request.resumed).encode())
    if request.procedure == "error":
        return server.Response(200, b'[false, "x"]', {"X-Ganeti-Error": '["GenericError",["x"]]'})
    return server.Response(404, b"unknown")


def serve(directory, limits):
    """Serve with the socket at descriptor 0 until the pipe at descriptor 1 is closed."""
    logging.basicConfig(filename=os.path.join(directory, LOG), level=logging.DEBUG, force=True)
    pem = os.path.join(directory, SERVER_PEM)
    due = os.path.join(directory, DUE)

    def do_chore():
        with open(due) as stream:
            text = stream.read()
        os.unlink(due)
        if text:
            raise OSError(text)
        logging.info("chore of %d is done", os.getpid())

    server.ForkingServer(
        socket.socket(fileno=0),
        x509.FreshContext(pem, os.path.join(directory, CA_FILE)),
        server.Service(
            answer,
            auth.CandidatesOnly(os.path.join(directory, CERTS_FILE), x509.digest_file(pem)),
            at_rest=lambda: logging.info("%d is at rest", os.getpid()),
        ),
        limits=limits,
        chores=(server.Chore("the chore", 0.01, lambda: os.path.exists(due), do_chore),),
    ).serve(1, lambda: server.Wakeup.STOP)


def read_all(sock, timeout_s=30):
    """Everything until the other side closes."""
    sock.settimeout(timeout_s)
    data = b""
    while chunk := sock.recv(65536):
        data += chunk
    return data


if __name__ == "__main__":
    serve(sys.argv[1], server.Limits(**json.loads(sys.argv[2])))
