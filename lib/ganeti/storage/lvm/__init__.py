"""Logical volumes: disks of the template ``plain``, and data and metadata of each DRBD device.

:mod:`~ganeti.storage.lvm.argv` builds commands, :mod:`~ganeti.storage.lvm.parse` reads their
output, :mod:`~ganeti.storage.lvm.facts` runs each query at most once in an operation,
:mod:`~ganeti.storage.lvm.place` chooses physical volumes, and
:mod:`~ganeti.storage.lvm.device` is the block device.
"""
