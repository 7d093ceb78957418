"""DRBD8: a disk mirrored to a second node.

``argv`` builds commands (one class for each syntax), ``parse`` reads ``/proc/drbd`` and
``drbdsetup show``, ``device`` is the block device. Minors are assigned in the configuration and
never discovered (seed 001 *DRBD minor allocation*).
"""
