"""OS parameters: merge changes, and join public, private and secret ones."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ganeti import errors
from ganeti.constants.net import VALUE_DEFAULT
from ganeti.objects import fill
from ganeti.utils import text

if TYPE_CHECKING:
    from ganeti.objects import Cluster

Params = Mapping[str, Any]

#: The image with this path or address is written to the first disk, and no script is run.
IMAGE = "os-image"
_ADDRESS = re.compile(r"(?:https?|ftp)://\S+")


def checked_image(value: Any) -> str:
    """Return the value of the parameter ``os-image``: a path on the node, or an address.

    :returns: the empty text for no image.
    :raises errors.OpPrereqError: it is something else.
    """
    if value in (None, "", VALUE_DEFAULT):
        return ""
    if isinstance(value, str) and (value.startswith("/") or _ADDRESS.fullmatch(value)):
        return value
    # An address may have a password, so the message does not repeat it.
    raise errors.OpPrereqError(
        f"OS parameter {IMAGE} must be the absolute path of a raw image on the node, or its"
        " address (http, https or ftp)",
        errors.ECODE_INVAL,
    )


def require_variables(params: Params | None, what: str = "OS parameter") -> None:
    """Check that scripts can get parameters, which become variables of their environment.

    :param what: the kind of parameters, for errors, which do not repeat the values.
    :raises errors.OpPrereqError: one has a character which no environment can have.
    """
    for name, value in (params or {}).items():
        if wrong := text.wrong_variable(name, value):
            raise errors.OpPrereqError(f"{what} {name!r:.80}: {wrong}", errors.ECODE_INVAL)


def merged(own: Params, changes: Params | None) -> dict[str, Any]:
    """Return an object's own OS parameters after changes; the value ``default`` removes one.

    :raises errors.OpPrereqError: the image is neither a path nor an address, or scripts cannot get
        a parameter.
    """
    require_variables(changes)
    checked_image((changes or {}).get(IMAGE))
    result = {**own, **(changes or {})}
    return {key: value for key, value in result.items() if value != VALUE_DEFAULT}


def for_installation(
    cluster: Cluster, os_name: str, public: Params, private: Params, secret: Params
) -> tuple[dict[str, Any], str]:
    """Return the OS parameters of an installation: the cluster's values, then those given.

    :returns: the parameters for the scripts of the OS definition; and the path or the address of
        the image which is written instead of running the scripts, empty for none.
    :raises errors.OpPrereqError: a name is given with different visibility, the image is neither a
        path nor an address, or scripts cannot get a parameter.
    """
    for params in (public, private, secret):
        require_variables(params)
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
    return filled, checked_image(filled.pop(IMAGE, None))
