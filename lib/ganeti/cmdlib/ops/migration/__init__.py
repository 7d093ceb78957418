"""Parts of the migration and of the failover of an instance.

=================== =====================================================================
``plan``            decides between migration and failover, and checks both
``live``            sends the memory of a running guest to the target node
``failover``        stops an instance on the source node and starts it on the target node
``migrate_to_any``  migrates to a node which has no replica of the disks
``failover_to_any`` fails over to such a node
``cleanup``         repairs after an interrupted migration
``unit``            base of the units: target node, locks, hooks
=================== =====================================================================
"""
