"""One odd entry of the configuration stops nothing, is kept, and is named."""

from __future__ import annotations

import copy
import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes.config import commit
from ganeti import errors
from ganeti.config import Config, damaged, ssconf, verify
from ganeti.config.index import Index
from ganeti.config.index_keys import IP, LV, MAC, MINOR, PORT
from ganeti.config.text import ConfigText
from ganeti.objects import ConfigData
from ganeti.query import engine, resources
from ganeti.query.view import View

STORED: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "data" / "query_cluster.json").read_text()
)
TABLES = ("instances", "disks", "networks", "filters")
# Texts are refused elsewhere when they are not valid ones; here they must do no harm.
ODD = (
    *(None, 0, -1, 1, 2**70, 1e300, 0.5, True),
    *("", "x", "\x00", "\ud800", "../..", "a b\n", "198.51.100.0/8", "::1/200", "0" * 50),
    *([], [[]], [1], ["x"], {}, {"x": 1}, {"a": {"b": []}}),
)


class _Nothing:
    def collect(self, view: View, kinds: Any, items: Any) -> None:
        for kind in kinds:
            view.live[kind] = {}


def use(raw: dict[str, Any]) -> ConfigData:
    """Do with a configuration what the master daemon does; every error is one of ours."""
    data = damaged.decode(raw)
    Index(data)
    ssconf.values(data)
    text = b"".join(ConfigText(data).render(data, ()))
    assert damaged.decode(json.loads(text)) == data, "it is the same after the next start"
    verify.check(data)
    for name in ("instance", "node", "group", "network"):
        resource = resources.lookup(name)
        for field in resource.fields:
            # What a query cannot compute for one object may not end the query.
            engine.run(resource, View(data), [field], None, _Nothing())
    return data


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    if isinstance(value, (dict, list)):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from places(value[key], (*path, key))


def changed(path: tuple[Any, ...], value: Any, *, drop: bool = False) -> dict[str, Any]:
    raw: dict[str, Any] = copy.deepcopy(STORED)
    place: Any = raw
    for part in path[:-1]:
        place = place[part]
    if drop:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return raw


@pytest.mark.parametrize("seed", range(4))
def test_any_odd_value_at_any_place(seed: int) -> None:
    """Of an object it is set aside; of the cluster, a node or a group it may be refused."""
    everywhere = [path for path in places(STORED) if len(path) > 2]
    chance = random.Random(seed)
    for _ in range(100):
        path = chance.choice(everywhere)
        raw = changed(path, chance.choice(ODD), drop=chance.random() < 0.15)
        try:
            use(raw)
        except errors.ConfigurationError:
            assert path[0] in ("cluster", "nodes", "nodegroups"), path


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("entry", [None, [], "x", {}, {"uuid": 5}])
def test_any_odd_object(table: str, entry: Any) -> None:
    raw = copy.deepcopy(STORED)
    raw.setdefault(table, {})
    uuid = next(iter(raw[table]), "0b1541c6-5529-436d-a9c4-89fe65e248c6")
    raw[table][uuid] = entry
    data = use(raw)
    assert data.damaged[f"{table}/{uuid}"] == entry
    (problem,) = [one for one in damaged.problems(data) if f"{table}/{uuid}" in one]
    assert problem in verify.check(data)


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "config.data")


def mirrored(raw: dict[str, Any]) -> tuple[str, str]:
    """Make a disk of an instance a mirrored one; return the UUIDs of instance and disk."""
    uuid = next(uuid for uuid, one in raw["instances"].items() if one["disks"] and one["nics"])
    disk = raw["instances"][uuid]["disks"][0]
    first, second = list(raw["nodes"])[:2]
    volume = {**raw["disks"][disk], "dev_type": "plain", "uuid": "", "children": []}
    raw["disks"][disk] |= {
        "dev_type": "drbd",
        "logical_id": [first, second, 11003, 0, 1, "secret"],
        "children": [
            {**volume, "logical_id": ["xenvg", "a_data"]},
            {**volume, "logical_id": ["xenvg", "a_meta"]},
        ],
    }
    return uuid, disk


def test_an_odd_disk_takes_its_instance_along_and_keeps_what_it_uses(path: str) -> None:
    raw = copy.deepcopy(STORED)
    instance, disk = mirrored(raw)
    raw["disks"][disk]["size"] = "large"
    kept_disk, kept_instance = copy.deepcopy((raw["disks"][disk], raw["instances"][instance]))
    kept_instance["network_port"] = 11007
    raw["instances"][instance]["network_port"] = 11007
    Path(path).write_text(json.dumps(raw))
    config = Config.open(path)
    assert config.snapshot().damaged == {
        f"disks/{disk}": kept_disk,
        f"instances/{instance}": kept_instance,
    }
    index = config._store._index
    first, second, port, minor, peer_minor = kept_disk["logical_id"][:5]
    for kind, value in (
        (MINOR, (first, minor)),
        (MINOR, (second, peer_minor)),
        (PORT, port),
        (PORT, 11007),
        (LV, "/".join(kept_disk["children"][0]["logical_id"])),
        (MAC, kept_instance["nics"][0]["mac"].lower()),
    ):
        assert index.owners(kind, value) == (
            f"instances/{instance}" if kind == MAC or value == 11007 else f"disks/{disk}",
        ), kind
    problems = config.verify()
    assert any(f"disks/{disk}" in one and "size" in one for one in problems)
    assert any(
        kept_instance["name"] in one and "needs a disk which was set aside" in one
        for one in problems
    )


def test_it_is_kept_by_changes_and_comes_back_when_it_was_repaired(path: str) -> None:
    raw = copy.deepcopy(STORED)
    instance, disk = mirrored(raw)
    size = raw["disks"][disk]["size"]
    raw["disks"][disk]["size"] = "large"
    Path(path).write_text(json.dumps(raw))
    commit(Config.open(path)).ports.allocate()
    written = json.loads(Path(path).read_text())
    assert sorted(written["damaged"]) == [f"disks/{disk}", f"instances/{instance}"]
    assert list(written)[-1] == "serial_no", "which is read from the end of the file"
    assert Config.open(path).snapshot().damaged == written["damaged"]
    written["damaged"][f"disks/{disk}"]["size"] = size
    Path(path).write_text(json.dumps(written))
    data = Config.open(path).snapshot()
    assert data.damaged == {}
    assert data.disks[disk].size == size
    assert instance in data.instances
    commit(Config.open(path)).ports.allocate()
    assert "damaged" not in json.loads(Path(path).read_text())


def test_the_name_and_the_addresses_stay_in_use() -> None:
    raw = copy.deepcopy(STORED)
    entry = {
        "name": "web.example.com",
        "network_port": "x",
        "nics": [{"mac": "AA:00:00:00:00:01", "ip": "192.0.2.9", "network": "net"}, 5, {"mac": 1}],
    }
    raw["instances"]["i"] = entry
    found = Index(damaged.decode(raw))
    assert found.has(MAC, "aa:00:00:00:00:01")
    assert found.has(IP, ("net", "192.0.2.9"))
    assert found.owners("instance name", "web.example.com") == ("instances/i",)


def test_odd_parameters_of_the_cluster_and_of_groups_are_set_aside() -> None:
    group = next(iter(STORED["nodegroups"]))
    raw = copy.deepcopy(STORED)
    raw["cluster"]["hvparams"]["fake"] = 7
    raw["nodegroups"][group]["networks"] = {"net": "bridged"}
    data = use(raw)
    assert data.damaged == {
        "cluster/hvparams/fake": 7,
        f"nodegroups/{group}/networks/net": "bridged",
    }
    assert all("must be a dictionary" in one for one in damaged.problems(data))


def test_what_everything_depends_on_is_refused_with_its_place(path: str) -> None:
    node = next(iter(STORED["nodes"]))
    for place in (("nodes", node, "primary_ip"), ("cluster", "cluster_name")):
        Path(path).write_text(json.dumps(changed(place, [])))
        with pytest.raises(errors.ConfigurationError, match="/".join(place)):
            Config.open(path)
        assert os.listdir(os.path.dirname(path)) == ["config.data"]
