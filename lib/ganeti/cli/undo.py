"""Undo a change of the configuration: ``gnt-cluster undo`` and ``gnt-instance undo``.

The history of the configuration (``doc/design-config-store.rst``) has the old and the new value
of each attribute which a commit changed. All commits of one job are undone together. From their
values a plan is made: a job for each object, with opcodes which bring the old values back. Only
jobs change anything, so locks, checks and hooks work as for every other change, and an undo can be
undone.

The plan names what no job brings back: data which were removed, and attributes for which there is
no opcode. It leaves alone what was changed again since: an undo never overwrites a newer change.
"""

from __future__ import annotations

import sys

from ganeti import TYPE_CHECKING, errors
from ganeti.cli import confirmation, failures, jobs, terminal, undo_instance, undo_objects
from ganeti.cli.command import Values
from ganeti.cli.undo_steps import Known, Opposite, attributes
from ganeti.constants.job import FINALIZED
from ganeti.utils.digits import is_number

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from ganeti.cli.undo_steps import Change
    from ganeti.luxi import client as luxi

    #: An entry of the answer to ``QueryConfigHistory``.
    Commit = Mapping[str, Any]

_REMOVED_INSTANCE = (
    "it was removed with its disks, and no job brings their data back. An export, if there is one,"
    " is imported with 'gnt-backup import'."
)
_OWN_COMMAND = (
    "Not everything is undone. Options which an error names belong to the command for that step,"
    " such as 'gnt-instance migrate'; undo does not have them."
)


def of_commit(values: Values, arguments: list[str]) -> int:
    """Undo what the job of a commit changed (``gnt-cluster undo``).

    :raises OpPrereqError: there is no such commit, or its job still runs.
    """
    if not is_number(arguments[0]):
        raise errors.OpPrereqError(
            f"'{arguments[0]}' is not a serial number. 'gnt-cluster history' shows them. The last"
            " change of an instance is undone with 'gnt-instance undo'.",
            errors.ECODE_INVAL,
        )
    client = jobs.connect()
    serial = int(arguments[0])
    commits = client.query_config_history(None)
    chosen = next((one for one in commits if one["serial"] == serial), None)
    if chosen is None:
        raise errors.OpPrereqError(
            f"the history has no commit with serial number {serial}. 'gnt-cluster history' shows"
            " them.",
            errors.ECODE_NOENT,
        )
    return _undo(values, client, commits, chosen, "")


def of_instance(values: Values, arguments: list[str]) -> int:
    """Undo the last change of an instance (``gnt-instance undo``).

    :raises OpPrereqError: there is no such instance, no change of it, or its job still runs.
    """
    client = jobs.connect()
    given = arguments[0]
    commits = client.query_config_history(None)
    try:
        ((name, uuid, disks, named),) = client.query_instances(
            [given], ["name", "uuid", "disk.uuids", "disk.names"], False
        )
    except errors.OpPrereqError:
        removed = _removal(client, commits, given)
        if removed is None:
            raise
        return _undo(values, client, commits, removed[0], removed[1])
    wanted = {uuid, *(disks or ())}
    names = {name, *wanted, *(one for one in named or () if one)}
    for commit in commits:
        if not _may_concern(commit, names):
            continue
        found = client.query_config_changes(commit["before"], commit["serial"])["changes"]
        if any(one["uuid"] in wanted and _counts(one) for one in found):
            return _undo(values, client, commits, commit, uuid)
    raise errors.OpPrereqError(f"the history has no change of instance {name}", errors.ECODE_NOENT)


def _may_concern(commit: Commit, names: set[str]) -> bool:
    """Tell whether a commit may have changed an instance or one of its disks.

    The report of a commit has the first changed objects only, and none when the commit was too
    large to be kept: the query for its changes says that.
    """
    named = commit["changes"]
    if commit["count"] is None:
        return True
    return len(named) < commit["count"] or any(
        kind in ("instances", "disks") and one in names for kind, one, *_ in named
    )


def _counts(change: Change) -> bool:
    return change["what"] != "changed" or bool(attributes(change))


def _removal(
    client: luxi.Client, commits: Iterable[Commit], name: str
) -> tuple[Commit, str] | None:
    """Return the newest commit which removed an instance of this name, and its UUID."""
    for commit in commits:
        for kind, full, what, _names in commit["changes"]:
            if (kind, what) != ("instances", "removed") or name not in (full, _short(full)):
                continue
            found = client.query_config_changes(commit["before"], commit["serial"])["changes"]
            return commit, next(one["uuid"] for one in found if one["name"] == full)
    return None


def _short(name: str) -> str:
    return name.partition(".")[0]


def _undo(
    values: Values, client: luxi.Client, commits: Sequence[Commit], chosen: Commit, only: str
) -> int:
    """Show the plan of the opposite of a commit and of the others of its job, ask, and run it.

    :param only: UUID of the instance whose change is undone; empty for all objects.
    :returns: the exit code.
    """
    _require_ended(client, chosen["job"])
    together = [chosen]
    if chosen["job"] is not None:
        together = [one for one in reversed(commits) if one["job"] == chosen["job"]]
    changes = _merged(
        client.query_config_changes(one["before"], one["serial"])["changes"] for one in together
    )
    later: dict[str, Change] = {}
    newest = commits[0]["serial"]
    if newest != together[-1]["serial"]:
        found = client.query_config_changes(together[-1]["serial"], newest)["changes"]
        later = {one["uuid"]: one for one in found}
    opposites = _plan(values, client, changes, later, only)
    _show(together, opposites)
    ready = [one for one in opposites if one.opcodes]
    if not ready:
        terminal.err("No job can undo this.")
        return failures.EXIT_FAILURE
    if not values.force and not values.get("force_multi"):
        code = confirmation.ask(values, "Continue?")
        if code is not None:
            return code
    job_set = jobs.JobSet(client, values)
    for one in ready:
        job_set.add(one.name or "the cluster", *one.opcodes)
    if job_set.run():
        return failures.EXIT_SUCCESS
    terminal.err(_OWN_COMMAND)
    return failures.EXIT_FAILURE


def _require_ended(client: luxi.Client, job_id: int | None) -> None:
    """Check that the job which made a change does not go on.

    :raises OpPrereqError: it does.
    """
    if job_id is None:
        return
    (row,) = client.query_jobs([job_id], ["status"])
    if row is not None and row[0] not in FINALIZED:
        raise errors.OpPrereqError(
            f"job {job_id}, which made this change, has not ended. Wait for it with 'gnt-job wait"
            f" {job_id}', or cancel it.",
            errors.ECODE_STATE,
        )


def _merged(commits: Iterable[Sequence[Change]]) -> list[Change]:
    """Return one change for each object, from before the first commit to after the last one."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for changes in commits:
        for change in changes:
            key = (change["kind"], change["uuid"])
            if key not in found:
                found[key] = dict(change)
                continue
            first = found[key]
            old, new = first["old"], change["new"]
            if old is None and new is None:
                del found[key]
            elif new is None:
                first.update(old={**(change["old"] or {}), **old}, new=None, what="removed")
            elif old is None:
                first.update(new={**(first["new"] or {}), **new})
            else:
                # The value before its first change, and that after its last one.
                before = {**(change["old"] or {}), **old}
                first.update(old=before, new={**(first["new"] or {}), **new})
            if key in found:
                found[key]["name"] = change["name"]
    return list(found.values())


def _plan(
    values: Values,
    client: luxi.Client,
    changes: Sequence[Change],
    later: Mapping[str, Change],
    only: str,
) -> list[Opposite]:
    """Return the opposite of the change of each object; disks belong to their instances."""
    known = Known(client)
    disks = {one["uuid"]: one for one in changes if one["kind"] == "disks"}
    instances = {one["uuid"]: one for one in changes if one["kind"] == "instances"}
    owned = _owned(client, instances, disks)
    opposites = []
    for uuid, change in instances.items():
        if only in ("", uuid):
            one = _opposite(values, change, later)
            _instance(one, change, later, known, owned.get(uuid, {}))
            opposites.append(one)
    for change in changes:
        if change["kind"] in ("instances", "disks") or only:
            continue
        one = _opposite(values, change, later)
        if _is_gone(later.get(change["uuid"])):
            one.left.append("it was removed since")
        elif _counts(change):
            undo_objects.plan(one, change["what"], known)
        opposites.append(one)
    return [one for one in opposites if one.opcodes or one.left]


def _opposite(values: Values, change: Change, later: Mapping[str, Change]) -> Opposite:
    """Return an empty opposite of a change, with the name which the object has now."""
    since = later.get(change["uuid"])
    name = change["name"] if since is None else since["name"]
    return Opposite({**change, "name": name}, values, _attributes_since(since))


def _owned(
    client: luxi.Client, instances: dict[str, Change], disks: Mapping[str, Change]
) -> dict[str, dict[str, Change]]:
    """Return the changed disks of each instance; add the instances of which only disks changed."""
    if not disks:
        return {}
    owned: dict[str, dict[str, Change]] = {}
    for uuid, change in instances.items():
        for table in (change["old"] or {}, change["new"] or {}):
            for disk in table.get("disks") or ():
                if disk in disks:
                    owned.setdefault(uuid, {})[disk] = disks[disk]
    placed = {disk for mine in owned.values() for disk in mine}
    if placed >= set(disks):
        return owned
    for name, uuid, uuids in client.query_instances([], ["name", "uuid", "disk.uuids"], False):
        mine = {disk: disks[disk] for disk in uuids or () if disk in disks and disk not in placed}
        if mine:
            owned.setdefault(uuid, {}).update(mine)
            unchanged = {"kind": "instances", "uuid": uuid, "name": name, "what": "changed"}
            instances.setdefault(uuid, {**unchanged, "old": {}, "new": {}})
    return owned


def _instance(
    one: Opposite,
    change: Change,
    later: Mapping[str, Change],
    known: Known,
    disks: Mapping[str, Change],
) -> None:
    from ganeti.opcodes.instance import OpInstanceRemove

    since = later.get(change["uuid"])
    if _is_gone(since):
        one.left.append("it was removed since")
    elif change["what"] == "removed":
        one.left.append(_REMOVED_INSTANCE)
    elif change["what"] == "added":
        one.add(
            f"remove it, and destroy its disks and all their data{one.since}",
            OpInstanceRemove(instance_name=one.name, **one.common),
        )
    else:
        since_disks = {uuid: _attributes_since(later.get(uuid)) for uuid in disks}
        undo_instance.opposite(undo_instance.InstanceChange(one, known, disks, since_disks))


def _is_gone(since: Change | None) -> bool:
    return since is not None and since["what"] == "removed"


def _attributes_since(since: Change | None) -> set[str]:
    """Return the attributes of an object which were changed after the commit."""
    return set() if since is None or since["what"] != "changed" else attributes(since)


def _show(together: Sequence[Commit], opposites: Sequence[Opposite]) -> None:
    """Write the plan."""
    from ganeti.cli import listing

    serials = sorted(one["serial"] for one in together)
    which = f"commit {serials[0]}"
    if len(serials) > 1:
        which = f"commits {', '.join(map(str, serials[:-1]))} and {serials[-1]}"
    last = together[-1]
    job = "" if last["job"] is None else f", job {last['job']}"
    lines = [f"Undo of {which} ({listing.format_time(last['time'])}{job}):"]
    planned = [f"  {one.label}: {step}" for one in opposites for step in one.steps]
    lines += planned or ["  nothing"]
    left = [f"  {one.label}: {text}" for one in opposites for text in one.left]
    if left:
        lines += ["This is not undone:", *left]
    for line in lines:
        terminal.out(terminal.wrapped(line, sys.stdout, "  "))
