"""The first commands of somebody who is new, with their mistakes: whole screens are compared.

``test/data/newcomer/80.txt`` and ``120.txt`` hold the screens of terminals with 80 and 120 columns.
After a change of a text, ``GANETI_RECORD=1 pytest test/scenario/test_newcomer.py`` writes them
again; read the difference as a user would read the screens.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import screens
from harness import ROOT, Cluster

DATA = ROOT / "test/data/newcomer"
RECORD = os.environ.get("GANETI_RECORD") == "1"

#: What a text for people never contains.
_NOT_FOR_PEOPLE = re.compile(r"Traceback|\bOP_[A-Z]+|call '|\bUUID of\b")


@pytest.fixture(scope="module", params=[80, 120])
def seen(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[
    tuple[int, list[screens.Step], list[screens.Step]]
]:  # fmt: skip
    """The columns, the steps as they are recorded, and as they are now."""
    if os.geteuid():
        pytest.skip("needs root: otherwise the name of the user is in the lists of jobs")
    columns: int = request.param
    with pytest.MonkeyPatch.context() as patch:
        # Otherwise the lists of jobs name the person who has called the tests.
        patch.setenv("SUDO_USER", "kim")
        cluster = Cluster(tmp_path_factory.mktemp("newcomer") / "vc", 3, "--hypervisor", "fake")
    try:
        cluster.create.ok()
        # Whatever is installed on this machine.
        cluster.run("gnt-cluster", "modify", "--enabled-hypervisors=fake").ok()
        cluster.make_os("debian")
        enter = [str(cluster.node_root("node1.example.com") / "cmd")]
        terminal = screens.Terminal(columns, enter, cluster.environment)
        recorded = screens.read(DATA / f"{columns}.txt")
        now = [terminal.type(step.command, step.answers) for step in recorded]
        if RECORD:
            (DATA / f"{columns}.txt").write_text("\n".join(step.text() for step in now))
        yield columns, recorded, now
    finally:
        cluster.destroy()


def test_the_screens_are_as_recorded(
    seen: tuple[int, list[screens.Step], list[screens.Step]],
) -> None:
    columns, recorded, now = seen
    before, after = ("\n".join(step.text() for step in steps) for steps in (recorded, now))
    difference = difflib.unified_diff(
        before.splitlines(), after.splitlines(), f"{columns} columns, recorded", "now", lineterm=""
    )
    assert RECORD or before == after, "\n".join(difference)


def test_a_text_for_people_has_no_word_for_programs(
    seen: tuple[int, list[screens.Step], list[screens.Step]],
) -> None:
    for step in seen[2]:
        assert not _NOT_FOR_PEOPLE.search(step.screen), step.text()


def test_there_are_at_least_25_commands_and_mistakes_end_with_an_error(
    seen: tuple[int, list[screens.Step], list[screens.Step]],
) -> None:
    assert len(seen[2]) >= 25
    assert sum(1 for step in seen[2] if step.exit_code) >= 8


def test_both_widths_have_the_same_commands() -> None:
    narrow, wide = (screens.read(Path(DATA / f"{columns}.txt")) for columns in (80, 120))
    assert [(step.command, step.answers) for step in narrow] == [
        (step.command, step.answers) for step in wide
    ]
