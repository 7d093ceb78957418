"""Commands on a machine outside of the cluster: the same texts as on the master, a whole life."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import ROOT, Cluster, Finished, run_program

NEAR, FAR = "near.example.com", "far.example.com"
# What differs between two instances, or between two runs.
_NUMBERS = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}|\d+(?:[.:]\d+)*|aa(?::[0-9a-f]{2}){5}")


class Laptop:
    """A machine which has the programs, and knows where the REST interface is."""

    def __init__(self, cluster: Cluster, home: Path) -> None:
        master = cluster.run("gnt-cluster", "getmaster").ok().stdout.strip()
        address = cluster.node_fields(master, "pip")[0]
        program = str(ROOT / "tools" / "rapi-passwd")
        cluster.run(program, "--stdin", "--rights", "write", "jill", stdin="secret\n").ok()
        cluster.run(program, "--stdin", "--rights", "@operator", "olga", stdin="secret\n").ok()
        pin = cluster.run(program, "--pin").ok().stdout.strip()
        self._address = address
        self._environment = {
            **Cluster.outside(),
            "HOME": str(home),
            "GANETI_RAPI_PIN": pin,
        }

    def run(self, program: str, *words: str, user: str = "jill") -> Finished:
        """Run a command outside of the cluster."""
        where = {"GANETI_RAPI": f"https://{user}:secret@{self._address}"}
        argv = (str(ROOT / "scripts" / program), *words)
        return run_program(argv, {**self._environment, **where})


@pytest.fixture(scope="module")
def laptop(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Laptop]:
    cluster.make_os("noop")
    yield Laptop(cluster, tmp_path_factory.mktemp("home"))


def plain(done: Finished, name: str) -> tuple[int, list[str], str]:
    """What a command said, without what differs between two instances."""

    def stripped(text: str) -> str:
        text = text.replace(name, "INSTANCE").replace(name.partition(".")[0], "INSTANCE")
        return re.sub(" +", " ", _NUMBERS.sub("N", text))

    return done.exit_code, sorted(stripped(done.stdout).splitlines()), stripped(done.stderr)


LIFE = (
    "gnt-instance add -t file -s 16m -o noop --no-nics --no-install NAME",
    "gnt-instance list --no-headers -o name,status,disk.sizes NAME",
    "gnt-instance list NAME nosuch",
    "gnt-instance info NAME",
    "gnt-instance modify -B maxmem=256,minmem=256 NAME",
    "gnt-instance grow-disk NAME 0 16m",
    "gnt-instance snapshot NAME before",
    "gnt-instance list-snapshots NAME",
    "gnt-instance remove-snapshot NAME before",
    "gnt-instance add-tags NAME blue",
    "gnt-instance list-tags NAME",
    "gnt-instance reboot NAME",
    "gnt-instance reboot nosuch",
    "gnt-instance console --show-cmd NAME",
    "gnt-instance console --log NAME",
    "gnt-instance shutdown NAME",
    "gnt-instance startup --dry-run NAME",
    "gnt-instance startup NAME",
    "gnt-instance shutdown --submit NAME",
    "gnt-job list --no-headers -o status,summary -F 'status == \"error\"'",
    "gnt-instance remove -f NAME",
    "gnt-instance remove -f NAME",
)


def test_a_whole_life(cluster: Cluster, laptop: Laptop) -> None:
    node = cluster.node_names[1]
    for line in LIFE:
        near, far = ([*line.replace("NAME", name).split()] for name in (NEAR, FAR))
        if "add" in near[1:2]:
            near += ["-n", node]
            far += ["-n", node]
        if "-F" in line:
            near[-3:] = far[-3:] = [" ".join(near[-3:]).strip("'")]
        said = plain(cluster.run(*near), NEAR)
        assert plain(laptop.run(*far), FAR) == said, line


@pytest.mark.parametrize(
    "line",
    [
        "gnt-cluster info",
        "gnt-cluster getmaster",
        "gnt-cluster queue info",
        "gnt-cluster watcher info",
        "gnt-cluster list-tags",
        "gnt-cluster search-tags x",
        "gnt-cluster version",
        "gnt-node list",
        "gnt-node info",
        "gnt-node list-storage -t file",
        "gnt-node volumes",
        "gnt-group list",
        "gnt-group info",
        "gnt-network list",
        "gnt-os list",
        "gnt-os diagnose",
        "gnt-os info",
        "gnt-storage diagnose",
        "gnt-backup list",
        "gnt-filter list",
        "gnt-job list-fields",
        "gnt-job info 1",
        "gnt-job explain 1",
        "gnt-cluster history",
        "gnt-cluster history --limit 3",
        "gnt-cluster audit --limit 4",
        "gnt-job cancel 1",
        "gnt-instance list -o nosuch",
    ],
)
def test_what_a_command_says(line: str, cluster: Cluster, laptop: Laptop) -> None:
    words = line.split()
    assert plain(laptop.run(*words), "-") == plain(cluster.run(*words), "-")


def test_an_operator(cluster: Cluster, laptop: Laptop) -> None:
    done = laptop.run("gnt-cluster", "modify", "--maintain-node-health=no", user="olga")
    done.failed("user olga may not submit OP_CLUSTER_SET_PARAMS")
    assert laptop.run("gnt-node", "list", user="olga").ok().stdout


def test_the_master_daemon_is_killed(cluster: Cluster, laptop: Laptop) -> None:
    """The command says what has happened, and works again when the daemon does."""
    cluster.kill_whole(cluster.master, "ganeti-masterd")
    said = laptop.run("gnt-node", "list")
    assert said.exit_code == 1 and "Traceback" not in said.text
    assert "ganeti-masterd" in said.stderr
    cluster.vcluster("start", str(cluster.directory)).ok()
    laptop.run("gnt-node", "list").ok()
