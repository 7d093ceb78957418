"""What a node says about LVM and DRBD, and what it says when they are missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ganeti import errors
from ganeti.backend.node import verify
from ganeti.constants import node_verify as nv
from ganeti.objects.device_names import DeviceNames
from ganeti.platform import machine, paths
from ganeti.storage.drbd import status
from ganeti.storage.lvm import facts
from ganeti.utils import process
from ganeti.utils.text import secret_digest

PVS = "\n".join(
    (
        "  /dev/sda|xenvg|100.00|a--|500.00|lv1",
        "  /dev/sda|xenvg|100.00|a--|500.00|lv2",
        "  /dev/sdb|xenvg|400.00|a--|400.00|",
        "  /dev/sdc|other|1.00|a--|1.00|",
    )
)
OUTPUT = {
    "vgs": "  xenvg|500.00|wz--n-|900.00\n",
    "pvs": PVS + "\n",
    "lvs": "  xenvg|lv1|200.00|-wi-ao----\n",
}


def check(name: str, argument: Any = None, **more: Any) -> Any:
    return verify.node_verify({name: argument, **more}, "cluster", {})[name]


@pytest.fixture
def lvm(here: Any) -> Any:
    def run(argv: list[str], **_options: Any) -> process.Completed:
        return process.Completed(tuple(argv), 0, OUTPUT[argv[0]], "", None)

    with facts.use(facts.Lvm(run)) as using:
        yield using


@pytest.fixture
def no_lvm(here: Any) -> Any:
    def run(argv: list[str], **_options: Any) -> process.Completed:
        raise errors.CommandError(argv, 127, "not found")

    with facts.use(facts.Lvm(run)):
        yield


def test_lvm(lvm: Any) -> None:
    assert check(nv.VGLIST) == {"xenvg": 900.0}
    assert check(nv.VGDUPLICATES) == []
    assert check(nv.LVLIST, "xenvg") == {"xenvg/lv1": ["200.00", False, True]}
    assert check(nv.PVLIST, ["xenvg"]) == [
        ["/dev/sda", "xenvg", 500.0, 100.0, "a--", ["lv1", "lv2"]],
        ["/dev/sdb", "xenvg", 400.0, 400.0, "a--", []],
    ]
    assert check(nv.EXCLUSIVEPVS, ["xenvg"]) == [["/dev/sda", ["lv1", "lv2"]]]


@pytest.mark.parametrize(
    ("name", "argument"),
    [
        (nv.VGLIST, None),
        (nv.VGDUPLICATES, None),
        (nv.LVLIST, "xenvg"),
        (nv.PVLIST, ["xenvg"]),
        (nv.EXCLUSIVEPVS, ["xenvg"]),
    ],
)
def test_without_lvm_the_answer_says_so(no_lvm: Any, name: str, argument: Any) -> None:
    assert "cannot query LVM" in check(name, argument)


def test_drbd(here: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    proc, helper = tmp_path / "drbd", tmp_path / "helper"
    monkeypatch.setattr(status, "STATUS_FILE", str(proc))
    monkeypatch.setattr(status, "HELPER_FILE", str(helper))
    for name in (nv.DRBDLIST, nv.DRBDVERSION, nv.DRBDCONNECTIONS):
        assert "not loaded" in check(name)
    assert check(nv.DRBDHELPER)[0] is False
    proc.write_text(
        "version: 8.4.11 (api:1/proto:86-101)\nsrcversion: X\n"
        " 0: cs:Connected ro:Primary/Secondary ds:UpToDate/UpToDate C r-----\n"
        "    ns:0 nr:0 dw:0 dr:0 al:0 bm:0 lo:0 pe:0 ua:0 ap:0 ep:1 wo:f oos:0\n"
        " 3: cs:Unconfigured\n"
    )
    helper.write_text("/bin/true\n")
    assert check(nv.DRBDLIST) == [0]
    assert check(nv.DRBDVERSION) == [8, 4, 11]
    assert check(nv.DRBDHELPER) == [True, "/bin/true"]


@pytest.mark.parametrize(
    ("version", "parameter", "limit"),
    [("8.3.11", "32\n", 32), ("8.4.11", "32\n", None), ("8.3.11", None, None), (None, None, None)],
)
def test_how_many_minors_the_module_can_have(
    here: Any,
    tmp_path: Any,
    monkeypatch: pytest.MonkeyPatch,
    version: str | None,
    parameter: str | None,
    limit: int | None,
) -> None:
    monkeypatch.setattr(status, "STATUS_FILE", str(tmp_path / "drbd"))
    monkeypatch.setattr(status, "LIMIT_FILE", str(tmp_path / "minor_count"))
    if version is not None:
        (tmp_path / "drbd").write_text(f"version: {version} (api:88/proto:86-96)\n")
    if parameter is not None:
        (tmp_path / "minor_count").write_text(parameter)
    assert check(nv.DRBDMINORS) == limit


def shown_by(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any, proc: str, show: str | errors.CommandError
) -> Any:
    """The answer about connections, from captured output of the kernel and of drbdsetup."""
    (tmp_path / "drbd").write_text(proc)
    monkeypatch.setattr(status, "STATUS_FILE", str(tmp_path / "drbd"))

    def run(argv: list[str], **_options: Any) -> process.Completed:
        assert argv[:2] == ["drbdsetup", "show"]
        if isinstance(show, errors.CommandError):
            raise show
        return process.Completed(tuple(argv), 0, show, "", None)

    monkeypatch.setattr(process, "run", run)
    return check(nv.DRBDCONNECTIONS)


def captured(name: str) -> tuple[str, str]:
    folder = Path(__file__).resolve().parents[2] / "data" / "drbd"
    return (
        (folder / f"drbd-8.4.11-{name}.proc").read_text(encoding="utf-8"),
        (folder / f"drbd-8.4.11-{name}.show").read_text(encoding="utf-8"),
    )


def test_connections_of_drbd(here: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = shown_by(monkeypatch, tmp_path, *captured("8-dual-primary"))
    assert answer == [
        {
            "minor": 0,
            "connection": "Connected",
            "role": "Primary",
            "peer_role": "Primary",
            "disk": "UpToDate",
            "peer_disk": "UpToDate",
            "storage": "/dev/xenvg/d0.data",
            "local": ["10.77.2.1", 11000],
            "remote": ["10.77.2.2", 11000],
            "secret": secret_digest("c0ffeec0ffeec0ffeec0ffeec0ffee"),
            "dual_primary": True,
        }
    ]
    (alone,) = shown_by(monkeypatch, tmp_path, *captured("1-attached-standalone"))
    assert (alone["connection"], alone["remote"], alone["secret"]) == ("StandAlone", None, None)


def test_no_secret_is_in_the_answer_about_connections(
    here: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    proc, show = captured("8-dual-primary")
    assert "c0ffee" not in str(shown_by(monkeypatch, tmp_path, proc, show))
    broken = show.replace('"c0ffee', '{ "c0ffee')
    (facts,) = shown_by(monkeypatch, tmp_path, proc, broken)
    assert facts["problem"] == "its configuration cannot be read"
    assert "c0ffee" not in str(facts)


def test_a_minor_which_shows_nothing_hides_no_other(
    here: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    failure = errors.CommandError(["drbdsetup"], 10, "no such minor")
    (facts,) = shown_by(monkeypatch, tmp_path, captured("8-dual-primary")[0], failure)
    assert facts["minor"] == 0
    assert "no such minor" in facts["problem"]


def test_a_node_without_guests_needs_no_storage(
    no_lvm: Any, monkeypatch: pytest.MonkeyPatch
) -> None:

    others = {nv.NONVMNODES: [machine.current().hostname()]}
    assert check(nv.VGLIST, None, **others) == {}
    assert check(nv.DRBDLIST, None, **others) == []


def test_names_of_devices(here: Any) -> None:
    """A file of the node, a link to it, and what is not there."""
    file = Path(paths.current().to_local("/srv/disk"))
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("x")
    link = file.with_name("link")
    link.symlink_to(file)
    found = check(nv.DEVICES, ["/srv/disk", "/srv/link", "/dev/disk/by-id/nothing", "/dev/null"])
    assert found["/srv/disk"] == found["/srv/link"]
    assert DeviceNames.parse(found["/srv/disk"]).own
    assert found["/dev/disk/by-id/nothing"].endswith("No such file or directory")
    assert found["/dev/null"] == "/dev/null is not a block device"


def test_one_volume_group_which_cannot_be_read(here: Any) -> None:
    def run(argv: list[str], *, check: bool = True, **_options: Any) -> process.Completed:
        if argv[-1] != "xenvg" and check:
            raise errors.CommandError(argv, 5, "Cannot process volume group broken")
        text = "xenvg|lv1|200.00|-wi-ao----\n" if argv[0] == "lvs" else PVS
        return process.Completed(tuple(argv), 0, text, "", None)

    with facts.use(facts.Lvm(run)):
        found = check(nv.LVLIST, ["broken", "xenvg"])
        assert "Cannot process" in found.pop("broken")
        assert found == {"xenvg/lv1": ["200.00", False, True]}
        assert [row[0] for row in check(nv.PVLIST, ["xenvg"])] == ["/dev/sda", "/dev/sdb"]
