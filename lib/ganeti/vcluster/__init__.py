"""Virtual clusters: several nodes in one directory, under one ordinary user.

Each node is a directory, which stands for its ``/``, and an address in 127.0.0.0/8. The daemons and
commands are the real ones. Nothing outside the directory changes: virtual clusters need no root, no
SSH, and no entry in ``/etc/hosts``. The demonstration, the benchmarks and the scenario tests use
them, and an administrator can practise with one. The program is ``vcluster``.

::

    <directory>/vcluster.json      description: network, nodes, hypervisor
    <directory>/hosts              names of the nodes and of the cluster
    <directory>/bin/               gnt-* and daemons; they run on the master or on GANETI_HOSTNAME
    <directory>/shared/            the shared file storage of all nodes
    <directory>/tiny/, os/tiny/    boot image and OS definition of the example system
    <directory>/<node name>/       the root directory of that node

Two virtual clusters never communicate: each takes a network 127.A.B.0/24 on which no process
listens. During its creation a cluster reserves the network with an abstract socket, which leaves no
file and ends with the process. When the creation fails, nothing remains.

===================== ===================================================================
:mod:`.command`       the program ``vcluster``
:mod:`.network`       finds a network for a virtual cluster
:mod:`.description`   the description on disk, the nodes, and the environment of programs
:mod:`.creation`      creates virtual clusters, and adds nodes to them
:mod:`.operation`     starts and stops the daemons, shows the cluster, destroys it
:mod:`.watcher_timer` starts the watcher on the nodes every few minutes
:mod:`.like`          makes a virtual cluster like a real one, for tests
:mod:`.side_by_side`  several versions of this project on the nodes of a virtual cluster
===================== ===================================================================
"""

from ganeti.vcluster.creation import Plan, add_node, create, qemu_path
from ganeti.vcluster.description import Node, VirtualCluster, environment, master, programs, read
from ganeti.vcluster.operation import destroy

__all__ = [
    "Node",
    "Plan",
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
