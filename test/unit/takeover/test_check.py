"""Each line of the report of ``check``, and what is read from the answers of a node."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ganeti import errors
from ganeti.config import upgrade
from ganeti.takeover import defaults, facts, findings, probe
from ganeti.takeover.facts import Facts, Installable
from ganeti.takeover.findings import NO_WAY_BACK, NOTE, REFUSAL, WARNING, Finding

DATA = Path(__file__).resolve().parents[2] / "data" / "upgrade"
GIB = 1 << 30
HERE = Installable("3.0.2-3", "3.0.2-3", frozenset({"3.0.2-3"}))

GOOD = Facts(
    python=(3, 11, 2),
    clock=1000.0,
    distribution="debian 12",
    has_dpkg=True,
    architecture="amd64",
    original={"ganeti": "3.0.2-3"},
    ours=None,
    packages={"ganeti": HERE, "python3-yaml": Installable("6.0", "6.0", frozenset({"6.0"}))},
    defaults='RAPI_ARGS="-b ::1"\n',
    systemd=True,
    separate_users=True,
    upgrading=False,
    free=10 * GIB,
    free_for_packages=10 * GIB,
    archive_size=GIB,
    qemu=(7, 2),
    xen=None,
    drbd=(8, 4),
)


def config(name: str = "to_3.0.json") -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DATA / name).read_text())
    return found


def judge(one: Facts, **more: Any) -> list[Finding]:
    options: dict[str, Any] = {
        "now": 1000.0, "wanted": [["python3-yaml"]], "hypervisors": ["kvm"], "uses_drbd": True,
        "from_file": True, **more,
    }  # fmt: skip
    return list(findings.node_findings("node2", one, **options))


def test_a_good_node_has_no_findings() -> None:
    assert judge(GOOD) == []


@pytest.mark.parametrize(
    ("change", "severity", "code", "text"),
    [
        ({"python": (3, 9, 2), "distribution": "debian 11"}, REFUSAL, "python",
         "debian 11 has Python 3.9.2; 3.11 is needed"),
        ({"has_dpkg": False}, REFUSAL, "no-dpkg", "does not have the packages of Debian"),
        ({"original": {}}, REFUSAL, "no-package", "not installed with packages of Debian"),
        ({"ours": "0.9.0"}, NOTE, "ours", "ganeti-py 0.9.0 is installed already"),
        ({"architecture": "arm64"}, WARNING, "architecture", "arm64; only amd64 is tested"),
        ({"upgrading": True}, REFUSAL, "upgrading", "an upgrade of the original is going on"),
        ({"clock": 1300.0}, WARNING, "clock", "differs by 300 s"),
        ({"clock": 800.0}, WARNING, "clock", "differs by -200 s"),
        ({"free": GIB}, REFUSAL, "space", "/var/lib has 1024 MiB free; the archive needs up to"),
        ({"free_for_packages": 0}, REFUSAL, "space", "/var/cache/apt has 0 MiB free"),
        ({"qemu": (5, 1)}, REFUSAL, "too-old", "QEMU has version 5.1; 5.2 is needed"),
        ({"drbd": (8, 2)}, REFUSAL, "too-old", "DRBD has version 8.2; 8.3 is needed"),
        ({"nic_programs": ("/etc/xen/scripts/vif-bridge", "/etc/xen/scripts/vif-ganeti")}, WARNING,
         "nic-program", "for which Xen runs /etc/xen/scripts/vif-ganeti, which goes with"),
        ({"defaults": 'LUXID_ARGS="-d"'}, WARNING, "daemon-options", 'no effect any more: LUXID'),
        ({"packages": {"ganeti": HERE}}, REFUSAL, "dependency", "does not offer python3-yaml"),
        ({"packages": {"ganeti": HERE, "python3-yaml": Installable(None, "6.0", frozenset())}},
         NOTE, "new-packages", "will also be installed: python3-yaml"),
        ({"original": {"ganeti": "3.0.2-1"}}, NO_WAY_BACK, "original-gone",
         "ganeti 3.0.2-1 cannot be downloaded any more"),
    ],
)  # fmt: skip
def test_each_finding_about_a_node(
    change: dict[str, Any], severity: str, code: str, text: str
) -> None:
    (found,) = judge(GOOD._replace(**change))
    assert (found.severity, found.code, found.node) == (severity, code, "node2")
    assert text in found.text


def test_versions_count_for_what_the_cluster_uses() -> None:
    old = GOOD._replace(qemu=(4, 0), xen=(4, 11), drbd=(8, 0))
    assert judge(old, hypervisors=["fake"], uses_drbd=False) == []
    (found,) = judge(old, hypervisors=["xen-pvm"], uses_drbd=False)
    assert "Xen has version 4.11; 4.13 is needed" in found.text


def test_without_a_file_apt_must_offer_the_package() -> None:
    (found,) = judge(GOOD, from_file=False)
    assert (found.code, found.severity) == ("no-source", REFUSAL)
    offered = {**GOOD.packages, facts.PACKAGE: Installable(None, "0.9.0", frozenset({"0.9.0"}))}
    assert judge(GOOD._replace(packages=offered), from_file=False) == []


def test_one_of_several_packages_is_sufficient() -> None:
    assert judge(GOOD, wanted=[["nosuch", "python3-yaml"]]) == []
    (found,) = judge(GOOD, wanted=[["nosuch", "neither"]])
    assert "nosuch or neither" in found.text


def test_nodes_must_have_the_same_version() -> None:
    other = GOOD._replace(original={"ganeti": "3.0.1-2"})
    assert list(findings.differing({"node1": GOOD, "node2": GOOD})) == []
    (found,) = findings.differing({"node1": GOOD, "node2": other})
    assert found.code == "differing" and "3.0.1-2 on node2" in found.text
    ours = other._replace(ours="0.9.0")
    assert list(findings.differing({"node1": GOOD, "node2": ours})) == []


@pytest.mark.parametrize(
    ("version", "expected"),
    [(2_150_000, REFUSAL), (2_160_000, NO_WAY_BACK), (3_000_000, None), (3_010_000, None),
     (3_020_000, REFUSAL)],
)  # fmt: skip
def test_versions_of_the_configuration(version: int, expected: str | None) -> None:
    found = list(findings.version_findings({"version": version}))
    assert [one.severity for one in found] == ([expected] if expected else [])
    assert all(one.code == "version" for one in found)


@pytest.mark.parametrize("name", ["to_2.16.json", "to_3.0.json", "to_3.1.json"])
def test_configurations_of_the_original_are_accepted(name: str) -> None:
    raw = config(name)
    found = [
        *findings.version_findings(raw),
        *findings.configuration_findings(upgrade.upgrade(raw), [], []),
    ]
    assert not [one for one in found if one.severity == REFUSAL]
    assert findings.members(raw)


def test_findings_about_the_configuration() -> None:
    raw = upgrade.upgrade(config())
    raw["cluster"]["enabled_hypervisors"] = ["kvm", "vmware"]
    raw["cluster"]["enabled_disk_templates"] = ["plain", "floppy"]
    found = list(findings.configuration_findings(raw, ["node x is in no group"], [3, 4]))
    assert {(one.code, one.severity) for one in found} == {
        ("contradiction", WARNING), ("hypervisor", REFUSAL), ("disk-template", REFUSAL),
        ("jobs", NOTE),
    }  # fmt: skip
    assert "2 jobs have not ended" in " ".join(one.text for one in found)
    assert "vmware" in " ".join(one.text for one in found)
    assert "floppy" in " ".join(one.text for one in found)


@pytest.mark.parametrize(
    ("enabled", "params", "named"),
    [
        (["xen-pvm"], {"xen-pvm": {"xen_cmd": "xm"}}, ["xen-pvm is driven with the program xm"]),
        (["xen-pvm", "xen-hvm"], {"xen-pvm": {"xen_cmd": "xl"}, "xen-hvm": {}}, []),
        (["kvm"], {"xen-pvm": {"xen_cmd": "xm"}}, []),
        (["xen-pvm"], {}, []),
    ],
)
def test_another_program_for_xen_is_named(
    enabled: list[str], params: dict[str, Any], named: list[str]
) -> None:
    raw = {"cluster": {"enabled_hypervisors": enabled, "hvparams": params}}
    found = list(findings.toolstack_findings(raw))
    assert [one.text.partition(" (")[0] for one in found] == named
    assert all((one.severity, one.code) == (WARNING, "toolstack") for one in found)


def test_nodes_which_keep_the_original() -> None:
    nodes = [
        findings.Member("node2", "192.0.2.2", True, 22),
        findings.Member("node3", "192.0.2.3", False, 22),
    ]
    found = list(findings.left_out_findings(nodes))
    assert [(one.node, one.text.split(",")[0]) for one in found] == [
        ("node2", "is offline"), ("node3", "is left out"),
    ]  # fmt: skip
    assert "--include=node2 run" in found[0].remedy
    assert found[1].remedy.startswith("Mark it offline before.")


@pytest.mark.parametrize(
    ("active", "total", "refused"),
    [(1, 1, False), (1, 2, True), (2, 2, False), (2, 3, False), (1, 3, True), (2, 4, True)],
)
def test_the_master_needs_a_majority(active: int, total: int, refused: bool) -> None:
    found = list(findings.majority_findings(active, total))
    assert [(one.code, one.severity) for one in found] == (
        [("majority", REFUSAL)] if refused else []
    )


def test_members_have_their_ssh_port() -> None:
    raw = config()
    uuid, node = next(iter(raw["nodes"].items()))
    node["ndparams"] = {"ssh_port": 2222}
    raw["nodes"] = {uuid: node}
    (found,) = findings.members(raw)
    assert (found.name, found.ssh_port) == (node["name"], 2222)


def test_the_features_are_named_before_they_are_used() -> None:
    (found,) = findings.features_findings()
    for fields in upgrade.OURS:
        for name in upgrade.settings_of(fields):
            assert name in found.text
    assert "key_pins" not in found.text and found.severity == NO_WAY_BACK
    for name in ("snapshots", "ed25519", "io_uring", "dc390", "user-id"):
        assert name in found.text


def test_what_is_in_use_after_a_takeover_is_no_refusal() -> None:
    (found,) = findings.in_use_findings([("the cluster: witness", "end it")])
    assert (found.severity, found.code, found.remedy) == (NO_WAY_BACK, "in-use", "end it")
    assert findings.report_data([found])["possible"] is True


def test_the_report() -> None:
    found = [
        Finding(NOTE, "jobs", "", "3 jobs"),
        Finding(REFUSAL, "python", "node2", "is old", "Upgrade it."),
        Finding(REFUSAL, "hypervisor", "", "none"),
    ]
    assert findings.report_text(found) == [
        "refusal: none [hypervisor]",
        "refusal: node2: is old [python]",
        "    Upgrade it.",
        "note: 3 jobs [jobs]",
        "The cluster cannot be taken over: 2 refusals.",
    ]
    (features,) = findings.features_findings()
    assert max(map(len, findings.report_text([features]))) <= 110
    data = findings.report_data(found)
    assert data["possible"] is False
    assert data["findings"][1] == {
        "severity": "refusal", "code": "python", "node": "node2", "text": "is old",
        "remedy": "Upgrade it.",
    }  # fmt: skip
    assert findings.report_text([])[-1] == "The cluster can be taken over."
    assert findings.report_data([])["possible"] is True


# -- what is read ----------------------------------------------------------------------------------


POLICY = """ganeti:
  Installed: 3.0.2-3
  Candidate: 3.0.2-3
  Version table:
 *** 3.0.2-3 500
        500 http://deb.debian.org/debian bookworm/main amd64 Packages
        100 /var/lib/dpkg/status
     3.0.1-2 500
        500 http://old.example.com/debian bullseye/main amd64 Packages
ganeti-3.0:
  Installed: 3.0.2-4local
  Candidate: 3.0.2-4local
  Version table:
 *** 3.0.2-4local 100
        100 /var/lib/dpkg/status
ganeti-py:
  Installed: (none)
  Candidate: (none)
  Version table:
"""


def test_what_apt_knows() -> None:
    assert facts.parse_policy(POLICY) == {
        "ganeti": Installable("3.0.2-3", "3.0.2-3", frozenset({"3.0.2-3", "3.0.1-2"})),
        "ganeti-3.0": Installable("3.0.2-4local", "3.0.2-4local", frozenset()),
        "ganeti-py": Installable(None, None, frozenset()),
    }


def test_dependencies() -> None:
    text = "python3 (>= 3.11), a:any | b (<< 3.12),\n c [amd64], systemd | x"
    assert facts.parse_depends(text) == [["python3"], ["a", "b"], ["c"], ["systemd", "x"]]
    assert facts.parse_depends("") == []


def test_fields_of_a_package() -> None:
    text = "Package: ganeti-py\nDepends: a,\n b\nDescription: x\n more\n\nPackage: other\n"
    assert facts.parse_control(text) == {
        "Package": "ganeti-py", "Depends": "a,\nb", "Description": "x\nmore",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "expected"),
    [("ganeti", True), ("ganeti-3.0", True), ("ganeti-haskell-3.0", True), ("ganeti-htools", True),
     ("ganeti-doc", True), ("ganeti-py", False), ("ganeti-instance-debootstrap", False),
     ("ganeti-os-noop", False)],
)  # fmt: skip
def test_packages_of_the_original(name: str, expected: bool) -> None:
    assert facts.is_original(name) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("QEMU emulator version 7.2.17 (Debian)", (7, 2)), ("4.17\n", (4, 17)),
     ("version: 8.4.11 (api:1/proto:86-101)", (8, 4)), ("", None)],
)  # fmt: skip
def test_versions(text: str, expected: tuple[int, int] | None) -> None:
    assert facts.parse_version(text) == expected


@pytest.mark.programs
def test_the_probe_answers_on_this_machine(tmp_path: Path) -> None:
    asked = facts.questions(["bash"], kvm=str(tmp_path / "nosuch"), xen=False)
    argv = facts.probe_argv(asked)
    done = subprocess.run([sys.executable, *argv[1:]], capture_output=True, text=True, check=True)
    found = facts.parse_answers(done.stdout)
    assert found.python == tuple(sys.version_info[:3]) and found.free > 0 and found.qemu is None


def test_programs_for_nics() -> None:
    text = (
        '/local/domain/0/backend/vif = ""\n'
        '/local/domain/0/backend/vif/1/0/mac = "aa:00:00:67:02:32"\n'
        '/local/domain/0/backend/vif/1/0/script = "/etc/xen/scripts/vif-bridge"\n'
        '/local/domain/0/backend/vif/2/0/script = "/etc/xen/scripts/vif-ganeti"\n'
        '/local/domain/0/backend/vif/2/1/script = "/etc/xen/scripts/vif-bridge"\n'
    )
    assert facts.parse_nic_programs(text) == (
        "/etc/xen/scripts/vif-bridge", "/etc/xen/scripts/vif-ganeti",
    )  # fmt: skip
    asked = facts.questions([], kvm=None, xen=True)["commands"]
    assert {"xen", "nics"} <= set(asked)


def test_the_probe_needs_nothing_which_python_3_7_lacks() -> None:
    """It must be able to say that a node is too old."""
    import ast

    source = Path(probe.__file__).read_text()
    ast.parse(source, feature_version=(3, 7))
    imported = {
        alias.name for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Import)
        for alias in node.names
    }  # fmt: skip
    assert imported == {"glob", "json", "os", "subprocess", "sys", "time"}


def test_the_probe_reads_what_it_is_asked(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/a").write_text("12345")
    found = probe.answers(
        {
            "commands": {"no": ["/nosuch"]},
            "files": [str(tmp_path / "sub/a"), "/nosuch"],
            "patterns": [f"{tmp_path}/s*"],
            "free": [f"{tmp_path}/x/y"],
            "sizes": [str(tmp_path)],
        }  # fmt: skip
    )
    assert found["commands"] == {"no": None}
    assert found["files"] == {str(tmp_path / "sub/a"): "12345", "/nosuch": None}
    assert found["patterns"] == {f"{tmp_path}/s*": [f"{tmp_path}/sub"]}
    assert found["sizes"] == {str(tmp_path): 5}
    assert found["free"][f"{tmp_path}/x/y"] > 0


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"commands": {}, "files": {}}', "null"])
def test_other_answers_are_refused(text: str) -> None:
    with pytest.raises(errors.ParseError):
        facts.parse_answers(text)


# -- settings of the daemons -----------------------------------------------------------------------

ORIGINAL = """# Default arguments for Ganeti daemons
NODED_ARGS=""
RAPI_ARGS="-b 127.0.0.1 --require-authentication"
MOND_ARGS='-p "1815"'
LUXID_ARGS="-d"
WCONFD_ARGS=""
export LD_PRELOAD=/x
CONFD_ARGS="-b $ADDRESS"
"""


def test_options_are_carried_over() -> None:
    text = defaults.merged(ORIGINAL, "# ours\n#NODED_ARGS=\n", separate_users=False)
    assert text.startswith("# ours\n#NODED_ARGS=\n\n" + defaults.MARK)
    values = dict(defaults.parse_settings(text))
    assert values == {
        "RAPI_ARGS": "-b 127.0.0.1 --require-authentication", "MOND_ARGS": '-p "1815"',
    }  # fmt: skip
    assert defaults.merged(ORIGINAL, text, separate_users=False) == text
    assert defaults.merged("", "# ours", separate_users=False) == "# ours\n"


def test_users_are_carried_over() -> None:
    from ganeti.platform import users

    text = defaults.merged(ORIGINAL, "", separate_users=True)
    found = users.parse(text)
    assert found.roles[users.MASTERD] == users.Account("gnt-masterd", "gnt-masterd")
    assert found.roles[users.RAPI].user == "gnt-rapi"
    assert found.roles[users.CONFD].user == "gnt-confd"
    assert found.roles[users.NODED].user == "root" and found.daemons_group == "gnt-daemons"
    assert dict(defaults.parse_settings(text))["RAPI_ARGS"].endswith("--require-authentication")


def test_what_has_no_effect_is_named() -> None:
    assert defaults.left_out(ORIGINAL) == [
        'LUXID_ARGS="-d"', "export LD_PRELOAD=/x", 'CONFD_ARGS="-b $ADDRESS"',
    ]  # fmt: skip


def test_changes_after_the_takeover_are_named() -> None:
    written = defaults.merged(ORIGINAL, "", separate_users=True)
    assert defaults.changed_since(written, written) == []
    assert defaults.changed_since(written, written.replace("1815", "1816")) == ["MOND_ARGS"]
