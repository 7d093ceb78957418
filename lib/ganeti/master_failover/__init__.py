"""The daemon ``ganeti-failoverd``: a master candidate which asks for the role of a lost master.

=================== ================================================================
:mod:`.decisions`   when a candidate asks for the role of the master; pure functions
:mod:`.master_poll` the loop of the daemon: watch the master, ask for its role
:mod:`.child`       the tasks of the daemon, each in a child process
=================== ================================================================

The process stays small: what a failover needs is loaded by a child, when it is needed.

Source: ``doc/design-auto-failover.rst``; the role itself is Ganeti design 2.0, *Master
startup/failover*, with :mod:`ganeti.bootstrap.failover`.
"""
