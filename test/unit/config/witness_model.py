"""Two nodes and a witness: the model of :mod:`.role_model` with a third voter without data.

The witness is the last participant. It runs no master and keeps a document, which is replaced by
conditional writes. Each of them may be slow, lost, carried out although its answer is lost, or
carried out twice; a node which is cut off from the witness makes none. The document may be lost, or
replaced by an older one from a backup.

No protocol survives that at any moment: when the nodes are separated, nothing but the document says
which of them goes on. What holds is this: as long as the document knows nothing which one of the
nodes does not know, it may be lost, or replaced by any older one. Only the master makes it again,
when both nodes obey it and have its present state.
"""

from __future__ import annotations

from collections.abc import Iterator

from ganeti.config import role
from ganeti.config.role import Standing
from ganeti.platform.master_epoch import NONE, Epoch

from .role_model import (
    ALL_RULES,
    Document,
    Model,
    Node,
    Process,
    Put,
    Rules,
    State,
)

NODES = 2
WITNESS = 2


def initial(starts: int, writes: int, crashes: int, restores: int) -> State:
    """Two nodes which have seen nothing, and the document which the first master has made."""
    return State(
        (Node(NONE, NONE, ()),) * NODES,
        (None,) * NODES,
        frozenset(),
        (),
        starts,
        writes,
        crashes,
        document=Document(NONE, NONE, 0, 1),
        restores=restores,
    )


class WitnessModel(Model):
    """All steps that may be made from a state."""

    def __init__(self, puts: int, rules: Rules = ALL_RULES) -> None:
        """:param puts: how many writes the document sees."""
        super().__init__(NODES + 1, rules)
        self.puts = puts

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        for label, after in self._steps(state):
            yield label, self._without_hopeless(after)

    def _without_hopeless(self, state: State) -> State:
        """Drop writes which are refused whenever they arrive: this saves states."""
        if state.restores or not self.rules.conditional or not state.puts:
            return state
        return state._replace(
            puts=frozenset(put for put in state.puts if put.expected == state.document),
            kept=frozenset(),
        )

    def _steps(self, state: State) -> Iterator[tuple[str, State]]:
        yield from super().steps(state)
        for put in state.puts:
            yield from self._carry_out(state, put)
        if state.restores and (not self.rules.restore_when_known or _all_know(state)):
            for old in (None, *sorted(state.kept)):
                if old != state.document:
                    yield (
                        f"restore {old}",
                        state._replace(document=old, restores=state.restores - 1),
                    )

    # -- becoming master -------------------------------------------------------------------------

    def votes(
        self, state: State, number: int, asked: tuple[int, ...]
    ) -> tuple[tuple[int, Standing], ...]:
        found = super().votes(state, number, tuple(one for one in asked if one != WITNESS))
        document = state.document
        if WITNESS in asked and document is not None:
            own = self.standing(state.nodes[number])
            answer = self._answer(document)
            if role.witness_counts(own, answer):
                found = (*found, (WITNESS, answer))
        return found

    def _answer(self, document: Document) -> Standing:
        label, length = document.label, document.length
        if not self.rules.compare_document:
            label, length = NONE, 0
        return Standing("n0", document.promised, (label, length), (NONE, 0))

    def _promise(self, state: State, number: int, process: Process) -> Iterator[tuple[str, State]]:
        yield from super()._promise(state, number, process)
        assert process.promises is not None
        document = state.document
        if WITNESS in {other for other, _ in process.promises}:
            return
        if document is not None and document.promised <= process.epoch:
            yield from self._put(state, number, process, document._replace(promised=process.epoch))

    # -- being master ----------------------------------------------------------------------------

    def _act(self, state: State, number: int, process: Process) -> Iterator[tuple[str, State]]:
        yield from super()._act(state, number, process)
        document = state.document
        present = Document(process.epoch, process.epoch, len(process.history), 0)
        if document is not None and document.promised > process.epoch:
            yield f"end {number}", self._set(state, number, None)
            return
        if document is None or document.generation < process.newest:
            # Lost, or older than what this master has seen: made again while both nodes are well.
            if process.acked and all(
                node.promised == process.epoch and node.history == process.history
                for node in state.nodes
            ):
                yield from self._put(state, number, process, present)
            return
        if not process.acked and WITNESS not in process.have:
            yield from self._put(state, number, process, present)

    # -- the witness -----------------------------------------------------------------------------

    def _put(
        self, state: State, number: int, process: Process, wanted: Document
    ) -> Iterator[tuple[str, State]]:
        """Send a conditional write. To read earlier is the same as to be slow."""
        found = state.document
        newest = max(process.newest, 0 if found is None else found.generation)
        put = Put(
            number,
            process.epoch,
            found,
            wanted._replace(generation=newest + 1),
        )
        if put in state.puts or newest > self.puts:
            return
        after = self._set(state, number, process._replace(newest=newest))
        yield f"put {number}", after._replace(puts=state.puts | {put})

    def _carry_out(self, state: State, put: Put) -> Iterator[tuple[str, State]]:
        document = state.document
        if document != put.expected and self.rules.conditional:
            yield f"refuse put of {put.number}", state._replace(puts=state.puts - {put})
            return
        written = state._replace(
            document=put.document,
            kept=state.kept if document is None else state.kept | {document},
        )
        if not state.restores:
            # Otherwise the message stays: a proxy may send it once more, to an older document.
            written = written._replace(puts=state.puts - {put})
        yield f"put of {put.number} done, answer lost", written
        process = state.processes[put.number]
        if process is None or process.epoch != put.epoch:
            return
        answered = written._replace(puts=state.puts - {put})
        yield f"put of {put.number} done", self._answered(answered, put, process)

    def _answered(self, state: State, put: Put, process: Process) -> State:
        number, document = put.number, put.document
        process = process._replace(newest=max(process.newest, document.generation))
        if process.promises is not None:
            if WITNESS in {other for other, _ in process.promises}:
                return state
            promises = sorted([*process.promises, (WITNESS, self._answer(document))])
            return self._set(state, number, process._replace(promises=tuple(promises)))
        if state.nodes[number].promised > process.epoch and self.rules.look_again:
            return self._set(state, number, None)
        if document.label == process.epoch and document.length == len(process.history):
            process = process._replace(have=process.have | {WITNESS})
        return self._set(state, number, process)

    def promised(self, state: State) -> list[Epoch]:
        known = super().promised(state)
        return known if state.document is None else [*known, state.document.promised]


def _all_know(state: State) -> bool:
    """Whether the document knows nothing which one of the nodes does not know."""
    document = state.document
    return document is None or all(
        node.promised >= document.promised
        and (node.label, len(node.history)) >= (document.label, document.length)
        for node in state.nodes
    )
