"""Operations without a running master: make a cluster, prepare a node, fail over the master's role.

They run inside the ``gnt-*`` commands, with the rights of the user, on the machine that they
change. When an operation fails, it undoes its changes, or the message says which of them are left.

======================= ==========================================================================
:mod:`.requirements`    what a machine must have before it becomes the first node
:mod:`.detection`       what ``gnt-cluster init`` chooses by itself
:mod:`.init_params`     the options of ``gnt-cluster init``
:mod:`.first_config`    the first configuration of a cluster
:mod:`.init`            makes a cluster with this machine as its first node
:mod:`.node`            prepares a machine before it is added
:mod:`.remote`          prepares a real machine over SSH
:mod:`.join_protocol`   token, proofs and messages of joining with a token; pure functions
:mod:`.join`            joins a cluster with a one-time token, without SSH
:mod:`.node_state`      credentials, state files and daemons of a node, and how changes are undone
:mod:`.newer_copies`    fetches newer copies of configuration and job queue from another node
:mod:`.history_copies`  completes the history of the configuration on a new master
:mod:`.failover`        makes this node the master
:mod:`.renewal`         makes new keys and certificates
:mod:`.renumber`        gives all nodes and the cluster other addresses
:mod:`.destroy`         removes the state of the last node
======================= ==========================================================================
"""

from ganeti.bootstrap.destroy import finalize_destroy
from ganeti.bootstrap.init import init_cluster
from ganeti.bootstrap.init_params import InitParams
from ganeti.bootstrap.node import node_setup, setup_node

__all__ = ["InitParams", "finalize_destroy", "init_cluster", "node_setup", "setup_node"]
