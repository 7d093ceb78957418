"""Reading configurations of older versions: one small function per step.

Steps work on the plain dictionary as it was read, before any object is made of it, and return a new
one. After the last step parameters which were introduced meanwhile get their defaults, so that what
follows may rely on filled dictionaries. A file of a newer version, or of one without a way to this
one, is refused untouched.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ganeti import errors
from ganeti.constants import cluster as const
from ganeti.constants import disk as disk_const
from ganeti.constants import instance as instance_const
from ganeti.constants import net as net_const
from ganeti.constants import node as node_const
from ganeti.objects import hvparams

Config = dict[str, Any]


def version_text(version: int) -> str:
    """``3010000`` -> ``3.1``."""
    return f"{version // 1_000_000}.{version // 10_000 % 100}"


def _from_3_0(config: Config) -> Config:
    """3.1 keeps what 3.0 wrote; it only knows more parameters."""
    return {**config, "version": 3_010_000}


# (major, minor) of a file -> the step to the next version.
_STEPS: dict[int, Callable[[Config], Config]] = {
    3_000_000: _from_3_0,
}


def upgrade(config: Any) -> Config:
    """Bring a configuration to the present version.

    :param config: what the file holds; not changed.
    :returns: the same dictionary when there was nothing to do.
    :raises ConfigurationError: this is no configuration.
    :raises ConfigVersionMismatch: no way leads from its version to this one.
    """
    if not isinstance(config, dict) or not isinstance(config.get("cluster"), dict):
        raise errors.ConfigurationError("the file holds no cluster configuration", "cluster")
    version = config.get("version")
    if not isinstance(version, int) or isinstance(version, bool):
        raise errors.ConfigurationError("version: must be an integer", "version")
    while config["version"] != const.CONFIG_VERSION:
        step = _STEPS.get(config["version"] // 10_000 * 10_000)
        if step is None:
            raise errors.ConfigVersionMismatch(const.CONFIG_VERSION, version)
        config = step(config)
    return _with_defaults(config)


def _with_defaults(config: Config) -> Config:
    cluster = config["cluster"]
    wanted = {
        "hvparams": {name: hvparams.defaults(name) for name in hvparams.TABLES},
        "diskparams": disk_const.TEMPLATE_DEFAULTS,
        "beparams": {"default": instance_const.BE_DEFAULTS},
        "nicparams": {"default": net_const.NIC_DEFAULTS},
    }
    found: Config = {}
    for key, defaults in wanted.items():
        given = cluster.get(key, {})
        # What is not a dictionary is left for the decoder, whose message leads to the place.
        if isinstance(given, dict):
            found[key] = _filled(given, defaults, only_known=key == "hvparams")
    if isinstance(cluster.get("ndparams", {}), dict):
        found["ndparams"] = {**node_const.ND_DEFAULTS, **cluster.get("ndparams", {})}
    if all(cluster.get(key) == value for key, value in found.items()):
        return config
    return {**config, "cluster": {**cluster, **found}}


def _filled(given: Config, defaults: dict[str, dict[str, Any]], *, only_known: bool) -> Config:
    """Fill each named dictionary; names without defaults stay as they are.

    :param only_known: leave out parameters which do not exist any more.
    """
    filled = dict(given)
    for name, values in defaults.items():
        own = filled.get(name, {})
        if isinstance(own, dict):
            filled[name] = {**values, **{
                key: value for key, value in own.items() if not only_known or key in values}}
    return filled
