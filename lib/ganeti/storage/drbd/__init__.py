"""DRBD8: a disk with replicas on two nodes.

:mod:`~ganeti.storage.drbd.argv` builds commands (a class for each syntax),
:mod:`~ganeti.storage.drbd.parse` reads ``/proc/drbd`` and the output of ``drbdsetup show``,
:mod:`~ganeti.storage.drbd.status` reads the state of the kernel module, and
:mod:`~ganeti.storage.drbd.device` is the block device. Minors are assigned in the configuration
and never discovered (Ganeti design 2.0, *DRBD minor allocation*).
"""
