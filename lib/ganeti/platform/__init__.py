"""The node that a program runs on: a real machine, or a node of a virtual cluster.

:mod:`~ganeti.platform.machine` chooses one of the two when a program starts; its answers are all
that other packages need to know about the difference. The other modules have the paths of files,
the users of daemons, files with SSH keys, and the epoch of the master which the node obeys.
"""
