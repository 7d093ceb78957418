"""The steps of the document of a witness: promised, informed, lost, restored, foreign."""

from __future__ import annotations

import threading

import pytest

from ganeti.config import witness as config_witness
from ganeti.config.witness import Document, parse_document
from ganeti.http.document import Changed, DocumentError, Found
from ganeti.platform.master_epoch import NONE, Epoch
from ganeti.rpc.witness import HigherEpoch, Witness, WitnessError

FIRST, SECOND = Epoch(4, "uuid-1"), Epoch(5, "uuid-2")


class Server:
    """A document in memory. ``faults`` are those of ``fakes/witness_server.py``.

    With ``apart``, other requests come between the comparison of the tag and the write.
    """

    url = "https://witness.example.com/doc"

    def __init__(self) -> None:
        self.text: str | None = None
        self.number = 0
        self.faults: set[str] = set()
        self.reads = self.writes = 0
        self.before_write: list[str] = []
        self.lock = threading.Lock()
        self.together = threading.Barrier(4)

    def another(self) -> Server:
        return self

    def tag(self) -> str:
        return "" if self.text is None else f'"{0 if "same" in self.faults else self.number}"'

    def read(self) -> Found:
        self.reads += 1
        if "deaf" in self.faults:
            raise DocumentError(f"{self.url}: no answer")
        return Found(self.text, self.tag())

    def replace(self, text: str, tag: str) -> None:
        if self.before_write:
            self._put(self.before_write.pop())
        for _ in range(2 if "twice" in self.faults else 1):
            with self.lock:
                self._require(tag)
                if "apart" not in self.faults:
                    self._put(text)
        if "apart" in self.faults and threading.current_thread() is not threading.main_thread():
            # All writers of the race have compared the tag; none has written.
            self.together.wait()
        if "apart" in self.faults:
            self._put(text)
        if "lost" in self.faults:
            raise DocumentError(f"{self.url}: the connection broke")

    def _require(self, tag: str) -> None:
        if tag != self.tag() and "unconditional" not in self.faults:
            raise Changed("the document has changed meanwhile")

    def _put(self, text: str) -> None:
        self.text = text
        self.number += 1
        self.writes += 1

    def document(self) -> Document:
        assert self.text is not None
        return parse_document(self.text)


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def witness(server: Server) -> Witness:
    """The witness of a master with the epoch 4, which has made the document."""
    found = Witness(server, "cluster-1")
    assert found.renew(FIRST, "node1")
    return found


def test_a_promise_is_kept(server: Server, witness: Witness) -> None:
    other = Witness(server, "cluster-1")
    standing = other.promise(SECOND, "node2")
    assert (standing.master, standing.epoch) == ("node2", SECOND)
    with pytest.raises(HigherEpoch, match="epoch 5 of node2") as caught:
        witness.promise(FIRST, "node1")
    assert caught.value.known == SECOND
    for step in (witness.record, witness.renew):
        with pytest.raises(HigherEpoch):
            step(FIRST, "node1", config_serial=8)
    assert server.document().config == (NONE, 0)


def test_what_a_master_has_done_never_goes_back(server: Server, witness: Witness) -> None:
    witness.record(FIRST, "node1", config_serial=8)
    witness.record(FIRST, "node1", last_job=20)
    witness.record(FIRST, "node1", config_serial=7)
    witness.renew(FIRST, "node1")
    assert server.document().config == (FIRST, 8)
    assert server.document().jobs == (FIRST, 20)
    Witness(server, "cluster-1").record(SECOND, "node2", config_serial=3)
    assert server.document().config == (SECOND, 3)


def test_what_it_knows_is_not_written_again(server: Server, witness: Witness) -> None:
    witness.record(FIRST, "node1", config_serial=8)
    writes = server.writes
    witness.record(FIRST, "node1", config_serial=8)
    assert not witness.renew(FIRST, "node1")
    assert server.writes == writes
    assert not witness.renew(FIRST, "node1", touch=True)
    assert server.writes == writes + 1


def test_another_node_may_write_between_reading_and_writing(
    server: Server, witness: Witness
) -> None:
    changed = server.document()._replace(epoch=SECOND, master="node2", generation=9)
    server.before_write = [config_witness.text_of(changed)]
    with pytest.raises(HigherEpoch):
        witness.record(FIRST, "node1", config_serial=8)
    assert server.document() == changed


def test_a_write_which_is_sent_twice_counts_once(server: Server, witness: Witness) -> None:
    server.faults = {"twice"}
    witness.record(FIRST, "node1", config_serial=8)
    assert server.document().config == (FIRST, 8)


def test_a_lost_answer_is_no_success(server: Server, witness: Witness) -> None:
    server.faults = {"lost"}
    with pytest.raises(WitnessError, match="connection broke"):
        witness.record(FIRST, "node1", config_serial=8)
    server.faults = set()
    writes = server.writes
    witness.record(FIRST, "node1", config_serial=8)
    assert server.writes == writes


def test_a_lost_document_is_made_by_the_master_only(server: Server, witness: Witness) -> None:
    server.text = None
    for step in (
        lambda: witness.promise(SECOND, "node2"),
        lambda: witness.record(FIRST, "node1", config_serial=8),
        witness.read,
    ):
        with pytest.raises(WitnessError, match="document is missing"):
            step()
    assert witness.renew(FIRST, "node1")
    assert server.document().epoch == FIRST


def test_an_older_document_does_not_count(server: Server, witness: Witness) -> None:
    old = server.text
    witness.record(FIRST, "node1", config_serial=8)
    generation = server.document().generation
    server.text = old
    for step in (
        lambda: witness.promise(SECOND, "node2"),
        lambda: witness.record(FIRST, "node1", config_serial=9),
        witness.read,
    ):
        with pytest.raises(WitnessError, match="older than one which was there before"):
            step()
    assert witness.renew(FIRST, "node1")
    assert server.document().generation > generation
    witness.record(FIRST, "node1", config_serial=9)


def test_another_object_for_the_document_knows_how_new_it_was(
    server: Server, witness: Witness
) -> None:
    old = server.text
    witness.record(FIRST, "node1", config_serial=8)
    server.text = old
    other = Witness(server, "cluster-1")
    other.follow(witness)
    with pytest.raises(WitnessError, match="older than one which was there before"):
        other.record(FIRST, "node1", config_serial=9)


def test_the_document_of_another_cluster_is_not_touched(server: Server, witness: Witness) -> None:
    text = server.text
    other = Witness(server, "cluster-2")
    for step in (other.read, lambda: other.renew(FIRST, "node1"), other.probe):
        with pytest.raises(WitnessError, match="belongs to another cluster"):
            step()
    assert server.text == text


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 2}', "\x00", '{"format": 1}'])
def test_other_documents_are_refused(server: Server, text: str) -> None:
    server.text = text
    with pytest.raises(WitnessError, match=server.url):
        Witness(server, "cluster-1").renew(FIRST, "node1")
    assert server.text == text


def test_a_conforming_server_is_accepted(server: Server, witness: Witness) -> None:
    before = server.document()
    witness.probe()
    after = server.document()
    assert after.generation > before.generation
    assert witness.read() == after
    assert after[4:7] == before[4:7]


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("unconditional", "carries out a write whose condition"),
        ("same", "the same entity tag"),
        ("apart", "4 of 4 writers replaced the same document"),
        ("deaf", "no answer"),
    ],
)
def test_a_server_without_conditions_is_refused(
    server: Server, witness: Witness, fault: str, message: str
) -> None:
    server.faults = {fault}
    with pytest.raises(WitnessError, match=message):
        witness.probe()


def test_a_server_on_which_the_document_always_changes(server: Server, witness: Witness) -> None:
    text = server.text
    assert text is not None
    server.before_write = [text] * 100
    with pytest.raises(WitnessError, match="changes all the time"):
        witness.record(FIRST, "node1", config_serial=8)
