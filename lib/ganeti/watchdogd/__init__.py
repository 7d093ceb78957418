"""The daemon ``ganeti-watchdogd``: feeds the hardware watchdog of a node while it has leave to.

:mod:`.rule` decides from answers and times alone, :mod:`.device` is the device,
:mod:`.candidate_poll` asks the master candidates, and :mod:`.feeder` connects them. The process is
small and starts no other one, because the machine restarts when it cannot feed the device.

Source: ``doc/design-instance-failover.rst``, *A machine which restarts itself*.
"""
