"""Hooks: phases, kinds of objects, special names."""

from __future__ import annotations

VERSION = 2
PHASE_PRE = "pre"
PHASE_POST = "post"

TYPE_CLUSTER = "CLUSTER"
TYPE_NODE = "NODE"
TYPE_GROUP = "GROUP"
TYPE_INSTANCE = "INSTANCE"
TYPE_NETWORK = "NETWORK"

NAME_CFGUPDATE = "config-update"
NAME_WATCHER = "watcher"

# PATH of every hook.
SEARCH_PATH = "/sbin:/bin:/usr/sbin:/usr/bin"

# Results of a script.
RESULT_SKIP = 0
RESULT_FAIL = 1
RESULT_OK = 2
RESULTS = frozenset((RESULT_SKIP, RESULT_FAIL, RESULT_OK))
