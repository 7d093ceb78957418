"""Renewing certificates: interrupted after every single node call, nobody is ever cut off.

The nodes are real handlers on real files; between them stands a model of TLS that looks at the
certificates as the daemons would: a call gets through only if the caller trusts what the node
shows, its key is the one that the configuration has for the node, the node trusts what the caller
shows, and its digest is listed. After every call every
candidate must be able to reach every node. The caller's view is as old as the last
``trust_changed()``, because libcurl keeps what it has read.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from fakes.config import cluster_of, commit, uuid_of
from fakes.master import Master
from ganeti import errors
from ganeti.backend.cluster import credentials, renewal
from ganeti.backend.node import files
from ganeti.bootstrap import node_state
from ganeti.bootstrap import renewal as preparing
from ganeti.config import ssconf
from ganeti.config.sending import SSCONF, Distribution, DistributionFailure
from ganeti.constants.rpc import PROTOCOL_VERSION
from ganeti.http import auth
from ganeti.objects import updated
from ganeti.opcodes.cluster import OpClusterRenewCrypto
from ganeti.platform import paths
from ganeti.rpc import Result
from ganeti.utils import x509
from ganeti.wire.calls import VERSION, Call

LIST = "master_candidates_certs"

HANDLERS: dict[str, Callable[..., Any]] = {
    "node_crypto_state": renewal.crypto_state,
    "node_crypto_trust": renewal.crypto_trust,
    "node_crypto_identity": renewal.crypto_identity,
    "node_crypto_activate": renewal.crypto_activate,
    "node_crypto_tokens": credentials.crypto_tokens,
    "version": lambda: PROTOCOL_VERSION,
    "hooks_present": lambda wanted: [False] * len(wanted),
    "upload_file": files.upload_file,
    # The others do not matter here, and cost time.
    "write_ssconf_files": lambda values: ssconf.write_local({LIST: values[LIST]}, paths.current()),
}


class Killed(BaseException):
    """The master daemon was killed."""


@functools.cache
def fits(pem: str, authority: str) -> bool:
    try:
        x509.verify_signed(pem, authority)
    except errors.X509CertError:
        return False
    return True


def trusted_by(pem: str, trust: str) -> bool:
    return any(fits(pem, one) for one in x509.certificates(trust))


@functools.cache
def pin(pem: str) -> str:
    return x509.key_pin(pem)


def shown(here: paths.Paths) -> str:
    """The certificate which the node daemon shows: its own, if the others would accept it."""
    own = text(here.noded_client_cert_file)
    return own if trusted_by(own, text(here.trust_file())) else text(here.noded_cert_file)


def text(path: str) -> str:
    return Path(path).read_text(encoding="ascii")


class Lab:
    """Nodes with files, a master, and somebody who pulls plugs."""

    def __init__(
        self, top: Path, monkeypatch: pytest.MonkeyPatch, nodes: int = 3, *, pin_all: bool = True
    ) -> None:
        self.monkeypatch = monkeypatch
        shared = node_state.new_credentials()
        # Two candidates and a node that is none.
        data = cluster_of(nodes, node_changes={3: {"master_candidate": False}})
        self.places = {node.name: paths.Paths(str(top / node.name)) for node in data.nodes.values()}
        digests = {
            name: node_state.write_credentials(here, shared, name)
            for name, here in self.places.items()
        }
        cluster = updated(
            data.cluster,
            candidate_certs={
                node.uuid: digests[node.name]
                for node in data.nodes.values()
                if node.master_candidate
            },
        )
        # The last node is of an older version, or its key was not asked for yet.
        self.pinned = list(self.places)[: 3 if pin_all else 2]
        nodes_with_keys = {
            node.uuid: dataclasses.replace(
                node, key_pins=(pin(text(self.places[node.name].noded_client_cert_file)),)
            )
            if node.name in self.pinned
            else node
            for node in data.nodes.values()
        }
        self.master = Master(dataclasses.replace(data, cluster=cluster, nodes=nodes_with_keys))
        self.here = self.places["node1.example.com"]
        for here in self.places.values():
            Path(here.lock_dir).mkdir(parents=True)
            listed = ssconf.values(self.master.config.snapshot())[LIST]
            ssconf.write_local({LIST: listed}, here)
        self.master.config.use_distribution(self.distribute)
        self.master.rpc._answer = self.answer  # type: ignore[method-assign]
        self.master.rpc.show_keys = self.show_keys  # type: ignore[method-assign]
        self.master.rpc.trust_changed = self.trust_changed  # type: ignore[attr-defined]
        self.trust_changed()
        self.calls = 0
        self.interrupt: dict[int, str] = {}
        self.log: list[str] = []

    def trust_changed(self) -> None:
        self.my_trust = text(self.here.trust_file())
        self.my_cert = text(self.here.noded_client_cert_file)

    # -- the model of TLS ----------------------------------------------------------

    def why_not(self, name: str, cert: str, trust: str) -> str | None:
        """Why a caller with this certificate and trust does not reach a node, or None."""
        here = self.places[name]
        if not trusted_by(shown(here), trust):
            return "the caller does not trust the node"
        expected = self.master.config.node_by_name(name).key_pins
        if expected and pin(shown(here)) not in expected:
            return "the node has another key than in the configuration"
        if not trusted_by(cert, text(here.trust_file())):
            return "the node does not trust the caller"
        return auth.CandidatesOnly(here.ssconf_file("master_candidates_certs"), "none")(
            x509.digest(cert)
        )

    def check_everybody(self, when: str) -> None:
        for node in self.master.config.nodes():
            if not node.master_candidate:
                continue
            caller = self.places[node.name]
            for name in self.places:
                problem = self.why_not(
                    name, text(caller.noded_client_cert_file), text(caller.trust_file())
                )
                assert problem is None, f"{when}: {node.name} cannot call {name}: {problem}"

    # -- the runner ------------------------------------------------------------------

    def answer(self, call: Call, node_name: str, args: dict[str, Any]) -> Result:
        here = self.places[node_name]
        problem = self.why_not(node_name, self.my_cert, self.my_trust)
        assert problem is None, f"{call.name} to {node_name}: {problem}"
        self.calls += 1
        what = self.interrupt.get(self.calls)
        self.log.append(f"{call.name} {node_name} {what or ''}")
        if what == "killed before":
            raise Killed
        if what == "unreachable":
            return Result(node_name, failure=errors.NodeUnreachable(node_name, call.name, "gone"))
        decoded = call.decode_args(call.encode_args(args, self.master.config))
        try:
            with paths.override(here):
                self.monkeypatch.setenv(paths.ENV_HOSTNAME, node_name)
                value = HANDLERS[call.name](**decoded)
        except errors.GenericError as err:
            return Result(node_name, failure=errors.NodeCallFailed(node_name, call.name, str(err)))
        self.check_everybody(self.log[-1])
        if what == "killed after":
            raise Killed
        if what == "answer lost":
            return Result(node_name, failure=errors.NodeUnreachable(node_name, call.name, "lost"))
        return Result(
            node_name, call.result.decode(call.result.encode(value)), certificate=shown(here)
        )

    def show_keys(self, uuids: Iterable[str]) -> dict[str, Result]:
        return self.master.rpc.call_many(VERSION, uuids)

    def distribute(self, wanted: Distribution) -> list[DistributionFailure]:
        from ganeti.wire.calls import WRITE_SSCONF_FILES

        failures = []
        for uuid in wanted.nodes if wanted.ssconf is not None else ():
            name = self.master.config.node(uuid).name
            answer = self.answer(WRITE_SSCONF_FILES, name, {"values": wanted.ssconf})
            if answer.failure is not None:
                failures.append(DistributionFailure(uuid, SSCONF, str(answer.failure)))
        return failures

    # -- what is done ------------------------------------------------------------------

    def run(self, **options: Any) -> None:
        with paths.override(self.here):
            self.master.run(OpClusterRenewCrypto(**options))

    def prepare(self, **new: str) -> None:
        preparing.prepare(new, self.here)

    def run_again(self, **options: Any) -> None:
        """As after a restart: the network is well, and files are read anew."""
        self.interrupt = {}
        self.trust_changed()
        # What nodes missed is sent to them before anything else happens.
        with paths.override(self.here):
            self.master.config.redistribute()
        self.check_everybody("after a restart")
        self.run(**options)

    def check_end(self, server_pem: str) -> None:
        self.check_everybody("at the end")
        listed = self.master.config.cluster().candidate_certs
        for node in self.master.config.nodes():
            here = self.places[node.name]
            assert text(here.noded_cert_file) == server_pem
            assert not Path(here.server_ca_file).exists()
            assert fits(text(here.noded_client_cert_file), server_pem)
            assert listed.get(node.uuid) == (
                x509.digest_file(here.noded_client_cert_file) if node.master_candidate else None
            )
            assert node.key_pins == (pin(text(here.noded_client_cert_file)),)
        assert len(listed) == 2
        assert not Path(self.here.renewal_dir).exists()


@pytest.fixture(scope="module")
def new_pem() -> str:
    return x509.create_self_signed()


Make = Callable[..., Lab]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    # Thousands of files: what matters is that they are there, not that they would survive.
    monkeypatch.setattr(os, "fsync", lambda fd: None)
    count = iter(range(10_000))
    return lambda **options: Lab(tmp_path / str(next(count)), monkeypatch, **options)


def test_the_clusters_certificate(make: Make, new_pem: str) -> None:
    lab = make()
    before = {name: text(here.noded_client_cert_file) for name, here in lab.places.items()}
    lab.prepare(noded_cert_file=new_pem)
    lab.run()
    lab.check_end(new_pem)
    assert all(
        text(here.noded_client_cert_file) != before[name] for name, here in lab.places.items()
    )


def test_the_key_of_every_node_is_known_afterwards(make: Make) -> None:
    lab = make(pin_all=False)
    assert lab.master.config.node_by_name("node3.example.com").key_pins is None
    lab.run(node_certificates=True)
    lab.check_end(text(lab.here.noded_cert_file))


def test_a_node_with_another_key_is_named_before_anything_is_changed(
    make: Make, new_pem: str
) -> None:
    lab = make()
    server = text(lab.here.noded_cert_file)
    lab.prepare(noded_cert_file=new_pem)
    name = "node3.example.com"
    real = lab.answer

    def answer(call: Call, node_name: str, args: dict[str, Any]) -> Result:
        if node_name == name:
            return Result(name, failure=errors.NodeKeyMismatch(name, call.name, "another key"))
        return real(call, node_name, args)

    lab.master.rpc._answer = answer  # type: ignore[method-assign]
    with pytest.raises(errors.OpPrereqError, match=f"gnt-node add --readd {name}"):
        lab.run()
    assert all(text(here.noded_cert_file) == server for here in lab.places.values())


def test_what_is_logged(make: Make, new_pem: str) -> None:
    """Nothing but the steps; the nodes that completed them; digests."""
    for options in ({}, {"verbose": True}, {"debug": True}):
        lab = make()
        lab.prepare(noded_cert_file=new_pem)
        lab.run(**options)
        everybody = f"done on {', '.join(node.name for node in lab.master.config.nodes())}"
        assert bool(lab.master.job.said(everybody)) is bool(options)
        shown = lab.master.job.said(x509.digest(new_pem))
        assert bool(shown) is ("debug" in options)
        own = x509.digest_file(lab.here.noded_client_cert_file)
        assert bool(lab.master.job.said(f"is followed by {own}")) is ("debug" in options)


def calls_of_a_whole_run(make: Make, new_pem: str) -> int:
    lab = make()
    lab.prepare(noded_cert_file=new_pem)
    lab.run()
    return lab.calls


@pytest.mark.parametrize(
    ("how", "first", "step"),
    [
        # A call that was not made is the one before, then killed.
        ("killed before", 1, 100),
        ("killed after", 1, 1),
        ("unreachable", 1, 5),
        ("answer lost", 2, 5),
    ],
)
def test_interrupted_after_every_call(
    make: Make, new_pem: str, how: str, first: int, step: int
) -> None:
    total = calls_of_a_whole_run(make, new_pem)
    assert total > 25
    for number in range(first, total + 1, step):
        lab = make()
        lab.prepare(noded_cert_file=new_pem)
        lab.interrupt = {number: how}
        try:
            lab.run()
        except (Killed, errors.OpPrereqError, errors.OpExecError, errors.ConfigurationError):
            lab.run_again()
        lab.check_end(new_pem)


def test_interrupted_twice(make: Make, new_pem: str) -> None:
    total = calls_of_a_whole_run(make, new_pem)
    for first in range(3, total, 6):
        lab = make()
        lab.prepare(noded_cert_file=new_pem)
        lab.interrupt = {first: "killed after", first + 7: "answer lost"}
        for _ in range(3):
            try:
                lab.run()
                break
            except (Killed, errors.OpPrereqError, errors.OpExecError, errors.ConfigurationError):
                lab.trust_changed()
        lab.run_again(node_certificates=True)
        lab.check_end(new_pem)


def test_another_master_brings_it_to_its_end(make: Make, new_pem: str) -> None:
    """It has nothing prepared, but it trusts both certificates."""
    total = calls_of_a_whole_run(make, new_pem)
    for number in range(4, total + 1, 3):
        lab = make()
        lab.prepare(noded_cert_file=new_pem)
        lab.interrupt = {number: "killed after"}
        with pytest.raises(Killed):
            lab.run()
        lab.here = lab.places["node2.example.com"]
        cluster = updated(lab.master.config.cluster(), master_node=uuid_of("node2"))
        lab.interrupt = {}
        lab.trust_changed()
        with lab.master.config.transaction() as change:
            change.cluster.update(cluster)
        lab.run_again(node_certificates=True)
        lab.run_again(node_certificates=True)
        # What the old master had prepared is nobody's any more.
        lab.check_end(text(lab.here.noded_cert_file))


def test_only_the_nodes_certificates(make: Make) -> None:
    lab = make()
    server = text(lab.here.noded_cert_file)
    before = {name: text(here.noded_client_cert_file) for name, here in lab.places.items()}
    lab.run(node_certificates=True)
    lab.check_end(server)
    assert all(
        text(here.noded_client_cert_file) != before[name] for name, here in lab.places.items()
    )
    assert not any("node_crypto_identity" in line for line in lab.log)


def test_a_node_that_does_not_answer_stops_it_before_it_begins(make: Make, new_pem: str) -> None:
    lab = make()
    server = text(lab.here.noded_cert_file)
    lab.prepare(noded_cert_file=new_pem)
    lab.interrupt = {2: "unreachable"}
    with pytest.raises(errors.OpPrereqError, match="these do not: node2.example.com"):
        lab.run()
    assert lab.calls == 3
    assert all(text(here.noded_cert_file) == server for here in lab.places.values())


def test_an_offline_node_is_named(make: Make, new_pem: str) -> None:
    lab = make()
    commit(lab.master.config).nodes.update(
        updated(lab.master.config.node(uuid_of("node3")), offline=True)
    )
    gone = lab.places.pop("node3.example.com")
    lab.prepare(noded_cert_file=new_pem)
    lab.run()
    assert text(gone.noded_cert_file) != new_pem
    assert lab.master.job.said("node3.example.com is offline and does not have the new keys")


def test_common_files(make: Make) -> None:
    lab = make()
    lab.prepare(
        hmac_key="k2\n",
        rapi_cert_file="pem\n",
        cluster_domain_secret="s2\n",
        **preparing.new_spice(),
    )
    lab.interrupt = {5: "unreachable"}
    with pytest.raises(errors.OpExecError, match="did not accept rapi.pem"):
        lab.run()
    assert sorted(preparing.pending(lab.here)) == [
        "cluster-domain-secret",
        "hmac.key",
        "rapi.pem",
        "spice-ca.pem",
        "spice.pem",
    ]
    lab.run_again()
    for here in lab.places.values():
        assert text(here.hmac_key) == "k2\n" and text(here.rapi_cert_file) == "pem\n"
        assert text(here.cluster_domain_secret) == "s2\n"
        assert fits(text(here.spice_cert_file), text(here.spice_cacert_file))
        assert "PRIVATE" not in text(here.spice_cacert_file)
        assert Path(here.hmac_key).stat().st_mode & 0o777 == 0o440
    assert not any("crypto" in line for line in lab.log), "certificates are left alone"
    assert preparing.pending(lab.here) == []


def test_a_damaged_certificate_is_refused(make: Make) -> None:
    lab = make()
    lab.prepare(noded_cert_file="garbage")
    with pytest.raises(errors.OpPrereqError, match="server.pem"):
        lab.run()
    assert lab.calls == 0


def test_ssh_keys_of_a_cluster_that_leaves_them_alone(make: Make) -> None:
    lab = make()
    with pytest.raises(errors.OpPrereqError, match="does not manage the SSH keys"):
        lab.run(renew_ssh_keys=True)


# -- what a node refuses, whoever asks ------------------------------------------------------------


def test_a_node_does_not_cut_itself_off(make: Make, new_pem: str) -> None:
    lab = make()
    here = lab.places["node2.example.com"]
    with paths.override(here):
        with pytest.raises(errors.X509CertError, match="not among those"):
            renewal.crypto_trust([x509.certificate_part(new_pem)])
        with pytest.raises(errors.X509CertError, match="not among those"):
            renewal.crypto_identity(new_pem)
        with pytest.raises(errors.X509CertError):
            renewal.crypto_identity("garbage")
        renewal.crypto_trust([x509.certificate_part(new_pem), text(here.noded_cert_file)])
        assert "PRIVATE" not in text(here.server_ca_file)
        renewal.crypto_identity(new_pem)
        # Its client certificate is signed with the old one.
        with pytest.raises(errors.X509CertError, match="not valid in this cluster"):
            renewal.crypto_trust([])
        lab.monkeypatch.setenv(paths.ENV_HOSTNAME, "node2.example.com")
        stray = x509.create_signed("node2.example.com", x509.create_self_signed())
        Path(f"{here.noded_client_cert_file}.tmp").write_text(stray)
        with pytest.raises(errors.X509CertError, match="not valid in this cluster"):
            renewal.crypto_activate()
        credentials.crypto_tokens(
            [["ssl", "create", {"cert_file": f"{here.noded_client_cert_file}.tmp"}]]
        )
        state = renewal.crypto_state()
        assert renewal.crypto_activate() == state["next"]
        assert renewal.crypto_activate() == state["next"], "again does no harm"
        renewal.crypto_trust([])
        assert renewal.crypto_state() == {
            "server": x509.digest(new_pem),
            "trust": [x509.digest(new_pem)],
            "client": state["next"],
            "next": None,
            "next_pin": None,
        }
