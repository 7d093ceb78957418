"""cfgupgrade, cfgshell and sanitize-config on files of the original's versions."""

from __future__ import annotations

import io
import json
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ganeti.cli import terminal
from ganeti.config import upgrade, verify
from ganeti.config.api import load
from ganeti.configfile import files
from ganeti.configfile.content import Change
from ganeti.jobstore.store import QueueStore
from ganeti.platform.base import Machine
from ganeti.tools import cfgshell, cfgupgrade, sanitize_config
from ganeti.utils import filelock

DATA = Path(__file__).parents[2] / "data" / "cluster_config"
VERSIONS = [upgrade.version_text(version) for version in upgrade.VERSIONS]


def _original(version: str) -> bytes:
    return (DATA / f"cluster_config_{version}.json").read_bytes()


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The data directory of a master with a configuration of 2.10."""
    data = tmp_path / "data"
    (data / "queue").mkdir(parents=True)
    (data / "config.data").write_bytes(_original("2.10"))
    (data / "config.data").chmod(0o640)
    (data / "ssconf_master_node").write_text("node1.example.com\n")
    monkeypatch.setattr(Machine, "hostname", lambda self: "node1.example.com")
    monkeypatch.setattr(terminal, "can_ask", lambda: False)
    return data


@pytest.fixture
def run(place: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    def call(*words: str) -> tuple[int, str]:
        code = cfgupgrade.main(
            ["--path", str(place), "--confdir", str(place.parent / "conf"), *words]
        )
        return code, capsys.readouterr().err

    return call


# -- cfgupgrade ---------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version(place: Path, run: Callable[..., tuple[int, str]], version: str) -> None:
    (place / "config.data").write_bytes(_original(version))
    code, err = run("--force")
    assert code == 0
    assert "version 3.1" in err
    data, found = load(str(place / "config.data"))
    assert found == data.version
    assert verify.check(data) == []
    assert stat.S_IMODE((place / "config.data").stat().st_mode) == 0o640
    if version != "3.1":
        assert (place / f"config.data.backup-{version}").read_bytes() == _original(version)
    assert run("--force")[0] == 0


def job_text(*statuses: str) -> str:
    return json.dumps({"id": 1, "ops": [{"input": {}, "status": status} for status in statuses]})


@pytest.mark.parametrize(
    ("content", "refused"),
    [
        (job_text("success", "success"), False),
        (job_text("success", "error"), False),
        (job_text("canceled"), False),
        (job_text("queued"), True),
        (job_text("success", "running"), True),
        (job_text("waiting"), True),
        ("no job", True),
        ("[]", True),
    ],
)
@pytest.mark.parametrize("words", [["--force"], ["--dry-run"], ["--force", "--downgrade"]])
def test_unfinished_jobs(
    place: Path,
    run: Callable[..., tuple[int, str]],
    words: list[str],
    content: str,
    refused: bool,
) -> None:
    """Ganeti design 2.0, *Ganeti updates*: another version would have to run them."""
    if "--downgrade" in words:
        (place / "config.data").write_bytes(_original("3.1"))
    before = (place / "config.data").read_bytes()
    (place / "queue/job-12").write_text(content)
    code, err = run(*words)
    if refused:
        assert code == 1 and "have not ended: 12. Start the master daemon" in err
        assert (place / "config.data").read_bytes() == before
    else:
        assert code == 0, err
        assert ((place / "config.data").read_bytes() == before) == ("--dry-run" in words)


def test_jobs_in_the_journal_of_a_master_that_was_killed(
    place: Path, run: Callable[..., tuple[int, str]]
) -> None:
    store = QueueStore(str(place / "queue"))
    store.open()
    store.commit({"job-3": job_text("running"), "job-4": job_text("success")})
    code, err = run("--force")
    assert code == 1 and "have not ended: 3." in err
    store.commit({"job-3": job_text("error")})
    assert run("--force")[0] == 0
    store.abandon()


def test_a_configuration_of_this_version_is_not_about_jobs(
    place: Path, run: Callable[..., tuple[int, str]]
) -> None:
    assert run("--force")[0] == 0
    (place / "queue/job-12").write_text(job_text("queued"))
    assert run("--force")[0] == 0


def test_a_dry_run_writes_nothing(place: Path, run: Callable[..., tuple[int, str]]) -> None:
    before = sorted(path.name for path in place.parent.rglob("*"))
    code, err = run("--dry-run")
    assert code == 0
    assert "Writing" in err and "nothing was written" in err
    assert sorted(path.name for path in place.parent.rglob("*")) == before
    assert (place / "config.data").read_bytes() == _original("2.10")


def test_without_a_yes_nothing_happens(
    place: Path, run: Callable[..., tuple[int, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run() == (13, "Nothing was changed.\n")
    assert (place / "config.data").read_bytes() == _original("2.10")
    asked: list[str] = []
    monkeypatch.setattr(terminal, "confirm", lambda question: asked.append(question) or True)
    assert run()[0] == 0
    assert "from version 2.10 to 3.1?" in asked[0]


def test_not_while_the_master_runs(place: Path, run: Callable[..., tuple[int, str]]) -> None:
    with filelock.FileLock(str(place / "queue" / "lock")) as lock:
        lock.acquire()
        code, err = run("--force")
    assert (code, "Stop it first" in err) == (1, True)
    assert (place / "config.data").read_bytes() == _original("2.10")


def test_not_on_another_machine(
    place: Path, run: Callable[..., tuple[int, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Machine, "hostname", lambda self: "node2.example.com")
    code, err = run("--force")
    assert (code, "(node2.example.com) is not the master" in err) == (1, True)
    assert run("--force", "--ignore-hostname")[0] == 0


def test_there_and_back(place: Path, run: Callable[..., tuple[int, str]]) -> None:
    assert run("--force")[0] == 0
    first = json.loads((place / "config.data").read_text())
    code, err = run("--force", "--downgrade")
    assert (code, "version 3.0 now" in err) == (0, True)
    assert json.loads((place / "config.data").read_text())["version"] == 3_000_000
    code, err = run("--force", "--downgrade")
    assert (code, "can be converted to 3.1" in err) == (1, True)
    assert run("--force")[0] == 0
    assert json.loads((place / "config.data").read_text()) == first
    assert run("--force", "--downgrade")[0] == 0
    assert (place / "config.data.backup-3.1-2").exists()


def test_other_files_come_along(place: Path, run: Callable[..., tuple[int, str]]) -> None:
    (place / "rapi_users").write_text("jack secret\n")
    assert run("--force")[0] == 0
    assert (place / "rapi" / "users").read_text() == "jack secret\n"
    assert (place / "rapi_users").is_symlink()
    paths = (place.parent / "conf" / "file-storage-paths").read_text()
    assert "/srv/ganeti/shared-file-storage\n" in paths
    assert run("--force")[0] == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2_060_000}, "versions 2.7 to 3.1 can be converted"),
        ({"version": 3_020_000}, "the file has version 3.2"),
        ({"cluster": 5}, "contains no cluster configuration"),
        ({"nodes": {}}, "master_node"),
        ({"instances": {"x": {}}}, "instances/x/admin_state: is missing"),
        ({"instances": 5}, "not a configuration of version 2.10"),
    ],
)
def test_what_cannot_be_converted(
    place: Path, run: Callable[..., tuple[int, str]], change: dict[str, Any], message: str
) -> None:
    config = {**json.loads(_original("2.10")), **change}
    (place / "config.data").write_text(json.dumps(config))
    code, err = run("--force")
    assert code == 1
    assert message in err
    assert json.loads((place / "config.data").read_text()) == config


def test_contradictions_are_told(place: Path, run: Callable[..., tuple[int, str]]) -> None:
    config = json.loads(_original("2.10"))
    config["cluster"]["candidate_pool_size"] = 0
    for number in range(2):
        (place / "config.data").write_text(json.dumps(config))
        code, err = run("--force", *["--no-verify"] * number)
        assert (code, "candidate pool size is 0" in err) == ((1, True), (0, False))[number]


def test_a_downgrade_names_what_is_lost(place: Path, run: Callable[..., tuple[int, str]]) -> None:
    config = upgrade.upgrade(json.loads(_original("3.1")))
    config["cluster"]["rapi_require_authentication"] = True
    (place / "config.data").write_text(json.dumps(config))
    code, err = run("--dry-run", "--downgrade")
    lost = (
        "the original Ganeti 3.0 does not have this, so it is lost: the cluster:"
        " rapi_require_authentication"
    )
    assert (code, err.count(lost)) == (0, 1)
    assert json.loads((place / "config.data").read_text()) == config


def test_a_downgrade_to_version_3_1(place: Path, run: Callable[..., tuple[int, str]]) -> None:
    config = upgrade.upgrade(json.loads(_original("3.1")))
    config["cluster"]["rapi_require_authentication"] = True
    (place / "config.data").write_text(json.dumps(config))
    code, err = run("--force", "--downgrade", "--to=3.1")
    assert code == 0 and "has version 3.1 now" in err
    found = json.loads((place / "config.data").read_text())
    assert found["version"] == 3_010_000
    assert "rapi_require_authentication" not in found["cluster"]
    assert "3.1 already" in run("--force", "--downgrade", "--to=3.1")[1]


# -- cfgshell -----------------------------------------------------------------------------------


@pytest.fixture
def shell(place: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    (place / "config.data").write_bytes(_original("3.1"))

    def call(*commands: str, write: bool = False) -> tuple[int, str, str]:
        words = [word for command in commands for word in ("-c", command)]
        code = cfgshell.main([str(place / "config.data"), *["--write"] * write, *words])
        return code, *capsys.readouterr()

    return call


def test_looking(shell: Callable[..., tuple[int, str, str]]) -> None:
    code, out, err = shell(
        "ls",
        "cd instances/instance1.example.com",
        "ls nics/0",
        "cat os",
        "cd ../..",
        "cat /cluster/tags",
        "pwd",
        "find aa:bb:cc:56",
        "verify",
    )
    assert (code, err) == (0, "")
    assert "instances   (3 keys)/" in out
    assert 'mac        "aa:bb:cc:b2:6e:0b"' in out
    assert '"busybox"\n' in out
    assert '[\n  "mytag"\n]\n/\n' in out
    assert (
        '/instances/8fde9f6d-e1f1-4850-9e9c-154966f622f5/nics/0/mac: "aa:bb:cc:56:83:fb"\n' in out
    )
    assert out.endswith("has no problems.\n")


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("cd nowhere", "there is no nowhere"),
        ("cd version", "version is a value"),
        ("ls cluster/tags/5", "there is no cluster/tags/5"),
        ("cat a b", "exactly one path"),
        ("cat 'a", "No closing quotation"),
        ("dance", "there is no command 'dance'"),
        ("set version 5", "for reading only"),
        ("unset version", "for reading only"),
        ("save", "for reading only"),
    ],
)
def test_what_looking_does_not_do(
    place: Path, shell: Callable[..., tuple[int, str, str]], command: str, message: str
) -> None:
    code, out, err = shell(command, "ls")
    assert (code, out) == (1, "")
    assert message in err
    assert (place / "config.data").read_bytes() == _original("3.1")


def test_changing(place: Path, shell: Callable[..., tuple[int, str, str]]) -> None:
    code, out, err = shell(
        "cd instances/instance1.example.com",
        'set os "linux"',
        "set beparams/vcpus 4",
        'set /cluster/tags ["a", "b"]',
        "unset /cluster/tags/0",
        "save",
        write=True,
    )
    assert (code, err) == (0, "")
    assert "Written." in out
    data, _version = load(str(place / "config.data"))
    instance = data.instances["6c078d22-3eb6-4780-857d-81772e09eef1"]
    assert (instance.os, instance.beparams, data.cluster.tags) == ("linux", {"vcpus": 4}, ("b",))
    assert data.serial_no == 7628
    assert (place / "config.data.backup-7627").read_bytes() == _original("3.1")


@pytest.mark.parametrize(
    ("commands", "message"),
    [
        (["set cluster/tags x", "save"], "invalid JSON"),
        (["set cluster/colour 5", "save"], "cluster/colour: unknown key"),
        (["set cluster/candidate_pool_size 0", "save"], "contradicts itself"),
        (["set nodes/node9 5", "save"], "nodes/node9"),
        (["cd cluster/tags", "unset ."], "contains the current directory"),
        (["cd cluster/tags", "set /cluster 5"], "would remove the current directory"),
        (["unset /"], "top directory cannot be removed"),
        (["set cluster/tags/5 1"], "there is no cluster/tags/5"),
        (["set cluster/tags []"], "not saved"),
    ],
)
def test_changes_which_are_refused(
    place: Path, shell: Callable[..., tuple[int, str, str]], commands: list[str], message: str
) -> None:
    code, _out, err = shell(*commands, write=True)
    assert code == 1
    assert message in err
    assert (place / "config.data").read_bytes() == _original("3.1")


def test_no_changes_while_the_master_runs(
    place: Path, shell: Callable[..., tuple[int, str, str]]
) -> None:
    with filelock.FileLock(str(place / "queue" / "lock")) as lock:
        lock.acquire()
        assert shell("set cluster/tags []", "save", write=True)[0] == 1
        assert shell("verify")[0] == 0


def test_commands_from_standard_input(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("cd cluster\n\ncat cluster_name\n"))
    assert cfgshell.main([str(place / "config.data")]) == 0
    out, err = capsys.readouterr()
    assert out == '"cluster.name.example.com"\n'
    assert "The file has version 2.10" in err
    assert cfgshell.main([str(place / "gone")]) == 1


def test_completion() -> None:
    tree = cfgshell.Tree(json.loads(_original("3.1")))
    shell = cfgshell.Shell("x", tree, writable=False, strict=False)
    assert shell.completedefault("clus", "cd clus", 3, 7) == ["cluster"]
    assert "node1.example.com" in shell.completedefault("node1", "cd nodes/node1", 9, 14)
    assert shell.completedefault("x", "cd nowhere/x", 11, 12) == []


# -- sanitize-config ----------------------------------------------------------------------------


def _secretive() -> dict[str, Any]:
    """A configuration with something to hide in every place."""
    config: dict[str, Any] = json.loads(_original("3.1"))
    cluster = config["cluster"]
    cluster.update(
        rsahostkeypub="SECRET-rsa",
        dsahostkeypub="SECRET-dsa",
        candidate_certs={cluster["master_node"]: "SE:CR:ET"},
        reserved_lvs=["LVsecret"],
        osparams_private_cluster={"busybox": {"password": "SECRET-cluster"}},
        install_image="http://u:SECRET-image@h/",
        hidden_os=["OSsecret"],
    )
    cluster["ndparams"]["oob_program"] = "/opt/SECRETS-oob"
    instance = config["instances"]["6c078d22-3eb6-4780-857d-81772e09eef1"]
    instance["osparams_private"] = {"password": "SECRET-instance"}
    instance["tags"] = ["TAGsecret"]
    instance["nics"][0].update(name="NICsecret", ip="198.51.100.200")
    network = next(iter(config["networks"].values()))
    network.update(gateway="203.0.113.1", network6="2620:0:aaaa::/64", gateway6="2620:0:aaaa::1")
    config["filters"]["11111111-2222-4333-8444-555555555555"] = {
        "watermark": 0,
        "priority": 0,
        "predicates": [],
        "action": "ACCEPT",
        "reason_trail": [["gnt:user", "SECRET-reason", 1]],
        "uuid": "11111111-2222-4333-8444-555555555555",
    }
    return config


def _sanitized(path: Path, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    path.write_text(json.dumps(_secretive()))
    assert sanitize_config.main(["--path", str(path), *words]) == 0
    text = capsys.readouterr().out
    path.write_text(text)
    data, _version = load(str(path))
    assert verify.check(data) == []
    return text


def test_nothing_is_left(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = _sanitized(
        tmp_path / "config", capsys, "--sanitize-lvs", "yes", "--base-domain", "nowhere.test"
    )
    for word in (
        "SECRET",
        "secret",
        "example.com",
        "192.0.2.",
        "198.51.100.",
        "203.0.113.",
        "2620:",
        "xenvg",
        "disk0",
        "busybox",
        "debian-image",
        "mytag",
        "YOURKEY",
        "d3c3fd475fcbaf5fd177fb245ac43b71247ada38",
        "SE:CR",
        "b2:6e:0b",
        "a network",
    ):
        assert word not in text, word
    made = json.loads(text)
    assert made["cluster"]["cluster_name"] == "cluster.nowhere.test"
    # The address is in the block of the nodes' second addresses, at its own place.
    instance = made["instances"]["6c078d22-3eb6-4780-857d-81772e09eef1"]
    node = made["nodes"][instance["primary_node"]]
    assert instance["nics"][0]["ip"].rsplit(".", 1) == [
        node["secondary_ip"].rsplit(".", 1)[0],
        "200",
    ]
    network = next(iter(made["networks"].values()))
    assert network["gateway"].rsplit(".", 1)[0] == network["network"].rsplit(".", 1)[0]


def test_only_secrets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = _sanitized(
        tmp_path / "config",
        capsys,
        *(
            word
            for kind in ("names", "ips", "lvs", "os-names")
            for word in (f"--sanitize-{kind}", "no")
        ),
    )
    for word in ("SECRET-", "d3c3fd475fcbaf5fd177fb245ac43b71247ada38", "SE:CR"):
        assert word not in text
    for word in ("node1.example.com", "192.0.2.82", "xenvg", "busybox", "mytag", "-oob"):
        assert word in text


def test_numbered_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = _sanitized(tmp_path / "config", capsys, "--no-randomization")
    assert first == _sanitized(tmp_path / "config", capsys, "--no-randomization")
    assert {node["name"] for node in json.loads(first)["nodes"].values()} == {
        f"node{number}.example.com" for number in (1, 2, 3)
    }
    assert first != _sanitized(tmp_path / "config", capsys)


def test_names_in_paths() -> None:
    config = upgrade.upgrade(_secretive())
    disk = config["disks"]["79acf611-be58-4334-9fe4-4f2b73ae8abb"]
    disk.update(dev_type="file", logical_id=["loop", "/srv/instance2.example.com/x.file.disk0"])
    made = sanitize_config.Sanitizer(
        names=True, ips=False, lvs=False, os_names=False, randomize=False, domain="d"
    ).sanitize(config)
    name = made["instances"]["8fde9f6d-e1f1-4850-9e9c-154966f622f5"]["name"]
    assert made["disks"][disk["uuid"]]["logical_id"] == ["loop", f"/srv/{name}/x.file.disk0"]
    assert (
        config["disks"][disk["uuid"]]["logical_id"][1] == "/srv/instance2.example.com/x.file.disk0"
    )


def test_large_networks_move_as_a_whole() -> None:
    addresses = sanitize_config._Addresses()
    addresses.note("172.16.0.0/20")
    assert addresses.replace("172.16.0.0/20") == "10.128.0.0/20"
    assert addresses.replace("172.16.15.254") == "10.128.15.254"
    assert addresses.replace("192.0.2.1") == "10.0.0.1"
    assert addresses.replace("192.0.3.1") == "10.0.1.1"
    assert addresses.replace("192.0.2.9") == "10.0.0.9"


def test_what_is_no_configuration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for content in ("{}", "[", '{"cluster": {}, "version": 3010000, "password": "x"}'):
        (tmp_path / "config").write_text(content)
        assert sanitize_config.main(["--path", str(tmp_path / "config")]) == 1
        assert capsys.readouterr().out == ""


# -- a configuration with a journal ----------------------------------------------------------------


@pytest.fixture
def journaled(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The name of the cluster is ``other`` in the journal only, as a killed master leaves it."""
    monkeypatch.setattr(files, "JOURNAL_FROM_BYTES", 1)
    path = place / "config.data"
    path.write_bytes(_original(VERSIONS[-1]))
    raw = json.loads(path.read_bytes())
    name = raw["cluster"]["cluster_name"].encode()
    text = path.read_bytes()
    new = text.replace(b'"%s"' % name, b'"other"')
    wanted = Change(len(text), text[-40:], [new], len(new))
    assert files.change(str(path), wanted)
    assert b'"other"' not in path.read_bytes()
    return path


def test_cfgupgrade_sees_the_journal(journaled: Path, run: Callable[..., tuple[int, str]]) -> None:
    code, err = run("--downgrade", "--to=3.0", "--force", "--no-verify")
    assert code == 0, err
    assert json.loads(journaled.read_bytes())["cluster"]["cluster_name"] == "other"
    assert not Path(files.journal_of(str(journaled))).exists()
    (kept,) = journaled.parent.glob("config.data.backup-*")
    assert json.loads(kept.read_bytes())["cluster"]["cluster_name"] == "other"


def test_cfgshell_sees_the_journal(journaled: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cfgshell.main([str(journaled), "-c", "cat /cluster/cluster_name"]) == 0
    assert "other" in capsys.readouterr().out
    words = [str(journaled), "--write", "-c", 'set /cluster/cluster_name "third"', "-c", "save"]
    cfgshell.main(words)
    assert json.loads(journaled.read_bytes())["cluster"]["cluster_name"] in ("third", "other")


def test_sanitize_config_sees_the_journal_and_changes_nothing(
    journaled: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = journaled.read_bytes()
    assert sanitize_config.main(["--path", str(journaled), "--sanitize-names", "no"]) == 0
    assert json.loads(capsys.readouterr().out)["cluster"]["cluster_name"] == "other"
    assert journaled.read_bytes() == before
    assert Path(files.journal_of(str(journaled))).exists()
