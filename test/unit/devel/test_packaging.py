"""The files in packaging/: units of systemd, users, directories, rotation of logs, settings."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from ganeti.jobstore import audit
from ganeti.platform import paths, users
from ganeti.tools import daemon_units, daemon_util
from ganeti.utils import process

TOP = Path(__file__).resolve().parents[3]
PACKAGING = TOP / "packaging"
UNITS = {path.name: path.read_text() for path in sorted((PACKAGING / "systemd").iterdir())}
DAEMONS = [name for name in daemon_util.START_ORDER if (TOP / "daemons" / name).exists()]
#: They run programs of the administrator or guests, which inherit what is forbidden.
UNRESTRICTED = {"ganeti-noded.service", "ganeti-watcher.service"}


def _values(unit: str, key: str) -> list[str]:
    text = UNITS[unit].replace("\\\n", " ")
    return [line.partition("=")[2] for line in text.splitlines() if line.startswith(f"{key}=")]


@pytest.mark.parametrize("daemon", DAEMONS)
def test_each_daemon_has_a_unit(daemon: str) -> None:
    unit = f"{daemon}.service"
    variable = f"{daemon.removeprefix('ganeti-').upper()}_ARGS"
    assert _values(unit, "Type") == ["notify"]
    assert _values(unit, "ExecStart") == [
        f"@PREFIX@/sbin/{daemon} --foreground ${variable} $EXTRA_ARGS"
    ]
    assert _values(unit, "EnvironmentFile") == [
        f"-{paths.Paths('').defaults_file}",
        f"-{daemon_units.ARGUMENTS_DIR}/{daemon}",
    ]
    # A daemon which was killed does not fold in the journal of the configuration.
    folds = ["-@PREFIX@/lib/ganeti/daemon-util fold-journal"]
    assert _values(unit, "ExecStopPost") == [
        f"-/bin/rm -f {daemon_units.ARGUMENTS_DIR}/{daemon}",
        *(folds if daemon in ("ganeti-masterd", "ganeti-noded") else []),
    ]
    assert int(_values(unit, "WatchdogSec")[0]) >= 60
    assert _values(unit, "Restart") == ["on-failure"]
    # systemd gives up before daemon-util does, which then has a reason to print. After a power cut
    # everything starts at once: daemons which are ended too early and started again never serve.
    assert 240 <= int(_values(unit, "TimeoutStartSec")[0]) < daemon_units._START_S
    assert int(_values(unit, "TimeoutStopSec")[0]) < daemon_units._STOP_S
    target = _values(unit, "PartOf")
    role = "master" if daemon in daemon_util.MASTER_DAEMONS else "node"
    assert target == [f"ganeti-{role}.target"]
    # The node daemon starts ganeti-metad when it is needed.
    assert _values(unit, "WantedBy") == ([] if daemon == "ganeti-metad" else target)


def test_one_target_enables_everything() -> None:
    enabled, todo = set(), ["ganeti.target"]
    while todo:
        unit = todo.pop()
        enabled.add(unit)
        todo += " ".join(_values(unit, "Also")).split()
    assert enabled == {unit for unit in UNITS if "\n[Install]\n" in UNITS[unit]}
    for unit in enabled - {"ganeti.target"}:
        (above,) = _values(unit, "WantedBy")
        assert unit in _values(above, "Also")[0].split()


def test_stopping_a_daemon_leaves_the_processes_which_it_made() -> None:
    for unit in ("ganeti-masterd.service", "ganeti-noded.service"):
        assert _values(unit, "KillMode") == ["process"]
    assert _values("ganeti-noded.service", "OOMPolicy") == ["continue"]
    assert _values("ganeti-masterd.service", "SuccessExitStatus") == ["5 11"]


def test_the_unit_of_the_watchdog_lets_it_be_urgent() -> None:
    unit = "ganeti-watchdogd.service"
    assert _values(unit, "LimitMEMLOCK") == ["infinity"]
    assert _values(unit, "RestrictRealtime") == []
    assert {"CAP_IPC_LOCK", "CAP_SYS_NICE"} <= set(
        _values(unit, "CapabilityBoundingSet")[0].split()
    )


@pytest.mark.programs
@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None, reason="needs root and setpriv"
)
def test_the_unit_of_the_monitoring_daemon_lets_it_measure_guests() -> None:
    """A QEMU has more capabilities, as the node daemon starts it; then the kernel asks for one."""
    (names,) = _values("ganeti-mond.service", "CapabilityBoundingSet")
    kept = [f"+{name.removeprefix('CAP_').lower()}" for name in names.split()]
    bounded = ["setpriv", f"--bounding-set=-all,{','.join(kept)}"]
    done = process.run([*bounded, "cat", f"/proc/{os.getpid()}/io"], timeout_s=60, check=False)
    assert "read_bytes" in done.output, done.output


@pytest.mark.parametrize("unit", [unit for unit in UNITS if unit.endswith(".service")])
def test_sandboxes(unit: str) -> None:
    restricted = bool(_values(unit, "ProtectSystem"))
    assert restricted == (unit not in UNRESTRICTED)
    for key in ("NoNewPrivileges", "CapabilityBoundingSet", "RestrictAddressFamilies"):
        assert bool(_values(unit, key)) == restricted, key


def _write_units(directory: Path) -> list[Path]:
    """The units as they are installed below a directory, with empty programs."""
    found = []
    for unit, text in UNITS.items():
        found.append(directory / unit)
        found[-1].write_text(text.replace("@PREFIX@", str(directory)))
        for program in re.findall(rf"{directory}/\S+", found[-1].read_text()):
            Path(program).parent.mkdir(parents=True, exist_ok=True)
            Path(program).write_text("#!/bin/sh\n")
            Path(program).chmod(0o755)
    return found


@pytest.mark.programs
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs package systemd")
def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    done = process.run(
        ["systemd-analyze", "verify", "--man=no", *map(str, _write_units(tmp_path))],
        timeout_s=120,
        env={"SYSTEMD_UNIT_PATH": f"{tmp_path}:"},
        check=False,
    )
    ours = [line for line in done.output.splitlines() if "ganeti" in line]
    assert (ours, done.exit_code) == ([], 0)


@pytest.mark.programs
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs package systemd")
def test_the_documented_exposure(tmp_path: Path) -> None:
    version = process.run(["systemd-analyze", "--version"], timeout_s=60).stdout.split()[1]
    if version != "252":
        pytest.skip(f"other versions count differently: this is {version}, the table is of 252")
    text = (TOP / "doc/start.rst").read_text()
    documented = dict(re.findall(r"^``(ganeti-\w+\.service)`` +(\d+\.\d) ", text, re.MULTILINE))
    measured = {}
    for unit in _write_units(tmp_path):
        if unit.suffix == ".service":
            argv = ["systemd-analyze", "security", "--offline=yes", str(unit)]
            done = process.run(argv, timeout_s=120)
            found = re.search(r"exposure level for \S+: (\d+\.\d)", done.output)
            assert found is not None, done.output
            measured[unit.name] = found[1]
    assert documented == measured


PROFILES = sorted((PACKAGING / "apparmor.d").iterdir())
#: Files which a daemon that answers without authentication never needs.
PRIVATE = (
    "/var/lib/ganeti/server.pem", "/var/lib/ganeti/client.pem", "/var/lib/ganeti/rapi.pem",
    "/var/lib/ganeti/cluster-domain-secret", "/var/lib/ganeti/rapi/users", "/etc/shadow",
    "/root/.ssh/id_rsa", "/srv/ganeti/file-storage/web1/0.file.disk0", "/dev/xenvg/disk0",
)  # fmt: skip


def _rules(profile: Path) -> list[re.Pattern[str]]:
    """Return the patterns of the paths which a profile permits, without those of its includes."""
    found = []
    for line in profile.read_text().splitlines():
        rule = re.fullmatch(r"  (?:owner )?([/@]\S+) [a-z]+,", line)
        if rule is None:
            continue
        text = re.escape(rule[1]).replace(r"\*\*", ".*").replace(r"\*", "[^/]*")
        text = text.replace(r"\{", "(?:").replace(r"\}", ")").replace(",", "|")
        found.append(re.compile(text))
    return found


@pytest.mark.parametrize("profile", PROFILES, ids=lambda path: path.name)
def test_profiles_of_apparmor(profile: Path) -> None:
    text = profile.read_text()
    assert (TOP / "daemons" / profile.name).exists()
    place = f"@PREFIX@/lib/ganeti/*/sbin/{profile.name}"
    assert f"profile {profile.name} {place} flags=(complain," in text
    rules = _rules(profile)
    assert len(rules) > 10
    for private in PRIVATE:
        assert not any(rule.fullmatch(private) for rule in rules), private
    here = paths.Paths("")
    for own in (here.cluster_conf_file, here.cluster_conf_journal, here.hmac_key):
        permitted = any(rule.fullmatch(own) for rule in rules)
        assert permitted is (profile.name == "ganeti-confd"), own
    # Each of them is loaded and unloaded by the package.
    for script in ("postinst", "prerm"):
        assert profile.name in (PACKAGING / f"debian/ganeti-py.{script}").read_text()
    assert f"apparmor.d/{profile.name}" in (TOP / "devel/install-ganeti").read_text()


@pytest.mark.programs
@pytest.mark.skipif(shutil.which("apparmor_parser") is None, reason="needs package apparmor")
@pytest.mark.parametrize("profile", PROFILES, ids=lambda path: path.name)
def test_apparmor_accepts_the_profiles(profile: Path, tmp_path: Path) -> None:
    path = tmp_path / profile.name
    path.write_text(profile.read_text().replace("@PREFIX@", "/usr"))
    argv = ["apparmor_parser", "--skip-kernel-load", "--skip-cache", "--skip-read-cache", str(path)]
    done = process.run(argv, timeout_s=120, check=False)
    assert done.exit_code == 0, done.output
    path.write_text(path.read_text().replace(" r,", " nonsense,"))
    assert process.run(argv, timeout_s=120, check=False).failed


def test_logs_are_rotated() -> None:
    here = paths.Paths("")
    text = (PACKAGING / "logrotate.d/ganeti").read_text()
    rotated = {line for line in text.splitlines() if line.startswith("/")}
    expected = {here.log_file(daemon) for daemon in DAEMONS} | {
        here.log_audit_file,
        here.log_burnin_file,
        here.log_commands_file,
        here.log_jobs_file,
        here.log_watcher_file,
        here.metad_access_log_file,
        here.mond_access_log_file,
        here.rapi_access_log_file,
    }
    assert rotated == expected
    assert "@PREFIX@/lib/ganeti/daemon-util rotate-all-logs" in text


@pytest.mark.programs
@pytest.mark.skipif(
    shutil.which("logrotate") is None or os.geteuid() != 0, reason="needs root and logrotate"
)
def test_logrotate_accepts_its_file(tmp_path: Path) -> None:
    directory = tmp_path / "log"
    directory.mkdir()
    directory.chmod(0o1770)
    (directory / "node-daemon.log").write_text("a line\n")
    (directory / "node-daemon.log").chmod(0o600)
    hup = tmp_path / "hup"
    text = (PACKAGING / "logrotate.d/ganeti").read_text()
    text = text.replace("/var/log/ganeti", str(directory))
    text = text.replace("@PREFIX@/lib/ganeti/daemon-util", f"touch {hup} #")
    (tmp_path / "conf").write_text(text)
    process.run(
        ["logrotate", "--force", "--state", str(tmp_path / "state"), str(tmp_path / "conf")],
        timeout_s=60,
    )
    assert hup.exists()
    assert (directory / "node-daemon.log.1").read_text() == "a line\n"
    new = directory / "node-daemon.log"
    assert new.stat().st_mode & 0o777 == 0o600 and new.read_text() == ""


@pytest.mark.programs
@pytest.mark.skipif(
    shutil.which("logrotate") is None or os.geteuid() != 0, reason="needs root and logrotate"
)
def test_the_audit_log_is_one_chain_over_all_its_files(tmp_path: Path) -> None:
    """Also when the master daemon starts again between the rotation and its next line."""
    log = tmp_path / "log/audit.log"
    log.parent.mkdir(mode=0o755)
    text = (PACKAGING / "logrotate.d/ganeti").read_text()
    (tmp_path / "conf").write_text(text.replace("/var/log/ganeti", str(log.parent)))
    conf, state = str(tmp_path / "conf"), str(tmp_path / "state")
    for number in range(4):
        chain = audit.Chain(str(log))
        chain.open()
        chain.add([{"number": number}, {"number": -number}])
        process.run(["logrotate", "--force", "--state", state, conf], timeout_s=60)
    assert {path.name for path in log.parent.iterdir()} == {
        "audit.log.1", "audit.log.2.gz", "audit.log.3.gz", "audit.log.4.gz",
    }  # fmt: skip
    chain = audit.Chain(str(log))
    chain.open()
    chain.add([{"number": 5}])
    files = audit.files(str(log))
    found = list(audit.verify(files))
    assert [data["number"] for data, _ in found] == [0, 0, 1, -1, 2, -2, 3, -3, 5]
    assert [problem for _, problem in found if problem] == []
    newest = Path(f"{log}.1")
    newest.write_text(newest.read_text().replace('"number":3', '"number":7'))
    assert len([problem for _, problem in audit.verify(files) if problem]) == 1


def test_settings() -> None:
    text = (PACKAGING / "default/ganeti").read_text()
    # As it is installed, it changes nothing.
    assert daemon_util.parse_defaults(text) == {}
    assert not users.parse(text).separated
    lines = [line.removeprefix("#") for line in text.splitlines() if re.match(r"#[A-Z_]+=", line)]
    assert {f"{name.removeprefix('ganeti-').upper()}_ARGS" for name in DAEMONS} <= {
        line.partition("=")[0] for line in lines
    }
    chosen = users.parse("\n".join(lines))
    made = (PACKAGING / "sysusers.d/ganeti.conf").read_text()
    assert chosen.daemons_group == "gnt-daemons" and "\ng gnt-daemons " in made
    separate = {account for role, account in chosen.roles.items() if role not in ("noded", "mond")}
    assert separate == {
        users.Account(f"gnt-{name}", f"gnt-{name}")
        for name in ("masterd", "rapi", "confd", "metad")
    }
    for account in separate:
        assert f"\nu {account.user} " in made
    # What daemon-util demands of them.
    for group in (chosen.group(users.CONFD), chosen.daemons_group):
        assert f"\nm {chosen.roles[users.MASTERD].user} {group}\n" in made


def test_directories() -> None:
    here = paths.Paths("")
    text = (PACKAGING / "tmpfiles.d/ganeti.conf").read_text()
    made = {words[1]: words[2] for words in map(str.split, text.splitlines()) if words[0] == "d"}
    assert made == {
        here.run_dir.replace("/var/run", "/run"): ":1775",
        here.socket_dir.replace("/var/run", "/run"): ":1770",
        daemon_units.ARGUMENTS_DIR: "0700",
        here.data_dir: ":0755",
        here.log_dir: ":1770",
    }
