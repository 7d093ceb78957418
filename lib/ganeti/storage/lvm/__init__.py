"""Logical volumes: disks of the template ``plain``, and the two halves below each DRBD device.

``argv`` builds commands, ``parse`` reads what they print, ``facts`` asks LVM at most once in an
operation, ``place`` chooses physical volumes, ``device`` is the block device itself.
"""
