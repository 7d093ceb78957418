"""Where an instance runs, and whether a machine is on.

============ ======================================================================
``location`` finds out where an instance runs, and refuses operations because of it
``oob``      asks the out-of-band helper of the administrator
============ ======================================================================
"""
