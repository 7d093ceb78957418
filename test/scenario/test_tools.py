"""The programs around the cluster: demonstration, measurement, installation, stop and start."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from harness import ROOT, Cluster, Finished, alive, run_program, wait_until

from ganeti import RELEASE

# The man pages are installed, and looked for, by one of the tests.
#: The version, such as 0.9.
SERIES = RELEASE.rpartition(".")[0]
INSTALL = (str(ROOT / "devel/install-ganeti"), "--no-man", "--python", sys.executable)


def _devel(module: str, *args: str) -> Finished:
    """Run a program for developers as make does."""
    environment = {**Cluster.outside(), "PYTHONPATH": f"{ROOT}/lib:{ROOT}"}
    return run_program((sys.executable, "-m", f"devel.{module}", *args), environment)


@pytest.mark.parametrize("hypervisor", ["fake", pytest.param("kvm", marks=pytest.mark.long)])
def test_demonstration(cluster_directory: Path, hypervisor: str) -> None:
    if hypervisor == "kvm" and shutil.which("qemu-system-x86_64") is None:
        pytest.skip("QEMU (qemu-system-x86) is not installed")
    directory = str(cluster_directory)
    try:
        shown = _devel("demo", "--hypervisor", hypervisor, directory).ok().stdout
        assert ("gnt-instance console" in shown) is (hypervisor == "kvm")
        if hypervisor == "kvm":
            assert "the guest was not restarted" in shown
            assert re.search("the guest stood still for .*migration_downtime", shown, re.DOTALL)
            assert "it booted again: boot 2-" in shown
        assert "ERROR" not in shown
        _devel("demo", directory).failed("exists")
        command = (f"{directory}/bin/gnt-instance", "list")
        listed = run_program(command, Cluster.outside()).ok().stdout
        assert listed.count("running") == 2
    finally:
        _devel("demo", "--stop", directory).ok()
    assert not cluster_directory.exists()
    _devel("demo", "--stop", directory).ok()


@pytest.mark.long
def test_measurement() -> None:
    sections = "commands,jobs,backlog"
    done = _devel("bench", "--quick", "--json", "-", "--sections", sections).ok()
    figures = json.loads(done.stdout)["figures"]
    assert set(figures) == {
        "job_latency_1", "job_latency_p99_1", "acceptance_1", "sustained_1", "master_cpu_1",
        "nodes_cpu_1", "instance_list", "first_request", "masterd_start", "list_p99",
        "list_some_p99", "job_memory", "restart",
    }  # fmt: skip
    # CPU time is counted in hundredths of a second, and one node has nobody to send copies to.
    assert all(figure["value"] > 0 for name, figure in figures.items() if "_cpu_" not in name)


@pytest.mark.long
def test_guests_outlive_the_daemons(cluster: Cluster) -> None:
    master, node = cluster.master, cluster.node_names[1]
    cluster.run(
        "gnt-instance", "add", "-t", "diskless", "--no-install", "--no-nics", "-n", node, "a"
    ).ok()
    cluster.run("gnt-instance", "start", "a").ok()
    pids = [cluster.pid(master, "ganeti-masterd"), cluster.pid(node, "ganeti-noded")]
    directory = str(cluster.directory)
    cluster.vcluster("stop", directory).ok()
    assert not [pid for pid in pids if alive(pid)]
    cluster.run("gnt-instance", "list").failed("ganeti-masterd")
    cluster.vcluster("stop", directory).ok()
    cluster.vcluster("start", directory).ok()
    cluster.vcluster("start", directory).ok()
    assert cluster.rows("gnt-instance", "list", "-o", "status", "a") == [["running"]]
    cluster.run("gnt-instance", "remove", "--force", "a").ok()


def test_logs_are_rotated_by_signal(cluster: Cluster) -> None:
    node = cluster.node_names[1]
    log = cluster.path(node, "var/log/ganeti/node-daemon.log")
    log.rename(log.with_suffix(".1"))
    cluster.vcluster(
        "run", "--node", node, str(cluster.directory), "daemon-util", "rotate-all-logs"
    ).ok()
    wait_until(log.exists, "the daemon has opened a new log")
    assert log.stat().st_mode & 0o777 == 0o600


def test_a_second_cluster_does_not_fit_into_the_same_directory(cluster: Cluster) -> None:
    before = cluster.run("gnt-node", "list").ok().stdout
    cluster.vcluster("create", str(cluster.directory)).failed("not empty")
    assert len(cluster.run("gnt-node", "list").ok().stdout) == len(before)


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where everything is installed, with the man pages."""
    found = tmp_path_factory.mktemp("installed") / "usr"
    installer = str(ROOT / "devel/install-ganeti")
    argv = (installer, "--prefix", str(found), "--python", sys.executable)
    printed = run_program(argv, Cluster.outside()).ok().stdout
    # The next step, for each of the machines.
    assert "\n    gnt-cluster init --enabled-hypervisors=kvm " in printed
    assert "\n    gnt-node add " in printed
    assert printed.endswith(f"Run: export PATH=$PATH:{found}/sbin\n")
    return found


def test_installed_programs(prefix: Path, tmp_path: Path) -> None:
    outside = Cluster.outside()
    outside.pop("PYTHONPATH", None)
    version = run_program((str(prefix / "sbin/gnt-cluster"), "--version"), outside).ok().stdout
    assert version.split()[-1] == "3.1.0"
    assert f"release {RELEASE} of Ganeti in Python" in version
    util = str(prefix / "lib/ganeti/daemon-util")
    executable = run_program((util, "daemon-executable", "ganeti-noded"), outside).ok().stdout
    own = prefix / "lib/ganeti" / SERIES
    assert executable.strip() == str(own / "sbin/ganeti-noded")
    # Two versions side by side: public programs are links through the version in use.
    assert (prefix / "sbin/ganeti-noded").resolve() == own / "sbin/ganeti-noded"
    assert os.readlink(prefix / "etc/ganeti/version") == f"../../lib/ganeti/{SERIES}"
    shown = json.loads(run_program((util, "versions"), outside).ok().stdout)
    assert (shown["active"], shown["installed"]) == (SERIES, {SERIES: RELEASE})
    for tool in (ROOT / "tools").iterdir():
        called = tool.name in ("kvm-console-wrapper", "xen-console-wrapper", "vif-ganeti")
        place = "lib/ganeti/tools" if called else "lib/ganeti"
        if tool.name == "ganeti-takeover":
            place = "sbin"
        if tool.name == "vif-ganeti":
            # Only Xen calls it, with variables and a word, and without options.
            assert os.access(prefix / place / tool.name, os.X_OK)
            continue
        shown = run_program((str(prefix / place / tool.name), "--help"), outside).ok().stdout
        assert "usage: " in shown.lower()
    for allocator in (ROOT / "doc/examples/iallocators").iterdir():
        assert os.access(prefix / "lib/ganeti/iallocators" / allocator.name, os.X_OK)
    complete = str(prefix / "lib/ganeti/gnt-complete")
    assert "list\t" in run_program((complete, "gnt-job", "li"), outside).ok().stdout
    for place in (
        "bash-completion/completions/gnt-job",
        "zsh/site-functions/_ganeti",
        "bash-completion/completions/hbal",
        "bash-completion/completions/ganeti-watcher",
        "fish/vendor_completions.d/gnt-job.fish",
        "fish/vendor_completions.d/hspace.fish",
    ):
        assert complete in (prefix / "share" / place).read_text()
    for place in (
        "lib/systemd/system/ganeti.target",
        "lib/systemd/system/ganeti-noded.service",
        "lib/sysusers.d/ganeti.conf",
        "lib/tmpfiles.d/ganeti.conf",
        "share/man/man8/ganeti-noded.8",
        "share/doc/ganeti/examples/ganeti.cron",
        "etc/default/ganeti",
        "etc/logrotate.d/ganeti",
        "etc/pam.d/ganeti-rapi",
    ):
        assert "@PREFIX@" not in (prefix / place).read_text()
    assert "NODED_ARGS" in (prefix / "etc/default/ganeti").read_text()
    unit = (prefix / "lib/systemd/system/ganeti-noded.service").read_text()
    assert f"ExecStart={prefix}/sbin/ganeti-noded " in unit
    root = {**outside, "GANETI_ROOTDIR": str(tmp_path / "root")}
    run_program((util, "start", "ganeti-noded"), root).failed("belongs to no cluster")
    run_program((util, "start", "ganeti-masterd"), root).failed("cluster", exit_code=5)


@pytest.mark.long
@pytest.mark.parametrize("named", [True, False])
def test_a_second_installation_leaves_running_programs_their_package(
    tmp_path: Path, named: bool
) -> None:
    prefix, outside = tmp_path / "usr", Cluster.outside()
    argv = (*INSTALL, "--prefix", str(prefix))
    library = prefix / "lib/ganeti" / SERIES / "python"

    def packages() -> set[str]:
        return {path.name for path in library.parent.glob("python-*")}

    run_program(argv, outside).ok()
    first = library.resolve()
    # A daemon has its package open, and daemon-util names the package in the environment.
    code = "import os, sys; os.open(sys.path[0], os.O_PATH); import ganeti; input(); "
    if named:
        code, env = "import ganeti; input(); ", {**outside, "PYTHONPATH": str(first)}
    else:
        # The installer must not find the name in the command line.
        code, env = f"import sys; sys.path[0] = input(); {code}", outside
    old = subprocess.Popen(
        [sys.executable, "-c", f"{code}import ganeti.utils.retry"],
        env=env,
        stdin=subprocess.PIPE,
    )
    assert old.stdin is not None
    if not named:
        old.stdin.write(f"{first}\n".encode())
        old.stdin.flush()
        opened = Path(f"/proc/{old.pid}/fd")

        def has_it_open() -> bool:
            try:
                return str(first) in [os.readlink(fd) for fd in opened.iterdir()]
            except FileNotFoundError:
                return False

        wait_until(has_it_open, "the program has opened its package")
    try:
        for _ in range(3):
            printed = run_program(argv, outside).ok().stdout
            assert "Running daemons go on with the release" in printed
            assert first.name in packages()
        # The one which runs, the present one, and the one before it.
        assert len(packages()) == 3
        old.communicate(b"\n")
        assert old.returncode == 0, "a module which is imported late comes from the same release"
    finally:
        old.kill()
        old.wait()
    printed = run_program(argv, outside).ok().stdout
    assert "Running daemons" not in printed
    assert first.name not in packages()
    assert len(packages()) == 2
    assert library.resolve().name in packages()


def test_settings_of_the_administrator_are_kept(tmp_path: Path) -> None:
    settings = tmp_path / "etc/default/ganeti"
    settings.parent.mkdir(parents=True)
    settings.write_text('NODED_ARGS="-d"\n')
    rotation = tmp_path / "etc/logrotate.d/ganeti"
    argv = (*INSTALL, "--destdir", str(tmp_path), "--prefix", "/usr")
    run_program(argv, Cluster.outside()).ok()
    assert settings.read_text() == 'NODED_ARGS="-d"\n'
    assert "postrotate\n        /usr/lib/ganeti/daemon-util " in rotation.read_text()
    assert (tmp_path / "usr/lib/systemd/system/ganeti.target").exists()


def test_an_installation_that_fails_changes_nothing(prefix: Path, tmp_path: Path) -> None:
    outside = Cluster.outside()
    before = (prefix / "lib/ganeti" / SERIES / "python").resolve()
    # A Python which finds the packages and cannot compile.
    broken = tmp_path / "python"
    broken.write_text(
        "#!/bin/sh\n"
        'case "$*" in *compileall*) exit 1 ;; *sys.executable*) echo "$0" ;;\n'
        f'*) exec {sys.executable} "$@" ;; esac\n'
    )
    broken.chmod(0o755)
    argv = (*INSTALL, "--prefix", str(prefix), "--python", str(broken))
    run_program(argv, outside).failed("")
    assert (prefix / "lib/ganeti" / SERIES / "python").resolve() == before
    assert [path.name for path in (prefix / "lib/ganeti" / SERIES).glob("python-*")] == [
        before.name
    ]
