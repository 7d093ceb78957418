"""Instances with nodes in two groups: the programs count them, and no balancer moves them.

The texts and exit codes are those of the original (ganeti-htools-3.0, 3.0.2-3), which was run with
the same clusters. Where it stops with an error of its own, ours goes on.
"""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

from ganeti.htools import balance
from ganeti.htools.cluster import prepare
from ganeti.htools.loading import text

from .conftest import Run

ORIGINAL = Path("/usr/lib/ganeti/3.0/usr/bin")


def _cluster(*instances: str, lost: str = "") -> str:
    """Return a cluster of two groups, ``n1`` and ``n2`` in ``g1``, ``n3`` and ``n4`` in ``g2``."""
    nodes = [
        f"n{n}|65536|1024|60000|1000000|900000|16|{'Y' if f'n{n}' == lost else 'N'}"
        f"|uuid-{(n + 1) // 2}|1"
        for n in (1, 2, 3, 4)
    ]
    rows = []
    for words in instances:
        name, primary, secondary = words.split()
        rows.append(f"{name}|2048|50000|1|running|Y|{primary}|{secondary}|drbd||1|-")
    groups = ["g1|uuid-1|preferred||", "g2|uuid-2|preferred||"]
    return "\n".join([*groups, "", *nodes, "", *rows, "", ""])


ONE = _cluster("i1 n1 n3", "i2 n1 n2", "i3 n3 n4")
ALL = _cluster("i1 n1 n3", "i4 n1 n4", "i5 n3 n1")
LOST = _cluster("i1 n1 n3", "i4 n1 n4", "i5 n3 n1", lost="n1")


@pytest.fixture
def data(tmp_path: Path, request: pytest.FixtureRequest) -> str:
    path = tmp_path / "cluster.data"
    path.write_text(request.param)
    return str(path)


@pytest.mark.parametrize(
    ("data", "group", "count"),
    [(ONE, "g1", 2), (ONE, "g2", 1), (ALL, "g1", 2), (ALL, "g2", 1), (LOST, "g1", 2)],
    indirect=["data"],
)
def test_an_instance_belongs_to_the_group_of_its_primary(
    run: Run, data: str, group: str, count: int
) -> None:
    code, out, err = run("hbal", "-G", group, "-t", data)
    assert code == 0
    assert f"\nGroup size 2 nodes, {count} instances\n" in out
    assert "group" not in err


@pytest.mark.parametrize("data", [LOST], indirect=True)
def test_the_score_counts_what_is_on_a_dead_node(run: Run, data: str) -> None:
    code, out, err = run("hbal", "-v", "-G", "g1", "-t", data)
    assert code == 0
    assert "Initial score: 44.00000000\n" in out
    assert out.endswith("No solution found\nSolution length=0\n")
    assert err.endswith(
        "Found instances belonging to multiple node groups:\n  i1\n  i4\n  i5\n"
        "These instances will not be moved.\n"
    )


@pytest.mark.parametrize("data", [LOST], indirect=True)
def test_the_columns_count_them(run: Run, data: str) -> None:
    _code, _out, err = run("hbal", "--print-nodes=name,pcnt,scnt", "-G", "g1", "-t", data)
    assert [line.split()[-3:] for line in err.splitlines() if "n1" in line.split()] == [
        ["n1", "2", "1"],
        ["n1", "2", "1"],
    ]


@pytest.mark.parametrize("data", [LOST], indirect=True)
def test_hinfo_names_them_and_shows_the_groups(run: Run, data: str) -> None:
    code, out, err = run("hinfo", "-v", "-t", data)
    assert code == 0
    assert "\nFound instances belonging to multiple node groups:\nNode group information:\n" in out
    assert "   g1        2         2         0             0 True 44.00000000\n" in out
    assert "   g2        2         1         0             0 True  2.06250000\n" in out
    assert err.endswith("\n  i1\n  i4\n  i5\n")


@pytest.mark.parametrize("data", [LOST], indirect=True)
def test_hcheck_goes_on_where_the_original_stops(run: Run, data: str) -> None:
    code, out, _err = run("hcheck", "--machine-readable", "-t", data)
    assert code == 1
    assert "HCHECK_INIT_GROUP_0_OFFLINE_PRI=2\n" in out
    assert "HCHECK_INIT_GROUP_0_SCORE=44.00000000\n" in out
    assert out.endswith("HCHECK_FINAL_CLUSTER_NEED_REBALANCE=1\nHCHECK_OK=1\n")


@pytest.mark.parametrize("data", [LOST], indirect=True)
def test_no_node_is_switched_off_while_they_are_on_a_dead_one(run: Run, data: str) -> None:
    assert run("hsqueeze", "-t", data)[:2] == (0, "'No action'\n")


@pytest.mark.parametrize("data", [ONE], indirect=True)
def test_quiet_leaves_out_the_check_and_the_warnings(run: Run, data: str) -> None:
    code, out, err = run("hbal", "-q", "-G", "g1", "-t", data)
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "Loaded 4 nodes, 3 instances",
        "Group size 2 nodes, 2 instances",
        "Selected node group: g1",
        "Initial score: 3.60156250",
        "Trying to minimize the CV...",
        "    1. i2 n1:n2 => n2:n1   0.57031250 a=f",
        "Cluster score improved from 3.60156250 to 0.57031250",
    ]
    assert run("hcheck", "-q", "-t", data) == (0, "", "")
    assert run("hinfo", "-q", "-t", data)[2] == "  i1\n"


_COMMANDS = [
    *("hbal -G g1", "hbal -G g2 -p", "hbal -v -v -G g1", "hbal -q -G g1", "hbal -q -v -v -G g2"),
    *("hbal --evac-mode -G g1", "hbal", "hbal -G g9 -q", "hinfo", "hinfo -v -v", "hinfo -q -p"),
    *("hcheck --no-capacity-checks", "hcheck --no-capacity-checks --no-simulation", "hspace"),
    *("hspace -q", "hsqueeze -C", "hroller -G g1", "hroller -q -G g2 --full-evacuation"),
]


@pytest.mark.programs
@pytest.mark.skipif(not ORIGINAL.exists(), reason="package ganeti-htools-3.0 is not installed")
@pytest.mark.parametrize("data", [ONE, ALL, LOST], indirect=True)
def test_the_original_says_the_same(run: Run, data: str) -> None:
    for command in _COMMANDS:
        program, *words = command.split()
        wanted = subprocess.run(
            [str(ORIGINAL / program), *words, "-t", data],
            env={"LANG": "C.UTF-8"},
            capture_output=True,
            text=True,
            check=False,
        )
        code, out, err = run(program, *words, "-t", data)
        assert (code, out.strip(), err.strip()) == (
            wanted.returncode,
            wanted.stdout.strip(),
            wanted.stderr.strip(),
        ), command


def _random(seed: int) -> str:
    """Return a cluster of two groups in which a third of the instances is split."""
    choose = random.Random(seed)
    groups = [[f"n{group}{number}" for number in range(choose.randint(3, 5))] for group in (1, 2)]
    everywhere = [name for group in groups for name in group]
    memory, disk = dict.fromkeys(everywhere, 31744), dict.fromkeys(everywhere, 900000)
    rows = []
    for number in range(choose.randint(8, 24)):
        nodes = everywhere if choose.random() < 0.4 else choose.choice(groups)
        primary, secondary = choose.sample(nodes, 2)
        size = choose.choice([512, 1024, 2048, 4096, 6000])
        if memory[primary] > size + 8000:
            memory[primary] -= size
            disk[primary] -= 20000
            disk[secondary] -= 20000
            rows.append(f"i{number}|{size}|20000|1|running|Y|{primary}|{secondary}|drbd||1|-")
    nodes = [f"{n}|32768|1024|{memory[n]}|900000|{disk[n]}|16|N|uuid-{n[1]}|1" for n in everywhere]
    words = ["g1|uuid-1|preferred||", "g2|uuid-2|preferred||"]
    return "\n".join([*words, "", *nodes, "", *rows, "", ""])


def test_memory_for_nodes_of_other_groups_stays_reserved() -> None:
    cluster = text.parse(_cluster("i1 n3 n2", "i2 n1 n2", "i3 n1 n2"))
    prepare(cluster)
    part = cluster.only(0)
    node = part.nodes[1]
    assert (node.name, node.reserved_memory) == ("n2", 4096)
    for instance in part.instances:
        assert instance.name in ("i2", "i3")
        node = node.copy()
        node.remove_secondary(instance)
    # That of i1, whose primary node is in the other group.
    assert node.reserved_memory == 2048
    gone = cluster.part(cluster.nodes[:2], removed=True)
    assert gone.nodes[1].peers == {0: 4096}


@pytest.mark.parametrize("seed", range(12))
def test_arrays_find_the_same_steps_in_a_part(seed: int) -> None:
    found = []
    for arrays_from in (1 << 40, 0):
        cluster = text.parse(_random(seed))
        prepare(cluster)
        for group in (0, 1):
            state = balance.start(cluster.only(group))
            found.append(list(balance.run(state, balance.Options(arrays_from=arrays_from))))
    assert found[:2] == found[2:]


@pytest.mark.programs
@pytest.mark.skipif(not ORIGINAL.exists(), reason="package ganeti-htools-3.0 is not installed")
def test_the_original_balances_random_split_clusters_in_the_same_way(
    run: Run, tmp_path: Path
) -> None:
    path = tmp_path / "cluster.data"
    for seed in range(20):
        path.write_text(_random(seed))
        for group in ("g1", "g2"):
            words = ["-G", group, "-t", str(path)]
            wanted = subprocess.run(
                [str(ORIGINAL / "hbal"), *words],
                env={"LANG": "C.UTF-8"},
                capture_output=True,
                text=True,
                check=False,
            )
            code, out, err = run("hbal", *words)
            assert (code, out.strip(), err.strip()) == (
                wanted.returncode,
                wanted.stdout.strip(),
                wanted.stderr.strip(),
            ), (seed, group)
