"""Renewing keys and certificates while the cluster works.

What is new lies in the directory ``renewal`` beside the configuration, put there by ``gnt-cluster
renew-crypto``; a file is removed when all nodes have it. So an interrupted renewal is known, and
the same operation, run again, goes on to the end.

The cluster's certificate is what nodes show and by which they know each other, so it changes in
steps, each of which every online node must have done before the next begins:

1. all trust the old *and* the new server certificate;
2. all show the new one;
3. all make a new client certificate, signed with it, beside the one in use;
4. the configuration lists old and new digests of the candidates' client certificates;
5. all use the new client certificate;
6. the configuration lists the new digests only;
7. all trust the new server certificate only.

At any moment each node accepts the certificates of all others, so whenever this stops, calls,
voting and failover work. New client certificates alone are the steps 3 to 6.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ganeti import errors
from ganeti.cmdlib.base import LogicalUnit, executes, why
from ganeti.cmdlib.ops.cluster import ssh_keys
from ganeti.cmdlib.ops.cluster.common_files import read_details, shape
from ganeti.constants.cluster import CERT_RENEWAL_SUFFIX
from ganeti.locking import ALL, Level
from ganeti.objects import Node, updated
from ganeti.opcodes.cluster import OpClusterRenewCrypto
from ganeti.platform import paths
from ganeti.platform import ssh_keys as utils_keys
from ganeti.rpc import Result
from ganeti.utils import fs, x509
from ganeti.wire.calls import (
    NODE_CRYPTO_ACTIVATE,
    NODE_CRYPTO_IDENTITY,
    NODE_CRYPTO_STATE,
    NODE_CRYPTO_TOKENS,
    NODE_CRYPTO_TRUST,
    UPLOAD_FILE,
)

SSL = "ssl"
#: Attribute of Paths -> what it is called; each is a file that all nodes have.
COMMON_FILES = {
    "hmac_key": "confd key",
    "rapi_cert_file": "certificate of the REST daemon",
    "spice_cert_file": "SPICE certificate",
    "spice_cacert_file": "SPICE certificate authority",
    "cluster_domain_secret": "cluster domain secret",
}


@dataclass(frozen=True, slots=True)
class RenewPlan:
    """What is pending, and who takes part; ``server_pem`` None leaves the cluster's certificate."""

    nodes: tuple[Node, ...]
    files: tuple[str, ...]
    server_pem: str | None
    client_certs: bool


@executes(OpClusterRenewCrypto)
class LUClusterRenewCrypto(LogicalUnit[OpClusterRenewCrypto, RenewPlan]):
    """Bring what is new to all nodes."""

    REQ_BGL = True

    def expand_names(self) -> None:
        self.need(Level.NODE, ALL)

    def check_prereq(self) -> RenewPlan:
        here = paths.current()
        cluster = self.config.cluster()
        if self.op.renew_ssh_keys:
            self._check_ssh()
        files = tuple(name for name in COMMON_FILES if os.path.exists(pending_file(name)))
        server_pem = None
        if os.path.exists(pending_file("noded_cert_file")):
            path = pending_file("noded_cert_file")
            try:
                server_pem = x509.read_pem(path)
                x509.verify_signed(server_pem, server_pem, path)
            except errors.X509CertError as err:
                raise errors.OpPrereqError(str(err), errors.ECODE_ENVIRON) from err
        # An earlier run may have ended in the middle, with nothing left of its own.
        unfinished = os.path.exists(here.server_ca_file) or any(
            key.endswith(CERT_RENEWAL_SUFFIX) for key in cluster.candidate_certs
        )
        if unfinished and server_pem is None:
            # Perhaps not all nodes show the same one: the master's will do for all.
            server_pem = x509.read_pem(here.noded_cert_file)
        nodes = tuple(self.config.online_nodes())
        if server_pem is not None or self.op.node_certificates or unfinished:
            self._require_answers(nodes)
        return RenewPlan(
            nodes,
            files,
            server_pem,
            client_certs=bool(server_pem is not None or self.op.node_certificates or unfinished),
        )

    def _check_ssh(self) -> None:
        cluster = self.config.cluster()
        if not ssh_keys.is_managed(cluster):
            raise errors.OpPrereqError(
                "this cluster was made with --no-ssh-init: the SSH keys of its nodes are left"
                " alone",
                errors.ECODE_INVAL,
            )
        self.ssh_kind = self.op.ssh_key_type or cluster.ssh_key_type
        # The length is kept as long as the kind is.
        bits = self.op.ssh_key_bits
        if bits is None and self.ssh_kind == cluster.ssh_key_type:
            bits = cluster.ssh_key_bits
        try:
            self.ssh_bits = utils_keys.key_bits(self.ssh_kind, bits)
        except errors.ParameterError as err:
            raise errors.OpPrereqError(str(err), errors.ECODE_INVAL) from err

    def _require_answers(self, nodes: tuple[Node, ...]) -> None:
        """A node that missed a step would be cut off by the next, so all must be there."""
        answers = self.rpc.call_many(NODE_CRYPTO_STATE, [node.uuid for node in nodes])
        silent = [
            f"{answer.node_name} ({why(answer.failure)})"
            for answer in answers.values()
            if answer.failure is not None
        ]
        if silent:
            raise errors.OpPrereqError(
                f"certificates are renewed only while all online nodes answer; these do not:"
                f" {', '.join(silent)}. Repair them, or mark them as offline and add them again"
                " later.",
                errors.ECODE_ENVIRON,
            )

    def exec(self, plan: RenewPlan) -> None:
        for name in plan.files:
            self._common_file(name, plan.nodes)
        if plan.server_pem is not None:
            self._server_certificate(plan.server_pem, plan.nodes)
        if plan.client_certs:
            self._client_certificates(plan.nodes)
            self.feedback("* Forgetting the old certificate of the cluster")
            self._everywhere(
                plan.nodes,
                self.rpc.call_many(NODE_CRYPTO_TRUST, _uuids(plan.nodes), certificates=[]),
                "still trusts the old certificate",
            )
            self.rpc.trust_changed()
            self._everywhere(
                plan.nodes,
                self.rpc.call_many(NODE_CRYPTO_STATE, _uuids(plan.nodes)),
                "does not answer",
            )
        if self.op.renew_ssh_keys:
            ssh_keys.renew(self, kind=self.ssh_kind, bits=self.ssh_bits)
        for name in ("noded_cert_file", *plan.files):
            fs.remove_file(pending_file(name))
        directory = paths.current().renewal_dir
        if os.path.isdir(directory) and not os.listdir(directory):
            os.rmdir(directory)
        for node in self.config.nodes():
            if node.offline and (plan.files or plan.client_certs):
                self.warn(
                    f"node {node.name} is offline and has none of this; when it comes back,"
                    " it has to be added again"
                )

    def _everywhere(
        self, nodes: tuple[Node, ...], answers: Mapping[str, Result], otherwise: str
    ) -> dict[str, Any]:
        """All answers, or the end of this run.

        :raises errors.OpExecError: a node failed.
        """
        failed = [
            f"node {answers[node.uuid].node_name} {otherwise}: {why(answers[node.uuid].failure)}"
            for node in nodes
            if answers[node.uuid].failure is not None
        ]
        if failed:
            raise errors.OpExecError(
                f"{'; '.join(failed)}. All nodes accept each other's certificates as before; run"
                " 'gnt-cluster renew-crypto' again to go on."
            )
        return {uuid: answer.data for uuid, answer in answers.items()}

    # -- files -----------------------------------------------------------------

    def _common_file(self, name: str, nodes: tuple[Node, ...]) -> None:
        self.feedback(f"* Copying the new {COMMON_FILES[name]}")
        here = paths.current()
        target = str(getattr(here, name))
        file = read_details(pending_file(name), *shape(name), target=target)
        self._everywhere(
            nodes,
            self.rpc.call_many(UPLOAD_FILE, _uuids(nodes), file=file),
            f"did not take {os.path.basename(target)}",
        )

    # -- certificates ----------------------------------------------------------

    def _server_certificate(self, pem: str, nodes: tuple[Node, ...]) -> None:
        here = paths.current()
        self.feedback("* Making the new certificate of the cluster known")
        both = {
            x509.digest(one): one
            for one in (
                x509.certificate_part(pem),
                *x509.certificates(x509.read_pem(here.noded_cert_file), here.noded_cert_file),
            )
        }
        if os.path.exists(here.server_ca_file):
            for one in x509.certificates(x509.read_pem(here.server_ca_file), here.server_ca_file):
                both.setdefault(x509.digest(one), one)
        self._everywhere(
            nodes,
            self.rpc.call_many(NODE_CRYPTO_TRUST, _uuids(nodes), certificates=list(both.values())),
            "does not know the new certificate",
        )
        self.rpc.trust_changed()
        self.feedback("* Letting the nodes show it")
        self._everywhere(
            nodes,
            self.rpc.call_many(NODE_CRYPTO_IDENTITY, _uuids(nodes), pem=pem),
            "shows the old certificate",
        )
        states = self._everywhere(
            nodes, self.rpc.call_many(NODE_CRYPTO_STATE, _uuids(nodes)), "does not answer"
        )
        wrong = [node.name for node in nodes if states[node.uuid]["server"] != x509.digest(pem)]
        if wrong:
            raise errors.OpExecError(
                f"nodes {', '.join(wrong)} still show the old certificate. Run 'gnt-cluster"
                " renew-crypto' again to go on."
            )

    def _client_certificates(self, nodes: tuple[Node, ...]) -> None:
        self.feedback("* Making new client certificates")
        here = paths.current()
        following = f"{here.to_virtual(here.noded_client_cert_file)}.tmp"
        states = self._everywhere(
            nodes, self.rpc.call_many(NODE_CRYPTO_STATE, _uuids(nodes)), "does not answer"
        )
        made = self._everywhere(
            nodes,
            self.rpc.call_many(
                NODE_CRYPTO_TOKENS,
                _uuids(nodes),
                requests=[[SSL, "create", {"cert_file": following}]],
            ),
            "has no new certificate",
        )
        new = {uuid: str(tokens[0][1]) for uuid, tokens in made.items()}
        old = {uuid: state["client"] for uuid, state in states.items()}
        listed = dict(self.config.cluster().candidate_certs)
        candidates = [node.uuid for node in nodes if node.master_candidate]
        both = {
            key: digest for key, digest in listed.items() if not key.endswith(CERT_RENEWAL_SUFFIX)
        }
        for uuid in candidates:
            # What it uses now: after an interruption that may be one of the last run.
            both[uuid] = old[uuid] or new[uuid]
            both[uuid + CERT_RENEWAL_SUFFIX] = new[uuid]
        self._list(both, nodes)
        self.feedback("* Letting the nodes use them")
        # The master last: should it end in the middle, everybody still knows its old one.
        master = self.config.cluster().master_node
        for group in (
            [node for node in nodes if node.uuid != master],
            [node for node in nodes if node.uuid == master],
        ):
            self._everywhere(
                tuple(group),
                self.rpc.call_many(NODE_CRYPTO_ACTIVATE, _uuids(group)),
                "does not use its new certificate",
            )
        self.rpc.trust_changed()
        self._everywhere(
            nodes,
            self.rpc.call_many(NODE_CRYPTO_STATE, _uuids(nodes)),
            "does not accept the master's new certificate",
        )
        final = {
            key: digest for key, digest in both.items() if not key.endswith(CERT_RENEWAL_SUFFIX)
        }
        final.update({uuid: new[uuid] for uuid in candidates})
        self._list(final, nodes)

    def _list(self, certs: dict[str, str], nodes: tuple[Node, ...]) -> None:
        """Write the list of candidates' certificates, and make sure that all nodes have it."""
        with self.config.transaction() as change:
            change.update_cluster(updated(self.config.cluster(), candidate_certs=certs))
        behind = self.config.lagging()
        late = [node.name for node in nodes if behind.get(node.uuid)]
        if late:
            raise errors.OpExecError(
                f"nodes {', '.join(late)} did not take the list of certificates. All nodes accept"
                " each other's certificates as before; run 'gnt-cluster renew-crypto' again to go"
                " on."
            )


def pending_file(name: str) -> str:
    """Where the new content of a file waits.

    :param name: attribute of Paths.
    """
    here = paths.current()
    return f"{here.renewal_dir}/{os.path.basename(str(getattr(here, name)))}"


def _uuids(nodes: Any) -> list[str]:
    return [node.uuid for node in nodes]
