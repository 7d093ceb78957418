"""The rules of alerts, the dashboard and the page about monitoring name metrics which exist."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

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
                 "lib/ganeti/locking", "lib/ganeti/config", "lib/ganeti/http"):  # fmt: skip
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
