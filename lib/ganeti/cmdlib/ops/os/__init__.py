"""Reading and merging the OS definitions of the nodes.

=============== ======================================================================
``definitions`` merges the OS definitions of the nodes into one summary of the cluster
=============== ======================================================================
"""
