"""Nodes with volumes and mirrored disks, and how a test gets them."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import os
import pkgutil
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fakes import node_side
from fakes.mirror.content import LVM, own_root
from fakes.mirror.kernel import Kernel
from fakes.mirror.replica import Replica
from fakes.mirror.volume import Volume
from ganeti.constants import disk as disk_c
from ganeti.objects import Disk, FilledInstance, Instance, fill
from ganeti.storage.drbd import device, leftover, status
from ganeti.storage.lvm import device as volumes
from ganeti.utils import retry


class MirrorConfig(node_side.MortalConfig):
    """Fills in what each node has of a mirrored disk."""

    aim: str | None = None

    def annotated_disk(self, disk: Disk, instance: Instance | FilledInstance) -> Disk:
        return self._aimed(super().annotated_disk(disk, instance))

    def filled_instance(self, instance: Instance, **overrides: Any) -> FilledInstance:
        filled = super().filled_instance(instance, **overrides)
        return dataclasses.replace(
            filled, disks_info=tuple(self._aimed(disk) for disk in filled.disks_info)
        )

    def _aimed(self, disk: Disk) -> Disk:
        if disk.dev_type != disk_c.DRBD8 or self.aim is None:
            return disk
        return fill.for_node(disk, self.aim, self.snapshot())


class MirrorNodeSide(node_side.NodeSide):
    """Nodes with volumes and mirrored disks."""

    def __init__(self, config: MirrorConfig, directory: Path) -> None:
        super().__init__(config, directory)
        self.kernel = Kernel()
        for node in config.nodes():
            (self.root(node.name) / LVM / "xenvg").mkdir(parents=True)

    def _one(self, call: Any, uuid: str, args: dict[str, Any]) -> Any:
        self.config.aim = uuid  # type: ignore[attr-defined]
        Replica.kernel = self.kernel
        return super()._one(call, uuid, args)

    def _answer(self, call: Any, node_name: str, args: dict[str, Any]) -> Any:
        result = super()._answer(call, node_name, args)
        if result.failure is None:
            self._hold(call.name, str(self.root(node_name)), args)
        return result

    def _hold(self, call: str, root: str, args: dict[str, Any]) -> None:
        """Guests have their disks open while they run."""
        held = self.kernel.held
        instance = args.get("instance")
        disks = getattr(instance, "disks_info", ())
        if call == "hotplug_device" and args["dev_type"] == "disk":
            disks = [args["device"]]
        mine = {(root, (disk.dynamic_params or {}).get(device.LOCAL_MINOR)) for disk in disks}
        if call in ("instance_start", "instance_finalize_migration_dst") and args.get(
            "success", True
        ):
            held |= mine
        elif call == "hotplug_device":
            held.update(mine) if args["action"] == "hotadd" else held.difference_update(mine)
        elif call in ("instance_shutdown", "instance_finalize_migration_src"):
            held -= mine

    def _node_info(self, storage_units: Any, hv_specs: Any) -> list[Any]:
        boot, _units, facts = super()._node_info(storage_units, hv_specs)
        return [
            boot,
            [
                {"type": unit[0], "name": unit[1], "storage_free": 9999, "storage_size": 9999}
                for unit in storage_units or ()
            ],
            facts,
        ]

    def stored(self) -> set[str]:
        found = super().stored()
        for node in self.config.nodes():
            top = self.root(node.name) / LVM
            found |= {
                f"{node.name.split('.')[0]}:{path.relative_to(top)}"
                for path in top.rglob("*")
                if path.is_file()
            }
        return found

    def recorded(self) -> set[str]:
        names = {node.uuid: node.name.split(".")[0] for node in self.config.nodes()}
        found = set(
            self.recorded_files(
                disk
                for disk in self.config.snapshot().disks.values()
                if disk.dev_type not in (disk_c.PLAIN, disk_c.DRBD8)
            )
        )
        for disk in self.config.snapshot().disks.values():
            found |= {
                f"{names[node]}:{'/'.join(map(str, part.logical_id))}"
                for part in disk.walk()
                if part.dev_type == disk_c.PLAIN
                for node in part.nodes
            }
        return found

    def active(self) -> set[tuple[str, int]]:
        """Node and number of all minors which are in use."""
        return {
            (os.path.basename(root).split(".")[0], number) for root, number in self.kernel.minors
        }


def install(monkeypatch: Any) -> None:
    """Let nodes of this test have these devices."""
    monkeypatch.setattr(node_side, "NodeSide", MirrorNodeSide)
    monkeypatch.setattr(node_side, "MortalConfig", MirrorConfig)
    monkeypatch.setattr(volumes, "LogicalVolumeDevice", Volume)
    monkeypatch.setattr(device, "DrbdDevice", Replica)
    monkeypatch.setattr(status, "loaded", lambda: True)
    monkeypatch.setattr(status, "minor", lambda number: Replica.kernel.state((own_root(), number)))
    monkeypatch.setattr(leftover, "take_down", lambda path: Replica.kernel.take_down(path))
    monkeypatch.setattr(status, "minors", Replica.kernel_minors)
    monkeypatch.setattr(status, "usermode_helper", lambda: disk_c.DRBD_NEUTRAL_HELPER)
    from ganeti.backend.storage import drbd
    from ganeti.cmdlib.ops.disks import suspended_io

    for module in (device, drbd, suspended_io):
        monkeypatch.setattr(module, "retry", types.SimpleNamespace(until=_until, Again=retry.Again))
    for function in _sleepers():
        for name in ("__defaults__", "__kwdefaults__"):
            monkeypatch.setattr(function, name, _with_fake_sleep(getattr(function, name)))


def _until(fn: Callable[[], Any], **options: Any) -> Any:
    """As :func:`ganeti.utils.retry.until`, in the time of the kernel."""
    return retry.until(fn, **{**options, "clock": Replica.kernel.clock, "sleep": _sleep})


def _sleep(seconds: float) -> None:
    Replica.kernel.sleep(seconds)


def _sleepers() -> list[Any]:
    """Functions of the master which wait for disks; they take how to sleep as a parameter."""
    found = []
    for package in ("disks", "migration"):
        parent = importlib.import_module(f"ganeti.cmdlib.ops.{package}")
        for info in pkgutil.iter_modules(parent.__path__, parent.__name__ + "."):
            for value in vars(importlib.import_module(info.name)).values():
                if inspect.isfunction(value) and value.__module__ == info.name:
                    found.append(value)
                elif inspect.isclass(value) and value.__module__ == info.name:
                    found += [one for one in vars(value).values() if inspect.isfunction(one)]
    return [one for one in found if time.sleep in _defaults(one)]


def _defaults(function: Any) -> tuple[Any, ...]:
    return (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())


def _with_fake_sleep(defaults: Any) -> Any:
    if isinstance(defaults, dict):
        return {name: _sleep if value is time.sleep else value for name, value in defaults.items()}
    return defaults and tuple(_sleep if value is time.sleep else value for value in defaults)
