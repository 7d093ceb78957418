"""The metrics which the master daemon reads when it is asked for them."""

from __future__ import annotations

from typing import Any

import pytest

from fakes.config import FakeConfig, cluster_of
from fakes.rpc import FakeRpc
from ganeti.cmdlib.base import MasterContext
from ganeti.locking import LockManager
from ganeti.master import metrics
from ganeti.mond import openmetrics

NAME = "ganeti_master_commit_confirmed_age_seconds"


@pytest.fixture
def context() -> MasterContext:
    config = FakeConfig(cluster_of())
    return MasterContext(config, LockManager({}), FakeRpc(config))  # type: ignore[arg-type]


def shown(context: MasterContext) -> list[str]:
    """The lines of the page of the monitoring daemon about the confirmation."""
    found: list[dict[str, Any]] = metrics.measured(context)
    text = openmetrics.render(openmetrics.of_master(found))
    return [line for line in text.splitlines() if line.startswith(NAME)]


def test_the_time_since_a_majority_confirmed(context: MasterContext) -> None:
    age_s = 0.0
    context.commit_age = lambda: age_s
    assert shown(context) == [f"{NAME} 0.0"]
    age_s = 61.2504
    assert shown(context) == [f"{NAME} 61.25"]


def test_where_the_role_does_not_move_there_is_no_such_time(context: MasterContext) -> None:
    """Zero would say that the master is well, and nobody was asked."""
    assert context.commit_age() is None
    assert shown(context) == []
