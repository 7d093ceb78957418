"""Operations on an instance as a whole: start, stop, move, install, export."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ganeti import ht
from ganeti.constants import query as query_const
from ganeti.http.messages import Refused
from ganeti.opcodes import types
from ganeti.opcodes.backup import OpBackupExport, OpBackupPrepare, OpBackupRemove
from ganeti.opcodes.instance import (
    OpInstanceFailover,
    OpInstanceMigrate,
    OpInstanceReboot,
    OpInstanceReinstall,
    OpInstanceShutdown,
    OpInstanceStartup,
)
from ganeti.rapi import declare
from ganeti.rapi.call import Call
from ganeti.rapi.declare import DELETE, DRY_RUN, FORCE, POST, PUT, Field, Job, Query, Resource
from ganeti.rapi.resources.instances import PATH

_NO_REMEMBER: Final = Query(
    "no_remember",
    "1: do not change the wanted state of the instance",
    default=False,
    param="no_remember",
)


def _reinstall(call: Call, body: Mapping[str, Any]) -> list[Any]:
    if call.given & {"os", "nostartup"}:
        if call.body:
            raise Refused(400, "give either a body or the query arguments 'os' and 'nostartup'")
        body = {"os": call.query["os"], "start": not call.query["nostartup"], "osparams": None}
    name = call.uri["instance_name"]
    ops: list[Any] = [
        OpInstanceShutdown(instance_name=name),
        OpInstanceReinstall(instance_name=name, os_type=body["os"], osparams=body["osparams"]),
    ]
    if body["start"]:
        ops.append(OpInstanceStartup(instance_name=name, force=False))
    return ops


RESOURCES: Final = tuple(
    Resource(
        f"{PATH}/{path}",
        f"instances_name_{path.replace('-', '_')}",
        operations,
        tagged=query_const.INSTANCE,
    )
    for path, operations in {
        "startup": {
            PUT: Job(OpInstanceStartup, "Start an instance.", (DRY_RUN, FORCE, _NO_REMEMBER))
        },
        "shutdown": {
            PUT: Job(OpInstanceShutdown, "Stop an instance.", (DRY_RUN, _NO_REMEMBER), body=True)
        },
        "reboot": {
            POST: Job(
                OpInstanceReboot,
                "Reboot an instance.",
                (
                    Query(
                        "type",
                        "how",
                        declare.TEXT,
                        "hard",
                        "reboot_type",
                        choices=("soft", "hard", "full"),
                    ),
                    Query(
                        "ignore_secondaries",
                        "1: also when a secondary node fails",
                        default=False,
                        param="ignore_secondaries",
                    ),
                    DRY_RUN,
                ),
                body=True,
            )
        },
        "reinstall": {
            POST: Job(
                OpInstanceReinstall,
                "Reinstall the operating system: one job which stops the instance, installs, and"
                " starts it.",
                (
                    Query("os", "older form of the parameter in the body", declare.TEXT),
                    Query(
                        "nostartup",
                        "older form of the parameter start in the body, reversed",
                        default=False,
                    ),
                ),
                build=_reinstall,
                fields={
                    "os": Field(types.MaybeString, "operating system; the present one by default"),
                    "start": Field(ht.Bool, "start the instance afterwards", default=True),
                    "osparams": Field(ht.Maybe(ht.Dict), "parameters of the operating system"),
                },
            )
        },
        "migrate": {PUT: Job(OpInstanceMigrate, "Migrate an instance to another node.", body=True)},
        "failover": {
            PUT: Job(OpInstanceFailover, "Fail an instance over to another node.", body=True)
        },
        "prepare-export": {
            PUT: Job(
                OpBackupPrepare,
                "Prepare an export to another cluster.",
                (Query("mode", "how: local or remote", declare.TEXT, param="mode"),),
            )
        },
        "export": {
            PUT: Job(
                OpBackupExport,
                "Export an instance to a node or another cluster.",
                body=True,
                rename={"destination": "target_node"},
            ),
            DELETE: Job(OpBackupRemove, "Remove the exports of an instance.", body=True),
        },
    }.items()
)
