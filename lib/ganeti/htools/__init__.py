"""Placement, balance and capacity: a model of a cluster, and programs that reason about it.

This package is pure: it reads no files, runs no programs and asks no daemons. Its modules are

================ ================================================================================
``policy``       how large instances may be, and how far nodes may be overcommitted
``space``        the space of a node for disks, while instances come to it
``instance``     an instance: its size and its nodes
``node``         a node, and what placing an instance on it changes
``cluster``      groups, nodes and instances together, made ready by a loader
``tags``         the tags which mean something to placement
``units``        storage units: reading, writing, and which one a disk wants
``loading``      readers of the published forms of a cluster
``score``        how far a cluster is from being balanced
``moves``        the kinds of moves, whether one is legal, and what it changes
``arrays``       the search for the best move, with all moves of a step at once
``balance``      moves instances, one step at a time, so that the score falls
``place``        chooses the nodes of a new instance
``pair_scores``  the scores of all places for one new instance
``margins``      whether the loss of any node is survived with one more instance, quickly
``redundancy``   whether the loss of any node is survived
``evacuate``     moves instances away from their nodes or groups
``answer``       answers a request of the master, as the allocator ``hail`` does
``reasons``      the sentences about what is missing, with numbers and the way out
``explain``      why a node was or was not chosen
``capacity``     how many more instances fit
``squeeze``      which nodes are not needed
``reboots``      which nodes can be rebooted together
``repair``       what is broken in an instance, and what may be done about it
``what_if``      a cluster with changes which nobody has made yet
``figures``      sums over all nodes
``limits``       whether an instance has a size which a policy permits
``tables``       tables of nodes, instances and components of the score
``formats``      numbers and names in the published form
================ ================================================================================

Amounts of memory and disk space are in MiB. Nodes, instances and groups are named by their number
in the cluster, which is their position in its lists.
"""
