"""Moving an instance between two clusters which are fakes."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from ganeti.rapi import client as rapi
from ganeti.tools import move_instance
from ganeti.tools.move_instance import MoveError, MoveOptions, Mover

INFO: dict[str, Any] = {
    "name": "web.example.com",
    "config_state": "up",
    "os": "debian+min",
    "hypervisor": "kvm",
    "disk_template": "plain",
    "hv_instance": {"acpi": False},
    "be_instance": {},
    "be_actual": {"maxmem": 512, "minmem": 512, "vcpus": 2},
    "os_instance": {"size": "9"},
    "disks": [
        {"size": 1024, "mode": "rw", "name": "root"},
        {"size": 512, "mode": "ro", "name": None},
    ],
    "nics": [
        [None, "u1", "192.0.2.7", "aa:00:00:00:00:01", "bridged", "br0", "", None, None],
        ["second", "u2", None, "aa:00:00:00:00:02", "routed", "main", "", "u-net", "lan"],
    ],
}
PREPARED = {"handshake": [0, "d", "s"], "x509_key_name": ["key", "d", "s"], "x509_ca": "their ca"}
ANNOUNCED = {"disks": [["192.0.2.9", 5000, "magic", "d", "s"]], "x509_ca": "our ca"}


#: What the destination says about itself.
CLUSTER: dict[str, Any] = {
    "default_hypervisor": "kvm",
    "enabled_hypervisors": ["kvm", "xen-pvm"],
    "hvparams": {"kvm": {"kvm_extra": "", "vnc_bind_address": "127.0.0.1"}},
    "os_hvp": {},
    "osparams": {},
    "nicparams": {"default": {"mode": "bridged", "link": "br0", "vlan": ""}},
}
ACCEPTED = ("os", "os/size", "nic/network")


class Side:
    """A cluster whose jobs end as said: ``outcomes`` has a result or an error per job."""

    def __init__(self, **outcomes: Any) -> None:
        self.outcomes = outcomes
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []
        self.jobs: dict[int, str] = {}

    def submit(self, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
        self.calls.append((method, args, kwargs))
        job = len(self.calls)
        self.jobs[job] = method
        return job

    def __getattr__(self, method: str) -> Any:
        return lambda *args, **kwargs: self.submit(method, args, kwargs)

    def WaitForJobChange(  # noqa: N802
        self,
        job: int,
        fields: Any,
        info: Any,
        serial: int | None,
    ) -> dict[str, Any] | None:
        outcome = self.outcomes.get(self.jobs[job])
        if info is None and serial is None:
            entries = [[1, [0, 0], "message", "making disks"]]
            if self.jobs[job] == "CreateInstance" and not isinstance(outcome, Exception):
                entries.append([2, [0, 0], "remote-import", ANNOUNCED])
            return {"job_info": ["running"], "log_entries": entries}
        if serial is not None and serial < 0:
            return None
        return {
            "job_info": ["error" if isinstance(outcome, Exception) else "success"],
            "log_entries": None,
        }

    def GetJobStatus(self, job: int) -> dict[str, Any]:  # noqa: N802
        outcome = self.outcomes.get(self.jobs[job])
        if isinstance(outcome, Exception):
            return {"status": "error", "opresult": [["OpPrereqError", list(outcome.args)]]}
        return {"status": rapi.JOB_STATUS_SUCCESS, "opresult": [outcome]}

    def GetInfo(self) -> dict[str, Any]:  # noqa: N802
        return CLUSTER

    def methods(self) -> list[str]:
        return [name for name, _args, _kwargs in self.calls]

    def of(self, method: str) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
        return [(args, kwargs) for name, args, kwargs in self.calls if name == method]


def clusters(**destination: Any) -> tuple[Side, Side]:
    source = Side(
        GetInstanceInfo={"web.example.com": INFO},
        PrepareExport=PREPARED,
        ExportInstance=[True, [True]],
    )
    return source, Side(**{"CreateInstance": ["node9"], **destination})


def move(source: Side, destination: Side, options: MoveOptions | None = None) -> list[str]:
    said: list[str] = []
    mover = Mover(
        source,
        destination,
        dataclasses.replace(options or MoveOptions(), accepted=ACCEPTED),
        said.append,  # type: ignore[arg-type]
        sleep=lambda delay_s: said.append(f"slept {delay_s}"),
    )
    mover.move("web")
    return said


def test_the_instance_is_the_same_there() -> None:
    source, destination = clusters()
    said = move(source, destination)
    assert said[-1] == "instance web.example.com is complete"
    ((args, created),) = destination.of("CreateInstance")
    assert args == (
        "remote-import",
        "web.example.com",
        "plain",
        [{"size": 1024, "mode": "rw", "name": "root"}, {"size": 512, "mode": "ro"}],
        [
            {"mac": "aa:00:00:00:00:01", "ip": "192.0.2.7", "mode": "bridged", "link": "br0"},
            {"mac": "aa:00:00:00:00:02", "name": "second", "network": "lan"},
        ],
    )
    assert created == {
        "os_type": "debian+min",
        "hypervisor": "kvm",
        "hvparams": {"acpi": False},
        "beparams": {"maxmem": 512, "minmem": 512, "vcpus": 2},
        "osparams": {"size": "9"},
        "start": False,
        "compress": "none",
        "source_handshake": [0, "d", "s"],
        "source_x509_ca": "their ca",
        "source_instance_name": "web.example.com",
    }
    ((args, exported),) = source.of("ExportInstance")
    assert args == ("web.example.com", "remote", ANNOUNCED["disks"])
    assert exported == {
        "shutdown": True,
        "remove_instance": False,
        "x509_key_name": ["key", "d", "s"],
        "destination_x509_ca": "our ca",
        "compress": "none",
    }
    assert source.methods()[3:] == ["ShutdownInstance", "ExportInstance", "DeleteInstance"]
    assert destination.methods() == ["CreateInstance", "StartupInstance"]


EVIL = {
    "kvm_extra": "-chardev file,id=x,path=/x",
    "cdrom_image_path": "/etc/shadow",
    "vnc_bind_address": "127.0.0.1",
    "kernel_path": "",
    "acpi": False,
}


def mover_of(source: Side, destination: Side, **options: Any) -> Mover:
    return Mover(source, destination, MoveOptions(**options), print)  # type: ignore[arg-type]


def test_things_of_the_node_are_not_taken_from_the_other_cluster() -> None:
    """They are listed before anything is prepared, stopped or made."""
    source, destination = clusters()
    evil = {**INFO, "hv_instance": EVIL, "os": "evil"}
    evil["nics"] = [[*INFO["nics"][0][:5], "br-admin", *INFO["nics"][0][6:]], INFO["nics"][1]]
    source.outcomes["GetInstanceInfo"] = {"web.example.com": evil}
    for act in ("move", "plan"):
        with pytest.raises(MoveError) as caught:
            getattr(mover_of(source, destination), act)("web")
        for part in (
            "the source cluster's description of instance web.example.com names things of the node",
            "kvm_extra='-chardev file,id=x,path=/x'",
            "cdrom_image_path='/etc/shadow'",
            "os='evil'",
            "OS parameter size='9'",
            "interface 0: link='br-admin'",
            "interface 1: network='lan'",
            "=os,kvm_extra,cdrom_image_path,os/size,nic/link,nic/network",
        ):
            assert part in str(caught.value)
    assert set(source.methods()) == {"GetInstanceInfo"} and destination.methods() == []
    # The user says other values, or accepts these.
    mine: dict[str, Any] = {
        "hvparams": {"cdrom_image_path": ""},
        "os_type": "debian",
        "nics": {0: {"link": "br1"}},
        "accepted": ["kvm_extra", "nic/network"],
    }
    lines = mover_of(source, destination, **mine).plan("web")
    assert any("kvm_extra" in line and "is accepted" in line for line in lines)
    assert destination.methods() == []
    mover_of(source, destination, **mine).move("web")
    ((args, created),) = destination.of("CreateInstance")
    assert (created["os_type"], created["osparams"]) == ("debian", {})
    assert created["hvparams"] == {**EVIL, "cdrom_image_path": ""}
    assert (args[4][0]["link"], args[4][1]["network"]) == ("br1", "lan")


def test_a_source_which_says_something_else_the_second_time() -> None:
    """What was judged is what is taken."""
    source, destination = clusters()
    answers = [INFO, {**INFO, "hv_instance": EVIL, "os": "evil", "hypervisor": "chroot"}]
    mover = mover_of(source, destination, accepted=ACCEPTED)
    mover._info = lambda name: answers.pop(0)  # type: ignore[method-assign]
    mover.move("web")
    ((_args, created),) = destination.of("CreateInstance")
    assert (created["os_type"], created["hypervisor"]) == ("debian+min", "kvm")
    assert created["hvparams"] == {"acpi": False}


def test_a_stopped_instance_stays_stopped() -> None:
    source, destination = clusters()
    info = {**INFO, "config_state": "down"}
    source.outcomes["GetInstanceInfo"] = {"web.example.com": info}
    move(source, destination)
    assert source.methods()[3:] == ["ExportInstance", "DeleteInstance"]
    assert destination.methods() == ["CreateInstance"]


def test_what_is_to_be_different() -> None:
    source, destination = clusters()
    move(
        source,
        destination,
        MoveOptions(
            name="new.example.com",
            primary_node="node7",
            secondary_node="node8",
            disk_template="drbd",
            hypervisor="xen-pvm",
            hvparams={"root_path": "/dev/xvda1"},
            beparams={"memory": 1024},
            osparams={"size": "10"},
            nics={1: {"mac": "auto"}},
            compress="gzip",
            keep=True,
        ),
    )
    ((args, created),) = destination.of("CreateInstance")
    assert (args[1:3], args[4][1]["mac"]) == (("new.example.com", "drbd"), "auto")
    assert (created["pnode"], created["snode"], created["hvparams"], created["osparams"]) == (
        "node7",
        "node8",
        {"root_path": "/dev/xvda1"},
        {"size": "10"},
    )
    assert created["beparams"] == {"maxmem": 1024, "minmem": 1024, "vcpus": 2}
    ((_args, exported),) = source.of("ExportInstance")
    assert (exported["remove_instance"], exported["compress"]) == (False, "gzip")
    # The user wants both.
    assert created["start"] is True
    assert source.methods()[3:] == ["ExportInstance"]
    assert destination.methods() == ["CreateInstance"]


def test_the_destination_refuses() -> None:
    source, destination = clusters(CreateInstance=RuntimeError("no space", "wrong_state"))
    with pytest.raises(MoveError, match="job 1 of the destination has failed: no space"):
        move(source, destination)
    assert source.of("ExportInstance") == []


class Ending(Side):
    """The destination, which learns at the end of its job that the import failed."""

    def GetJobStatus(self, job: int) -> dict[str, Any]:  # noqa: N802
        if self.jobs[job] == "CreateInstance":
            return {"status": "error", "opresult": [["OpExecError", ["no space left"]]]}
        return super().GetJobStatus(job)


@pytest.mark.parametrize("method", ["ShutdownInstance", "ExportInstance"])
def test_the_source_fails(method: str) -> None:
    source, destination = clusters()
    source.outcomes[method] = RuntimeError("disk on fire")
    with pytest.raises(MoveError, match="of the source has failed: disk on fire"):
        move(source, destination)
    assert source.methods()[-1] == "StartupInstance"
    assert source.of("DeleteInstance") == []
    assert destination.of("StartupInstance") == []


def test_an_instance_which_stays_runs_again_after_a_failed_export() -> None:
    """The original leaves it stopped then."""
    source, destination = clusters(CreateInstance=["node9"])
    source.outcomes["ExportInstance"] = RuntimeError("no snapshots")
    with pytest.raises(MoveError, match="of the source has failed: no snapshots"):
        move(source, destination, MoveOptions(keep=True))
    assert source.of("ShutdownInstance") == []
    assert source.methods()[-1] == "StartupInstance"


def test_the_source_has_sent_everything_but_the_destination_fails() -> None:
    """What the receivers confirmed is not what the destination has."""
    source, _other = clusters()
    destination = Ending(CreateInstance=["node9"])
    with pytest.raises(MoveError, match="job 1 of the destination has failed: no space left"):
        move(source, destination)
    assert source.methods()[-1] == "StartupInstance"
    assert source.of("DeleteInstance") == []


def test_the_new_instance_does_not_start() -> None:
    source, destination = clusters(StartupInstance=RuntimeError("no memory"))
    with pytest.raises(MoveError, match=r"still exists on the source, stopped.*no memory"):
        move(source, destination)
    assert source.of("DeleteInstance") == source.of("StartupInstance") == []


def test_the_old_instance_is_not_removed() -> None:
    source, destination = clusters()
    source.outcomes["DeleteInstance"] = RuntimeError("node is away")
    with pytest.raises(MoveError, match=r"is complete on the destination.*node is away"):
        move(source, destination)
    assert source.of("StartupInstance") == []


def test_free_nodes_only_for_so_long() -> None:
    source, destination = clusters(
        CreateInstance=RuntimeError("all busy", "temp_insufficient_resources")
    )
    with pytest.raises(MoveError, match="all busy"):
        move(source, destination, MoveOptions(iallocator="hail", tries=2, delay_s=7))
    tried = [
        kwargs.get("opportunistic_locking", False)
        for _args, kwargs in destination.of("CreateInstance")
    ]
    assert tried == [True, True, False]


# -- cleaning up ------------------------------------------------------------------------------


class Remembering(Side):
    """A cluster with instances and with jobs in its queue."""

    def __init__(self, instance: dict[str, Any] | None, *queue: dict[str, Any]) -> None:
        super().__init__()
        self.instance, self.queue = instance, list(queue)

    def GetInstance(self, name: str) -> dict[str, Any]:  # noqa: N802
        if self.instance is None or not self.instance["name"].startswith(name):
            raise rapi.GanetiApiError("404 Not Found", code=404)
        return self.instance

    def GetJobs(self, bulk: bool = False) -> list[Any]:  # noqa: N802
        assert bulk
        return self.queue


def instance(**changes: Any) -> dict[str, Any]:
    found = {"name": "web.example.com", "admin_state": "down", "oper_state": False, "ctime": 150.5}
    return {**found, **changes}


def importing(status: str = "error", number: int = 7, **changes: Any) -> dict[str, Any]:
    op = {
        "OP_ID": "OP_INSTANCE_CREATE",
        "mode": "remote-import",
        "instance_name": "web.example.com",
        "source_instance_name": "web.example.com",
        **changes,
    }
    return {
        "id": number,
        "status": status,
        "ops": [op],
        "start_ts": [100, 0],
        "end_ts": None if status == "running" else [200, 0],
    }


def exporting(status: str = "error") -> dict[str, Any]:
    op = {"OP_ID": "OP_BACKUP_EXPORT", "mode": "remote", "instance_name": "web.example.com"}
    return {"id": 3, "status": status, "ops": [{"OP_ID": "OP_TEST_DELAY"}, op]}


def clean_up(source: Side, destination: Side, **options: Any) -> str:
    mover = Mover(source, destination, MoveOptions(**options), print)  # type: ignore[arg-type]
    return mover.clean_up("web")


def test_an_incomplete_instance_is_removed() -> None:
    source = Remembering(instance(), exporting())
    destination = Remembering(instance(), importing("success", 4), importing("error", 7))
    text = clean_up(source, destination)
    assert destination.of("DeleteInstance") == [(("web.example.com",), {})]
    assert text == (
        "the incomplete instance web.example.com was removed from the destination; instance"
        " web.example.com of the source is unchanged, and marked down. If it shall run, use"
        " 'gnt-instance startup web.example.com' there"
    )
    assert source.calls == []


def test_an_incomplete_instance_with_another_name() -> None:
    new = {"instance_name": "www.example.com"}
    destination = Remembering(instance(name="www.example.com"), importing("canceled", **new))
    source = Remembering(instance(admin_state="up"))
    text = clean_up(source, destination, name="www.example.com")
    assert text.endswith("instance web.example.com of the source is unchanged, and marked up")
    assert destination.of("DeleteInstance") == [(("www.example.com",), {})]


def test_nothing_remains_there() -> None:
    text = clean_up(Remembering(instance()), Remembering(None, importing()))
    assert text.startswith("the destination has no instance web.example.com; instance web")


def test_a_move_which_was_complete() -> None:
    # Without the old instance its full name is not known.
    mover = Mover(
        Remembering(None),  # type: ignore[arg-type]
        Remembering(instance(), importing("success")),  # type: ignore[arg-type]
        MoveOptions(),
        print,
    )
    assert mover.clean_up("web.example.com").endswith("is complete on the destination")


@pytest.mark.parametrize(
    ("source", "destination", "text"),
    [
        (
            Remembering(instance(), exporting("running")),
            Remembering(instance(), importing()),
            "job 3",
        ),
        (Remembering(instance()), Remembering(None, importing("running")), "job 7 of the dest"),
        (
            Remembering(instance()),
            Remembering(instance(), importing("success")),
            "both|is complete",
        ),
        (Remembering(instance()), Remembering(instance()), "no job in its queue which has"),
        (
            Remembering(instance()),
            Remembering(instance(), importing(source_instance_name="other")),
            "no job in its queue which has",
        ),
        (
            Remembering(instance()),
            Remembering(instance(ctime=50.0), importing()),
            "has not made it",
        ),
        (
            Remembering(instance()),
            Remembering(instance(ctime=250.0), importing()),
            "has not made it",
        ),
        (Remembering(instance()), Remembering(instance(oper_state=True), importing()), "it runs"),
        (Remembering(None), Remembering(None), "neither the source nor the destination"),
    ],
)
def test_what_the_user_has_to_decide(source: Side, destination: Side, text: str) -> None:
    with pytest.raises(MoveError, match=text):
        clean_up(source, destination)
    assert source.calls == destination.calls == []


def test_the_only_instance_is_never_removed() -> None:
    destination = Remembering(instance(), importing())
    mover = Mover(
        Remembering(None),  # type: ignore[arg-type]
        destination,  # type: ignore[arg-type]
        MoveOptions(),
        print,
    )
    with pytest.raises(MoveError, match="the source has no instance any more"):
        mover.clean_up("web.example.com")
    assert destination.calls == []


def test_an_instance_without_disks() -> None:
    source, destination = clusters()
    source.outcomes["GetInstanceInfo"] = {"web.example.com": {**INFO, "disks": []}}
    with pytest.raises(MoveError, match="no disks"):
        move(source, destination)


# -- options -------------------------------------------------------------------------------------


def test_options(tmp_path: Any) -> None:
    password = tmp_path / "password"
    password.write_text("secret\nsecond line\n")
    options = move_instance.parse_options(
        [
            "--src-username",
            "jack",
            "--src-password-file",
            str(password),
            "--src-rapi-port",
            "5081",
            "--dest-ca-file",
            "ca.pem",
            "-B",
            "memory=1g",
            "-H",
            "kvm:acpi=no",
            "-O",
            "size=3",
            "--net",
            "0:mac=auto,network=lan",
            "--keep-source-instance",
            "-o",
            "debian",
            "--accept-from-description=kvm_extra,os/size",
            "-p",
            "3",
            "-I",
            "hail",
            "--opportunistic-tries",
            "2",
            "one.example.com",
            "two.example.com",
            "web1",
            "web2",
        ]
    )
    assert dataclasses.asdict(move_instance.move_options(options)) == {
        **dataclasses.asdict(MoveOptions()),
        "iallocator": "hail",
        "hypervisor": "kvm",
        "hvparams": {"acpi": False},
        "beparams": {"memory": 1024},
        "osparams": {"size": "3"},
        "nics": {0: {"mac": "auto", "network": "lan"}},
        "keep": True,
        "os_type": "debian",
        "accepted": ["kvm_extra", "os/size"],
        "tries": 2,
        "delay_s": 30,
    }
    source, destination = move_instance.logins_of(options)
    assert (source.host, source.port, source.username, source.password, source.ca_file) == (
        "one.example.com",
        5081,
        "jack",
        "secret",
        None,
    )
    # Unless said otherwise, the destination is like the source.
    assert (
        destination.host,
        destination.port,
        destination.username,
        destination.password,
        destination.ca_file,
    ) == ("two.example.com", 5081, "jack", "secret", "ca.pem")


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["-p", "0"],
        ["--dest-primary-node", "a", "-I", "hail"],
        ["--opportunistic-tries", "2"],
        ["--dest-instance-name", "x", "another"],
        ["--net", "no_0"],
        ["-B", "=1"],
        ["--dry-run", "--cleanup"],
    ],
)
def test_wrong_options(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        move_instance.parse_options(["one", "two", *(["web1", *words] if words else [])])
    assert ended.value.code == 2
    assert "usage:" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "fragment"),
    [
        (["-B", "colour=red"], "unknown parameter 'colour'"),
        (["--net", "first:mac=auto"], "--net first"),
        (["--src-password-file", "/nosuch"], "No such file"),
    ],
)
def test_slips(words: list[str], fragment: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert move_instance.main([*words, "one", "two", "web1"]) == 1
    assert fragment in capsys.readouterr().err


def test_a_cluster_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    # Nobody listens on port 9 of this address.
    assert move_instance.main(["--src-rapi-port", "9", "127.0.0.1", "127.0.0.1", "web1"]) == 1
    assert "Instance web1 was not moved: " in capsys.readouterr().err
