"""Verification of programs which an administrator provides on nodes, and of the master address."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ganeti.constants import node_verify as nv
from ganeti.objects import fill
from ganeti.platform import paths

if TYPE_CHECKING:
    from ganeti.cmdlib.ops.verify.findings import Findings
    from ganeti.config import Config
    from ganeti.objects import Node

MASTER_IP_SCRIPT = "master-ip-setup"


def node_checks(config: Config) -> dict[str, Any]:
    """Make the checks of ``node_verify`` for this module: name of a check -> its argument."""
    data = config.snapshot()
    cluster, master = data.cluster, config.master_node()
    checks: dict[str, Any] = {nv.MASTERIP: [master.name, cluster.master_ip]}
    if cluster.use_external_mip_script:
        here = paths.current()
        checks[nv.USERSCRIPTS] = [here.to_virtual(f"{here.user_scripts_dir}/{MASTER_IP_SCRIPT}")]
    # A group which does not exist is a finding of its own.
    programs = {
        fill.fill_nd(cluster, data.nodegroups.get(node.group), node)["oob_program"]
        for node in data.nodes.values()
    } - {""}
    if programs:
        checks[nv.OOB_PATHS] = sorted(programs)
    return checks


def node(config: Config, findings: Findings, one: Node, answer: Mapping[str, Any]) -> None:
    """Check the answer of one node."""
    address = config.cluster().master_ip
    if one.uuid == config.cluster().master_node:
        text = f"is the master, but does not have the master address {address}"
    else:
        text = f"cannot reach the master address {address}"
    findings.check(answer.get(nv.MASTERIP) is False, "ENODENET", one.name, text)
    for script in answer.get(nv.USERSCRIPTS) or ():
        findings.report(
            "ENODEUSERSCRIPTS", one.name, f"script {script} is missing or not executable"
        )
    # Out-of-band helpers run on the master, so on every node which may become the master.
    if one.master_candidate or one.master_capable:
        for problem in answer.get(nv.OOB_PATHS) or ():
            findings.check(
                problem is not None, "ENODEOOBPATH", one.name, f"out-of-band helper: {problem}"
            )
