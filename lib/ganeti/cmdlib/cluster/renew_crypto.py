"""Renewing keys and certificates while the cluster works.

``gnt-cluster renew-crypto`` writes the new keys and certificates to the directory ``renewal``
beside the configuration. A file is removed from there when all nodes have it. So an interrupted
renewal can be detected, and the same command continues it.

Nodes use the certificate of the cluster to authenticate each other. Therefore it is renewed in
steps, each of which must be completed on every online node before the next one begins:

1. all nodes trust the old *and* the new server certificate;
2. all nodes use the new server certificate;
3. all nodes make a new key with a client certificate, signed with it, beside the one in use;
4. the configuration lists old and new digests of the candidates' client certificates, and old and
   new keys of all nodes;
5. all nodes use the new client certificate, and show it when they are called;
6. the configuration lists only the new digests and keys;
7. all nodes trust only the new server certificate.

After each step every node accepts the certificates of all others, so node calls, voting and
failover work after an interruption. A renewal of client certificates only has the steps 3 to 6.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
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
from ganeti.rpc.key_pins import pin_of
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
#: Files which all nodes have: attribute of :class:`ganeti.platform.paths.Paths` -> name of the file
#: for messages.
COMMON_FILES = {
    "hmac_key": "confd key",
    "rapi_cert_file": "certificate of the REST daemon",
    "spice_cert_file": "SPICE certificate",
    "spice_cacert_file": "SPICE certificate authority",
    "cluster_domain_secret": "cluster domain secret",
}


@dataclass(frozen=True, slots=True)
class RenewPlan:
    """The keys and certificates to renew.

    :ivar nodes: the online nodes.
    :ivar files: common files to copy: attributes of :class:`ganeti.platform.paths.Paths`.
    :ivar server_pem: the new certificate of the cluster with its key; None to keep the old one.
    :ivar client_certs: renew the client certificates.
    """

    nodes: tuple[Node, ...]
    files: tuple[str, ...]
    server_pem: str | None
    client_certs: bool


@executes(OpClusterRenewCrypto)
class LUClusterRenewCrypto(LogicalUnit[OpClusterRenewCrypto, RenewPlan]):
    """Renew keys and certificates on all nodes."""

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
        # An earlier renewal may have been interrupted after its last file was removed.
        unfinished = os.path.exists(here.server_ca_file) or any(
            key.endswith(CERT_RENEWAL_SUFFIX) for key in cluster.candidate_certs
        )
        if unfinished and server_pem is None:
            # Nodes may use different certificates, so all get the one of the master.
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
                "this cluster was created with 'gnt-cluster init --no-ssh-init', so it does"
                " not manage the SSH keys of its nodes",
                errors.ECODE_INVAL,
            )
        self.ssh_kind = self.op.ssh_key_type or cluster.ssh_key_type
        # The present length is the default only for keys of the same type.
        bits = self.op.ssh_key_bits
        if bits is None and self.ssh_kind == cluster.ssh_key_type:
            bits = cluster.ssh_key_bits
        try:
            self.ssh_bits = utils_keys.key_bits(self.ssh_kind, bits)
        except errors.ParameterError as err:
            raise errors.OpPrereqError(str(err), errors.ECODE_INVAL) from err

    def _require_answers(self, nodes: tuple[Node, ...]) -> None:
        """Check that all online nodes answer, because a node must not miss a step.

        :raises errors.OpPrereqError: a node does not answer.
        """
        answers = self.rpc.call_many(NODE_CRYPTO_STATE, [node.uuid for node in nodes])
        unresponsive = [
            f"{answer.node_name} ({why(answer.failure)})"
            for answer in answers.values()
            if answer.failure is not None
        ]
        if unresponsive:
            raise errors.OpPrereqError(
                "certificates can be renewed only while all online nodes answer; these do not:"
                f" {', '.join(unresponsive)}. Repair them, or mark them offline and add them again"
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
            self.log.feedback("* Removing the old certificate of the cluster")
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
            ssh_keys.renew(self.ctx, kind=self.ssh_kind, bits=self.ssh_bits, done=self._report)
        for name in ("noded_cert_file", *plan.files):
            fs.remove_file(pending_file(name))
        directory = paths.current().renewal_dir
        if os.path.isdir(directory) and not os.listdir(directory):
            os.rmdir(directory)
        for node in self.config.nodes():
            if node.offline and (plan.files or plan.client_certs):
                self.log.warn(
                    f"node {node.name} is offline and does not have the new keys and certificates."
                    " Add it again before it is used."
                )

    def _everywhere(
        self, nodes: tuple[Node, ...], answers: Mapping[str, Result], otherwise: str
    ) -> dict[str, Any]:
        """Return the answers of all nodes, by UUID.

        :param otherwise: what a failure of a node means, for the error message.
        :raises errors.OpExecError: a node failed.
        """
        failed = [
            f"node {answers[node.uuid].node_name} {otherwise}: {why(answers[node.uuid].failure)}"
            for node in nodes
            if answers[node.uuid].failure is not None
        ]
        if failed:
            raise errors.OpExecError(
                f"{'; '.join(failed)}. All nodes still accept each other's certificates. Continue"
                " with 'gnt-cluster renew-crypto'."
            )
        self._report(nodes)
        return {uuid: answer.data for uuid, answer in answers.items()}

    def _report(self, nodes: Sequence[Node]) -> None:
        """With ``verbose``, log the nodes which have completed a step."""
        if self.op.verbose or self.op.debug:
            self.log.feedback(f"  - done on {', '.join(node.name for node in nodes)}")

    def _debug(self, text: str) -> None:
        """With ``debug``, log details: digests of certificates, which are not secret."""
        if self.op.debug:
            self.log.feedback(f"  - {text}")

    # -- files -----------------------------------------------------------------

    def _common_file(self, name: str, nodes: tuple[Node, ...]) -> None:
        self.log.feedback(f"* Copying the new {COMMON_FILES[name]}")
        here = paths.current()
        target = str(getattr(here, name))
        file = read_details(pending_file(name), *shape(name), target=target)
        self._everywhere(
            nodes,
            self.rpc.call_many(UPLOAD_FILE, _uuids(nodes), file=file),
            f"did not accept {os.path.basename(target)}",
        )

    # -- certificates ----------------------------------------------------------

    def _server_certificate(self, pem: str, nodes: tuple[Node, ...]) -> None:
        here = paths.current()
        self.log.feedback("* Distributing the new certificate of the cluster")
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
            "does not trust the new certificate",
        )
        self.rpc.trust_changed()
        self.log.feedback("* Switching the nodes to the new certificate")
        self._everywhere(
            nodes,
            self.rpc.call_many(NODE_CRYPTO_IDENTITY, _uuids(nodes), pem=pem),
            "still uses the old certificate",
        )
        states = self._everywhere(
            nodes, self.rpc.call_many(NODE_CRYPTO_STATE, _uuids(nodes)), "does not answer"
        )
        for node in nodes:
            self._debug(f"{node.name} shows the certificate {states[node.uuid]['server']}")
        wrong = [node.name for node in nodes if states[node.uuid]["server"] != x509.digest(pem)]
        if wrong:
            raise errors.OpExecError(
                f"nodes {', '.join(wrong)} still use the old certificate. Continue with"
                " 'gnt-cluster renew-crypto'."
            )

    def _client_certificates(self, nodes: tuple[Node, ...]) -> None:
        new = self._make_client_certificates(nodes)
        states = self._everywhere(
            nodes, self.rpc.call_many(NODE_CRYPTO_STATE, _uuids(nodes)), "does not answer"
        )
        old = {uuid: state["client"] for uuid, state in states.items()}
        for node in nodes:
            self._debug(
                f"{node.name}: client certificate {old[node.uuid]} is followed by {new[node.uuid]}"
            )
        candidates = [node.uuid for node in nodes if node.master_candidate]
        both = _without_renewal(self.config.cluster().candidate_certs)
        for uuid in candidates:
            # The certificate in use: after an interruption it may be one of the earlier renewal.
            both[uuid] = old[uuid] or new[uuid]
            both[uuid + CERT_RENEWAL_SUFFIX] = new[uuid]
        following_pins = {uuid: state.get("next_pin") for uuid, state in states.items()}

        def old_and_new(node: Node) -> tuple[str, ...] | None:
            # After an interruption a node may show the key of any earlier attempt.
            pin = following_pins.get(node.uuid)
            return (*node.key_pins, pin) if node.key_pins and pin else node.key_pins

        self._list(both, nodes, old_and_new)
        self._switch_client_certificates(nodes)
        final = _without_renewal(both) | {uuid: new[uuid] for uuid in candidates}
        shown = self._shown_keys(nodes)
        self._list(final, nodes, lambda node: shown.get(node.uuid, node.key_pins))

    def _make_client_certificates(self, nodes: tuple[Node, ...]) -> dict[str, str]:
        """Let each node make the certificate which follows; return the digests by UUID."""
        self.log.feedback("* Making new client certificates")
        here = paths.current()
        following = f"{here.to_virtual(here.noded_client_cert_file)}.tmp"
        made = self._everywhere(
            nodes,
            self.rpc.call_many(
                NODE_CRYPTO_TOKENS,
                _uuids(nodes),
                requests=[[SSL, "create", {"cert_file": following}]],
            ),
            "has no new certificate",
        )
        return {uuid: str(tokens[0][1]) for uuid, tokens in made.items()}

    def _switch_client_certificates(self, nodes: tuple[Node, ...]) -> None:
        """Let the nodes use their new certificates, which all nodes accept already."""
        self.log.feedback("* Switching the nodes to the new client certificates")
        # The master is the last, so that all nodes know its certificate after an interruption.
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

    def _shown_keys(self, nodes: tuple[Node, ...]) -> dict[str, tuple[str, ...]]:
        """Return the pins of the keys which nodes show, by UUID; without nodes that have none.

        :raises errors.OpExecError: a node does not answer.
        """
        answers = self.rpc.show_keys(_uuids(nodes))
        self._everywhere(nodes, answers, "does not show its new key")
        found = {uuid: pin_of(answer.certificate) for uuid, answer in answers.items()}
        return {uuid: (pin,) for uuid, pin in found.items() if pin is not None}

    def _list(
        self,
        certs: dict[str, str],
        nodes: tuple[Node, ...],
        pins: Callable[[Node], tuple[str, ...] | None],
    ) -> None:
        """Write the list of the candidates' certificates, and check that all nodes have it.

        :param pins: returns the keys which a node may show.
        :raises errors.OpExecError: a node does not have it.
        """
        with self.config.transaction() as change:
            change.cluster.update(updated(self.config.cluster(), candidate_certs=certs))
            present = change.data.nodes
            for uuid in _uuids(nodes):
                keys = pins(present[uuid])
                if keys != present[uuid].key_pins:
                    change.nodes.update(updated(present[uuid], key_pins=keys))
        lagging = self.config.lagging()
        late = [node.name for node in nodes if lagging.get(node.uuid)]
        if late:
            raise errors.OpExecError(
                f"nodes {', '.join(late)} did not accept the list of certificates. All nodes still"
                " accept each other's certificates. Continue with 'gnt-cluster renew-crypto'."
            )


def pending_file(name: str) -> str:
    """Return the path of the new version of a file in the directory ``renewal``.

    :param name: attribute of :class:`ganeti.platform.paths.Paths`.
    """
    here = paths.current()
    return f"{here.renewal_dir}/{os.path.basename(str(getattr(here, name)))}"


def _without_renewal(certs: Mapping[str, str]) -> dict[str, str]:
    """Return the list of the candidates' certificates without those which follow."""
    return {key: digest for key, digest in certs.items() if not key.endswith(CERT_RENEWAL_SUFFIX)}


def _uuids(nodes: Any) -> list[str]:
    return [node.uuid for node in nodes]
