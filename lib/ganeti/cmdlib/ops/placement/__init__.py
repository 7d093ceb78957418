"""Choice of nodes for instances.

================ =========================================================
``allocator``    lets an instance allocator choose
``new_instance`` base of the units which choose the nodes of new instances
``secondary``    chooses a secondary node for an instance without one
================ =========================================================
"""
