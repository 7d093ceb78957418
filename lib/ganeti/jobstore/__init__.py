"""Jobs on disk.

The master daemon writes its queue with :mod:`ganeti.jobstore.store`; the node daemons of the other
master candidates keep copies (:mod:`ganeti.jobstore.copy`), which cluster verification compares
(:mod:`ganeti.jobstore.inventory`). :mod:`ganeti.jobstore.files` has the names of the files,
:mod:`ganeti.jobstore.journal` the journal. The content of job files belongs to
:mod:`ganeti.jqueue.job`.
"""
