"""Nodes with different hypervisors: what a group lacks is not asked for, and not used."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from harness import Cluster

WEB = "web.example.com"
NODE1, NODE2, NODE3 = (f"node{number}.example.com" for number in (1, 2, 3))

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Node 1 has ``fake``; the others, in group rack2, also ``chroot``; none has Xen."""
    found = Cluster(tmp_path_factory.mktemp("mixed") / "vc", 3, "--hypervisor", "fake")
    try:
        found.make_os("noop")
        yield found
    finally:
        found.destroy()


def test_a_hypervisor_which_only_some_nodes_have(cluster: Cluster) -> None:
    enable = ("gnt-cluster", "modify", "--enabled-hypervisors=fake,chroot,xen-pvm")
    # No machine of this test has Xen, so the cluster cannot have it for all nodes.
    cluster.run(*enable).failed("xen-pvm")
    cluster.run("gnt-group", "modify", "--enabled-hypervisors=fake", "default").ok()
    cluster.run("gnt-group", "add", "rack2").ok()
    cluster.run("gnt-group", "modify", "--enabled-hypervisors=fake", "rack2").ok()
    cluster.run("gnt-group", "assign-nodes", "rack2", NODE2, NODE3).ok()
    cluster.run(*enable).ok()
    cluster.run("gnt-group", "modify", "--enabled-hypervisors=fake,chroot", "rack2").ok()
    fields = ("-o", "name,enabled_hypervisors")
    assert cluster.rows("gnt-group", "list", *fields) == [
        ["default", "fake"],
        ["rack2", "fake,chroot"],
    ]
    # A hypervisor which a group does not have is not a problem there.
    verified = cluster.run("gnt-cluster", "verify").ok()
    assert "xen" not in verified.text
    cluster.run("gnt-group", "modify", "--enabled-hypervisors=default", "default").ok()
    assert "xen" in cluster.run("gnt-cluster", "verify").failed("xen").text
    cluster.run("gnt-group", "modify", "--enabled-hypervisors=fake", "default").ok()


def test_an_instance_is_only_where_its_hypervisor_is(cluster: Cluster) -> None:
    cluster.add_instance(WEB, NODE1, "-o", "noop").ok()
    assert cluster.rows("gnt-instance", "list", "-o", "name,hypervisor,status") == [
        [WEB, "fake", "ADMIN_down"]
    ]
    change = ("gnt-instance", "modify", "-H", "chroot:init_script=/bin/true", WEB)
    cluster.run(*change).failed("whose nodes have no hypervisor chroot, only fake")
    cluster.run("gnt-instance", "remove", "-f", WEB).ok()
    cluster.add_instance(WEB, NODE2, "-o", "noop").ok()
    plan = cluster.run(*change[:2], "--dry-run", *change[2:]).ok()
    assert "hypervisor -> chroot" in plan.text
    assert "hypervisor -> chroot" in cluster.run(*change).ok().text
    assert cluster.rows("gnt-instance", "list", "-o", "hypervisor,hv/init_script") == [
        ["chroot", "/bin/true"]
    ]
    cluster.run("gnt-group", "modify", "--enabled-hypervisors=fake", "rack2").failed(
        f"{WEB} (chroot)", "gnt-instance modify -H"
    )
    cluster.run("gnt-group", "evacuate", "--to=default", "-I", "hail", "rack2").failed("chroot")
    back = ("gnt-instance", "modify", "-H", "fake", WEB)
    cluster.run(*back).ok()
    cluster.run("gnt-instance", "startup", WEB).ok()
    cluster.run(*back[:3], "chroot", WEB).failed("up")
    cluster.run("gnt-cluster", "verify").ok()
