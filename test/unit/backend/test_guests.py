"""What a node sees of its guests."""

from __future__ import annotations

import pytest

from ganeti import errors
from ganeti.backend.instance import guests
from ganeti.hypervisor.net import neighbours

MAC = "aa:00:00:00:00:0a"


class Driver:
    """Two guests run; one has an agent."""

    def __init__(self) -> None:
        self.listed = 0
        self.asked: list[str] = []

    def list_instances(self) -> list[str]:
        self.listed += 1
        return ["web", "db"]

    def started_at(self, name: str) -> float | None:
        return {"web": 1000.0}.get(name)

    def agent_addresses(self, name: str) -> list[str]:
        self.asked.append(name)
        return ["192.0.2.1"] if name == "web" else []


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    made = Driver()
    monkeypatch.setattr(guests.drivers, "of", lambda kind: made)
    monkeypatch.setattr(neighbours, "leased", lambda: {MAC: ["192.0.2.1", "192.0.2.2"]})
    monkeypatch.setattr(neighbours, "seen", lambda: {MAC: ["192.0.2.2", "192.0.2.3"]})
    return made


def test_each_address_has_its_best_source(driver: Driver) -> None:
    asked = {"web": ["kvm", [MAC.upper()]], "db": ["kvm", []], "old": ["kvm", [MAC]]}
    assert guests.details(asked) == {
        "web": {
            "started": 1000.0,
            "addresses": [
                ["192.0.2.1", "guest agent"],
                ["192.0.2.2", "lease"],
                ["192.0.2.3", "seen by the node"],
            ],
        },
        "db": {"started": None, "addresses": []},
    }
    assert driver.listed == 1
    assert sorted(driver.asked) == ["db", "web"]


def test_a_list_waits_for_agents_only_some_seconds(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guests, "_AGENTS_S", -1.0)
    found = guests.details({"web": ["kvm", [MAC]], "db": ["kvm", []]})
    assert driver.asked == []
    assert found["web"]["addresses"][0] == ["192.0.2.1", "lease"]


def test_nobody_to_ask(driver: Driver) -> None:
    assert guests.details({}) == {}


def test_a_hypervisor_which_does_not_answer_is_no_guest_which_stopped(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> list[str]:
        raise errors.HypervisorError("no answer")

    monkeypatch.setattr(driver, "list_instances", fail)
    with pytest.raises(errors.HypervisorError):
        guests.details({"web": ["kvm", [MAC]]})
