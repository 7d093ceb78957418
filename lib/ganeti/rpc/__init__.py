"""Node calls, on the side of the master.

:class:`~ganeti.rpc.runner.RpcRunner` finds the nodes in the configuration, encodes the arguments,
calls all nodes at the same time and returns a :class:`~ganeti.rpc.results.Result` for each: its
data, or one of the failures offline, unreachable, refused, failed.

======================= ==========================================================================
:mod:`.runner`          make the calls
:mod:`.filler`          fill in the parameters of instances and disks which are sent to nodes
:mod:`.results`         what a node answered, or why it did not
:mod:`.key_pins`        the key of each node, by which the master knows it
:mod:`.master_ip`       activate and deactivate the address of the master
:mod:`.distribute`      send the configuration and the job queue to other nodes
:mod:`.voting`          hold the vote about the master
:mod:`.failover_status` ask all nodes what they know about the master daemon
:mod:`.witness`         ask and inform the witness of a cluster with two master candidates
======================= ==========================================================================
"""

from __future__ import annotations

from ganeti.rpc.results import Result
from ganeti.rpc.runner import AddressRunner, Question, RpcRunner, open_client

__all__ = ["AddressRunner", "Question", "Result", "RpcRunner", "open_client"]
