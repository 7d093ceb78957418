"""What a node finds out about itself."""

import os
import socket
import time

import pytest

from ganeti import FULL_VERSION, errors
from ganeti.backend.node import info, verify
from ganeti.configfile import files
from ganeti.constants import node_verify as nv
from ganeti.platform import machine, watcher_files
from ganeti.platform.base import Machine
from ganeti.utils import filelock, x509
from ganeti.wire import calls

from ..configfile.samples import change_to, text_of


def check(name, argument=None, hvparams=None, **more):
    return verify.node_verify({name: argument, **more}, "cluster", hvparams or {})[name]


@pytest.fixture
def listener(monkeypatch):
    with socket.socket() as sock:
        sock.bind(("127.19.21.1", 0))
        sock.listen()
        monkeypatch.setattr(Machine, "noded_port", lambda self: sock.getsockname()[1])
        yield "127.19.21.1"


def test_unknown_check_is_an_error(here):
    with pytest.raises(errors.ParameterError, match="unknown checks of a node: colour"):
        check("colour")


@pytest.mark.parametrize(
    ("name", "argument"),
    [
        (nv.FILELIST, "x"),
        (nv.FILELIST, ["relative"]),
        (nv.FILELIST, [None]),
        (nv.NODENETTEST, [["a"]]),
        (nv.NODENETTEST, {"a": 1}),
        (nv.HYPERVISOR, "fake"),
        (nv.FILE_STORAGE_PATH, None),
        (nv.MASTERIP, ["x"]),
        (nv.HVPARAMS, [["a", "b", None]]),
    ],
)
def test_bad_arguments_name_the_check(here, name, argument):
    with pytest.raises(errors.ParameterError, match=f"argument of check {name}"):
        check(name, argument)


def test_user_of_the_node_daemon(here, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1234)
    assert check(nv.DAEMON_USER) == 1234


def test_the_journal_of_the_configuration(here, monkeypatch):
    path, journal = here.cluster_conf_file, here.cluster_conf_journal
    assert check(nv.CONFIG_JOURNAL) == ["", []]
    monkeypatch.setattr(files, "JOURNAL_FROM_BYTES", 1)
    files.write_config_file(path, text_of(7))
    assert files.change(path, change_to(8))
    assert check(nv.CONFIG_JOURNAL) == ["", []]
    with open(path, "r+b") as stream:
        stream.write(b'{"VALUES"')
    problem, set_aside = check(nv.CONFIG_JOURNAL)
    assert problem.startswith(f"cannot read {journal}: its acknowledged changes") and not set_aside
    os.rename(path, f"{path}.mine")
    assert check(nv.CONFIG_JOURNAL) == [f"{journal} is there, and its file is missing", []]
    files.write_config_file(path, text_of(9))
    assert check(nv.CONFIG_JOURNAL) == ["", [f"{journal}.set-aside-1"]]


def test_the_watcher(here):
    assert check(nv.WATCHER) == [[], None]
    os.makedirs(here.lock_dir, exist_ok=True)
    watcher_files.note_complete(here.watcher_complete_file)
    os.utime(here.watcher_complete_file, (1, 1))
    for path in (here.watcher_lock_file, here.watcher_group_lock_file("uuid-1")):
        with filelock.FileLock(path) as lock:
            lock.acquire()
            with watcher_files.noted(lock, monotonic=lambda: time.monotonic() - 5000):
                ((group, pid, age_s),), since_s = check(nv.WATCHER)
            assert (group, pid) == ("uuid-1" if "uuid-1" in path else "", os.getpid())
            assert 4999 <= age_s < 6000 and since_s > 1e9
    with open(here.watcher_pausefile, "w") as stream:
        stream.write(f"{time.time() + 900}\n")
    assert check(nv.WATCHER) == [[], None]


def test_files(here):
    with open(here.hmac_key, "w") as stream:
        stream.write("abc")
    found = check(nv.FILELIST, ["/var/lib/ganeti/hmac.key", "/var/lib/ganeti/none"])
    assert found == {"/var/lib/ganeti/hmac.key": "a9993e364706816aba3e25717850c26c9cd0d89d"}


def test_net(here, listener):
    assert check(nv.NODENETTEST, [["node1", listener, listener]]) == {}
    found = check(
        nv.NODENETTEST, [["node1", listener, None], ["node2", "127.19.21.2", "127.19.21.3"]]
    )
    assert list(found) == ["node2"]
    assert "primary address 127.19.21.2" in found["node2"]
    assert "secondary address 127.19.21.3" in found["node2"]
    assert check(nv.NODENETTEST, []) == {}


def test_master_ip(here, listener):
    assert check(nv.MASTERIP, ["node1", listener]) is True


def test_hypervisors(here, monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    found = check(nv.HYPERVISOR, ["fake", "xen-pvm", "nonsense"])
    assert found["fake"] is None
    assert "the program xl is missing" in found["xen-pvm"]
    assert "does not exist" in found["nonsense"]
    assert check(nv.HYPERVISOR, ["fake"], **{nv.NONVMNODES: [machine.current().hostname()]}) == {}


def test_hvparams(here):
    found = check(nv.HVPARAMS, [["cluster", "fake", {}], ["os x", "nonsense", {}]])
    assert [row[:2] for row in found] == [["os x", "nonsense"]]


def test_instances_and_facts(here):
    assert check(nv.INSTANCELIST, ["fake"]) == []
    assert check(nv.HVINFO, "fake")["memory_total"] > 0


def test_version_and_time(here):
    assert check(nv.VERSION) == [3010000, FULL_VERSION]
    assert FULL_VERSION.startswith("3.1.0, release ")
    seconds, microseconds = check(nv.TIME)
    assert abs(seconds + microseconds / 1e6 - time.time()) < 600


def test_bridges(here):
    assert check(nv.BRIDGES, ["no-such-br0", "../lo"]) == ["no-such-br0", "../lo"]
    with pytest.raises(errors.ConfigurationError, match="no-such-br0"):
        info.bridges_exist(["no-such-br0"])
    info.bridges_exist([])


def test_scripts(here, script):
    script(here.to_local("/etc/ganeti/good"), "")
    script(here.to_local("/etc/ganeti/data"), "", mode=0o644)
    paths = ["/etc/ganeti/good", "/etc/ganeti/data", "/etc/ganeti/none"]
    assert check(nv.USERSCRIPTS, paths) == paths[1:]
    found = check(nv.OOB_PATHS, [here.to_local(path) for path in paths])
    assert found[0] is None
    assert "not executable" in found[1]
    assert "does not exist" in found[2]


def test_storage_paths(here):
    path = "/srv/ganeti/file-storage"
    assert "is not a directory" in check(nv.FILE_STORAGE_PATH, path)
    os.makedirs(here.to_local(path))
    assert check(nv.FILE_STORAGE_PATH, path) is None
    assert check(nv.SHARED_FILE_STORAGE_PATH, "/etc/disks") is not None
    with open(here.file_storage_paths_file, "w") as stream:
        stream.write("/srv/other\n/etc\n")
    assert "not below a directory" in check(nv.FILE_STORAGE_PATH, path)
    assert check(nv.ACCEPTED_STORAGE_PATHS, machine.current().hostname()) == ["/etc"]
    assert check(nv.ACCEPTED_STORAGE_PATHS, "other") == []


def test_client_certificate(here):
    severity, text = check(nv.CLIENT_CERT)
    assert severity == "ERROR"
    assert "client.pem" in text
    authority = x509.create_self_signed()
    for path, pem in (
        (here.noded_cert_file, authority),
        (here.noded_client_cert_file, x509.create_signed("n", authority)),
    ):
        with open(path, "w") as stream:
            stream.write(pem)
    assert check(nv.CLIENT_CERT) == [None, x509.digest_file(here.noded_client_cert_file)]
    with open(here.noded_client_cert_file, "w") as stream:
        stream.write(x509.create_signed("n", authority, validity_days=10))
    assert check(nv.CLIENT_CERT)[0] == "WARNING"
    with open(here.noded_client_cert_file, "w") as stream:
        stream.write(x509.create_self_signed())
    severity, text = check(nv.CLIENT_CERT)
    assert severity == "ERROR"
    assert "not valid in this cluster" in text


def test_setup(here):
    assert check(nv.NODESETUP) == []


def test_node_info(here):
    os.makedirs(here.to_local("/srv/ganeti/file-storage"))
    boot, units, facts = info.node_info(
        [["file", "/srv/ganeti/file-storage", []], ["file", "/srv/none"], ["rados", "xenvg", []]],
        [["fake", {}]],
    )
    assert len(boot) == 36
    assert units[0]["storage_size"] >= units[0]["storage_free"] > 0
    assert [unit["storage_free"] for unit in units[1:]] == [None, None]
    assert "cannot measure the file system" in units[1]["problem"]
    assert facts[0]["cpu_total"] > 0


def test_node_info_has_an_answer_for_each_element(here, monkeypatch):
    """A unit or a hypervisor which fails hides neither the others nor why it failed."""

    def fails(_key, _arguments):
        raise errors.StorageError("the disk does not answer")

    os.makedirs(here.to_local("/srv/ganeti/file-storage"))
    monkeypatch.setitem(info._MEASURES, "gluster", fails)
    _boot, units, facts = info.node_info(
        [["gluster", "/x", []], ["colour", "x"], ["file", "/srv/ganeti/file-storage", []]],
        [["nonsense", {}], ["fake", {}]],
    )
    assert units[0] == {
        "type": "gluster",
        "name": "/x",
        "storage_free": None,
        "storage_size": None,
        "problem": "the disk does not answer",
    }
    assert units[1]["problem"] == "this kind of storage is not known"
    assert units[2]["storage_free"] > 0 and "problem" not in units[2]
    assert list(facts[0]) == ["problem"] and "nonsense" in facts[0]["problem"]
    assert facts[1]["cpu_total"] > 0
    answer = calls.NODE_INFO.result
    assert answer.decode(answer.encode(["boot", units, facts]))


@pytest.mark.parametrize(
    ("units", "specs", "error"),
    [
        ([["file"]], [], errors.ParameterError),
        ([], [["fake"]], errors.ParameterError),
        ([], [["fake", 1]], errors.ParameterError),
    ],
)
def test_node_info_bad_questions(here, units, specs, error):
    with pytest.raises(error):
        info.node_info(units, specs)


def test_watcher_pause(here):
    assert info.watcher_pause() is None
    info.set_watcher_pause(1_900_000_000.7)
    assert info.watcher_pause() == 1_900_000_000
    info.set_watcher_pause(None)
    assert info.watcher_pause() is None
    with open(here.watcher_pausefile, "w") as stream:
        stream.write("soon")
    with pytest.raises(errors.ParseError, match="does not hold a time"):
        info.watcher_pause()


def test_addresses(here, tmp_path, monkeypatch):
    (tmp_path / "hosts").write_text("127.19.21.1 node1.example.com\n")
    monkeypatch.setenv("GANETI_VCLUSTER", str(tmp_path))
    monkeypatch.setenv("GANETI_HOSTNAME", "node1.example.com")
    assert info.has_ip_address("127.19.21.1")
    assert not info.has_ip_address("127.19.21.2")
    with pytest.raises(errors.IPAddressError):
        info.has_ip_address("node1")
