"""What stands in the way back: features in use which the original lacks, and their remedies.

The way back is refused while there is one, because a setting would be lost. What the
master records for itself is left out without a word (:mod:`ganeti.config.upgrade`).

Snapshots are not in the configuration, so :func:`questions` has questions about them for the nodes,
and :func:`kept_snapshots` reads the answers.
"""

from __future__ import annotations

import glob
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from ganeti import errors
from ganeti.config import newer_values, upgrade
from ganeti.constants import disk as disk_const
from ganeti.objects import snapshots
from ganeti.rapi import passwords

#: Field -> what to do; ``{name}`` is the name of the object.
REMEDIES = {
    "auto_balance": "gnt-cluster modify --auto-balance=no",
    "auto_failover": "gnt-cluster modify --auto-failover=no",
    "auto_instance_failover": "gnt-cluster modify --auto-instance-failover=no",
    "damaged": "gnt-cluster verify names the damaged parts; repair or remove them",
    "documents": "remove the documents, with DELETE /2/documents/NAME of the REST interface",
    "enabled_hypervisors": "gnt-group modify --enabled-hypervisors=default {name}",
    "ext_reservations6": "gnt-network modify --remove-reserved-ips=ADDRESS,... {name}, with the"
    " IPv6 addresses which gnt-network info shows as reserved",
    "importing_since": "wait for the import or the copy of {name}, or gnt-instance remove {name}",
    "ip6": "gnt-instance modify --net INDEX:modify,ip6=none {name}, for each interface with one",
    "job_execution": "gnt-cluster modify --job-execution=threads",
    "maintenance": "gnt-node maintenance end {name}",
    "node_watchdog": "gnt-cluster modify --node-watchdog=no",
    "outdated_node": "repair the disk, with gnt-instance replace-disks --auto",
    "rapi_require_authentication": "gnt-cluster modify --rapi-require-authentication=no, and"
    " --require-authentication in RAPI_ARGS after the way back",
    "unwiped_from": "complete the growth, with gnt-instance grow-disk, or remove the disk",
    "witness": "gnt-cluster modify --witness=none",
}


def remedy(feature: upgrade.OwnFeature) -> str:
    """Say how a feature is given up."""
    name = feature.owner.partition(" ")[2]
    if feature.hypervisor:
        setting = f"{feature.name}=default"
        if feature.owner.startswith("instance "):
            return f"gnt-instance modify -H {setting} {name}"
        if feature.owner == "the cluster":
            return f"gnt-cluster modify -H {feature.hypervisor}:{setting}"
        return f"gnt-os modify -H {feature.hypervisor}:{setting} {name.rpartition(' ')[2]}"
    return REMEDIES[feature.name].format(name=name)


def remedy_of_value(found: newer_values.NewerValue) -> str:
    """Say how a value is given up."""
    name = found.owner.partition(" ")[2]
    place = found.place.partition(" ")[2]
    if found.kind == newer_values.HYPERVISOR:
        feature = upgrade.OwnFeature(found.owner, found.name, found.place)
        return remedy(feature)
    if found.kind == newer_values.SSH_KEYS:
        return "gnt-cluster renew-crypto --new-ssh-keys --ssh-key-type=rsa"
    if found.kind == newer_values.NETWORK:
        return (
            f"gnt-network disconnect {place} {name}; connect it again with another mode, if it is"
            " needed"
        )
    if found.kind == newer_values.STORAGE:
        if found.owner == "the cluster":
            return "gnt-cluster modify -D rbd:user-id="
        return f"gnt-group modify -D rbd:user-id=default {name}"
    if found.owner == "the cluster":
        return "gnt-cluster modify --nic-parameters=mode=bridged"
    return f"gnt-instance modify --net {place}:mode=bridged {name}"


def in_the_way(config: dict[str, Any], rapi_users: str, to: int) -> Iterator[tuple[str, str]]:
    """Iterate over what stands in the way back: text, and what to do.

    :param config: of our version.
    :param rapi_users: content of the file with the users of the REST interface.
    :param to: version of the configuration of the original to which the way leads.
    """
    for feature in upgrade.own_features(config):
        yield feature.text, remedy(feature)
    for value in upgrade.newer_in(config, to):
        yield value.text, remedy_of_value(value)
    for instance in (config.get("instances") or {}).values():
        name = instance["name"]
        for snapshot in snapshots.partly_restored(instance.get("tags") or ()):
            yield (
                f"instance {name}: a disk which was not completely restored from snapshot"
                f" {snapshot}",
                f"gnt-instance restore-snapshot {name} {snapshot}",
            )
    for name, form in own_passwords(rapi_users):
        yield (
            f"REST user {name}: a password in the form {form}",
            f"put a password as text or {{HA1}} into /var/lib/ganeti/rapi/users, or rapi-passwd"
            f" --delete {name}",
        )
    for name, right in own_rights(rapi_users):
        yield (
            f"REST user {name}: right {right}",
            "write read or write instead into /var/lib/ganeti/rapi/users, or rapi-passwd"
            f" --delete {name}",
        )


# -- OS definitions --------------------------------------------------------------------------------

#: OS definitions of our package, in ``/usr/lib/ganeti/os``; they go with it.
OWN_DEFINITIONS = ("image", "tiny")


def own_definitions(config: dict[str, Any], kept: Collection[str]) -> Iterator[tuple[str, str]]:
    """Iterate over the instances whose OS definition goes with our package: text, and what to do.

    Without it they run on, but cannot be installed again, renamed or exported.

    :param kept: names of the OS definitions which stay.
    """
    for instance in (config.get("instances") or {}).values():
        name = (instance.get("os") or "").partition("+")[0]
        if name in OWN_DEFINITIONS and name not in kept:
            yield (
                f"instance {instance['name']}: OS definition {name}, which is part of our package",
                f"copy /usr/lib/ganeti/os/{name} into /srv/ganeti/os on all nodes, or"
                f" gnt-instance modify --os-type=OTHER {instance['name']}",
            )


# -- snapshots -------------------------------------------------------------------------------------

_VOLUMES = "volumes"
_SEPARATOR = "|"
_FILES = (disk_const.FILE, disk_const.SHARED_FILE)


def _places(config: dict[str, Any]) -> dict[tuple[str, str], str]:
    """Return where the content of disks is: kind and place -> name of the instance.

    The kind is that of the disk, with one word for files; the place is a path, or ``group/volume``.
    """
    owners = {
        uuid: instance["name"]
        for instance in (config.get("instances") or {}).values()
        for uuid in instance.get("disks") or ()
    }
    found = {}
    for uuid, disk in (config.get("disks") or {}).items():
        name = owners.get(uuid)
        # The data are in the first device below a mirrored disk; the other has its metadata.
        for below in [disk, *(disk.get("children") or ())[:1]]:
            if name is None:
                continue
            if below["dev_type"] in _FILES:
                found[disk_const.FILE, str(below["logical_id"][1])] = name
            elif below["dev_type"] == disk_const.PLAIN:
                found[disk_const.PLAIN, "/".join(below["logical_id"])] = name
    return found


def questions(config: dict[str, Any]) -> dict[str, Any]:
    """Return the questions for the probe about snapshots of disks.

    :param config: of our version.
    """
    places = _places(config)
    commands = {}
    if any(kind == disk_const.PLAIN for kind, _place in places):
        commands[_VOLUMES] = [
            "lvs", "--noheadings", f"--separator={_SEPARATOR}", "-ovg_name,lv_name",
        ]  # fmt: skip
    return {
        "commands": commands,
        "files": [],
        "patterns": [
            f"{glob.escape(place)}{snapshots.SEPARATOR}*"
            for kind, place in places
            if kind == disk_const.FILE
        ],
        "free": [],
        "sizes": [],
    }


def kept_snapshots(config: dict[str, Any], answers: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the snapshots which a node has: name of the instance, and of the snapshot.

    :param config: of our version.
    :param answers: of the probe, to :func:`questions`.
    :raises ParseError: the node could not list its volumes, or the answer is something else.
    """
    try:
        seen = [(disk_const.FILE, path) for paths in answers["patterns"].values() for path in paths]
        if _VOLUMES in answers["commands"]:
            text = answers["commands"][_VOLUMES]
            if text is None:
                raise errors.ParseError("its logical volumes cannot be listed")
            seen += [
                (disk_const.PLAIN, "/".join(line.strip().split(_SEPARATOR)))
                for line in text.splitlines()
            ]
    except (LookupError, TypeError, AttributeError) as err:
        raise errors.ParseError(f"not the answers of the probe: {err}") from err
    places = _places(config)
    found = []
    for kind, place in seen:
        parts = snapshots.split(place)
        if parts is not None and (kind, parts[0]) in places:
            found.append((places[kind, parts[0]], parts[1]))
    return sorted(set(found))


def snapshots_in_the_way(
    found: Mapping[str, list[tuple[str, str]] | str],
) -> Iterator[tuple[str, str]]:
    """Iterate over the snapshots on all nodes: text, and what to do.

    :param found: name of a node -> the answer of :func:`kept_snapshots`, or why there is none.
    """
    nodes: dict[tuple[str, str], list[str]] = {}
    for node, answer in found.items():
        if isinstance(answer, str):
            yield (
                f"node {node}: it did not say whether it has snapshots: {answer}",
                "mend that, mark the node offline, or use --leave-out",
            )
            continue
        for one in answer:
            nodes.setdefault(one, []).append(node)
    for (instance, snapshot), names in sorted(nodes.items()):
        yield (
            f"instance {instance}: snapshot {snapshot}, on {', '.join(names)}",
            f"gnt-instance remove-snapshot {instance} {snapshot}",
        )


# -- users of the REST interface -------------------------------------------------------------------

#: Rights of users which the original has, too.
_KNOWN_RIGHTS = ("read", "write")


def own_rights(text: str) -> list[tuple[str, str]]:
    """Return the users with rights which the original does not know: name and right."""
    found = []
    for line in text.splitlines():
        words = line.split(maxsplit=2)
        if len(words) < 3 or words[0].startswith("#"):
            continue
        rights = (one.strip() for one in words[2].split(","))
        found += [(words[0], right) for right in rights if right and right not in _KNOWN_RIGHTS]
    return found


def own_passwords(text: str) -> list[tuple[str, str]]:
    """Return the users whose password has a form which the original cannot read, and the form."""
    found = []
    for line in text.splitlines():
        words = line.split()
        if len(words) < 2 or words[0].startswith("#"):
            continue
        try:
            form = passwords.parse(words[1]).form
            if form in ("scrypt", passwords.PAM):
                found.append((words[0], form.upper()))
        except errors.ParseError:
            continue
    return found
