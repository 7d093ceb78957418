"""Providers of external storage: directories with a script for each operation.

A provider is the first directory of its name in the search path. It is usable when all required
scripts are executable files and ``parameters.list`` names its parameters.

Source: ganeti-extstorage-interface(7). The optional script ``exists`` is an extension of ours: only
it can say that a volume is surely absent, which a failing ``attach`` does not say.
"""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from ganeti import errors
from ganeti.objects.transfer import ExtStorage
from ganeti.platform import paths
from ganeti.utils import fs

REQUIRED = ("attach", "create", "detach", "grow", "remove", "setinfo", "verify")
OPTIONAL = ("close", "open", "snapshot")
#: Optional scripts which the published interface does not have.
OWN = ("exists",)
SCRIPTS = tuple(sorted((*REQUIRED, *OPTIONAL, *OWN)))
PARAMETERS_FILE = "parameters.list"

_NAME = re.compile(r"^[A-Za-z0-9_-][A-Za-z0-9_.-]*$")


class Finding(NamedTuple):
    """A directory which may be a provider."""

    name: str
    path: str
    problem: str  # why it is not usable; empty when it is
    provider: ExtStorage | None  # None when it is not usable

    @property
    def usable(self) -> bool:
        """True if its scripts can be run."""
        return self.provider is not None


def find(name: str) -> ExtStorage:
    """Find the provider of this name.

    :raises BlockDeviceError: there is none, or it is not usable; says why.
    """
    if not _NAME.fullmatch(name):
        raise errors.BlockDeviceError(f"{name!r:.80} is not the name of a storage provider")
    directories = paths.current().extstorage_search_path
    for directory in directories:
        path = f"{directory}/{name}"
        if os.path.isdir(path):
            found = inspect(path)
            if found.provider is None:
                raise errors.BlockDeviceError(
                    f"storage provider {name} ({path}) is not usable: {found.problem}"
                )
            return found.provider
    raise errors.BlockDeviceError(
        f"storage provider {name} is not installed on this node (searched in"
        f" {', '.join(directories)})"
    )


def all_providers() -> list[Finding]:
    """Return all directories in the search path, also those which another one of the same name
    hides.
    """
    found = []
    for directory in paths.current().extstorage_search_path:
        try:
            names = fs.list_visible(directory)
        except OSError:
            # Most nodes have only some of the directories.
            continue
        found += [
            inspect(f"{directory}/{name}")
            for name in sorted(names)
            if os.path.isdir(f"{directory}/{name}")
        ]
    return found


def inspect(path: str) -> Finding:
    """Examine whether a directory is a usable provider."""
    name = os.path.basename(path)
    scripts: dict[str, str] = {}
    for script in SCRIPTS:
        file = f"{path}/{script}"
        if not os.path.lexists(file):
            if script in REQUIRED:
                return Finding(name, path, f"file {script} is missing", None)
        elif not os.path.isfile(file):
            return Finding(name, path, f"{script} is not a regular file", None)
        elif not os.access(file, os.X_OK):
            return Finding(name, path, f"file {script} is not executable", None)
        elif script not in OWN:
            scripts[f"{script}_script"] = file
    try:
        text = fs.read_edited_file(f"{path}/{PARAMETERS_FILE}")
    except OSError as err:
        return Finding(name, path, f"file {PARAMETERS_FILE} cannot be read: {err.strerror}", None)
    provider = ExtStorage(
        name=name, path=path, supported_parameters=tuple(parse_parameters(text)), **scripts
    )
    return Finding(name, path, "", provider)


def exists_script(provider: ExtStorage) -> str | None:
    """Return the script of a usable provider which tells whether a volume exists.

    The result is None if it has none.
    """
    path = f"{provider.path}/exists"
    return path if os.path.isfile(path) else None


def parse_parameters(text: str) -> list[tuple[str, str]]:
    """Read ``parameters.list``: a name and its description on each line."""
    found = []
    for line in text.splitlines():
        parts = line.strip().split(None, 1)
        if parts:
            found.append((parts[0].lower(), parts[1] if len(parts) > 1 else ""))
    return found
