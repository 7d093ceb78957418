"""Node calls of a job process: what they say of it, and whom it trusts."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fakes.config import cluster_of, uuid_of
from ganeti import RELEASE, http
from ganeti.http import client
from ganeti.jobexec import process
from ganeti.jobexec.node_calls import JobRunner, Trust
from ganeti.platform import paths
from ganeti.utils import fs
from ganeti.wire import calls


class Wire:
    """Notes in which order requests are sent and files are trusted from then on."""

    def __init__(self) -> None:
        self.done: list[str | None] = []
        self.headers: tuple[str, ...] = ()

    def perform(self, requests: list[Any], *_more: Any) -> list[client.Reply]:
        self.done.append("call")
        self.headers = requests[0].headers
        return [client.Reply(200, b"[true, 1]", "") for _ in requests]

    def reset(self, ca_file: str | None = None) -> None:
        self.done.append(ca_file)


@pytest.fixture
def here(tmp_path: Path) -> paths.Paths:
    found = paths.Paths(str(tmp_path))
    os.makedirs(found.data_dir)
    for path in (found.noded_cert_file, found.noded_client_cert_file):
        fs.write_file(path, "the first one")
    return found


def test_new_certificates_are_used_from_the_next_call_on(here: paths.Paths) -> None:
    """The process has its client for longer than a job, and rests while others renew them."""
    trust, wire = Trust(process.surroundings(here).certificates), Wire()
    link: Any = SimpleNamespace(epoch="1 node1")
    config = cluster_of(1)
    # For a job, and for the next one.
    first, second = (JobRunner(lambda: config, wire, link, "t", trust) for _ in range(2))

    def call(runner: JobRunner) -> None:
        assert runner.call(calls.VERSION, uuid_of("node1")).payload() == 1

    with paths.override(here):
        call(first)
        assert wire.done == ["call"]
        fs.write_file(here.server_ca_file, "both are trusted")
        call(first)
        call(first)
        assert wire.done[1:] == [here.server_ca_file, "call", "call"]
        fs.write_file(here.noded_client_cert_file, "the second one")
        call(first)
        assert wire.done[4:] == [here.server_ca_file, "call"]
        # The next job of this process, after the end of the renewal.
        fs.remove_file(here.server_ca_file)
        call(second)
        call(second)
        assert wire.done[6:] == [here.noded_cert_file, "call", "call"]


def test_calls_have_the_epoch_and_the_release(here: paths.Paths) -> None:
    """A node refuses what it does not know, unless the release says that it is a newer one."""
    wire, trust = Wire(), Trust(lambda: None)
    link: Any = SimpleNamespace(epoch="1 node1")
    config = cluster_of(1)
    with paths.override(here):
        JobRunner(lambda: config, wire, link, "t", trust).call(calls.VERSION, uuid_of("node1"))
        assert f"{http.EPOCH_HEADER}: 1 node1" in wire.headers
        assert f"{http.RELEASE_HEADER}: {RELEASE}" in wire.headers
        link.epoch = "2 node1"
        JobRunner(lambda: config, wire, link, "t", trust).call(calls.VERSION, uuid_of("node1"))
        assert f"{http.EPOCH_HEADER}: 2 node1" in wire.headers
