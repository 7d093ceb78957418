"""Keys: a machine which joins, and certificates which are renewed."""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from crash_points.engine import Points, Subject
from fakes.config import cluster_of
from fakes.master import Master
from ganeti.backend.cluster import credentials
from ganeti.bootstrap import node_state
from ganeti.bootstrap.join_protocol import JoinError
from ganeti.config.local_file import LocalFile
from ganeti.config.store import ConfigStore
from ganeti.platform import hosts, paths
from ganeti.platform.base import Machine
from ganeti.utils import x509


class Join(Subject):
    """``ganeti-join`` on a machine: it gets the credentials, and starts its daemons."""

    name = "join"
    promise = "node-cleanup removes every secret, and the machine joins with a new token"

    def __init__(self, directory: Path, patch: pytest.MonkeyPatch) -> None:
        super().__init__(directory)
        self._tests: Any = importlib.import_module("unit.bootstrap.test_join")
        self._lab: Any = None
        self._points: Points | None = None
        patch.setattr(node_state, "daemon_util", self._daemon_util)

    def _daemon_util(self, *words: str, **_: Any) -> None:
        if self._points is not None:
            self._points.reach(f"daemon-util {' '.join(words)}")

    def make(self) -> None:
        self._lab = self._tests.Lab(self.directory)

    def _join(self) -> None:
        os.environ[paths.ENV_HOSTNAME] = self._tests.NODE
        os.environ[paths.ENV_ROOT] = self._lab.machine.root
        with self._lab.offer() as (offer, came):
            acting = self._lab.take_in(came)
            self._lab.join(offer.token)
            acting.join()

    def work(self, points: Points) -> None:
        self._points = points
        with points.on_disk(Path(self._lab.machine.root)):
            self._join()

    def _secrets_left(self) -> list[str]:
        """Files of the machine with a secret of the cluster, whatever they are called."""
        words = [text.strip() for text in self._lab.shared if text.strip()]
        return [
            str(path)
            for path in Path(self._lab.machine.root).rglob("*")
            if path.is_file() and any(word in path.read_text(errors="replace") for word in words)
        ]

    def recover(self, survivors: Any) -> None:
        machine = self._lab.machine
        if self._lab.traces:
            # What is there is not taken for the node of another cluster, nor used in silence.
            with pytest.raises(JoinError, match="already belongs to a cluster"):
                self._join_refused()
        with paths.override(machine):
            credentials.remove_files(machine)
        assert self._lab.traces == []
        assert self._secrets_left() == [], self._secrets_left()
        self._join()
        assert node_state.read_credentials(machine) == self._lab.shared
        assert x509.digest_file(machine.noded_client_cert_file)

    def _join_refused(self) -> None:
        os.environ[paths.ENV_HOSTNAME] = self._tests.NODE
        os.environ[paths.ENV_ROOT] = self._lab.machine.root
        token = self._tests.TOKEN._replace(node_name=self._tests.NODE)
        self._lab.join(token)


class Renewal(Subject):
    """``gnt-cluster renew-crypto``: a new certificate for the cluster, and one for each node."""

    name = "key renewal"
    promise = "every candidate reaches every node at every moment, and the same command ends it"

    def __init__(self, directory: Path, patch: pytest.MonkeyPatch) -> None:
        super().__init__(directory)
        self._tests: Any = importlib.import_module("unit.cmdlib.cluster.test_renew_crypto")
        self._patch = patch
        self._lab: Any = None
        self._new_pem = x509.create_self_signed()
        patch.setattr(os, "fsync", lambda descriptor: None)

    def make(self) -> None:
        self._lab = self._tests.Lab(self.directory, self._patch)
        self._lab.prepare(noded_cert_file=self._new_pem)

    def work(self, points: Points) -> None:
        lab = self._lab
        real = lab.answer

        def answer(call: Any, node_name: str, args: dict[str, Any]) -> Any:
            points.reach(f"call {call.name}")
            result = real(call, node_name, args)
            points.reach(f"called {call.name}")
            return result

        lab.master.rpc._answer = lab.answer = answer
        with points.on_disk(self.directory):
            lab.run()

    def survivors(self) -> Any:
        return self._lab.master.config.snapshot()

    def recover(self, survivors: Any) -> None:
        lab = self._lab
        lab.master.config._store = ConfigStore(
            LocalFile("config.data", lambda path, text: None), survivors
        )
        lab.master.config.use_distribution(lab.distribute)
        lab.check_everybody("after the death")
        lab.run_again()
        lab.check_end(self._new_pem)


class NodeAdded(Subject):
    """The job which adds a machine to the cluster, and gives it a certificate of a candidate."""

    name = "join: job of the master"
    promise = (
        "the node is known completely or not at all, and the command, or --readd, completes it"
    )

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._tests: Any = importlib.import_module("unit.cmdlib.node.test_node")
        self._master: Any = None

    def make(self) -> None:
        self._master = Master(cluster_of(2))

    def work(self, points: Points) -> None:
        master = self._master
        real, transaction = master.rpc._answer, master.config.transaction

        def answer(call: Any, node_name: str, args: dict[str, Any]) -> Any:
            points.reach(f"call {call.name}")
            result = real(call, node_name, args)
            points.reach(f"called {call.name}")
            return result

        @contextlib.contextmanager
        def committed() -> Iterator[Any]:
            with transaction() as change:
                yield change
                points.reach("commit")
            points.reach("committed")

        master.rpc._answer, master.config.transaction = answer, committed
        Machine.lookup = _lookup  # type: ignore[method-assign]
        master.run(self._tests.add())

    def survivors(self) -> Any:
        return self._master.config.snapshot()

    def recover(self, survivors: Any) -> None:
        Machine.lookup = _lookup  # type: ignore[method-assign]
        before = set(Master(cluster_of(2)).config.verify())
        master = Master(survivors)
        new = master.config.node_by_name(self._tests.NEW)
        certs = master.config.cluster().candidate_certs
        if new is not None:
            assert (new.uuid in certs) == new.master_candidate, "a candidate without certificate"
        master.run(self._tests.add(readd=new is not None))
        node = master.config.node_by_name(self._tests.NEW)
        assert node is not None and node.master_candidate
        assert node.uuid in master.config.cluster().candidate_certs
        # The UUIDs of the fake are names.
        wrong = {text for text in master.config.verify() if not text.endswith("is not a uuid")}
        assert wrong <= before, wrong - before


def _lookup(_machine: Machine, name: str) -> hosts.Hostname:
    """In place of the name service, in a child process only."""
    full = name if name.endswith(".example.com") else f"{name}.example.com"
    return hosts.Hostname(full, f"192.0.2.{full.removeprefix('node')[0]}")
