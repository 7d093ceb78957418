"""Tags: the kinds of objects which have them, and their form."""

from __future__ import annotations

CLUSTER = "cluster"
NODEGROUP = "nodegroup"
NODE = "node"
INSTANCE = "instance"
NETWORK = "network"
KINDS = (CLUSTER, INSTANCE, NETWORK, NODE, NODEGROUP)

MAX_LENGTH = 128
MAX_PER_OBJECT = 4096
PATTERN = r"^[\w.+*/:@-]+$"
