"""Copies of the master's data on the other master candidates: what the kinds of them share.

The kinds are the configuration (:mod:`ganeti.config`), the job queue (:mod:`ganeti.jqueue`), and
files which no commit waits for (:mod:`ganeti.master`). Each decides what it sends, and to how many
nodes at once. The modules, from the bottom:

=================== ============================================================================
:mod:`.majority`    how many candidates must have a change, and when the witness is one of them
:mod:`.peer`        a node with a copy: the states of the copy, and the moves between them
:mod:`.quorum`      when a commit of the configuration is acknowledged; when the witness is asked
:mod:`.background`  copies which no commit waits for: a thread sends what candidates lack
=================== ============================================================================
"""
