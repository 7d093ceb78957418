"""The configuration query daemon as a process, and what tells it that files change."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.confd_node import KEY, node, write
from ganeti import errors
from ganeti.confd import Client
from ganeti.constants import confd as const
from ganeti.platform import paths
from ganeti.utils import fs, inotify

PROGRAM = str(Path(__file__).parents[3] / "daemons" / "ganeti-confd")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[paths.Paths]:
    yield from node(tmp_path, monkeypatch)


def test_changes_are_noticed(tmp_path: Path) -> None:
    watch = inotify.watch(str(tmp_path))
    if watch is None:
        pytest.skip("no inotify on this machine")
    assert watch.take() == set()
    fs.write_file(str(tmp_path / "config.data"), "x")
    assert "config.data" in watch.take()
    (tmp_path / "config.data").unlink()
    assert watch.take() == {"config.data"}
    watch.close()


def test_what_cannot_be_watched(tmp_path: Path) -> None:
    assert inotify.watch(str(tmp_path / "nothing")) is None


@pytest.mark.programs
def test_the_daemon(here: paths.Paths) -> None:
    env = {**os.environ, "PYTHONPATH": str(Path(PROGRAM).parents[1] / "lib")}
    refused = subprocess.run(
        [sys.executable, PROGRAM, "-f"], env=env, capture_output=True, text=True, check=False
    )
    assert refused.returncode == 1 and "belongs to no cluster" in refused.stderr
    write(here, "one.example.com")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    child = subprocess.Popen(
        [sys.executable, PROGRAM, "-f", "-p", str(port)], env=env, stderr=subprocess.DEVNULL
    )
    try:
        client = Client(KEY.encode(), ["127.0.0.1"], port=port, expire_s=0.5)
        deadline = time.monotonic() + 60
        answer = None
        while answer is None:
            assert time.monotonic() < deadline
            try:
                answer = client.query(const.REQ_CONFIG, "/cluster/cluster_name")
            except errors.ConfdClientError:  # it is starting
                assert child.poll() is None
        assert answer.answer == "one.example.com"
        write(here, "two.example.com", serial=2)
        while answer.answer != "two.example.com":
            assert time.monotonic() < deadline
            answer = client.query(const.REQ_CONFIG, "/cluster/cluster_name")
        assert answer.serial == 2
        child.send_signal(signal.SIGTERM)
        assert child.wait(60) == 0
    finally:
        child.kill()
        child.wait()
    assert "answered" in Path(here.log_file("ganeti-confd")).read_text()
