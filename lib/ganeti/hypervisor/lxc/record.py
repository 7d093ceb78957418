"""What is known of a container which was started: a file in its directory.

It has the parameters of its start, with which a reboot starts it again, and the control groups in
which its processes are, so that it is found even if LXC's monitor was killed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ganeti import errors
from ganeti.utils import fs
from ganeti.wire import json


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """How a container was started."""

    uuid: str  # of the instance
    disk_uuid: str
    disk_path: str  # the link of the disk, or the directory
    memory_mib: int
    vcpus: int
    hvparams: dict[str, Any]  # filled
    nics: list[dict[str, Any]] = field(default_factory=list)  # as node calls have them
    # UUID and path of each disk after the first one.
    more_disks: list[list[str]] = field(default_factory=list)
    tags: list[str] = field(default_factory=list)
    groups: dict[str, str] = field(default_factory=dict)  # controller -> path, empty before it runs

    def disk_paths(self) -> dict[str, str]:
        """UUID -> path of every disk, in order."""
        return {self.disk_uuid: self.disk_path} | {uuid: path for uuid, path in self.more_disks}

    def dumps(self) -> str:
        """Return the text of the file."""
        return json.dumps({name: getattr(self, name) for name in _TYPES})


_TYPES: dict[str, type] = {
    "uuid": str,
    "disk_uuid": str,
    "disk_path": str,
    "memory_mib": int,
    "vcpus": int,
    "hvparams": dict,
    "nics": list,
    "more_disks": list,
    "tags": list,
    "groups": dict,
}


def parse_record(text: str) -> Record:
    """Read the text of the file, which a guest keeps while the release of its node changes.

    :raises ParseError: it has another form.
    """
    data = json.loads(text)
    if isinstance(data, dict):
        # One which an earlier release has written.
        data.setdefault("more_disks", [])
    if not isinstance(data, dict) or not _TYPES.keys() <= data.keys():
        raise errors.ParseError("it is not the record of a container")
    for name, kind in _TYPES.items():
        if not isinstance(data[name], kind):
            raise errors.ParseError(f"{name} is not a {kind.__name__}")
    groups = data["groups"]
    if not all(isinstance(path, str) and path.startswith("/") for path in groups.values()):
        raise errors.ParseError("a control group is not a path")
    if not all(isinstance(nic, dict) for nic in data["nics"]):
        raise errors.ParseError("a NIC is not an object")
    for disk in data["more_disks"]:
        if not isinstance(disk, list) or [type(part) for part in disk] != [str, str]:
            raise errors.ParseError("a disk is not a UUID and a path")
    return Record(**{name: data[name] for name in _TYPES})


def load(path: str, instance_name: str) -> Record | None:
    """Read the file; None when there is none.

    :raises HypervisorError: it cannot be read, or is damaged.
    """
    try:
        return parse_record(fs.read_file(path))
    except FileNotFoundError:
        return None
    except (OSError, errors.ParseError) as err:
        raise errors.HypervisorError(
            f"the record of instance {instance_name} in {path} cannot be used: {err}"
        ) from err


def save(path: str, record: Record) -> None:
    """Write the file.

    :raises OSError: it cannot be written.
    """
    fs.write_file(path, record.dumps(), mode=0o600, sync=False)
