"""Jobs on disk: the format of job files, their store, copies on other nodes, the inventory.

The master daemon writes its queue here (:mod:`ganeti.jobstore.store`); the node daemons of the
other master candidates keep copies (:mod:`ganeti.jobstore.copy`), which cluster verification
compares (:mod:`ganeti.jobstore.inventory`).
"""
