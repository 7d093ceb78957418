"""What a node tells about directories which it may share with others."""

from __future__ import annotations

import errno
import os

import pytest

from ganeti import errors
from ganeti.backend.storage import directories
from ganeti.platform import paths


def test_marks_in_directories_for_exports_and_disks(here):
    export_dir, files = paths.Paths().export_dir, "/srv/ganeti/shared-file-storage"
    for path in (export_dir, files):
        os.makedirs(here.to_local(path), exist_ok=True)
    asked = [export_dir, files, "/srv/ganeti/missing", "/etc"]
    made = directories.directory_mark(asked, "token", "me")
    assert made.pop("/etc").startswith("path /etc is in the system directory")
    assert made == {
        export_dir: None,
        files: None,
        "/srv/ganeti/missing": "/srv/ganeti/missing: No such file or directory",
    }
    seen = directories.directory_seen(asked, "token", ["me", "you"])
    assert isinstance(seen.pop("/etc"), str)
    assert seen == {export_dir: ["me"], files: ["me"], "/srv/ganeti/missing": []}
    directories.directory_unmark(asked[:3], "token", "me")
    assert os.listdir(here.to_local(files)) == []
    with pytest.raises(errors.OpExecError, match="marks were not removed"):
        directories.directory_unmark(["/etc"], "token", "me")


def test_the_space_of_directories(here, monkeypatch):
    """Each directory has its own answer; one which will be made counts, too."""
    export_dir, files = paths.Paths().export_dir, "/srv/ganeti/file-storage"
    os.makedirs(here.to_local(export_dir))
    asked = {export_dir: 1 << 20, files: 1 << 20, "/etc": 0}
    found = directories.directory_space(asked, [f"{export_dir}/web~new"], sparse=False)
    assert found.pop("/etc").startswith("path /etc is in the system directory")
    assert found.keys() == {export_dir, files}
    assert all(isinstance(free, int) for free in found.values())
    truncate = os.truncate

    def limited(path, size):
        if size > 16 << 40:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
        truncate(path, min(size, 1 << 20))

    monkeypatch.setattr(os, "truncate", limited)
    asked = {files: (16 << 40) + 1}
    assert directories.directory_space(asked, [], sparse=True) == {
        files: f"{files}: File too large"
    }
    assert isinstance(directories.directory_space({files: 16 << 40}, [], sparse=True)[files], int)
