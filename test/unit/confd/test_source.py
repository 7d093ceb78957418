"""The files from which the configuration query daemon answers."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ganeti.confd.responder import Responder
from ganeti.confd.source import ConfdSource
from ganeti.config import api
from ganeti.constants import confd as const
from ganeti.objects import ConfigData, codec
from ganeti.platform import paths
from ganeti.utils import fs
from ganeti.wire import json

sys.path.insert(0, str(Path(__file__).parents[1] / "config"))
from samples import small_cluster  # noqa: E402

KEY = "0123abcd\n"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[paths.Paths]:
    root = tmp_path / "node1.example.com"
    monkeypatch.setenv(paths.ENV_ROOT, str(root))
    monkeypatch.setenv(paths.ENV_HOSTNAME, "node1.example.com")
    monkeypatch.setenv(paths.ENV_VCLUSTER, str(tmp_path))
    (tmp_path / "hosts").write_text("127.0.0.1 node1.example.com\n")
    found = paths.Paths(str(root))
    Path(found.data_dir).mkdir(parents=True)
    with paths.override(found):
        yield found


def write(here: paths.Paths, name: str, *, serial: int = 1, candidates: str = "") -> None:
    data = small_cluster(1, cluster_name=name, serial_no=serial)
    fs.write_file(here.ssconf_file("master_candidates"), candidates or "node1.example.com\n")
    fs.write_file(here.ssconf_file("master_candidates_ips"), "127.0.0.1\n")
    fs.write_file(here.hmac_key, KEY)
    fs.write_file(here.cluster_conf_file, json.dumps(codec.to_dict(data)))


def load(path: str) -> ConfigData:
    return api.load(path)[0]


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_files_are_read_again_at_most_so_often_and_at_least_so_often(here: paths.Paths) -> None:
    write(here, "one.example.com")
    clock, responder = Clock(), Responder()
    source = ConfdSource(here, responder, load, monotonic=clock)
    source.refresh()
    assert responder.facts is not None and responder.facts.serial == 1
    first = responder.facts
    write(here, "two.example.com")
    source.note()
    assert source.wait_s() == const.RELOAD_LEAST_S
    source.refresh()
    assert responder.facts is first, "too early"
    clock.now += const.RELOAD_LEAST_S
    source.refresh()
    assert responder.facts is not first
    # Nobody says anything: it looks all the same.
    write(here, "three.example.com")
    assert source.wait_s() == const.RELOAD_MOST_S
    clock.now += const.RELOAD_MOST_S
    source.refresh()
    assert responder.facts.data.cluster.cluster_name == "three.example.com"
    unchanged = responder.facts
    clock.now += const.RELOAD_MOST_S
    source.refresh()
    assert responder.facts is unchanged


@pytest.mark.parametrize("damage", ["garbage", "gone", "demoted"])
def test_without_a_good_configuration_nothing_is_told(here: paths.Paths, damage: str) -> None:
    write(here, "one.example.com")
    clock, responder = Clock(), Responder()
    source = ConfdSource(here, responder, load, monotonic=clock)
    source.refresh()
    assert responder.facts is not None
    if damage == "garbage":
        Path(here.cluster_conf_file).write_text("{")
    elif damage == "gone":
        Path(here.cluster_conf_file).unlink()
    else:
        fs.write_file(here.ssconf_file("master_candidates"), "node2.example.com\n")
    clock.now += const.RELOAD_MOST_S
    source.refresh()
    assert responder.facts is None
    write(here, "one.example.com")
    clock.now += const.RELOAD_MOST_S
    source.refresh()
    assert responder.facts is not None
