"""The ``gnt-*`` commands on a machine outside of the cluster, over its REST interface.

With ``GANETI_RAPI=https://HOST:PORT`` in the environment, :func:`ganeti.cli.jobs.connect` returns a
:class:`.master.RestMaster` instead of a connection to the socket of the master daemon. It has the
same methods, so commands, texts and exit codes are the same.

=============== ==================================================================================
:mod:`.address` reads the variables of the environment
:mod:`.master`  the requests to the master, as requests to REST resources
:mod:`.refusal` the commands which need the master itself, and why
=============== ==================================================================================

Only :mod:`.address` is loaded by every command.

Source: ``doc/design-commands-over-rest.rst``, ``doc/manual/commands-over-rest.rst``.
"""
