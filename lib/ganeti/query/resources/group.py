"""Fields of node groups."""

from __future__ import annotations

from typing import Any

from ganeti.constants import query as query_c
from ganeti.constants.query import KIND_NUMBER, KIND_OTHER, KIND_TEXT
from ganeti.objects import Instance, NodeGroup, fill
from ganeti.query.field import Field, Resource, attribute, common_fields
from ganeti.query.resources import ndparams
from ganeti.query.view import View, by_name


def _instances(view: View, group: NodeGroup) -> list[Instance]:
    return by_name(
        instance
        for node in view.nodes_of_group.get(group.uuid, ())
        for instance in view.primaries(node)
    )


def _node_names(view: View, group: NodeGroup) -> list[str]:
    return [node.name for node in view.nodes_of_group.get(group.uuid, ())]


def _ndparams(view: View, group: NodeGroup) -> dict[str, Any]:
    return fill.fill_nd(view.cluster, group)


_FIELDS = [
    Field("name", "Group", KIND_TEXT, "Name of the group", attribute("name")),
    Field(
        "alloc_policy",
        "AllocPolicy",
        KIND_TEXT,
        "Allocation policy: whether allocators place new instances in the group",
        attribute("alloc_policy"),
    ),
    Field(
        "enabled_hypervisors",
        "Hypervisors",
        KIND_OTHER,
        "Hypervisors of the nodes: those of the cluster, or some of them",
        lambda view, group: list(fill.group_hypervisors(view.cluster, group)),
    ),
    Field(
        "node_cnt",
        "Nodes",
        KIND_NUMBER,
        "Number of nodes",
        lambda view, group: len(view.nodes_of_group.get(group.uuid, ())),
    ),
    Field("node_list", "NodeList", KIND_OTHER, "Names of the nodes", _node_names),
    Field(
        "pinst_cnt",
        "Instances",
        KIND_NUMBER,
        "Number of instances whose primary node is in the group",
        lambda view, group: len(_instances(view, group)),
    ),
    Field(
        "pinst_list",
        "InstanceList",
        KIND_OTHER,
        "Names of the instances whose primary node is in the group",
        lambda view, group: [instance.name for instance in _instances(view, group)],
    ),
    Field("ndparams", "NDParams", KIND_OTHER, "All node parameters", _ndparams),
    Field(
        "custom_ndparams",
        "CustomNDParams",
        KIND_OTHER,
        "Node parameters which the group overrides",
        attribute("ndparams"),
    ),
    Field(
        "diskparams",
        "DiskParameters",
        KIND_OTHER,
        "All disk parameters",
        lambda view, group: fill.fill_diskparams(view.cluster.diskparams, group.diskparams),
    ),
    Field(
        "custom_diskparams",
        "CustomDiskParameters",
        KIND_OTHER,
        "Disk parameters which the group overrides",
        attribute("diskparams"),
    ),
    Field(
        "ipolicy",
        "InstancePolicy",
        KIND_OTHER,
        "The whole instance policy",
        lambda view, group: fill.fill_ipolicy(view.cluster.ipolicy, group.ipolicy),
    ),
    Field(
        "custom_ipolicy",
        "CustomInstancePolicy",
        KIND_OTHER,
        "Keys of the instance policy which the group overrides",
        attribute("ipolicy"),
    ),
]

RESOURCE = Resource(
    query_c.GROUP,
    [*_FIELDS, *common_fields("group"), *ndparams.fields(_ndparams)],
    table="nodegroups",
)
