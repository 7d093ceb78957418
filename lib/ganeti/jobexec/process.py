"""A job process: executes the opcodes of a job, one after the other.

The process is a copy of the fork server, so all modules are loaded and it has a recent state of the
configuration. Before anything else it locks its livelock. Then it connects to the master daemon,
which sends an opcode; the process executes it with the same processor and the same logical units as
a thread of the master daemon would, and sends the result. After the last opcode the livelock is
released, and the process rests until it gets another job or has to end. So it keeps its
connections to nodes, and everything which is made at the first use.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, NoReturn

from ganeti import cmdlib, errors, opcodes
from ganeti.cmdlib.base import JobContext
from ganeti.cmdlib.processor import Processor
from ganeti.config import Config
from ganeti.jobexec import changes, livelock, messages, methods, remote
from ganeti.jobexec.link import EXIT_ENDED, Link
from ganeti.jobexec.node_calls import JobRunner, Trust
from ganeti.locking import Owner
from ganeti.objects import ConfigData, codec
from ganeti.objects.instance import FilledInstance
from ganeti.opcodes.base import OpCode
from ganeti.platform import paths
from ganeti.rpc import open_client
from ganeti.rpc.runner import Transport
from ganeti.utils import log, metrics, shortage, tracing
from ganeti.wire import json

_log = logging.getLogger(__name__)

# The name of the program in traces.
_SERVICE = "ganeti-masterd"
# The kernel shows that many characters of the name of a process.
_NAME_LENGTH = 15


class Surroundings(NamedTuple):
    """What job processes need of the node on which they run.

    :ivar address: path of the socket of the master daemon for job processes.
    :ivar page: path of the file with the serial number of the configuration.
    :ivar livelock_dir: directory of the livelocks.
    :ivar open_client: makes the client for node calls.
    :ivar certificates: returns something which differs when the certificates of the node do.
    """

    address: str
    page: str
    livelock_dir: str
    open_client: Callable[[], Transport]
    certificates: Callable[[], object]


def surroundings(here: paths.Paths) -> Surroundings:
    """Return what job processes need of this node."""
    return Surroundings(
        here.job_socket,
        here.config_serial_file,
        here.livelock_dir,
        partial(open_client, here),
        partial(_certificates, here),
    )


def _certificates(here: paths.Paths) -> object:
    """Return which files have the certificates of this node, and of the nodes it trusts."""
    found: list[tuple[str, int, int]] = []
    for path in (here.trust_file(), here.noded_client_cert_file):
        # Either may be replaced at this moment.
        with contextlib.suppress(FileNotFoundError):
            status = os.stat(path)
            found.append((path, status.st_ino, status.st_mtime_ns))
    return found


class JobProcess:
    """This process, and what it uses.

    :param data: the state of the configuration which this process inherited.
    """

    def __init__(
        self,
        here: Surroundings,
        client: Transport,
        trust: Trust,
        page: changes.SharedNumber,
        data: ConfigData | None,
        link: Link,
    ) -> None:
        self._here = here
        self._client = client
        self._trust = trust
        self._page = page
        self._data = data
        self._link = link

    def serve(self, job_id: int, token: str) -> NoReturn:
        """Execute one job after the other.

        The livelock of a job is locked before anything else is done for it.

        :param job_id: the first job.
        :param token: the name of this process during that job, 16 hexadecimal digits.
        """
        self._link.watch_role()
        while True:
            self._link.begin(job_id, token)
            path = livelock.path_of(self._here.livelock_dir, job_id, token)
            with livelock.take(self._here.livelock_dir, job_id, token):
                self._link.serve(path)
                self._run(Owner(job_id, f"job-{job_id}", path), token)
                livelock.forget(path)
            _show("gnt-job-idle")
            job_id, token = self._link.next_job()

    def _run(self, owner: Owner, token: str) -> None:
        """Execute opcodes until the master daemon says that the job has ended."""
        _show(f"gnt-job-{owner.job_id}")
        record = livelock.Record(str(owner.livelock))
        store = remote.RemoteStore(self._link, self._page, record, self._data)
        # It has everything of a store which Config uses for jobs.
        config = Config(store)  # type: ignore[arg-type]
        woken = changes.SharedNumber(str(owner.livelock))
        callbacks = remote.RemoteCallbacks(self._link, owner, lambda: bool(woken.get()))
        locks = remote.RemoteLocks(self._link, record)
        services = methods.proxies(self._link.ask)
        processor = Processor(
            JobContext(
                config,
                locks,
                JobRunner(config.snapshot, self._client, self._link, token, self._trust),
                services.files,
                services.queries,
                services.orphaned_work,
                services.witness,
            )
        )

        def work(held: methods.Held, op: OpCode) -> object:
            # An opcode which has not begun is tried again later, so it need not wait.
            record.wait_s = 0.0
            locks.begin(held)
            return processor.execute(op, callbacks)

        def begun() -> None:
            record.wait_s = livelock.PATIENCE_S

        callbacks.on_start = begun
        # What this process inherited was measured by others.
        metrics.take()
        result = None
        while True:
            task = self._link.next_task(result)
            if "end" in task:
                self._link.end(str(task["end"]))
            if "rest" in task:
                break
            # The file may have been renamed since then, by a program which rotates logs.
            with contextlib.suppress(OSError):
                log.reopen()
            self._link.running = int(task["index"])
            callbacks.begin()
            held = methods.HELD.decode(task["held"])
            with tracing.span("job process", parent=str(task["trace"])):
                result = execute(owner.job_id or 0, partial(work, held), task["op"])
            result["measured"] = metrics.take()
        tracing.flush()
        woken.close()
        self._data = store.known


def execute(job_id: int, work: Callable[[OpCode], Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Execute an opcode which the queue has sent; return the message with its result.

    :param work: executes the opcode.
    :param given: the parameters of the opcode, with ``OP_ID``.
    """
    try:
        result = work(opcodes.from_dict(given).validate())
        json.dumps(result)
        json.check_nesting(result)
    except errors.GenericError as err:
        return {"failed": messages.pack_error(err)}
    except Exception as err:  # noqa: BLE001 -- the entry point of a job step
        _log.exception("job %d: internal error", job_id)
        # The opcode is tried again if it has not begun: until then, it uses no files of its own.
        lacking = shortage.described(err) or (str(err) if isinstance(err, OSError) else "")
        return {"internal": f"{type(err).__name__}: {err}", "lacking": lacking}
    return {"result": result}


def _show(name: str) -> None:
    """Let programs like ps(1) show what this process does."""
    with contextlib.suppress(OSError), open("/proc/self/comm", "w", encoding="ascii") as stream:
        stream.write(name[:_NAME_LENGTH])


def warm_up() -> None:
    """Make what processes would make at their first use, so that they inherit it."""
    for cls in (*messages.CLASSES, FilledInstance, ConfigData):
        codec.decoder(cls)
        codec.encoder(cls)
    methods.prepare()
    cmdlib.load()
    # The master daemon says in its log what is missing for that.
    tracing.set_up(_SERVICE)


def main(here: Surroundings, orders: socket.socket, data: ConfigData | None) -> NoReturn:
    """Be the process of a job.

    :param orders: the connection to the fork server, over which the job arrives.
    """
    link = Link(here.address)
    try:
        problem, ready = None, None
        try:
            # Looked at before the client reads them.
            trust = Trust(here.certificates)
            ready = JobProcess(
                here, here.open_client(), trust, changes.SharedNumber(here.page), data, link
            )
        except Exception as err:  # noqa: BLE001 -- sent when there is a job
            problem = err
        try:
            job_id, token = messages.Channel(orders).receive()
        except messages.ChannelClosed:
            os._exit(EXIT_ENDED)  # The master daemon has ended, and this process has no job.
        orders.close()
        link.begin(job_id, token)
        if ready is None:
            assert problem is not None
            raise problem
        ready.serve(job_id, token)
    except BaseException as err:  # noqa: BLE001 -- the main function of a process
        _log.critical("the process of a job ends by an internal error", exc_info=True)
        link.tell_unable(f"{type(err).__name__}: {err}")
        logging.shutdown()
        os._exit(1)
