"""What changed in the configuration since a state which a job process has.

The master daemon makes a message of the objects which changed; the process applies it to its own
state. Objects never change, so the new state shares all others with the old one.

A page of shared memory has the serial number of the newest committed state
(:class:`SharedNumber`), so a process which has that state need not ask.
"""

from __future__ import annotations

import dataclasses
import mmap
import os
from collections.abc import Collection
from typing import Any, Final

from ganeti.config.draft import CLUSTER, KINDS
from ganeti.jobexec import messages
from ganeti.objects import ConfigData
from ganeti.utils import fs

_SIZE: Final = 8


class SharedNumber:
    """A number in a file which processes have in their memory.

    The master daemon writes it with :meth:`publish`, a job process reads it with :meth:`get`. A
    number of eight bytes is written and read as a whole.

    :param path: the file; it is created when it is missing.
    :raises OSError: the file cannot be opened.
    """

    def __init__(self, path: str) -> None:
        fd = fs.open_or_create(path, os.O_RDWR)
        try:
            if os.fstat(fd).st_size < _SIZE:
                # With its page: a write to one for which there is no space ends the process.
                os.posix_fallocate(fd, 0, _SIZE)
            self._memory = mmap.mmap(fd, _SIZE)
        finally:
            os.close(fd)
        self._number = memoryview(self._memory).cast("Q")

    def publish(self, serial_no: int) -> None:
        """Set the number."""
        self._number[0] = serial_no

    def get(self) -> int:
        """Return the number."""
        return self._number[0]

    def close(self) -> None:
        """Unmap the file."""
        self._number.release()
        self._memory.close()


def describe(data: ConfigData, keys: Collection[tuple[str, str]] | None) -> dict[str, Any]:
    """Make the message which leads to a state.

    :param keys: kind and UUID of the objects which differ from the state of the receiver; None
        when that is not known, and then the message has all objects.
    """
    message: dict[str, Any] = {"serial_no": data.serial_no, "mtime": data.mtime}
    if keys is None:
        keys = [CLUSTER, *((kind, uuid) for kind in KINDS for uuid in getattr(data, kind))]
        message["all"] = {
            "version": data.version,
            "ctime": data.ctime,
            "damaged": data.damaged,
        }
    objects = []
    for kind, uuid in keys:
        if (kind, uuid) == CLUSTER:
            message["cluster"] = messages.pack(data.cluster)
        else:
            objects.append([kind, uuid, messages.pack(getattr(data, kind).get(uuid))])
    message["objects"] = objects
    return message


def apply(data: ConfigData | None, message: dict[str, Any]) -> ConfigData:
    """Return the state to which a message leads.

    :param data: the state which the receiver has; None for none.
    :raises ConfigurationError: an object in the message is malformed.
    """
    tables: dict[str, dict[str, Any]] = {}
    whole = message.get("all")
    if whole is not None:
        tables = {kind: {} for kind in KINDS}
    for kind, uuid, packed in message["objects"]:
        table = tables.get(kind)
        if table is None:
            table = tables[kind] = dict(getattr(data, kind))
        if packed is None:
            table.pop(uuid, None)
        else:
            table[uuid] = messages.unpack(packed)
    values: dict[str, Any] = {
        **tables,
        "serial_no": message["serial_no"],
        "mtime": message["mtime"],
    }
    if "cluster" in message:
        values["cluster"] = messages.unpack(message["cluster"])
    if whole is not None:
        return ConfigData(**whole, **values)
    assert data is not None
    return dataclasses.replace(data, **values)
