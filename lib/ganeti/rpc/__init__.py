"""Node calls, on the side of the master.

:class:`~ganeti.rpc.runner.RpcRunner` finds the nodes in the configuration, encodes the arguments,
calls all nodes at the same time and returns a :class:`~ganeti.rpc.results.Result` for each: its
data, or one of the failures offline, unreachable, refused, failed.
"""

from __future__ import annotations

from ganeti.rpc.results import Result
from ganeti.rpc.runner import AddressRunner, RpcRunner, open_client

__all__ = ["AddressRunner", "Result", "RpcRunner", "open_client"]
