"""Answers about the objects of the cluster: the configuration, and live data where needed.

The package itself is what :class:`ganeti.cmdlib.base.Queries` describes.
"""

from ganeti.master.queries.cluster import cluster_info, config_values
from ganeti.master.queries.service import query, query_fields, query_values

__all__ = ["cluster_info", "config_values", "query", "query_fields", "query_values"]
