"""Both ends of the connection of a job process in one process: real locks, a real configuration."""

from __future__ import annotations

import socket
import threading
from pathlib import Path
from typing import Any

from fakes.config import cluster_of
from fakes.rpc import FakeRpc
from ganeti import errors
from ganeti.cmdlib.base import MasterContext
from ganeti.config import Config
from ganeti.config.text import ConfigText
from ganeti.configfile.files import write_config_file
from ganeti.jobexec import changes, livelock, remote
from ganeti.jobexec.link import Link
from ganeti.jobexec.messages import Channel, ChannelClosed
from ganeti.jobexec.requests import Requests
from ganeti.locking import Level, LockManager, Owner
from ganeti.objects import ConfigData
from ganeti.platform import master_epoch

PATIENCE_S = 60.0


class Queue:
    """The job queue, as the requests of one opcode use it."""

    def __init__(self, job_id: int) -> None:
        self.owner = Owner(job_id, f"job-{job_id}")
        self.present_priority = 0
        self.log: list[tuple[Any, ...]] = []
        self.canceled = False
        self.started = 0
        self.reached_times = 0

    def reached(self) -> None:
        self.reached_times += 1

    def notify_start(self) -> None:
        self.check_cancel()
        self.started += 1

    def show_waiting(self, *, wait: bool = False) -> None:
        """Nobody looks."""

    def feedback(self, *args: Any) -> None:
        self.log.append(args)

    def check_cancel(self) -> None:
        if self.canceled:
            raise errors.JobCanceled("canceled by request")

    def priority(self) -> int:
        return self.present_priority

    def submit_jobs(self, jobs: Any) -> list[list[Any]]:
        return [[True, 100 + number] for number, _job in enumerate(jobs)]


class Master:
    """The services of a master daemon, without nodes.

    :ivar connections: number of connections of job processes so far.
    """

    def __init__(self, directory: Path, data: ConfigData | None = None) -> None:
        self.directory = directory
        directory.mkdir(exist_ok=True)
        path = directory / "config.data"
        if not path.exists():
            first = data or cluster_of(2)
            write_config_file(str(path), ConfigText(first).render(first, ()))
        self.open()

    def open(self) -> None:
        """Begin, also once more after the end of an earlier master daemon."""
        self.config = Config.open(str(self.directory / "config.data"))
        snapshot = self.config.snapshot()
        self.loaded = snapshot.serial_no
        self.locks = LockManager(
            {Level.INSTANCE: ["a", "b", "c"], Level.NODE: list(snapshot.nodes)}
        )
        self.context = MasterContext(self.config, self.locks, FakeRpc(self.config))  # type: ignore[arg-type]
        self.page = changes.SharedNumber(str(self.directory / "serial"))
        self.page.publish(self.loaded)
        self.config.call_on_commit(lambda _old, new, _keys: self.page.publish(new.serial_no))


class DirectLink(Link):
    """A link whose connection is a pair of sockets; a thread carries out the requests."""

    def __init__(self, master: Master, queue: Queue) -> None:
        super().__init__("")
        self.master = master
        self.queue = queue
        self.epoch = master_epoch.Epoch(1, "uuid-node1")
        self.connections = 0
        self.on_connect = lambda: None
        self.threads: list[threading.Thread] = []

    def connect(self) -> None:
        ours, theirs = socket.socketpair()
        self.connections += 1
        if self.connections > 1:
            self.on_connect()
        self.loaded = self.master.loaded
        self._channel = Channel(ours)
        self.requests = Requests(
            self.master,
            Channel(theirs),
            self.queue,  # type: ignore[arg-type]
            [line[-2:] for line in self.queue.log],  # type: ignore[misc]
            lambda: None,
        )
        thread = threading.Thread(target=self._serve, args=(self.requests, theirs), daemon=True)
        self.threads.append(thread)
        thread.start()

    @staticmethod
    def _serve(requests: Requests, sock: socket.socket) -> None:
        try:
            requests.serve()
        except ChannelClosed:
            pass
        finally:
            sock.close()

    @property
    def descriptor(self) -> int:
        """The socket at the end of the process."""
        assert self._channel is not None
        return self._channel.socket.fileno()

    def send(self, message: Any) -> None:
        """Send a message without waiting for an answer."""
        assert self._channel is not None
        self._channel.send(message)

    def receive(self) -> Any:
        """Wait for an answer."""
        assert self._channel is not None
        return self._channel.receive()

    def cut(self) -> None:
        """Break the connection, as the end of the master daemon does."""
        assert self._channel is not None
        self._channel.shut_down()
        self.threads[-1].join(PATIENCE_S)

    def close(self) -> None:
        if self._channel is not None:
            self._channel.close()
        for thread in self.threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()


class Job:
    """A job in a process, as far as its services go."""

    def __init__(self, master: Master, job_id: int = 7, queue: Queue | None = None) -> None:
        self.path = livelock.path_of(str(master.directory), job_id, "0123456789abcdef")
        self.queue = queue or Queue(job_id)
        self.link = DirectLink(master, self.queue)
        self.record = livelock.Record(self.path)
        self.locks = remote.RemoteLocks(self.link, self.record)
        self.callbacks = remote.RemoteCallbacks(self.link, self.queue.owner, lambda: True)
        self.store = remote.RemoteStore(self.link, master.page, self.record, None)
        self.config = Config(self.store)  # type: ignore[arg-type]

    @property
    def held(self) -> livelock.Held:
        """What the record says."""
        return livelock.read_record(self.path)
