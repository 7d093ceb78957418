"""The ``gnt-*`` programs: a module each, with a table of commands and short functions.

A function takes the option values and the arguments, sends opcodes or queries, writes, and returns
the exit code. Everything they share is in :mod:`ganeti.cli`; what the cluster does is the master's
matter. Each module has a ``PROGRAM``; tests, manual pages and the shell completion read it.
"""

from __future__ import annotations

#: Programs that exist, by module.
PROGRAMS = {
    "gnt-backup": "ganeti.client.gnt_backup.program",
    "gnt-cluster": "ganeti.client.gnt_cluster.program",
    "gnt-debug": "ganeti.client.gnt_debug.program",
    "gnt-filter": "ganeti.client.gnt_filter.program",
    "gnt-group": "ganeti.client.gnt_group.program",
    "gnt-instance": "ganeti.client.gnt_instance.program",
    "gnt-job": "ganeti.client.gnt_job.program",
    "gnt-network": "ganeti.client.gnt_network.program",
    "gnt-node": "ganeti.client.gnt_node.program",
    "gnt-os": "ganeti.client.gnt_os.program",
    "gnt-storage": "ganeti.client.gnt_storage.program",
}
