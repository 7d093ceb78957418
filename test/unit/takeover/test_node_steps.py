"""The steps on a node: packages, archive, settings, owners, with a directory in place of ``/``."""

from __future__ import annotations

import grp
import json
import os
import pwd
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ganeti import errors
from ganeti.platform import paths
from ganeti.takeover import archive, facts, node_steps
from ganeti.takeover.state import BACK, RUN
from ganeti.utils import process

ORIGINAL = {"ganeti": "3.0.2-3", "ganeti-3.0": "3.0.2-3"}
STATE = facts.STATE_DIR.lstrip("/")


class Programs:
    """Runs no program; remembers the commands and answers some of them."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, ...]] = []
        self.stdin: list[str] = []
        self.outputs: dict[str, str] = {}
        self.fails: set[str] = set()
        # What the start of the daemons does.
        self.starts: Callable[[], object] = lambda: None

    def __call__(self, argv: list[str], **options: Any) -> process.Completed:
        words = tuple(argv)
        self.seen.append(words)
        self.stdin.append(options.get("stdin") or "")
        line = " ".join(words)
        failed = any(part in line for part in self.fails)
        if words[-1] in ("start-all", "ganeti.service") and words[-2] != "stop":
            self.starts()
        output = next((text for part, text in self.outputs.items() if part in line), "")
        if failed and options.get("check", True):
            raise errors.CommandError(words, 100, "E: broken")
        return process.Completed(words, 1 if failed else 0, output, "", None)

    def lines(self, program: str) -> list[str]:
        return [" ".join(words) for words in self.seen if words[0].endswith(program)]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, text in {
        "var/lib/ganeti/config.data": "{}",
        "var/lib/ganeti/server.pem": "key",
        "var/lib/ganeti/hmac.key": "secret",
        "var/lib/ganeti/ssconf_node_list": "node1\nnode2\n",
        "var/lib/ganeti/queue/job-3": '{"ops": [{"status": "success"}]}',
        "usr/sbin/ganeti-watcher": "",
        "var/lib/ganeti/queue/archive/0/job-1": "old job",
        "var/lib/ganeti/rapi/users": "jack secret write",
        "etc/ganeti/hooks/instance-add-post.d/note": "#!/bin/sh",
        "etc/default/ganeti": 'RAPI_ARGS="-b 127.0.0.1"\nLUXID_ARGS="-d"\n',
        "etc/cron.d/ganeti": "*/5 * * * * root ganeti-watcher",
        "var/run/ganeti/fake-hypervisor/web1": "running",
        "var/log/ganeti/jobs.log": "log",
    }.items():
        path = tmp_path / "root" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "root"


def make(root: Path, programs: Programs, **more: Any) -> node_steps.Node:
    return node_steps.Node(str(root), run=programs, pause=lambda _seconds: None, **more)


def no_daemons(_pid: int) -> bool:
    return False


# -- packages --------------------------------------------------------------------------------------


@pytest.mark.programs
def test_the_program_for_nics_of_guests_of_xen_stays(root: Path) -> None:
    program = root / "usr/lib/ganeti/tools/vif-ganeti"
    one = make(root, Programs())
    one.install("", ORIGINAL, BACK)
    assert not program.exists()
    record = root / "var/run/ganeti/xen-hypervisor/conf/web1.json"
    record.parent.mkdir(parents=True)
    record.write_text("{}")
    one.install("", ORIGINAL, RUN)
    assert not program.exists()
    one.install("", ORIGINAL, BACK)
    assert os.access(program, os.X_OK)
    # It is the program of the copy which stays.
    copy = f"{facts.STATE_DIR}/program"
    text = program.read_text()
    assert copy in text
    text = text.replace(copy, paths.package_dir().removesuffix("/ganeti"))
    program.write_text(text.replace("python3", sys.executable))
    done = subprocess.run([program, "online"], capture_output=True, text=True, env={})
    assert (done.returncode, done.stdout) == (1, "")
    assert "vif-ganeti: the environment names no interface" in done.stderr


def test_prepare_downloads_everything_and_keeps_the_original(root: Path) -> None:
    programs = Programs()
    programs.outputs["-s"] = "Remv ganeti [3.0.2-3]\nRemv ganeti-3.0 [3.0.2-3]\nInst ganeti-py\n"
    package = root / "p.deb"
    package.write_text("x")
    answer = make(root, programs).prepare(str(package), archive.digest(str(package)), ORIGINAL, RUN)
    assert answer == {"missing": []}
    lines = programs.lines("apt-get")
    assert lines[0].startswith("apt-get -q -s ") and lines[0].endswith(f"install {package}")
    assert "--download-only" in lines[1] and "--no-install-recommends" in lines[1]
    assert lines[2:] == ["apt-get -q download ganeti=3.0.2-3",
                         "apt-get -q download ganeti-3.0=3.0.2-3"]  # fmt: skip


def test_prepare_says_what_of_the_original_is_gone(root: Path) -> None:
    programs = Programs()
    programs.fails.add("download ganeti-3.0=")
    assert make(root, programs).prepare("", "", ORIGINAL, RUN) == {"missing": ["ganeti-3.0"]}
    assert programs.lines("apt-get")[0].endswith("install ganeti-py")


def test_prepare_refuses_a_package_which_was_copied_incompletely(root: Path) -> None:
    package = root / "p.deb"
    package.write_text("x")
    with pytest.raises(errors.OpPrereqError, match="incompletely"):
        make(root, Programs()).prepare(str(package), "0" * 64, ORIGINAL, RUN)


def test_prepare_refuses_to_remove_other_packages(root: Path) -> None:
    programs = Programs()
    programs.outputs["-s"] = "Remv ganeti [3.0.2-3]\nRemv ganeti-instance-debootstrap [0.16]\n"
    with pytest.raises(errors.OpPrereqError, match="also remove ganeti-instance-debootstrap"):
        make(root, programs).prepare("", "", ORIGINAL, RUN)


def test_install_lets_no_daemon_start_before_start(root: Path) -> None:
    programs = Programs()
    (root / "usr/sbin/policy-rc.d").write_text("#!/bin/sh\nexit 0\n")
    (root / "run/systemd/system").mkdir(parents=True)
    one = make(root, programs)
    for _ in range(2):
        one.install("", ORIGINAL, RUN)
        assert "exit 101" in (root / "usr/sbin/policy-rc.d").read_text()
    assert programs.lines("systemctl") == ["systemctl mask --runtime ganeti.target"] * 2
    assert programs.lines("dpkg") == ["dpkg --configure -a"] * 2
    assert "ganeti-3.0 ganeti-3.0/abort-removal boolean false\n" in programs.stdin
    installs = [line for line in programs.lines("apt-get") if "install" in line]
    assert "--force-confnew" in installs[0] and "confmiss" not in installs[0]
    with pytest.raises(errors.OpExecError, match="node daemon does not start"):
        one.start(RUN)
    assert (root / "usr/sbin/policy-rc.d").read_text() == "#!/bin/sh\nexit 0\n"
    assert programs.lines("systemctl")[2:5] == [
        "systemctl unmask --runtime ganeti.target", "systemctl daemon-reload",
        "systemctl enable ganeti.target",
    ]  # fmt: skip


def test_the_way_back_installs_the_kept_packages_or_the_same_versions(root: Path) -> None:
    programs = Programs()
    kept = root / STATE / "original"
    kept.mkdir(parents=True)
    (kept / "ganeti_3.0.2-3_all.deb").touch()
    make(root, programs).install("", ORIGINAL, BACK)
    assert programs.lines("apt-get")[-1].endswith("install ganeti=3.0.2-3 ganeti-3.0=3.0.2-3")
    (kept / "ganeti-3.0_3.0.2-3_all.deb").touch()
    make(root, programs).install("", ORIGINAL, BACK)
    assert programs.lines("apt-get")[-1].endswith(
        f"install {kept}/ganeti_3.0.2-3_all.deb {kept}/ganeti-3.0_3.0.2-3_all.deb"
    )
    assert "confmiss" in programs.lines("apt-get")[-1]
    assert "boolean true" in programs.stdin[-1]


def test_the_way_back_leaves_no_unit_of_ours_enabled(root: Path) -> None:
    programs = Programs()
    (root / "run/systemd/system").mkdir(parents=True)
    make(root, programs).install("", ORIGINAL, BACK)
    assert "systemctl disable ganeti.target" not in programs.lines("systemctl")
    programs.outputs["--property=LoadState"] = "LoadState=loaded\n"
    make(root, programs).install("", ORIGINAL, BACK)
    lines = programs.lines("systemctl")
    assert lines[-4:] == [
        "systemctl unmask --runtime ganeti.target",
        "systemctl show --property=LoadState ganeti.target",
        "systemctl disable ganeti.target", "systemctl mask --runtime ganeti.target",
    ]  # fmt: skip
    programs.starts = lambda: with_daemon(root, "ganeti-noded", ["/usr/sbin/ganeti-noded"])
    make(root, programs).start(BACK)
    assert programs.lines("systemctl")[-1] == "systemctl restart ganeti.service"


def test_the_way_back_begins_with_the_repair_of_packages(root: Path) -> None:
    programs = Programs()
    make(root, programs).prepare("", "", ORIGINAL, BACK)
    assert " ".join(programs.seen[0]) == "dpkg --configure -a"
    assert "exit 101" in (root / "usr/sbin/policy-rc.d").read_text()


def test_the_way_back_to_3_0_needs_guests_which_it_finds(root: Path) -> None:
    pids = root / "var/run/ganeti/kvm-hypervisor/pid"
    pids.mkdir(parents=True)
    for number, (name, shown) in enumerate(
        {"web1": "web1", "web2": "web2,debug-threads=on"}.items()
    ):
        (pids / name).write_text(f"{number + 90}\n")
        process_dir = root / f"proc/{number + 90}"
        process_dir.mkdir(parents=True)
        (process_dir / "stat").write_text(f"1 (qemu) S {' '.join(map(str, range(4, 60)))}")
        (process_dir / "cmdline").write_bytes(f"kvm\0-name\0{shown}\0-m\0".encode())
    one = make(root, Programs())
    with pytest.raises(errors.OpPrereqError, match="find these guests.*: web2. Restart"):
        one.prepare("", "", ORIGINAL, BACK)
    assert not (root / "usr/sbin/policy-rc.d").exists()
    one.prepare("", "", {"ganeti": "3.1.0~rc2-3"}, BACK)


# -- daemons ---------------------------------------------------------------------------------------


def with_daemon(root: Path, name: str, words: list[str], pid: int = 4711) -> None:
    (root / f"var/run/ganeti/{name}.pid").write_text(f"{pid}\n")
    (root / f"proc/{pid}").mkdir(parents=True, exist_ok=True)
    (root / f"proc/{pid}/cmdline").write_bytes(b"\0".join(map(str.encode, words)) + b"\0")


def test_daemons_are_known_by_their_program(root: Path) -> None:
    one = make(root, Programs())
    with_daemon(root, "ganeti-noded", ["/usr/bin/python3", "/usr/sbin/ganeti-noded", "-d"])
    with_daemon(root, "ganeti-luxid", ["/usr/sbin/ganeti-luxid"], 4712)
    with_daemon(root, "ganeti-rapi", ["/usr/bin/vim", "notes"], 4713)
    (root / "var/run/ganeti/ganeti-confd.pid").write_text("4799\n")
    (root / "var/run/ganeti/ganeti-mond.pid").write_text("\n")
    assert one.daemons() == {"ganeti-noded": 4711, "ganeti-luxid": 4712}


@pytest.mark.parametrize("ends_with", [signal.SIGTERM, signal.SIGKILL, None])
def test_stop_ends_what_the_program_of_the_original_leaves(
    root: Path, ends_with: signal.Signals | None
) -> None:
    programs = Programs()
    programs.fails.add("stop-all")
    program = root / "usr/lib/ganeti/daemon-util"
    program.parent.mkdir(parents=True)
    program.touch()
    with_daemon(root, "ganeti-noded", ["/usr/bin/python3", "/usr/sbin/ganeti-noded"])
    sent = []

    def kill(pid: int, number: int) -> None:
        sent.append((pid, number))
        if number == ends_with:
            (root / "proc/4711/cmdline").unlink()

    one = make(root, programs, kill=kill, alive=lambda pid: (root / f"proc/{pid}/cmdline").exists())
    if ends_with is None:
        with pytest.raises(errors.OpExecError, match="do not end: ganeti-noded"):
            one.stop()
    else:
        assert one.stop() == {}
    assert sent[-1] == (4711, ends_with or signal.SIGKILL)
    assert programs.lines("daemon-util") == [f"{program} stop-all"]


def test_start_needs_the_node_daemon(root: Path) -> None:
    programs = Programs()
    programs.starts = lambda: with_daemon(root, "ganeti-noded", ["/usr/sbin/ganeti-noded"])
    assert make(root, programs).start(RUN) == {"failed": ""}
    (root / "proc/4711/cmdline").unlink()
    programs.fails.add("start-all")
    programs.outputs["start-all"] = "ganeti-luxid: not the master"
    assert make(root, programs).start(BACK) == {"failed": "ganeti-luxid: not the master"}


@pytest.mark.parametrize("direction", [RUN, BACK])
def test_start_replaces_daemons_which_their_machine_has_started(root: Path, direction: str) -> None:
    """It may have started again since "stop", as the other package."""
    programs, ended = Programs(), []
    with_daemon(root, "ganeti-noded", ["/usr/sbin/ganeti-noded"], 4710)

    def kill(pid: int, _number: int) -> None:
        ended.append(pid)
        (root / f"proc/{pid}/cmdline").unlink()

    programs.starts = lambda: with_daemon(root, "ganeti-noded", ["/usr/sbin/ganeti-noded"])
    make(root, programs, kill=kill, alive=no_daemons).start(direction)
    assert ended == [4710]


def test_compare_names_daemons_which_are_older_than_the_packages(root: Path) -> None:
    one = make(root, Programs())
    one.archive(7, RUN)
    with_daemon(root, "ganeti-confd", ["/usr/sbin/ganeti-confd"], 4710)
    assert one.compare(7, RUN)["changed"] == []
    pid_file = root / "var/run/ganeti/ganeti-confd.pid"
    make(root, Programs(), kill=lambda pid, _number: (root / f"proc/{pid}/cmdline").unlink(),
         alive=no_daemons).install("", ORIGINAL, RUN)  # fmt: skip
    with_daemon(root, "ganeti-confd", ["/usr/sbin/ganeti-confd"], 4710)
    os.utime(pid_file, (1, 1))
    (changed,) = one.compare(7, RUN)["changed"]
    assert changed == (
        "ganeti-confd runs since before the packages were replaced; restart it with 'daemon-util"
        " restart ganeti-confd'"
    )


# -- files -----------------------------------------------------------------------------------------


def test_the_archive_has_files_and_checksums(root: Path) -> None:
    one = make(root, Programs())
    for _ in range(2):
        assert one.archive(7, RUN) == {}
    directory = root / STATE / "run-7"
    sums = dict(
        reversed(line.split("  ")) for line in (directory / "SHA256SUMS").read_text().splitlines()
    )
    assert sums["var/lib/ganeti/server.pem"] == archive.digest(
        str(root / "var/lib/ganeti/server.pem")
    )
    assert archive.read_member(str(directory), "/etc/cron.d/ganeti") is not None
    assert archive.read_member(str(directory), "/etc/init.d/ganeti") is None
    assert (directory / "files.tar.gz").stat().st_mode & 0o77 == 0
    assert one.compare(7, RUN)["changed"] == []


def test_compare_names_what_has_changed(root: Path) -> None:
    one = make(root, Programs())
    one.archive(7, RUN)
    (root / "var/lib/ganeti/server.pem").write_text("other")
    (root / "etc/ganeti/hooks/instance-add-post.d/note").unlink()
    (root / "var/run/ganeti/fake-hypervisor/web1").unlink()
    # Archived meanwhile: no loss.
    os.rename(root / "var/lib/ganeti/queue/job-3", root / "var/lib/ganeti/queue/archive/0/job-3")
    (root / "var/lib/ganeti/config.data").write_text("{1}")
    (root / "var/lib/ganeti/ssconf_node_list").write_text("node2\nnode1\n")
    assert one.compare(7, RUN)["changed"] == [
        "/etc/ganeti/hooks/instance-add-post.d/note is missing",
        "/var/lib/ganeti/server.pem has changed",
        "/var/run/ganeti/fake-hypervisor/web1 is missing",
    ]


def test_compare_knows_the_processes_of_guests(root: Path) -> None:
    pids = root / "var/run/ganeti/kvm-hypervisor/pid"
    pids.mkdir(parents=True)
    (pids / "web1").write_text("99\n")
    (pids / "gone").write_text("98\n")
    stat = root / "proc/99/stat"
    stat.parent.mkdir(parents=True)
    stat.write_text(f"99 (qemu (x) y) S {' '.join(map(str, range(4, 60)))}")
    one = make(root, Programs())
    one.archive(7, RUN)
    assert archive.guests(str(root)) == {"web1": "99 22"}
    assert one.compare(7, RUN)["guests"] == 1
    stat.write_text(stat.read_text().replace(" 22 ", " 23 "))
    assert one.compare(7, RUN)["changed"] == [
        "guest web1 does not run as the same process any more"
    ]


def under_xen(root: Path, capabilities: str = "control_d\n") -> None:
    (root / "proc/xen").mkdir(parents=True)
    (root / "proc/xen/capabilities").write_text(capabilities)


def domain(number: int, name: str, uuid: str) -> dict[str, Any]:
    return {"domid": number, "config": {"c_info": {"name": name, "uuid": uuid}}}


def test_compare_knows_the_domains_of_guests(root: Path) -> None:
    under_xen(root)
    programs = Programs()
    one = make(root, programs)
    own, web1, web2 = domain(0, "Domain-0", ""), domain(1, "web1", "a"), domain(2, "web2", "b")
    programs.outputs["xl list"] = json.dumps([own, web1, web2])
    one.archive(7, RUN)
    found = one.compare(7, RUN)
    assert (found["domains"], found["changed"]) == (2, [])
    # A guest which restarted itself has another number, and the same UUID.
    programs.outputs["xl list"] = json.dumps([own, domain(3, "web1", "a"), domain(4, "web2", "c")])
    assert one.compare(7, RUN)["changed"] == [
        "guest web2 does not run as the same domain of Xen any more"
    ]
    programs.outputs["xl list"] = "nonsense"
    with pytest.raises(errors.OpExecError, match="cannot read the output of 'xl list --long'"):
        one.compare(7, RUN)


def test_xen_is_asked_only_by_the_system_which_drives_it(root: Path) -> None:
    under_xen(root, "")
    programs = Programs()
    programs.fails.add("xl")
    make(root, programs).archive(7, RUN)
    assert programs.lines("xl") == []


def test_an_archive_of_a_former_release_has_no_domains(root: Path) -> None:
    one = make(root, Programs())
    one.archive(7, RUN)
    path = root / STATE / "run-7/before.json"
    before = json.loads(path.read_text())
    del before["domains"]
    path.write_text(json.dumps(before))
    assert one.compare(7, RUN)["changed"] == []


def test_compare_needs_a_complete_archive(root: Path) -> None:
    with pytest.raises(errors.ConfigurationError, match="not complete"):
        make(root, Programs()).compare(7, RUN)


def test_settings_go_there_and_back(root: Path) -> None:
    one = make(root, Programs())
    defaults = root / "etc/default/ganeti"
    before = defaults.read_text()
    one.archive(7, RUN)
    defaults.write_text("# ours\n")
    for _ in range(2):
        assert one.settings(7, RUN, False, 7) == {"lost": ['LUXID_ARGS="-d"']}
        assert 'RAPI_ARGS="-b 127.0.0.1"' in defaults.read_text()
    assert (root / "etc/cron.d/ganeti").exists()
    defaults.write_text(defaults.read_text() + 'MOND_ARGS="-b ::"\n')
    one.archive(9, BACK)
    defaults.write_text("# of the original's package")
    for _ in range(2):
        assert one.settings(9, BACK, False, 7) == {"lost": ["MOND_ARGS"]}
    assert defaults.read_text() == before


def test_with_systemd_cron_is_put_aside_and_comes_back(root: Path) -> None:
    (root / "run/systemd/system").mkdir(parents=True)
    one = make(root, Programs())
    one.archive(7, RUN)
    one.settings(7, RUN, False, 7)
    assert not (root / "etc/cron.d/ganeti").exists()
    one.archive(9, BACK)
    one.settings(9, BACK, False, 7)
    assert (root / "etc/cron.d/ganeti").read_text() == "*/5 * * * * root ganeti-watcher"


def test_the_way_back_removes_our_files_only(root: Path) -> None:
    programs = Programs()
    one = make(root, programs)
    one.archive(7, RUN)
    data = root / "var/lib/ganeti"
    (data / "config.data.history").mkdir()
    (data / "config.data.history/1").touch()
    for name in ("master_state", "ssconf_master_epoch", "queue/journal-1", "client.pem"):
        (data / name).touch()
    one.owners(RUN, 7)
    assert (data / "master_state").exists()
    one.owners(BACK, 7)
    left = {str(path.relative_to(data)) for path in data.rglob("*") if path.is_file()}
    assert left == {
        "client.pem", "config.data", "hmac.key", "queue/archive/0/job-1", "queue/job-3",
        "rapi/users", "server.pem", "ssconf_node_list",
    }  # fmt: skip
    assert programs.lines("ensure-dirs") == [f"{root}/usr/lib/ganeti/ensure-dirs --full-run"] * 2


def test_logs_get_their_owners_back(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr(os, "chown", lambda *args, **_options: seen.append(args))
    me, mine = pwd.getpwuid(os.getuid()).pw_name, grp.getgrgid(os.getgid()).gr_name
    archive.restore_owners({"var/log/x": [me, mine], "var/log/y": ["nosuch-user", mine]}, str(root))
    assert seen == [(f"{root}/var/log/x", os.getuid(), os.getgid())]


def test_a_node_which_was_not_changed_needs_nothing_back(root: Path) -> None:
    """The way back from a takeover which was broken off before its archive."""
    one = make(root, Programs())
    before = (root / "etc/default/ganeti").read_text()
    one.archive(9, BACK)
    assert one.settings(9, BACK, False, 7) == {"lost": []}
    assert one.owners(BACK, 7) == {}
    assert (root / "etc/default/ganeti").read_text() == before


# -- the program -----------------------------------------------------------------------------------


@pytest.fixture
def lock_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(facts, "STATE_DIR", str(tmp_path / "state"))
    return tmp_path


def test_a_step_prints_its_answer(
    root: Path, lock_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = make(root, Programs(), alive=no_daemons)
    assert node_steps.main(["stop", "{}"], one) == 0
    assert capsys.readouterr().out == f"{node_steps.ANSWER}{{}}\n"


@pytest.mark.parametrize(
    ("fail", "text"),
    [
        (errors.CommandError(["apt-get", "x"], 100, "\n".join(map(str, range(20)))),
         "'apt-get x' exited with code 100\n    14\n    15\n    16\n    17\n    18\n    19"),
        (errors.OpPrereqError("why", errors.ECODE_STATE), "why"),
        (errors.OpExecError("what"), "what"),
        (PermissionError(13, "Permission denied", "/x"),
         "[Errno 13] Permission denied: '/x'"),
    ],
)  # fmt: skip
def test_a_failed_step_says_why(
    fail: Exception, text: str, lock_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Broken(node_steps.Node):
        def stop(self) -> dict[str, Any]:
            raise fail

    assert node_steps.main(["stop", "{}"], Broken()) == 1
    assert capsys.readouterr().err == f"{text}\n"


@pytest.mark.parametrize("words", [[], ["stop"], ["nosuch", "{}"], ["daemons", "{}"]])
def test_a_wrong_command_line(words: list[str]) -> None:
    assert node_steps.main(words) == 2


def test_downgrade_converts_to_the_version_of_the_original(
    root: Path, config_3_1: Callable[[], dict[str, Any]]
) -> None:
    path = root / "var/lib/ganeti/config.data"
    (root / "var/lib/ganeti/ssconf_master_node").write_text("elsewhere")
    one = make(root, Programs())
    for version in (3_010_000, 3_000_000):
        path.write_text(json.dumps(config_3_1()))
        for _ in range(2):
            assert one.downgrade(version) == {}
            assert json.loads(path.read_text())["version"] == version


@pytest.fixture
def config_3_1() -> Callable[[], dict[str, Any]]:
    from ganeti.config import upgrade

    data = Path(__file__).resolve().parents[2] / "data" / "upgrade"
    newest = sorted(data.glob("*3.0*"))[-1]

    def make() -> dict[str, Any]:
        return upgrade.upgrade(json.loads(newest.read_text()))

    return make
