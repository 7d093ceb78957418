"""``gnt-instance add``."""

from __future__ import annotations

from typing import Any

import pytest

from fakes.luxi_master import FakeMaster
from ganeti import errors

from ..conftest import Gnt

DISKLESS = "-t diskless -o noop -n node1 web1"


def test_request_is_the_published_one(gnt: Gnt, master: FakeMaster) -> None:
    ended = gnt("instance add -t file -s 4M -o tiny+plain -n node1:node2 -B memory=1g web1")
    assert ended == (0, "", "")
    sent = master.opcode()
    ((source, command, stamp),) = sent.pop("reason")
    assert (source, command) == ("gnt:client:gnt-instance", "add")
    assert stamp > 10**18
    assert sent == {
        "OP_ID": "OP_INSTANCE_CREATE",
        "instance_name": "web1",
        "mode": "create",
        "disks": [{"size": 4}],
        "nics": [{}],
        "disk_template": "file",
        "pnode": "node1",
        "pnode_uuid": None,
        "snode": "node2",
        "snode_uuid": None,
        "iallocator": None,
        "group_name": None,
        "hypervisor": None,
        "hvparams": {},
        "beparams": {"memory": 1024},
        "os_type": "tiny+plain",
        "osparams": {},
        "osparams_private": {},
        "osparams_secret": {},
        "force_variant": False,
        "no_install": False,
        "start": True,
        "wait_for_sync": True,
        "name_check": False,
        "ip_check": False,
        "conflicts_check": True,
        "ignore_ipolicy": False,
        "opportunistic_locking": False,
        "file_driver": None,
        "file_storage_dir": None,
        "forthcoming": False,
        "commit": False,
        "tags": [],
        "instance_communication": False,
        "helper_startup_timeout": None,
        "helper_shutdown_timeout": None,
        "identify_defaults": False,
        "compress": "none",
        "src_node": None,
        "src_node_uuid": None,
        "src_path": None,
        "source_handshake": None,
        "source_instance_name": None,
        "source_shutdown_timeout": 120,
        "source_x509_ca": None,
        "dry_run": False,
        "debug_level": 0,
        "priority": 0,
        "depends": None,
        "comment": None,
    }
    # The names of the instances, for the domain of a name without one.
    assert master.methods() == ["QueryInstances", "SubmitJob", *["WaitForJobChange"] * 4]


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        (
            "--disk 0:size=8M,name=root --disk 1:size=4,spindles=2",
            {"disks": [{"size": 8, "name": "root"}, {"size": 4, "spindles": 2}]},
        ),
        ("--disk 0:adopt=lv1,vg=xenvg", {"disks": [{"adopt": "lv1", "vg": "xenvg", "size": 0}]}),
        ("-s 1g --net 1:ip=none,mac=auto", {"nics": [{}, {"ip": "none", "mac": "auto"}]}),
        ("-s 1g --no-nics", {"nics": []}),
        ("-s 1g -I hail -g rack2", {"iallocator": "hail", "group_name": "rack2", "pnode": None}),
        ("-s 1g -H kvm", {"hypervisor": "kvm", "hvparams": {}}),
        (
            "-s 1g -H kvm:acpi=false,kernel_path=",
            {"hypervisor": "kvm", "hvparams": {"acpi": False, "kernel_path": ""}},
        ),
        (
            "-s 1g -B vcpus=2,auto_balance=false,maxmem=default",
            {"beparams": {"vcpus": 2, "auto_balance": False, "maxmem": "default"}},
        ),
        (
            "-s 1g -O a=1,b --os-parameters-private pw=x --os-parameters-secret once=y",
            {
                "osparams": {"a": "1", "b": True},
                "osparams_private": {"pw": "x"},
                "osparams_secret": {"once": "y"},
            },
        ),
        (
            "-s 1g --no-install --no-start --no-wait-for-sync --name-check --ip-check",
            {
                "no_install": True,
                "start": False,
                "wait_for_sync": False,
                "name_check": True,
                "ip_check": True,
            },
        ),
        ("-s 1g --no-name-check --no-ip-check", {"name_check": False, "ip_check": False}),
        (
            "-s 1g --tags web,prod, -c yes --force-variant --no-conflicts-check",
            {
                "tags": ["web", "prod"],
                "instance_communication": True,
                "force_variant": True,
                "conflicts_check": False,
            },
        ),
        (
            "-s 1g --ignore-ipolicy --opportunistic-locking --forthcoming --commit",
            {
                "ignore_ipolicy": True,
                "opportunistic_locking": True,
                "forthcoming": True,
                "commit": True,
            },
        ),
        (
            "-s 1g --file-driver loop --file-storage-dir sub --helper-startup-timeout 5"
            " --helper-shutdown-timeout 6",
            {
                "file_driver": "loop",
                "file_storage_dir": "sub",
                "helper_startup_timeout": 5,
                "helper_shutdown_timeout": 6,
            },
        ),
        ("-s 1g --dry-run --priority low -dd", {"dry_run": True, "priority": 10, "debug_level": 2}),
    ],
)
def test_options(options: str, wanted: dict[str, Any], gnt: Gnt, master: FakeMaster) -> None:
    assert gnt(f"instance add -t plain -o noop {options} web1").code == 0
    sent = master.opcode()
    assert {name: sent[name] for name in wanted} == wanted


def test_what_is_not_said_of_a_commit_is_as_reserved(gnt: Gnt, master: FakeMaster) -> None:
    assert gnt("instance add --commit web1").code == 0
    sent = master.opcode()
    assert sent["commit"] and not sent["forthcoming"]
    assert (sent["disks"], sent["nics"], sent["disk_template"], sent["pnode"], sent["os_type"]) == (
        [],
        [],
        None,
        None,
        None,
    )
    assert gnt("instance add --commit -s 2g --net 0:ip=none web1").code == 0
    assert (master.opcodes()[-1]["disks"], master.opcodes()[-1]["nics"]) == (
        [{"size": 2048}],
        [{"ip": "none"}],
    )
    assert "remove them afterwards" in gnt("instance add --commit --no-nics web1").err


def test_reason_of_the_user_comes_first(gnt: Gnt, master: FakeMaster) -> None:
    gnt(f"instance add --reason maintenance {DISKLESS}")
    assert [step[:2] for step in master.opcode()["reason"]] == [
        ["gnt:user", "maintenance"],
        ["gnt:client:gnt-instance", "add"],
    ]


def test_log_lines_come_as_they_are(gnt: Gnt, master: FakeMaster) -> None:
    master.logs["OP_INSTANCE_CREATE"] = ["* creating instance disks...", " - INFO: done"]
    ended = gnt(f"instance add {DISKLESS}")
    assert ended.out == (
        "Fri Nov 20 22:16:50 2026 * creating instance disks...\n"
        "Fri Nov 20 22:16:50 2026  - INFO: done\n"
    )
    assert ended.err == ""


def test_submit_only(gnt: Gnt, master: FakeMaster) -> None:
    assert gnt(f"instance add --submit {DISKLESS}") == (0, "", "JobID: 1\n")
    assert master.methods() == ["QueryInstances", "SubmitJob"]


def test_submit_with_the_bare_id(gnt: Gnt, master: FakeMaster) -> None:
    assert gnt(f"instance add --submit --print-jobid {DISKLESS}") == (0, "1\n", "JobID: 1\n")
    assert gnt(f"instance add --print-jobid {DISKLESS}") == (0, "2\n", "")


def test_refused_by_the_master(gnt: Gnt, master: FakeMaster) -> None:
    master.results["OP_INSTANCE_CREATE"] = errors.OpPrereqError(
        "instance 'web1' is already in the cluster", errors.ECODE_EXISTS
    )
    ended = gnt(f"instance add {DISKLESS}")
    assert (ended.code, ended.out) == (1, "")
    assert ended.err == (
        "Failure: prerequisites not met for this operation:\n"
        "error type: already_exists, error details:\n"
        "instance 'web1' is already in the cluster\n"
    )


def test_output_of_a_failed_script_reaches_the_user(gnt: Gnt, master: FakeMaster) -> None:
    master.results["OP_INSTANCE_CREATE"] = errors.OpExecError(
        "OS create script failed, last lines in the log file:\nmkfs: no space"
    )
    ended = gnt(f"instance add {DISKLESS}")
    assert ended.code == 1
    assert ended.err == (
        "Failure: command execution error:\n"
        "OS create script failed, last lines in the log file:\nmkfs: no space\n"
    )


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ("-t diskless -s 1g", "Diskless instance but disk information passed"),
        ("-t plain", "no disk is given. Use -s SIZE"),
        ("-t plain -s 1g --disk 0:size=1g", "give either --disk or -s"),
        ("-t plain --disk 0:sze=1g", "disk 0 has no size. Did you mean 'size'"),
        ("-t plain --disk 0:size=much", "disk 0: size: cannot read 'much' as a size"),
        ("-t plain --disk 0:size=1g,adopt=x", "an adopted disk keeps its size"),
        ("-t plain --disk 0:size=1g --disk 0:size=2g", "disk 0 is given twice"),
        ("-t plain --disk 1:size=1g", "disk 0 is not given. Number the disks from 0 on"),
        ("-t plain --disk x:size=1g", "'x' is not the number of a disk"),
        ("-t plain --disk 16:size=1g", "at most 16"),
        ("-t plain --disk no_0", "cannot be removed here"),
        ("-t plain --disk 0:size=1,spindles=x", "spindles"),
        ("-t diskless --net 0 --no-nics", "give either --net or --no-nics"),
        ("-t diskless --net 8:ip=none", "at most 8"),
    ],
)
def test_mistakes_are_found_before_a_job_is_made(
    options: str, text: str, gnt: Gnt, master: FakeMaster
) -> None:
    ended = gnt(f"instance add {options} -o noop web1")
    assert ended.code == 1
    assert "error type: wrong_input" in ended.err
    assert text in ended.err
    assert master.requests == []


@pytest.mark.parametrize(
    "options", ["-B nosuch=1", "-B vcpus=many", "-H kvm:nosuch=1", "--net 0:nosuch=1"]
)
def test_parameters_of_the_wrong_type(options: str, gnt: Gnt, master: FakeMaster) -> None:
    ended = gnt(f"instance add -t diskless -o noop {options} web1")
    assert ended.code == 1
    assert ended.err.startswith("Parameter Error: ")
    assert master.requests == []


def test_unknown_template(gnt: Gnt, master: FakeMaster) -> None:
    ended = gnt("instance add -t nosuch web1")
    assert ended.code == 2
    assert "invalid choice: 'nosuch' (choose from 'blockdev', 'diskless'" in ended.err


def test_options_behind_the_name(gnt: Gnt, master: FakeMaster) -> None:
    master.results["OP_INSTANCE_CREATE"] = ["node1.example.com"]
    before = gnt("instance add -t diskless -n node1 -o noop --no-install web1")
    behind = gnt("instance add web1 -t diskless -n node1 -o noop --no-install")
    assert before.code == behind.code == 0
    first, second = (job.ops[0] for job in master.jobs.values())
    assert {**first, "reason": None} == {**second, "reason": None}


def test_a_disk_without_a_size_gets_the_standard_size(gnt: Gnt, master: FakeMaster) -> None:
    """Design 2.0: "if the size option is not specified, auto is assumed"."""
    gnt("instance add -t plain -o tiny --disk 0:name=root --disk 1:size=auto,access=r web9")
    assert master.opcode()["disks"] == [
        {"name": "root", "size": "auto"},
        {"size": "auto", "access": "r"},
    ]
    master.jobs.clear()
    gnt("instance modify --disk add:mode=ro web1")
    assert master.opcode()["disks"] == [["add", -1, {"mode": "ro", "size": "auto"}]]
    # An adopted volume has the size that it has.
    master.jobs.clear()
    gnt("instance add -t plain -o tiny --disk 0:adopt=theirs web9")
    assert master.opcode()["disks"] == [{"adopt": "theirs", "size": 0}]


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("add -t diskless -o noop -n node1 web5", "web5.example.com"),
        ("add -t diskless -o noop -n node1 --exact-name web5", "web5"),
        ("add -t diskless -o noop -n node1 --name-check web5", "web5"),
        ("add -t diskless -o noop -n node1 web5.example.net", "web5.example.net"),
    ],
)
def test_a_name_without_a_domain_gets_that_of_the_others(
    line: str, name: str, gnt: Gnt, master: FakeMaster
) -> None:
    master.rows["instance"] = [{"name": f"web{number}.example.com"} for number in (1, 2)]
    ended = gnt(f"instance {line}")
    assert ended.code == 0
    assert master.opcode()["instance_name"] == name
    assert ("gets the name web5.example.com" in ended.err) == (name == "web5.example.com")


def test_a_name_stays_when_the_others_have_several_domains(gnt: Gnt, master: FakeMaster) -> None:
    master.rows["instance"] = [{"name": "web1.example.com"}, {"name": "web1.example.net"}]
    assert gnt("instance add -t diskless -o noop -n node1 web5") == (0, "", "")
    assert master.opcode()["instance_name"] == "web5"


def test_a_renamed_instance_keeps_its_domain(gnt: Gnt, master: FakeMaster) -> None:
    master.rows["instance"] = [{"name": "web1.example.com"}, {"name": "web1.example.net"}]
    assert gnt("instance rename web1.example.net www").code == 0
    assert master.opcode()["new_name"] == "www.example.net"
