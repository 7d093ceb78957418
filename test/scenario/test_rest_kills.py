"""Clients of the REST interface go on when its daemon, the master daemon or the master is lost."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from harness import ROOT, Cluster, wait_until
from test_rapi import NODE1, NODE2, Rest, address, passwd


class Listener:
    """Reads the events of jobs, and connects again after the last one, on one node or another.

    :ivar events: kind and data of each.
    """

    def __init__(self, *rests: Rest) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.connections = 0
        self._rests = rests
        self._last = ""
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Listen until the block ends."""
        self._thread.start()
        try:
            wait_until(lambda: self.connections > 0, "the client listens")
            yield
        finally:
            self._stopped.set()
            self._thread.join()

    def _run(self) -> None:
        for rest in itertools.cycle(self._rests):
            if self._stopped.is_set():
                return
            headers = {"Last_Event_ID": self._last} if self._last else {}
            with contextlib.suppress(OSError, http.client.HTTPException):
                with rest.raw("GET", "/2/events?kinds=job", **headers) as stream:
                    if stream.status == 200:
                        self._read(stream)
            self._stopped.wait(0.1)

    def _read(self, stream: http.client.HTTPResponse) -> None:
        kind, number = "", ""
        self.connections += 1
        for line in stream:
            if self._stopped.is_set():
                return
            name, _, value = line.decode().strip().partition(": ")
            if name == "event":
                kind = value
            elif name == "id":
                number = value
            elif name == "data":
                self.events.append((kind, json.loads(value)))
                self._last = number or self._last

    def ends_of(self, job: int) -> int:
        """How often the client has learned that a job has succeeded."""
        return sum(
            (kind, data.get("id"), data.get("status")) == ("job", job, "success")
            for kind, data in self.events
        )

    @property
    def resets(self) -> int:
        """How often the client has learned that events are missing."""
        return sum(kind == "reset" for kind, _data in self.events)


@pytest.fixture(scope="module")
def rest(cluster: Cluster) -> Rest:
    passwd(cluster, "root", "write")
    # The other nodes get the file of the users.
    cluster.run("gnt-cluster", "redist-conf").ok()
    return Rest(address(cluster, NODE1))


class Identity:
    """Proves the same user to each daemon, in a way that survives it.

    :param headers: of each request.
    """

    def __init__(self, **headers: str) -> None:
        self._headers = headers

    def is_known_to(self, rest: Rest) -> None:
        """Check that a daemon knows the user, who has the right to read."""
        status, found = rest("GET", "/2/audit?limit=1", user=None, **self._headers)
        assert status == 200, found


@pytest.fixture(scope="module")
def identities(cluster: Cluster, rest: Rest) -> list[Identity]:
    """A token and a session, which begin before anything is lost."""
    program = str(ROOT / "tools" / "rapi-passwd")
    made = cluster.run(program, "token", "add", "root", "--rights", "read").ok()
    body = {"user": "root", "password": "secret"}
    with rest.raw("POST", "/2/login", body, user=None) as answer:
        assert answer.status == 200, answer.read()
        cookie = str(answer.getheader("Set-Cookie")).partition(";")[0]
    return [Identity(Authorization=f"Bearer {made.stdout.strip()}"), Identity(Cookie=cookie)]


def change(rest: Rest) -> int:
    """Run a job to its end; returns its number."""
    return int(rest.job("PUT", "/2/tags?tag=x")["id"])


def test_the_rest_daemon_is_killed(
    cluster: Cluster, rest: Rest, identities: list[Identity]
) -> None:
    """No event is lost, and none is sent twice: the master has them. Users are known at once."""
    listener, jobs = Listener(rest), []
    with listener.listening():
        for _ in range(3):
            jobs.append(change(rest))
            cluster.kill_whole(NODE1, "ganeti-rapi")
            # Nobody listens meanwhile.
            submitted = cluster.run("gnt-cluster", "add-tags", "--submit", "y").ok()
            jobs.append(int(submitted.text.split()[-1]))
            cluster.run("daemon-util", "start", "ganeti-rapi").ok()
            for one in identities:
                one.is_known_to(rest)
            jobs.append(change(rest))
        wait_until(lambda: listener.ends_of(jobs[-1]) > 0, "the last job is reported")
    assert [listener.ends_of(job) for job in jobs] == [1] * len(jobs)
    assert listener.resets == 0 and listener.connections >= 4


def _master_daemon(cluster: Cluster) -> str:
    cluster.kill_whole(NODE1, "ganeti-masterd")
    cluster.run("daemon-util", "start", "ganeti-masterd").ok()
    return NODE1


def _failover(cluster: Cluster) -> str:
    cluster.on(NODE2, "gnt-cluster", "master-failover").ok()
    return NODE2


def _failover_back(cluster: Cluster) -> str:
    cluster.on(NODE1, "gnt-cluster", "master-failover").ok()
    return NODE1


@pytest.mark.parametrize("lose", [_master_daemon, _failover, _failover_back])
def test_the_master_is_lost(
    cluster: Cluster, identities: list[Identity], lose: Callable[[Cluster], str]
) -> None:
    """The events of the former daemon are gone; the client learns that, and misses none later.
    Sessions and tokens are those of the cluster, and not of a daemon.
    """
    rests = {name: Rest(address(cluster, name)) for name in (NODE1, NODE2)}
    listener = Listener(*rests.values())
    with listener.listening():
        before = change(rests[cluster.master])
        wait_until(lambda: listener.ends_of(before) == 1, "the job before is reported")
        new = rests[lose(cluster)]
        wait_until(lambda: listener.resets > 0, "the client learns that events are missing")
        for one in identities:
            one.is_known_to(new)
        after = [change(new) for _ in range(3)]
        wait_until(lambda: listener.ends_of(after[-1]) > 0, "the last job is reported")
    assert [listener.ends_of(job) for job in (before, *after)] == [1] * 4
