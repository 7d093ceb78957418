"""What happens while no master runs: making a cluster, preparing a node, taking a cluster apart.

These run inside the ``gnt-*`` commands, with the user's privileges, on the machine they concern.
Each is all or nothing: a failure undoes what was done, or says what is left.

:func:`init_cluster` makes this machine the first node and the master;
:func:`node_setup` gives another machine what it needs before ``OP_NODE_ADD``;
:func:`finalize_destroy` removes the last node's state after ``OP_CLUSTER_DESTROY``.
"""

from ganeti.bootstrap.destroy import finalize_destroy
from ganeti.bootstrap.init import InitParams, init_cluster
from ganeti.bootstrap.node import node_setup, setup_node

__all__ = ["InitParams", "finalize_destroy", "init_cluster", "node_setup", "setup_node"]
