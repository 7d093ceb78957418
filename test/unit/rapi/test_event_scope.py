"""Which events a user with rights for some instances gets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes.limited_cluster import limited_lab
from fakes.rest_client import Rest
from ganeti import errors
from ganeti.rapi.event_scope import EventScope
from ganeti.rapi.events import Event
from ganeti.rapi.rights import parse
from ganeti.rapi.selectors import Selector

POOLS = {"shop": [Selector("tag", "web"), Selector("instance", "db*")]}
WEB: dict[str, Any] = {"tags": ["web"], "groups": ["rack1"]}


def scope(rights: str, user: str = "tina") -> EventScope:
    area = parse(rights, {}, ())[0].seen(user)
    assert area is not None
    return EventScope.of(area, POOLS)


def instance(name: str = "web1.example.com", **about: Any) -> Event:
    return Event(1, "instance", {"name": name, "uuid": "u"}, about)


def job(kind: str, *instances: list[Any]) -> Event:
    return Event(1, kind, {"id": 7}, {"instances": list(instances), "tags": ["web"]})


@pytest.mark.parametrize(
    ("rights", "event", "sees"),
    [
        ("view@tag:web", instance(**WEB), True),
        ("view@tag:web", instance(tags=["db"]), False),
        ("view@tag:web", instance(), False),
        ("view@instance:web*", instance(), True),
        ("view@group:rack1", instance(**WEB), True),
        ("view@own", instance(tags=["owner:tina"]), True),
        ("view@own", instance(tags=["owner:jill"]), False),
        ("view@pool:shop", instance("db1", tags=[]), True),
        ("view@pool:nosuch", instance(**WEB), False),
        # It leaves the area, or comes into it, with this change.
        ("view@tag:web", instance(tags=["x"], tags_removed=["web"], tags_added=["x"]), True),
        ("view@instance:web*", instance("db1", tags=[], old_name="web1"), True),
        ("view@instance:db*", instance("db1", tags=[], old_name="web1"), True),
        ("view@tag:web@instance:db*", instance(**WEB), False),
        ("view@tag:web", job("job", ["web1", ["web"], []]), True),
        ("view@tag:web", job("log", ["web1", ["web"], []]), True),
        ("view@tag:web", job("progress", ["web1", ["web"], []], ["db1", ["x"], []]), False),
        ("view@tag:web", job("job"), False),
        ("view@tag:web", Event(1, "node", {"name": "web1"}, WEB), False),
        ("view@tag:web", Event(1, "cluster", {"name": "web1"}, WEB), False),
        ("view@tag:web", Event(1, "finding", {"object": "instance", "name": "web1"}, WEB), True),
        ("view@tag:web", Event(1, "finding", {"object": "node", "name": "web1"}, WEB), False),
    ],
)
def test_what_is_seen(rights: str, event: Event, sees: bool) -> None:
    assert scope(rights).sees(event) is sees


def test_users_with_the_same_rights_share_the_work() -> None:
    assert scope("view@tag:web") == scope("view@tag:web")
    assert len({scope("view@tag:web"), scope("view@tag:web"), scope("view@tag:db")}) == 2


@pytest.fixture
def rest(tmp_path: Path) -> Iterator[Rest]:
    users = "root pw write\ntina pw view@tag:web\nlost pw write@tga:web\n"
    with limited_lab(tmp_path, users) as one:
        one.master.answers.update(WaitForEvents=_events, CheckGuests=None)
        yield one


def _events(place: Any, wait_s: float, kinds: list[str]) -> dict[str, Any]:
    if wait_s:
        raise errors.NoMasterError("this master has no further events")
    kept = [
        instance("web1", **WEB),
        instance("db1", tags=["db"]),
        job("job", ["web1", ["web"], []]),
        Event(4, "node", {"name": "node1"}, {}),
    ]
    found = [[number, *one[1:]] for number, one in enumerate(kept, 1) if one.kind in kinds]
    return {"epoch": "e", "last": 4, "events": found, "lost": False, "dropped": [0, 0]}


def log(rest: Rest, user: str, more: str = "") -> list[Any]:
    status, found, _headers = rest("GET", f"/2/events/log?after=oldest{more}", user=user)
    assert status == 200, found
    return [one["data"] for one in found["events"]]


def test_a_limited_user_gets_his_events(rest: Rest) -> None:
    everything = log(rest, "root:pw", "&kind=*")
    assert len(everything) == 4
    assert log(rest, "tina:pw", "&kind=*") == [everything[0], everything[2]]
    assert all("instances" not in one for one in everything)
    # The short form has nothing with which to decide, and is decided all the same.
    assert log(rest, "tina:pw") == [{"name": "web1", "uuid": "u"}, {"id": 7}]
    assert log(rest, "tina:pw", "&kind=instance&name=db1") == []
    assert rest("GET", "/2/events/log", user="lost:pw")[0] == 403
