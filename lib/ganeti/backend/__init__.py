"""Handlers of the node calls: what the node daemon does for the master.

The modules are grouped like the table of calls (:mod:`ganeti.wire.calls`). A function that answers
a call is marked with :func:`ganeti.backend.registry.serves`. The handlers use this machine (disks,
guests, files, scripts) and no defaults of the cluster: the master sends filled parameters. A
handler reports a failure by an exception, from which the node daemon makes the answer.
"""
