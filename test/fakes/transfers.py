"""Transfers between nodes which are over when they have begun, for :mod:`fakes.node_side`."""

from __future__ import annotations

import os
import shutil
from typing import Any

from fakes import node_side
from ganeti import errors, storage
from ganeti.backend.backup import exports
from ganeti.objects import Disk
from ganeti.objects.transfer import ImportExportStatus
from ganeti.utils import receipt
from ganeti.wire.calls import backup as calls


class Transfers(node_side.NodeSide):
    """Exports and imports are copies of files."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.targets: dict[int, str] = {}
        self.files: set[str] = set()
        self.names: dict[str, ImportExportStatus] = {}

    def _import_start(self, options: Any, instance: Any, component: str, target: Any) -> str:
        port = 5000 + len(self.names)
        name = f"import-{port}"
        self.targets[port] = self._path(target)
        if target[0] == calls.FILE:
            self.files.add(self.targets[port])
        self.names[name] = ImportExportStatus(listen_port=port)
        return name

    def _export_start(
        self, options: Any, host: str, port: int, instance: Any, component: str, source: Any
    ) -> str:
        target = self.targets[port]
        os.makedirs(os.path.dirname(target), exist_ok=True)
        try:
            shutil.copyfile(self._path(source), target)
        except FileNotFoundError as err:
            raise errors.OpExecError(f"{err.filename} is not there") from err
        if target in self.files:
            write_receipt(target)
        done = ImportExportStatus(listen_port=port, connected=True, exit_status=0)
        name = f"export-{port}"
        self.names[name] = self.names[f"import-{port}"] = done
        return name

    @staticmethod
    def _path(io: Any) -> str:
        kind, what = io
        if kind == calls.FILE:
            return exports.local_path(what)
        return storage.device(what if isinstance(what, Disk) else what[0]).path

    def _impexp_status(self, names: list[str]) -> list[ImportExportStatus | None]:
        return [self.names.get(name) for name in names]

    def _impexp_abort(self, name: str) -> None:
        self.names[name] = ImportExportStatus(exit_status=1, error_message="aborted")

    def _impexp_cleanup(self, name: str) -> None:
        self.names[name] = ImportExportStatus(exit_status=1, error_message="gone")


def write_receipt(path: str) -> None:
    """What the receiver of a complete file leaves beside it."""
    tally, found = receipt.Tally(), os.stat(path)
    with open(path, "rb") as stream:
        tally.add(stream.read())
    receipt.write(path, tally, (found.st_dev, found.st_ino))
