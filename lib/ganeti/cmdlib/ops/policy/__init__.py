"""Instance policies.

============ ============================================================
``instance`` compares instances with the limits of their node group
``ratios``   virtual CPUs and spindles which a node may give to instances
============ ============================================================
"""
