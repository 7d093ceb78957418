"""``gnt-instance remove``, and questions before something is lost."""

from __future__ import annotations

import pytest

from fakes.luxi_master import FakeMaster
from ganeti.cli import terminal

from ..conftest import Gnt


@pytest.fixture(autouse=True)
def _instances(master: FakeMaster) -> None:
    master.rows["instance"] = [{"name": "web1"}]


def test_forced(gnt: Gnt, master: FakeMaster) -> None:
    assert gnt("instance remove -f --ignore-failures --shutdown-timeout 5 web1") == (0, "", "")
    sent = master.opcode()
    assert (
        sent["OP_ID"],
        sent["instance_name"],
        sent["ignore_failures"],
        sent["shutdown_timeout"],
        sent["instance_uuid"],
    ) == ("OP_INSTANCE_REMOVE", "web1", True, 5, None)
    # Nobody is asked, so the name is not looked up first.
    assert master.methods()[0] == "SubmitJob"


def test_nobody_to_ask(gnt: Gnt, master: FakeMaster) -> None:
    ended = gnt("instance remove web1")
    assert (ended.code, ended.out) == (1, "")
    assert "--force" in ended.err
    assert master.opcodes() == []


@pytest.mark.parametrize(("answer", "code", "jobs"), [(True, 0, 1), (False, 13, 0)])
def test_asked(
    answer: bool,
    code: int,
    jobs: int,
    gnt: Gnt,
    master: FakeMaster,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    questions: list[str] = []

    def confirm(question: str) -> bool:
        questions.append(question)
        return answer

    monkeypatch.setattr(terminal, "can_ask", lambda: True)
    monkeypatch.setattr(terminal, "confirm", confirm)
    assert gnt("instance remove web1").code == code
    assert len(master.opcodes()) == jobs
    assert "web1" in questions[0]


def test_a_wrong_name_is_said_before_the_question(gnt: Gnt, master: FakeMaster) -> None:
    ended = gnt("instance remove nosuch")
    assert ended.code == 1
    assert "error type: unknown_entity" in ended.err
    assert "--force" not in ended.err


def test_dry_run_and_submit(gnt: Gnt, master: FakeMaster) -> None:
    assert gnt("instance remove -f --dry-run --submit web1") == (0, "", "JobID: 1\n")
    assert master.opcode()["dry_run"] is True
