"""Switching a cluster from one version of this project to another: ``gnt-cluster upgrade``.

Both versions are installed on each node (:mod:`ganeti.platform.versions`). The master goes through
the steps of :mod:`ganeti.upgrading.steps`, over SSH to all nodes, and records each step before it
begins, so that ``--resume`` goes on after an interruption anywhere. ``doc/design-upgrade.rst`` has
the reasons.
"""
