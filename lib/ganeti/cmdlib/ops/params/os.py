"""OS parameters: merge changes, and join public, private and secret ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ganeti import errors
from ganeti.constants.net import VALUE_DEFAULT
from ganeti.objects import fill

if TYPE_CHECKING:
    from ganeti.objects import Cluster

Params = Mapping[str, Any]


def merged(own: Params, changes: Params | None) -> dict[str, Any]:
    """An object's own OS parameters after changes; the value ``default`` removes one."""
    result = {**own, **(changes or {})}
    return {key: value for key, value in result.items() if value != VALUE_DEFAULT}


def for_installation(
    cluster: Cluster, os_name: str, public: Params, private: Params, secret: Params
) -> dict[str, Any]:
    """The OS parameters for the scripts of an OS definition: the cluster's values, then those
    given.

    :raises errors.OpPrereqError: a name is given with different visibility.
    """
    given = [name for params in (public, private, secret) for name in params]
    twice = sorted({name for name in given if given.count(name) > 1})
    if twice:
        raise errors.OpPrereqError(
            f"OS parameters {', '.join(twice)} are given with different visibility",
            errors.ECODE_INVAL,
        )
    return {
        **fill.fill_osparams(cluster, os_name, public),
        **fill.fill_osparams_private(cluster, os_name, private),
        **secret,
    }
