"""The quotas: how much an owner uses, and how much he may use; see :mod:`ganeti.rapi.quotas`."""

from __future__ import annotations

from typing import Any, Final, TypedDict

from ganeti import ht
from ganeti.rapi import declare, typed
from ganeti.rapi.call import Call
from ganeti.rapi.declare import GET, READERS, Read, Resource, Result


class _Quota(TypedDict):
    owner: str
    limits: dict[str, int]
    use: dict[str, int]


async def _show(call: Call) -> Any:
    user = call.who
    assert user is not None
    rights = user.rights
    if rights.area(user.name, READERS, call.handler, GET) is None:
        found = await call.state.job_limits.quotas.use(None)
    else:
        named = [one for grant in rights.grants for one in grant.where]
        found = await call.state.job_limits.quotas.use(user.name, named)
    return [one._asdict() for one in found]


RESOURCES: Final = (
    Resource(
        "/2/quota",
        "quota",
        {
            GET: Read(
                _show,
                "Show how much the instances of the user have together, and how much they may have;"
                " with the right to read everything, those of all owners.",
                Result(
                    ht.ListOf(typed.of(_Quota)),
                    "owner, limits and use each: instances, memory, disk (MiB), vcpus; what is not"
                    " limited is not in limits",
                ),
                access=declare.USERS,
            ),
        },
    ),
)
