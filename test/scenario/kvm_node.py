"""A node's directory and guests in it, for tests of the hypervisor room with a real QEMU.

Used by the tests in this process, and as a program by tests that need another user, network or
process: ``python kvm_node.py ROOT IMAGE VERB [NAME]``.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

TOP = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path.insert(0, str(TOP / "lib"))

import serial_line  # noqa: E402  (as a program, the path is set above)

from ganeti import errors  # noqa: E402
from ganeti.backend.instance import lifecycle  # noqa: E402
from ganeti.backend.storage import blockdev  # noqa: E402
from ganeti.hypervisor.kvm.qmp import Qmp  # noqa: E402
from ganeti.objects import hvparams  # noqa: E402
from ganeti.objects.disk import Disk  # noqa: E402
from ganeti.objects.instance import FilledInstance, FilledNic  # noqa: E402
from ganeti.platform import paths  # noqa: E402
from ganeti.utils import text  # noqa: E402

SHARED = paths.DEFAULT_SHARED_FILE_STORAGE_DIR
PATIENCE_S = 180.0
#: The guest that the fixtures of conftest make.
NAME = "web1.example.com"
_NAMESPACE = "7a6f7d5e-0000-4000-8000-"


def wait_until(condition: Callable[[], Any], what: str) -> Any:
    """The first true value of the condition."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.05)
    raise AssertionError(f"gave up waiting until {what}")


class Node:
    """One node root; every method acts as that node."""

    def __init__(self, root: Path, image: Path, shared: Path | None = None) -> None:
        self.root, self.image = root, image
        self.paths = paths.Paths(str(root))
        storage = root / SHARED[1:]
        if shared is None:
            storage.mkdir(parents=True, exist_ok=True)
        elif not storage.exists():
            storage.parent.mkdir(parents=True, exist_ok=True)
            storage.symlink_to(shared)

    def instance(
        self,
        name: str,
        *,
        disks: int = 1,
        nic: dict[str, str] | None = None,
        memory_mib: int = 96,
        **params: Any,
    ) -> FilledInstance:
        """An instance with everything filled in; the same name gives the same UUIDs."""
        hvp = hvparams.defaults("kvm")
        hvp.update(
            kvm_path=find_qemu(),
            kernel_path=str(self.image / "vmlinux"),
            initrd_path=str(self.image / "initrd"),
            kernel_args=kernel_args(self.image),
            # Tests that run side by side must not meet: each process has a port of its own.
            migration_port=18100 + os.getpid() % 10000,
        )
        hvp.update(params)
        number = f"{sum(name.encode()):012x}"
        nics = ()
        if nic is not None:
            nics = (
                FilledNic(
                    mac="aa:00:00:12:34:56",
                    nicparams={"vlan": "", **nic},
                    uuid=f"{_NAMESPACE}{number}",
                ),
            )
        infos = tuple(
            Disk(
                dev_type="sharedfile",
                logical_id=("loop", f"{SHARED}/{name}/disk{index}"),
                size=16,
                iv_name=f"disk/{index}",
                uuid=f"{index:08x}{_NAMESPACE[8:]}{number}",
                serial_no=1,
            )
            for index in range(disks)
        )
        return FilledInstance(
            name=name,
            primary_node="node",
            os="tiny",
            hypervisor="kvm",
            hvparams=hvp,
            beparams={"maxmem": memory_mib, "minmem": memory_mib, "vcpus": 1},
            osparams={},
            admin_state="up",
            admin_state_source="admin",
            disks_active=True,
            serial_no=1,
            uuid=f"{_NAMESPACE}{number}",
            nics=nics,
            disks_info=infos,
            disks=tuple(disk.uuid for disk in infos),
            disk_template="sharedfile",
        )

    def install(self, guest: FilledInstance, **env: str) -> subprocess.CompletedProcess[str]:
        """Create the disks and run the OS definition's create script."""
        self.create_disks(guest)
        result = self.run_script("create", guest, **env)
        assert result.returncode == 0, result.stdout + result.stderr
        return result

    def create_disks(self, guest: FilledInstance) -> None:
        with paths.override(self.paths):
            blockdev.file_storage_dir_create(f"{SHARED}/{guest.name}")
            for disk in guest.disks_info:
                blockdev.create(disk, disk.size, guest.name, True, "", False)

    def run_script(
        self, script: str, guest: FilledInstance, **env: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a script of the OS definition with the environment of the published interface."""
        environment = {
            "PATH": "/sbin:/bin:/usr/sbin:/usr/bin",
            "OS_API_VERSION": "20",
            "OSP_IMAGE_DIR": str(self.image),
            "INSTANCE_NAME": guest.name,
            "DISK_COUNT": str(len(guest.disks_info)),
            **env,
        }
        for index in range(len(guest.disks_info)):
            environment[f"DISK_{index}_PATH"] = str(self.disk_file(guest, index))
        program = TOP / "doc/examples/os/tiny" / script
        return subprocess.run(
            [str(program)],
            env=environment,
            cwd=program.parent,
            text=True,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PATIENCE_S,
            check=False,
        )

    def disk_file(self, guest: FilledInstance, index: int = 0) -> Path:
        return Path(self.paths.to_local(guest.disks_info[index].logical_id[1]))

    def assemble(self, guest: FilledInstance) -> None:
        with paths.override(self.paths):
            for index, disk in enumerate(guest.disks_info):
                blockdev.assemble(disk, guest, True, index)

    def start(self, guest: FilledInstance, *, paused: bool = False) -> None:
        self.assemble(guest)
        with paths.override(self.paths):
            lifecycle.start(guest, paused, [])

    def shutdown(self, guest: FilledInstance, timeout_s: int = 60) -> None:
        with paths.override(self.paths):
            lifecycle.shutdown(guest, timeout_s, [])

    def running(self) -> list[str]:
        with paths.override(self.paths):
            return lifecycle.list_instances(["kvm"], {})

    def info(self, guest: FilledInstance) -> dict[str, Any]:
        with paths.override(self.paths):
            return lifecycle.instance_info(guest.name, "kvm", {})

    def pid(self, guest: FilledInstance) -> int:
        return int(Path(f"{self.paths.kvm_root}/pid/{guest.name}").read_text())

    def socket(self, guest: FilledInstance, kind: str) -> str:
        return f"{self.paths.kvm_root}/ctrl/{guest.name}.{kind}"

    def console(self, guest: FilledInstance) -> str:
        path = Path(f"{self.paths.log_kvm_dir}/{guest.name}.console.log")
        return path.read_text(errors="replace") if path.exists() else ""

    def lines(self, guest: FilledInstance) -> list[tuple[str, int]]:
        """(boot id, uptime in s) of each line of the guest."""
        return [
            (found[1], int(found[2]))
            for found in re.finditer(
                rf"tiny: {re.escape(guest.name)} boot (\S+) uptime (\d+) s", self.console(guest)
            )
        ]

    def wait_booted(self, guest: FilledInstance, more_than: int = 0) -> tuple[str, int]:
        """The guest's last line, once it has printed more lines than that."""
        wait_until(lambda: len(self.lines(guest)) > more_than, f"{guest.name} prints a line")
        return self.lines(guest)[-1]

    def type_in(self, guest: FilledInstance, command: str, done: Callable[[], bool]) -> None:
        """Type a command into the guest's console, and again when nobody has listened."""

        def attempt() -> bool:
            with (
                contextlib.suppress(OSError),
                serial_line.connected(self.socket(guest, "serial"), 5.0) as serial,
            ):
                serial.sendall(f"\n{command}\n".encode())
                end = time.monotonic() + 5
                while not done() and time.monotonic() < end:
                    time.sleep(0.05)
            return done()

        wait_until(attempt, f"{command} has worked")

    def ask(self, guest: FilledInstance, command: str) -> str:
        """Type a command into the guest's console and return what it prints.

        The lines the guest prints every second are switched off by the first call.
        """
        with serial_line.connected(self.socket(guest, "serial"), PATIENCE_S) as serial:
            mark = f"end{os.urandom(4).hex()}"
            before = len(self.console(guest))
            # The mark is typed in two pieces, so that the echo of the line does not contain it.
            serial.sendall(f"tick off; {command}; echo {mark[:4]}''{mark[4:]}\n".encode())
            wait_until(
                lambda: f"{mark}" in self.console(guest)[before:].replace("''", "\0"),
                f"{guest.name} answers {command}",
            )
        return self.console(guest)[before:]

    def leftovers(self) -> list[str]:
        """Files of guests below the run directory; empty when none was forgotten."""
        found = []
        for base in (self.paths.kvm_root, self.paths.instance_disks_dir):
            for directory, _, names in os.walk(base):
                found += [f"{directory}/{name}" for name in names]
                found += [
                    f"{directory}/{name}"
                    for name in os.listdir(directory)
                    if os.path.islink(f"{directory}/{name}")
                ]
        known = (f"{self.paths.kvm_root}/.lock", f"{self.paths.kvm_root}/.qemu-")
        return sorted({name for name in found if not name.startswith(known)})

    def end_all(self) -> None:
        """For clean-up: end every guest of this node."""
        with paths.override(self.paths):
            for name in lifecycle.list_instances(["kvm"], {}):
                lifecycle.shutdown(self.instance(name, disks=0), 0, [])


def status(node: Node, guest: FilledInstance) -> str:
    """The state of a guest, as its QEMU names it."""
    with Qmp(node.socket(guest, "qmp"), guest.name) as control:
        return str(control.execute("query-status")["status"])


def move(
    source: Node,
    target: Node,
    guest: FilledInstance,
    address: str = "127.0.0.31",
    *,
    live: bool = True,
    source_address: str | None = None,
) -> str:
    """The steps of a migration in the order of the master; the final status.

    :param source_address: what the source connects to, in place of ``address``.
    """
    with paths.override(source.paths):
        lifecycle.migratable(guest)
        info = lifecycle.migration_info(guest)
    target.assemble(guest)
    with paths.override(target.paths):
        port = lifecycle.accept_instance(guest, info, address, any_port=True)
    with paths.override(source.paths):
        lifecycle.migrate("cluster", guest, source_address or address, live, port)
    ended = wait_until(lambda: follow(source, guest), "the migration ends")
    success = ended == "completed"
    with paths.override(target.paths):
        lifecycle.finalize_migration_dst(guest, info, success)
    with paths.override(source.paths):
        lifecycle.finalize_migration_src(guest, success, live)
    return str(ended)


def follow(source: Node, guest: FilledInstance) -> str | None:
    """How the migration ended, or None while it goes on."""
    with paths.override(source.paths):
        now = lifecycle.migration_status(guest).status
    return None if now == "active" else now


def find_qemu() -> str:
    if os.environ.get("GANETI_TEST_QEMU"):
        return os.environ["GANETI_TEST_QEMU"]
    for directory in ("/usr/bin", "/usr/local/bin"):
        if os.access(f"{directory}/qemu-system-x86_64", os.X_OK):
            return f"{directory}/qemu-system-x86_64"
    return "/usr/bin/kvm"


def kernel_args(image: Path) -> str:
    from ganeti.wire import json

    return str(json.loads((image / "boot.json").read_text())["kernel_args"])


def main(root: str, image: str, verb: str, name: str = "guest.example.com") -> None:
    """What a test wants done in a process of its own."""
    node = Node(Path(root), Path(image))
    try:
        if verb == "life":
            guest = node.instance(name, nic={"mode": "user", "link": ""})
            node.install(guest)
            node.start(guest)
            node.wait_booted(guest)
            node.shutdown(guest)
            assert node.leftovers() == [], node.leftovers()
            assert "going down (off)" in node.console(guest)
            print(f"lived as uid {os.geteuid()}: {node.lines(guest)[-1][0]}")
        elif verb == "start":
            node.start(node.instance(name))
            print(f"started {text.natural_key(name)[0][1]}")
        else:
            raise SystemExit(f"unknown verb {verb}")
    except errors.GenericError as err:
        print(f"failed: {err}")
        raise SystemExit(1) from err
    finally:
        if verb != "start":
            node.end_all()


if __name__ == "__main__":
    main(*sys.argv[1:])
