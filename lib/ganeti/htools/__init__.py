"""Placement, balance and capacity: a model of a cluster, and programs that reason about it.

This package is pure: it reads no files, runs no programs and asks no daemons. It has

- the model: :mod:`~ganeti.htools.policy`, :mod:`~ganeti.htools.instance`,
  :mod:`~ganeti.htools.node`, :mod:`~ganeti.htools.cluster` and :mod:`~ganeti.htools.tags`;
- :mod:`~ganeti.htools.score`, the number which says how well a cluster is balanced;
- :mod:`~ganeti.htools.moves` and :mod:`~ganeti.htools.balance`, the search for better places;
- :mod:`~ganeti.htools.capacity`, how many more instances fit;
- :mod:`~ganeti.htools.squeeze`, which nodes are not needed;
- :mod:`~ganeti.htools.reboots`, which nodes can be rebooted together;
- :mod:`~ganeti.htools.redundancy`, whether the cluster survives the loss of any node;
- :mod:`~ganeti.htools.loading`, readers of the published forms of a cluster;
- :mod:`~ganeti.htools.tables`, what the programs print.

Amounts of memory and disk space are in MiB. Nodes, instances and groups are named by their number
in the cluster, which is their position in its lists.
"""
