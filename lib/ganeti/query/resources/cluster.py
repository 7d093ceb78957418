"""Fields of the cluster.

Three values are not in the configuration: ``drain_flag``, ``watcher_pause`` (seconds since 1970, or
None) and ``architecture``.
"""

from __future__ import annotations

from ganeti import FULL_VERSION
from ganeti.constants import cluster as cluster_c
from ganeti.constants import query as query_c
from ganeti.constants.query import (
    KIND_BOOL,
    KIND_NUMBER,
    KIND_OTHER,
    KIND_TEXT,
    KIND_TIMESTAMP,
)
from ganeti.query.field import HOSTNAME, Field, Resource, attribute, maybe, tags

RESOURCE = Resource(
    query_c.CLUSTER,
    [
        *(
            Field(
                spelling,
                "Name",
                KIND_TEXT,
                "Name of the cluster",
                attribute("cluster_name"),
                compare=HOSTNAME,
            )
            for spelling in ("name", "cluster_name")
        ),
        Field(
            "master_node",
            "Master",
            KIND_TEXT,
            "Name of the master node",
            lambda view, cluster: view.node_name(cluster.master_node),
            compare=HOSTNAME,
        ),
        Field(
            "volume_group_name",
            "VgName",
            KIND_TEXT,
            "Volume group of LVM disks",
            attribute("volume_group_name"),
        ),
        Field("tags", "Tags", KIND_OTHER, "Tags of the cluster", tags),
        Field(
            "ctime",
            "CTime",
            KIND_TIMESTAMP,
            "Time when the cluster was created",
            attribute("ctime"),
        ),
        Field(
            "mtime",
            "MTime",
            KIND_TIMESTAMP,
            "Time of the last change of the cluster",
            attribute("mtime"),
        ),
        Field(
            "drain_flag",
            "QueueDrained",
            KIND_BOOL,
            "Whether the job queue refuses new jobs",
            lambda view, cluster: view.facts["drain_flag"],
        ),
        Field(
            "watcher_pause",
            "WatcherPause",
            KIND_TIMESTAMP,
            "Time until which the watcher pauses",
            lambda view, cluster: maybe(view.facts["watcher_pause"]),
        ),
        Field(
            "architecture",
            "ArchInfo",
            KIND_OTHER,
            "Word size and machine of the master",
            lambda view, cluster: view.facts["architecture"],
        ),
        Field(
            "software_version",
            "SoftwareVersion",
            KIND_TEXT,
            "Version of the software",
            lambda view, cluster: cluster_c.RELEASE_VERSION,
        ),
        Field(
            "vcs_version",
            "VCSVersion",
            KIND_TEXT,
            "Release of this software, beside the version with which it is compatible",
            lambda view, cluster: FULL_VERSION,
        ),
        Field(
            "protocol_version",
            "ProtocolVersion",
            KIND_NUMBER,
            "Version of LUXI and the node calls",
            lambda view, cluster: cluster_c.PROTOCOL_VERSION,
        ),
        Field(
            "config_version",
            "ConfigVersion",
            KIND_NUMBER,
            "Version of the configuration",
            lambda view, cluster: cluster_c.CONFIG_VERSION,
        ),
        Field(
            "os_api_version",
            "OsApiVersion",
            KIND_NUMBER,
            "Highest supported version of OS definitions",
            lambda view, cluster: cluster_c.OS_API_VERSION,
        ),
        Field(
            "export_version",
            "ExportVersion",
            KIND_NUMBER,
            "Version of the format of backups",
            lambda view, cluster: cluster_c.EXPORT_VERSION,
        ),
    ],
    lambda view: [view.cluster],
)
