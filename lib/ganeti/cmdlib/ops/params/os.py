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

#: Ganeti writes the image with this address to the first disk instead of running the scripts.
IMAGE = "os-image"


def refuse_image(params: Params | None) -> None:
    """Refuse the parameter ``os-image``, which would have no effect.

    An image is not written, because it is any file of a node, or any address that a node can
    reach, and every user who may create instances could read it there.

    :raises errors.OpPrereqError: it is given, and not to be removed.
    """
    if params and params.get(IMAGE, VALUE_DEFAULT) != VALUE_DEFAULT:
        raise errors.OpPrereqError(
            f"OS parameter {IMAGE} is not supported: instances are installed by the scripts of an"
            " OS definition only. Use an OS definition whose script writes the image, or remove"
            f" the parameter with {IMAGE}={VALUE_DEFAULT}.",
            errors.ECODE_INVAL,
        )


def merged(own: Params, changes: Params | None) -> dict[str, Any]:
    """Return an object's own OS parameters after changes; the value ``default`` removes one.

    :raises errors.OpPrereqError: a parameter is not supported.
    """
    refuse_image(changes)
    result = {**own, **(changes or {})}
    return {key: value for key, value in result.items() if value != VALUE_DEFAULT}


def for_installation(
    cluster: Cluster, os_name: str, public: Params, private: Params, secret: Params
) -> dict[str, Any]:
    """Return the OS parameters for the scripts of an OS definition: the cluster's values, then
    those given.

    :raises errors.OpPrereqError: a name is given with different visibility, or is not supported.
    """
    given = [name for params in (public, private, secret) for name in params]
    twice = sorted({name for name in given if given.count(name) > 1})
    if twice:
        raise errors.OpPrereqError(
            f"OS parameters {', '.join(twice)} are given with different visibility",
            errors.ECODE_INVAL,
        )
    filled = {
        **fill.fill_osparams(cluster, os_name, public),
        **fill.fill_osparams_private(cluster, os_name, private),
        **secret,
    }
    refuse_image(filled)
    return filled
