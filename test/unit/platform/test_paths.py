"""Published names of files, and how a virtual node moves them all."""

from __future__ import annotations

import pytest

from ganeti import errors
from ganeti.platform import paths


def test_real_machine() -> None:
    here = paths.Paths()
    assert here.cluster_conf_file == "/var/lib/ganeti/config.data"
    assert here.master_socket == "/var/run/ganeti/socket/ganeti-master"
    assert here.queue_archive_dir == "/var/lib/ganeti/queue/archive"
    assert here.log_file("ganeti-masterd") == "/var/log/ganeti/master-daemon.log"
    assert here.log_file("ganeti-noded") == "/var/log/ganeti/node-daemon.log"
    assert here.log_file("other") == "/var/log/ganeti/other.log"
    assert here.pid_file("ganeti-noded") == "/var/run/ganeti/ganeti-noded.pid"
    assert here.ssconf_file("node_list") == "/var/lib/ganeti/ssconf_node_list"
    assert here.os_search_path[0] == "/srv/ganeti/os"
    assert here.to_local("/srv/x") == "/srv/x"


def test_virtual_node() -> None:
    here = paths.Paths("/v/node1/")
    assert here.root == "/v/node1"
    assert here.noded_cert_file == "/v/node1/var/lib/ganeti/server.pem"
    assert here.os_search_path[0] == "/v/node1/srv/ganeti/os"
    assert here.to_local("/srv/x") == "/v/node1/srv/x"
    assert here.to_local(here.to_local("/srv/x")) == "/v/node1/srv/x"
    assert here.to_virtual("/v/node1/srv/x") == "/srv/x"
    assert here.to_virtual("/other") == "/other"
    # A directory whose name merely begins the same is not below the root.
    assert here.to_local("/v/node10/x") == "/v/node1/v/node10/x"


def test_relative_paths_are_refused() -> None:
    with pytest.raises(errors.ConfigurationError, match="absolute"):
        paths.Paths("node1")
    with pytest.raises(errors.ProgrammerError, match="relative"):
        paths.Paths().to_local("srv/x")


def test_current_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert paths.current().root == ""
    monkeypatch.setenv("GANETI_ROOTDIR", "/v/node2")
    assert paths.current().data_dir == "/v/node2/var/lib/ganeti"
    with paths.override(paths.Paths("/other")):
        assert paths.current().root == "/other"
    assert paths.current().root == "/v/node2"


def test_daemon_util_is_in_the_checkout() -> None:
    assert paths.daemon_util().endswith("/daemons/daemon-util")
    assert paths.daemon_dir().endswith("/daemons")


@pytest.mark.parametrize(
    ("directory", "path", "inside"),
    [
        ("/a", "/a", True),
        ("/a", "/a/b", True),
        ("/a/", "/a/b/../c", True),
        ("/a", "/a/../b", False),
        ("/a", "/ab", False),
    ],
)
def test_is_below(directory: str, path: str, inside: bool) -> None:
    assert paths.is_below(directory, path) is inside
