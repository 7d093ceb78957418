"""The ``gnt-*`` programs: a module each, with a table of commands and short functions.

A function takes the option values and the arguments, sends opcodes or queries, writes, and returns
the exit code. Everything they share is in :mod:`ganeti.cli`; what the cluster does is the master's
matter. Each module has a ``PROGRAM``; tests, manual pages and the shell completion read it.
"""

from __future__ import annotations

#: Programs that exist, by module.
PROGRAMS = {
    "gnt-backup": "ganeti.client.gnt_backup",
    "gnt-cluster": "ganeti.client.gnt_cluster",
    "gnt-debug": "ganeti.client.gnt_debug",
    "gnt-filter": "ganeti.client.gnt_filter",
    "gnt-group": "ganeti.client.gnt_group",
    "gnt-instance": "ganeti.client.gnt_instance",
    "gnt-job": "ganeti.client.gnt_job",
    "gnt-network": "ganeti.client.gnt_network",
    "gnt-node": "ganeti.client.gnt_node",
    "gnt-os": "ganeti.client.gnt_os",
    "gnt-storage": "ganeti.client.gnt_storage",
}
