"""The master's side of node calls.

:class:`~ganeti.rpc.runner.RpcRunner` finds the nodes in the configuration, encodes the arguments,
asks all nodes at once and sorts the answers into :class:`~ganeti.rpc.results.Result` objects:
data, offline, unreachable, refused, failed; never mixed.
"""

from __future__ import annotations

from ganeti.rpc.results import Result
from ganeti.rpc.runner import AddressRunner, RpcRunner, open_client

__all__ = ["AddressRunner", "Result", "RpcRunner", "open_client"]
