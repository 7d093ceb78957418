"""Parts of the operations on node groups.

=========== =====================================================
``hooks``   the hooks, and the check of new names
``regroup`` base of the units which move instances between groups
=========== =====================================================
"""
