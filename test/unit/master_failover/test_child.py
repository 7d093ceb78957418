"""The tasks of the failover daemon: what each one does when a step fails."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from ganeti import errors, rpc
from ganeti.bootstrap import failover
from ganeti.config import ssconf
from ganeti.master_failover import child
from ganeti.platform import machine
from ganeti.rpc import Result

REFUSED = errors.NodeCallFailed("node1", "node_start_master_daemons", "it may not be the master")


@pytest.fixture
def restart(monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Run the task ``restart``; the name of the task which made this node the master again."""

    def run(
        failure: errors.RpcError | None, *, lacks_data: bool | None, master: str = "node1"
    ) -> str:
        class Runner:
            def __init__(self, _client: object) -> None:
                pass

            def call_addresses(self, _call, addresses, **_args):
                return {name: Result(name, failure=failure) for name in addresses}

        monkeypatch.setattr(rpc, "AddressRunner", Runner)
        monkeypatch.setattr(rpc, "open_client", lambda: None)
        monkeypatch.setattr(
            ssconf, "SimpleStore", lambda: SimpleNamespace(node_primary_ips=lambda: {"node1": "x"})
        )
        monkeypatch.setattr(machine, "current", lambda: SimpleNamespace(hostname=lambda: "node1"))

        def survey() -> SimpleNamespace:
            if lacks_data is None:
                raise errors.OpPrereqError("no candidate")
            return SimpleNamespace(
                lacks_data=lacks_data, me="node1", old=SimpleNamespace(name=master)
            )

        monkeypatch.setattr(failover, "survey", survey)
        monkeypatch.setattr(failover, "failover", lambda **_options: [])
        return child.TASKS[child.RESTART]()

    return run


def test_the_daemon_is_started(restart: Callable[..., str]) -> None:
    assert restart(None, lacks_data=False) == "the master daemon was started"


def test_jobs_which_only_another_node_has_are_fetched(restart: Callable[..., str]) -> None:
    """A former master has left them; the daemon refuses to start while it lacks them."""
    assert restart(REFUSED, lacks_data=True) == "this node is the master now"


def test_a_master_which_was_replaced_meanwhile_does_not_take_the_role_back(
    restart: Callable[..., str],
) -> None:
    with pytest.raises(errors.NodeCallFailed, match="it may not be the master"):
        restart(REFUSED, lacks_data=True, master="node2")


def test_another_failure_is_reported(restart: Callable[..., str]) -> None:
    with pytest.raises(errors.NodeCallFailed, match="it may not be the master"):
        restart(REFUSED, lacks_data=False)
    with pytest.raises(errors.NodeCallFailed, match="it may not be the master"):
        restart(REFUSED, lacks_data=None)
    lost = errors.NodeUnreachable("node1", "node_start_master_daemons", "no connection")
    with pytest.raises(errors.NodeUnreachable):
        restart(lost, lacks_data=True)
