"""What must hold before an upgrade begins; nothing is changed here."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from ganeti import FULL_VERSION, errors
from ganeti.config import releases
from ganeti.config import upgrade as config_upgrade
from ganeti.platform import machine, versions
from ganeti.upgrading.work import ClusterWork


class Member(NamedTuple):
    """A node of the cluster."""

    name: str
    address: str
    is_master: bool
    offline: bool
    uuid: str = ""


def find_target(text: str, known: dict[str, versions.Version]) -> versions.Version:
    """Find the version which the user names: ``0.9``, or one of its releases: ``0.9.3``.

    :raises OpPrereqError: it is not a version, or is not installed on this node.
    """
    words = text.split(".")
    if not 2 <= len(words) <= 3 or not all(word.isdecimal() for word in words):
        raise errors.OpPrereqError(f"'{text}' is not a version such as 0.9", errors.ECODE_INVAL)
    series = versions.series_of(text)
    found = known.get(series)
    if found is None:
        raise errors.OpPrereqError(
            f"version {series} is not installed on {machine.current().hostname()};"
            f" {versions.known_text(known)}",
            errors.ECODE_ENVIRON,
        )
    if len(words) == 3 and found.release != text:
        raise errors.OpPrereqError(
            f"release {text} is not installed on {machine.current().hostname()}, but release"
            f" {found.release} of version {series}",
            errors.ECODE_ENVIRON,
        )
    return found


def require_neighbour(origin: str, target: str) -> None:
    """Check that the way from one version to another one exists.

    An upgrade may skip versions. A way back goes to the version before: no other one is known to
    what wrote the files.

    :raises OpPrereqError: it goes back over more than one version.
    """
    (major, minor), wanted = versions.number_of(origin), versions.number_of(target)
    if wanted < (major, minor) and wanted != (major, minor - 1):
        raise errors.OpPrereqError(
            f"version {origin} can go back to version {major}.{minor - 1} and no further"
            if minor
            else f"there is no way back from version {origin} to version {target}",
            errors.ECODE_INVAL,
        )


def chosen(members: Sequence[Member], leave_out: Collection[str]) -> list[Member]:
    """Return the nodes which are switched.

    :param leave_out: names of nodes which keep their version.
    :raises OpPrereqError: a node is offline and was not left out, or a name is wrong.
    """
    names = {one.name for one in members}
    wrong = sorted(set(leave_out) - names)
    if wrong:
        raise errors.OpPrereqError(f"no node '{wrong[0]}' in this cluster", errors.ECODE_NOENT)
    for one in members:
        if one.name in leave_out and not one.offline:
            raise errors.OpPrereqError(
                f"node {one.name} is online; only nodes which are offline can be left out",
                errors.ECODE_INVAL,
            )
    offline = [one.name for one in members if one.offline and one.name not in leave_out]
    if offline:
        raise errors.OpPrereqError(
            f"these nodes are offline: {', '.join(offline)}. With '--leave-out=NODE' they keep"
            " their version; when they are back, the same command switches them",
            errors.ECODE_STATE,
        )
    return [one for one in members if not one.offline]


def require_daemon_version(info: dict[str, Any]) -> None:
    """Check that the master daemon has the release of this program.

    :raises OpPrereqError: it has another one.
    """
    if FULL_VERSION not in str(info.get("vcs_version", "")):
        raise errors.OpPrereqError(
            f"the master daemon has another release than this program ({FULL_VERSION}). Restart the"
            " daemons on every node",
            errors.ECODE_STATE,
        )


def require_no_watchdog(info: dict[str, Any]) -> None:
    """Check that no hardware watchdog would restart nodes while their daemons are stopped.

    :raises OpPrereqError: the nodes use theirs.
    """
    if info.get("node_watchdog"):
        raise errors.OpPrereqError(
            "the hardware watchdogs of the nodes are in use. Use 'gnt-cluster modify"
            " --node-watchdog=no' first, and switch them on again afterwards",
            errors.ECODE_STATE,
        )


def require_space(directory: str, needed_bytes: int) -> None:
    """Check that an archive finds enough space, because it is written while no daemon runs.

    :param directory: where the archive will be; it may be missing.
    :param needed_bytes: its size without compression.
    :raises OpPrereqError: there is less.
    """
    place = directory
    while not os.path.exists(place):
        place = os.path.dirname(place)
    found = os.statvfs(place)
    free_bytes = found.f_bavail * found.f_frsize
    if free_bytes < needed_bytes:
        raise errors.OpPrereqError(
            f"{directory} has {free_bytes >> 20} MiB of free space; the archive of the master may"
            f" need {(needed_bytes >> 20) + 1} MiB",
            errors.ECODE_NORES,
        )


def problems_of_nodes(
    work: ClusterWork, names: Sequence[str], origin: str, target: versions.Version
) -> list[str]:
    """Ask all nodes whether they have both versions; returns what is wrong, a line for each."""
    found = []
    for name, answer in work.versions_of(names, origin).items():
        if isinstance(answer, str):
            found.append(f"{name}: {answer}")
            continue
        releases_there = answer["installed"]
        assert isinstance(releases_there, dict)
        there = releases_there.get(target.series)
        if there is None:
            found.append(f"{name}: version {target.series} is not installed")
        elif there != target.release:
            found.append(
                f"{name}: version {target.series} is release {there}, but {target.release} on the"
                " master"
            )
        # A node which is only to follow the master may have any version.
        if target.series != origin and answer["active"] not in (origin, target.series):
            found.append(f"{name}: uses version {answer['active']}, the master {origin}")
    return found


def lost_settings(raw: dict[str, Any], facts: releases.Facts) -> list[str]:
    """Return what the configuration has and the earlier version does not, for people."""
    return releases.lost(config_upgrade.upgrade(raw), facts)
