"""The fields of every kind of object, a module for each; :func:`lookup` finds them by name."""

from __future__ import annotations

from importlib import import_module

from ganeti import errors
from ganeti.constants import query as query_c
from ganeti.query.field import Resource

# Modules called "filter" and "os" could be confused with others of that name.
_MODULES = {
    query_c.CLUSTER: "cluster",
    query_c.EXPORT: "export",
    query_c.EXTSTORAGE: "extstorage",
    query_c.FILTER: "filter_rule",
    query_c.GROUP: "group",
    query_c.INSTANCE: "instance",
    query_c.JOB: "job",
    query_c.LOCK: "lock",
    query_c.NETWORK: "network",
    query_c.NODE: "node",
    query_c.OS: "os_definition",
}


def lookup(what: str) -> Resource:
    """Return the resource with this name.

    :raises errors.OpPrereqError: there is none.
    """
    module = _MODULES.get(what) if isinstance(what, str) else None
    if module is None:
        raise errors.OpPrereqError(
            f"there is nothing called {what!r} to query. Known are {', '.join(_MODULES)}.",
            errors.ECODE_INVAL,
        )
    resource: Resource = import_module(f"{__name__}.{module}").RESOURCE
    return resource
