"""Network interfaces of instances.

================= =====================================================
``links``         whether nodes have what a default link names
``specs``         from the dictionaries which users give to NIC objects
``modify``        adds, removes and modifies NICs of an instance
``communication`` the NIC through which a guest talks to its node
================= =====================================================
"""
