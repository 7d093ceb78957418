"""The duties on every node: hooks, daemons, and a node which is marked offline."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fakes.tls_lab import clock_of_maker
from ganeti import errors, hypervisor
from ganeti.confd import Client
from ganeti.confd.client import Answer
from ganeti.constants import confd as confd_c
from ganeti.platform import paths
from ganeti.storage.drbd import leftover
from ganeti.tools import daemon_units, daemon_util
from ganeti.utils import x509
from ganeti.watcher import node


class Confd(Client):
    """A configuration query daemon with one answer."""

    def __init__(self, answer: int | None, status: int = confd_c.STATUS_OK) -> None:
        self.answer, self.status = answer, status

    def query(self, kind: int, query: object = None, *, coverage: int = 6) -> Answer:
        assert (kind, query) == (confd_c.REQ_NODE_ROLE, "node1.example.com")
        if self.answer is None:
            raise errors.ConfdClientError("none of them answered")
        return Answer(self.status, self.answer, 1, "127.0.9.1", 1, 1)


@pytest.mark.parametrize(
    ("answer", "status", "offline"),
    [
        (confd_c.ROLE_OFFLINE, confd_c.STATUS_OK, True),
        (confd_c.ROLE_REGULAR, confd_c.STATUS_OK, False),
        (confd_c.ROLE_MASTER, confd_c.STATUS_OK, False),
        (confd_c.ROLE_OFFLINE, confd_c.STATUS_ERROR, False),
        (None, confd_c.STATUS_OK, False),
    ],
)
def test_offline_is_what_a_daemon_says_and_nothing_else(
    answer: int | None, status: int, offline: bool, here: paths.Paths
) -> None:
    assert node.is_marked_offline(lambda: Confd(answer, status)) is offline


@pytest.fixture
def guests(here: paths.Paths, monkeypatch: pytest.MonkeyPatch) -> Iterator[set[str]]:
    """Two running guests of the fake hypervisor; no DRBD devices."""
    monkeypatch.setattr(leftover, "take_down_all", lambda: iter(()))
    running = Path(here.fake_root)
    running.mkdir(parents=True)
    for name in ("web1", "web2"):
        (running / name).write_text("1\n", encoding="ascii")
    monkeypatch.setattr(hypervisor.of("fake").__class__, "list_instances", lambda _: sorted(names))
    names = {"web1", "web2"}

    def stop(_: object, name: str, hvparams: object, *, force: bool = False) -> None:
        assert force
        if name == "web1":
            raise errors.HypervisorError("hangs")
        names.discard(name)

    monkeypatch.setattr(hypervisor.of("fake").__class__, "stop", stop)
    yield names


def maintained(here: paths.Paths, wanted: bool) -> None:
    Path(here.ssconf_file("maintain_node_health")).write_text(f"{wanted}\n", encoding="ascii")


@pytest.mark.parametrize(("wanted", "offline"), [(False, True), (True, False), (False, False)])
def test_guests_of_other_nodes_are_left_alone(
    wanted: bool, offline: bool, guests: set[str], here: paths.Paths
) -> None:
    maintained(here, wanted)
    node.maintain_health(dry_run=False, is_offline=lambda: offline)
    assert guests == {"web1", "web2"}


def test_guests_of_an_offline_node_are_stopped_even_if_one_hangs(
    guests: set[str],
    here: paths.Paths,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    maintained(here, True)
    minors = [(0, None), (1, "it is in use")]
    monkeypatch.setattr(leftover, "take_down_all", lambda: iter(minors))
    with caplog.at_level(logging.INFO):
        node.maintain_health(dry_run=False, is_offline=lambda: True)
    assert guests == {"web1"}
    assert "instance web1 cannot be stopped: hangs" in caplog.text
    assert "DRBD minor 0: taken down" in caplog.text
    assert "DRBD minor 1 cannot be taken down: it is in use" in caplog.text


def test_a_dry_run_stops_no_guest(
    guests: set[str], here: paths.Paths, capsys: pytest.CaptureFixture[str]
) -> None:
    maintained(here, True)
    node.maintain_health(dry_run=True, is_offline=lambda: True)
    assert guests == {"web1", "web2"}
    assert "Instance web1 would be stopped" in capsys.readouterr().out


def daemons(
    monkeypatch: pytest.MonkeyPatch, running: set[str], start: Callable[[str], int]
) -> list[str]:
    """Replace the daemons of this node; returns the list of those which are started."""
    started: list[str] = []

    def begin(name: str) -> int:
        started.append(name)
        return start(name)

    monkeypatch.setattr(daemon_util, "installed", lambda: list(daemon_util.START_ORDER))
    monkeypatch.setattr(daemon_util, "is_running", lambda name: name in running)
    monkeypatch.setattr(daemon_util, "start", begin)
    return started


def test_daemons_which_do_not_run_are_started_except_those_of_the_master(
    here: paths.Paths, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def start(name: str) -> int:
        if name == "ganeti-confd":
            raise errors.ConfigurationError("not installed")
        return 1 if name == "ganeti-noded" else 0

    started = daemons(monkeypatch, {"ganeti-mond"}, start)
    node.start_daemons(dry_run=False)
    # ganeti-kvmd and ganeti-metad are not wanted here.
    assert started == ["ganeti-noded", "ganeti-confd"]
    assert "ganeti-noded cannot be started (exit code 1); see" in caplog.text
    assert "ganeti-confd cannot be started: not installed" in caplog.text


def test_a_daemon_which_systemd_is_starting_is_not_waited_for(
    here: paths.Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = daemons(monkeypatch, {"ganeti-noded"}, lambda name: 0)
    monkeypatch.setattr(daemon_units, "is_starting", lambda name: name == "ganeti-confd")
    node.start_daemons(dry_run=False)
    assert "ganeti-confd" not in started
    monkeypatch.setattr(daemon_units, "is_starting", lambda name: False)
    node.start_daemons(dry_run=False)
    assert "ganeti-confd" in started


def test_a_dry_run_starts_no_daemon(
    here: paths.Paths, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    started = daemons(monkeypatch, set(), lambda name: 0)
    node.start_daemons(dry_run=True)
    assert started == []
    assert "The daemon ganeti-noded would be started." in capsys.readouterr().out


@pytest.mark.programs
def test_hooks(
    here: paths.Paths, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OF_THE_TIMER", "yes")
    directory = Path(here.hooks_base_dir) / "watcher"
    directory.mkdir(parents=True)
    for name, text in (
        ("10-first", "#!/bin/sh\necho first $OF_THE_TIMER"),
        ("20-fails", "#!/bin/sh\necho broken\nexit 3"),
        ("30-last", "#!/bin/sh\necho last"),
        ("README.txt", "no script"),
    ):
        (directory / name).write_text(f"{text}\n", encoding="ascii")
        os.chmod(directory / name, 0o755)
    with caplog.at_level(logging.INFO):
        node.run_hooks(dry_run=False)
    assert [record.getMessage() for record in caplog.records if "hook " in record.getMessage()] == [
        "hook watcher/10-first has run: first yes",
        "hook watcher/20-fails has failed: broken",
        "hook watcher/30-last has run: last",
    ]


def test_no_hooks(here: paths.Paths, capsys: pytest.CaptureFixture[str]) -> None:
    node.run_hooks(dry_run=False)
    node.run_hooks(dry_run=True)
    assert capsys.readouterr().out == ""


def test_certificates_which_expire_are_reported(
    here: paths.Paths, caplog: pytest.LogCaptureFixture
) -> None:
    os.makedirs(here.data_dir, exist_ok=True)
    for path, age in (
        (here.noded_cert_file, 1825 + 1),
        (here.noded_client_cert_file, 1825 - 20),
        (here.rapi_cert_file, 1825 - 40),
    ):
        with clock_of_maker(-age):
            Path(path).write_text(x509.create_self_signed())
    node.report_certificates()
    said = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert [level for level, _text in said] == ["ERROR", "WARNING"]
    assert f"{here.noded_cert_file} expired on" in said[0][1]
    assert f"{here.noded_client_cert_file} expires in" in said[1][1]
    os.unlink(here.rapi_cert_file)
    Path(here.noded_cert_file).write_text("damaged")
    caplog.clear()
    node.report_certificates()
    assert "holds no certificate" in caplog.text
