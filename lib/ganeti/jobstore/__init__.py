"""Jobs on disk.

================= ==========================================================================
:mod:`.files`     names of the files in the queue directory
:mod:`.journal`   makes the content of many files durable with one flush
:mod:`.store`     the queue directory of one node, which the master daemon writes
:mod:`.copy`      the copy of the queue, which the node daemon of a candidate writes
:mod:`.inventory` a short description of a queue directory, to be compared with another one
:mod:`.audit`     the file ``audit.log``, of which nobody can change a single line unnoticed
================= ==========================================================================

The content of job files belongs to :mod:`ganeti.jqueue.job`.
"""
