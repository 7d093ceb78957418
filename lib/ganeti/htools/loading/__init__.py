"""Readers of the published forms of a cluster.

================== =======================================================
:mod:`.text`       the text format of the placement programs
:mod:`.simulation` a cluster made from a few numbers
:mod:`.request`    the input of an allocator
:mod:`.rest`       lists of the REST interface, or rows of ``Query``
:mod:`.monitoring` the load of processors, as monitoring daemons report it
:mod:`.form`       errors for data of another form
================== =======================================================

All readers raise :class:`~ganeti.errors.ParseError` for data they cannot use. The cluster is not
ready for use before :func:`ganeti.htools.cluster.prepare` was called.
"""
