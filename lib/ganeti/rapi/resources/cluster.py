"""The cluster as a whole, and the interface itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ganeti import ht
from ganeti.constants import cluster as cluster_const
from ganeti.constants import query as query_const
from ganeti.luxi import answers
from ganeti.opcodes.cluster import OpClusterRedistConf, OpClusterSetParams
from ganeti.rapi import declare, typed
from ganeti.rapi.call import Call
from ganeti.rapi.declare import GET, PUT, Job, Read, Resource, Result
from ganeti.rapi.resources.common import NULL, etag, tags_resource

FEATURES: Final = (
    "instance-create-reqv1",
    "instance-reinstall-reqv1",
    "node-migrate-reqv1",
    "node-evac-res1",
)
# Other names of these values.
_ALIASES: Final = {"volume_group_name": "vg_name", "drbd_usermode_helper": "drbd_helper"}


async def _nothing(_call: Call) -> None:
    return None


async def _version(_call: Call) -> int:
    return cluster_const.RAPI_VERSION


async def _features(_call: Call) -> list[str]:
    return list(FEATURES)


async def _info(call: Call) -> dict[str, Any]:
    info = with_aliases(await call.master.call("QueryClusterInfo"))
    # The serial number of the cluster is not published; its time of change replaces it.
    call.etag = etag(info["uuid"], info["mtime"])
    return info


def with_aliases(info: dict[str, Any]) -> dict[str, Any]:
    """Return the description of the cluster with the other names of some values."""
    return {**info, **{alias: info.get(name) for name, alias in _ALIASES.items()}}


async def _os(call: Call) -> Any:
    answer = await call.master.call("Query", query_const.OS, query_const.OS_FIELDS, None)
    found = [
        {name: value for name, (_status, value) in zip(query_const.OS_FIELDS, row, strict=True)}
        for row in answer["data"]
    ]
    if call.query["bulk"]:
        return [_described(one) for one in found]
    names: list[str] = []
    for one in found:
        if one["valid"] and not one["hidden"] and not one["blacklisted"]:
            variants = [variant for variant in one["variants"] or () if variant]
            names += [f"{one['name']}+{variant}" for variant in variants] or [one["name"]]
    return sorted(names)


async def _images(call: Call) -> Any:
    return await call.master.call("QueryImages")


def _described(one: Mapping[str, Any]) -> dict[str, Any]:
    parameters = [
        {"name": name, "description": text}
        for name, text in (_pair(entry) for entry in one["parameters"] or ())
    ]
    return {**one, "parameters": parameters}


def _pair(entry: Any) -> tuple[str, str]:
    if isinstance(entry, str):
        return entry, ""
    name, *text = entry
    return str(name), str(text[0]) if text else ""


RESOURCES: Final = (
    Resource("/", "R_root", {GET: Read(_nothing, "Nothing; shows that the server runs.", NULL)}),
    Resource("/2", "R_2", {GET: Read(_nothing, "Nothing; shows that this version exists.", NULL)}),
    Resource(
        "/version",
        "R_version",
        {
            GET: Read(_version, "The version of this interface.", Result(ht.NonNegInt, "2")),
        },
    ),
    Resource(
        "/2/features",
        "features",
        {
            GET: Read(
                _features,
                "The features of this server.",
                Result(ht.ListOf(ht.NonEmptyString), "names"),
            ),
        },
    ),
    Resource(
        "/2/info",
        "info",
        {
            GET: Read(_info, "The cluster as a whole.", Result(ht.Dict, "name -> value")),
        },
    ),
    Resource(
        "/2/modify",
        "cluster_modify",
        {
            PUT: Job(
                OpClusterSetParams,
                "Change the parameters of the cluster.",
                body=True,
                forbidden=("compression_tools",),
            ),
        },
    ),
    Resource(
        "/2/redistribute-config",
        "redist_config",
        {
            PUT: Job(OpClusterRedistConf, "Send the configuration to all nodes again."),
        },
    ),
    Resource(
        "/2/os",
        "os",
        {
            GET: Read(
                _os,
                "List the operating systems which can be installed.",
                Result(
                    ht.List,
                    "names, with +variant for OSes with variants; with bulk whole descriptions",
                    query_const.OS_FIELDS,
                ),
                (declare.BULK,),
            ),
        },
    ),
    Resource(
        "/2/images",
        "images",
        {
            GET: Read(
                _images,
                "List the disk images from which instances are installed (the OS parameter image"
                " of the OS definition image).",
                Result(
                    typed.of(answers.ImagesReport),
                    "the images, with sizes in bytes, and problems: entries of no use",
                ),
                access=declare.READERS,
            ),
        },
    ),
    tags_resource("/2/tags", "tags", "cluster", "cluster"),
)
