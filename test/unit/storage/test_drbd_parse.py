"""What /proc/drbd and drbdsetup print, of 8.0 to 8.4."""

from __future__ import annotations

from pathlib import Path

import pytest

from ganeti import errors
from ganeti.storage.drbd import parse

DATA = Path(__file__).resolve().parents[2] / "data" / "drbd"


def read(name: str) -> str:
    return (DATA / name).read_text()


def test_states_of_all_minors():
    found = parse.parse_proc(read("proc_drbd84.txt"))
    assert sorted(found) == [0, 1, 2, 4, 6, 8]
    assert found[0].connected and found[0].primary and found[0].up_to_date
    assert not found[1].primary and found[1].remote_role == "Primary"
    assert not found[2].configured
    assert found[4].connection == "WFConnection" and found[4].remote_disk == "DUnknown"
    assert found[4].out_of_sync_kib == 1048320
    assert found[6].diskless and found[6].connected
    assert found[8].standalone


@pytest.mark.parametrize(
    ("file", "minor", "percent", "finish_s", "target"),
    [
        ("proc_drbd84_sync.txt", 5, 68.5, 5, False),
        ("proc_drbd83_sync_krnl2.6.39.txt", 3, 2.4, 248, False),
        ("proc_drbd83_sync_want.txt", 0, 44.4, 8, True),
        ("drbd-8.4.11-3-syncing.proc", 0, 12.5, 7, False),
    ],
)
def test_progress(file, minor, percent, finish_s, target):
    state = parse.parse_proc(read(file))[minor]
    assert (state.sync_percent, state.finish_s) == (percent, finish_s)
    assert state.resyncing and not state.connected
    assert (state.connection in parse.SYNC_TARGETS) is target


def test_diskless_primary():
    state = parse.parse_proc(read("drbd-8.4.11-12-diskless.proc"))[0]
    assert state.diskless and state.primary and state.remote_disk == "UpToDate"


def test_minor_taken_down_is_not_listed():
    assert parse.parse_proc(read("drbd-8.4.11-13-down.proc")) == {}


@pytest.mark.parametrize(
    ("file", "version"),
    [
        ("proc_drbd84.txt", (8, 4, 2)),
        ("drbd-8.4.11-3-syncing.proc", (8, 4, 11)),
        ("proc_drbd83_sync_krnl2.6.39.txt", (8, 3, 1)),
        ("proc_drbd80-emptyline.txt", (8, 0, 12)),
    ],
)
def test_version(file, version):
    assert parse.parse_version(read(file)) == version


def test_version_without_third_number():
    assert parse.parse_version("version: 9.1 (api:2/proto:86-121)\n") == (9, 1, 0)


@pytest.mark.parametrize("text", ["", "no module", read("proc_drbd80-emptyversion.txt")])
def test_no_version(text):
    with pytest.raises(errors.ParseError, match="no version"):
        parse.parse_version(text)


def test_minor_in_an_unknown_form():
    with pytest.raises(errors.ParseError, match="state of a DRBD minor"):
        parse.parse_proc(" 0: cs:Connected something:new\n")


OURS = {"local_address": ("192.0.2.1", 11000), "remote_address": ("192.0.2.2", 11000)}


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        (
            "bdev-drbd-8.4.txt",
            {
                **OURS,
                "resource": "resource0",
                "minor": 0,
                "data_device": "/dev/xenvg/test.data",
                "meta_device": "/dev/xenvg/test.meta",
                "meta_index": "0",
                "hmac": "md5",
                "secret": "shared_secret_123",
            },
        ),
        (
            "bdev-drbd-8.4-no-disk-params.txt",
            {
                **OURS,
                "resource": "resource0",
                "minor": 0,
                "data_device": "/dev/xenvg/test.data",
                "meta_device": "/dev/xenvg/test.meta",
                "hmac": "md5",
                "secret": "shared_secret_123",
            },
        ),
        (
            "bdev-drbd-8.3.txt",
            {
                **OURS,
                "minor": 0,
                "data_device": "/dev/xenvg/test.data",
                "protocol": "C",
                "meta_device": "/dev/xenvg/test.meta",
                "meta_index": "0",
            },
        ),
        (
            "bdev-drbd-net-ip6.txt",
            {
                "minor": 0,
                "local_address": ("2001:db8:65::1", 11048),
                "protocol": "C",
                "hmac": "md5",
                "remote_address": ("2001:db8:66::1", 11048),
                "secret": "a6526cb6118297c9c82c7003924e236ceac0d867",
            },
        ),
        (
            "bdev-drbd-disk.txt",
            {
                "data_device": "/dev/xenvg/test.data",
                "meta_device": "/dev/xenvg/test.meta",
                "meta_index": "0",
            },
        ),
        (
            "drbd-8.4.11-1-attached-standalone.show",
            {
                "resource": "resource0",
                "minor": 0,
                "data_device": "/dev/xenvg/d0.data",
                "meta_device": "/dev/xenvg/d0.meta",
            },
        ),
        (
            "drbd-8.4.11-8-dual-primary.show",
            {
                "resource": "resource0",
                "minor": 0,
                "data_device": "/dev/xenvg/d0.data",
                "meta_device": "/dev/xenvg/d0.meta",
                "local_address": ("10.77.2.1", 11000),
                "remote_address": ("10.77.2.2", 11000),
                "hmac": "md5",
                "dual_primary": True,
                "secret": "c0ffeec0ffeec0ffeec0ffeec0ffee",
            },
        ),
        (
            "drbd-8.4.11-12-diskless.show",
            {
                "resource": "resource0",
                "minor": 0,
                "local_address": ("10.77.2.1", 11000),
                "remote_address": ("10.77.2.3", 11000),
                "hmac": "md5",
                "secret": "c0ffeec0ffeec0ffeec0ffeec0ffee",
            },
        ),
        ("drbd-8.4.11-13-down.show", {}),
    ],
)
def test_configuration(file, expected):
    assert parse.parse_show(read(file)) == parse.MinorConfig(**expected)


@pytest.mark.parametrize(
    "text",
    ["resource r0 {", "}", "resource r0 { net { } } trailing", "volume 0 { device minor x; ;"],
)
def test_configuration_that_ends_early(text):
    with pytest.raises(errors.ParseError, match="drbdsetup"):
        parse.parse_show(text)


def test_minor_that_is_no_number():
    with pytest.raises(errors.ParseError, match="expected a number"):
        parse.parse_show("_this_host { device minor seven; }")


@pytest.mark.parametrize(
    ("flags", "waits"),
    [
        ("C r-----", False),
        ("C s-----", True),
        ("  s-----", True),
        ("  r-----", False),
        ("C", False),
    ],
)
def test_a_device_whose_requests_wait(flags, waits):
    line = f" 0: cs:WFConnection ro:Primary/Unknown ds:UpToDate/DUnknown {flags}"
    assert parse.parse_proc(line)[0].suspended is waits


def test_the_policy_of_a_device():
    text = "resource r { _this_host { volume 0 { device minor 0; disk { fencing %s; } } } }"
    assert parse.parse_show(text % "resource-and-stonith").waits_for_peer
    assert not parse.parse_show(text % "dont-care").waits_for_peer
