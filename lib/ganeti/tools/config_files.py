"""What the tools that work on a configuration file have in common.

They work while no master daemon runs, on the file itself; whoever may not stop the daemon may look
but not write.
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
    """A line for people; what a program reads goes to standard output by itself."""
    print(text, file=sys.stderr, flush=True)


def read_raw(path: str) -> Any:
    """The JSON of a file, whatever it says.

    :raises ConfigurationError: it cannot be read, or is not JSON.
    """
    try:
        return json.loads(fs.read_bytes(path))
    except OSError as err:
        raise errors.ConfigurationError(f"cannot read {path}: {err.strerror}") from err
    except errors.ParseError as err:
        raise errors.ConfigurationError(f"{path}: {err}") from err


def refuse_while_master_runs(data_dir: str) -> None:
    """:raises ConfigurationError: a master daemon works with this configuration."""
    lock = f"{data_dir}/queue/lock"
    if os.path.exists(lock) and filelock.is_locked(lock):
        raise errors.ConfigurationError(
            f"a master daemon works with the configuration in {data_dir}. Stop it first."
        )


def refuse_elsewhere(data_dir: str) -> None:
    """:raises ConfigurationError: this machine is not the master of its cluster."""
    path = f"{data_dir}/{ssconf_const.FILE_PREFIX}{ssconf_const.MASTER_NODE}"
    try:
        master = fs.read_file(path).strip()
    except OSError as err:
        raise errors.ConfigurationError(f"cannot read {path}: {err.strerror}") from err
    own = machine.current().hostname()
    if master.lower() != own:
        raise errors.ConfigurationError(
            f"this machine ({own}) is not the master, that is {master}. On another machine the "
            "file is a copy, which the master will replace."
        )


def problems_of(config: dict[str, Any]) -> tuple[ConfigData, list[str]]:
    """Build the objects of a configuration of this version, and check them.

    :raises ConfigurationError: it is not one; names the place.
    """
    data = codec.from_dict(ConfigData, config)
    return data, verify.check(data)


def backup(path: str, label: str) -> str:
    """Copy a file beside itself, with mode and all; an older copy of that name is kept too.

    :returns: the path of the copy.
    :raises OSError: it could not be written.
    """
    target, number = f"{path}.backup-{label}", 1
    while os.path.exists(target):
        number += 1
        target = f"{path}.backup-{label}-{number}"
    fs.write_file(target, fs.read_bytes(path), mode=os.stat(path).st_mode & 0o777)
    return target


def write(path: str, config: dict[str, Any]) -> None:
    """Write a configuration, for the owner of the file that is there.

    :raises OSError: nothing was changed.
    """
    before = os.stat(path)
    write_config_file(path, json.dumps(config).encode() + b"\n")
    if (before.st_uid, before.st_gid) != (os.geteuid(), os.getegid()):
        os.chown(path, before.st_uid, before.st_gid)


def next_serial(config: dict[str, Any]) -> dict[str, Any]:
    """The same with the next serial number, so that no older copy is taken for it."""
    return {**config, "serial_no": config["serial_no"] + 1, "mtime": clock.now()}
