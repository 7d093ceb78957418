"""Readers of the published forms of a cluster.

- :mod:`~ganeti.htools.loading.text`: the text format of the placement programs;
- :mod:`~ganeti.htools.loading.simulation`: a cluster made from a few numbers;
- :mod:`~ganeti.htools.loading.request`: the input of an allocator;
- :mod:`~ganeti.htools.loading.rest`: lists of the REST interface, or rows of ``Query``.

All raise :class:`~ganeti.errors.ParseError` for data they cannot use. The cluster is not ready for
use before :func:`ganeti.htools.cluster.prepare` was called.
"""
