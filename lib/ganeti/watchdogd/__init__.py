"""The daemon ``ganeti-watchdogd``: feeds the hardware watchdog of a node while it has leave to.

====================== =============================================================
:mod:`.rule`           when a node may feed its hardware watchdog; pure functions
:mod:`.device`         the hardware watchdog
:mod:`.candidate_poll` asks the configuration query daemons of all master candidates
:mod:`.feeder`         arms the device, feeds it, and disarms it
====================== =============================================================

The process is small and starts no other one, because the machine restarts when it cannot feed the
device.

Source: ``doc/design-instance-failover.rst``, *A machine which restarts itself*.
"""
