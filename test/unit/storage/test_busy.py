"""A disk on which a program works is used by nothing else, until the last process has ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes.transfer_options import keyed
from ganeti import errors, hypervisor, storage
from ganeti.backend.backup import transfers
from ganeti.backend.instance import lifecycle
from ganeti.backend.instance import os as os_definitions
from ganeti.backend.storage import blockdev, convert, disk_content
from ganeti.objects import Disk, FilledInstance, disk_templates
from ganeti.objects.transfer import OS
from ganeti.platform import paths
from ganeti.storage import busy
from ganeti.utils import process
from ganeti.wire.calls import backup as calls

MIB = 1 << 20
BASE = "/srv/ganeti/file-storage/web1"

#: Another program of this node which works on a disk until its input ends.
WORKER = """
import json, sys
from ganeti.objects import Disk
from ganeti.storage import busy
with busy.working_on(Disk(**json.loads(sys.argv[1])), doing="being restored from snapshot a"):
    print("ready", flush=True)
    sys.stdin.read()
"""

#: One which has another program do the work.
WITH_PROGRAM = """
import json, os, sys
from ganeti.objects import Disk
from ganeti.storage import busy
from ganeti.utils import process, x509
with busy.working_on(Disk(**json.loads(sys.argv[1])), doing="being wiped") as work:
    print("ready", flush=True)
    words = ["sh", "-c", f"echo $$ >&{os.dup2(1, 9)}; exec sleep 1000"]
    process.run(words, timeout_s=None, keep_fds=(*work.fds, 9))
"""


@pytest.fixture
def here(tmp_path: Path) -> Iterator[paths.Paths]:
    """A node of a virtual cluster."""
    with paths.override(paths.Paths(str(tmp_path / "node1"))) as found:
        os.makedirs(found.to_local(BASE))
        yield found


def file_disk(here: paths.Paths, name: str = "disk0") -> Disk:
    disk = Disk(dev_type="file", logical_id=("loop", f"{BASE}/{name}"), size=2, uuid=name)
    Path(here.to_local(f"{BASE}/{name}")).write_bytes(b"1" * 2 * MIB)
    return disk


def instance_with(*disks: Disk) -> FilledInstance:
    values: dict[str, Any] = {field: None for field in FilledInstance.__dataclass_fields__}
    values |= {
        "name": "web1.example.com",
        "hypervisor": "fake",
        "os": "tiny",
        "hvparams": {},
        "beparams": {},
        "nics": (),
        "disks_info": disks,
    }
    return FilledInstance(**values)


@pytest.fixture
def worker(here: paths.Paths) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Start a process which works on a disk."""
    running: list[subprocess.Popen[bytes]] = []

    def start(disk: Disk, program: str = WORKER) -> subprocess.Popen[bytes]:
        given = json.dumps(
            {"dev_type": disk.dev_type, "logical_id": list(disk.logical_id), "size": disk.size}
        )
        child = subprocess.Popen(
            [sys.executable, "-c", program, given],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={
                **os.environ,
                paths.ENV_ROOT: here.root,
                "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            },
        )
        running.append(child)
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        return child

    yield start
    for child in running:
        child.kill()
        child.communicate()


def operations(here: paths.Paths, disk: Disk, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Everything which must not happen to a disk while a program works on it."""
    instance = instance_with(disk)
    other = file_disk(here, "other")
    options = keyed()
    definition = OS(name="tiny", path=here.root, create_script="/bin/true", api_versions=(20,))

    class Driver:
        def is_running(self, name: str) -> bool:
            return False

    monkeypatch.setattr(hypervisor, "of", lambda _name: Driver())
    return {
        "start": lambda: lifecycle.start(instance, False, []),
        "accept": lambda: lifecycle.accept_instance(instance, None, "192.0.2.1"),
        "activate": lambda: blockdev.assemble(disk, instance, True, 0),
        "open": lambda: blockdev.open_disks("web1", [disk], True),
        "remove": lambda: blockdev.remove(disk),
        "grow": lambda: blockdev.grow(disk, 1, False, True, False),
        "rename": lambda: blockdev.rename([(disk, ("loop", f"{BASE}/new"))]),
        "wipe": lambda: disk_content.wipe(disk, 0, 1),
        "image": lambda: disk_content.image(disk, sys.executable, 2),
        "snapshot": lambda: disk_content.keep_snapshot(disk, "b", 0, True),
        "restore": lambda: disk_content.restore_snapshot(disk, "a"),
        "copy from": lambda: convert.convert(disk, other),
        "copy to": lambda: convert.convert(other, disk),
        "import": lambda: transfers.import_start(options, instance, "d", (calls.RAW, disk)),
        "export": lambda: transfers.export_start(
            options, "127.0.0.1", 1, instance, "d", (calls.RAW, disk)
        ),
        "script": lambda: os_definitions.run_logged(
            definition, "/bin/true", "add", instance, {"PATH": "/bin"}
        ),
    }


NAMES = (
    "start", "accept", "activate", "open", "remove", "grow", "rename", "wipe", "image", "snapshot",
    "restore", "copy from", "copy to", "import", "export", "script",
)  # fmt: skip


@pytest.mark.programs
@pytest.mark.parametrize("name", NAMES)
def test_nothing_else_uses_the_disk(
    name: str,
    here: paths.Paths,
    worker: Callable[..., subprocess.Popen[bytes]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = file_disk(here)
    disk_content.keep_snapshot(disk, "a", 0, at_rest=True)
    found = operations(here, disk, monkeypatch)
    assert set(found) == set(NAMES)
    monkeypatch.setattr(busy, "_PATIENCE_S", 0.0)
    child = worker(disk)
    before = Path(storage.device(disk).path).read_bytes()
    with pytest.raises(errors.BlockDeviceError) as caught:
        found[name]()
    text = str(caught.value)
    assert "disk0: it is being restored from snapshot a since 20" in text
    assert f"process {child.pid} (python" in text and f"'kill {child.pid}'" in text
    assert Path(storage.device(disk).path).read_bytes() == before
    # The kernel releases the lock with the process, in whatever way that ends.
    child.send_signal(signal.SIGKILL)
    child.wait()
    busy.require_idle(disk)


def test_a_running_guest_keeps_its_links(
    here: paths.Paths, worker: Callable[..., subprocess.Popen[bytes]]
) -> None:
    disk = file_disk(here)
    lifecycle.attach_disks(instance_with(disk))
    link = here.instance_disk_link("web1.example.com", 0)
    worker(disk)
    with pytest.raises(errors.BlockDeviceError, match="being restored"):
        lifecycle.attach_disks(instance_with(disk))
    assert os.path.islink(link)


@pytest.mark.programs
def test_a_program_keeps_the_lock_when_its_starter_dies(
    here: paths.Paths, worker: Callable[..., subprocess.Popen[bytes]]
) -> None:
    disk = file_disk(here)
    # A child of the node daemon, which is killed while its program works.
    starter = worker(disk, WITH_PROGRAM)
    assert starter.stdout is not None
    program = int(starter.stdout.readline())
    starter.kill()
    starter.wait()
    try:
        with pytest.raises(errors.BlockDeviceError, match=rf"being wiped .*{program} \(s"):
            blockdev.remove(disk)
    finally:
        os.kill(program, signal.SIGKILL)
    while process.is_alive(program):
        time.sleep(0.01)
    blockdev.remove(disk)
    assert not os.path.exists(here.to_local(f"{BASE}/disk0"))


@pytest.mark.programs
def test_an_import_holds_the_lock_until_it_is_ended(here: paths.Paths) -> None:
    disk = file_disk(here)
    options = keyed(connect_timeout=900)
    name = transfers.import_start(options, instance_with(disk), "disk0", (calls.RAW, disk))
    try:
        with pytest.raises(errors.BlockDeviceError, match="it is in use by an import"):
            lifecycle.attach_disks(instance_with(disk))
    finally:
        transfers.impexp_cleanup(name)
    lifecycle.attach_disks(instance_with(disk))


def test_the_devices_below_are_locked_too(here: paths.Paths) -> None:
    def volume(name: str) -> Disk:
        return Disk(dev_type="plain", logical_id=("xenvg", name), size=2)

    def mirror(partner: str) -> Disk:
        return Disk(
            dev_type="drbd",
            logical_id=("a", partner, 11000, 0, 0, "secret"),
            size=2,
            children=(volume("data"), volume("meta")),
        )

    def refused(disk: Disk) -> bool:
        try:
            with busy.working_on(disk, doing="x"):
                return False
        except errors.BlockDeviceError:
            return True

    def held(disk: Disk) -> list[bool]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(busy, "_PATIENCE_S", 0.0)
            with busy.working_on(disk, doing="being restored"):
                return [
                    refused(other)
                    for other in (mirror("c"), volume("data"), volume("meta"), volume("other"))
                ]

    assert held(mirror("b")) == [True, True, True, False]
    assert held(volume("data")) == [True, True, False, False]
    assert os.listdir(here.disk_locks_dir) == []


def test_every_kind_of_device_asks(here: paths.Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    class Asked(Exception):
        pass

    def ask(_disk: Disk) -> None:
        raise Asked

    monkeypatch.setattr(busy, "require_idle", ask)
    for kind in disk_templates.WITH_DEVICES:
        cls = storage.of(Disk(dev_type=kind, logical_id=(), size=1))
        device = object.__new__(cls)
        device.disk = Disk(dev_type=kind, logical_id=(), size=1)
        for name in ("create", "remove", "open", "grow", "rename", "snapshot", "keep_snapshot"):
            arguments: dict[str, tuple[Any, ...]] = {"create": (1,), "grow": (1,), "rename": ((),)}
            arguments |= {"snapshot": ("a", 1), "keep_snapshot": ("a", 1)}
            named = {"grow": {"dry_run": True, "backing_store": True}}
            named["keep_snapshot"] = {"at_rest": True}
            if getattr(cls, name) is getattr(storage.base.BlockDevice, name) and name != "open":
                continue  # this kind has no such operation
            with pytest.raises(Asked):
                getattr(device, name)(*arguments.get(name, ()), **named.get(name, {}))
