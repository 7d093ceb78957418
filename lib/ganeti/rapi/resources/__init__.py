"""All resources, a file per subject; :data:`RESOURCES` lists them by path."""

from __future__ import annotations

from typing import Final

from ganeti.rapi.declare import Resource
from ganeti.rapi.resources import (
    batches,
    cluster,
    commands,
    credentials,
    documents,
    factors,
    groups,
    instance_disks,
    instance_moves,
    instances,
    jobs,
    networks,
    nodes,
    oidc,
    placement,
    query,
    quota,
    records,
    service,
    sessions,
    webhooks,
)
from ganeti.rapi.resources.common import Table

RESOURCES: Final[tuple[Resource, ...]] = tuple(
    sorted(
        (
            resource
            for module in (
                batches,
                cluster,
                commands,
                credentials,
                documents,
                factors,
                groups,
                instance_disks,
                instance_moves,
                instances,
                jobs,
                networks,
                nodes,
                oidc,
                placement,
                query,
                quota,
                records,
                service,
                sessions,
                webhooks,
            )
            for resource in module.RESOURCES
        ),
        key=lambda resource: resource.path,
    )
)

#: Kinds of objects which have a tag of their state.
TABLES: Final[dict[str, Table]] = {
    table.kind: table for table in (instances.TABLE, nodes.TABLE, groups.TABLE, networks.TABLE)
}
