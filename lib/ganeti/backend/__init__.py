"""Handlers of the node calls: what the node daemon does for the master.

The modules are grouped like the table of calls (:mod:`ganeti.wire.calls`). A function that answers
a call is marked with :func:`ganeti.backend.registry.serves`. The handlers use this machine (disks,
guests, files, scripts) and no defaults of the cluster: the master sends filled parameters. A
handler reports a failure by an exception, from which the node daemon makes the answer.

================= =====================================================================
:mod:`.registry`  the table of handlers: which function answers which call
:mod:`.caller`    the epoch of the master whose request this process serves
:mod:`.reasons`   why the states of guests changed, for the monitoring daemon
:mod:`.storage`   handlers of the calls about disks and storage units
:mod:`.cluster`   handlers about the configuration, the queue and the credentials
:mod:`.instance`  handlers about instances, their OS scripts and helper guests
:mod:`.node`      handlers about the machine itself: facts, checks, power, hooks, files
:mod:`.backup`    handlers about exports, imports and transfers
:mod:`.dispatch`  decodes a request, calls its handler, encodes the answer
:mod:`.leftovers` files in RUN_DIR of processes which were killed
================= =====================================================================
"""
