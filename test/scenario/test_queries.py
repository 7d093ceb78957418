"""Lists over real daemons: every field of every kind of object, formats, silent nodes, dry runs.

And the balancing tools of others, unmodified, over the master's socket. They come from the Debian
package ``ganeti-htools-3.0``; everything they read (queries of four kinds, cluster information) and
write (migrations as jobs) goes through LUXI.
"""

from __future__ import annotations

import csv
import io
import json
import re
import signal
from pathlib import Path
from typing import Any

import pytest
import yaml
from harness import ROOT, Cluster, Finished, alive, run_program, wait_until
from luxi_client import Luxi

PROGRAMS = Path("/usr/lib/ganeti/3.0/usr/bin")
needs_htools = pytest.mark.skipif(
    not (PROGRAMS / "hbal").exists(),
    reason="no htools. Run: devel/install-packages ganeti-htools-3.0",
)

INSTANCES = ("db", "mail", "web", "wiki")
NODE1 = "node1.example.com"


@pytest.fixture(scope="module", autouse=True)
def _instances(cluster: Cluster) -> None:
    """The first of three nodes has everything to do."""
    cluster.make_os("noop")
    for name in INSTANCES:
        cluster.run(
            "gnt-instance",
            "add",
            "--submit",
            "-t",
            "sharedfile",
            "-s",
            "64M",
            "-o",
            "noop",
            "--net",
            "0:",
            "-B",
            "memory=256m",
            "-n",
            "node1.example.com",
            f"{name}.example.com",
        ).ok()
    wait_until(
        lambda: (
            [row[0] for row in cluster.rows("gnt-instance", "list", "-o", "status")]
            == ["running"] * len(INSTANCES)
        ),
        "the instances run",
    )


# -- lists ----------------------------------------------------------------------------------------

LISTS = [
    ("gnt-backup", "list"),
    ("gnt-debug", "locks"),
    ("gnt-filter", "list"),
    ("gnt-group", "list"),
    ("gnt-instance", "list"),
    ("gnt-job", "list"),
    ("gnt-network", "list"),
    ("gnt-node", "list"),
    ("gnt-os", "list"),
]
WHY = {"unknown", "nodata", "unavail", "offline"}


@pytest.mark.parametrize(("program", "command"), LISTS)
def test_every_field(program: str, command: str, cluster: Cluster) -> None:
    if program == "gnt-network":
        cluster.run(program, "add", "--network", "192.0.2.0/28", "net1").ok()
    if program == "gnt-filter":
        cluster.run(program, "add", "--priority", "9", "--action", "CONTINUE").ok()
    rows = json.loads(cluster.run(program, command, "-o", "all", "-o", "json").ok().stdout)
    assert rows or program in ("gnt-backup", "gnt-debug")
    known: set[str] | None = None
    if (program, command) != ("gnt-debug", "locks"):
        fields = json.loads(cluster.run(program, "list-fields", "--output=json").ok().stdout)
        assert all(field["doc"] and field["kind"] != "unknown" for field in fields)
        known = {field["name"] for field in fields}
    for row in rows:
        why: dict[str, str] = row.pop("_status", {})
        assert known is None or set(row) == known
        assert set(why.values()) <= WHY - {"unknown"}
        assert all(row[name] is None for name in why)


def test_formats_agree(cluster: Cluster) -> None:
    wanted = ("gnt-instance", "list", "-o", "name,pnode,oper_ram,admin_up,disk.sizes")
    rows = json.loads(cluster.run(*wanted, "-o", "json").ok().stdout)
    assert {row["oper_ram"] for row in rows} == {256}
    assert yaml.safe_load(cluster.run(*wanted, "-o", "yaml").ok().stdout) == rows
    table = list(csv.DictReader(io.StringIO(cluster.run(*wanted, "-o", "csv").ok().stdout)))
    assert [row["name"] for row in table] == [row["name"] for row in rows]
    assert {(row["oper_ram"], row["admin_up"], row["disk.sizes"]) for row in table} == {
        ("256", "true", "[64]")
    }
    infos = json.loads(cluster.run("gnt-instance", "info", "--all", "--output=json").ok().stdout)
    assert {info["name"] for info in infos} == {row["name"] for row in rows}


def test_a_node_that_does_not_answer_has_a_status(cluster: Cluster) -> None:
    node = "node3.example.com"
    pid = cluster.kill(node, "ganeti-noded", signal.SIGKILL)
    wait_until(lambda: not alive(pid), "the node daemon is gone")

    def listed() -> dict[str, list[str]]:
        return {row[0]: row for row in cluster.rows("gnt-node", "list", "-o", "name,mfree,group")}

    try:
        # A child with a kept connection may answer once more before it notices the end.
        wait_until(lambda: listed()[node][1:] == ["?", "default"], "the node does not answer")
        rows = listed()
        assert rows["node1.example.com"][1].isdigit()
        answer = json.loads(
            cluster.run("gnt-node", "list", "-o", "name,mfree", "-o", "json", node).ok().stdout
        )
        assert answer == [{"name": node, "mfree": None, "_status": {"mfree": "nodata"}}]
        # What needs no node does not ask one.
        assert cluster.rows("gnt-node", "list", "-o", "name", "-F", f'name == "{node}"') == [[node]]
    finally:
        cluster.on(node, "daemon-util", "start", "ganeti-noded").ok()


def test_a_dry_run_shows_the_plan_and_changes_nothing(cluster: Cluster) -> None:
    text = cluster.run("gnt-instance", "remove", "--dry-run", "-f", "web.example.com").ok().stdout
    for part in (
        "Plan of INSTANCE_REMOVE(web.example.com)",
        "instance/web.example.com",
        "node node1.example.com is online",
        "instance-remove-pre, run now",
        "remove disk 0 (sharedfile, 64 MiB)",
    ):
        assert part in text
    assert cluster.rows("gnt-instance", "list", "-o", "status", "web") == [["running"]]


def documented() -> dict[str, set[str]]:
    """Command -> members which ``doc/output.rst`` names for it."""
    lines = (ROOT / "doc/output.rst").read_text().split("Infos\n=====")[1].splitlines()
    first, last = [place for place, line in enumerate(lines) if line.startswith("======")][:2]
    rows: list[list[str]] = []
    for line in lines[first + 1 : last]:
        if line.startswith("``"):
            rows.append([line.split("``")[1], line[line.index("``", 2) + 2 :]])
        else:
            rows[-1][1] += line
    return {command: set(re.findall("``([a-z_]+)``", text)) for command, text in rows}


@pytest.mark.parametrize(
    "line",
    [
        "gnt-cluster version",
        "gnt-cluster getmaster",
        "gnt-cluster queue info",
        "gnt-cluster watcher info",
        "gnt-cluster history",
        "gnt-cluster search-tags shape",
        "gnt-job explain 1",
        "gnt-node health",
        "gnt-node power status",
        "gnt-node list-storage",
        "gnt-instance list-tags web",
        "gnt-instance list-fields",
    ],
)
def test_what_infos_tell_is_what_the_page_says(line: str, cluster: Cluster) -> None:
    program, command, *arguments = line.split()
    if "tags" in command:
        cluster.on(NODE1, "gnt-instance", "add-tags", "web", "shape:info").ok()
    done = cluster.on(NODE1, program, command, "--output=json", *arguments)
    found = json.loads(done.stdout)
    known = documented()
    wanted = known.get(f"{program} {command}") or known[command]
    objects = found if isinstance(found, list) else [found]
    assert objects and all(set(one) == wanted for one in objects), objects[0]
    # Nobody answers for the hardware here, which is not a success.
    assert done.exit_code == (1 if command in ("health", "power") else 0)


def test_what_an_instance_tells_is_what_the_page_says(cluster: Cluster) -> None:
    (found,) = json.loads(
        cluster.on(NODE1, "gnt-instance", "info", "--output=json", "web").ok().stdout
    )
    page = (ROOT / "doc/output.rst").read_text()
    text = page.split("The members of an instance:")[1].split("\n\n")[0]
    named = set(re.findall("``([a-z_]+)``", text)) - {"up", "down", "offline", "children"}
    assert {name for name in found if name not in named} == set()
    assert {name for name in named if name not in found and not name.startswith("_")} == set()


def test_mistakes_are_guessed(cluster: Cluster) -> None:
    cluster.run("gnt-instance", "startup", "wiik").failed("Did you mean 'wiki.example.com'?")
    cluster.run("gnt-instance", "info", "mial").failed("Did you mean 'mail.example.com'?")
    cluster.run("gnt-node", "list", "-o", "naem").failed("Did you mean 'name'?", exit_code=14)
    cluster.run("gnt-instance", "list", "-F", "name == web").failed(
        "name == web\n        ^\n", "expected text in quotes"
    )
    cluster.run(
        "gnt-instance",
        "add",
        "-t",
        "sharedfile",
        "-s",
        "64M",
        "-o",
        "nopo",
        "--net",
        "0:",
        "-n",
        "node1",
        "new.example.com",
    ).failed("Did you mean 'noop'?")


# -- programs of others ---------------------------------------------------------------------------


def socket(cluster: Cluster) -> str:
    return str(cluster.path("node1.example.com", "var/run/ganeti/socket/ganeti-master"))


def tool(cluster: Cluster, name: str, *options: str) -> Finished:
    return run_program(
        (str(PROGRAMS / name), f"-L{socket(cluster)}", *options), cluster.environment
    )


@needs_htools
def test_hinfo(cluster: Cluster) -> None:
    loaded = "Loaded 3 nodes, 4 instances, 1 node group"
    assert loaded in tool(cluster, "hinfo").ok().stdout
    # They find the socket by themselves, too, under the name that it has in later versions.
    assert loaded in cluster.run(str(PROGRAMS / "hinfo"), "-L").ok().stdout


@needs_htools
def test_hspace(cluster: Cluster) -> None:
    lines = tool(cluster, "hspace", "--machine-readable").ok().stdout.splitlines()
    facts = dict(line.split("=", 1) for line in lines if "=" in line)
    assert facts["HTS_CLUSTER_NODES"] == "3" and facts["HTS_INI_INST_CNT"] == "4"
    assert facts["HTS_OK"] == "1"


@needs_htools
def test_hcheck(cluster: Cluster) -> None:
    checked = tool(cluster, "hcheck", "--machine-readable", "--no-simulation")
    facts = dict(line.split("=", 1) for line in checked.stdout.splitlines() if "=" in line)
    assert facts["HCHECK_INIT_CLUSTER_N1_FAIL"] == "0"
    assert facts["HCHECK_OK"] == "1"


@needs_htools
def test_hscan_writes_what_hbal_reads(cluster: Cluster, tmp_path: Path) -> None:
    assert "LOCAL" in tool(cluster, "hscan", "-d", str(tmp_path)).ok().stdout
    text = (tmp_path / "LOCAL.data").read_text()
    assert all(f"{name}.example.com" in text for name in INSTANCES)
    balanced = run_program(
        (str(PROGRAMS / "hbal"), "-t", str(tmp_path / "LOCAL.data")), cluster.environment
    )
    assert "Loaded 3 nodes, 4 instances" in balanced.ok().stdout


@needs_htools
def test_hroller_hsqueeze_and_harep(cluster: Cluster) -> None:
    assert "Node Reboot Groups" in tool(cluster, "hroller").ok().stdout
    assert "Nodes to offline" in tool(cluster, "hsqueeze").ok().stdout
    assert "Healthy: 4" in tool(cluster, "harep").ok().stdout


@needs_htools
def test_hbal_proposes_and_then_moves(cluster: Cluster) -> None:
    proposed = tool(cluster, "hbal", "-p", "-C").ok().stdout
    assert "gnt-instance migrate -f" in proposed
    assert {row[0] for row in pnodes(cluster)} == {"node1.example.com"}
    done = tool(cluster, "hbal", "-X", "--reason=balance").ok()
    assert "Solution length" in done.stdout
    rows = cluster.rows("gnt-instance", "list", "-o", "pnode,status")
    assert len({row[0] for row in rows}) == 3
    assert {row[1] for row in rows} == {"running"}
    jobs = cluster.rows("gnt-job", "list", "-o", "status,summary")
    migrations = [row for row in jobs if row[1].startswith("INSTANCE_MIGRATE")]
    assert len(migrations) >= 2 and {row[0] for row in migrations} == {"success"}


def pnodes(cluster: Cluster) -> list[list[str]]:
    return cluster.rows("gnt-instance", "list", "-o", "pnode")


# -- requests of programs by others ---------------------------------------------------------------

#: What version 3.0.2 refuses and we answer.
ANSWERED = {"QueryFields"}
#: What it answers with an empty list; 3.1 and we say that there is no such object.
UNKNOWN_NAMES = [["QueryInstances", [["nosuch"], ["name"], False]]]
#: Malformed filters: it refuses the whole request in words, we say which parameter is wrong.
NAMED_ERRORS = {"Query": {"ParameterError"}, "QueryFields": {"OpPrereqError"}}


def test_answers_have_the_recorded_shapes(cluster: Cluster) -> None:
    """What was asked of version 3.0.2 is answered with the same columns and kinds of values."""
    cluster.run("gnt-network", "add", "--network", "192.0.2.16/28", "net1")  # may be there already
    recorded = json.loads((ROOT / "test/data/luxi-shapes.json").read_text())
    wrong = []
    client = Luxi(cluster, "node1.example.com")
    try:
        for method, args, success, shape in recorded:
            client.send(method, *args)
            answer = client.receive_any()
            problem = _difference(method, args, success, shape, answer)
            if problem:
                wrong.append((method, str(args)[:100], problem))
    finally:
        client.close()
    assert not wrong and len(recorded) > 80


def _difference(
    method: str, args: list[Any], success: bool, shape: Any, answer: dict[str, Any]
) -> str:
    result = answer["result"]
    if answer["success"] != success:
        if answer["success"]:
            return "" if method in ANSWERED else f"it was refused ({shape})"
        return "" if [method, args] in UNKNOWN_NAMES else f"refused: {result}"
    if not success:
        kind = result[0] if isinstance(result, list) else "text"
        good = kind == shape or shape == "text" and kind in NAMED_ERRORS.get(method, ())
        return "" if good else f"{kind}, not {shape}: {result}"
    if method == "Query":
        names = [field["name"] for field in result["fields"]]
        if names != list(shape):
            return f"columns {names}"
        kinds = {
            name: {_kind(row[place][1]) for row in result["data"]}
            for place, name in enumerate(names)
        }
        odd = {
            name: found
            for name, found in kinds.items()
            if shape[name]
            and found - set(shape[name].split("|")) - {"null"}
            and shape[name] != "null"
        }
        return f"values {odd}" if odd else ""
    if method == "QueryFields":
        return (
            ""
            if [[one["name"], one["kind"]] for one in result["fields"]] == shape
            else f"fields {result}"
        )
    return "" if _fits(shape, result) else f"{result}, not like {shape}"


def _kind(value: Any) -> str:
    name = type(value).__name__
    return {"int": "number", "float": "number", "NoneType": "null"}.get(name, name)


def _fits(shape: Any, value: Any) -> bool:
    if isinstance(shape, list):
        return isinstance(value, list) and (not shape or not value or _fits(shape[0], value[0]))
    return "null" in (shape, _kind(value)) or _kind(value) == shape
