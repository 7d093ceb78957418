"""Spans: sent in the real format to a real receiver; nothing happens when nobody wants them."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.otlp_receiver import Receiver, recorded
from ganeti.utils import tracing

LIB = Path(__file__).resolve().parents[3] / "lib"


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    with recorded(monkeypatch) as one:
        yield one


def test_nothing_is_recorded_without_a_receiver(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in tracing.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    assert tracing.set_up("test") == ""
    assert not tracing.active()
    with tracing.span("nothing", parent="x") as span:
        span.set(some_fact=1)
        assert span.traceparent == "" and tracing.current() == ""
    span.end("late")
    assert span is tracing.NOTHING is tracing.begin("nothing")
    assert tracing.flush() == ""


def test_no_package_is_loaded_without_a_receiver() -> None:
    """Also in the modules which make spans."""
    code = (
        "import sys, ganeti.luxi.client, ganeti.rpc.runner, ganeti.jqueue.queue,"
        "ganeti.backend.dispatch, ganeti.cli.main\n"
        "from ganeti.utils import tracing\n"
        "assert tracing.set_up('test') == '' and not tracing.active()\n"
        "print(sorted(name for name in sys.modules if name.startswith('opentelemetry')))"
    )
    environ = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**environ, "PYTHONPATH": str(LIB)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "[]\n"


def test_parents(receiver: Receiver) -> None:
    assert tracing.set_up("a program") == ""
    with tracing.span("outer", tracing.SERVER, rpc_method="M") as outer:
        with tracing.span("inner"):
            assert tracing.current() != outer.traceparent
        assert tracing.current() == outer.traceparent
    other = tracing.begin("elsewhere", parent=outer.traceparent, at_ns=1_000)
    with other.current():
        tracing.begin("below").end("broken", at_ns=2**62)
    other.end(at_ns=5_000)
    other.end("the first end counts", at_ns=9_000)
    assert tracing.current() == ""
    assert tracing.flush() == ""
    assert set(receiver.paths) == {"/v1/traces"}
    found = {one.name: one for one in receiver.spans}
    assert len(found) == len(receiver.spans) == 4
    assert receiver.path(found["inner"]) == ["outer", "inner"]
    assert receiver.path(found["below"]) == ["outer", "elsewhere", "below"]
    assert (found["elsewhere"].begin_ns, found["elsewhere"].end_ns) == (1_000, 5_000)
    assert [one.name for one in receiver.spans if one.failed] == ["below"]
    assert found["outer"].facts == {"rpc.method": "M"} and found["outer"].service == "a program"
    assert found["outer"].kind == 2  # SPAN_KIND_SERVER


def test_an_error_is_recorded_and_goes_on(receiver: Receiver) -> None:
    tracing.set_up("test")
    with pytest.raises(KeyError), tracing.span("fails"):
        raise KeyError("x")
    tracing.flush()
    assert [(one.name, one.failed) for one in receiver.spans] == [("fails", True)]


def test_threads_have_spans_of_their_own(receiver: Receiver) -> None:
    tracing.set_up("test")
    seen: list[str] = []
    with tracing.span("here"):
        thread = threading.Thread(target=lambda: seen.append(tracing.current()))
        thread.start()
        thread.join()
    assert seen == [""]


@pytest.mark.programs
def test_forked_processes_send_their_own_spans(receiver: Receiver) -> None:
    """As the children of a node daemon: each has other identities, and sends before it ends."""
    tracing.set_up("test")
    children = []
    for _ in range(3):
        pid = os.fork()
        if pid == 0:
            with tracing.span("child"):
                pass
            os._exit(bool(tracing.flush()))
        children.append(pid)
    assert [os.waitpid(pid, 0)[1] for pid in children] == [0, 0, 0]
    assert len({one.identity for one in receiver.named("child")}) == 3


def test_the_service_of_the_environment_wins(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment=test, service.name=other")
    tracing.set_up("test")
    with tracing.span("one"):
        pass
    tracing.flush()
    assert [one.service for one in receiver.spans] == ["other"]


def test_a_trace_which_is_not_sampled_is_passed_on_and_not_sent(receiver: Receiver) -> None:
    tracing.set_up("test")
    parent = f"00-{'a' * 32}-{'b' * 16}-00"
    with tracing.span("one", parent=parent) as span:
        assert span.traceparent.startswith(f"00-{'a' * 32}-") and span.traceparent.endswith("-00")
    assert tracing.flush() == "" and receiver.spans == []


def test_a_receiver_which_refuses(receiver: Receiver) -> None:
    tracing.set_up("test")
    receiver.refuses = 400
    with tracing.span("one"):
        pass
    assert receiver.address in tracing.flush()
    receiver.refuses = 0


def test_missing_packages_are_named(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "ganeti.utils.otlp", raising=False)
    monkeypatch.delattr("ganeti.utils.otlp", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    assert "package opentelemetry is missing" in tracing.set_up("test")
    assert not tracing.active()


@pytest.mark.parametrize(
    "value",
    [None, 5, "", "00", f"00-{'A' * 32}-{'b' * 16}-01", f"00-{'a' * 32}-{'b' * 16}-01\n"],
)
def test_what_is_no_traceparent(value: object) -> None:
    assert tracing.parse_traceparent(value) == ""
