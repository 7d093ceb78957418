"""The reasons why the states of the guests of this node changed, for the monitoring daemon.

There is a file for each guest whose state has changed here, with the name of its instance. It is
removed when the guest has migrated away, and when the instance is not in the cluster any more.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Sequence
from typing import Any

from ganeti.platform import paths
from ganeti.utils import clock, fs
from ganeti.wire import json


def store(instance_name: str, trail: Sequence[Sequence[Any]], operation: str) -> None:
    """Store the reason why the state of an instance changed.

    :param trail: list of [source, text, nanoseconds since 1970].
    """
    entry = [f"gnt:daemon:noded:{operation}", "", clock.now_ns()]
    try:
        fs.make_dirs(paths.current().instance_reason_dir, 0o755)
        fs.write_file(_file(instance_name), json.dumps([*trail, entry]), mode=0o644, sync=False)
    except OSError as err:
        logging.warning(
            "cannot store the reason for the state of instance %s: %s", instance_name, err
        )


def forget(instance_name: str) -> None:
    """Remove the file of an instance, if there is one."""
    try:
        fs.remove_file(_file(instance_name))
    except OSError as err:
        logging.warning(
            "cannot remove the reason for the state of instance %s: %s", instance_name, err
        )


def keep_only(instance_names: Collection[str]) -> None:
    """Remove the files of all other instances: they were removed or renamed."""
    try:
        found = fs.list_visible(paths.current().instance_reason_dir)
    except FileNotFoundError:
        return
    except OSError as err:
        logging.warning("cannot look for reasons of removed instances: %s", err)
        return
    for name in set(found).difference(instance_names):
        forget(name)


def _file(instance_name: str) -> str:
    return f"{paths.current().instance_reason_dir}/{os.path.basename(instance_name)}"
