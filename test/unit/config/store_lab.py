"""A configuration store over a disk and other nodes which fail on request."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence

from ganeti.config import Config, Distribution, DistributionFailure
from ganeti.config.local_file import LocalFile
from ganeti.config.store import ConfigStore
from ganeti.objects import ConfigData, codec
from ganeti.utils import retry

from .samples import small_cluster

EC = "job-1"


class Disk:
    """A file in memory which can be full, and can be stopped in the middle of a write."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.error: OSError | None = None
        self.fails_once = False
        self.gate: threading.Event | None = None
        self.entered = threading.Event()

    def write(self, path: str, text: Sequence[bytes]) -> None:
        self.entered.set()
        if self.gate is not None:
            self.gate.wait()
        if self.error is not None:
            error = self.error
            if self.fails_once:
                self.error = None
            raise error
        self.written.append(b"".join(text))


class Nodes:
    """The other nodes."""

    def __init__(self) -> None:
        self.received: list[Distribution] = []
        self.failures: list[DistributionFailure] = []

    def __call__(self, what: Distribution) -> Sequence[DistributionFailure]:
        self.received.append(what)
        return self.failures


def config_of(disk: Disk, nodes: Nodes | None = None, data: ConfigData | None = None) -> Config:
    return Config(
        ConfigStore(
            LocalFile("config.data", disk.write),
            data or small_cluster(),
            distribute=nodes,
            now=lambda: 2000.0,
        )
    )


def parsed(text: bytes) -> ConfigData:
    return codec.from_dict(ConfigData, json.loads(text))


def until(condition: Callable[[], bool]) -> None:
    """Wait for another thread to get somewhere."""
    retry.until(lambda: _again(condition()), timeout_s=120, delay=(0.001, 1, 0.001))


def _again(reached: bool) -> None:
    if not reached:
        raise retry.Again


def sleeping_store(
    nodes: Callable[[Distribution], Sequence[DistributionFailure]], data: ConfigData | None = None
) -> ConfigStore:
    """A store whose thread for lagging nodes exists, but sleeps for long."""
    return ConfigStore(
        LocalFile("config.data", Disk().write),
        data or small_cluster(),
        distribute=nodes,
        catch_up_s=(3600.0, 3600.0),
    )
