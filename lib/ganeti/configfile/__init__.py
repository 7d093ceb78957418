"""The configuration of a node on its disk: the file ``config.data``, and the journal beside it.

``config.data`` is always a whole configuration. In a large cluster the last changes are in
``config.data.journal`` for some seconds (:mod:`.files`), so the state of a node is the file
together with its journal. Every program of ours which reads or writes the configuration on a disk
does it with this package. When somebody else has written the file, :mod:`.by_hand` has the ways
out. Source: ``doc/design-config-journal.rst``.
"""
