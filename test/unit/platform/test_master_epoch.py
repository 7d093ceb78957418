"""What a node remembers of masters."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ganeti import errors
from ganeti.platform import master_epoch, paths
from ganeti.platform.master_epoch import CONFIG, NONE, QUEUE, Epoch, StaleEpochError

E1, E2 = Epoch(1, "uuid-1"), Epoch(2, "uuid-2")


@pytest.fixture
def here(tmp_path: Path) -> Iterator[paths.Paths]:
    with paths.override(paths.Paths(str(tmp_path))) as found:
        os.makedirs(found.data_dir)
        os.makedirs(found.lock_dir)
        yield found


@pytest.mark.parametrize("epoch", [NONE, E1, Epoch(1 << 40, "x")])
def test_texts(epoch: Epoch) -> None:
    assert master_epoch.parse(str(epoch)) == epoch


@pytest.mark.parametrize("text", ["", "x", "-1", "1.5", "1 a b", "9" * 30, "1 " + "x" * 65, "²"])
def test_bad_texts(text: str) -> None:
    with pytest.raises(errors.ParseError):
        master_epoch.parse(text)


def test_the_owner_decides_between_equals() -> None:
    assert Epoch(2, "a") < Epoch(2, "b") < Epoch(3, "a")


def test_nothing_yet(here: paths.Paths) -> None:
    assert master_epoch.read() == master_epoch.MasterState()
    master_epoch.admit(NONE)


def test_the_highest_is_remembered_and_lower_refused(here: paths.Paths) -> None:
    master_epoch.admit(E2)
    assert master_epoch.read().epoch == E2
    assert Path(here.ssconf_file("master_epoch")).read_text() == "2\n"
    with pytest.raises(StaleEpochError, match="epoch 1 is over, this node obeys epoch 2") as caught:
        master_epoch.admit(E1)
    assert caught.value.known == E2
    with pytest.raises(StaleEpochError):
        master_epoch.admit(Epoch(2, "another"))
    with pytest.raises(StaleEpochError):
        master_epoch.claim(E1)
    master_epoch.claim(E2)


def test_either_file_counts(here: paths.Paths) -> None:
    master_epoch.admit(E1)
    os.remove(here.ssconf_file("master_epoch"))
    assert master_epoch.read().epoch == E1
    Path(here.ssconf_file("master_epoch")).write_text("9\n")
    with pytest.raises(StaleEpochError):
        master_epoch.admit(E2)


def test_labels(here: paths.Paths) -> None:
    master_epoch.admit(E1)
    with master_epoch.writing(CONFIG, E1):
        assert master_epoch.read().config == NONE, "labelled before it is written"
    with master_epoch.writing(QUEUE, E1):
        pass
    memory = master_epoch.read()
    assert (memory.config, memory.queue) == (E1, E1)
    with pytest.raises(KeyError), master_epoch.writing(CONFIG, E2):
        raise KeyError
    assert master_epoch.read().config == E1, "labelled though it failed"


def test_stale_writers(here: paths.Paths) -> None:
    master_epoch.claim(E2)
    for kind in (CONFIG, QUEUE, master_epoch.OTHER):
        with pytest.raises(StaleEpochError), master_epoch.writing(kind, E1):
            pytest.fail("written")


@pytest.mark.parametrize("kind", [CONFIG, QUEUE])
def test_a_claim_waits_for_writes(here: paths.Paths, kind: str) -> None:
    order = []

    def claim() -> None:
        master_epoch.claim(E2)
        order.append("claimed")

    with master_epoch.writing(kind, E1):
        thread = threading.Thread(target=claim)
        thread.start()
        thread.join(0.2)
        order.append("written")
    thread.join()
    assert order == ["written", "claimed"]


def test_the_queue_does_not_wait_for_the_configuration(here: paths.Paths) -> None:
    with master_epoch.writing(CONFIG, E1):
        pass
    done = []

    def write(kind: str) -> None:
        with master_epoch.writing(kind, E1):
            done.append(kind)

    with master_epoch.writing(QUEUE, E1):
        pass
    with master_epoch.writing(CONFIG, E1):
        threads = [threading.Thread(target=write, args=(kind,)) for kind in (QUEUE, CONFIG)]
        for thread in threads:
            thread.start()
        threads[0].join()
        threads[1].join(0.2)
        assert done == [QUEUE], "two processes write the configuration at once"
    threads[1].join()
    assert done == [QUEUE, CONFIG]


def test_a_claim_between_content_and_label(
    here: paths.Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy counts as an older one, so its writer must not say that it is there."""
    claimed = []
    locked = master_epoch._locked

    def interrupted(found: paths.Paths, *, shared: bool = False) -> Any:
        if not shared and not claimed:
            claimed.append(True)
            master_epoch.claim(E2)
        return locked(found, shared=shared)

    monkeypatch.setattr(master_epoch, "_locked", interrupted)
    with pytest.raises(StaleEpochError), master_epoch.writing(QUEUE, E1):
        pass
    assert master_epoch.read().queue == NONE


def test_given_up(here: paths.Paths) -> None:
    with master_epoch.writing(CONFIG, E1):
        pass
    master_epoch.give_up_config(17)
    assert master_epoch.read().demoted == (E1, 17)
    with master_epoch.writing(CONFIG, E2):
        pass
    assert master_epoch.read().demoted == (NONE, 0)


@pytest.mark.parametrize("text", ["epoch x\n", "demoted 1\n", "epoch 1 a b\n", "demoted x 0\n"])
def test_damaged(here: paths.Paths, text: str) -> None:
    Path(here.master_state_file).write_text(text)
    with pytest.raises(errors.ConfigurationError, match="master_state"):
        master_epoch.admit(E1)


def test_a_file_which_cannot_be_read_is_not_to_be_removed(here: paths.Paths) -> None:
    """It may be whole: the node has too many open files, or its disk fails for a moment."""
    os.mkdir(here.master_state_file)
    with pytest.raises(errors.ConfigurationError, match="until the file can be read") as caught:
        master_epoch.read()
    assert "remove" not in str(caught.value)


def test_a_torn_file_is_damaged_wherever_it_ends(here: paths.Paths) -> None:
    """A part of a number or of an owner would be another epoch, and a lower one."""
    master_epoch.claim(Epoch(12, "uuid-1"))
    with master_epoch.writing(CONFIG, Epoch(12, "uuid-1")):
        pass
    master_epoch.record_failover(Epoch(13, "uuid-1"), ignored_offline=False)
    path = Path(here.master_state_file)
    text, whole = path.read_text(), master_epoch.read()
    for length in range(len(text)):
        path.write_text(text[:length])
        try:
            found = master_epoch.read()
        except errors.ConfigurationError as err:
            assert f"remove the file {path} on this node" in str(err)  # noqa: PT017
        else:
            # Only the lines at its end are missing, which make nothing newer than it is.
            assert text[length - 1] == "\n" and found.epoch == whole.epoch
            assert found.config == whole.config and found.queue == whole.queue
    # What the message says helps: the number of the epoch is in the other file.
    path.unlink()
    with pytest.raises(StaleEpochError):
        master_epoch.admit(Epoch(12, "uuid-1"))
    master_epoch.admit(Epoch(13, "uuid-1"))
    assert path.read_text().startswith("epoch 13 uuid-1\n")
    assert master_epoch.read().config == master_epoch.NONE, "its copies count as old ones"


@pytest.mark.parametrize("ignored", [True, False])
def test_a_failover_counts_until_the_next_master(here: paths.Paths, ignored: bool) -> None:
    assert not master_epoch.read().moved_to("")
    master_epoch.record_failover(E1, ignored_offline=ignored)
    known = master_epoch.read()
    assert known.moved_to("uuid-1") and not known.moved_to("uuid-2")
    assert (known.epoch, known.failover, known.ignored_offline) == (E1, E1, ignored)
    # Another failover of the same node, of the other kind.
    again = Epoch(2, "uuid-1")
    master_epoch.record_failover(again, ignored_offline=not ignored)
    assert master_epoch.read().failover == again
    assert master_epoch.read().ignored_offline is not ignored
    with pytest.raises(StaleEpochError):
        master_epoch.record_failover(E1, ignored_offline=ignored)
    master_epoch.claim(E2)
    assert not master_epoch.read().moved_to("uuid-1")


@pytest.mark.parametrize("text", ["", "damaged"])
def test_a_damaged_ssconf_file_beside_a_whole_state(here: paths.Paths, text: str) -> None:
    """The state has everything; the file is for administrators."""
    master_epoch.claim(E1)
    path = Path(here.ssconf_file("master_epoch"))
    path.chmod(0o644)
    path.write_text(text)
    assert master_epoch.read().epoch == E1
    master_epoch.claim(E2)
    assert path.read_text() == "2\n"
    os.remove(here.master_state_file)
    path.chmod(0o644)
    path.write_text(text)
    with pytest.raises(errors.ConfigurationError):
        master_epoch.read()


def test_the_newest_removed_copy_counts(here: paths.Paths) -> None:
    with master_epoch.writing(CONFIG, E1):
        pass
    master_epoch.give_up_config(17)
    master_epoch.give_up_config(5)
    assert master_epoch.read().demoted == (E1, 17)


def test_a_failover_ends_with_the_next_epoch_of_the_same_node(here: paths.Paths) -> None:
    master_epoch.record_failover(E1, ignored_offline=False)
    master_epoch.claim(Epoch(E1.number + 1, E1.owner))
    assert not master_epoch.read().moved_to(E1.owner)
