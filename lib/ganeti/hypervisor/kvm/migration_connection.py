"""The connection between two nodes over which a guest is sent, until QEMU has it.

QEMU itself takes the first peer which connects to the port of a migration, and nobody else: a few
idle connections would keep the source away, and with it the guest. So QEMU neither listens nor
connects. On the target a process of the node (:mod:`ganeti.helpers.kvm_incoming`) accepts
connections, and finds out which of them is that of the source; on the source the node daemon
connects. Both show the certificate which the source has made for this migration, with its key, and
accept no other one. Then both end TLS, and pass the connection to their QEMU, which uses it as
``fd:``. On it QEMU encrypts what it sends (:mod:`.migration_channel`).

The listening socket is made before the process which serves it starts: the port is known at once,
and who connects early waits. It is gone when that process ends. The process holds the lock of its
pid file, so that it can be found and ended.

Source: QEMU's QMP reference, ``getfd``, ``migrate-incoming``, ``migrate``.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from ganeti import errors
from ganeti.hypervisor import base
from ganeti.hypervisor.kvm.layout import Layout
from ganeti.hypervisor.kvm.qmp import Qmp
from ganeti.platform import paths
from ganeti.utils import daemonize, filelock, fs, peers, process, retry, x509

#: Name of the connection in QEMU.
FD_NAME: Final = "migration"
URI: Final = f"fd:{FD_NAME}"
#: Seconds after which the source gives up a target which does not answer.
CONNECT_S: Final = 10.0
#: The target says this when its QEMU has the connection.
READY: Final = b"ready\n"
_LAST_TRY_S = 0.5
_HELPER = "ganeti.helpers.kvm_incoming"
# From the first signal to the end of the process which waits for the source.
_END_S = 10.0
_PAUSES = (0.005, 1.5, 0.2)


class Incoming(NamedTuple):
    """The end of the target.

    :ivar certificate: of this migration, with its key, in PEM.
    :ivar key: with which the guest is encrypted, in hexadecimal digits; None when it is not.
    """

    place: base.Place
    certificate: str
    key: str | None


# -- the certificate -------------------------------------------------------------------------------


def new_certificate(layout: Layout) -> str:
    """Make the certificate of a migration, with its key, and keep it for :func:`connected`.

    :returns: PEM, for the target.
    :raises HypervisorError: it cannot be written.
    """
    pem = x509.create_self_signed(layout.name)
    keep_certificate(layout, pem)
    return pem


def keep_certificate(layout: Layout, pem: str) -> None:
    """Write the certificate of a migration, in place of that of an earlier one.

    :raises HypervisorError: it cannot be written.
    """
    try:
        fs.write_file(layout.migration_certificate_file, pem, mode=0o600, sync=False)
    except OSError as err:
        raise errors.HypervisorError(
            f"cannot write the certificate for the migration of instance {layout.name}: {err}"
        ) from err


def forget(layout: Layout) -> None:
    """End what waits for a source, and remove the certificate; none is not an error.

    :raises HypervisorError: it does not end.
    """
    end_receiver(layout)
    fs.remove_file(layout.migration_certificate_file)
    fs.remove_file(layout.migration_pid_file)


def _context(layout: Layout) -> ssl.SSLContext:
    path = layout.migration_certificate_file
    if not os.path.exists(path):
        raise errors.HypervisorError(
            f"this node has no certificate for the migration of instance {layout.name}: it was"
            " prepared by another release, or not at all"
        )
    try:
        return x509.one_peer_context(path, path, server=False)
    except errors.X509CertError as err:
        raise errors.HypervisorError(
            f"the certificate for the migration of instance {layout.name} is damaged: {err}"
        ) from err


def take(control: Qmp, command: str, sock: socket.socket, **arguments: Any) -> None:
    """Let QEMU take a connection.

    :param command: of QMP, which has the parameter ``uri``.
    :param arguments: its other parameters.
    :raises HypervisorError: QEMU refuses, or does not answer.
    """
    control.execute("getfd", {"fdname": FD_NAME}, fds=[sock.fileno()])
    # QEMU makes the descriptors which it receives block. It, and the guest in it, would stand still
    # with such a one while its peer says nothing.
    sock.setblocking(False)
    control.execute(command, {"uri": URI, **arguments})


# -- the source ------------------------------------------------------------------------------------


@contextlib.contextmanager
def connected(layout: Layout, place: base.Place) -> Iterator[socket.socket]:
    """Connect to the target of a migration; the end of the block closes this end of it.

    QEMU on the target has the connection then.

    :raises HypervisorError: nobody there shows the certificate of this migration within
        :data:`CONNECT_S` seconds; nothing was sent.
    """
    context = _context(layout)
    deadline = time.monotonic() + CONNECT_S

    def attempt() -> socket.socket:
        try:
            return _authenticated(context, place, max(deadline - time.monotonic(), _LAST_TRY_S))
        except (ssl.SSLEOFError, ConnectionResetError) as err:
            # The target sends peers away when it has too many of them.
            raise retry.Again(err) from err

    try:
        sock = retry.until(attempt, timeout_s=CONNECT_S, delay=_PAUSES)
    except errors.RetryTimeout as err:
        raise _not_sent(layout, place, err) from err
    except (OSError, ValueError) as err:
        raise _not_sent(layout, place, err) from err
    try:
        yield sock
    finally:
        sock.close()


def _not_sent(layout: Layout, place: base.Place, err: Exception) -> errors.HypervisorError:
    return errors.HypervisorError(
        f"nothing of instance {layout.name} was sent: no trusted connection to {place} within"
        f" {CONNECT_S:g} s: {err}"
    )


def _authenticated(context: ssl.SSLContext, place: base.Place, limit_s: float) -> socket.socket:
    """Return a connection to the target, without TLS, which only QEMU uses from now on."""
    sock: socket.socket = peers.connect(place.address, place.port, limit_s)
    try:
        with peers.limited(sock, limit_s):
            tls = sock = context.wrap_socket(sock)
            found = b""
            while len(found) < len(READY):
                data = tls.recv(len(READY) - len(found))
                if not data:
                    raise ConnectionResetError("the target ended the connection")
                found += data
            if found != READY:
                raise ConnectionError(f"the target said {found!r}")
            # TLS reads no more than its own last record.
            sock = tls.unwrap()
    except BaseException:
        sock.close()
        raise
    return sock


# -- the target ------------------------------------------------------------------------------------


def start_receiver(layout: Layout, place: base.Place, command: str) -> int:
    """Listen for the source of a migration, in a process which goes on without this one.

    :param command: of QMP, by which QEMU takes the connection: ``migrate-incoming``, or
        ``migrate-recover`` for a post-copy migration which was interrupted.
    :returns: the port. :func:`forget` ends the process.
    :raises HypervisorError: no port is free, or the process cannot be started.
    """
    end_receiver(layout)
    try:
        with (
            place.listen() as listener,
            filelock.FileLock(layout.migration_pid_file) as lock,
        ):
            lock.acquire(timeout_s=_END_S)
            pid = _spawn(layout, listener, lock, command)
            os.ftruncate(lock.fileno(), 0)
            os.pwrite(lock.fileno(), f"{pid}\n".encode(), 0)
            return int(listener.getsockname()[1])
    except (OSError, errors.LockError) as err:
        raise errors.HypervisorError(
            f"cannot wait for instance {layout.name} at {place}: {err}"
        ) from err


def _spawn(layout: Layout, listener: socket.socket, lock: filelock.FileLock, command: str) -> int:
    """Start the process, which inherits the listening socket, and the lock of its pid file.

    :returns: its pid.
    """
    argv = [sys.executable, "-m", _HELPER, layout.name, str(listener.fileno()), command]
    argv += [layout.socket("qmp"), layout.migration_certificate_file]
    log = os.open(
        layout.migration_log_file,
        os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC,
        0o640,
    )
    top = os.path.dirname(paths.package_dir())
    try:
        child = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            cwd="/",
            env=process.environment(
                {"PYTHONPATH": os.pathsep.join([top, *filter(None, sys.path)])}
            ),
            pass_fds=(listener.fileno(), lock.fileno()),
        )
    finally:
        os.close(log)
    # Nobody waits for it: the process which serves this call ends.
    child.returncode = 0
    return child.pid


def end_receiver(layout: Layout) -> None:
    """End the process which waits for the source; none is not an error.

    :raises HypervisorError: it does not end.
    """
    pid = daemonize.read_pid(layout.migration_pid_file)
    if pid is None:
        return
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)

    def gone() -> None:
        if filelock.is_locked(layout.migration_pid_file):
            raise retry.Again

    try:
        retry.until(gone, timeout_s=_END_S, delay=_PAUSES)
    except errors.RetryTimeout as err:
        raise errors.HypervisorError(
            f"the process which waits for instance {layout.name} does not end (pid {pid})"
        ) from err
