"""Reading and merging the OS definitions of the nodes.

=================== ======================================================================
:mod:`.definitions` merges the OS definitions of the nodes into one summary of the cluster
=================== ======================================================================
"""
