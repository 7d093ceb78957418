"""Migrations of a real guest which break at each step: two guests never run at once.

The logical units of the master and the handlers of the nodes are the real ones, in this process
(:mod:`fakes.node_side`); the guests are those of a real QEMU. A :class:`Observer` listens to every
QEMU and notes when its guest runs. The guest itself says each second which boot it is and how long
it runs, and a number which both nodes have heard was said twice.

``make check`` breaks some steps, the long tests break each step in each way.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import shutil
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kvm_node import TOP, Node, find_qemu, wait_until

from fakes.config import cluster_of, disk_of, instance_of
from fakes.node_side import Cluster, Killed, NodeSide
from ganeti import errors
from ganeti.backend.instance import lifecycle
from ganeti.hypervisor.kvm import devices, migration, qmp
from ganeti.hypervisor.kvm.qmp import Qmp
from ganeti.opcodes import instance as ops
from ganeti.platform import paths
from ganeti.rpc import Result
from ganeti.wire.calls import Call

pytestmark = pytest.mark.skipif(
    not os.access(find_qemu(), os.X_OK), reason="QEMU (qemu-system-x86) is not installed"
)

WEB = "web.example.com"
NODES = ("node1.example.com", "node2.example.com")
# QEMU wants real ones.
UUID, DISK_UUID = "5d0f8a9e-0000-4000-8000-000000000001", "5d0f8a9e-0000-4000-8000-000000000002"
#: The calls of a migration at which it is broken, and how many of that name come before.
POINTS = (
    ("blockdev_assemble_multi", 0),
    ("accept_instance", 0),
    ("instance_migrate", 0),
    ("instance_get_migration_status", 0),
    ("instance_get_migration_status", 3),
    ("instance_finalize_migration_src", 0),
    ("instance_finalize_migration_dst", 0),
    ("blockdev_shutdown_multi", 0),
)
#: Those of :mod:`fakes.node_side`.
CALL_WAYS = ("kill", "lost", "fail", "cut")
#: A node cannot be reached any more; its guest goes on.
AWAY_WAYS = ("source-away", "target-away")
#: QEMU is killed, or does not answer.
QEMU_WAYS = ("source-dies", "target-dies", "source-hangs", "target-hangs")
#: Seconds which a QEMU that works has for an answer: it may be late on a loaded machine.
TIMEOUT_S = 4 * qmp.TIMEOUT_S
HANGS_CALLS = 30
#: Seconds after which a QEMU which hangs is given up.
HANGS_TIMEOUT_S = 3.0
QUICK = (
    ("lost", "instance_migrate", 0),
    ("fail", "instance_get_migration_status", 3),
    ("source-away", "instance_get_migration_status", 0),
    ("target-dies", "instance_get_migration_status", 0),
    ("kill", "instance_finalize_migration_dst", 0),
)


class Observer:
    """Listens to all QEMUs of some nodes; ``runs`` says when which guest ran."""

    def __init__(self, roots: list[Path]) -> None:
        self._roots = roots
        self._ended = threading.Event()
        self._heard: set[tuple[str, int]] = set()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        #: (pid file, begin, end or None) of each time that a guest ran.
        self.runs: list[list[Any]] = []
        self._start(self._look)

    def _start(self, what: Callable[..., None], *args: Any) -> None:
        thread = threading.Thread(target=what, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def end(self) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join(10)

    def _look(self) -> None:
        while not self._ended.wait(0.002):
            for root in self._roots:
                path = f"{paths.Paths(str(root)).kvm_root}/ctrl/{WEB}.kvmd"
                with contextlib.suppress(OSError):
                    known = (path, os.stat(path).st_ino)
                    if known not in self._heard:
                        listener = socket.socket(socket.AF_UNIX)
                        listener.connect(path)
                        self._heard.add(known)
                        self._start(self._listen, path, listener)

    def _listen(self, path: str, listener: socket.socket) -> None:
        run: list[Any] | None = None
        listener.settimeout(0.2)
        data = b""
        listener.sendall(b'{"execute": "qmp_capabilities"}\n{"execute": "query-status"}\n')
        while True:
            try:
                more = listener.recv(65536)
            except TimeoutError:
                if self._ended.is_set():
                    break
                continue
            except OSError:
                more = b""
            if not more:
                break
            *lines, data = (data + more).split(b"\n")
            for line in filter(None, lines):
                message = json.loads(line)
                stamp = message.get("timestamp", {})
                at = stamp.get("seconds", 0) + stamp.get("microseconds", 0) / 1e6
                answer = message.get("return")
                begins = message.get("event") == "RESUME"
                if isinstance(answer, dict) and answer.get("running"):
                    begins, at = True, time.time()
                if begins and run is None:
                    run = [path, at, None]
                    with self._lock:
                        self.runs.append(run)
                elif message.get("event") == "STOP" and run is not None:
                    run[2], run = at, None
        if run is not None:
            run[2] = time.time()
        listener.close()

    def check(self) -> None:
        """No two guests ran at one time."""
        with self._lock:
            runs = [(path, begin, end or time.time()) for path, begin, end in self.runs]
        for number, (path, begin, end) in enumerate(runs):
            for other, its_begin, its_end in runs[number + 1 :]:
                if path != other:
                    assert end <= its_begin or its_end <= begin, f"two ran at once: {runs}"


class RealSide(NodeSide):
    """Nodes with real guests, whose migration can be broken."""

    def __init__(self, config: Any, directory: Path) -> None:
        super().__init__(config, directory)
        self.point: tuple[str, int] | None = None
        self.way = ""
        self.source = self.target = NODES[0]
        self.away: set[str] = set()
        self.stopped: list[int] = []
        self._waited = 0
        self.broke = False
        self._seen: dict[str, int] = {}
        #: Called before each call.
        self.before: Callable[[str], None] = lambda name: None

    def arm(self, way: str, point: tuple[str, int], source: str) -> None:
        """Break the next migration."""
        self.way, self.point, self.source = way, point, source
        (self.target,) = set(NODES) - {source}
        self.broke = False
        self._seen.clear()

    def repair(self) -> None:
        """What was stopped or away is back."""
        self.point = None
        self.away.clear()
        self._go_on()

    def _go_on(self) -> None:
        self._waited = 0
        for pid in self.stopped:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        self.stopped.clear()
        qmp.TIMEOUT_S = TIMEOUT_S

    def pid(self, node: str) -> int | None:
        with paths.override(paths.Paths(str(self.root(node)))):
            info = lifecycle._driver("kvm").instance_info(WEB)
        return info.id if info else None

    def _one(self, call: Call, uuid: str, args: dict[str, Any]) -> Result:
        if not self.dead:
            self.before(call.name)
        if self.stopped:
            # A master waits as long as the source sends; a QEMU which hangs comes back once.
            self._waited += 1
            if self._waited > HANGS_CALLS:
                self._go_on()
        if self.point is not None and not self.broke and call.name == self.point[0]:
            count = self._seen.get(call.name, 0)
            self._seen[call.name] = count + 1
            if count == self.point[1]:
                self.broke = True
                self._break()
        node = self.config.node(uuid).name
        if node in self.away and not self.dead:
            failure = errors.NodeUnreachable(node, call.name, "no route to host")
            return Result(node, failure=failure)
        return super()._one(call, uuid, args)

    def _break(self) -> None:
        if self.way in CALL_WAYS:
            self.how, self.break_at = self.way, len(self.calls)
            return
        node = self.source if self.way.startswith("source") else self.target
        if self.way.endswith("away"):
            self.away.add(node)
            return
        pid = self.pid(node)
        if pid is None:
            return
        if self.way.endswith("hangs"):
            os.kill(pid, signal.SIGSTOP)
            self.stopped.append(pid)
            qmp.TIMEOUT_S = HANGS_TIMEOUT_S
        else:
            os.kill(pid, signal.SIGKILL)


class Lab:
    """Two nodes with one guest on shared storage."""

    def __init__(self, directory: Path, image: Path, **params: Any) -> None:
        disk = dataclasses.replace(disk_of("web"), size=16, uuid=DISK_UUID)
        model = Node(directory / "model", image).instance("model.example.com", **params)
        web = instance_of(
            "web",
            uuid=UUID,
            hypervisor="kvm",
            nics=(),
            disks=(disk.uuid,),
            beparams={"maxmem": 96, "minmem": 96, "vcpus": 1},
        )
        data = cluster_of(2, (web,), (disk,))
        hvp = {**data.cluster.hvparams, "kvm": dict(model.hvparams)}
        data = dataclasses.replace(
            data,
            cluster=dataclasses.replace(data.cluster, hvparams=hvp),
            nodes={
                uuid: dataclasses.replace(node, secondary_ip=f"127.0.0.3{number}")
                for number, (uuid, node) in enumerate(data.nodes.items(), 1)
            },
        )
        self.directory = directory
        self.cluster = Cluster(data, directory)
        for path in (directory / "shared", *(directory / name for name in NODES)):
            # The configuration's own runner has made them; that of the test makes them again.
            shutil.rmtree(path)
        self.side = RealSide(self.cluster.config, directory)
        self.cluster.rpc = self.cluster.config.node_side = self.side
        self.cluster._new_master()
        self.nodes = {name: Node(directory / name, image, directory / "shared") for name in NODES}
        self.observer = Observer([directory / name for name in NODES])
        guest = self.guest()
        self.nodes[NODES[0]].install(guest)

    def guest(self) -> Any:
        return self.cluster.config.filled_instance(self.cluster.config.instance(UUID))

    def primary(self) -> str:
        instance = self.cluster.config.instance(UUID)
        return str(self.cluster.config.node(instance.primary_node).name)

    def lines(self, node: str) -> list[tuple[str, int]]:
        return self.nodes[node].lines(self.guest())

    def lives(self) -> tuple[str, int]:
        """The guest on the primary node says something new; its last line."""
        node, before = self.primary(), len(self.lines(self.primary()))
        return self.nodes[node].wait_booted(self.guest(), before)

    def execute(self, node: str, command: str, arguments: dict[str, Any] | None = None) -> Any:
        """Execute a command in the QEMU of a node."""
        control = self.nodes[node].socket(self.guest(), "qmp")
        with Qmp(control, WEB) as connection:
            return connection.execute(command, arguments)

    def run_anew(self) -> None:
        """End the guest hard and start it again."""
        self.cluster.run(ops.OpInstanceShutdown(instance_name=WEB, timeout=0))
        self.cluster.run(ops.OpInstanceStartup(instance_name=WEB))
        self.lives()

    def migrate(self) -> BaseException | None:
        """Migrate to the other node; how it ended."""
        (target,) = set(NODES) - {self.primary()}
        op = ops.OpInstanceMigrate(instance_name=WEB, target_node=target, ignore_ipolicy=True)
        ended: BaseException | None = None
        try:
            self.cluster.processor.execute(op, self.cluster.new_job())
        except (Killed, errors.GenericError) as err:
            ended = err
        if self.side.dead:
            self.cluster._new_master()
        self.side.restart()
        return ended

    def recover(self) -> errors.GenericError | None:
        """As an administrator does: the clean-up, and a new start if that says that it is lost.

        :returns: why the clean-up failed.
        """
        self.side.repair()
        try:
            self.cluster.run(ops.OpInstanceMigrate(instance_name=WEB, cleanup=True))
        except errors.GenericError as err:
            self.observer.check()
            for node in NODES:
                # What does not answer any more is ended by hand.
                pid = self.side.pid(node)
                if pid is not None:
                    os.kill(pid, signal.SIGKILL)
                    wait_until(lambda at=node: self.side.pid(at) is None, "QEMU has ended")
            self.cluster.run(ops.OpInstanceShutdown(instance_name=WEB, timeout=0))
            self.cluster.run(ops.OpInstanceStartup(instance_name=WEB))
            return err
        return None

    def check(self) -> None:
        """No two guests ran, and no second of a boot passed twice."""
        self.observer.check()
        first, second = (self.lines(name) for name in NODES)
        assert not set(first) & set(second), "both nodes have seen one second of a boot"

    def destroy(self) -> None:
        self.side.repair()
        self.observer.end()
        for node in self.nodes.values():
            node.end_all()
        shutil.rmtree(self.directory, ignore_errors=True)


@pytest.fixture
def lab(image: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Lab]]:
    """Makes a cluster whose guest runs; parameters of the hypervisor."""
    monkeypatch.setenv(paths.ENV_VCLUSTER, str(TOP / "build"))
    monkeypatch.setattr(migration, "_STATUS_PAUSE_S", 0.05)
    monkeypatch.setattr(qmp, "TIMEOUT_S", TIMEOUT_S)
    # On one machine QEMU locks the disk, so that a second guest does not run. Between two machines
    # nothing does that.
    options = devices.file_options
    monkeypatch.setattr(
        devices,
        "file_options",
        lambda *args, **more: [*options(*args, **more), ("file.locking", "off")],
    )
    made: list[Lab] = []

    def make(**params: Any) -> Lab:
        directory = Path(tempfile.mkdtemp(prefix="gnt-mig-"))
        one = Lab(directory, image, **{"migration_bandwidth": 16, **params})
        made.append(one)
        one.cluster.run(ops.OpInstanceStartup(instance_name=WEB))
        one.lives()
        return one

    try:
        yield make
    finally:
        for one in made:
            one.destroy()


def broken(lab: Lab, way: str, point: tuple[str, int], *, sound: bool = True) -> None:
    """Break one migration of a guest which runs, and set it right.

    :param sound: the migration does not damage the guest.
    """
    boot = lab.lives()[0]
    source = lab.primary()
    lab.side.arm(way, point, source)
    ended = lab.migrate()
    assert lab.side.broke or ended is None, f"{point} was not reached: {ended}"
    lab.check()
    failure = lab.recover()
    lab.check()
    if sound:
        now = lab.lives()
        if way in CALL_WAYS:
            # No QEMU was lost, so the guest was not, either.
            assert now[0] == boot, f"{boot} was lost: {ended}; {failure}"
    else:
        lab.run_anew()
    lab.check()
    running = {name for name in NODES if lab.side.pid(name) is not None}
    assert running == {lab.primary()}


def test_the_observer_sees_two_guests(lab: Callable[..., Lab]) -> None:
    """Somebody continues both by hand."""
    one = lab()
    one.side.arm("kill", ("instance_finalize_migration_src", 0), one.primary())
    one.migrate()
    one.observer.check()
    for name in NODES:
        one.execute(name, "cont")

    def seen() -> bool:
        try:
            one.observer.check()
        except AssertionError:
            return True
        return False

    wait_until(seen, "the observer has seen both")


@pytest.mark.parametrize(("way", "name", "count"), QUICK)
def test_two_guests_never_run(lab: Callable[..., Lab], way: str, name: str, count: int) -> None:
    broken(lab(), way, (name, count))


@pytest.mark.long
@pytest.mark.parametrize("way", (*CALL_WAYS, *AWAY_WAYS, *QEMU_WAYS))
@pytest.mark.parametrize("emulated", [True, False])
def test_two_guests_never_run_wherever_it_breaks(
    lab: Callable[..., Lab], monkeypatch: pytest.MonkeyPatch, way: str, emulated: bool
) -> None:
    """Each step; the guest stands still while it is sent, as emulated guests do, or runs.

    The emulation may lose writes of a guest which runs meanwhile, so that it panics or spins on the
    target. Such a guest is started anew.
    """
    monkeypatch.setattr(migration, "_is_emulated", lambda layout: emulated)
    one = lab()
    for point in POINTS:
        try:
            broken(one, way, point, sound=emulated)
        except AssertionError as err:
            raise AssertionError(f"{way} at {point}: {err}") from err


@pytest.mark.long
@pytest.mark.parametrize("event", ["breaks", "source-dies", "target-dies"])
def test_with_postcopy_the_source_never_runs_on(
    lab: Callable[..., Lab], monkeypatch: pytest.MonkeyPatch, event: str
) -> None:
    """The connection breaks, or a QEMU is lost, after the target got the guest."""
    monkeypatch.setattr(migration, "_is_postcopy_due", lambda answer, hvparams: True)
    one = lab(migration_caps="postcopy-ram", migration_bandwidth=1)
    boot = one.lives()[0]
    source, target = NODES

    def execute(command: str, arguments: dict[str, Any] | None = None) -> Any:
        return one.execute(source, command, arguments)

    def before(name: str) -> None:
        if name == "instance_migrate":
            execute("migrate-set-parameters", {"max-postcopy-bandwidth": 1 << 20})
        elif name == "instance_get_migration_status" and one.primary() == target:
            one.side.before = lambda name: None
            # Before, QEMU on the target still reads the state of the devices, and ends.
            wait_until(
                lambda: one.execute(target, "query-status")["status"] == "paused",
                "the guest is on the target",
            )
            if event == "breaks":
                execute("migrate-pause")
            else:
                pid = one.side.pid(source if event == "source-dies" else target)
                assert pid is not None
                os.kill(pid, signal.SIGKILL)

    one.side.before = before
    ended = one.migrate()
    assert isinstance(ended, errors.OpExecError)
    assert re.search(f"is on node {target} now.*--cleanup", str(ended)), ended
    assert one.primary() == target
    one.check()
    if event == "breaks":
        execute("migrate-set-parameters", {"max-postcopy-bandwidth": 0})
        one.cluster.run(ops.OpInstanceMigrate(instance_name=WEB, cleanup=True))
        assert one.lives()[0] == boot
    else:
        with pytest.raises(errors.OpExecError, match="gnt-instance shutdown"):
            one.cluster.run(ops.OpInstanceMigrate(instance_name=WEB, cleanup=True))
        one.recover()
        assert one.lives()[0] != boot
    one.check()
    assert [name for name in NODES if one.side.pid(name) is not None] == [one.primary()]
