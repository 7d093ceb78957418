"""The cluster's tags have no lock: jobs which change them at the same moment all succeed."""

from __future__ import annotations

import threading

import pytest

from fakes.config import cluster_of
from fakes.master import Master
from ganeti import errors
from ganeti.cmdlib.ops.tags import objects
from ganeti.constants import tags as tags_c
from ganeti.opcodes.tags import OpTagsDel, OpTagsSet


def tags_of(master: Master) -> set[str]:
    return set(master.config.cluster().tags)


def test_nobody_undoes_what_another_one_did(monkeypatch: pytest.MonkeyPatch) -> None:
    master = Master(cluster_of(1))
    master.run(OpTagsSet(kind="cluster", name=None, tags=["old", "gone"]))
    stale = master.config.cluster()
    master.run(OpTagsSet(kind="cluster", name=None, tags=["meanwhile"]))
    # Both looked at the cluster before the last change was made.
    monkeypatch.setattr(objects, "fresh", lambda config, kind, obj: stale)
    master.run(OpTagsSet(kind="cluster", name=None, tags=["new"]))
    master.run(OpTagsDel(kind="cluster", name=None, tags=["gone"]))
    assert tags_of(master) == {"old", "meanwhile", "new"}


def test_too_many_together(monkeypatch: pytest.MonkeyPatch) -> None:
    master = Master(cluster_of(1))
    stale = master.config.cluster()
    most = [f"t{number}" for number in range(tags_c.MAX_PER_OBJECT)]
    master.run(OpTagsSet(kind="cluster", name=None, tags=most))
    monkeypatch.setattr(objects, "fresh", lambda config, kind, obj: stale)
    with pytest.raises(errors.OpPrereqError, match="at most"):
        master.run(OpTagsSet(kind="cluster", name=None, tags=["one.more"]))
    assert tags_of(master) == set(most)


def test_many_threads() -> None:
    master = Master(cluster_of(1))
    wrong: list[BaseException] = []
    making = threading.Lock()

    def add(number: int) -> None:
        try:
            for turn in range(5):
                op = OpTagsSet(kind="cluster", name=None, tags=[f"t{number}.{turn}"])
                with making:
                    job = master.new_job()
                # Not master.run, which wants that nobody at all holds a lock afterwards.
                master.processor.execute(op, job)
        except BaseException as err:  # noqa: BLE001 - told below
            wrong.append(err)

    threads = [threading.Thread(target=add, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert master.locks.owners() == []
    assert len(tags_of(master)) == 30
