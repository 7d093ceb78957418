"""SSH keys by node calls: who is told what, and renewals that are interrupted anywhere.

:class:`Lab` is a model of the nodes' files behind the calls: it knows which key each node uses and
which keys each lets log in. After every single call all candidates must be able to log in on all
nodes.
"""

from __future__ import annotations

import itertools

import pytest

from fakes.config import cluster_of, uuid_of
from fakes.master import Master
from ganeti import errors
from ganeti.opcodes.cluster import OpClusterRedistConf, OpClusterRenewCrypto
from ganeti.opcodes.node import OpNodeSetParams

NODE1, NODE2, NODE3 = NODES = [f"node{number}.example.com" for number in (1, 2, 3)]
HOST_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAII1v5Rh3Kl9l0wenJHza6xONQ0U7NCO0+8yhKqTBU3GZ"


class Lab:
    """The nodes' keys and files; can lose a call, or its answer."""

    def __init__(self, master: Master) -> None:
        self.master = master
        self.numbers = itertools.count(1)
        self.own: dict[tuple[str, str], str] = {}
        self.following: dict[tuple[str, str, int], str] = {}
        self.authorized: dict[str, list[str]] = {}
        self.public: dict[str, str | None] = {}
        self.calls = 0
        self.fail_at: int | None = None
        self.after = False
        self.watch = True
        for name in ("node_ssh_keys", "node_ssh_trust", "node_ssh_activate"):
            handler = getattr(self, name)
            master.rpc.answers[name] = lambda node, args, do=handler: self._call(do, node, args)

    def _call(self, do, node, args):
        self.calls += 1
        if self.fail_at == self.calls and not self.after:
            raise Lost
        answer = do(node, args)
        if self.watch:
            self.reachable()
        if self.fail_at == self.calls:
            raise Lost
        return answer

    def reachable(self) -> None:
        """Every candidate which has a key may log in wherever anybody may."""
        for node in self.candidates():
            mine = {key for (owner, _), key in self.own.items() if owner == node}
            for target, keys in self.authorized.items():
                assert not mine or mine & set(keys), f"{node} is cut off from {target}"

    def candidates(self) -> list[str]:
        return [node.name for node in self.master.config.nodes() if node.master_candidate]

    def _make(self, node: str, kind: str) -> str:
        return f"{kind}-{next(self.numbers)} root@{node}"

    def node_ssh_keys(self, node, args):
        kind, bits = args["kind"], args["bits"]
        if args["make"] == "missing":
            self.own.setdefault((node, kind), self._make(node, kind))
        if args["make"] == "new":
            self.following.setdefault((node, kind, bits), self._make(node, kind))
        found = [self.own.get((node, kind)), self.following.get((node, kind, bits))]
        return {"root": [key for key in found if key], "hosts": [HOST_KEY]}

    def node_ssh_trust(self, node, args):
        self.authorized[node] = args["authorized"]
        self.public[node] = args["public_keys"]

    def node_ssh_activate(self, node, args):
        key = self.following.pop((node, args["kind"], args["bits"]), None)
        if key is not None:
            self.own[node, args["kind"]] = key
        return self.own[node, args["kind"]]


class Lost(Exception):
    """The master is killed at this point."""


@pytest.fixture
def master():
    return Master(
        cluster_of(
            3,
            node_changes={3: {"master_candidate": False}},
            modify_ssh_setup=True,
            ssh_key_type="rsa",
            ssh_key_bits=2048,
            candidate_pool_size=2,
        )
    )


@pytest.fixture
def lab(master):
    return Lab(master)


def distribute(master):
    master.run(OpClusterRedistConf())


def test_candidates_may_log_in_and_have_the_list(master, lab):
    distribute(master)
    assert {tuple(keys) for keys in lab.authorized.values()} == {
        ("rsa-1 root@node1.example.com", "rsa-2 root@node2.example.com")
    }
    assert lab.public[NODE1] == lab.public[NODE2] != lab.public[NODE3]
    assert lab.public[NODE3] is None
    assert [line.split()[0] for line in lab.public[NODE1].splitlines()] == [
        uuid_of(f"node{number}") for number in (1, 2, 3)
    ]
    (known,) = {args["known_hosts"] for _, args in master.rpc.of("node_ssh_trust")}
    assert known.splitlines()[0] == f"{NODE1},cluster.example.com {HOST_KEY}"


def test_nothing_is_done_where_ssh_is_not_ours():
    master = Master(cluster_of(2))
    lab = Lab(master)
    distribute(master)
    assert lab.calls == 0
    assert "--no-ssh-init" in master.refused(
        OpClusterRenewCrypto(renew_ssh_keys=True), errors.ECODE_INVAL
    )


def test_roles_decide(master, lab):
    distribute(master)
    lab.watch = False  # who has just become a candidate may log in a moment later
    master.rpc.answers["node_crypto_tokens"] = lambda node, args: [["ssl", f"CC:{node}"]]
    master.run(OpNodeSetParams(node_name="node2", master_candidate=False, auto_promote=True))
    assert {tuple(key.split("@")[1] for key in keys) for keys in lab.authorized.values()} == {
        (NODE1, NODE3)
    }
    assert lab.public[NODE2] is None and lab.public[NODE3] is not None


def test_a_silent_node_keeps_its_place_and_is_told_later(master, lab, monkeypatch):
    """What this node's files say of it is used meanwhile."""
    monkeypatch.setattr(
        "ganeti.cmdlib.ops.cluster.ssh_keys._content",
        lambda path: (
            f"{uuid_of('node2')} rsa-9 root@{NODE2}\n"
            if path.endswith("pub_keys")
            else f"{NODE2},cluster.example.com {HOST_KEY}\n"
        ),
    )
    master.rpc.errors["node_ssh_keys", NODE2] = "no ssh-keygen"
    distribute(master)
    assert "redist-conf" in "".join(master.job.log) and master.job.said("no ssh-keygen")
    assert set(lab.authorized) == {NODE1, NODE3}
    assert f"rsa-9 root@{NODE2}" in lab.authorized[NODE1]


def test_new_keys(master, lab):
    distribute(master)
    old = dict(lab.own)
    master.run(OpClusterRenewCrypto(renew_ssh_keys=True, ssh_key_type="ecdsa"))
    assert master.config.cluster().ssh_key_type == "ecdsa"
    assert master.config.cluster().ssh_key_bits == 256
    assert not lab.following
    wanted = [lab.own[node, "ecdsa"] for node in (NODE1, NODE2)]
    assert set(map(tuple, lab.authorized.values())) == {tuple(wanted)}
    master.run(OpClusterRenewCrypto(renew_ssh_keys=True))
    assert not set(lab.own.values()) & set(lab.authorized[NODE1]) - {
        lab.own[node, "ecdsa"] for node in NODES
    }
    assert old != lab.own


@pytest.mark.parametrize(
    ("changes", "fragment"),
    [
        ({"ssh_key_type": "ecdsa", "ssh_key_bits": 2048}, "256 or 384"),
        ({"ssh_key_bits": 512}, "2048 to 16384"),
    ],
)
def test_keys_that_cannot_be(master, lab, changes, fragment):
    op = OpClusterRenewCrypto(renew_ssh_keys=True, **changes)
    assert fragment in master.refused(op, errors.ECODE_INVAL)
    assert lab.calls == 0


@pytest.mark.parametrize("call", ["node_ssh_keys", "node_ssh_trust", "node_ssh_activate"])
def test_a_node_that_fails_stops_the_renewal(master, lab, call):
    distribute(master)
    master.rpc.errors[call, NODE2] = "disk full"
    text = master.failed(OpClusterRenewCrypto(renew_ssh_keys=True))
    assert "disk full" in text and "--new-ssh-keys'" in text
    lab.reachable()
    master.rpc.errors.clear()
    master.run(OpClusterRenewCrypto(renew_ssh_keys=True))
    lab.reachable()
    assert not lab.following


@pytest.mark.parametrize("kind", ["rsa", "ecdsa"])
@pytest.mark.parametrize("after", [False, True])
def test_killed_at_any_call(kind, after):
    """The master ends before or after every single call; then keys are distributed by somebody
    else, and the renewal is run again."""
    op = {"renew_ssh_keys": True, "ssh_key_type": kind}
    fail_at = 0
    while True:
        fail_at += 1
        master = Master(
            cluster_of(
                3,
                node_changes={3: {"master_candidate": False}},
                modify_ssh_setup=True,
                ssh_key_type="rsa",
                ssh_key_bits=2048,
            )
        )
        lab = Lab(master)
        distribute(master)
        lab.calls, lab.fail_at, lab.after = 0, fail_at, after
        try:
            master.run(OpClusterRenewCrypto(**op))
        except Lost:
            pass
        else:
            break
        lab.fail_at = None
        lab.reachable()
        distribute(master)
        lab.reachable()
        master.run(OpClusterRenewCrypto(**op))
        lab.reachable()
        assert not lab.following
        assert lab.authorized[NODE1] == [lab.own[node, kind] for node in (NODE1, NODE2)]
    assert fail_at > 15
