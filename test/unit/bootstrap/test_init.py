"""The first configuration, what is refused before anything is written, and the undoing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from ganeti import bootstrap, errors
from ganeti.bootstrap import init, local, node
from ganeti.config import ssconf, verify
from ganeti.constants.rpc import PROTOCOL_VERSION
from ganeti.objects import ConfigData, codec
from ganeti.platform import hosts, machine, paths
from ganeti.platform.base import Machine
from ganeti.rpc.results import Result
from ganeti.utils import x509
from ganeti.wire import json

GOOD: dict[str, Any] = {
    "cluster_name": "cluster.example.com",
    "enabled_hypervisors": ["fake"],
    "enabled_disk_templates": ["diskless", "file"],
    "nicparams": {"mode": "user", "link": ""},
    "modify_ssh_setup": False,
}


@pytest.fixture
def vc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "hosts").write_text(
        "127.9.8.1 node1.example.com node1\n127.9.8.2 node2.example.com\n"
        "127.9.8.250 cluster.example.com\n127.9.8.1 alias.example.com\n"
    )
    for name in ("node1", "node2"):
        (tmp_path / f"{name}.example.com/srv/ganeti/file-storage").mkdir(parents=True)
    monkeypatch.setenv("GANETI_VCLUSTER", str(tmp_path))
    monkeypatch.setenv("GANETI_ROOTDIR", str(tmp_path / "node1.example.com"))
    monkeypatch.setenv("GANETI_HOSTNAME", "node1.example.com")
    return tmp_path


class Daemons:
    """Stands in for daemon-util; can fail on request."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, ...]] = []
        self.fails = ""

    def __call__(self, *words: str, env: dict[str, str] | None = None) -> None:
        self.calls.append(words)
        if " ".join(words) == self.fails:
            raise errors.OpExecError(f"cannot {self.fails}: port 1811 is taken")


@pytest.fixture
def daemons(monkeypatch: pytest.MonkeyPatch) -> Daemons:
    fake = Daemons()
    monkeypatch.setattr(local, "daemon_util", fake)
    return fake


def _files(root: Path) -> set[str]:
    return {
        str(path.relative_to(root))
        for path in root.rglob("*")
        if path.is_file() or path.is_symlink()
    }


def test_init(vc: Path, daemons: Daemons) -> None:
    bootstrap.init_cluster(bootstrap.InitParams(**GOOD))
    here = paths.current()
    data = codec.from_dict(ConfigData, json.loads(Path(here.cluster_conf_file).read_text()))
    assert verify.check(data) == []
    assert data.cluster.master_ip == "127.9.8.250"
    (first,) = data.nodes.values()
    assert (first.name, first.primary_ip, first.uuid) == (
        "node1.example.com", "127.9.8.1", data.cluster.master_node,
    )  # fmt: skip
    assert data.cluster.candidate_certs == {
        first.uuid: x509.digest_file(here.noded_client_cert_file)
    }
    client = Path(here.noded_client_cert_file).read_text()
    x509.verify_signed(client, Path(here.noded_cert_file).read_text())
    store = ssconf.SimpleStore()
    assert store.master_candidates() == ["node1.example.com"]
    assert store.candidate_certs() == data.cluster.candidate_certs
    assert Path(here.queue_serial_file).read_text() == "0\n"
    for secret in local.credential_files(here):
        assert os.stat(secret).st_mode & 0o007 == 0, secret
    assert os.stat(here.cluster_conf_file).st_mode & 0o777 == 0o640
    assert daemons.calls == [
        ("start", "ganeti-noded"),
        ("start", "ganeti-masterd"),
        ("start", "ganeti-confd"),
        ("start", "ganeti-rapi"),
    ]
    with pytest.raises(errors.OpPrereqError, match="already belongs to a cluster"):
        bootstrap.init_cluster(bootstrap.InitParams(**GOOD))


@pytest.mark.parametrize(("wanted", "default"), [(None, "hail"), ("", ""), ("other", "other")])
@pytest.mark.usefixtures("daemons")
def test_the_allocator_of_htools_is_the_default(
    wanted: str | None,
    default: str,
    vc: Path,
) -> None:
    directory = Path(paths.current().iallocator_search_path[0])
    directory.mkdir(parents=True)
    for name in ("hail", "other"):
        (directory / name).write_text("#!/bin/sh\n")
        (directory / name).chmod(0o755)
    bootstrap.init_cluster(bootstrap.InitParams(**GOOD, default_iallocator=wanted))
    text = Path(paths.current().cluster_conf_file).read_text()
    assert json.loads(text)["cluster"]["default_iallocator"] == default


@pytest.mark.parametrize("which", ["start ganeti-noded", "start ganeti-masterd"])
def test_failed_start_is_undone(vc: Path, daemons: Daemons, which: str) -> None:
    before = _files(vc)
    daemons.fails = which
    with pytest.raises(errors.OpExecError, match="port 1811 is taken"):
        bootstrap.init_cluster(bootstrap.InitParams(**GOOD))
    assert _files(vc) == before
    assert ("stop", "ganeti-noded") in daemons.calls
    daemons.fails = ""
    bootstrap.init_cluster(bootstrap.InitParams(**GOOD))


@pytest.mark.usefixtures("vc")
@pytest.mark.parametrize(
    ("changes", "fragment"),
    [
        ({"cluster_name": "nowhere.invalid"}, "name of the cluster does not resolve"),
        ({"cluster_name": "alias.example.com"}, "name and an address of its own"),
        ({"enabled_hypervisors": []}, "at least one hypervisor"),
        ({"enabled_hypervisors": ["vmware"]}, "no hypervisor 'vmware'"),
        ({"enabled_hypervisors": ["fake", "fake"]}, "given twice"),
        ({"enabled_disk_templates": ["floppy"]}, "no disk template 'floppy'"),
        ({"vg_name": "xenvg"}, "no disk template that uses LVM"),
        ({"master_netmask": 33}, "1 to 32 bits, not 33"),
        ({"mac_prefix": "aa:zz:00"}, "MAC address"),
        ({"candidate_pool_size": 0}, "at least one master candidate"),
        ({"ssh_key_type": "rot13"}, "SSH key type"),
        ({"nicparams": {"mode": "tin can"}}, "no NIC mode"),
        ({"nicparams": {"mode": "bridged", "link": ""}}, "needs a link"),
        ({"nicparams": {"color": "red"}}, "color"),
        ({"beparams": {"minmem": 512, "maxmem": 128}}, "minimum memory"),
        ({"hvparams": {"vmware": {}}}, "no hypervisor 'vmware'"),
        ({"hvparams": {"fake": {"migration_mode": "teleport"}}}, "migration_mode"),
        ({"diskparams": {"floppy": {}}}, "no disk template 'floppy'"),
        ({"ipolicy": {"vcpu-ratio": "much"}}, "vcpu-ratio"),
        ({"ipolicy": {"disk-templates": ["plain"]}}, "none of the enabled disk templates"),
        ({"file_storage_dir": "srv"}, "is relative"),
        ({"file_storage_dir": "/srv/missing"}, "does not exist"),
        ({"default_iallocator": "oracle"}, "allocator oracle is in none of .*/iallocators"),
        ({"default_iallocator": "../oracle"}, "allocator ../oracle is in none"),
        ({"primary_ip_version": 5}, "no IP version 5"),
        ({"primary_ip_version": 6}, "IPv6"),
        ({"secondary_ip": "x"}, "not an IPv4 address"),
        ({"secondary_ip": "127.9.8.2"}, "not an address of this machine"),
    ],
)
def test_refused(changes: dict[str, Any], fragment: str, vc: Path, daemons: Daemons) -> None:
    before = _files(vc)
    with pytest.raises(errors.OpPrereqError, match=fragment):
        bootstrap.init_cluster(bootstrap.InitParams(**{**GOOD, **changes}))
    assert _files(vc) == before
    assert daemons.calls == []


def test_a_real_machine_needs_what_is_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(Machine, "hostname", lambda self: "node1.example.com")
    monkeypatch.setattr(Machine, "lookup", lambda self, name: hosts.Hostname(name, "127.0.0.1"))
    params = bootstrap.InitParams(**GOOD)
    with pytest.raises(errors.OpPrereqError, match="Correct /etc/hosts"):
        init.check_names(params)


@pytest.mark.usefixtures("vc")
def test_ssh_needs_a_program_and_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    params = bootstrap.InitParams(**{**GOOD, "modify_ssh_setup": True})
    host = hosts.Hostname("a", "192.0.2.1")
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(errors.OpPrereqError, match="no program ssh-keygen.*--no-ssh-init"):
        init.build_config(params, host, host)
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    with pytest.raises(errors.OpPrereqError, match="no SSH host key.*--no-ssh-init"):
        init.build_config(params, host, host)
    directory = Path(paths.current().ssh_host_key_dir)
    directory.mkdir(parents=True)
    (directory / "ssh_host_rsa_key.pub").touch()
    found = init.build_config(params, host, host).cluster
    assert (found.modify_ssh_setup, found.ssh_key_type, found.ssh_key_bits) == (True, "rsa", 2048)
    with pytest.raises(errors.OpPrereqError, match="256 or 384 or 521 bits"):
        init.build_config(
            bootstrap.InitParams(**{**GOOD, "ssh_key_type": "ecdsa", "ssh_key_bits": 2048}),
            host,
            host,
        )


@pytest.mark.parametrize(
    ("answer", "refusal"),
    [
        (Result("a", PROTOCOL_VERSION), ""),
        (Result("a", 2160000), "speaks version 2160000 of the node protocol"),
        (
            Result("a", failure=errors.NodeUnreachable("a", "version", "no route")),
            "a is unreachable.*: no route. Node a may not be prepared over SSH",
        ),
        (
            Result("a", failure=errors.NodeRefused("a", "version", "unknown certificate")),
            "unknown certificate",
        ),
    ],
)
def test_a_real_machine_is_prepared_by_hand(
    monkeypatch: pytest.MonkeyPatch, daemons: Daemons, answer: Result, refusal: str
) -> None:
    host = hosts.Hostname("a", "192.0.2.1")
    monkeypatch.setattr(node, "ask_version", lambda asked: answer)
    if not refusal:
        bootstrap.setup_node(host)
    else:
        with pytest.raises(errors.OpPrereqError, match=refusal):
            bootstrap.setup_node(host)
    assert daemons.calls == []


def test_an_error_while_undoing_does_not_hide_the_first(
    vc: Path, daemons: Daemons, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cannot(here: paths.Paths) -> None:
        raise OSError("read-only file system")

    daemons.fails = "start ganeti-masterd"
    monkeypatch.setattr(local, "remove_state", cannot)
    with pytest.raises(errors.OpExecError) as caught:
        bootstrap.init_cluster(bootstrap.InitParams(**GOOD))
    text = str(caught.value)
    assert "port 1811 is taken" in text
    assert "left are: files in " in text
    assert "read-only file system" in text
    assert ("stop", "ganeti-noded") in daemons.calls


def test_a_contradiction_is_found_before_anything_is_written(
    vc: Path, daemons: Daemons, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verify, "check", lambda data: ["node node1 has no group"])
    before = _files(vc)
    with pytest.raises(errors.OpPrereqError, match="node1 has no group"):
        bootstrap.init_cluster(bootstrap.InitParams(**GOOD))
    assert _files(vc) == before
    assert daemons.calls == []


def test_setup_of_a_node(vc: Path, daemons: Daemons) -> None:
    bootstrap.init_cluster(bootstrap.InitParams(**GOOD))
    host = machine.current().lookup("node2.example.com")
    there = paths.Paths(str(vc / "node2.example.com"))
    before = _files(vc)
    daemons.fails = "start ganeti-noded"
    with pytest.raises(errors.OpExecError):
        bootstrap.setup_node(host)
    assert _files(vc) == before
    daemons.fails = ""
    with pytest.raises(RuntimeError), bootstrap.node_setup(host):
        raise RuntimeError("the job failed")
    assert _files(vc) == before
    assert daemons.calls[-1] == ("stop", "ganeti-noded")
    with pytest.raises(RuntimeError), bootstrap.node_setup(host) as keep:
        keep()
        raise RuntimeError("no longer waiting; the job goes on")
    mine, theirs = paths.current(), there
    assert Path(mine.noded_cert_file).read_text() == Path(theirs.noded_cert_file).read_text()
    assert x509.digest_file(mine.noded_client_cert_file) != x509.digest_file(
        theirs.noded_client_cert_file
    )
    assert ssconf.SimpleStore(theirs).node_list() == ["node1.example.com"]
    bootstrap.setup_node(host)  # once more does no harm
    Path(theirs.hmac_key).chmod(0o600)
    Path(theirs.hmac_key).write_text("other\n")
    with pytest.raises(errors.OpPrereqError, match="another cluster.*--force-join"):
        bootstrap.setup_node(host)
    bootstrap.setup_node(host, force_join=True)
    assert Path(theirs.hmac_key).read_text() == Path(mine.hmac_key).read_text()
    with pytest.raises(errors.OpPrereqError, match="no node node9"):
        bootstrap.setup_node(hosts.Hostname("node9.example.com", "127.9.8.9"))


def test_destroy(vc: Path, daemons: Daemons) -> None:
    before = _files(vc)
    bootstrap.init_cluster(bootstrap.InitParams(**GOOD))
    bootstrap.finalize_destroy()
    assert _files(vc) == before
    assert daemons.calls[-3:] == [
        ("stop-master",),
        ("stop", "ganeti-confd"),
        ("stop", "ganeti-noded"),
    ]
    bootstrap.finalize_destroy()
