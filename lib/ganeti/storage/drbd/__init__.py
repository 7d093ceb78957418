"""DRBD8: a disk with replicas on two nodes.

=================== =========================================================
:mod:`.argv`        builds commands, with a class for each syntax
:mod:`.parse`       reads ``/proc/drbd`` and the output of ``drbdsetup show``
:mod:`.status_json` reads ``drbdsetup status --json`` of DRBD 9
:mod:`.status`      reads the state of the kernel module
:mod:`.device`      is the block device
:mod:`.connections` how the minors of this machine are connected
:mod:`.leftover`    finds minors which interrupted operations have left
=================== =========================================================

Minors are assigned in the configuration and never discovered (Ganeti design 2.0, *DRBD
minor allocation*).
"""
