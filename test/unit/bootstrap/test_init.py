"""The first configuration, what is refused before anything is written, and the undoing."""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path
from typing import Any

import pytest

from ganeti import bootstrap, errors, hypervisor
from ganeti.backend.node import openvswitch
from ganeti.bootstrap import first_config, init, node, node_state, requirements
from ganeti.config import ssconf, verify
from ganeti.constants.rpc import PROTOCOL_VERSION
from ganeti.http import client
from ganeti.objects import ConfigData, codec, ipolicy
from ganeti.platform import hosts, machine, paths
from ganeti.platform.base import Machine
from ganeti.rpc.results import Result
from ganeti.utils import process, retry, x509
from ganeti.wire import json

GOOD: dict[str, Any] = {
    "cluster_name": "cluster.example.com",
    "enabled_hypervisors": ["fake"],
    "enabled_disk_templates": ["diskless", "file"],
    "nicparams": {"mode": "user", "link": ""},
    "modify_ssh_setup": False,
}

NO_QEMU = {"kvm": {"kvm_path": "/nowhere/kvm"}}


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
    monkeypatch.setattr(node_state, "daemon_util", fake)
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
    for secret in node_state.credential_files(here):
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


def test_the_ssconf_files_have_the_key_of_the_node(
    vc: Path, daemons: Daemons, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is known only when the node daemon runs, and verify compares the files at once."""
    monkeypatch.setattr(init, "_shown_key", lambda me: ("ab" * 32,))
    bootstrap.init_cluster(bootstrap.InitParams(**GOOD))
    here = paths.current()
    data = codec.from_dict(ConfigData, json.loads(Path(here.cluster_conf_file).read_text()))
    (first,) = data.nodes.values()
    assert first.key_pins == ("ab" * 32,)
    for name, value in ssconf.values(data).items():
        assert Path(here.ssconf_file(name)).read_text() == value, name


def test_a_guest_without_a_network_fits_into_the_policy_of_a_new_cluster(
    vc: Path, daemons: Daemons
) -> None:
    bootstrap.init_cluster(bootstrap.InitParams(**GOOD))
    data = json.loads(Path(paths.current().cluster_conf_file).read_text())
    policy = data["cluster"]["ipolicy"]
    assert ipolicy.check(policy, nic_count=0) == []
    # The published defaults, which older configurations have, stay.
    assert ipolicy.check(ipolicy.defaults(), nic_count=0) != []


class Address:
    """The address of a cluster on a real machine, which answers from some question on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, after: float) -> None:
        self.asked: list[tuple[str, int]] = []
        self.now = 0.0
        self._after = after
        kind = type(machine.current())
        monkeypatch.setattr(kind, "has_own_system", True)
        monkeypatch.setattr(kind, "answers", lambda _, ip, port, timeout_s: self._ask(ip, port))
        until = retry.until
        monkeypatch.setattr(
            retry,
            "until",
            lambda fn, **options: until(fn, **options, clock=lambda: self.now, sleep=self._sleep),
        )

    def _sleep(self, seconds: float) -> None:
        self.now += seconds

    def _ask(self, ip: str, port: int) -> bool:
        self.asked.append((ip, port))
        return self.now >= self._after


def test_init_waits_for_the_address_of_the_cluster(
    vc: Path, daemons: Daemons, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What uses the address next, such as verify, finds it."""
    waited: list[tuple[str, int]] = []

    def wait(ip: str) -> str:
        waited.append((ip, len(daemons.calls)))
        return "it does not answer"

    monkeypatch.setattr(node_state, "await_master_address", wait)
    made = bootstrap.init_cluster(bootstrap.InitParams(**GOOD))
    assert waited == [("127.9.8.250", 4)]
    assert list(made.warnings) == ["it does not answer"]


def test_the_address_of_the_master_is_waited_for(vc: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    address = Address(monkeypatch, after=3.0)
    assert node_state.await_master_address("192.0.2.10") is None
    assert address.now == pytest.approx(3.0, abs=0.3)
    assert set(address.asked) == {("192.0.2.10", machine.current().noded_port())}


def test_an_address_which_never_answers_is_a_warning(
    vc: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Address(monkeypatch, after=1e9)
    warning = node_state.await_master_address("192.0.2.10")
    assert warning is not None
    assert "192.0.2.10 of the cluster does not answer after 30 seconds" in warning
    assert "master-daemon.log" in warning


def test_a_virtual_cluster_has_no_address_to_wait_for(vc: Path) -> None:
    assert node_state.await_master_address("127.9.8.250") is None


@pytest.mark.parametrize(
    ("installed", "wanted", "default"),
    [
        ("other", None, "hail"),
        ("", "hail", "hail"),
        ("other", "", ""),
        ("hail other", "other", "other"),
    ],
)
@pytest.mark.usefixtures("daemons", "vc")
def test_the_default_allocator_is_the_one_of_the_master_daemon(
    installed: str, wanted: str | None, default: str
) -> None:
    directory = Path(paths.current().iallocator_search_path[0])
    directory.mkdir(parents=True)
    for name in installed.split():
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


@pytest.mark.parametrize("fails", [False, True])
def test_the_switch_of_the_first_node(
    fails: bool, vc: Path, daemons: Daemons, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []

    def configure(name: str, link: str | None) -> None:
        made.append((name, link))
        if fails:
            raise errors.ConfigurationError("it cannot be made")

    monkeypatch.setattr(openvswitch, "configure", configure)
    before = _files(vc)
    params = bootstrap.InitParams(**GOOD, ndparams={"ovs": "yes", "ovs_link": "eth1"})
    if not fails:
        bootstrap.init_cluster(params)
    else:
        with pytest.raises(errors.OpPrereqError, match="it cannot be made"):
            bootstrap.init_cluster(params)
        assert _files(vc) == before and daemons.calls == []
    assert made == [("switch1", "eth1")]


@pytest.mark.usefixtures("vc")
@pytest.mark.parametrize(
    ("changes", "fragment"),
    [
        ({"cluster_name": "nowhere.invalid"}, "name of the cluster does not resolve"),
        ({"cluster_name": "alias.example.com"}, "name and an address of its own"),
        ({"enabled_hypervisors": []}, "at least one hypervisor"),
        ({"enabled_hypervisors": ["vmware"]}, "no hypervisor 'vmware'"),
        ({"enabled_disk_templates": ["floppy"]}, "no disk template 'floppy'"),
        ({"vg_name": "xenvg"}, "no disk template that uses LVM"),
        ({"master_netmask": 33}, "1 to 32 bits, not 33"),
        ({"mac_prefix": "aa:zz:00"}, "MAC address"),
        ({"hv_state": {"vmware": {"mem_total": 1}}}, "no hypervisor 'vmware'"),
        ({"disk_state": {"file": {"x": {"disk_total": 1}}}}, "'file' has no state"),
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


def _lacking(found: requirements.Findings) -> str:
    return "\n".join(text for text, _ in found.missing)


@pytest.fixture
def bare(vc: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine of its own on which nothing is installed, and whose names do not resolve."""
    monkeypatch.setattr("shutil.which", lambda name, path=None: None)
    monkeypatch.setattr("socket.if_nameindex", lambda: [(1, "lo"), (2, "ens3")])
    monkeypatch.setattr(type(machine.current()), "has_own_system", True)
    (vc / "hosts").write_text("")

    def nowhere(name: str, *_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    # The hosts file and the name server of the computer may know these names.
    monkeypatch.setattr("socket.getaddrinfo", nowhere)
    return vc


def test_everything_that_is_missing_is_listed_at_once(bare: Path, daemons: Daemons) -> None:
    before = _files(bare)
    params = bootstrap.InitParams(
        cluster_name="cluster.invalid",
        enabled_hypervisors=["kvm"],
        enabled_disk_templates=["drbd", "plain"],
        hvparams=NO_QEMU,
    )
    with pytest.raises(errors.OpPrereqError) as caught:
        bootstrap.init_cluster(params)
    text = str(caught.value)
    for number, wanted in enumerate(
        (
            "the name of this machine does not resolve: .* Put a line '<address> node1.example.com'"
            " into /etc/hosts",
            "the name of the cluster does not resolve: .* '<address> cluster.invalid'",
            "no program ssh-keygen.* openssh-client, or use --no-ssh-init",
            "no SSH host key in .* openssh-server, or use --no-ssh-init",
            "no program ip.* iproute2",
            "no network interface eth0.* --master-netdev. This machine has ens3, lo",
            "no program vgs.* lvm2 .*'vgcreate xenvg DEVICE'.*--enabled-disk-templates=file,",
        ),
        1,
    ):
        assert re.search(f"^  {number}. .*{wanted}", text, re.MULTILINE), (wanted, text)
    assert re.search("^Instances will need, besides:$", text, re.MULTILINE)
    assert re.search("^  - .*drbdsetup.* drbd-utils", text, re.MULTILINE)
    assert re.search(
        "^  - for hypervisor kvm, QEMU at /nowhere/kvm .*qemu-system-x86", text, re.MULTILINE
    )
    assert _files(bare) == before
    assert daemons.calls == []


@pytest.mark.usefixtures("bare")
def test_what_instances_need_does_not_prevent_a_cluster() -> None:
    host = hosts.Hostname("a", "192.0.2.1")
    params = bootstrap.InitParams(
        **{
            **GOOD,
            "enabled_hypervisors": ["kvm"],
            "hvparams": NO_QEMU,
            "use_external_mip_script": True,
        }
    )
    cluster = first_config.build_config(params, host, host).cluster
    found = requirements.Findings()
    requirements.check_cluster(cluster, paths.current(), found)
    assert found.missing == []
    assert ["hypervisor kvm" in note for note in found.notes] == [True]
    found.refuse()


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize(
    ("nicparams", "lacking"),
    [
        ({"mode": "bridged", "link": "lo"}, ["lo"]),
        ({"mode": "bridged", "link": "br-nowhere"}, ["br-nowhere"]),
        ({"mode": "routed", "link": ""}, []),
    ],
)
def test_a_bridge_which_does_not_exist_is_told(
    nicparams: dict[str, str], lacking: list[str]
) -> None:
    host = hosts.Hostname("a", "192.0.2.1")
    params = bootstrap.InitParams(
        **{**GOOD, "nicparams": nicparams, "use_external_mip_script": True}
    )
    found = requirements.Findings()
    requirements.check_cluster(
        first_config.build_config(params, host, host).cluster, paths.current(), found
    )
    told = [note for note in found.notes if "--nic-parameters link=NAME" in note]
    assert [note.startswith(f"the bridge {lacking[0]}, for their NICs") for note in told] == [
        True for _ in lacking
    ]


@pytest.mark.usefixtures("vc")
@pytest.mark.parametrize(
    ("template", "option"),
    [("file", " --file-storage-dir"), ("sharedfile", " --shared-file-storage-dir")],
)
def test_a_template_without_a_directory_is_refused(template: str, option: str) -> None:
    params = bootstrap.InitParams(
        **{
            **GOOD,
            "enabled_disk_templates": [template],
            "file_storage_dir": "",
            "shared_file_storage_dir": "",
        }
    )
    with pytest.raises(errors.OpPrereqError, match=f"{template} has no directory.*{option}"):
        bootstrap.init_cluster(params)


@pytest.mark.usefixtures("vc")
def test_a_hypervisor_without_a_driver_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    # Taken out and put back, it would be the last one, and the order counts.
    left = {name: where for name, where in hypervisor._DRIVERS.items() if name != "xen-pvm"}
    monkeypatch.setattr(hypervisor, "_DRIVERS", left)
    params = bootstrap.InitParams(**{**GOOD, "enabled_hypervisors": ["xen-pvm"]})
    with pytest.raises(errors.OpPrereqError, match="xen-pvm is not supported.*hypervisors=kvm"):
        bootstrap.init_cluster(params)


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize(
    ("answer", "wanted"),
    [("30720.00", ""), ("1024.00", "has 1024 MiB, at least 20480.*'vgextend"), ("", "vg-name")],
)
def test_the_volume_group(monkeypatch: pytest.MonkeyPatch, answer: str, wanted: str) -> None:
    def run(argv: list[str], **_: Any) -> process.Completed:
        if not answer:
            raise errors.CommandError("vgs", "failed")
        return process.Completed(tuple(argv), 0, answer, "", None)

    monkeypatch.setattr("shutil.which", lambda name, path=None: f"/sbin/{name}")
    monkeypatch.setattr(process, "run", run)
    host = hosts.Hostname("a", "192.0.2.1")
    options = {"enabled_disk_templates": ["plain"], "use_external_mip_script": True}
    cluster = first_config.build_config(
        bootstrap.InitParams(**{**GOOD, **options}), host, host
    ).cluster
    found = requirements.Findings()
    requirements.check_cluster(cluster, paths.current(), found)
    assert bool(found.missing) == bool(wanted)
    assert re.search(wanted, _lacking(found))


def test_a_real_machine_needs_an_address_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Machine, "hostname", lambda self: "node1.example.com")
    monkeypatch.setattr(Machine, "lookup", lambda self, name: hosts.Hostname(name, "127.0.0.1"))
    found = requirements.Findings()
    requirements.check_names(bootstrap.InitParams(**GOOD), found)
    assert "which other machines cannot reach. Put a line" in _lacking(found)


def test_ssh_needs_a_program_and_a_server(vc: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    params = bootstrap.InitParams(**{**GOOD, "modify_ssh_setup": True})
    host = hosts.Hostname("a", "192.0.2.1")
    cluster = first_config.build_config(params, host, host).cluster
    assert (cluster.modify_ssh_setup, cluster.ssh_key_type, cluster.ssh_key_bits) == (
        True, "rsa", 2048,
    )  # fmt: skip
    here = paths.current()
    for installed, keys, wanted in (
        (None, False, "no program ssh-keygen.*--no-ssh-init.*\n.*no SSH host key.*--no-ssh-init"),
        ("/usr/bin/ssh-keygen", False, "^there is no SSH host key"),
        (None, True, "no program ssh-keygen"),
        ("/usr/bin/ssh-keygen", True, "^$"),
    ):
        if keys:
            Path(here.ssh_host_key_dir).mkdir(parents=True, exist_ok=True)
            (Path(here.ssh_host_key_dir) / "ssh_host_rsa_key.pub").touch()
        monkeypatch.setattr("shutil.which", lambda name, path=None, found=installed: found)
        found = requirements.Findings()
        requirements.check_cluster(cluster, here, found)
        assert re.search(wanted, _lacking(found)), (installed, keys)
    with pytest.raises(errors.OpPrereqError, match="256 or 384 or 521 bits"):
        first_config.build_config(
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
    monkeypatch.setattr(node, "ask_version", lambda asked, pins: answer)
    if not refusal:
        bootstrap.setup_node(host)
    else:
        with pytest.raises(errors.OpPrereqError, match=refusal):
            bootstrap.setup_node(host)
    assert daemons.calls == []


def test_what_the_watcher_remembers_is_removed(tmp_path: Path) -> None:
    here = paths.Paths(str(tmp_path))
    kept = Path(here.data_dir) / "watchers-notes"
    for path in (
        str(kept),
        here.watcher_pausefile,
        here.watcher_balance_file,
        here.watcher_state_file("uuid"),
        here.watcher_status_file("uuid"),
    ):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text("")
    node_state.remove_state(here)
    assert [str(path) for path in Path(here.data_dir).iterdir()] == [str(kept)]


class NobodyAnswers:
    """Stands for the client of node calls, on a machine without daemons."""

    def perform(self, requests: Any, on_outcome: Any = None, until: Any = None) -> list[Any]:
        return [client.Failure(client.UNREACHABLE, "refused") for _ in requests]


def test_a_new_machine_without_daemons_is_no_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(node, "open_client", NobodyAnswers)
    answer = node.ask_version(hosts.Hostname("a", "192.0.2.1"))
    assert isinstance(answer.failure, errors.NodeUnreachable)
    assert caplog.messages == []


def test_an_error_while_undoing_does_not_hide_the_first(
    vc: Path, daemons: Daemons, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cannot(here: paths.Paths) -> None:
        raise OSError("read-only file system")

    daemons.fails = "start ganeti-masterd"
    monkeypatch.setattr(node_state, "remove_state", cannot)
    with pytest.raises(errors.OpExecError) as caught:
        bootstrap.init_cluster(bootstrap.InitParams(**GOOD))
    text = str(caught.value)
    assert "port 1811 is taken" in text
    assert "left behind: files in " in text
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
    with pytest.raises(RuntimeError), bootstrap.node_setup(host) as prepared:
        assert prepared.certificate == x509.digest_file(there.noded_client_cert_file)
        prepared.keep()
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


def test_a_node_with_former_secrets_is_known_by_its_own_key(
    vc: Path, daemons: Daemons, monkeypatch: pytest.MonkeyPatch
) -> None:
    bootstrap.init_cluster(bootstrap.InitParams(**GOOD))
    host = machine.current().lookup("node2.example.com")
    mine, theirs = paths.current(), paths.Paths(str(vc / "node2.example.com"))
    bootstrap.setup_node(host)
    pin = x509.key_pin(Path(theirs.noded_client_cert_file).read_text())
    # While the node was off, the master got new secrets.
    new = node_state.new_credentials()
    for path, text in (
        (mine.noded_cert_file, new.server_pem),
        (mine.rapi_cert_file, new.rapi_pem),
        (mine.hmac_key, new.hmac_key),
        (mine.cluster_domain_secret, new.domain_secret),
    ):
        Path(path).chmod(0o600)
        Path(path).write_text(text)
    pins = Path(mine.ssconf_file("node_key_pins"))
    pins.chmod(0o600)
    pins.write_text(f"node1.example.com {pin}\n")
    with pytest.raises(errors.OpPrereqError, match="another cluster"):
        bootstrap.setup_node(host)
    pins.write_text(f"node2.example.com {x509.key_pin(new.server_pem)} {pin}\n")
    former = node_state.read_credentials(theirs), Path(theirs.noded_client_cert_file).read_text()
    daemons.calls.clear()
    daemons.fails = "start ganeti-noded"
    with pytest.raises(errors.OpExecError):
        bootstrap.setup_node(host)
    assert former == (
        node_state.read_credentials(theirs), Path(theirs.noded_client_cert_file).read_text()
    )  # fmt: skip
    daemons.fails = ""
    bootstrap.setup_node(host)
    assert node_state.read_credentials(theirs) == node_state.read_credentials(mine)
    assert ("stop", "ganeti-noded") in daemons.calls
    # A machine on which the master daemon runs is not touched.
    Path(theirs.hmac_key).chmod(0o600)
    Path(theirs.hmac_key).write_text("other\n")
    pin = x509.key_pin(Path(theirs.noded_client_cert_file).read_text())
    pins.write_text(f"node2.example.com {pin}\n")
    monkeypatch.setattr(node_state, "running_daemon", lambda here, name: 1)
    with pytest.raises(errors.OpPrereqError, match="the master daemon runs"):
        bootstrap.setup_node(host)


def test_destroy(vc: Path, daemons: Daemons) -> None:
    before = _files(vc)
    bootstrap.init_cluster(bootstrap.InitParams(**GOOD))
    # What the master daemon has written: earlier configurations have secrets, too.
    history = Path(paths.current().cluster_conf_history_dir)
    history.mkdir()
    (history / "commits-000000000002").write_text("{}\n")
    bootstrap.finalize_destroy()
    assert _files(vc) == before
    assert daemons.calls[-3:] == [
        ("stop-master",),
        ("stop", "ganeti-confd"),
        ("stop", "ganeti-noded"),
    ]
    bootstrap.finalize_destroy()
