"""A configuration which is large enough for a journal, with real daemons, kills, and a failover."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness import ROOT, Finished, alive, wait_until
from role_lab import INSTANCE, MASTERD, NODED, Lab, enlarge, make_lab

from ganeti.configfile import files

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def large() -> Iterator[Lab]:
    for lab in make_lab(3):
        enlarge(lab.cluster, lab.nodes[0])
        lab.first = lab.reach(lab.nodes[0])  # That was no change through the master.
        yield lab


def _text(lab: Lab, node: str) -> bytes:
    return files.read(str(lab.file(node, "config.data")))


def _journal(lab: Lab, node: str) -> Path:
    return lab.file(node, "config.data.journal")


def _tags(text: bytes) -> set[str]:
    (instance,) = json.loads(text)["instances"].values()
    return set(instance["tags"])


def _journaled_change(lab: Lab, master: str) -> list[os.stat_result]:
    """Make changes until one is in the journals and not in the files; it is acknowledged.

    :returns: what the journals were at that moment; they may be folded in by now.
    """
    found: list[os.stat_result] = []

    def changed() -> bool:
        assert lab.change(master)
        found.clear()
        for node in lab.nodes:
            try:
                found.append(_journal(lab, node).stat())
            except FileNotFoundError:
                return False
        return all(
            lab.tags[-1] in _tags(_text(lab, node))
            and lab.tags[-1] not in _tags(lab.file(node, "config.data").read_bytes())
            for node in lab.nodes
        )

    wait_until(changed, "a change which is in all journals")
    return found


def test_changes_reach_the_file_at_rest(large: Lab) -> None:
    master = large.nodes[0]
    for journal in _journaled_change(large, master):
        assert 0 < journal.st_size < 100_000
        assert journal.st_mode & 0o777 == 0o640
    assert "ERROR" not in large.verify(master).text
    wait_until(
        lambda: not any(_journal(large, node).exists() for node in large.nodes),
        "all journals are folded in",
    )
    contents = {large.file(node, "config.data").read_bytes() for node in large.nodes}
    assert len(contents) == 1
    assert set(large.tags) <= _tags(contents.pop())


def _stop_by_daemon_util(lab: Lab, master: str) -> None:
    lab.cluster.on(master, "daemon-util", "stop", MASTERD).ok()


def _stop_by_signal(lab: Lab, master: str) -> None:
    pid = lab.cluster.pid(master, MASTERD)
    os.kill(pid, signal.SIGTERM)
    wait_until(lambda: not alive(pid), "the master daemon has ended")


def _kill_and_stop(lab: Lab, master: str) -> None:
    lab.cluster.kill_whole(master, MASTERD)
    lab.cluster.on(master, "daemon-util", "stop-master").ok()


@pytest.mark.parametrize("stop", [_stop_by_daemon_util, _stop_by_signal, _kill_and_stop])
def test_a_stopped_master_leaves_a_file_which_can_be_edited(
    large: Lab, stop: Callable[[Lab, str], None]
) -> None:
    """The file alone has every change that was acknowledged, and the edit is the next one."""
    master = large.nodes[0]
    # So nobody else folds in.
    large.cluster.kill_whole(master, NODED)
    _journaled_change(large, master)
    stop(large, master)
    assert not _journal(large, master).exists()
    path = large.file(master, "config.data")
    config = json.loads(path.read_bytes())
    assert set(large.tags) <= _tags(path.read_bytes())
    (instance,) = config["instances"].values()
    instance["tags"].append("by-hand")
    path.write_text(json.dumps(config, indent=1))
    large.cluster.on(master, "daemon-util", "start", NODED).ok()
    large.cluster.on(master, "daemon-util", "start", MASTERD).ok()
    assert large.change(master)
    assert {*large.tags, "by-hand"} <= _tags(_text(large, master))
    large.cluster.on(master, "gnt-instance", "remove-tags", INSTANCE, "by-hand").ok()
    large.first = large.reach(master)  # The edit was no change through the master.


# -- by hand ---------------------------------------------------------------------------------------


def _cfgshell(lab: Lab, node: str, *words: str) -> Finished:
    return lab.cluster.on(node, str(ROOT / "tools" / "cfgshell"), *words)


def _journal_of_a_killed_master(lab: Lab, master: str) -> None:
    """Leave acknowledged changes which only the journals have, and no daemon on the master."""
    lab.cluster.kill_whole(master, NODED)
    _journaled_change(lab, master)
    lab.cluster.kill_whole(master, MASTERD)
    assert _journal(lab, master).exists()


def _edit(lab: Lab, master: str) -> None:
    path = lab.file(master, "config.data")
    config = json.loads(path.read_bytes())
    config["serial_no"] += 1
    (instance,) = config["instances"].values()
    instance["tags"].append("by-hand")
    path.write_text(json.dumps(config))


def _edit_with_the_same_length(lab: Lab, master: str) -> None:
    path = lab.file(master, "config.data")
    text = path.read_bytes()
    assert text.count(b'"filler7"') == 1
    with path.open("r+b") as stream:
        stream.seek(text.index(b'"filler7"'))
        stream.write(b'"edited7"')


def _restore_an_old_copy(lab: Lab, master: str) -> None:
    path = lab.file(master, "config.data")
    old = path.with_name("old")
    os.rename(lab.file(master, "old-copy"), old)
    os.rename(old, path)


@pytest.mark.parametrize("edit", [_edit, _edit_with_the_same_length, _restore_an_old_copy])
def test_a_file_which_was_written_by_hand_beside_a_journal(
    large: Lab, edit: Callable[[Lab, str], None]
) -> None:
    """Neither the edit nor an acknowledged change is lost: an administrator decides."""
    master = large.nodes[0]
    shutil.copy(large.file(master, "config.data"), large.file(master, "old-copy"))
    large.cluster.on(master, "gnt-cluster", "add-tags", "later").ok()
    large.cluster.on(master, "gnt-cluster", "remove-tags", "later").ok()
    large.cluster.on(master, "daemon-util", "fold-journal").ok()
    _journal_of_a_killed_master(large, master)
    file, journal = large.file(master, "config.data"), _journal(large, master)
    before, changes = file.read_bytes(), journal.read_bytes()
    saved = file.with_name("saved-by-hand")
    saved.write_bytes(before)
    edit(large, master)
    edited = file.read_bytes()
    large.cluster.on(master, "daemon-util", "start", NODED).ok()
    refused = large.cluster.on(master, "daemon-util", "start", MASTERD)
    assert refused.exit_code != 0
    assert "cfgshell --journal=show" in refused.text
    assert "gnt-cluster master-failover" in refused.text
    assert (file.read_bytes(), journal.read_bytes()) == (edited, changes)
    shown = _cfgshell(large, master, "--journal=show").ok().text
    assert large.tags[-1] in shown and "--journal=set-aside" in shown
    _cfgshell(large, master, "--write", "--journal=apply", f"--base={saved}").ok()
    large.cluster.on(master, "daemon-util", "start", MASTERD).ok()
    assert large.change(master)
    assert set(large.tags) <= _tags(_text(large, master))
    assert "by-hand" not in _tags(_text(large, master))


def test_the_other_candidates_have_the_changes(large: Lab) -> None:
    """Without the journal this node is behind; the usual command fetches what the others have."""
    master = large.nodes[0]
    _journal_of_a_killed_master(large, master)
    _edit_with_the_same_length(large, master)
    large.cluster.on(master, "daemon-util", "start", NODED).ok()
    _cfgshell(large, master, "--write", "--journal=set-aside").ok()
    refused = large.cluster.on(master, "daemon-util", "start", MASTERD)
    assert refused.exit_code != 0 and "gnt-cluster master-failover" in refused.text
    large.failover(master)
    assert large.change(master)
    assert set(large.tags) <= _tags(_text(large, master))


def test_copies_while_the_cluster_runs(large: Lab) -> None:
    """Each of the two ways of the manual has what was acknowledged before."""
    master = large.nodes[0]
    _journaled_change(large, master)
    copy = large.file(master, "whole-copy")
    _cfgshell(large, master, "-c", f"copy {copy}").ok()
    assert set(large.tags) <= _tags(copy.read_bytes())
    _journaled_change(large, master)
    large.cluster.on(master, "daemon-util", "fold-journal").ok()
    assert set(large.tags) <= _tags(large.file(master, "config.data").read_bytes())
    # Back to the first copy: the other candidates are asked, unless they are overridden.
    large.cluster.on(master, "daemon-util", "stop", MASTERD).ok()
    shutil.copy(copy, large.file(master, "config.data"))
    refused = large.cluster.on(master, "daemon-util", "start", MASTERD)
    assert refused.exit_code != 0 and "gnt-cluster master-failover" in refused.text
    large.failover(master)
    assert set(large.tags) <= _tags(_text(large, master))
    large.first = large.reach(master)


def test_a_failover_after_everything_was_killed(large: Lab) -> None:
    """The new master takes what was acknowledged, though no file has it."""
    master, new, third = large.nodes
    _journaled_change(large, master)
    for node in large.nodes:
        large.cluster.kill_whole(node, NODED)
    large.cluster.kill_whole(master, MASTERD)
    saved = {node: _text(large, node) for node in large.nodes}
    for node in (new, third):
        large.cluster.on(node, "daemon-util", "start", NODED).ok()
    large.failover(new)
    large.cluster.on(master, "daemon-util", "start", NODED).ok()
    assert set(large.tags) <= _tags(_text(large, new))
    assert large.change(new)
    assert set(large.tags) <= _tags(_text(large, new))
    assert all(set(large.tags[:-1]) <= _tags(text) for text in saved.values())
    wait_until(
        lambda: (
            not any(_journal(large, node).exists() for node in large.nodes)
            and len({large.file(node, "config.data").read_bytes() for node in large.nodes}) == 1
        ),
        "all nodes have the same file",
    )


def test_a_node_daemon_which_ends_leaves_no_journal(large: Lab) -> None:
    """So a version which does not know of journals may be started next."""
    master = next(node for node in large.nodes if large.master_runs(node))
    other = next(node for node in large.nodes if node != master)
    _journaled_change(large, master)
    large.cluster.on(other, "daemon-util", "stop", NODED).ok()
    wait_until(lambda: not _journal(large, other).exists(), "the journal is folded in")
    assert large.tags[-1] in _tags(large.file(other, "config.data").read_bytes())
    large.cluster.on(other, "daemon-util", "start", NODED).ok()
    assert large.change(master)


def test_a_killed_node_daemon_leaves_no_journal_when_the_node_is_stopped(large: Lab) -> None:
    """An upgrade stops every node in this way before another version starts."""
    master = next(node for node in large.nodes if large.master_runs(node))
    others = [node for node in large.nodes if node != master]
    _journaled_change(large, master)
    for node in others:
        large.cluster.kill_whole(node, NODED)
    assert any(_journal(large, node).exists() for node in others)
    for node in others:
        large.cluster.on(node, "daemon-util", "stop-all").ok()
        assert not _journal(large, node).exists()
        assert large.tags[-1] in _tags(large.file(node, "config.data").read_bytes())
        large.cluster.on(node, "daemon-util", "start-all").ok()
    assert large.change(master)
