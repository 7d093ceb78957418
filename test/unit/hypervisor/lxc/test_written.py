"""The configuration of a container: LXC reads each value as it was meant, or it is refused."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ganeti import errors
from ganeti.hypervisor.lxc import config
from ganeti.hypervisor.lxc.cgroups import Limit
from ganeti.hypervisor.lxc.disks import DataDisk
from ganeti.hypervisor.lxc.layout import Layout
from ganeti.objects import hvparams

WORDS = st.lists(st.text(min_size=1, max_size=20), min_size=1, max_size=4)


def as_lxc_reads(text: str) -> list[tuple[str, str]]:
    """Read a configuration as lxc.container.conf(5) and the program do."""
    found = []
    for line in text.split("\n"):
        line = line.lstrip()
        if not line or line.startswith("#"):
            continue
        key, equals, value = line.partition("=")
        assert equals, f"not a line of a configuration: {line!r}"
        value = value.strip()
        if len(value) > 1 and value[0] in "'\"" and value[-1] == value[0]:
            value = value[1:-1]
        found.append((key.strip(), value))
    return found


def written(
    mount: list[str], disk: list[str], *, console: str = "/log", limit: str = "1", extra: str = ""
) -> str:
    side = config.HostSide(
        mount_argv=mount,
        limits=[Limit("lxc.cgroup2.memory.max", limit)],
        devices_prefix="lxc.cgroup2.devices",
        interfaces=(),
        console_log=console,
        disks=[DataDisk(disk, "/dev/x mnt/disk1 none bind,create=dir 0 0")],
    )
    layout = Layout("/run/lxc", "/log", "web1.example.com", "/var/lib/lxc/g")
    return config.text_of(layout, hvparams.defaults("lxc") | {"extra_config": extra}, side)


@given(WORDS, WORDS, st.text(min_size=1, max_size=20))
@example(["/bin/my mount", "--", "/dev/with space"], ["a"], " /log ")
@example(["'"], ['"'], "'quoted'")
@example(["a\nlxc.rootfs.path = /"], ["#"], '"')
def test_each_value_is_read_as_it_was_meant(
    mount: list[str], disk: list[str], console: str
) -> None:
    try:
        text = written(mount, disk, console=console)
    except errors.HypervisorError:
        assert not "".join((*mount, *disk, console)).isprintable()
        return
    found = as_lxc_reads(text)
    # LXC gives these to a shell.
    hooks = [shlex.split(value) for key, value in found if key == "lxc.hook.pre-mount"]
    assert hooks == [mount, disk]
    assert [value for key, value in found if key == "lxc.console.logfile"] == [console]
    # No value has become another key.
    assert [key for key, _value in found] == [
        key for key, _value in as_lxc_reads(written(["m"], ["d"]))
    ]


def test_lines_of_the_administrator_are_as_lxc_is_to_read_them() -> None:
    found = as_lxc_reads(written(["m"], ["d"], extra="lxc.environment = 'A=b c'"))
    assert found[-1] == ("lxc.environment", "A=b c")


@pytest.mark.programs
@pytest.mark.skipif(shutil.which("lxc-info") is None, reason="needs LXC")
def test_the_program_reads_it(tmp_path: Path) -> None:
    """The reader of this test and the program agree."""
    mount, console = ["/bin/my mount", "--", "/dev/with space"], " 'log' "
    text = written(mount, ["'"], console=console)
    # Other lines need a node on which the container can run.
    wanted = ("lxc.hook.pre-mount", "lxc.console.logfile", "lxc.uts.name")
    kept = [line for line in text.splitlines() if line.startswith(wanted)]
    (tmp_path / "web").mkdir()
    (tmp_path / "web" / "config").write_text("\n".join(kept) + "\n")
    for key in wanted:
        done = subprocess.run(
            ["lxc-info", "-P", str(tmp_path), "-n", "web", "-H", "-c", key],
            check=True,
            capture_output=True,
            text=True,
        )
        said = done.stdout.strip("\n")
        assert said.split("\n") == [
            value for name, value in as_lxc_reads("\n".join(kept)) if name == key
        ]
