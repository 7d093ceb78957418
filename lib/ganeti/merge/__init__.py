"""Merging other clusters into this one, in place.

The program ``cluster-merge`` runs on the master of the cluster that stays.

===================== ===============================================================
:mod:`.conflicts`     compares two configurations: what forbids a merge, what differs
:mod:`.combine`       makes one configuration of two
:mod:`.other_cluster` reaches the nodes of the other cluster and runs commands there
:mod:`.record`        keeps what has begun, for the run after one which was killed
:mod:`.steps`         has the order of the steps, and takes them back after an error
:mod:`.command`       is the program
===================== ===============================================================

The first two are pure functions. **cluster-merge**\\ (8) says what is merged, and what is not.
"""
