"""Functions which ``cfgshell``, ``cfgupgrade`` and ``sanitize-config`` share.

These programs work on the file of a configuration. They read it at any time, and write it only
while no master daemon uses it.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from ganeti import errors
from ganeti.config import verify
from ganeti.config.store import write_config_file
from ganeti.constants import ssconf as ssconf_const
from ganeti.objects import ConfigData, codec
from ganeti.platform import machine
from ganeti.utils import clock, filelock, fs
from ganeti.wire import json

EXIT_SUCCESS = 0
EXIT_FAILURE = 1
EXIT_CONFIRMATION = 13


def say(text: str) -> None:
    """Print a message to standard error; standard output is for results."""
    print(text, file=sys.stderr, flush=True)


def read_raw(path: str) -> Any:
    """Read a file as JSON; the content is not checked.

    :raises ConfigurationError: the file cannot be read, or is not JSON.
    """
    try:
        return json.loads(fs.read_bytes(path))
    except OSError as err:
        raise errors.ConfigurationError(f"cannot read {path}: {err.strerror}") from err
    except errors.ParseError as err:
        raise errors.ConfigurationError(f"{path}: {err}") from err


def refuse_while_master_runs(data_dir: str) -> None:
    """Check that no master daemon uses a configuration.

    :param data_dir: directory of the configuration.
    :raises ConfigurationError: a master daemon uses it.
    """
    lock = f"{data_dir}/queue/lock"
    if os.path.exists(lock) and filelock.is_locked(lock):
        raise errors.ConfigurationError(
            f"a master daemon uses the configuration in {data_dir}. Stop it first."
        )


def refuse_elsewhere(data_dir: str) -> None:
    """Check that this machine is the master of its cluster.

    :param data_dir: directory of the configuration and of the ssconf files.
    :raises ConfigurationError: another machine is the master.
    """
    path = f"{data_dir}/{ssconf_const.FILE_PREFIX}{ssconf_const.MASTER_NODE}"
    try:
        master = fs.read_file(path).strip()
    except OSError as err:
        raise errors.ConfigurationError(f"cannot read {path}: {err.strerror}") from err
    own = machine.current().hostname()
    if master.lower() != own:
        raise errors.ConfigurationError(
            f"this machine ({own}) is not the master; the master is {master}. On other machines"
            " the file is a copy, which the master replaces."
        )


def problems_of(config: dict[str, Any]) -> tuple[ConfigData, list[str]]:
    """Decode a configuration of this version, and look for contradictions.

    :returns: the objects, and a text for each contradiction.
    :raises ConfigurationError: a value has the wrong type; the message has its path.
    """
    data = codec.from_dict(ConfigData, config)
    return data, verify.check(data)


def backup(path: str, label: str) -> str:
    """Copy a file to ``<path>.backup-<label>``, with its mode.

    If that file exists, a number is appended to the name.

    :returns: the path of the copy.
    :raises OSError: the copy could not be written.
    """
    target, number = f"{path}.backup-{label}", 1
    while os.path.exists(target):
        number += 1
        target = f"{path}.backup-{label}-{number}"
    fs.write_file(target, fs.read_bytes(path), mode=os.stat(path).st_mode & 0o777)
    return target


def write(path: str, config: dict[str, Any]) -> None:
    """Write a configuration; the new file has the owner of the old one.

    :raises OSError: the file could not be written, and the old one is unchanged.
    """
    before = os.stat(path)
    write_config_file(path, json.dumps(config).encode() + b"\n")
    if (before.st_uid, before.st_gid) != (os.geteuid(), os.getegid()):
        os.chown(path, before.st_uid, before.st_gid)


def next_serial(config: dict[str, Any]) -> dict[str, Any]:
    """Return the configuration with the next serial number and the current time.

    Nodes prefer the copy with the highest serial number.
    """
    return {**config, "serial_no": config["serial_no"] + 1, "mtime": clock.now()}
