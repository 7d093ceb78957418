"""Verifying the configuration, the certificates and the hypervisor parameters on the master."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ganeti import errors
from ganeti.cmdlib.base import LogicalUnit, WitnessCheck, executes, why
from ganeti.cmdlib.ops.verify.findings import Findings
from ganeti.config.verify import (
    auto_failover_problem,
    auto_instance_failover_problems,
    similar_names,
    watchdog_problems,
)
from ganeti.constants import node_watchdog as node_watchdog_c
from ganeti.constants.cluster import CERT_RENEWAL_SUFFIX
from ganeti.jobstore.files import damaged_file
from ganeti.objects import ConfigData, fill, hvparams
from ganeti.objects.transfer import WatchdogStatus
from ganeti.opcodes.cluster import OpClusterVerifyConfig
from ganeti.platform import paths
from ganeti.utils import clock, x509
from ganeti.wire.calls import MASTER_STATUS, WATCHDOG_STATUS, WITNESS_READ


@executes(OpClusterVerifyConfig)
class LUClusterVerifyConfig(LogicalUnit[OpClusterVerifyConfig, None]):
    """Check the configuration and the certificates. Result: whether no error was found."""

    def exec(self, plan: None) -> bool:
        findings = Findings(self.log.feedback, self.op)
        data = self.config.snapshot()
        findings.section("Checking the configuration")
        for problem in self.config.verify():
            findings.report("ECLUSTERCFG", "", problem)
        for problem in similar_names(data):
            findings.report("ECLUSTERCFG", "", problem, warning=True)
        findings.section("Checking the cluster's certificates")
        self._certificates(findings)
        self._renewal(findings, data)
        if not data.cluster.rapi_require_authentication:
            findings.note(
                "the REST interface can be read without a password, unless its daemon runs with"
                " --require-authentication. Use 'gnt-cluster modify"
                " --rapi-require-authentication=yes' to demand one"
            )
        if data.cluster.auto_failover is not None:
            self._auto_failover(findings, data)
        if data.cluster.witness is not None and self.ctx.witness is not None:
            self._witness(findings, self.ctx.witness, data)
        if data.cluster.auto_instance_failover is not None:
            watchdogs = data.cluster.node_watchdog is not None
            for problem in auto_instance_failover_problems(data, watchdogs=watchdogs):
                findings.note(problem)
        if data.cluster.node_watchdog is not None:
            self._watchdogs(findings, data)
        findings.section("Checking hypervisor parameters")
        self._hypervisor_parameters(findings, data)
        findings.section("Checking for dangling nodes and instances")
        self._dangling(findings, data)
        findings.section("Checking the job queue of the master")
        self._lost_jobs(findings, data)
        findings.section("Looking for work of jobs which have ended")
        orphaned = self.ctx.orphaned_work
        for node, text in orphaned.left() if orphaned is not None else ():
            findings.report("ENODERPC", node, text)
        findings.summary()
        return not findings.failed

    def _witness(self, findings: Findings, service: WitnessCheck, data: ConfigData) -> None:
        """Report a witness which does not answer, cannot be written, or has an old document."""
        problem = service.poll(touch=True)
        if problem:
            findings.report("ECLUSTERCFG", "", f"the witness does not count: {problem}")
        elif problem is None:
            findings.note(
                "the cluster has a witness, which counts only while at most two master candidates"
                " are online"
            )
        others = [
            node.uuid
            for node in data.nodes.values()
            if node.master_candidate and not node.offline and node.uuid != data.cluster.master_node
        ]
        if problem is None or not others:
            return
        for answer in self.rpc.call_many(WITNESS_READ, others, url=data.cluster.witness).values():
            if isinstance(answer.failure, errors.NodeCallFailed):
                findings.report(
                    "ECLUSTERCFG",
                    "",
                    f"node {answer.node_name} cannot read the witness, so it cannot take the role"
                    f" of the master with it: {why(answer.failure)}",
                )

    def _auto_failover(self, findings: Findings, data: ConfigData) -> None:
        """Say what would keep the role of a lost master from moving by itself."""
        problem = auto_failover_problem(data, witness=bool(data.cluster.witness))
        if problem is not None:
            findings.note(problem)
        candidates = [
            node.uuid for node in data.nodes.values() if node.master_candidate and not node.offline
        ]
        for answer in self.rpc.call_many(MASTER_STATUS, candidates).values():
            if answer.failure is None and not answer.data.watching:
                findings.note(
                    f"ganeti-failoverd does not run on node {answer.node_name}, so that node does"
                    " not take the role of a lost master. Use 'daemon-util start ganeti-failoverd'"
                    " there"
                )

    def _watchdogs(self, findings: Findings, data: ConfigData) -> None:
        """Say which nodes do not restart themselves, and compare records and promises."""
        for problem in watchdog_problems(data):
            findings.note(problem)
        online = [node.uuid for node in data.nodes.values() if not node.offline]
        for uuid, answer in self.rpc.call_many(WATCHDOG_STATUS, online).items():
            if answer.failure is not None:
                continue
            node = data.nodes[uuid]
            status: WatchdogStatus = answer.data
            if status.state != node_watchdog_c.ARMED:
                findings.note(
                    f"the watchdog of node {node.name} is not armed"
                    f"{f': {status.text}' if status.text else ''}"
                )
            recorded = "" if node.watchdog is None else node.watchdog.token
            if recorded and recorded != status.promised:
                findings.report(
                    "ECLUSTERCFG",
                    "",
                    f"the record says that the watchdog of node {node.name} restarts it, but the"
                    " node has not promised that; the master daemon removes the record",
                )

    def _lost_jobs(self, findings: Findings, data: ConfigData) -> None:
        """Report jobs whose files are damaged, now or when the master daemon started."""
        files = self.ctx.job_files
        if files is None:
            return
        master = data.nodes[data.cluster.master_node].name
        for job_id, problem in sorted(files.repair_files().items()):
            findings.report(
                "ENODEFILECHECK",
                master,
                f"the file of job {job_id} was damaged ({problem}), and has been written again."
                " Check the disk",
            )
        for job_id, reason in sorted(files.lost_jobs().items()):
            findings.report(
                "ENODEFILECHECK",
                master,
                f"job {job_id} is lost: {reason}. Its file is kept as"
                f" {paths.current().queue_dir}/{damaged_file(job_id)}. When the job is not needed"
                " any more, remove that file and restart the master daemon",
            )

    def _certificates(self, findings: Findings) -> None:
        here = paths.current()
        files = (
            here.noded_cert_file,
            here.noded_client_cert_file,
            here.rapi_cert_file,
            here.spice_cert_file,
            here.spice_cacert_file,
        )
        optional = files[2:]
        for path in files:
            if not os.path.exists(path):
                # REST daemon and SPICE are optional, and so are their certificates.
                missing = path not in optional
                findings.check(missing, "ECLUSTERCERT", "", f"certificate {path} does not exist")
                continue
            try:
                severity, text = x509.check_expiry(x509.read_pem(path), clock.now(), path)
            except errors.X509CertError as err:
                findings.report("ECLUSTERCERT", "", str(err))
                continue
            findings.check(
                severity is not None,
                "ECLUSTERCERT",
                "",
                text,
                warning=severity == x509.SEVERITY_WARNING,
            )

    def _renewal(self, findings: Findings, data: ConfigData) -> None:
        """Report an interrupted renewal, because old certificates are still trusted then."""
        here = paths.current()
        findings.check(
            os.path.isdir(here.renewal_dir)
            or os.path.exists(here.server_ca_file)
            or any(key.endswith(CERT_RENEWAL_SUFFIX) for key in data.cluster.candidate_certs),
            "ECLUSTERCERT",
            "",
            "a renewal of keys and certificates was interrupted. Use 'gnt-cluster renew-crypto' to"
            " finish it",
            warning=True,
        )

    def _hypervisor_parameters(self, findings: Findings, data: ConfigData) -> None:
        cluster = data.cluster
        for name in cluster.enabled_hypervisors:
            self._check(findings, "the cluster", name, cluster.hvparams.get(name, {}))
            for os_name in cluster.os_hvp:
                filled = fill.fill_hv(cluster, name, os_name)
                self._check(findings, f"OS {os_name}", name, filled)
        for instance in data.instances.values():
            filled = fill.instance_hv(cluster, instance)
            self._check(findings, f"instance {instance.name}", instance.hypervisor, filled)

    @staticmethod
    def _check(findings: Findings, owner: str, name: str, params: Mapping[str, Any]) -> None:
        try:
            hvparams.check_parameter_syntax(name, params)
        except errors.HypervisorError as err:
            text = f"parameters of hypervisor {name} of {owner}: {err}"
            findings.report("ECLUSTERCFG", "", text)

    @staticmethod
    def _dangling(findings: Findings, data: ConfigData) -> None:
        for node in data.nodes.values():
            findings.check(
                node.group not in data.nodegroups,
                "ECLUSTERDANGLINGNODES",
                node.name,
                f"belongs to group {node.group}, which does not exist",
            )
        for instance in data.instances.values():
            findings.check(
                instance.primary_node not in data.nodes,
                "ECLUSTERDANGLINGINST",
                instance.name,
                f"has node {instance.primary_node} as primary node, which does not exist",
            )
