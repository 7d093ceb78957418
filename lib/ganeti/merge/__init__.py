"""Merging other clusters into this one, in place.

The program ``cluster-merge`` runs on the master of the cluster that stays.

- :mod:`~ganeti.merge.conflicts` compares two configurations: what forbids a merge, what differs,
- :mod:`~ganeti.merge.combine` makes one configuration of two,
- :mod:`~ganeti.merge.other_cluster` reaches the nodes of the other cluster and runs commands there,
- :mod:`~ganeti.merge.record` keeps what has begun, for the run after one which was killed,
- :mod:`~ganeti.merge.steps` has the order of the steps, and takes them back after an error,
- :mod:`~ganeti.merge.command` is the program.

The first two are pure functions. **cluster-merge**\\ (8) says what is merged, and what is not.
"""
