"""A virtual cluster: N nodes under one directory and one ordinary user; the program ``vcluster``.

Each node is a directory that stands for its ``/`` and an address in 127.0.0.0/8; the daemons and
commands are the real ones. Nothing outside the directory changes: no root, no SSH, no
``/etc/hosts``. It serves as demonstration, scenario tests and rehearsal ground.

::

    <directory>/vcluster.json      what this is: network, nodes, hypervisor
    <directory>/hosts              names of the nodes and of the cluster
    <directory>/bin/               gnt-* and daemons, run as the master or as GANETI_HOSTNAME
    <directory>/shared/            the shared file storage of all nodes
    <directory>/tiny/, os/tiny/    boot image and OS definition of the example system
    <directory>/<node name>/       the root of that node

Two virtual clusters never meet: each takes a network 127.A.B.0/24 on which nobody listens. While
one is being created, it holds the network by an abstract socket, which leaves no file and ends
with the process. Creating is all or nothing.
"""

from ganeti.vcluster.creation import add_node, create, qemu_path
from ganeti.vcluster.description import Node, VirtualCluster, environment, master, programs, read
from ganeti.vcluster.operation import destroy

__all__ = [
    "Node",
    "VirtualCluster",
    "add_node",
    "create",
    "destroy",
    "environment",
    "master",
    "programs",
    "qemu_path",
    "read",
]
