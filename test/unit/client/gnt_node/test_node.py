"""``gnt-node``: a section per command."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes.config import cluster_of, uuid_of
from fakes.luxi_master import FakeMaster
from ganeti import bootstrap, errors
from ganeti.bootstrap import join, join_protocol
from ganeti.bootstrap.node import Preparation
from ganeti.cli import jobs
from ganeti.luxi import client as luxi
from ganeti.objects import codec
from ganeti.platform import paths

from ..conftest import Gnt

NODE1 = {
    "name": "node1.example.com",
    "pip": "127.0.9.1",
    "sip": "127.0.9.1",
    "pinst_list": ["web1"],
    "sinst_list": [],
    "master_candidate": True,
    "drained": False,
    "offline": False,
    "master_capable": True,
    "vm_capable": True,
    "powered": None,
    "master": True,
    "ndparams": {"cpu_speed": 1.0, "oob_program": "", "ssh_port": 22},
    "custom_ndparams": {"ssh_port": 2222},
    "mfree": 22817,
    "tags": ["ssd", "hot"],
}


@pytest.fixture(autouse=True)
def _nodes(master: FakeMaster) -> None:
    master.rows["node"] = [NODE1]
    master.fields["node"] = [
        {"name": name, "title": title, "kind": kind, "doc": name}
        for name, title, kind in (
            ("name", "Node", "text"),
            ("dtotal", "DTotal", "unit"),
            ("dfree", "DFree", "unit"),
            ("mtotal", "MTotal", "unit"),
            ("mnode", "MNode", "unit"),
            ("mfree", "MFree", "unit"),
            ("pinst_cnt", "Pinst", "number"),
            ("sinst_cnt", "Sinst", "number"),
            ("pinst_list", "PriInstances", "other"),
            ("tags", "Tags", "other"),
        )
    ]


class Setup:
    """Instead of preparing machines: what was prepared, undone, kept."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.error: Exception | None = None
        self.certificate: str | None = None
        self.pins: tuple[str, ...] | None = None
        self.port = 0

    @contextlib.contextmanager
    def __call__(
        self, host: Any, access: Any, *, force_join: bool, pins: tuple[str, ...]
    ) -> Iterator[Preparation]:
        if self.error is not None:
            raise self.error
        self.events.append(f"prepare {host.name}" + (" by force" if force_join else ""))
        self.pins = pins
        self.port = access.port
        kept = False

        def keep() -> None:
            nonlocal kept
            kept = True
            self.events.append("keep")

        try:
            yield Preparation(keep, self.certificate)
        except BaseException:
            if not kept:
                self.events.append("undo")
            raise


@pytest.fixture
def setup(monkeypatch: pytest.MonkeyPatch) -> Setup:
    fake = Setup()
    monkeypatch.setattr(bootstrap, "node_setup", fake)
    return fake


# -- list and list-fields -------------------------------------------------------------------------


def test_list(gnt: Gnt, master: FakeMaster) -> None:
    master.rows["node"] = [
        {
            "name": "node1.example.com",
            "dtotal": 258019,
            "dfree": 72879,
            "mtotal": 24105,
            "mnode": 489,
            "mfree": 22817,
            "pinst_cnt": 1,
            "sinst_cnt": 0,
        }
    ]
    assert gnt("node list").out == (
        "Node              DTotal DFree MTotal MNode MFree Pinst Sinst\n"
        "node1.example.com 252.0G 71.2G  23.5G  489M 22.3G     1     0\n"
    )


def test_list_of_an_offline_node(gnt: Gnt, master: FakeMaster) -> None:
    master.statuses[("node1.example.com", "mfree")] = 4
    assert gnt("node list --no-headers -o name,mfree").out == "node1.example.com *\n"
    assert gnt("node list --no-headers -v -o name,mfree").out == "node1.example.com (offline)\n"
    (row,) = json.loads(gnt("node list -o name,mfree -o json").out)
    assert row == {"name": "node1.example.com", "mfree": None, "_status": {"mfree": "offline"}}


def test_list_joins_names(gnt: Gnt) -> None:
    assert gnt("node list --no-headers --separator=: -o pinst_list,tags").out == "web1:ssd,hot\n"


def test_list_fields(gnt: Gnt) -> None:
    assert gnt("node list-fields --no-headers name").out == "name Text Node name\n"


# -- info -----------------------------------------------------------------------------------------

INFO = """\
- Node name: node1.example.com
  primary ip: 127.0.9.1
  secondary ip: 127.0.9.1
  master candidate: True
  drained: False
  offline: False
  master_capable: True
  vm_capable: True
  primary for instances: \n\
    - web1
  secondary for instances: \n\
  node parameters: \n\
    cpu_speed: default (1)
    oob_program: default ()
    ssh_port: 2222
"""


@pytest.mark.parametrize("line", ["node info", "node show node1.example.com"])
def test_info(line: str, gnt: Gnt, master: FakeMaster) -> None:
    assert gnt(line) == (0, INFO, "")
    assert master.methods() == ["QueryNodes"]


def test_info_of_a_node_without_instances(gnt: Gnt, master: FakeMaster) -> None:
    master.rows["node"] = [{**NODE1, "vm_capable": False, "powered": False}]
    text = gnt("node info").out
    assert "  powered: False\n" in text
    assert "instances" not in text


def test_info_of_states_set_by_hand(gnt: Gnt, master: FakeMaster) -> None:
    master.rows["node"] = [
        {
            **NODE1,
            "hv_state": {"kvm": {"mem_total": 4096}},
            "disk_state": {"plain": {"xenvg": {"disk_total": 9}}},
        }
    ]
    lines = [line.rstrip() for line in gnt("node info").out.splitlines()]
    assert lines[-7:] == [
        "  hypervisor state:",
        "    kvm:",
        "      mem_total: 4096",
        "  disk state:",
        "    plain:",
        "      xenvg:",
        "        disk_total: 9",
    ]


def test_info_for_programs(gnt: Gnt) -> None:
    (node,) = json.loads(gnt("node info --output=json").out)
    assert (node["name"], node["ndparams"]["ssh_port"]) == ("node1.example.com", 22)


def test_info_of_an_unknown_node(gnt: Gnt) -> None:
    ended = gnt("node info nosuch")
    assert (ended.code, ended.out) == (1, "")
    assert "error type: unknown_entity, error details:\nNode 'nosuch' not known" in ended.err


# -- add ------------------------------------------------------------------------------------------


def test_add(gnt: Gnt, master: FakeMaster, setup: Setup) -> None:
    assert gnt("node add node2") == (0, "", "")
    assert setup.events == ["prepare node2.example.com"]
    assert master.methods()[:2] == ["QueryNodes", "QueryGroups"]
    sent = master.opcode()
    wanted = {
        "OP_ID": "OP_NODE_ADD",
        "node_name": "node2.example.com",
        "primary_ip": None,
        "secondary_ip": None,
        "readd": False,
        "group": None,
        "master_capable": None,
        "vm_capable": None,
        "ndparams": None,
        "hv_state": None,
        "disk_state": None,
        "node_setup": True,
    }
    assert {name: sent[name] for name in wanted} == wanted


def test_add_by_force(gnt: Gnt, setup: Setup) -> None:
    assert gnt("node add --force-join node2").code == 0
    assert setup.events == ["prepare node2.example.com by force"]


@pytest.mark.parametrize(
    ("options", "port"),
    [
        ("", 22),
        ("-g rack2", 2200),
        ("-g rack2 --node-parameters ssh_port=2222", 2222),
        ("-g rack2 --node-parameters ssh_port=default", 2200),
    ],
)
def test_the_port_of_ssh(
    gnt: Gnt, master: FakeMaster, setup: Setup, options: str, port: int
) -> None:
    """A new node inherits the port from its group, before the cluster knows the node."""
    master.rows["group"] = [{"name": "default", "ndparams": {"ssh_port": 22}}]
    if options:
        master.rows["group"].append({"name": "rack2", "ndparams": {"ssh_port": 2200}})
    assert gnt(f"node add {options} node2").code == 0
    assert setup.port == port


def test_a_group_which_does_not_exist(gnt: Gnt, master: FakeMaster, setup: Setup) -> None:
    master.rows["group"] = []
    ended = gnt("node add -g rack9 node2")
    assert ended.code == 1 and "Group 'rack9' not known" in ended.err
    assert setup.events == []


def test_add_options(gnt: Gnt, master: FakeMaster, setup: Setup) -> None:
    assert (
        gnt(
            "node add --no-node-setup -s 127.0.9.2 -g rack2 --master-capable no --vm-capable yes"
            " --node-parameters ssh_port=2222 --hypervisor-state kvm:mem_total=1024"
            " --disk-state plain/xenvg:disk_total=2048 --no-ssh-key-check --force-join -v"
            " --priority low node2"
        ).code
        == 0
    )
    assert setup.events == []
    sent = master.opcode()
    wanted = {
        "secondary_ip": "127.0.9.2",
        "group": "rack2",
        "master_capable": False,
        "vm_capable": True,
        "ndparams": {"ssh_port": 2222},
        "hv_state": {"kvm": {"mem_total": 1024}},
        "disk_state": {"plain": {"xenvg": {"disk_total": 2048}}},
        "node_setup": False,
        "priority": 10,
    }
    assert {name: sent[name] for name in wanted} == wanted


def test_add_a_known_node(gnt: Gnt, master: FakeMaster, setup: Setup) -> None:
    ended = gnt("node add node1")
    assert ended.code == 1
    assert ended.err == (
        "Node node1.example.com already in the cluster (as node1.example.com) -"
        " please retry with '--readd'\n"
    )
    assert setup.events == []


@pytest.mark.parametrize("certificate", [None, "AA:" * 19 + "AA"])
def test_add_tells_the_master_which_machine_was_prepared(
    gnt: Gnt, master: FakeMaster, setup: Setup, certificate: str | None
) -> None:
    setup.certificate = certificate
    assert gnt("node add node2").code == 0
    assert master.opcode().get("certificate") == certificate
    assert setup.pins == ()


@pytest.mark.parametrize("known", [None, ("A" * 43 + "=",)])
def test_readd(
    gnt: Gnt,
    master: FakeMaster,
    setup: Setup,
    known: tuple[str, ...] | None,
) -> None:
    data = cluster_of(2)
    node2 = dataclasses.replace(data.nodes[uuid_of("node2")], key_pins=known)
    data = dataclasses.replace(data, nodes={**data.nodes, node2.uuid: node2})
    path = Path(paths.current().cluster_conf_file)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(codec.to_dict(data)))
    master.rows["node"].append(
        {**NODE1, "name": "node2.example.com", "sip": "127.0.9.2", "master": False}
    )
    assert gnt("node add --readd node2").code == 0
    sent = master.opcode()
    assert (sent["readd"], sent["secondary_ip"]) == (True, "127.0.9.2")
    assert setup.pins == (known or ())


@pytest.mark.parametrize(
    ("name", "text"), [("node2", "not in the cluster"), ("node1", "is the master")]
)
def test_readd_refused(name: str, text: str, gnt: Gnt, master: FakeMaster, setup: Setup) -> None:
    ended = gnt(f"node add --readd {name}")
    assert ended.code == 1
    assert text in ended.err
    assert master.opcodes() == []


def test_add_a_name_that_does_not_resolve(gnt: Gnt, master: FakeMaster) -> None:
    ended = gnt("node add nosuch.invalid")
    assert ended.code == 1
    assert "'nosuch.invalid'" in ended.err
    assert master.requests == []


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ("--node-parameters nosuch=1", "Parameter Error: unknown parameter 'nosuch'"),
        ("--disk-state plain:disk_total=1", "names no storage"),
        ("--disk-state no_plain/x", "cannot be removed"),
        ("--hypervisor-state no_kvm", "cannot be removed"),
        ("--hypervisor-state kvm:nosuch=1", "Parameter Error"),
    ],
)
def test_add_with_wrong_parameters(
    options: str, text: str, gnt: Gnt, master: FakeMaster, setup: Setup
) -> None:
    ended = gnt(f"node add {options} node2")
    assert ended.code == 1
    assert text in ended.err
    assert setup.events == []
    assert master.opcodes() == []


def test_add_that_fails_is_undone(gnt: Gnt, master: FakeMaster, setup: Setup) -> None:
    master.results["OP_NODE_ADD"] = errors.OpPrereqError("no", errors.ECODE_STATE)
    assert gnt("node add node2").code == 1
    assert setup.events == ["prepare node2.example.com", "undo"]


def test_add_that_cannot_be_prepared(gnt: Gnt, master: FakeMaster, setup: Setup) -> None:
    setup.error = errors.OpPrereqError("no SSH", errors.ECODE_ENVIRON)
    ended = gnt("node add node2")
    assert ended.code == 1
    assert "no SSH" in ended.err
    assert master.opcodes() == []


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (KeyboardInterrupt(), "job 1 continues"),
        (errors.ConnectionClosedError("gone"), "closed the connection"),
    ],
)
def test_add_that_nobody_waits_for_keeps_its_node(
    error: BaseException,
    text: str,
    gnt: Gnt,
    master: FakeMaster,
    setup: Setup,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted(*_: Any) -> None:
        raise error

    monkeypatch.setattr(jobs, "wait_for_job", interrupted)
    ended = gnt("node add node2")
    assert ended.code == 1
    assert text in ended.err
    assert setup.events == ["prepare node2.example.com", "keep"]


def test_add_whose_submission_is_interrupted_keeps_its_node(
    gnt: Gnt, setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The master may have accepted the job."""

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(luxi.Client, "submit_job", interrupted)
    ended = gnt("node add node2")
    assert ended.code == 1
    assert "may have been accepted" in ended.err
    assert setup.events == ["prepare node2.example.com", "keep"]


# -- remove ---------------------------------------------------------------------------------------


def test_remove(gnt: Gnt, master: FakeMaster) -> None:
    assert gnt("node remove --dry-run --priority high node2") == (0, "", "")
    sent = master.opcode()
    assert (sent["OP_ID"], sent["node_name"], sent["dry_run"], sent["priority"]) == (
        "OP_NODE_REMOVE",
        "node2",
        True,
        -10,
    )


def test_remove_refused(gnt: Gnt, master: FakeMaster) -> None:
    master.results["OP_NODE_REMOVE"] = errors.OpPrereqError(
        "instance web1 is still on node2", errors.ECODE_INVAL
    )
    ended = gnt("node remove node2")
    assert ended.code == 1
    assert "instance web1 is still on node2" in ended.err


# -- add --token ----------------------------------------------------------------------------------


class Bearer:
    """The machine that comes with the token."""

    def __init__(self, events: list[str]) -> None:
        self.events = events
        self.error: Exception | None = None
        self.certificate = "AA:BB"

    def equip(self, here: Any) -> None:
        if self.error is not None:
            raise self.error
        self.events.append("equip")

    def accept(self) -> None:
        self.events.append("taken in")

    def refuse(self, text: str) -> None:
        self.events.append(f"refuse: {text}")

    def close(self) -> None:
        self.events.append("close")


@pytest.fixture
def bearer(monkeypatch: pytest.MonkeyPatch) -> Bearer:
    made = Bearer([])

    class Offer:
        def __init__(self, host: Any, address: str, *, lifetime_s: int, **_: Any) -> None:
            made.events.append(f"offer {host.name} at {address} for {lifetime_s} s")
            self.token = join_protocol.Token(0, address, 1, b"c" * 32, b"s" * 32, host.name)

        def __enter__(self) -> Offer:
            return self

        def __exit__(self, *_: object) -> None:
            made.events.append("withdrawn")

        def wait(self) -> Bearer:
            return made

    monkeypatch.setattr(join, "JoinOffer", Offer)
    monkeypatch.setattr(join, "master_address", lambda: "127.0.9.1")
    return made


def test_add_by_token(gnt: Gnt, master: FakeMaster, setup: Setup, bearer: Bearer) -> None:
    ended = gnt("node add --token -g rack2 node2")
    assert ended.code == 0
    assert "gntjoin1-" in ended.out and "Run 'ganeti-join' on node2.example.com" in ended.out
    assert bearer.events == [
        "offer node2.example.com at 127.0.9.1 for 3600 s",
        "withdrawn",
        "equip",
        "taken in",
    ]
    assert master.opcode()["certificate"] == "AA:BB"
    assert master.opcode()["OP_ID"] == "OP_NODE_ADD" and master.opcode()["group"] == "rack2"
    assert setup.events == [], "nothing is prepared from here"


def test_add_by_token_when_the_machine_fails(gnt: Gnt, master: FakeMaster, bearer: Bearer) -> None:
    bearer.error = join_protocol.JoinError("node2: cannot start ganeti-noded")
    ended = gnt("node add --token --token-lifetime 60 node2")
    assert ended.code == 1 and "cannot start ganeti-noded" in ended.err
    assert bearer.events[0].endswith("for 60 s")
    assert bearer.events[-1].startswith("refuse: ")
    assert "SubmitJob" not in master.methods()


def test_add_by_token_when_the_job_fails(gnt: Gnt, master: FakeMaster, bearer: Bearer) -> None:
    master.results["OP_NODE_ADD"] = errors.OpPrereqError("no such group", errors.ECODE_NOENT)
    ended = gnt("node add --token node2")
    assert ended.code == 1
    assert bearer.events[-1] == "refuse: no such group"


def test_a_token_needs_a_lifetime(gnt: Gnt, bearer: Bearer) -> None:
    ended = gnt("node add --token --token-lifetime 0 node2")
    assert ended.code == 1 and "more than 0 seconds, not 0" in ended.err
    assert bearer.events == []
