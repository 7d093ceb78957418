"""What verification says of guests which run as root."""

from __future__ import annotations

from typing import Any

import pytest

from fakes.config import cluster_of, instance_of, uuid_of
from ganeti.cmdlib.ops.verify import guest_users
from ganeti.cmdlib.ops.verify.findings import Findings
from ganeti.objects import hvparams, updated
from ganeti.opcodes.cluster import OpClusterVerifyGroup


def lines(
    *,
    model: str = "none",
    users: tuple[int | None, ...] = (0, 0),
    own: dict[str, Any] | None = None,
    of_os: dict[str, Any] | None = None,
    **changes: Any,
) -> list[str]:
    data = cluster_of(2, enabled_hypervisors=("kvm", "fake"), **changes)
    filled = {**hvparams.defaults("kvm"), "security_model": model}
    cluster = updated(
        data.cluster,
        hvparams={"kvm": filled},
        os_hvp={"tiny": {"kvm": of_os}} if of_os else {},
    )
    web = updated(
        instance_of("web", "node1"), hypervisor="kvm", os="tiny", hvparams=dict(own or {})
    )
    answers = {
        uuid_of(f"node{number}"): {} if user is None else {"daemon-user": user}
        for number, user in enumerate(users, 1)
    }
    found: list[str] = []
    findings = Findings(found.append, OpClusterVerifyGroup(group_name="default", error_codes=True))
    guest_users.check(findings, cluster, [web], data.nodes.values(), answers)
    assert not findings.failed
    return found


def test_one_warning_names_the_nodes_and_the_command() -> None:
    (line,) = lines()
    assert line.startswith("  - WARNING:ECLUSTERCFG:cluster::guests of hypervisor kvm run as root")
    assert "node1.example.com, node2.example.com" in line
    assert "gnt-cluster modify --uid-pool=auto -H kvm:security_model=pool" in line


def test_a_pool_is_not_made_twice() -> None:
    (line,) = lines(uid_pool=((10, 20),))
    assert "gnt-cluster modify -H kvm:security_model=pool" in line


def test_nodes_whose_daemon_is_not_root_are_left_out() -> None:
    assert lines(users=(1000, 1000)) == []
    assert lines(users=(None, None)) == []
    (line,) = lines(users=(1000, 0))
    assert "on node2.example.com, because" in line


@pytest.mark.parametrize("model", ["pool", "user"])
def test_guests_with_other_users_are_fine(model: str) -> None:
    assert lines(model=model) == []
    assert lines(model=model, own={"security_model": "user"}) == []


@pytest.mark.parametrize("where", ["own", "of_os"])
def test_an_instance_with_a_value_of_its_own(where: str) -> None:
    given: dict[str, Any] = {where: {"security_model": "none"}}
    (line,) = lines(model="pool", **given)
    assert "web.example.com. Use 'gnt-instance modify -H security_model=pool'" in line
    assert lines(model="pool", users=(1000, 0), **given) == []
