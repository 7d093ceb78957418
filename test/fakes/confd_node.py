"""A node with the files which ``ganeti-confd`` reads: for tests of the daemon and of its source."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ganeti.objects import codec
from ganeti.platform import paths
from ganeti.utils import fs
from ganeti.wire import json

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "config"))
from samples import small_cluster  # noqa: E402

KEY = "0123abcd\n"


def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[paths.Paths]:
    """Make the directory of a node of a virtual cluster the place of all paths; for a fixture."""
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
    """Write a configuration, its ssconf files and the key of the node."""
    data = small_cluster(1, cluster_name=name, serial_no=serial)
    fs.write_file(here.ssconf_file("master_candidates"), candidates or "node1.example.com\n")
    fs.write_file(here.ssconf_file("master_candidates_ips"), "127.0.0.1\n")
    fs.write_file(here.hmac_key, KEY)
    fs.write_file(here.cluster_conf_file, json.dumps(codec.to_dict(data)))
