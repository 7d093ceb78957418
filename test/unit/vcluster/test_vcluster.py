"""What a virtual cluster is on disk, which network it takes, whom it may end."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import pytest

from ganeti import errors, vcluster
from ganeti.platform import hosts, paths
from ganeti.tools import daemon_util
from ganeti.utils import process
from ganeti.vcluster import command, creation, description, network, operation


def _cluster(directory: Path, nodes: int = 2) -> vcluster.VirtualCluster:
    members = tuple(
        vcluster.Node(f"node{number}.example.com", f"127.9.8.{number}")
        for number in range(1, nodes + 1)
    )
    return vcluster.VirtualCluster(str(directory), "c.example.com", "127.9.8", "fake", members)


def test_state_survives_a_round_trip(tmp_path: Path) -> None:
    cluster = _cluster(tmp_path)
    description.write(cluster)
    assert vcluster.read(str(tmp_path)) == cluster
    assert hosts.parse_hosts((tmp_path / "hosts").read_text())["node2"].ip == "127.9.8.2"
    assert cluster.node("node2").ip == "127.9.8.2"
    with pytest.raises(errors.ParameterError, match="no node 'node3'"):
        cluster.node("node3")


@pytest.mark.parametrize(
    ("content", "fragment"),
    [("{}", "is wrong"), ("[1]", "is wrong"), ("x", "is wrong"),
     ('{"version": 9}', "version 9")],
)  # fmt: skip
def test_broken_state(tmp_path: Path, content: str, fragment: str) -> None:
    (tmp_path / "vcluster.json").write_text(content)
    with pytest.raises(errors.ConfigurationError, match=fragment):
        vcluster.read(str(tmp_path))


def test_no_virtual_cluster(tmp_path: Path) -> None:
    with pytest.raises(errors.ParameterError, match="is not a virtual cluster"):
        vcluster.read(str(tmp_path))


def test_networks_are_not_shared() -> None:
    numbers = iter([1, 1, 1, 1, 2, 2])
    with network.claimed_network(3, choose=lambda low, high: 7) as one:
        assert one == "127.7.7"
        with network.claimed_network(3, choose=lambda low, high: next(numbers)) as other:
            assert other == "127.1.1"
        with (
            pytest.raises(errors.ConfigurationError, match="no network"),
            network.claimed_network(3, choose=lambda low, high: 7),
        ):
            pass
    with network.claimed_network(3, choose=lambda low, high: 7) as again:
        assert again == one


def test_a_network_with_a_listener_is_passed_over() -> None:
    numbers = iter([77, 78, 77, 79])
    with (
        socket.create_server(("127.77.78.2", hosts.NODED_PORT)),
        network.claimed_network(2, choose=lambda low, high: next(numbers)) as found,
    ):
        assert found == "127.77.79"


def test_layout_of_a_node(tmp_path: Path) -> None:
    cluster = _cluster(tmp_path)
    for node in cluster.nodes:
        creation._make_node(cluster, node, ssh=False)
    shared = tmp_path / "node2.example.com/srv/ganeti/shared-file-storage"
    assert os.readlink(shared) == str(tmp_path / "shared")
    allowed = (tmp_path / "node1.example.com/etc/ganeti/file-storage-paths").read_text()
    assert "/srv/ganeti/file-storage\n" in allowed
    assert vcluster.master(cluster) is None
    (tmp_path / "node1.example.com/var/lib/ganeti/ssconf_master_node").write_text(
        "node2.example.com\n"
    )
    assert vcluster.master(cluster) == cluster.nodes[1]


def test_without_a_command_the_commands_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main([]) == 1
    shown = capsys.readouterr()
    assert "create a cluster and start it" in shown.out and shown.err == ""


@pytest.mark.programs
def test_programs_run_as_a_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = _cluster(tmp_path / "a directory")
    monkeypatch.setattr(
        description, "programs", lambda: {"gnt-show": str(tmp_path / "show"), "daemon-util": "/x"}
    )
    (tmp_path / "show").write_text(
        "import os, sys\nprint(os.environ['GANETI_HOSTNAME'], os.environ['GANETI_ROOTDIR'],"
        " *sys.argv[1:])\n"
    )
    for node in cluster.nodes:
        creation._make_node(cluster, node, ssh=False)
    description.write(cluster)
    description.write_programs(cluster)
    show = f"{cluster.directory}/bin/gnt-show"

    def output(*argv: str, **env: str) -> str:
        return process.run(argv, timeout_s=120, env=env).stdout.strip()

    first, second = (node.name for node in cluster.nodes)
    assert output(show, "a b") == f"{first} {cluster.directory}/{first} a b"
    master_file = Path(cluster.directory, second, "var/lib/ganeti/ssconf_master_node")
    master_file.write_text(f"{second}\n")
    assert output(show).startswith(second)
    exported = operation.exports(cluster.directory, "node1")
    assert output("sh", "-c", f"{exported}\ngnt-show x") == (
        f"{first} {cluster.directory}/{first} x"
    )
    # A shell in another virtual cluster does not lead this one's programs astray.
    assert output(show, GANETI_VCLUSTER="/other", GANETI_HOSTNAME="x").startswith(second)
    assert output(f"{cluster.directory}/{first}/cmd", "gnt-show").startswith(first)


@pytest.mark.parametrize(
    ("argv", "env", "mine"),
    [
        (["/usr/bin/qemu-system-x86_64", "-pidfile", "/v/one/node1/pid"], {}, True),
        (["/usr/bin/qemu-system-x86_64", "-pidfile", "/v/onemore/node1/pid"], {}, False),
        (["python", "/p/daemons/ganeti-noded"], {"GANETI_VCLUSTER": "/v/one"}, True),
        (["python", "/p/daemons/ganeti-noded"], {"GANETI_VCLUSTER": "/v/two"}, False),
        (["python", "/p/daemons/ganeti-noded"], {}, False),
        (["vim", "/v/one/hosts"], {"GANETI_VCLUSTER": "/v/one"}, False),
        ([], {}, False),
    ],
)
def test_who_belongs(argv: list[str], env: dict[str, str], mine: bool) -> None:
    one = operation._Process(1, 1, tuple(argv), env)
    assert operation.belongs(one, "/v/one") is mine


def test_who_belongs_to_a_node() -> None:
    env = {"GANETI_VCLUSTER": "/v", "GANETI_ROOTDIR": "/v/node1"}
    one = operation._Process(1, 1, ("python", "ganeti-noded"), env)
    assert operation.belongs(one, "/v", "/v/node1")
    assert not operation.belongs(one, "/v", "/v/node2")


@pytest.mark.parametrize(
    ("words", "fragment"),
    [
        (["create", "-n", "0", "{}/new"], "1 to 200 nodes"),
        (["create", "--name", "node1", "{}/new"], "cannot be the name"),
        (["create", "{}"], "exists and is not empty"),
        (["create", "{}/file"], "exists and is not empty"),
        (["start", "{}"], "is not a virtual cluster"),
        (["destroy", "{}/nothing"], "is not a virtual cluster"),
        (["run", "{}", "true"], "is not a virtual cluster"),
    ],
)
def test_bad_input(
    tmp_path: Path, words: list[str], fragment: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    assert command.main([word.format(tmp_path) for word in words]) == 1
    assert fragment in capsys.readouterr().err
    assert sorted(os.listdir(tmp_path)) == ["file"]


@pytest.mark.programs
def test_failed_create_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bad = tmp_path / "bad"
    bad.write_text("import sys\nsys.exit('no luck today')\n")
    monkeypatch.setattr(description, "programs", lambda: {"gnt-cluster": str(bad)})
    with pytest.raises(errors.OpExecError, match="no luck today"):
        vcluster.create(str(tmp_path / "new"), vcluster.Plan(2, hypervisor="fake"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(errors.OpExecError):
        vcluster.create(str(tmp_path / "empty"), vcluster.Plan(2, hypervisor="fake"))
    assert sorted(os.listdir(tmp_path)) == ["bad", "empty"]
    assert os.listdir(tmp_path / "empty") == []


@pytest.mark.programs
@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_destroy_ends_and_unmounts_guests_which_are_directories(tmp_path: Path) -> None:
    import subprocess

    cluster = _cluster(tmp_path / "one")
    for node in cluster.nodes:
        creation._make_node(cluster, node, ssh=False)
    description.write(cluster)
    place = Path(cluster.directory) / "a guest"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "none", place], check=True)
    code = "import os, sys, signal; os.chroot(sys.argv[1]); print('up', flush=True); signal.pause()"
    guest = subprocess.Popen(
        [sys.executable, "-c", code, str(place)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert guest.stdout is not None and guest.stdout.readline() == "up\n"
        vcluster.destroy(cluster.directory)
        assert guest.wait(60) == -15 and os.listdir(tmp_path) == []
    finally:
        guest.kill()
        guest.wait()
        assert guest.stdout is not None
        guest.stdout.close()
        if os.path.ismount(place):
            subprocess.run(["umount", place], check=True)


@pytest.mark.programs
def test_destroy_ends_daemons_and_guests_of_this_cluster_only(tmp_path: Path) -> None:
    import subprocess

    code = "import time\nprint('up', flush=True)\ntime.sleep(10000)\n"
    clusters = [_cluster(tmp_path / name) for name in ("one", "two")]
    running: list[subprocess.Popen[str]] = []

    def spawn(cluster: vcluster.VirtualCluster, name: str, *argv: str, **env: str) -> None:
        program = Path(cluster.directory) / name
        program.write_text(code)
        started = subprocess.Popen(
            [sys.executable, str(program), *argv],
            env={**os.environ, **env}, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert started.stdout is not None and started.stdout.readline() == "up\n"
        running.append(started)

    try:
        for cluster in clusters:
            for node in cluster.nodes:
                creation._make_node(cluster, node, ssh=False)
            description.write(cluster)
            member = {paths.ENV_VCLUSTER: cluster.directory}
            spawn(cluster, "ganeti-noded", **member)
            spawn(cluster, "editor", **member)
        vcluster.destroy(clusters[0].directory)
        daemon, editor, other_daemon, other_editor = running
        assert daemon.wait(60) == -15
        assert [one.poll() for one in (editor, other_daemon, other_editor)] == [None] * 3
        assert os.listdir(tmp_path) == ["two"]
    finally:
        for one in running:
            one.kill()
            one.wait()
            assert one.stdout is not None
            one.stdout.close()


def test_what_was_found_out_about_qemu_is_handed_on(tmp_path: Path) -> None:
    build, cluster = tmp_path / "build", tmp_path / "vc"
    cluster.mkdir()
    creation._copy_facts(str(build), str(cluster))
    assert list(cluster.iterdir()) == []
    (cluster / ".qemu-12").write_text("new")
    (cluster / "hosts").write_text("not this")
    creation._copy_facts(str(cluster), str(build))
    assert {path.name: path.read_text() for path in build.iterdir()} == {".qemu-12": "new"}
    (build / ".qemu-12").write_text("newer")
    creation._copy_facts(str(build), str(cluster))
    assert (cluster / ".qemu-12").read_text() == "newer"


def test_a_checkout_of_somebody_else_keeps_its_facts(tmp_path: Path) -> None:
    (tmp_path / ".qemu-12").write_text("new")
    # Not a directory: nothing can be put there.
    creation._copy_facts(str(tmp_path), str(tmp_path / ".qemu-12"))
    assert (tmp_path / ".qemu-12").read_text() == "new"


def test_show_counts_the_guests_of_every_hypervisor(tmp_path: Path) -> None:
    cluster = _cluster(tmp_path)
    description.write(cluster)
    first, second = (cluster.paths(node) for node in cluster.nodes)
    for directory, name in (
        (f"{first.kvm_root}/pid", "web.example.com"),
        (first.fake_root, "idle.example.com"),
    ):
        os.makedirs(directory)
        Path(directory, name).touch()
    rows = operation.show(str(tmp_path)).splitlines()
    assert rows[2].endswith("idle.example.com web.example.com")
    assert rows[3].endswith("none")


def test_every_daemon_ends_with_its_cluster() -> None:
    """Virtual clusters know each daemon which a node may have."""
    assert set(operation._DAEMONS) == set(daemon_util.START_ORDER)
