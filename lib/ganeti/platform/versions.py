"""The versions of this project which are installed on this node side by side, and the link to one.

A version is named by the first two numbers of its release, such as ``0.9``. Each has a directory of
its own in the library directory (``/usr/lib/ganeti/0.9``), with its package, daemons and programs.
The link ``/etc/ganeti/version`` leads to the one which this node uses; the commands in
``/usr/sbin`` and the units of systemd go through it. Programs that run go on with their own
version.

A node of a virtual cluster has the same directories and the same link below its own root; there a
version may also be a link to a checkout (``vcluster add-version``). Without them, it runs the
version with which the virtual cluster was made.

Source: the Ganeti design document for upgrades between versions (2.11), *Gnt-cluster upgrade*.
"""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from ganeti import RELEASE, errors
from ganeti.platform import machine, paths
from ganeti.utils import fs

_SERIES = re.compile(r"(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)", re.ASCII)
_RELEASE = re.compile(r'^RELEASE = "([0-9.]+)"$', re.ASCII | re.MULTILINE)
# Where a package is in the directory of a version: installed, and in a checkout.
_PACKAGES = ("python/ganeti", "lib/ganeti")
# Where programs are: installed, and in a checkout.
_PLACES = ("sbin", ".", "scripts", "daemons", "tools")


class Version(NamedTuple):
    """A version which is installed.

    :ivar series: its name: the first two numbers of the release, such as ``0.9``.
    :ivar release: such as ``0.9.0``.
    :ivar directory: where it is on this node.
    """

    series: str
    release: str
    directory: str

    def program(self, name: str) -> str:
        """Return the path of one of its programs, such as ``daemon-util``.

        :raises ConfigurationError: it does not have this program.
        """
        for place in _PLACES:
            path = os.path.normpath(f"{self.directory}/{place}/{name}")
            if os.access(path, os.X_OK) and not os.path.isdir(path):
                return path
        raise errors.ConfigurationError(f"version {self.series} has no program {name}")


def series_of(release: str) -> str:
    """Return the name of the version to which a release belongs: ``0.9`` for ``0.9.3``."""
    return ".".join(release.split(".")[:2])


def number_of(series: str) -> tuple[int, int]:
    """Return the two numbers of a version, for comparisons.

    :raises ConfigurationError: it is not the name of a version.
    """
    words = _SERIES.fullmatch(series)
    if words is None:
        raise errors.ConfigurationError(f"'{series}' is not a version such as 0.9")
    return int(words[1]), int(words[2])


#: The version of this program.
OWN = series_of(RELEASE)


def _own_directory() -> str | None:
    """Return the directory of the version whose program this is; None in a checkout."""
    if paths.project_dir() is not None:
        return None
    return os.path.dirname(os.path.dirname(paths.package_dir()))


def library_dir() -> str | None:
    """Return the directory which contains those of the versions; None if this node has none."""
    here = paths.current()
    if not machine.current().has_own_system:
        return here.to_local("/usr/lib/ganeti")
    own = _own_directory()
    return None if own is None else os.path.dirname(own)


def link_path() -> str | None:
    """Return the path of the link to the version in use; None if this node has no versions."""
    here = paths.current()
    if not machine.current().has_own_system:
        return f"{here.conf_dir}/version"
    library = library_dir()
    if library is None:
        return None
    prefix = os.path.dirname(os.path.dirname(library))
    # As devel/install-ganeti: an installation elsewhere, for tests, has its own etc.
    return f"{'' if prefix in ('/usr', '/usr/local') else prefix}/etc/ganeti/version"


def version_in(directory: str) -> Version | None:
    """Return the version in a directory, or in a checkout; None if there is none."""
    for package in _PACKAGES:
        try:
            text = fs.read_file(f"{directory}/{package}/__init__.py")
        except OSError:
            continue
        words = _RELEASE.search(text)
        if words is not None:
            return Version(series_of(words[1]), words[1], directory)
    return None


def installed() -> dict[str, Version]:
    """Return the versions which are installed on this node, by name, the oldest first."""
    library = library_dir()
    if library is None or not os.path.isdir(library):
        return {}
    found = {}
    names = [name for name in os.listdir(library) if _SERIES.fullmatch(name)]
    for name in sorted(names, key=number_of):
        version = version_in(f"{library}/{name}")
        if version is not None and version.series == name:
            found[name] = version
    return found


def active() -> str | None:
    """Return the name of the version which this node uses; None if it has no link to one."""
    link = link_path()
    if link is None or not os.path.islink(link):
        return None
    name = os.path.basename(os.readlink(link))
    return name if _SERIES.fullmatch(name) else None


def switch(series: str) -> Version:
    """Let this node use another version from now on. Programs which run are not changed.

    The link is replaced in one step and is on the disk when this returns.

    :raises ConfigurationError: the version is not installed on this node.
    :raises OSError: the link cannot be written.
    """
    version = installed().get(series)
    link = link_path()
    if version is None or link is None:
        raise errors.ConfigurationError(
            f"version {series} is not installed on {machine.current().hostname()};"
            f" {known_text(installed())}"
        )
    if active() == series:
        return version
    directory = os.path.dirname(link)
    fs.make_dirs(directory)
    new = f"{link}.new"
    fs.remove_file(new)
    # Relative, so that it is right on a node of a virtual cluster, too.
    os.symlink(os.path.relpath(version.directory, os.path.realpath(directory)), new)
    os.replace(new, link)
    fs.flush_dir(directory)
    return version


def known_text(known: dict[str, Version]) -> str:
    """Say which versions are installed, for messages."""
    if not known:
        return "no versions are installed side by side"
    return f"installed: {', '.join(known)}"
