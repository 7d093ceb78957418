"""Disks which an external storage provider manages with its scripts (disk template ``ext``).

:mod:`~ganeti.storage.ext.provider` finds and checks providers,
:mod:`~ganeti.storage.ext.device` is the block device.
"""
