"""What a release of this project can read, and how a configuration goes back to an earlier one.

Releases with the same version of the configuration may have different fields of our own. Each says
which it has (:func:`own_facts`, ``cfgupgrade --facts``); the later one, which knows all fields,
takes out of the configuration what the earlier one does not have. A setting which somebody has made
is never taken out: :func:`lost` names it, and the administrator gives it up first.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ganeti import RELEASE, errors
from ganeti.config import upgrade
from ganeti.constants import cluster as const
from ganeti.wire import json


class Facts(NamedTuple):
    """What a release can read.

    :ivar release: such as ``0.9.0``.
    :ivar config_version: the version of its configuration, such as 3010000.
    :ivar fields: the fields of our own which it has, by their place (:data:`upgrade.OURS`).
    :ivar parameters: the parameters of hypervisors of our own which it has, by hypervisor.
    """

    release: str
    config_version: int
    fields: dict[str, list[str]]
    parameters: dict[str, list[str]]


def own_facts() -> Facts:
    """Return what this release can read."""
    return Facts(
        RELEASE,
        const.CONFIG_VERSION,
        {place: sorted(names) for place, names in upgrade.OURS.items()},
        {name: sorted(names) for name, names in upgrade.HV_OURS.items()},
    )


def facts_text(facts: Facts) -> str:
    """Return the text which ``cfgupgrade --facts`` prints: a JSON object with the names of
    ``Facts``.
    """
    return json.dumps_pretty(facts._asdict())


def parse_facts(text: str) -> Facts:
    """Read what ``cfgupgrade --facts`` of a release prints.

    :raises ParseError: it has another form.
    """
    values = json.loads(text)
    if not isinstance(values, dict) or not set(Facts._fields) <= values.keys():
        raise errors.ParseError("these are not facts about a release")
    facts = Facts(**{name: values[name] for name in Facts._fields})
    if not isinstance(facts.release, str) or not isinstance(facts.config_version, int):
        raise errors.ParseError("facts about a release: wrong release or version")
    for names in (facts.fields, facts.parameters):
        if not isinstance(names, dict) or not all(isinstance(one, list) for one in names.values()):
            raise errors.ParseError("facts about a release: wrong names of fields")
    return facts


def lost(config: dict[str, Any], other: Facts) -> list[str]:
    """Return the settings which another release does not have, as texts for people.

    :param config: of this version; it is not changed.
    """
    found = upgrade.own_features(config, fields=other.fields, parameters=other.parameters)
    return [feature.text for feature in found]


def convert_back(config: dict[str, Any], other: Facts) -> dict[str, Any]:
    """Bring a configuration of this release to the form of an earlier one.

    What the master writes for itself and the earlier release does not have is left out.

    :returns: a new dictionary; an equal one when there is nothing to do.
    :raises ConfigurationError: the configuration has settings which would be lost, or no steps lead
        to the version of that release.
    """
    settings = lost(config, other)
    if settings:
        raise errors.ConfigurationError(
            f"release {other.release} does not have this: {'; '.join(settings)}"
        )
    if other.config_version not in upgrade.DOWNGRADE_VERSIONS:
        raise errors.ConfigurationError(
            "a configuration cannot be converted back to version"
            f" {upgrade.version_text(other.config_version)}"
        )
    return upgrade.downgrade(
        config, other.config_version, fields=other.fields, parameters=other.parameters
    )
