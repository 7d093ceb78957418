"""``gnt-instance list`` and ``list-fields``; the layout holds for all lists."""

from __future__ import annotations

import io
import json
import sys

import pytest
import yaml

from fakes.luxi_master import FakeMaster
from ganeti.cli import terminal

from ..conftest import Gnt

FIELDS = [
    {"name": name, "title": title, "kind": kind, "doc": f"the {name}"}
    for name, title, kind in (
        ("name", "Instance", "text"),
        ("hypervisor", "Hypervisor", "text"),
        ("os", "OS", "text"),
        ("pnode", "Primary_node", "text"),
        ("status", "Status", "text"),
        ("oper_ram", "Memory", "unit"),
        ("admin_up", "Autostart", "bool"),
        ("ctime", "CTime", "timestamp"),
        ("tags", "Tags", "other"),
        ("nic.ips", "NIC_IPs", "other"),
        ("disk.names", "Disk_names", "other"),
        ("oper_vcpus", "VCPUs", "number"),
        ("speed", "Speed", "float"),
    )
]


@pytest.fixture(autouse=True)
def _instances(master: FakeMaster) -> None:
    common = {
        "hypervisor": "fake",
        "pnode": "node1.example.com",
        "ctime": 1795213010.68,
        "disk.names": ["root", None],
        "nic.ips": [None, "10.0.0.1"],
        "speed": 1.0,
    }
    master.fields["instance"] = FIELDS
    master.rows["instance"] = [
        {
            "name": "web1.example.com",
            "os": "tiny+plain",
            "status": "running",
            "oper_ram": 128,
            "admin_up": True,
            "tags": ["prod", "web"],
            "oper_vcpus": 1,
            **common,
        },
        {
            "name": "db1.example.com",
            "os": "noop",
            "status": "ADMIN_down",
            "oper_ram": None,
            "admin_up": False,
            "tags": [],
            "oper_vcpus": None,
            **common,
        },
        {
            "name": "big.example.com",
            "os": "noop",
            "status": "ERROR_down",
            "oper_ram": 4608,
            "admin_up": True,
            "tags": [],
            "oper_vcpus": 16,
            **common,
        },
    ]
    master.statuses = {("db1.example.com", "oper_ram"): 3, ("db1.example.com", "oper_vcpus"): 3}


def test_default_columns(gnt: Gnt, master: FakeMaster) -> None:
    assert gnt("instance list").out.splitlines() == [
        "Instance         Hypervisor OS         Primary_node      Status     Memory",
        "web1.example.com fake       tiny+plain node1.example.com running      128M",
        "db1.example.com  fake       noop       node1.example.com ADMIN_down      -",
        "big.example.com  fake       noop       node1.example.com ERROR_down   4.5G",
    ]
    assert master.requests == [
        ("Query", ["instance", ["name", "hypervisor", "os", "pnode", "status", "oper_ram"], None])
    ]


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (
            "--no-headers --separator=: -o name,oper_ram,admin_up,tags,nic.ips",
            "web1.example.com:128:Y:prod,web:None,10.0.0.1",
        ),
        (
            "--no-headers --separator=| -o disk.names,ctime,speed",
            "['root', None]|2026-11-20 22:16:50|1",
        ),
        ("--no-headers --units=g -o oper_ram", "0.1"),
        ("--no-headers --separator=: --units=h -o oper_ram,name", "128M:web1.example.com"),
    ],
)
def test_for_programs(options: str, line: str, gnt: Gnt) -> None:
    assert gnt(f"instance list {options}").out.splitlines()[0].strip() == line


def test_added_fields(gnt: Gnt, master: FakeMaster) -> None:
    lines = gnt("instance list -o +tags").out.splitlines()
    assert lines[0].endswith("Memory Tags")
    assert lines[1].endswith("  128M prod,web")
    # A last left-aligned column is not padded.
    assert lines[2].endswith("     - ")


def test_verbose_marks(gnt: Gnt) -> None:
    assert (
        gnt("instance list -v -o name,oper_ram").out.splitlines()[2] == "db1.example.com  (unavail)"
    )


def test_names_and_patterns(gnt: Gnt, master: FakeMaster) -> None:
    assert gnt("instance list --no-headers -o name web1.example.com").out == "web1.example.com\n"
    gnt("instance list web1 'db*'")
    assert master.requests[-1][1][2] == [
        "|",
        ["==", "name", "web1"],
        ["=~", "name", r"^db[^.]*(\..*)?$"],
    ]


def test_unknown_field(gnt: Gnt) -> None:
    ended = gnt("instance list -o name,nosuch")
    assert ended.code == 14
    assert ended.out.splitlines()[:2] == ["Instance         nosuch", "web1.example.com ??"]
    assert "unknown fields nosuch" in ended.err
    assert "gnt-instance list-fields" in ended.err
    assert "Did you mean 'oper_ram'?" in gnt("instance list -o name,oper_rma").err
    assert "Did you mean 'json'?" in gnt("instance list --output=jsn").err


def test_json(gnt: Gnt) -> None:
    ended = gnt("instance list -o name,oper_ram,tags -o json")
    assert (ended.code, ended.err) == (0, "")
    assert json.loads(ended.out) == [
        {"name": "web1.example.com", "oper_ram": 128, "tags": ["prod", "web"]},
        {
            "name": "db1.example.com",
            "oper_ram": None,
            "tags": [],
            "_status": {"oper_ram": "unavail"},
        },
        {"name": "big.example.com", "oper_ram": 4608, "tags": []},
    ]


def test_yaml_with_default_columns(gnt: Gnt) -> None:
    rows = yaml.safe_load(gnt("instance list --output yaml web1.example.com").out)
    assert rows == [
        {
            "name": "web1.example.com",
            "hypervisor": "fake",
            "os": "tiny+plain",
            "pnode": "node1.example.com",
            "status": "running",
            "oper_ram": 128,
        }
    ]


def test_csv(gnt: Gnt) -> None:
    ended = gnt("instance list -o name,oper_ram,admin_up,tags -o csv")
    assert ended.out == (
        "name,oper_ram,admin_up,tags\n"
        'web1.example.com,128,true,"[""prod"",""web""]"\n'
        "db1.example.com,,false,[]\n"
        "big.example.com,4608,true,[]\n"
    )
    assert (
        gnt("instance list -o name -o csv --no-headers web1.example.com").out
        == "web1.example.com\n"
    )


def test_every_field(gnt: Gnt, master: FakeMaster) -> None:
    (first, *_) = json.loads(gnt("instance list -o all -o json").out)
    assert list(first) == [field["name"] for field in FIELDS]
    assert master.methods() == ["QueryFields", "Query"]


def test_no_field_is_called_as_a_format() -> None:
    from ganeti.cli import listing, options
    from ganeti.constants import query
    from ganeti.query import resources

    words = {listing.ALL_FIELDS, *options.FORMATS}
    for what in query.RESOURCES:
        assert not words & set(resources.lookup(what).fields)


def test_defaults_from_the_environment(gnt: Gnt, monkeypatch: pytest.MonkeyPatch) -> None:
    from ganeti.cli import main
    from ganeti.client.gnt_instance import program

    seen: list[str] = []
    monkeypatch.setattr(terminal, "out", seen.append)
    main.run(program.PROGRAM, ["list"], {"GNT_INSTANCE_LIST": "--no-headers -o name"})
    assert seen == ["web1.example.com\ndb1.example.com\nbig.example.com"]


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_colours_on_a_terminal_only(gnt: Gnt, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    screen = _Terminal()
    monkeypatch.setattr(sys, "stdout", screen)
    gnt("instance list -o name,status")
    lines = screen.getvalue().splitlines()
    assert lines[0] == "\033[1mInstance\033[0m         \033[1mStatus\033[0m"
    assert lines[1] == "web1.example.com \033[32mrunning\033[0m"
    assert lines[3] == "big.example.com  \033[31mERROR_down\033[0m"
    monkeypatch.setenv("NO_COLOR", "1")
    plain = _Terminal()
    monkeypatch.setattr(sys, "stdout", plain)
    gnt("instance list -o name,status")
    assert "\033" not in plain.getvalue()


def test_list_fields(gnt: Gnt, master: FakeMaster) -> None:
    lines = gnt("instance list-fields").out.splitlines()
    assert lines[0] == "Name       Type                  Title        Description"
    assert lines[1] == "name       Text                  Instance     the name"
    assert lines[6] == "oper_ram   Storage size          Memory       the oper_ram"
    assert len(lines) == len(FIELDS) + 1
    ended = gnt("instance list-fields --no-headers --separator=: name nosuch")
    assert ended.out == (
        "name:Text:Instance:the name\nnosuch:(unknown):nosuch:Unknown field 'nosuch'\n"
    )
    assert ended.code == 14
    fields = json.loads(gnt("instance list-fields --output=json name").out)
    assert fields == [FIELDS[0]]


def test_uptime_is_a_span_for_users_and_seconds_for_programs(gnt: Gnt, master: FakeMaster) -> None:
    master.fields["instance"] = [
        *FIELDS,
        {"name": "uptime", "title": "Uptime", "kind": "number", "doc": "time"},
    ]
    for row in master.rows["instance"]:
        row["uptime"] = 93784
    assert "1 d 2 h" in gnt("instance list -o name,uptime").out
    assert "web1.example.com:93784" in gnt("instance list -o name,uptime --separator=:").out


@pytest.fixture
def on_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "is_terminal", lambda stream: True)
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr(terminal, "width", lambda stream: 80)


@pytest.mark.usefixtures("on_terminal")
def test_on_a_terminal_the_list_has_few_columns(gnt: Gnt, master: FakeMaster) -> None:
    assert gnt("instance list").out.splitlines()[:2] == [
        "Instance         Status     Primary_node      Memory OS",
        "web1.example.com running    node1.example.com   128M tiny+plain",
    ]
    first = gnt("instance list --no-headers").out.splitlines()[0]
    assert (
        first.split() == "web1.example.com fake tiny+plain node1.example.com running 128M".split()
    )
    first = gnt("instance list --units=m").out.splitlines()[0]
    assert first.split() == ["Instance", "Status", "Primary_node", "Memory(MiB)", "OS"]


@pytest.mark.usefixtures("on_terminal")
def test_on_a_terminal_an_unknown_field_is_one_error(gnt: Gnt) -> None:
    ended = gnt("instance list -o name,statsu")
    assert (ended.code, ended.out) == (14, "")
    assert "Error: unknown fields statsu. Did you mean 'status'?" in ended.err
    # Programs get their table.
    assert "??" in gnt("instance list -o name,statsu --no-headers").out


@pytest.mark.usefixtures("on_terminal")
def test_on_a_terminal_all_fields_are_a_list_of_records(gnt: Gnt) -> None:
    lines = gnt("instance list -o all").out.splitlines()
    assert lines[0] == "Instance      web1.example.com"
    assert max(map(len, lines)) <= 80
    # Columns which are chosen one by one stay as they are.
    chosen = ",".join(field["name"] for field in FIELDS)
    assert gnt(f"instance list -o {chosen}").out.splitlines()[0].startswith("Instance ")
    assert len(gnt(f"instance list -o {chosen}").out.splitlines()) == 4


@pytest.mark.usefixtures("on_terminal")
def test_on_a_terminal_wide_has_the_most_important_first(gnt: Gnt, master: FakeMaster) -> None:
    known = {field["name"] for field in FIELDS}
    master.fields["instance"] = [
        *FIELDS,
        *(
            {"name": name, "title": name, "kind": "text", "doc": name}
            for name in ("uptime", "addresses", "be/vcpus", "disk_usage", "snodes", "disk_template")
            if name not in known
        ),
    ]
    for row in master.rows["instance"]:
        row.update({"uptime": 61, "addresses": ["192.0.2.7"], "be/vcpus": 1, "disk_usage": 1024})
        row.update({"snodes": [], "disk_template": "plain"})
    line = gnt("instance list -o wide").out.splitlines()
    assert max(map(len, line)) <= 80
    assert gnt("instance list -o wide").out.index("1 min 1 s") < gnt(
        "instance list -o wide"
    ).out.index("192.0.2.7")


@pytest.mark.usefixtures("on_terminal")
def test_on_a_terminal_fields_have_a_name_and_a_sentence(gnt: Gnt) -> None:
    lines = gnt("instance list-fields").out.splitlines()
    assert lines[:2] == ["Name       Description", "name       the name"]
    assert gnt("instance list-fields --separator=:").out.startswith("Name:Type:Title:Description")
