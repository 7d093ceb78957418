"""Verification of the users under which guests run: none of them should be root."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ganeti.constants import node_verify as nv
from ganeti.objects import fill, hypervisors
from ganeti.utils.text import comma_join

if TYPE_CHECKING:
    from ganeti.cmdlib.ops.verify.findings import Findings
    from ganeti.objects import Cluster, Instance, Node

_ROOT = 0


def check(
    findings: Findings,
    cluster: Cluster,
    instances: Iterable[Instance],
    nodes: Iterable[Node],
    answers: Mapping[str, Mapping[str, Any]],
) -> None:
    """Warn when guests of an enabled hypervisor run as root.

    There is one warning for the parameters of the cluster and one for the instances which have
    values of their own, because an administrator changes each of these with one command.

    :param answers: UUID of a node -> its answers.
    """
    as_root = {
        node.uuid: node.name
        for node in nodes
        if node.vm_capable and answers.get(node.uuid, {}).get(nv.DAEMON_USER) == _ROOT
    }
    if not as_root:
        return
    for name in cluster.enabled_hypervisors:
        descriptor = hypervisors.of(name)
        choice = descriptor.user_parameter
        if choice is None:
            continue
        if descriptor.keeps_daemon_user(cluster.hvparams.get(name, {})):
            pool = "" if cluster.uid_pool else " --uid-pool=auto"
            text = (
                f"guests of hypervisor {name} run as root on {comma_join(as_root.values())},"
                f" because the cluster's parameter {choice.name} is {choice.daemon}. Use"
                f" 'gnt-cluster modify{pool} -H {name}:{choice.name}={choice.pool}'; guests which"
                " run change with their next start"
            )
            findings.report("ECLUSTERCFG", "", text, warning=True)
            continue
        own = [
            instance.name
            for instance in instances
            if instance.hypervisor == name
            and instance.primary_node in as_root
            and _has_own(cluster, instance, choice.name)
            and descriptor.keeps_daemon_user(fill.instance_hv(cluster, instance))
        ]
        if own:
            text = (
                f"guests run as root, because {choice.name} is {choice.daemon} in the parameters"
                f" of the instance or of its OS: {comma_join(own)}. Use 'gnt-instance modify -H"
                f" {choice.name}={choice.pool}', then restart the instance"
            )
            findings.report("ECLUSTERCFG", "", text, warning=True)


def _has_own(cluster: Cluster, instance: Instance, parameter: str) -> bool:
    """Tell whether an instance has another value of a parameter than the cluster.

    All parameters of an instance are filled for these only, because that is slow.
    """
    of_os = cluster.os_hvp.get(instance.os, {}).get(instance.hypervisor, {})
    return parameter in instance.hvparams or parameter in of_os
