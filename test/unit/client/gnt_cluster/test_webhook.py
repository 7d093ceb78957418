"""``gnt-cluster webhook``: rules by which events are sent to servers."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from fakes.luxi_master import FakeMaster
from ganeti.rapi.webhooks import rules

from ..conftest import Gnt

URL = "https://tickets.example.com/hooks/very-secret"


@pytest.fixture
def records(master: FakeMaster) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {rules.KIND: [], rules.STATE_KIND: []}
    master.answers["QueryAccessRecords"] = lambda kind, _since: {
        "serial": 1,
        "records": found[kind],
    }
    master.answers["ChangeAccessRecords"] = lambda _changes: {"before": 1, "serial": 2}
    return found


def changes(master: FakeMaster) -> list[Any]:
    return [args[0] for name, args in master.requests if name == "ChangeAccessRecords"]


def test_add(gnt: Gnt, master: FakeMaster, records: Any) -> None:
    found = gnt(f"cluster webhook add tickets {URL} --kind=job --tag=prod --severity=error")
    assert found.code == 0 and "whsec_" in found.out
    (((what, record),),) = changes(master)
    rule = rules.of_record(record)
    assert what == "put" and rule.secret in found.out
    assert (rule.name, rule.url, rule.owner) == ("tickets", URL, "root")
    assert (rule.kinds, rule.tags, rule.severity) == (("job",), ("prod",), "error")
    assert abs(rule.made - time.time()) < 60
    records[rules.KIND].append(record)
    again = gnt(f"cluster webhook add tickets {URL}")
    assert again.code == 1 and "there is a webhook tickets" in again.err


def test_list(gnt: Gnt, records: Any) -> None:
    assert gnt("cluster webhook list").out == "There are no webhooks.\n"
    rule = rules.make("tickets", URL, {}, owner="root", made=5.0)
    records[rules.KIND].append(rule.record())
    found = gnt("cluster webhook list")
    assert found.out == "tickets to https://tickets.example.com: no message yet\n"
    state = {"made": 5.0, "failing_since": 7.0, "problem": "status 502", "lost": 3}
    records[rules.STATE_KIND].append({"key": "tickets", "data": state})
    out = gnt("cluster webhook list").out
    assert "fails since" in out and ": status 502, 3 events were given up\n" in out
    (shown,) = json.loads(gnt("cluster webhook list --output=json").out)
    assert shown["failing_since"] == 7.0 and shown["lost"] == 3
    assert "very-secret" not in out + json.dumps(shown)
    # The state of an earlier rule with this name.
    state["made"] = 4.0
    assert gnt("cluster webhook list").out.endswith("no message yet\n")
    state.update(made=5.0, disabled="status 410")
    assert "nothing is sent any more: status 410" in gnt("cluster webhook list").out


def test_remove(gnt: Gnt, master: FakeMaster, records: Any) -> None:
    records[rules.KIND].append(rules.make("t", URL, {}, owner="root", made=5.0).record())
    assert gnt("cluster webhook remove t").code == 0
    assert changes(master) == [[["remove", rules.KIND, "t"], ["remove", rules.STATE_KIND, "t"]]]
    found = gnt("cluster webhook remove other")
    assert found.code == 1 and "there is no webhook other" in found.err


@pytest.mark.parametrize(
    "words",
    ["send", "add", "add x", f"add x {URL} y", "list x", "remove", "remove x --kind=job"],
)
def test_wrong_words(gnt: Gnt, master: FakeMaster, words: str) -> None:
    assert gnt(f"cluster webhook {words}").code == 1
    assert master.methods() == []


def test_a_wrong_url(gnt: Gnt, master: FakeMaster, records: Any) -> None:
    found = gnt("cluster webhook add x http://tickets.example.com/very-secret")
    assert found.code == 1 and "https" in found.err and "very-secret" not in found.err
    assert changes(master) == []
