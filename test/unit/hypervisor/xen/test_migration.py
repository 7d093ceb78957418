"""Migration between two nodes with a fake ``xl`` each, by the real program over TLS.

Every run sends a guest once, and tries what is refused before anything is sent. The tests which
send guests in all other ways are long.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import json
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fakes import xen_node
from fakes.xen_node import XenNode, driver, instance, nic
from ganeti import errors
from ganeti.helpers import xen_transfer
from ganeti.hypervisor import base
from ganeti.hypervisor.net import interfaces
from ganeti.hypervisor.xen import migration, record, transfer
from ganeti.hypervisor.xen.transfer import Transfer
from ganeti.objects.instance import FilledInstance
from ganeti.utils import retry

pytestmark = pytest.mark.programs
#: Each transfer starts two programs of Python and several of a fake ``xl``: one to two seconds.
sends = pytest.mark.long
ADDRESS = "127.0.0.1"


class Pair:
    """Source and target, and the guest which moves."""

    def __init__(self, root: Path) -> None:
        self.source, self.target = XenNode(root / "source"), XenNode(root / "target")
        with socket.socket() as probe:
            probe.bind((ADDRESS, 0))
            port = probe.getsockname()[1]
        self.guest: FilledInstance = instance(nics=(nic(),), migration_port=port)
        with self.source.here():
            driver().start(self.guest, [self.source.disk()])

    def info(self) -> Any:
        with self.source.here():
            driver().migration.check(self.guest)
            return driver().migration.info(self.guest)

    def place(self, *, any_port: bool = False) -> base.Place:
        return base.Place(ADDRESS, int(self.guest.hvparams["migration_port"]), any_port)

    def accept(self, info: Any, *, any_port: bool = False) -> int | None:
        with self.target.here():
            return driver().migration.accept(
                self.guest, info, self.place(any_port=any_port), [self.target.disk()]
            )

    def send(self, *, live: bool) -> str:
        """Send the guest and wait until the source says how it ended."""
        with self.source.here():
            driver().migration.send("cluster", self.guest, self.place(), live=live)
        return self.ended()

    def ended(self) -> str:
        def attempt() -> str:
            with self.source.here():
                status = driver().migration.status(self.guest).status
            if status == "active":
                raise retry.Again
            return status

        return retry.until(attempt, timeout_s=60, delay=0.02)

    def finish_source(self, *, success: bool) -> None:
        with self.source.here():
            driver().migration.finalize_source(self.guest, success=success, live=True)

    def finish_target(self, *, success: bool) -> None:
        with self.target.here():
            driver().migration.finalize_target(self.guest, None, success=success)

    def running(self) -> list[str]:
        """The nodes on which the guest runs an instruction."""
        nodes = {"source": self.source, "target": self.target}
        return [
            name
            for name, node in nodes.items()
            for domain in node.domains().values()
            if domain["state"] in ("-b----", "r-----")
        ]

    def end(self) -> None:
        for node in (self.source, self.target):
            node.behave()
            with node.here():
                transfer.end_program("web1")


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    xen_node.plain_disks(monkeypatch)
    monkeypatch.setattr(interfaces, "finish_incoming", lambda nics, guest: None)
    found = Pair(tmp_path)
    yield found
    found.end()


@pytest.mark.parametrize("live", [pytest.param(True, marks=sends), False])
def test_a_guest_moves(pair: Pair, live: bool) -> None:
    pair.accept(pair.info())
    with pair.target.here():
        # The target waits: the guest does not run there.
        (waiting,) = driver().all_info()
        assert (waiting.name, waiting.state) == ("web1", base.SHUTDOWN)
        assert driver().list_instances() == []
    assert pair.send(live=live) == "completed"
    assert pair.running() == []
    with pair.source.here():
        status = driver().migration.status(pair.guest)
        assert status.total_ram == 128 << 20 and (status.transferred_ram or 0) > 200_000
    with pair.target.here():
        # It has arrived, and the source's report says that it has sent it.
        assert driver().migration.status(pair.guest).status == "completed"
        assert driver().migration.status(pair.guest).total_ram is None
    pair.finish_source(success=True)
    pair.finish_target(success=True)
    assert pair.running() == ["target"]
    assert pair.source.domains() == {}
    assert pair.source.files() == []
    assert pair.target.files() == [
        "etc/xen/web1",
        "var/run/ganeti/xen-hypervisor/conf/web1.json",
    ]
    # Once more, as after an answer which was lost.
    pair.finish_source(success=True)
    pair.finish_target(success=True)
    assert pair.running() == ["target"]


@sends
def test_a_guest_moves_there_and_back(pair: Pair) -> None:
    pair.accept(pair.info())
    assert pair.send(live=True) == "completed"
    pair.finish_source(success=True)
    pair.finish_target(success=True)
    pair.source, pair.target = pair.target, pair.source
    pair.accept(pair.info())
    assert pair.send(live=False) == "completed"
    pair.finish_source(success=True)
    pair.finish_target(success=True)
    assert pair.running() == ["target"]


@sends
def test_a_source_which_has_sent_the_guest_never_runs_it(pair: Pair) -> None:
    pair.accept(pair.info())
    assert pair.send(live=False) == "completed"
    with pytest.raises(errors.HypervisorError, match="was, or may have been, sent"):
        pair.finish_source(success=False)
    with pair.source.here():
        with pytest.raises(errors.HypervisorError, match="sent"):
            driver().migration.send("cluster", pair.guest, pair.place(), live=False)
        # The master starts the instance here: what was sent is removed first.
        assert not driver().complete_start(pair.guest)
    assert pair.running() == []


@sends
def test_a_target_never_ends_a_guest_which_is_its_own(pair: Pair) -> None:
    pair.accept(pair.info())
    assert pair.send(live=True) == "completed"
    with pytest.raises(errors.HypervisorError, match="has arrived on this node"):
        pair.finish_target(success=False)
    assert "web1" in pair.target.domains()
    with pair.target.here():
        # The master has recorded the new node, and lets the guest run.
        assert driver().complete_start(pair.guest)
    assert pair.running() == ["target"]


@sends
@pytest.mark.parametrize(
    ("node", "command", "live", "mode"),
    [
        ("source", "save", False, "exit"),
        ("source", "save", False, "late"),
        ("source", "migrate", True, "exit"),
        ("target", "restore", False, "exit"),
        ("target", "restore", False, "late"),
        ("target", "restore", True, "exit"),
        ("target", "restore", True, "late"),
        # It ends without an error, and without a domain.
        ("target", "restore", False, "lose"),
        ("target", "restore", True, "lose"),
        ("target", "restore", True, "garbage"),
    ],
)
def test_a_broken_transfer_lets_the_guest_run_on(
    pair: Pair, node: str, command: str, live: bool, mode: str
) -> None:
    pair.accept(pair.info())
    getattr(pair, node).misbehave(command, mode)
    assert pair.send(live=live) == "failed"
    with pair.source.here():
        state = transfer.find("web1")
        assert state is not None and state.error
        assert driver().migration.status(pair.guest).error == state.error
    pair.end()
    pair.finish_target(success=False)
    assert pair.target.domains() == {}
    assert pair.target.files() == []
    pair.finish_source(success=False)
    assert pair.running() == ["source"]
    # The next attempt works.
    pair.accept(pair.info())
    assert pair.send(live=live) == "completed"


def test_a_guest_belongs_to_the_target_before_it_is_told(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The target may run the guest from the first byte of the word on, so it is recorded before."""
    with pair.source.here():
        domain = int(pair.source.domains()["web1"]["id"])
        progress = xen_transfer.Progress(
            "web1", Transfer(direction=transfer.OUT, status=transfer.ACTIVE)
        )

        class Broken(xen_transfer.Peer):
            """A target whose connection breaks while it gets the last word."""

            def __init__(self) -> None:
                self.got = b""

            def receive(self, wanted: bytes, what: str) -> None:
                pass

            def send(self, data: bytes | memoryview) -> None:
                if bytes(data) == xen_transfer.GO:
                    state = transfer.find("web1")
                    assert state is not None and state.sent
                    raise ConnectionResetError
                self.got += bytes(data)

        peer = Broken()
        with pytest.raises(ConnectionResetError):
            xen_transfer.send_paused(peer, domain, progress)
        assert peer.got and progress.state.sent


@sends
def test_a_live_migration_whose_last_answer_is_lost_counts_as_sent(pair: Pair) -> None:
    pair.accept(pair.info())
    pair.source.misbehave("migrate", "late")
    assert pair.send(live=True) == "completed"
    with pytest.raises(errors.HypervisorError, match="sent to another node"):
        pair.finish_source(success=False)
    pair.finish_source(success=True)
    pair.finish_target(success=True)
    assert pair.running() == ["target"]


@sends
@pytest.mark.parametrize("live", [True, False])
def test_a_transfer_is_canceled(pair: Pair, live: bool) -> None:
    pair.accept(pair.info())
    pair.target.misbehave("restore", "hang")
    with pair.source.here():
        driver().migration.send("cluster", pair.guest, pair.place(), live=live)
        # The same call again, as after an answer which was lost.
        driver().migration.send("cluster", pair.guest, pair.place(), live=live)
    pair.finish_target(success=False)
    pair.target.behave()
    assert pair.ended() == "failed"
    pair.finish_source(success=False)
    assert pair.running() == ["source"]
    assert pair.target.domains() == {}


def test_without_a_target_nothing_is_sent(pair: Pair) -> None:
    pair.info()
    assert pair.send(live=False) == "failed"
    pair.finish_source(success=False)
    assert pair.running() == ["source"]


def test_a_migration_needs_its_preparation(pair: Pair) -> None:
    with pair.source.here():
        assert driver().migration.status(pair.guest).status == "none"
        with pytest.raises(errors.HypervisorError, match="was not prepared"):
            driver().migration.send("cluster", pair.guest, pair.place(), live=True)
    pair.finish_source(success=False)
    assert pair.running() == ["source"]


@sends
def test_only_the_key_of_this_migration_opens_the_connection(pair: Pair) -> None:
    first = pair.info()
    pair.accept(first)
    # The source forgets the first key; the target expects it.
    pair.info()
    assert pair.send(live=False) == "failed"
    with pair.target.here():
        assert driver().migration.status(pair.guest).status == "active"
    pair.finish_target(success=False)
    pair.finish_source(success=False)
    assert pair.running() == ["source"]


def test_idle_peers_do_not_delay_the_source(pair: Pair) -> None:
    """They connect first and stay, more of them than are authenticated at the same time."""
    pair.accept(pair.info())
    port = int(pair.guest.hvparams["migration_port"])
    with contextlib.ExitStack() as stack:
        for _ in range(70):
            stack.enter_context(socket.create_connection((ADDRESS, port)))
        assert pair.send(live=False) == "completed"
    pair.finish_source(success=True)
    pair.finish_target(success=True)
    assert pair.running() == ["target"]


def test_an_unresponsive_target_does_not_hold_the_guest(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The source gives up before it stops the guest, also when single bytes come slowly."""
    with socket.create_server((ADDRESS, 0)) as listener, pair.source.here():
        pair.info()
        monkeypatch.setattr(xen_transfer, "_CONNECT_S", 0.3)
        listener.settimeout(60)
        port = listener.getsockname()[1]
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            connecting = pool.submit(xen_transfer.connect, "web1", ADDRESS, port)
            silent, _ = listener.accept()
            with silent, contextlib.suppress(OSError):
                silent.sendall(b"\x16\x03\x03\x40\x00\x02\x00\x3f\xfc")
                while not connecting.done():
                    silent.sendall(b"\0")
                    concurrent.futures.wait([connecting], timeout=0.02)
            assert isinstance(connecting.exception(timeout=60), OSError)
    assert pair.running() == ["source"]


def test_a_busy_port_is_an_error_which_leaves_nothing(pair: Pair) -> None:
    port = int(pair.guest.hvparams["migration_port"])
    with socket.socket() as other:
        other.bind((ADDRESS, port))
        other.listen()
        with pytest.raises(errors.HypervisorError, match="did not begin.*in use"):
            pair.accept(pair.info())
        assert pair.target.files() == []
        # A source of this release learns of another port.
        found = pair.accept(pair.info(), any_port=True)
        assert found is not None and found > port
    pair.finish_target(success=False)
    assert pair.target.files() == []


@pytest.mark.parametrize(
    "info", [None, "text", {}, {"record": "x"}, {"record": 1, "certificate": "a", "peer": "b"}]
)
def test_damaged_data_are_refused(pair: Pair, info: Any) -> None:
    with pytest.raises(errors.HypervisorError, match="migration data of instance web1"):
        pair.accept(info)
    assert pair.target.files() == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"uuid": "another"}, "those of another instance"),
        ({"hypervisor": "xen-hvm"}, "those of another instance"),
        ({"memory": 0}, "damaged"),
        ({"vcpus": 1 << 20}, "damaged"),
        ({"disks": [[{"uuid": "other"}, "/dev/sda", "xvda"]]}, "runs with disk 'other'"),
        ({"disks": [[{"uuid": "d0"}, "/x", "xvda,script=/evil"]]}, "runs with disk"),
        ({"disks": [[{"uuid": "d0"}, "/x", "xvda"]] * 2}, "damaged"),
        ({"nics": [[{"uuid": "other"}, 0]]}, "runs with NIC 'other'"),
        ({"nics": [[{"uuid": "n0"}, -1]]}, "runs with NIC"),
    ],
)
def test_the_target_accepts_nothing_but_the_hardware(
    pair: Pair, change: dict[str, Any], message: str
) -> None:
    info = pair.info()
    info["record"] = json.dumps({**json.loads(info["record"]), **change})
    with pytest.raises(errors.HypervisorError, match=message):
        pair.accept(info)
    assert pair.target.files() == []


def test_the_target_takes_programs_and_devices_from_its_own_side(pair: Pair) -> None:
    with pair.source.here():
        source = record.load("web1")
    evil = replace(
        source,
        hvparams={**source.hvparams, "kernel_path": "/evil", "vif_script": "/evil"},
        disks=tuple(replace(one, path="/dev/sda", vdev="xvdq"[:3] + "b") for one in source.disks),
    )
    found = migration.adopt(evil, pair.guest, [pair.target.disk()])
    assert "/evil" not in json.dumps(found.dumps())
    assert [(one.path, one.vdev) for one in found.disks] == [
        (str(pair.target.root / "dev/d0"), "xvdb")
    ]


def test_another_type_needs_a_restart(pair: Pair) -> None:
    info = pair.info()
    pair.guest = xen_node.with_params(pair.guest, type="pvh")
    with pytest.raises(errors.HypervisorError, match="runs as type pv, and its parameter"):
        pair.accept(info)


def test_a_guest_with_a_device_of_its_node_stays(pair: Pair) -> None:
    with pair.source.here():
        known = record.load("web1")
        record.save(replace(known, hvparams={**known.hvparams, "pci_pass": "01:00.0"}))
        with pytest.raises(errors.HypervisorError, match="pci_pass"):
            driver().migration.check(pair.guest)


@pytest.mark.parametrize(("sent", "status"), [(True, "completed"), (False, "failed")])
def test_the_end_of_a_program_which_could_not_write_it(
    pair: Pair, *, sent: bool, status: str
) -> None:
    """A program which was killed wrote no end; what it had sent decides which it is."""
    with pair.source.here():
        transfer.write("web1", Transfer(direction=transfer.OUT, status=transfer.ACTIVE, sent=sent))
        assert driver().migration.status(pair.guest).status == status
