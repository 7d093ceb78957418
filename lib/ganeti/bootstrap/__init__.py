"""Operations without a running master: make a cluster, prepare a node, fail over the master's role.

They run inside the ``gnt-*`` commands, with the rights of the user, on the machine that they
change. When an operation fails, it undoes its changes, or the message says which of them are left.

:func:`init_cluster` makes this machine the first node and the master;
:func:`node_setup` prepares another machine before ``OP_NODE_ADD``;
:func:`finalize_destroy` removes the state of the last node after ``OP_CLUSTER_DESTROY``;
:mod:`ganeti.bootstrap.failover` makes this node the master.
"""

from ganeti.bootstrap.destroy import finalize_destroy
from ganeti.bootstrap.init import init_cluster
from ganeti.bootstrap.init_params import InitParams
from ganeti.bootstrap.node import node_setup, setup_node

__all__ = ["InitParams", "finalize_destroy", "init_cluster", "node_setup", "setup_node"]
