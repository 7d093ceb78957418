"""Instance policies, and what else the node group of an instance decides.

============ ============================================================
``instance`` compares instances with limits and networks of a group
``ratios``   virtual CPUs and spindles which a node may give to instances
============ ============================================================
"""
