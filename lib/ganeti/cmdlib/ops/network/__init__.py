"""Parts of the operations on networks.

============== =======================================================
``checks``     checks, hooks and messages
``connection`` base of the units which connect networks to node groups
============== =======================================================
"""
