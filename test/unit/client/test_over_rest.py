"""The commands over the REST interface: the same texts, and what they say when something is wrong."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.x509 import load_pem_x509_certificate

from fakes.http_lab import HttpLab
from fakes.luxi_master import FakeMaster
from ganeti import client as programs
from ganeti import errors
from ganeti.bootstrap import node_state
from ganeti.cli.over_rest import address, refusal
from ganeti.cli.over_rest import master as over_rest
from ganeti.config.witness import Document
from ganeti.foreign import catalogue
from ganeti.luxi import methods
from ganeti.master.queries import images
from ganeti.objects.transfer import MasterStatus
from ganeti.platform import paths
from ganeti.platform.master_epoch import Epoch
from ganeti.rapi.application import RestApplication
from ganeti.rapi.identify import Identities
from ganeti.rapi.master import Master
from ganeti.rapi.users import Users
from ganeti.rpc import failover_status
from ganeti.utils import x509

from .conftest import Gnt, fields_of


class Laptop:
    """A machine outside of the cluster, and the REST interface which it uses."""

    def __init__(self, lab: HttpLab, pem: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lab = lab
        self.pem = pem
        self._patch = monkeypatch

    @property
    def pin(self) -> str:
        """The hash of the server's key, in the form of libcurl."""
        key = load_pem_x509_certificate(self.pem.read_bytes()).public_key()
        der = key.public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        return "sha256//" + base64.b64encode(hashlib.sha256(der).digest()).decode()

    def use(self, user: str = "root:secret@", **variables: str) -> None:
        """Let the commands use the REST interface from now on."""
        self._patch.setenv("GANETI_RAPI", f"https://{user}127.0.0.1:{self.lab.port}")
        for name, value in {"GANETI_RAPI_PIN": self.pin, **variables}.items():
            self._patch.setenv(name, value)

    def leave(self) -> None:
        """Let the commands use the socket again."""
        self._patch.delenv("GANETI_RAPI", raising=False)


@pytest.fixture
def laptop(here: paths.Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Laptop]:
    users, pem = tmp_path / "users", tmp_path / "rapi.pem"
    users.write_text("root secret write\nrita secret read\nolga secret @operator\n")
    pem.write_text(x509.create_self_signed("ganeti.example.com"))
    lab = HttpLab(
        lambda: RestApplication(Master(here.master_socket), Identities([Users(str(users))])),
        tls=x509.plain_server_context(str(pem)),
    )
    yield Laptop(lab, pem, monkeypatch)
    lab.close()


_JOB = {"id": 7, "status": "success", "summary": ["CLUSTER_VERIFY"], "timestamp": 100.0}
_WEB = {
    "name": "web1", "uuid": "u", "change": "state", "status": "running", "admin_state": "up",
    "primary_node": "node1", "serial_no": 3, "timestamp": 101.0,
}  # fmt: skip
_NODE = {"name": "node1", "uuid": "n", "change": "changed", "serial_no": 3, "timestamp": 102.0}


def _events(place: list[Any] | None, _wait_s: float, kinds: list[str] | None) -> dict[str, Any]:
    about = [] if kinds is None else [{"members": ["drained"]}]
    wanted = kinds or ["job", "instance"]
    kept = ([5, "job", _JOB], [6, "instance", _WEB], [7, "node", _NODE])
    first = 0 if place is None else place[1]
    found = [[*event, *about] for event in kept if event[0] > first and event[1] in wanted]
    return {"epoch": "e", "last": 7, "events": found, "lost": False, "dropped": [4, 4]}


@pytest.fixture
def cluster(master: FakeMaster) -> FakeMaster:
    """A master with two instances and two nodes."""
    for what in ("instance", "node", "job", "group", "filter", "network"):
        master.fields[what] = fields_of(what)
    master.rows["instance"] = [
        {"name": name, "status": "running", "pnode": "node1", "oper_ram": 128, "tags": ["blue"]}
        for name in ("web1", "web2")
    ]
    master.rows["node"] = [{"name": f"node{number}.example.com"} for number in (1, 2)]

    def values(what: str) -> Any:
        def answer(names: list[str], fields: list[str], _lock: bool) -> list[list[Any]]:
            known = {row["name"]: row for row in master.rows[what]}
            for name in names:
                if name not in known:
                    raise errors.OpPrereqError(
                        f"{what} '{name}' is not in the cluster", errors.ECODE_NOENT
                    )
            return [[known[name].get(field) for field in fields] for name in names or known]

        return answer

    master.answers["QueryInstances"] = values("instance")
    master.answers["QueryNodes"] = values("node")
    master.answers["QueryTags"] = lambda kind, name: ["blue", f"{kind}:{name}"]
    master.answers["QueryConfigValues"] = lambda fields: [
        {"cluster_name": "c", "master_node": "node1.example.com"}.get(name) for name in fields
    ]
    master.answers["WaitForEvents"] = _events
    master.results["OP_INSTANCE_REMOVE"] = errors.OpPrereqError("it runs", errors.ECODE_STATE)
    master.logs["OP_INSTANCE_STARTUP"] = ["* starting the instance"]
    return master


@pytest.mark.parametrize(
    "line",
    [
        "instance list",
        "instance list --no-headers --separator=: -o name,status,nosuch web2",
        "instance list -F 'name == \"web1\"'",
        "node list -o name",
        "instance list-fields name",
        "instance list-tags web1",
        "cluster list-tags",
        "instance startup web1 web2 --force-multiple",
        "instance startup nosuch",
        "instance remove -f web1",
        "instance startup --submit web1",
        "job list -o id,status",
        "job list 99",
        "job info 99",
        "job cancel 99",
        "job watch 99",
        "job archive 99",
        "job autoarchive all",
        "job change-priority --priority=low 99",
        "cluster queue info",
        "cluster watcher info",
        "cluster events",
        "cluster events --kind=instance --kind=node --output=json",
        "cluster getmaster",
        "instance add-tags web1 green",
    ],
)
def test_commands_say_the_same(line: str, gnt: Gnt, laptop: Laptop, cluster: FakeMaster) -> None:
    near = gnt(line)
    assert near.code in (0, 1, 14)
    ids = cluster.jobs.keys()
    cluster.jobs.clear()
    cluster.next_job_id = 1
    laptop.use()
    assert gnt(line) == near
    assert cluster.jobs.keys() == ids


def test_who_has_submitted_a_job(gnt: Gnt, laptop: Laptop, cluster: FakeMaster) -> None:
    laptop.use("olga:secret@")
    assert gnt("instance startup --reason=why web1").code == 0
    assert [row[:2] for row in cluster.opcode()["reason"]] == [
        ["gnt:user", "why"],
        ["gnt:client:gnt-instance", "startup"],
        ["gnt:library:rlib2:jobs", ""],
        ["gnt:person", "olga"],
    ]


def test_rights(gnt: Gnt, laptop: Laptop, cluster: FakeMaster) -> None:
    laptop.use("rita:secret@")
    assert gnt("instance list").code == 0
    ended = gnt("instance startup web1")
    assert ended.code == 1 and "user rita may not submit OP_INSTANCE_STARTUP" in ended.err
    assert gnt("cluster queue drain").err.endswith(
        "this user may not use PUT /2/queue/drain, which the command needs\n"
    )
    assert not cluster.jobs


def test_a_user_who_may_only_read_waits_for_a_job(
    gnt: Gnt, laptop: Laptop, cluster: FakeMaster
) -> None:
    """The resource which waits needs a right to change, so the command asks again and again."""
    cluster.polled = True
    laptop.use("rita:secret@")
    number = cluster.add_job({"OP_ID": "OP_INSTANCE_STARTUP", "instance_name": "web1"})
    ended = gnt(f"job watch {number}")
    assert ended.code == 0 and "* starting the instance" in ended.out
    assert cluster.jobs[number].status == "success"
    assert cluster.methods().count("Query") > 2
    assert "WaitForJobChange" not in cluster.methods()


def test_a_poll_ends_without_a_change(laptop: Laptop, cluster: FakeMaster) -> None:
    laptop.use("rita:secret@")
    number = cluster.add_job({"OP_ID": "OP_INSTANCE_STARTUP", "instance_name": "web1"})
    master = over_rest.RestMaster(address.read())
    assert master.wait_for_job_change(number, ["status"], ["queued"], None, 0.0) is None
    assert master.wait_for_job_change(number, ["status"], None, None, 0.0) == (["queued"], [])
    with pytest.raises(errors.JobLost, match="job 99 does not exist"):
        master.wait_for_job_change(99, ["status"], None, None, 0.0)
    master.close()


def test_without_a_user(gnt: Gnt, laptop: Laptop, cluster: FakeMaster) -> None:
    laptop.use("")
    ended = gnt("instance list")
    assert ended.code == 1 and "Give a token in GANETI_RAPI_TOKEN." in ended.err
    laptop.use("root:wrong@")
    ended = gnt("instance list")
    assert ended.err.endswith("the user name or the password is wrong\n")


def test_whom_a_laptop_trusts(
    gnt: Gnt, laptop: Laptop, cluster: FakeMaster, tmp_path: Path
) -> None:
    laptop.use(GANETI_RAPI_PIN="")
    ended = gnt("instance list")
    assert ended.code == 1
    assert "GANETI_RAPI_CA" in ended.err and "GANETI_RAPI_PIN" in ended.err
    # The authority is right, but the name of the server is another one.
    laptop.use(GANETI_RAPI_PIN="", GANETI_RAPI_CA=str(laptop.pem))
    assert gnt("instance list").code == 1
    other = base64.b64encode(bytes(32)).decode()
    laptop.use(GANETI_RAPI_PIN=f"sha256//{other}", GANETI_RAPI_CA="")
    assert "The server has another key than GANETI_RAPI_PIN says" in gnt("instance list").err
    assert not cluster.requests


@pytest.mark.parametrize(
    ("variables", "part"),
    [
        ({"GANETI_RAPI": "http://c.example.com"}, "speaks only https"),
        ({"GANETI_RAPI": "https://jack@c.example.com"}, "a user name without a password"),
        ({"GANETI_RAPI": "https://c:99999"}, "is not an address"),
        (
            {"GANETI_RAPI": "https://jack:geheim@c", "GANETI_RAPI_TOKEN": "x"},
            "give only one of them",
        ),
        ({"GANETI_RAPI": "https://c", "GANETI_RAPI_PIN": "abc"}, "begins with 'sha256//'"),
        ({"GANETI_RAPI": "https://c", "GANETI_RAPI_CA": "/nonexistent"}, "cannot be read"),
        ({"GANETI_RAPI": "https://c", "GANETI_RAPI_TOKEN_FILE": "/nonexistent"}, "No such file"),
        ({"GANETI_RAPI": "https://c", "GANETI_RAPI_TOKEN_FILE": "/dev/null"}, "has no token"),
        ({"GANETI_RAPI": "https://c", "GANETI_RAPI_TOKEN": "a\nb"}, "which no token has"),
    ],
)
def test_wrong_variables(
    variables: dict[str, str], part: str, gnt: Gnt, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    ended = gnt("instance list")
    assert ended.code == 1 and part in ended.err
    assert "geheim" not in ended.err


def test_a_server_which_is_not_there(gnt: Gnt, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GANETI_RAPI", "https://root:secret@127.0.0.1:1")
    ended = gnt("instance list")
    assert ended.code == 1 and "cannot talk to https://127.0.0.1:1" in ended.err
    assert "secret" not in ended.err


def test_commands_which_need_the_master(gnt: Gnt, laptop: Laptop) -> None:
    laptop.use()
    ended = gnt("cluster destroy --yes-do-it")
    assert ended.code == 1 and "Run it on the master." in ended.err
    known = {f"{name} {command}" for name in programs.PROGRAMS for command in _commands(name)}
    assert known >= refusal.NEEDS_MASTER.keys()


def _commands(name: str) -> list[str]:
    import importlib

    return list(importlib.import_module(programs.PROGRAMS[name]).PROGRAM.commands)


def test_requests_without_a_resource(gnt: Gnt, laptop: Laptop) -> None:
    laptop.use()
    assert "needs the master daemon itself" in gnt("cluster history --at 1").err
    assert methods.TABLE.keys() >= over_rest.REQUESTS.keys()


def test_a_laptop_writes_no_log(gnt: Gnt, laptop: Laptop, here: paths.Paths, cluster: Any) -> None:
    laptop.use()
    gnt("instance list")
    assert not Path(here.log_commands_file).exists()


def test_one_connection_for_all_requests(gnt: Gnt, laptop: Laptop, cluster: FakeMaster) -> None:
    laptop.use()
    assert gnt("instance startup web1").code == 0
    assert len(laptop.lab.exchanges) > 2
    assert laptop.lab.server.clients <= 1


def test_secrets_are_not_shown(gnt: Gnt, laptop: Laptop, cluster: FakeMaster) -> None:
    laptop.use("root:very-secret@")
    for line in ("instance list -d", "instance startup -d web1"):
        ended = gnt(line)
        assert ended.code == 1 and "very-secret" not in ended.out + ended.err
    laptop.use("", GANETI_RAPI_TOKEN="gnt_very-secret")
    ended = gnt("instance list -d")
    assert ended.code == 1 and "very-secret" not in ended.out + ended.err


def test_a_file_with_a_token(
    gnt: Gnt, laptop: Laptop, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "token"
    file.write_text("gnt_x\n")
    file.chmod(0o644)
    laptop.use("", GANETI_RAPI_TOKEN_FILE=str(file))
    assert f"Use 'chmod 600 {file}'." in gnt("instance list").err
    file.chmod(0o600)
    assert "chmod" not in gnt("instance list").err


@pytest.mark.parametrize("form", ["", " --output=json"])
def test_the_failover_status_over_rest_has_the_same_text(
    form: str, gnt: Gnt, laptop: Laptop, cluster: FakeMaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = Document(
        "c", 3, "n", "node1", Epoch(4, "u"), (Epoch(4, "u"), 12), (Epoch(4, "u"), 7)
    )
    known = MasterStatus(
        master="node1",
        epoch="4 u",
        daemon="serving",
        watching=True,
        watched="node1",
        state="serving",
        seen_s=3.0,
        text="it waits",
    )
    found = failover_status.Status(
        30,
        "node1",
        [
            failover_status.NodeStatus("node1", True, False, known),
            failover_status.NodeStatus("node2", True, False, None, "no answer"),
            failover_status.NodeStatus("node3", False, True, None),
        ],
        failover_status.WitnessStatus("https://w.example.com/c", document),
    )
    monkeypatch.setattr(failover_status, "ask", lambda: found)
    monkeypatch.setattr(node_state, "cluster_traces", lambda _here: ["a file"])
    near = gnt("cluster failover-status" + form)
    # The machine outside is not asked, but the master.
    monkeypatch.setattr(node_state, "cluster_traces", lambda _here: [])
    cluster.answers["QueryFailoverStatus"] = lambda: failover_status.report(found)
    laptop.use("rita:secret@")
    assert near.code == 0 and gnt("cluster failover-status" + form) == near
    assert cluster.methods().count("QueryFailoverStatus") == 1


def test_images_of_the_master_are_listed_over_rest(
    gnt: Gnt, laptop: Laptop, cluster: FakeMaster, here: paths.Paths
) -> None:
    top = Path(here.images_dir)
    top.mkdir(parents=True)
    entry = catalogue.Image(
        "debian-12", "raw", 5 << 20, 3 << 20, "a" * 64, "https://u:pw@h.example.com/d", "", 1000
    )
    (top / "debian-12.json").write_text(json.dumps(entry._asdict()))
    (top / "broken.json").write_text("[]")
    near = gnt("os images list -o name,format,size,verified,fetched")
    assert near.out.splitlines()[1].split()[:4] == ["debian-12", "raw", "5M", "no"]
    report = images.images(str(top))
    assert report["images"][0]["source"] == "https://h.example.com/d"
    cluster.answers["QueryImages"] = lambda: report
    for one in top.iterdir():
        one.unlink()
    laptop.use("rita:secret@")
    assert gnt("os images list -o name,format,size,verified,fetched") == near
    for line in ("fetch x https://h.example.com/x", "share", "check", "remove debian-12"):
        ended = gnt(f"os images {line}")
        assert ended.code == 1 and "Run it on the master" in ended.err, line
    assert list(top.iterdir()) == []


def test_a_catalogue_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(errors.OpExecError, match="cannot read the catalogue of images"):
        images.images(str(tmp_path / "file"))
    assert images.images(str(tmp_path / "missing")) == {"images": [], "problems": []}
