"""What stands in the way back: features in use which the original lacks, and their remedies.

The way back is refused while there is one, because a setting would be lost. What the
master records for itself is left out without a word (:mod:`ganeti.config.upgrade`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ganeti import errors
from ganeti.config import upgrade
from ganeti.rapi import passwords

#: Field -> what to do; ``{name}`` is the name of the object.
REMEDIES = {
    "auto_balance": "gnt-cluster modify --auto-balance=no",
    "auto_failover": "gnt-cluster modify --auto-failover=no",
    "auto_instance_failover": "gnt-cluster modify --auto-instance-failover=no",
    "damaged": "gnt-cluster verify names the damaged parts; repair or remove them",
    "documents": "remove the documents, with DELETE /2/documents/NAME of the REST interface",
    "enabled_hypervisors": "gnt-group modify --enabled-hypervisors=default {name}",
    "importing_since": "wait for the import of {name}, or gnt-instance remove {name}",
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


def in_the_way(config: dict[str, Any], rapi_users: str) -> Iterator[tuple[str, str]]:
    """Iterate over what stands in the way back: text, and what to do.

    :param config: of our version.
    :param rapi_users: content of the file with the users of the REST interface.
    """
    for feature in upgrade.own_features(config):
        yield feature.text, remedy(feature)
    for name in slow_passwords(rapi_users):
        yield (
            f"REST user {name}: a password in the form SCRYPT",
            f"put a password as text or {{HA1}} into /var/lib/ganeti/rapi/users, or rapi-passwd"
            f" --delete {name}",
        )


def slow_passwords(text: str) -> list[str]:
    """Return the users whose password has a form which the original cannot read."""
    found = []
    for line in text.splitlines():
        words = line.split()
        if len(words) < 2 or words[0].startswith("#"):
            continue
        try:
            if passwords.parse(words[1]).slow:
                found.append(words[0])
        except errors.ParseError:
            continue
    return found
