"""Installation of operating systems, and reservations of instances.

==================== ============================================================
``forthcoming``      reserves an instance, and makes it real later
``operating_system`` installs the OS by a script on the node or in a helper guest
==================== ============================================================
"""
