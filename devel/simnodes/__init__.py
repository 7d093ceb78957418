"""Simulated nodes: one process answers the node calls of a thousand nodes.

Each node has an address in 127.0.0.0/8, on which the process listens at the port of the node
daemon. The protocol is that of the real daemon: TLS with the certificates of the cluster, the list
of candidates who may call, the epoch of the master, and the table of calls in
``ganeti.wire.calls``. In place of a forked process for each call there is one loop, and in place of
disks and guests there is a state in memory (:mod:`.state`).

``python -m devel.simnodes serve`` runs the process; the other commands of that program tell it, by
its control socket, which nodes fail, stall, lie, lose their disks, come back with old data, or
refuse the epoch of the master (:mod:`.control`).

What is not simulated answers with an error which says so: scripts of hooks, exports and imports,
helper guests, snapshots, SSH keys, renewed certificates.
"""
