"""The ``gnt-*`` programs: a package for each of them.

The module ``program`` of a package holds ``PROGRAM``, the table of all its commands, which the
tests and the shell completion read, too. The other modules hold one command each, or a family of
commands, and are named after them. The function of a command takes the option values and the
arguments, sends opcodes or queries to the master, prints the result, and returns the exit code. The
parts which programs share are in :mod:`ganeti.cli`; a program imports no module of another one.
"""

from __future__ import annotations

#: Name of a program -> the module with its table of commands.
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
