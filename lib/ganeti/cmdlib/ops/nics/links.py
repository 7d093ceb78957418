"""Whether nodes have the bridges and switches of links which are no interface's own.

The links of interfaces are checked before a guest starts (:mod:`ganeti.cmdlib.prereq`). The default
link of the cluster and the link of a network in a node group are checked here, when they are set:
otherwise every later start of a guest with this link fails.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ganeti.constants import net
from ganeti.constants import node_verify as nv


def node_checks(params: Mapping[str, Any], node_names: Iterable[str]) -> dict[str, Any]:
    """Make the checks of ``node_verify`` for a link.

    :param params: mode and link of interfaces.
    :param node_names: the nodes which are asked.
    :returns: name of a check -> its argument; empty if the link is nothing that a node has.
    """
    link = params.get("link")
    if params.get("mode") == net.NIC_MODE_BRIDGED and link:
        return {nv.BRIDGES: [link]}
    if params.get("mode") == net.NIC_MODE_OVS and link:
        return {nv.OPENVSWITCH: {name: [link, None] for name in node_names}}
    return {}


def problems(facts: Mapping[str, Any]) -> list[str]:
    """Find what a node lacks for a link.

    :param facts: the answer of the node to ``node_verify``; what was not asked has no problem.
    :returns: a message for each problem.
    """
    found = [f"it has no bridge {name}" for name in facts.get(nv.BRIDGES) or ()]
    if facts.get(nv.OPENVSWITCH):
        found.append(str(facts[nv.OPENVSWITCH]))
    return found
