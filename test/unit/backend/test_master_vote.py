"""A node's vote, promise and demotion, and which calls it refuses."""

import hashlib
import json
import os
from pathlib import Path

import pytest

from ganeti import errors, http
from ganeti.backend import caller, dispatch
from ganeti.backend.cluster import config_file, jobqueue, master_vote, ssconf
from ganeti.backend.node import files, verify
from ganeti.configfile import files as config_files
from ganeti.http.server import AuthorisedRequest
from ganeti.jobstore.store import QueueStore
from ganeti.platform import master_epoch, paths
from ganeti.platform.master_epoch import NONE, Epoch, StaleEpochError
from ganeti.wire.calls import FileDetails

E1, E2 = Epoch(1, "uuid-1"), Epoch(2, "uuid-2")


@pytest.fixture(autouse=True)
def node(here, monkeypatch):
    monkeypatch.setenv("GANETI_HOSTNAME", "node1.example.com")
    Path(here.ssconf_file("master_node")).write_text("node2.example.com\n")
    yield here
    caller.act_for(NONE)


def config(serial, filler="x"):
    return json.dumps({"cluster": {"serial_no": 99}, "filler": filler, "serial_no": serial}) + "\n"


def upload(serial, epoch, filler="x"):
    caller.act_for(epoch)
    name = paths.current().to_virtual(paths.current().cluster_conf_file)
    files.upload_file(FileDetails(name, config(serial, filler), 0o640, "root", "root", 1.0, 1.0))


def test_an_empty_node(node):
    vote = master_vote.vote()
    assert (vote.master, vote.config_serial, vote.last_job) == ("node2.example.com", 0, 0)
    assert (vote.epoch, vote.config_epoch, vote.queue_epoch) == ("0", "0", "0")


def test_a_candidate(node):
    upload(17, E1)
    jobqueue.update_many(
        [("version", "1\n"), ("job-5", "{}"), ("job-12", "{}"), ("serial", "11\n")]
    )
    vote = master_vote.vote()
    assert (vote.config_serial, vote.last_job) == (17, 12)
    assert (vote.config_epoch, vote.queue_epoch) == (str(E1), str(E1))
    assert len(vote.config_digest) == 64
    upload(17, E1, "other content")
    assert master_vote.vote().config_digest != vote.config_digest


def test_jobs_in_a_journal_count(node):
    """They were acknowledged, and a candidate with them is newer than one without."""
    assert master_vote.last_job(node.queue_dir) == 0
    store = QueueStore(node.queue_dir)
    store.open()
    store.commit({"job-41": "{}", "serial": "40\n"})
    assert master_vote.vote().last_job == 41
    store.commit({"serial": "43\n"})
    assert master_vote.vote().last_job == 43
    store.apply()
    store.close()
    assert master_vote.vote().last_job == 43


def test_what_was_never_acknowledged_does_not_count(node, monkeypatch):
    store = QueueStore(node.queue_dir)
    store.open()
    store.commit({"serial": "40\n"})

    def broken(fd):
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", broken)
        patch.setattr(os, "ftruncate", lambda fd, size: broken(fd))
        with pytest.raises(errors.JobQueueError):
            store.commit({"serial": "41\n"})
    store.commit({"job-1": "{}"})
    (journal,) = (name for name in os.listdir(node.queue_dir) if name.endswith("-2"))
    with open(f"{node.queue_dir}/{journal}", "ab") as stream:
        stream.write(b"GJ1 00000000 99\nhalf of it")
    assert master_vote.vote().last_job == 40


@pytest.mark.parametrize(
    ("text", "serial"),
    [
        ('{"serial_no": 5}', 5),
        ('{"a": 1, "serial_no":6}\n', 6),
        ('{"serial_no": 7, "z": {"serial_no": 8}}', 7),
        (config(3, "x" * 9999), 3),
        (json.dumps({"serial_no": 9, "z": "x" * 9999}), 9),
    ],
)
def test_serial_numbers(tmp_path, text, serial):
    (tmp_path / "c").write_text(text)
    assert config_file.serial_of_file(str(tmp_path / "c")) == serial
    assert config_file.serial_of(text.encode()) == serial


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"serial_no": "5"}', '{"serial_no": true}', '{"serial_no": -1}']
)
def test_no_configuration(tmp_path, text):
    (tmp_path / "c").write_text(text)
    with pytest.raises(errors.ConfigurationError):
        config_file.serial_of_file(str(tmp_path / "c"))


def test_a_promise(node):
    assert master_vote.claim(str(E2)).epoch == str(E2)
    with pytest.raises(StaleEpochError):
        master_vote.claim(str(E1))
    with pytest.raises(errors.ParseError):
        master_vote.claim("tomorrow")


def test_stale_uploads(node):
    upload(17, E1)
    master_vote.claim(str(E2))
    with pytest.raises(StaleEpochError):
        upload(18, E1)
    with pytest.raises(StaleEpochError):
        jobqueue.update_many([("version", "1\n"), ("job-1", "{}")])
    with pytest.raises(StaleEpochError):
        ssconf.write({"master_node": "node9.example.com\n"})
    assert config_file.serial_of_file(node.cluster_conf_file) == 17
    upload(16, E2)
    assert master_vote.vote().config_epoch == str(E2)


def test_an_upload_that_was_held_up(node):
    upload(17, E1)
    with pytest.raises(errors.ConfigurationError, match="number 16 is refused.*number 17"):
        upload(16, E1)
    upload(17, E1)


def test_the_epoch_is_no_ssconf_value(node):
    with pytest.raises(errors.ConfigurationError, match="cannot be written like other"):
        ssconf.write({"master_epoch": "1\n"})


def test_demotion(node):
    upload(17, E1)
    jobqueue.update_many([("version", "1\n"), ("job-1", "{}")])
    os.makedirs(node.cluster_conf_history_dir)
    Path(node.cluster_conf_history_dir, "16").write_text("an earlier configuration")
    Path(node.cluster_conf_file + ".demoted").write_text("of an earlier version")
    master_vote.demote()
    left = sorted(os.listdir(node.data_dir))
    assert not [name for name in left if name.startswith("config.data")]
    assert not [name for name in os.listdir(node.queue_dir) if name.startswith(("job", "journal"))]
    vote = master_vote.vote()
    assert (vote.config_epoch, vote.config_serial, vote.config_digest) == (str(E1), 17, "")
    master_vote.demote()
    Path(node.ssconf_file("master_node")).write_text("node1.example.com\n")
    with pytest.raises(errors.ConfigurationError, match="this node is the master"):
        master_vote.demote()


def ask(procedure, body, *epoch, handler=None):
    headers = {http.EPOCH_HEADER.lower(): str(epoch[0])} if epoch else {}
    calls = []

    def note(**args):
        calls.append(args)
        return handler(**args) if handler else None

    request = AuthorisedRequest(procedure, body, "127.0.0.1", "AA", headers, False)
    return dispatch.Dispatcher({procedure: note})(request), calls


def test_calls_carry_an_epoch(node):
    response, calls = ask("test_delay", b"[0]", E2)
    assert (response.status, len(calls)) == (200, 1)
    assert master_epoch.read().epoch == E2
    for stale in ((E1,), ()):
        response, calls = ask("test_delay", b"[0]", *stale)
        assert (response.status, calls) == (403, [])
        assert response.headers == {http.EPOCH_HEADER: str(E2)}
        assert b"this node obeys epoch 2 of node uuid-2" in response.body


def test_votes_are_given_to_anybody(node):
    master_epoch.claim(E2)
    response, calls = ask("master_vote", b"[]", E1, handler=master_vote.vote)
    assert (response.status, len(calls)) == (200, 1)
    assert master_epoch.read().epoch == E2


def test_a_stale_promise_is_refused(node):
    master_epoch.claim(E2)
    response, _ = ask("master_claim", json.dumps([str(E1)]).encode(), handler=master_vote.claim)
    assert (response.status, response.headers) == (403, {http.EPOCH_HEADER: str(E2)})


@pytest.mark.parametrize("text", ["x", "1 2 3", "-4"])
def test_no_epoch(node, text):
    assert ask("test_delay", b"[0]", text)[0].status == 400


def test_a_sick_node_says_so(node):
    Path(node.master_state_file).write_text("nonsense x\n")
    response, calls = ask("test_delay", b"[0]", E1)
    assert (response.status, calls) == (200, [])
    assert b"cannot read" in response.body


def _append(monkeypatch, epoch=E1):
    """Bring the next state to a node which keeps it in its journal."""
    monkeypatch.setattr(config_files, "JOURNAL_FROM_BYTES", 1)
    caller.act_for(epoch)
    old, new = config(17), config(18)
    end = old[-20:]
    assert config_file.rewrite(len(old), end, [[0, len(old) - 20], new[-20:]], len(new))


def test_a_change_in_the_journal_counts(node, monkeypatch):
    """It was acknowledged, and the file alone does not have it."""
    upload(17, E1)
    before = master_vote.vote()
    _append(monkeypatch)
    vote = master_vote.claim(str(E2))
    assert (vote.config_epoch, vote.config_serial) == (str(E1), 18)
    assert vote.config_digest == hashlib.sha256(config(18).encode()).hexdigest()
    assert vote.config_digest != before.config_digest
    config_file.fold()
    assert master_vote.vote() == vote
    assert Path(node.cluster_conf_file).read_text() == config(18)


def test_an_upload_ends_the_journal(node, monkeypatch):
    upload(17, E1)
    _append(monkeypatch)
    with pytest.raises(errors.ConfigurationError, match=r"number 17 is refused.*number 18"):
        upload(17, E1)
    upload(19, E1)
    assert not os.path.exists(node.cluster_conf_journal)
    assert master_vote.vote().config_serial == 19


def test_demotion_removes_the_journal_and_remembers_what_it_had(node, monkeypatch):
    upload(17, E1)
    _append(monkeypatch)
    master_vote.demote()
    assert not [name for name in os.listdir(node.data_dir) if name.startswith("config.data")]
    vote = master_vote.vote()
    assert (vote.config_epoch, vote.config_serial, vote.config_digest) == (str(E1), 18, "")


def test_demotion_of_a_node_whose_copy_was_edited(node, monkeypatch):
    """Nobody can tell what its state is; a later vote names the highest which it may be."""
    upload(17, E1)
    _append(monkeypatch)
    path = Path(node.cluster_conf_file)
    path.write_bytes(path.read_bytes().replace(b'"x"', b'"y"'))
    with pytest.raises(errors.ConfigurationError, match="cfgshell --journal=show"):
        master_vote.vote()
    master_vote.demote()
    assert not [name for name in os.listdir(node.data_dir) if name.startswith("config.data")]
    vote = master_vote.vote()
    assert (vote.config_epoch, vote.config_serial, vote.config_digest) == (str(E1), 18, "")


def test_the_digest_for_the_verification_counts_the_journal(node, monkeypatch):
    upload(17, E1)
    _append(monkeypatch)
    path = node.to_virtual(node.cluster_conf_file)
    digest = hashlib.sha1(config(18).encode(), usedforsecurity=False).hexdigest()
    for _ in range(2):
        assert verify._files([path], None) == {path: digest}
        config_file.fold()
