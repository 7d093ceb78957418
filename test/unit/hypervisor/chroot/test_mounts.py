"""The mounts of a directory."""

from __future__ import annotations

from ganeti.hypervisor.chroot import parse


def test_mount_points() -> None:
    text = "/dev/a / ext4 rw 0 0\nnone /x\\040y/tmp tmpfs rw 0 0\nnonsense\n"
    assert parse.parse_mount_points(text) == ["/", "/x y/tmp"]


def test_the_last_mounted_first_and_nothing_beside() -> None:
    mounts = ["/", "/r/web", "/r/web2", "/r/web/proc", "/r/web/proc/x", "/r"]
    assert parse.below(mounts, "/r/web") == ["/r/web/proc/x", "/r/web/proc", "/r/web"]
