"""The files from which the configuration query daemon answers."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.confd_node import node, write
from ganeti.confd.responder import Responder
from ganeti.confd.source import ConfdSource
from ganeti.config import api
from ganeti.configfile import files
from ganeti.configfile.content import Change
from ganeti.constants import confd as const
from ganeti.objects import ConfigData
from ganeti.platform import paths
from ganeti.utils import fs


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[paths.Paths]:
    yield from node(tmp_path, monkeypatch)


def load(path: str) -> ConfigData:
    return api.load(path)[0]


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENOMEM])
def test_a_shortage_takes_nothing_away_and_is_outlasted(
    here: paths.Paths, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Nodes with a watchdog restart when too few candidates answer."""
    write(here, "one.example.com")
    clock, responder = Clock(), Responder()
    refused = [False]

    def read(path: str) -> bytes:
        if refused[0]:
            raise OSError(number, os.strerror(number), path)
        return read_bytes(path)

    def loaded(path: str) -> ConfigData:
        read(path)
        return load(path)

    read_bytes = fs.read_bytes
    monkeypatch.setattr(fs, "read_bytes", read)
    source = ConfdSource(here, responder, loaded, monotonic=clock)
    source.refresh()
    first, key = responder.facts, responder._key
    assert first is not None and key and source.age_s() == 0
    refused[0] = True
    write(here, "two.example.com")
    os.utime(here.hmac_key)
    source.note()
    for _ in range(3):
        clock.now += const.RELOAD_LEAST_S
        source.refresh()
        assert responder.facts is first and responder._key == key
        assert source.wait_s() <= const.RELOAD_LEAST_S, "it tries again soon"
    assert source.age_s() == 3 * const.RELOAD_LEAST_S
    refused[0] = False
    clock.now += const.RELOAD_LEAST_S
    source.refresh()
    assert responder.facts is not None
    assert responder.facts.data.cluster.cluster_name == "two.example.com"
    assert source.age_s() == 0


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


def test_changes_in_the_journal_are_answered(
    here: paths.Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "JOURNAL_FROM_BYTES", 1)
    write(here, "one.example.com")
    clock, responder = Clock(), Responder()
    source = ConfdSource(here, responder, load, monotonic=clock)
    source.refresh()
    text = Path(here.cluster_conf_file).read_bytes()
    new = text.replace(b"one.example.com", b"two.example.com")
    wanted = Change(len(text), text[-40:], [new], len(new))
    assert files.change(here.cluster_conf_file, wanted)
    clock.now += 1
    assert source.age_s() == 1, "the configuration here may be an older one"
    clock.now += const.RELOAD_MOST_S
    source.refresh()
    assert responder.facts is not None and source.age_s() == 0
    assert responder.facts.data.cluster.cluster_name == "two.example.com"
    assert files.fold(here.cluster_conf_file, contextlib.nullcontext)
    clock.now += const.RELOAD_MOST_S
    source.refresh()
    assert responder.facts.data.cluster.cluster_name == "two.example.com"
