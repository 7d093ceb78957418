"""Objects of the configuration, and objects which daemons send to each other.

All are frozen dataclasses, so no other thread changes an object which a caller has. A change makes
a new object (:func:`updated`) and goes through the configuration. Lists are tuples; dictionaries of
parameters are plain dictionaries, which no code changes in place.

Names are imported from here (``from ganeti.objects import Instance``); the module of a name is
imported when the name is first used, because many commands need only one small class.

====================== ======================================================================
:mod:`.base`           declarations of fields, and how a changed object is made
:mod:`.codec`          converts objects to dictionaries and back
:mod:`.cluster`        the cluster, filter rules, and the root of the configuration
:mod:`.node`           nodes and node groups
:mod:`.instance`       instances and their NICs
:mod:`.disk`           disks, which are trees of block devices
:mod:`.device_names`   all names of a device on a node, to recognise it again
:mod:`.network`        networks, to which node groups are connected
:mod:`.address_pool`   the pool of addresses of a network
:mod:`.addresses`      who has an IP address: nodes, the cluster, guests
:mod:`.fill`           inheritance of parameters, from the cluster to the object
:mod:`.hypervisors`    the hypervisors: a descriptor each
:mod:`.halt`           why a guest whose process lives does not run
:mod:`.hvparams`       parameters of hypervisors: types, defaults and checks
:mod:`.description`    what is taken from a description which somebody else wrote
:mod:`.disk_templates` the disk templates: a descriptor each
:mod:`.storage_units`  storage units of a node, and their free space
:mod:`.snapshots`      names of snapshots, and the space which they need
:mod:`.ipolicy`        instance policies: limits and defaults for the size of instances
:mod:`.cluster_rules`  checks of single parameters of the cluster
:mod:`.by_node`        the instances of each node, without a search through all instances
:mod:`.start_order`    the order in which instances start when many have to
:mod:`.transfer`       objects which daemons send to each other, outside of the configuration
====================== ======================================================================
"""

from __future__ import annotations

from ganeti import TYPE_CHECKING
from ganeti.utils import lazy

if TYPE_CHECKING:
    from ganeti.objects.base import updated as updated
    from ganeti.objects.cluster import AccessRecord as AccessRecord
    from ganeti.objects.cluster import Cluster as Cluster
    from ganeti.objects.cluster import ConfigData as ConfigData
    from ganeti.objects.cluster import FilterRule as FilterRule
    from ganeti.objects.cluster import KeptDocument as KeptDocument
    from ganeti.objects.disk import Disk as Disk
    from ganeti.objects.fill import filled_instance as filled_instance
    from ganeti.objects.instance import FilledInstance as FilledInstance
    from ganeti.objects.instance import FilledNic as FilledNic
    from ganeti.objects.instance import Instance as Instance
    from ganeti.objects.instance import Nic as Nic
    from ganeti.objects.network import Network as Network
    from ganeti.objects.node import FailoverReport as FailoverReport
    from ganeti.objects.node import Maintenance as Maintenance
    from ganeti.objects.node import Node as Node
    from ganeti.objects.node import NodeGroup as NodeGroup
    from ganeti.objects.node import WatchdogPromise as WatchdogPromise
    from ganeti.objects.transfer import OS as OS
    from ganeti.objects.transfer import BlockDevStatus as BlockDevStatus
    from ganeti.objects.transfer import ConfdReply as ConfdReply
    from ganeti.objects.transfer import ConfdRequest as ConfdRequest
    from ganeti.objects.transfer import ExtStorage as ExtStorage
    from ganeti.objects.transfer import ImportExportOptions as ImportExportOptions
    from ganeti.objects.transfer import ImportExportStatus as ImportExportStatus
    from ganeti.objects.transfer import InstanceConsole as InstanceConsole
    from ganeti.objects.transfer import LvmPvInfo as LvmPvInfo
    from ganeti.objects.transfer import MasterNetworkParameters as MasterNetworkParameters
    from ganeti.objects.transfer import MasterVote as MasterVote
    from ganeti.objects.transfer import MigrationStatus as MigrationStatus

_HOME = {
    "updated": "base",
    "AccessRecord": "cluster",
    "Cluster": "cluster",
    "ConfigData": "cluster",
    "FilterRule": "cluster",
    "KeptDocument": "cluster",
    "Disk": "disk",
    "filled_instance": "fill",
    "FilledInstance": "instance",
    "FilledNic": "instance",
    "Instance": "instance",
    "Nic": "instance",
    "Network": "network",
    "FailoverReport": "node",
    "WatchdogPromise": "node",
    "Maintenance": "node",
    "Node": "node",
    "NodeGroup": "node",
    "BlockDevStatus": "transfer",
    "ConfdReply": "transfer",
    "ConfdRequest": "transfer",
    "ExtStorage": "transfer",
    "ImportExportOptions": "transfer",
    "ImportExportStatus": "transfer",
    "InstanceConsole": "transfer",
    "LvmPvInfo": "transfer",
    "MasterNetworkParameters": "transfer",
    "MasterVote": "transfer",
    "MigrationStatus": "transfer",
    "OS": "transfer",
}

__getattr__ = lazy.names(__name__, _HOME)
