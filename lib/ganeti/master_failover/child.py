"""The tasks of ``ganeti-failoverd``, each in a child process which ends with it.

A child loads the modules of the task, so the daemon does not keep them. It reports success and one
line of text through a pipe.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
from collections.abc import Callable
from typing import NamedTuple

from ganeti import errors
from ganeti.platform import paths

_log = logging.getLogger(__name__)

FAILOVER = "failover"
RESTART = "restart"
RELEASE_ADDRESS = "release-address"

_MAX_TEXT = 4000


class Task(NamedTuple):
    """What a child does: a name of :data:`TASKS`."""

    name: str


class TaskResult(NamedTuple):
    """How a task has ended: success, and a line for the log."""

    success: bool
    text: str


class Child:
    """A child process.

    :ivar task: what it does.
    """

    def __init__(self, task: Task, pid: int, pipe: int) -> None:
        self.task = task
        self._pid = pid
        self._pipe = pipe
        self._text = b""

    def fileno(self) -> int:
        """Return the pipe; it is readable when the child has ended."""
        return self._pipe

    def result(self) -> TaskResult | None:
        """Return the result and forget the child; None while it is running."""
        done, status = os.waitpid(self._pid, os.WNOHANG)
        return None if done == 0 else self._finish(status)

    def end(self) -> None:
        """End the child now."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGTERM)
        _pid, status = os.waitpid(self._pid, 0)
        self._finish(status)

    def _finish(self, status: int) -> TaskResult:
        text = os.read(self._pipe, _MAX_TEXT).decode("utf-8", "replace")
        os.close(self._pipe)
        code = os.waitstatus_to_exitcode(status)
        if code != 0 and not text:
            text = f"its process ended with {'signal' if code < 0 else 'exit code'} {abs(code)}"
        return TaskResult(code == 0, text)


def start(task: Task, leave: Callable[[], None]) -> Child:
    """Start a task.

    :param leave: called in the child first; gives up what belongs to the daemon.
    :raises OSError: the system makes no process.
    """
    receive, send = os.pipe2(os.O_CLOEXEC)
    try:
        pid = os.fork()
    except OSError:
        os.close(receive)
        os.close(send)
        raise
    if pid:
        os.close(send)
        return Child(task, pid, receive)
    code = 1
    try:
        os.close(receive)
        leave()
        text = _run(task)
        code = 0
    except (errors.GenericError, OSError) as err:
        text = str(err)
    except BaseException as err:  # noqa: BLE001  # the main function of a process
        _log.critical("%s failed with an internal error", task.name, exc_info=True)
        text = f"internal error: {err!r}"
    finally:
        os.write(send, text.encode("utf-8", "replace")[:_MAX_TEXT])
        logging.shutdown()
        os._exit(code)


def _run(task: Task) -> str:
    return TASKS[task.name]()


def _failover() -> str:
    from ganeti.bootstrap import failover

    warnings = failover.failover(unattended=True)
    for warning in warnings:
        _log.warning("%s", warning)
    return "this node is the master now"


def _restart() -> str:
    from ganeti.config.ssconf import SimpleStore
    from ganeti.platform import machine
    from ganeti.rpc import AddressRunner, open_client
    from ganeti.wire.calls import NODE_START_MASTER_DAEMONS

    # The node daemon starts it, as everywhere: this process is restricted by its unit.
    me = machine.current().hostname()
    addresses = {name.lower(): ip for name, ip in SimpleStore().node_primary_ips().items()}
    started = AddressRunner(open_client()).call_addresses(
        NODE_START_MASTER_DAEMONS, {me: addresses[me]}, no_voting=False
    )[me]
    if isinstance(started.failure, errors.NodeCallFailed) and _lacks_data():
        # Only the node of a former master has some jobs. Taking the role again fetches them.
        return _failover()
    started.payload()
    return "the master daemon was started"


def _lacks_data() -> bool:
    from ganeti.bootstrap import failover

    try:
        found = failover.survey()
        # A master which was cut off must not take the role back from the one which replaced it.
        return found.lacks_data and found.old.name.lower() == found.me.lower()
    except (errors.OpPrereqError, errors.ConfigurationError) as err:
        # The reason why the daemon was not started says more.
        _log.info("the votes were not asked for: %s", err)
        return False


def _release_address() -> str:
    """Take the address of the master down on this node, which is not the master any more."""
    from ganeti.config import api
    from ganeti.platform import machine
    from ganeti.rpc import AddressRunner, open_client
    from ganeti.rpc.master_ip import take_down_at

    here = paths.current()
    if not os.path.exists(here.cluster_conf_file):
        return "this node is not a candidate any more; its address was not looked at"
    data = api.load(here.cluster_conf_file)[0]
    me = machine.current().hostname()
    own = next((node for node in data.nodes.values() if node.name.lower() == me), None)
    if own is None or own.uuid == data.cluster.master_node:
        return "nothing was to be done"
    failure = take_down_at(AddressRunner(open_client(here)), data, own.uuid)
    if failure is not None:
        raise errors.OpExecError(str(failure))
    return "the address of the master is not active here"


#: The function of each task; it returns a line for the log.
TASKS: dict[str, Callable[[], str]] = {
    FAILOVER: _failover,
    RESTART: _restart,
    RELEASE_ADDRESS: _release_address,
}
