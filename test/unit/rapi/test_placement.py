"""Questions about placement: processes with limits, and what the clients get."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fakes.rest_client import Rest, rest_lab
from fakes.rest_master import FakeMaster
from ganeti import errors
from ganeti.http.messages import Refused
from ganeti.rapi import placement
from ganeti.rapi.placement import Placement

pytestmark = pytest.mark.programs

#: A program which writes its number into a directory, and answers with its question.
ECHO = """
import json, os, sys
asked = json.load(sys.stdin)
open(os.path.join(sys.argv[1], str(os.getpid())), "w").close()
print(json.dumps({"answer": asked}))
"""
#: One which never ends.
HANGS = """
import os, sys, time
sys.stdin.read()
open(os.path.join(sys.argv[1], str(os.getpid())), "w").close()
while True:
    time.sleep(60)
"""


class Lab:
    """Placement with a program, a clock, and a state of the configuration."""

    def __init__(self, directory: Path, program: str, **more: Any) -> None:
        self.directory = directory
        self.state: str | None = "s1"
        self.now = 0.0
        self.master = FakeMaster()
        self.master.answers["QueryPage"] = lambda *_: {"state": self.state}
        self.placement = Placement(
            self.master,
            command=[sys.executable, "-c", program, str(directory)],
            clock=lambda: self.now,
            **more,
        )

    def started(self) -> list[int]:
        return sorted(int(path.name) for path in self.directory.iterdir())

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not condition():
                await asyncio.sleep(0.01)


def alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_an_answer_is_given_again_until_something_changes(tmp_path: Path) -> None:
    async def check() -> None:
        lab = Lab(tmp_path, ECHO)
        first = await lab.placement.ask("capacity", ["--group=x"], {})
        assert first == {"question": "capacity", "options": ["--group=x"], "body": {}}
        assert await lab.placement.ask("capacity", ["--group=x"], {}) == first
        assert len(lab.started()) == 1
        await lab.placement.ask("capacity", ["--group=y"], {})
        assert len(lab.started()) == 2
        # The configuration has changed.
        lab.state = "s2"
        await lab.placement.ask("capacity", ["--group=x"], {})
        assert len(lab.started()) == 3
        # What nodes say changes without it.
        lab.now += placement.FRESH_S + 1
        await lab.placement.ask("capacity", ["--group=x"], {})
        assert len(lab.started()) == 4

    asyncio.run(check())


def test_few_processes_run_at_a_time(tmp_path: Path) -> None:
    async def check() -> None:
        lab = Lab(tmp_path, HANGS)
        tasks = [asyncio.create_task(lab.placement.ask("balance", [str(n)], {})) for n in (1, 2)]
        await lab.until(lambda: len(lab.started()) == 2)
        with pytest.raises(Refused, match="2 questions about placement") as caught:
            await lab.placement.ask("balance", ["3"], {})
        assert caught.value.status == 503
        assert ("Retry-After", "5") in caught.value.headers
        # Nobody waits for one of them any more; its process ends, and another question has room.
        tasks[0].cancel()
        await lab.until(lambda: sum(map(alive, lab.started())) == 1)
        third = asyncio.create_task(lab.placement.ask("balance", ["3"], {}))
        await lab.until(lambda: len(lab.started()) == 3)
        for task in (tasks[1], third):
            task.cancel()
        await asyncio.gather(*tasks, third, return_exceptions=True)
        await lab.until(lambda: not any(map(alive, lab.started())))

    asyncio.run(check())


def test_clients_with_the_same_question_wait_for_one_process(tmp_path: Path) -> None:
    async def check() -> None:
        lab = Lab(tmp_path, HANGS)
        tasks = [asyncio.create_task(lab.placement.ask("balance", [], {})) for _ in range(5)]
        await lab.until(lambda: len(lab.started()) == 1)
        for task in tasks[:4]:
            task.cancel()
        await asyncio.gather(*tasks[:4], return_exceptions=True)
        (pid,) = lab.started()
        assert alive(pid)
        tasks[4].cancel()
        # One who asks now gets a process of its own, and not the end of the other one.
        await asyncio.sleep(0)
        again = asyncio.create_task(lab.placement.ask("balance", [], {}))
        await lab.until(lambda: len(lab.started()) == 2)
        assert not again.done()
        again.cancel()
        await asyncio.gather(tasks[4], again, return_exceptions=True)
        await lab.until(lambda: not any(map(alive, lab.started())))

    asyncio.run(check())


def test_a_process_which_takes_too_long_is_ended(tmp_path: Path) -> None:
    async def check() -> None:
        lab = Lab(tmp_path, HANGS, time_s=0.5)
        with pytest.raises(Refused, match="Ask about one group") as caught:
            await lab.placement.ask("balance", [], {})
        assert caught.value.status == 503
        assert not any(map(alive, lab.started()))

    asyncio.run(check())


@pytest.mark.parametrize(
    ("program", "status", "text"),
    [
        ("import os; os.kill(os.getpid(), 9)", 503, "takes more than"),
        ("raise SystemExit(5)", 500, "The log of the REST daemon"),
        ("print('x')", 500, "cannot be read"),
        ("""print('{"error": "no such group"}')""", 400, "no such group"),
        ("""print('{"error": "full", "conflict": true}')""", 409, "full"),
    ],
)
def test_a_process_without_an_answer(tmp_path: Path, program: str, status: int, text: str) -> None:
    async def check() -> None:
        lab = Lab(tmp_path, program)
        with pytest.raises(Refused, match=text) as caught:
            await lab.placement.ask("balance", [], {})
        assert caught.value.status == status

    asyncio.run(check())


def test_the_answers_which_are_kept_are_bounded(tmp_path: Path) -> None:
    async def check() -> None:
        lab = Lab(tmp_path, ECHO)
        for number in range(6):
            await lab.placement.ask("balance", [str(number)], {"x": "y" * 3_000_000})
        assert sum(len(one.text) for one in lab.placement._kept.values()) < 9_000_000

    asyncio.run(check())


def test_the_program_reads_the_cluster_from_the_master(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The usual program, which finds no master here."""

    async def check() -> None:
        monkeypatch.setenv("PYTHONPATH", ":".join(sys.path))
        lab = Lab(tmp_path, ECHO)
        usual = Placement(lab.master)
        with pytest.raises(Refused) as caught:
            await usual.ask("balance", ["--nosuch"], {})
        assert "nosuch" in str(caught.value)

    asyncio.run(check())


def test_no_master(tmp_path: Path) -> None:
    async def check() -> None:
        lab = Lab(tmp_path, ECHO)
        lab.master.answers["QueryPage"] = errors.NoMasterError("no master")
        with pytest.raises(errors.NoMasterError):
            await lab.placement.ask("balance", [], {})
        assert lab.started() == []

    asyncio.run(check())


# -- the resources ---------------------------------------------------------------------------------


class Recorder(Placement):
    """Keeps the questions."""

    def __init__(self) -> None:
        super().__init__(FakeMaster())
        self.asked: list[Any] = []

    async def ask(self, question: str, options: Any, body: Any) -> dict[str, Any]:
        self.asked.append((question, options, dict(body)))
        return {"unknown_nodes": []}


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    found = Recorder()
    monkeypatch.setattr(placement.Placement, "ask", found.ask)
    return found


def test_arguments_become_options(tmp_path: Path, recorder: Recorder) -> None:
    with rest_lab(tmp_path, users="look pw read\nnone pw\n") as rest:
        ask(rest, "GET", "/2/capacity?group=rack2&max-length=5&no-capacity-checks=1")
        ask(rest, "GET", "/2/capacity?independent_groups=0&min-disk=0.1")
        ask(rest, "GET", "/2/balance?evac-mode=1&min-gain=-1&select-instances=a,b")
        ask(rest, "GET", "/2/balance?group=--exec")
        ask(rest, "POST", "/2/what-if?group=g", {"changes": ["fail-node=n1"]})
        body = {"memory": 1, "vcpus": 1, "disks": [1]}
        ask(rest, "POST", "/2/place?ignore-soft-errors=1", body)
        assert recorder.asked[:5] == [
            ("capacity", ["--group=rack2", "--max-length=5", "--no-capacity-checks"], {}),
            ("capacity", ["--min-disk=0.1"], {}),
            ("balance", ["--evac-mode", "--min-gain=-1", "--select-instances=a,b"], {}),
            ("balance", ["--group=--exec"], {}),
            ("what-if", ["--group=g"], {"changes": ["fail-node=n1"], "balance": False}),
        ]
        question, words, sent = recorder.asked[5]
        assert (question, words) == ("place", ["--ignore-soft-errors"])
        assert {name: sent[name] for name in body} == body


def ask(rest: Rest, method: str, path: str, body: Any = None) -> None:
    status, found, _headers = rest(method, path, body, user="look:pw")
    assert (status, found) == (200, {"unknown_nodes": []}), found


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/2/capacity", None),
        ("GET", "/2/balance", None),
        ("POST", "/2/what-if", {"changes": []}),
        ("POST", "/2/place", {"memory": 1, "vcpus": 1, "disks": []}),
    ],
)
def test_questions_need_the_right_to_read(
    tmp_path: Path, recorder: Recorder, method: str, path: str, body: Any
) -> None:
    with rest_lab(tmp_path, users="look pw read\nnone pw\n") as rest:
        assert rest(method, path, body, user=None)[0] == 401
        assert rest(method, path, body, user="none:pw")[0] == 403
        assert not recorder.asked
        assert rest(method, path, body, user="look:pw")[0] == 200


@pytest.mark.parametrize(
    ("path", "body", "text"),
    [
        ("/2/what-if", {}, "required parameter 'changes' is missing"),
        ("/2/what-if", {"changes": "x"}, "must be a list"),
        ("/2/what-if", {"changes": ["x"] * 101}, "at most 100"),
        ("/2/what-if", {"changes": [], "exec": True}, "unknown parameter 'exec'"),
        ("/2/place", {"memory": 1, "vcpus": 1}, "required parameter 'disks' is missing"),
        ("/2/place", {"memory": -1, "vcpus": 1, "disks": []}, "'memory' must be"),
        ("/2/place", {"memory": 1, "vcpus": 1, "disks": [0]}, "'disks' must be"),
        ("/2/place", {"memory": 1, "vcpus": 1, "disks": [], "node": "a"}, "Did you mean 'nodes'"),
    ],
)
def test_a_wrong_body_says_what_is_wrong(
    tmp_path: Path, recorder: Recorder, path: str, body: Any, text: str
) -> None:
    with rest_lab(tmp_path) as rest:
        status, found, _headers = rest("POST", path, body)
        assert status == 400 and text in found["explain"]
        assert not recorder.asked
