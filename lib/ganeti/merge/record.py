"""The record of a merge that goes on: what has begun, so that the next run knows what it finds.

The master of the cluster that stays keeps it in ``/var/lib/ganeti/cluster-merge.json``. Each change
is in it before the change begins, so what is not in it was not changed. It is removed at the end of
a merge, and after everything was taken back. A run which was killed leaves it: until the merged
configuration is used, the next run takes back what has begun; afterwards it goes on.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ganeti.runbook import record

_BY_HAND = (
    "cluster-merge(8) says under FILES where both former configurations are; put them back by hand"
    " before the file is removed"
)


@dataclass(frozen=True)
class Guest:
    """An instance of the other cluster before the merge."""

    name: str
    running: bool
    wanted: bool


@dataclass(frozen=True)
class Record:
    """What a merge has begun.

    :ivar asked: the other cluster as the administrator has named it.
    :ivar name: its name.
    :ivar master: the name of its master.
    :ivar addresses: node of the other cluster -> its primary IP address.
    :ivar ssh_ports: node of the other cluster -> the TCP port of its SSH server.
    :ivar choices: the options with which the merge began, by field of ``Choices``.
    :ivar here: whether the watcher of this cluster pauses and its queue is drained.
    :ivar there: the same of the other cluster.
    :ivar guests: the instances of the other cluster, as they were before.
    :ivar stopped: names of the instances which are stopped.
    :ivar daemons: nodes of the other cluster whose daemons are stopped.
    :ivar master_stopped: whether the master daemon of this cluster is stopped.
    :ivar own: file with the former configuration of this cluster; empty while it is not changed.
    :ivar other: file with the configuration of the other cluster; empty before.
    :ivar changed_ports: names of the instances of which a port changes.
    :ivar merged: whether the merged configuration is used: nothing is taken back any more.
    :ivar added: nodes of the other cluster which belong to this one.
    """

    asked: str
    name: str
    master: str
    addresses: dict[str, str] = field(default_factory=dict)
    ssh_ports: dict[str, int] = field(default_factory=dict)
    choices: dict[str, Any] = field(default_factory=dict)
    here: bool = False
    there: bool = False
    guests: tuple[Guest, ...] = ()
    stopped: tuple[str, ...] = ()
    daemons: tuple[str, ...] = ()
    master_stopped: bool = False
    own: str = ""
    other: str = ""
    changed_ports: tuple[str, ...] = ()
    merged: bool = False
    added: tuple[str, ...] = ()


def record_file(data_dir: str) -> record.RecordFile[Record]:
    """Return the file of the record.

    :param data_dir: directory of the configuration.
    """
    return record.RecordFile(f"{data_dir}/cluster-merge.json", parse_record, _BY_HAND)


def parse_record(text: str, path: str = "the record") -> Record:
    """Read the content of the file.

    :raises ConfigurationError: it has another form.
    """
    return record.from_text(Record, text, path, "the record of a merge")
