"""The checks of a node for ``gnt-cluster verify``: keys of the node call ``node_verify``."""

from __future__ import annotations

ACCEPTED_STORAGE_PATHS = "allowed-file-storage-paths"
BRIDGES = "bridges"
CLIENT_CERT = "client-cert"
#: Of this project: whether the journal of the configuration belongs to its file.
CONFIG_JOURNAL = "config-journal"
#: Of this project, as DRBDCONNECTIONS is; all other names are published.
DAEMON_USER = "daemon-user"
#: Of this project: the names of devices, so that one device is not taken for two.
DEVICES = "devices"
DRBDCONNECTIONS = "drbd-connections"
DRBDHELPER = "drbd-helper"
DRBDLIST = "drbd-list"
#: Of this project: how many minors the module can have, when it has a limit.
DRBDMINORS = "drbd-minors"
DRBDVERSION = "drbd-version"
EXCLUSIVEPVS = "exclusive-pvs"
FILELIST = "filelist"
FILE_STORAGE_PATH = "file-storage-path"
GLUSTER_STORAGE_PATH = "gluster-storage-path"
HVINFO = "hvinfo"
HVPARAMS = "hvparms"
HYPERVISOR = "hypervisor"
INSTANCELIST = "instancelist"
LVLIST = "lvlist"
MASTERIP = "master-ip"
NODENETTEST = "node-net-test"
NODESETUP = "nodesetup"
NONVMNODES = "nonvmnodes"
OOB_PATHS = "oob-paths"
#: Of this project: the Open vSwitch which the parameters of a node name.
OPENVSWITCH = "openvswitch"
OSLIST = "oslist"
PVLIST = "pvlist"
SHARED_FILE_STORAGE_PATH = "shared-file-storage-path"
SSH_CLUTTER = "ssh-clutter"
SSH_SETUP = "ssh-setup"
TIME = "time"
USERSCRIPTS = "user-scripts"
VERSION = "version"
#: Of this project: the names which several volume groups have.
VGDUPLICATES = "vg-duplicates"
VGLIST = "vglist"
#: Of this project: which runs of the watcher work, and when one was complete.
WATCHER = "watcher"

#: Seconds after which a run of the watcher probably hangs. A run waits for its jobs, but not for so
#: long.
WATCHER_HANGS_S = 3600.0
