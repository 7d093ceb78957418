"""The rules of alerts, the dashboard and the page about monitoring name metrics which exist."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

TOP = Path(__file__).resolve().parents[2]
EXAMPLES = TOP / "doc/examples/monitoring"
NAME = re.compile(r"\bganeti_(?:node|cluster|master)_[a-z_]+")
PROMTOOL = shutil.which("promtool")


def declared() -> set[str]:
    """The names in the source, and those of their samples."""
    found = set()
    for file in ("lib/ganeti/mond", "lib/ganeti/master", "lib/ganeti/jqueue", "lib/ganeti/rpc",
                 "lib/ganeti/locking", "lib/ganeti/config", "lib/ganeti/http",
                 "lib/ganeti/jobexec"):  # fmt: skip
        for path in (TOP / file).rglob("*.py"):
            text = path.read_text()
            found.update(re.findall(r'"(ganeti_(?:node|cluster|master)_[a-z_]+)"', text))
    found |= {f"ganeti_cluster_node_{what}_bytes"
              for what in ("memory", "memory_free", "storage", "storage_free")}  # fmt: skip
    return found | {f"{name}{end}" for name in found for end in ("_total", "_bucket", "_count")}


def expressions() -> list[str]:
    rules = yaml.safe_load((EXAMPLES / "alerts.yml").read_text())
    found = [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
    dashboard = json.loads((EXAMPLES / "dashboard.json").read_text())
    return found + [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]


def test_every_metric_exists() -> None:
    known = declared()
    named = {name for expression in expressions() for name in NAME.findall(expression)}
    assert named and named <= known, sorted(named - known)
    page = (TOP / "doc/monitoring.rst").read_text()
    told = {name for name in NAME.findall(page) if not name.endswith("_")}
    assert told <= known, sorted(told - known)


def test_every_metric_of_the_master_is_told() -> None:
    page = (TOP / "doc/monitoring.rst").read_text()
    for name in declared():
        if name.startswith("ganeti_master_") and not name.endswith(("_total", "_bucket", "_count")):
            assert name in page, name


def test_every_metric_of_a_guest_is_told() -> None:
    page = (TOP / "doc/monitoring.rst").read_text()
    found = {name for name in declared() if name.startswith("ganeti_node_guest")}
    assert len(found) > 7
    for name in found:
        if not name.endswith(("_total", "_bucket", "_count")):
            assert name in page, name


def test_every_alert_names_a_command() -> None:
    rules = yaml.safe_load((EXAMPLES / "alerts.yml").read_text())["groups"][0]["rules"]
    for rule in rules:
        assert set(rule["annotations"]) == {"summary", "action"}, rule["alert"]
        assert re.search(r"\b(gnt-\w+|systemctl|/var/log/ganeti)", rule["annotations"]["action"])


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed (package prometheus)")
def test_prometheus_accepts_the_rules() -> None:
    assert PROMTOOL is not None
    done = subprocess.run(
        [PROMTOOL, "check", "rules", str(EXAMPLES / "alerts.yml")], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


class Alert(NamedTuple):
    """Series of samples, one a minute; when the alert is not there yet, and when it is.

    :ivar labels: of the alert, besides its severity.
    :ivar value: of the expression, where the text shows it.
    """

    series: dict[str, str]
    quiet_min: int
    fires_min: int
    labels: dict[str, str]
    value: str = ""


_NODE = 'instance="node1:1815"'
_CALLS = "ganeti_master_node_calls_total"

#: Each alert: the situation is well at first.
ALERTS = {
    "GanetiMasterDoesNotAnswer": Alert(
        {f"ganeti_cluster_master_answers{{{_NODE}}}": "1x5 0x10"}, 6, 9, {"instance": "node1:1815"}
    ),
    "GanetiNoMaster": Alert({f"ganeti_node_is_master{{{_NODE}}}": "1x5 0x10"}, 6, 9, {}),
    "GanetiTwoMasters": Alert(
        {
            f"ganeti_node_is_master{{{_NODE}}}": "1x15",
            'ganeti_node_is_master{instance="node2:1815"}': "0x5 1x10",
        },
        6,
        8,
        {},
    ),
    "GanetiDaemonStopped": Alert(
        {f'ganeti_node_daemon_up{{daemon="ganeti-noded",{_NODE}}}': "1x5 0x20"},
        15,
        17,
        {"daemon": "ganeti-noded", "instance": "node1:1815"},
    ),
    "GanetiInstanceInError": Alert(
        {'ganeti_cluster_instance_states{status="ERROR_down"}': "0x5 2x30"},
        20,
        22,
        {"status": "ERROR_down"},
        "2",
    ),
    "GanetiGuestHalted": Alert(
        {
            'ganeti_cluster_instance_halted{exported_instance="web1",state="io-error",'
            f"{_NODE}}}": "_x5 1x30"
        },
        19,
        22,
        {"exported_instance": "web1", "state": "io-error", "instance": "node1:1815"},
    ),
    "GanetiGuestBusy": Alert(
        {
            f'ganeti_node_guest_cpu_seconds_total{{guest="web1",{_NODE}}}': "0+12x10 120+118x120",
            f'ganeti_node_guest_vcpus{{guest="web1",{_NODE}}}': "2x130",
        },
        70,
        90,
        {"guest": "web1"},
    ),
    "GanetiGuestOnTwoNodes": Alert(
        {
            f'ganeti_node_guest_memory_bytes{{guest="web1",{_NODE}}}': "1024x60",
            'ganeti_node_guest_memory_bytes{guest="web1",instance="node2:1815"}': "_x5 1024x55",
        },
        34,
        37,
        {"guest": "web1"},
        "2",
    ),
    "GanetiGuestsNotMeasured": Alert(
        {f'ganeti_node_guests_measured{{hypervisor="kvm",{_NODE}}}': "1x5 0x30"},
        19,
        22,
        {"hypervisor": "kvm", "instance": "node1:1815"},
    ),
    "GanetiReplicaMissing": Alert(
        {f'ganeti_node_drbd_connected{{minor="3",{_NODE}}}': "1x5 0x30"},
        20,
        22,
        {"minor": "3", "instance": "node1:1815"},
    ),
    "GanetiWatcherStopped": Alert(
        {'ganeti_cluster_watcher_round_timestamp_seconds{group="default"}': "0x60"},
        34,
        37,
        {"group": "default"},
    ),
    "GanetiNodeWatcherStopped": Alert(
        {f"ganeti_node_watcher_complete_timestamp_seconds{{{_NODE}}}": "0x90"},
        64,
        67,
        {"instance": "node1:1815"},
    ),
    "GanetiCommitsFail": Alert(
        {"ganeti_master_config_commits_failed_total": "0x10 1x10"}, 10, 12, {}
    ),
    "GanetiMasterCannotCommit": Alert(
        {f"ganeti_master_commit_confirmed_age_seconds{{{_NODE}}}": "0x5 60+60x10"},
        6,
        9,
        {"instance": "node1:1815"},
    ),
    "GanetiQueuePaused": Alert(
        {f'ganeti_master_queue{{state="paused",{_NODE}}}': "0x5 1x20"},
        6,
        9,
        {"state": "paused", "instance": "node1:1815"},
    ),
    "GanetiNodesLagging": Alert(
        {'ganeti_cluster_nodes_lagging{file="configuration"}': "0x5 1x60"},
        35,
        37,
        {"file": "configuration"},
        "1",
    ),
    "GanetiNodeCallsFail": Alert(
        {
            f'{_CALLS}{{call="version",outcome="answered"}}': "0+10x60",
            f'{_CALLS}{{call="version",outcome="unreachable"}}': "0x10 0+10x50",
        },
        20,
        45,
        {},
    ),
    "GanetiQueueDoesNotMove": Alert(
        {
            'ganeti_cluster_jobs{status="queued"}': "0x5 3x90",
            'ganeti_master_opcodes_total{opcode="OP_TEST_DELAY",status="success"}': "0+1x5 5x90",
        },
        60,
        70,
        {},
    ),
}


def rules() -> dict[str, Any]:
    groups = yaml.safe_load((EXAMPLES / "alerts.yml").read_text())["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"]}


def test_every_alert_has_a_situation() -> None:
    assert set(ALERTS) == set(rules())


def expected(rule: dict[str, Any], alert: Alert) -> dict[str, Any]:
    """What Prometheus is to show: the texts with their labels and the value filled in."""

    def filled(text: str) -> str:
        for name, value in alert.labels.items():
            text = text.replace(f"{{{{ $labels.{name} }}}}", value)
        return text.replace("{{ $value }}", alert.value)

    return {
        "exp_labels": {**rule["labels"], **alert.labels},
        "exp_annotations": {name: filled(text) for name, text in rule["annotations"].items()},
    }


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed (package prometheus)")
@pytest.mark.parametrize("name", ALERTS)
def test_the_alert_comes_in_its_situation_and_not_before(tmp_path: Path, name: str) -> None:
    """Prometheus's own evaluation of the rules, on made-up samples."""
    assert PROMTOOL is not None
    alert, rule = ALERTS[name], rules()[name]
    test = {
        "rule_files": [str(EXAMPLES / "alerts.yml")],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [
                    {"series": series, "values": values} for series, values in alert.series.items()
                ],
                "alert_rule_test": [
                    {"eval_time": f"{alert.quiet_min}m", "alertname": name, "exp_alerts": []},
                    {
                        "eval_time": f"{alert.fires_min}m",
                        "alertname": name,
                        "exp_alerts": [expected(rule, alert)],
                    },
                ],
            }
        ],
    }
    file = tmp_path / "alerts_test.yml"
    file.write_text(yaml.safe_dump(test))
    done = subprocess.run([PROMTOOL, "test", "rules", str(file)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed (package prometheus)")
def test_prometheus_accepts_every_expression_of_the_dashboard(tmp_path: Path) -> None:
    """As recording rules, because promtool checks no dashboards."""
    assert PROMTOOL is not None
    dashboard = json.loads((EXAMPLES / "dashboard.json").read_text())
    found = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    assert found
    for variable in ("$__rate_interval", "$__interval", "$__range"):
        found = [expression.replace(variable, "5m") for expression in found]
    recorded = [
        {"record": f"ganeti:panel{number}", "expr": one} for number, one in enumerate(found)
    ]
    file = tmp_path / "panels.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": recorded}]}))
    done = subprocess.run([PROMTOOL, "check", "rules", str(file)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
