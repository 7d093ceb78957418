"""A virtual cluster like a real one."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest

from ganeti import errors
from ganeti.config import upgrade, verify
from ganeti.objects import ConfigData, codec
from ganeti.vcluster import like

DATA = Path(__file__).parents[2] / "data"


@pytest.fixture
def real() -> like.Model:
    return like.read_model(str(DATA / "config-3.0.2/config.data"))


def virtual(real: like.Model) -> dict:
    """A configuration of a new virtual cluster whose nodes have the same names."""
    found = copy.deepcopy(real.config)
    nodes = {}
    for number, node in enumerate(found["nodes"].values(), 1):
        uuid, address = f"v-{node['name']}", f"127.1.1.{number}"
        nodes[uuid] = {**node, "uuid": uuid, "primary_ip": address, "secondary_ip": address}
    found["nodes"] = nodes
    found["cluster"].update(
        master_ip="127.1.1.250", master_netdev="lo", enabled_hypervisors=["fake"],
        enabled_disk_templates=["diskless", "file"], modify_ssh_setup=False,
        candidate_certs={uuid: f"AA:{uuid}" for uuid in nodes},
    )  # fmt: skip
    found["serial_no"] = 1000
    return found


def test_the_objects_are_those_of_the_real_cluster(real: like.Model) -> None:
    before = copy.deepcopy(real.config)
    own = virtual(real)
    found = like.transformed(real.config, own)
    assert real.config == before
    data = codec.from_dict(ConfigData, found)
    assert not [text for text in verify.check(data) if "version" in text]
    assert found["nodes"].keys() == before["nodes"].keys()
    assert found["instances"].keys() == before["instances"].keys()
    assert found["nodegroups"].keys() == before["nodegroups"].keys()
    assert found["serial_no"] > own["serial_no"]
    for uuid, node in found["nodes"].items():
        assert node["primary_ip"].startswith("127.1.1.") and not node["offline"]
        assert found["cluster"]["candidate_certs"][uuid] == f"AA:v-{node['name']}"
    assert found["cluster"]["master_ip"] == "127.1.1.250"
    assert found["cluster"]["enabled_hypervisors"] == ["fake"]
    for instance in found["instances"].values():
        assert instance["hypervisor"] == "fake" and not instance["disks"] and not instance["nics"]
    assert not found["disks"]


def test_the_master_is_the_first_node(real: like.Model) -> None:
    master = real.config["nodes"][real.config["cluster"]["master_node"]]["name"]
    assert real.nodes[0] == master and len(set(real.nodes)) == len(real.config["nodes"])


def test_wrong_files(tmp_path: Path, real: like.Model) -> None:
    path = tmp_path / "config.data"
    for text in ("", "[]", '{"version": 3010000}'):
        path.write_text(text)
        with pytest.raises(errors.ConfigurationError):
            like.read_model(str(path))
    config = copy.deepcopy(real.config)
    next(iter(config["nodes"].values()))["name"] = "node_1"
    path.write_text(json.dumps(upgrade.upgrade(config)))
    with pytest.raises(errors.ConfigurationError, match="cannot be named node_1"):
        like.read_model(str(path))
