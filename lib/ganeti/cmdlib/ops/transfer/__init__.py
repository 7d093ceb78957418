"""Exports and imports of instances, and moves between clusters.

====================== =============================================================
``copy_source``        the content of the copy of an instance
``disk_copy``          starts the copying processes, watches them, cleans up
``export_description`` reads the description of an export, ``config.ini``
``exports``            finds the nodes which have an export, removes unfinished ones
``handshake``          the signed messages between two clusters
``import_source``      creates an instance from an export or from another cluster
``seal``               proves that an export is as this cluster has written it
``keys``               keys which nodes make for one transfer
``signed``             signs texts with the cluster domain secret
``zero_free_space``    overwrites free space before an export
====================== =============================================================
"""
