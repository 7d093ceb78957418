"""Keys of the ssconf files: single values, which every node has as text files."""

from __future__ import annotations

FILE_PREFIX = "ssconf_"
FILE_MODE = 0o444
# The published limit of 128 KiB is too small for the names of 6,000 instances. Programs which read
# the files line by line can read larger ones; 20,000 names of 60 letters have 1.2 MB.
MAX_SIZE_BYTES = 4 * 1024 * 1024

AUTO_FAILOVER = "auto_failover"
CLUSTER_NAME = "cluster_name"
CLUSTER_TAGS = "cluster_tags"
ENABLED_USER_SHUTDOWN = "enabled_user_shutdown"
FILE_STORAGE_DIR = "file_storage_dir"
GLUSTER_STORAGE_DIR = "gluster_storage_dir"
HVPARAMS_PREFIX = "hvparams_"
HYPERVISOR_LIST = "hypervisor_list"
INSTANCE_LIST = "instance_list"
MAINTAIN_NODE_HEALTH = "maintain_node_health"
MASTER_CANDIDATES = "master_candidates"
MASTER_CANDIDATES_CERTS = "master_candidates_certs"
MASTER_CANDIDATES_IPS = "master_candidates_ips"
MASTER_EPOCH = "master_epoch"
MASTER_IP = "master_ip"
MASTER_NETDEV = "master_netdev"
MASTER_NETMASK = "master_netmask"
MASTER_NODE = "master_node"
NETWORKS = "networks"
NODEGROUPS = "nodegroups"
NODE_KEY_PINS = "node_key_pins"
NODE_LIST = "node_list"
NODE_PRIMARY_IPS = "node_primary_ips"
NODE_SECONDARY_IPS = "node_secondary_ips"
NODE_WATCHDOG = "node_watchdog"
NODE_VM_CAPABLE = "node_vm_capable"
OFFLINE_NODES = "offline_nodes"
ONLINE_NODES = "online_nodes"
PRIMARY_IP_FAMILY = "primary_ip_family"
RAPI_REQUIRE_AUTHENTICATION = "rapi_require_authentication"
RELEASE_VERSION = "release_version"
SHARED_FILE_STORAGE_DIR = "shared_file_storage_dir"
SSH_PORTS = "ssh_ports"
UID_POOL = "uid_pool"
