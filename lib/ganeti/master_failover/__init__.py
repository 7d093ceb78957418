"""The daemon ``ganeti-failoverd``: a master candidate which asks for the role of a lost master.

:mod:`.decisions` decides from observations alone, :mod:`.master_poll` observes and acts. The
process stays small: what a failover needs is loaded by a child, when it is needed.

Source: ``doc/design-auto-failover.rst``; the role itself is Ganeti design 2.0, *Master
startup/failover*, with :mod:`ganeti.bootstrap.failover`.
"""
