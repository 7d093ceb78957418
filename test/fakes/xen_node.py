"""A node under a Xen which is a file: ``test/fakes/xl`` in the search path, and own paths."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from ganeti.hypervisor.base import AttachedDisk
from ganeti.hypervisor.xen import disks as block_devices
from ganeti.hypervisor.xen.driver import XenHvmHypervisor, XenHypervisor, XenPvmHypervisor
from ganeti.objects import hvparams
from ganeti.objects.disk import Disk
from ganeti.objects.instance import FilledInstance, FilledNic
from ganeti.platform import paths

UUID = "0f4c7a52-9b11-4b0e-a3a4-5d3c1f0e9a77"
FAKES = Path(__file__).resolve().parent


class XenNode:
    """One node."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.directory = root / "fake-xl"
        for folder in ("fake-xl/fail", "proc/xen", "etc/xen", "dev"):
            (root / folder).mkdir(parents=True, exist_ok=True)
        (root / "proc/xen/capabilities").write_text("control_d\n")

    @contextlib.contextmanager
    def here(self) -> Iterator[None]:
        """Be this node inside the block."""
        before = {name: os.environ.get(name) for name in ("PATH", "GANETI_ROOTDIR", "FAKE_XL_DIR")}
        os.environ["PATH"] = f"{FAKES}:{before['PATH']}"
        os.environ["GANETI_ROOTDIR"] = str(self.root)
        os.environ["FAKE_XL_DIR"] = str(self.directory)
        try:
            with paths.override(paths.Paths(str(self.root))):
                yield
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value

    def misbehave(self, command: str, mode: str = "exit") -> None:
        """Let a command of ``xl`` misbehave from now on; see ``test/fakes/xl``."""
        (self.directory / "fail" / command).write_text(mode)

    def behave(self) -> None:
        """Let all commands work."""
        for path in (self.directory / "fail").iterdir():
            path.unlink()

    def domains(self) -> dict[str, dict[str, Any]]:
        """The domains by name."""
        try:
            value = json.loads((self.directory / "state.json").read_text())
        except FileNotFoundError:
            return {}
        return {one["name"]: one for one in value["domains"]}

    def change(self, name: str, **values: Any) -> None:
        """Change a domain behind the back of the driver."""
        path = self.directory / "state.json"
        state = json.loads(path.read_text())
        for one in state["domains"]:
            if one["name"] == name:
                one.update(values)
        path.write_text(json.dumps(state))

    def commands(self) -> list[str]:
        """The commands of ``xl`` so far, without the questions."""
        lines = (self.directory / "log").read_text().splitlines()
        return [line for line in lines if line.split()[0] not in ("list", "info")]

    def files(self) -> list[str]:
        """The files which the driver keeps, without locks and logs."""
        run = Path(paths.Paths(str(self.root)).xen_root)
        found = [path for path in run.rglob("*") if path.is_file() and path.name != ".lock"]
        found += (self.root / "etc/xen").iterdir()
        return sorted(str(path.relative_to(self.root)) for path in found)

    def kernel(self) -> str:
        """A file on this node, for ``kernel_path``."""
        path = self.root / "kernel"
        path.touch()
        return str(path)

    def disk(self, uuid: str = "d0") -> AttachedDisk:
        """A disk on this node; :func:`plain_disks` lets a file pass as a device."""
        path = self.root / "dev" / uuid
        path.touch()
        disk = Disk(dev_type="plain", logical_id=("xenvg", uuid), size=64, uuid=uuid)
        return AttachedDisk(disk, str(path))


def plain_disks(monkeypatch: Any) -> None:
    """Let every file pass as a block device, and every NIC be connectable."""
    from ganeti.hypervisor.net import interfaces

    monkeypatch.setattr(block_devices, "device_of", lambda disk, made: disk.path)
    monkeypatch.setattr(block_devices, "detach", lambda disks: None)
    monkeypatch.setattr(interfaces, "check", lambda nic, guest: None)


def driver(name: str = "xen-pvm") -> XenHypervisor:
    """A driver, as a new process would have it."""
    return XenPvmHypervisor() if name == "xen-pvm" else XenHvmHypervisor()


def nic(uuid: str = "n0", **values: Any) -> FilledNic:
    """A NIC on a bridge."""
    params = {"mode": "bridged", "link": "br0", "vlan": ""}
    return FilledNic(
        **{"mac": "aa:00:00:11:22:33", "nicparams": params, "uuid": uuid, "name": None, **values}
    )


def instance(
    name: str = "web1",
    hypervisor: str = "xen-pvm",
    *,
    nics: tuple[FilledNic, ...] = (),
    vcpus: int = 2,
    **params: Any,
) -> FilledInstance:
    """An instance with the defaults of its hypervisor and some own parameters."""
    filled = {**hvparams.defaults(hypervisor), "migration_port": 18002, **params}
    return FilledInstance(
        name=name,
        primary_node="n",
        os="tiny",
        hypervisor=hypervisor,
        hvparams=filled,
        beparams={"maxmem": 128, "minmem": 64, "vcpus": vcpus},
        admin_state="up",
        admin_state_source="admin",
        disks_active=True,
        network_port=5905 if hypervisor == "xen-hvm" else None,
        nics=nics,
        uuid=UUID,
        serial_no=1,
    )


def with_params(guest: FilledInstance, **params: Any) -> FilledInstance:
    """The instance with other hypervisor parameters."""
    return replace(guest, hvparams={**guest.hvparams, **params})
