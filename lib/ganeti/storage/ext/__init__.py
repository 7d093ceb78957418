"""Disks which the scripts of an external provider look after (disk template ``ext``).

``provider`` finds and checks providers, ``device`` is the block device.
"""
