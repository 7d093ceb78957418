"""The user of a guest's QEMU, after it has dropped privileges.

The parameter ``security_model`` has three values. With ``none`` QEMU keeps its user, with ``user``
it becomes the user in ``security_domain``. With ``pool`` it gets a user id of the cluster's pool
for itself, so that a guest which breaks out of its QEMU has no access to the others. A user id of
the pool is free when no process has it. While QEMU starts there is no such process yet, so a lock
file protects the time from the choice to the start.

Source: Ganeti design 2.2, *KVM Security*.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pwd
import random
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ganeti import errors
from ganeti.constants import ssconf
from ganeti.hypervisor.kvm.layout import Layout
from ganeti.objects.cluster_rules import EMPTY_POOL
from ganeti.platform import paths
from ganeti.utils import filelock, fs, process


@dataclass(frozen=True, slots=True)
class RunAs:
    """The user to which QEMU changes."""

    uid: int
    argument: str  # of QEMU's option: a name, or two numbers


def parse_pool(text: str) -> list[range]:
    """Read the cluster's pool of user ids from its ssconf file.

    :param text: an id or ``first-last`` in each line.
    :raises ParseError: a line has another form.
    """
    pool = []
    for line in text.split():
        first, _, last = line.partition("-")
        try:
            pool.append(range(int(first), int(last or first) + 1))
        except ValueError as err:
            raise errors.ParseError(f"uid pool: '{line}' is neither an id nor a range") from err
    return pool


def uids_in_use(candidates: Collection[int]) -> set[int]:
    """Return the user ids out of these which a running process has."""
    found = set()
    for name in os.listdir("/proc"):
        if name.isdigit():
            # A process may end in between.
            with contextlib.suppress(OSError):
                uid = os.stat(f"/proc/{name}").st_uid
                if uid in candidates and process.is_alive(int(name)):
                    found.add(uid)
    return found


def check(hvparams: Mapping[str, Any]) -> None:
    """Check that ``security_model`` and ``security_domain`` can be used on this node.

    Whether the pool has a free user id is found out at the start of a guest; the master checks that
    the cluster has a pool, because a node learns of a new one only when it is in force.

    :raises HypervisorError: they cannot; names the parameter.
    """
    model = hvparams.get("security_model") or "none"
    if model == "none":
        return
    if os.geteuid() != 0:
        raise errors.HypervisorError(
            f"parameter security_model: {model} needs root, to change the user of QEMU"
        )
    if model == "user":
        _named_user(hvparams)


def _named_user(hvparams: Mapping[str, Any]) -> RunAs:
    user = str(hvparams.get("security_domain") or "")
    try:
        return RunAs(pwd.getpwnam(user).pw_uid, user)
    except KeyError as err:
        raise errors.HypervisorError(
            f"parameter security_domain: there is no user '{user}'"
        ) from err


def _pool() -> list[int]:
    path = paths.current().ssconf_file(ssconf.UID_POOL)
    try:
        ranges = parse_pool(fs.read_file(path))
    except FileNotFoundError:
        return []
    except (OSError, errors.ParseError) as err:
        raise errors.HypervisorError(f"cannot read the pool of user ids: {err}") from err
    return [uid for one in ranges for uid in one]


@contextlib.contextmanager
def user_for(hvparams: Mapping[str, Any], layout: Layout) -> Iterator[RunAs | None]:
    """Choose the user of a QEMU, which the caller starts inside the context.

    :returns: None when QEMU keeps its user.
    :raises HypervisorError: there is no such user, or no free user id.
    """
    check(hvparams)
    model = hvparams.get("security_model") or "none"
    if model == "none":
        yield None
    elif model == "user":
        yield _named_user(hvparams)
    else:
        with _from_pool(layout) as chosen:
            yield chosen


@contextlib.contextmanager
def _from_pool(layout: Layout) -> Iterator[RunAs]:
    candidates = _pool()
    if not candidates:
        raise errors.HypervisorError(f"parameter security_model: {EMPTY_POOL}")
    # In random order: an id which has just become free may still own files of its last guest.
    random.shuffle(candidates)
    directory = paths.current().uid_pool_dir
    fs.make_dirs(directory, 0o750)
    used = uids_in_use(set(candidates))
    for uid in candidates:
        if uid in used:
            continue
        lock = filelock.FileLock(f"{directory}/{uid}")
        try:
            lock.acquire(timeout_s=0)
        except errors.LockError:
            lock.close()
            continue
        try:
            # Another start may have taken the id before it was locked.
            if uids_in_use({uid}):
                continue
            fs.write_file(layout.uid_file, str(uid), mode=0o644, sync=False)
            logging.info("instance %s runs as user id %d", layout.name, uid)
            yield RunAs(uid, _argument(uid))
            return
        finally:
            lock.close()
    raise errors.HypervisorError(
        f"no user id of the cluster's pool is free for instance {layout.name} "
        f"({len(candidates)} ids)"
    )


def _argument(uid: int) -> str:
    """Return the user id as an argument of QEMU's option: a name, or user and group id."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"{uid}:{uid}"


def current_uid(hvparams: Mapping[str, Any], layout: Layout) -> int | None:
    """Return the user id of a running guest; None when it kept that of this process.

    :raises HypervisorError: its user id is not known.
    """
    model = hvparams.get("security_model") or "none"
    if model == "user":
        return _named_user(hvparams).uid
    if model == "pool":
        try:
            return int(fs.read_file(layout.uid_file))
        except (OSError, ValueError) as err:
            raise errors.HypervisorError(
                f"the user id of instance {layout.name} is not known: {err}"
            ) from err
    return None
