"""Turning a cluster of the original Ganeti into one of this project, in place, and back.

The program ``ganeti-takeover`` runs on the master. It works on files, packages and daemons, never
on guests: they run on, and the daemons of either program find them by their runtime files.

==================== ==========================================================
:mod:`.probe`        is sent to each node and reads facts about it
:mod:`.facts`        the questions about a node, and what the answers mean
:mod:`.features`     features in use which the original lacks, for the way back
:mod:`.findings`     judges the facts and the configuration
:mod:`.archive`      the archive of a node: its files before the change
:mod:`.defaults`     carries over the settings of ``/etc/default/ganeti``
:mod:`.packages`     how packages are replaced on a node
:mod:`.node_steps`   has the steps which change one node, and runs on that node
:mod:`.remote_nodes` reaches the nodes over SSH, and runs these steps there
:mod:`.cluster`      has the steps which concern the cluster as a whole
:mod:`.state`        the record of the steps which are complete
:mod:`.steps`        has the order of the steps
:mod:`.command`      is the program
==================== ==========================================================

``doc/takeover.rst`` says what is taken over, and what can be taken back.
"""
