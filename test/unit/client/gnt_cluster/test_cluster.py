"""``gnt-cluster``: a section per command."""

from __future__ import annotations

import grp
import json
import pwd
from pathlib import Path
from typing import Any

import pytest
import yaml

from fakes.luxi_master import FakeMaster
from ganeti import bootstrap, errors
from ganeti.bootstrap import InitParams
from ganeti.bootstrap.init import Initialized
from ganeti.cli import terminal
from ganeti.platform import machine, paths, systemd

from ..conftest import Gnt

DATA = Path(__file__).parents[3] / "data" / "cli"


# -- init -----------------------------------------------------------------------------------------


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[InitParams]:
    """Parameters of the clusters that would have been made."""
    made: list[InitParams] = []

    def init_cluster(params: InitParams) -> Initialized:
        made.append(params)
        return Initialized([], [])

    monkeypatch.setattr(bootstrap, "init_cluster", init_cluster)
    return made


def test_init(gnt: Gnt, master: FakeMaster, made: list[InitParams]) -> None:
    master.results["OP_CLUSTER_POST_INIT"] = True
    line = "cluster init --rapi-require-authentication=no cluster.example.com"
    assert gnt(line) == (0, "", "")
    (params,) = made
    assert params == InitParams(
        cluster_name="cluster.example.com",
        uid_pool=[],
        gluster_storage_dir="/var/run/ganeti/gluster",
    )
    assert master.opcode()["OP_ID"] == "OP_CLUSTER_POST_INIT"
    assert master.opcode()["reason"][0][:2] == ["gnt:client:gnt-cluster", "init"]


@pytest.mark.parametrize(
    ("option", "wanted", "said"),
    [
        ("", None, True),
        ("--rapi-require-authentication=no ", False, False),
        ("--rapi-require-authentication=yes ", True, False),
    ],
)
def test_init_says_that_the_rest_interface_can_be_read_unless_that_was_chosen(
    gnt: Gnt,
    master: FakeMaster,
    made: list[InitParams],
    option: str,
    wanted: bool | None,
    said: bool,
) -> None:
    master.results["OP_CLUSTER_POST_INIT"] = True
    code, _, err = gnt(f"cluster init {option}cluster.example.com")
    assert code == 0 and ("without a password" in err) is said
    assert made[0].rapi_require_authentication is bool(wanted)


@pytest.mark.parametrize("enabled", [True, False])
def test_init_says_that_nothing_starts_the_daemons(
    gnt: Gnt,
    master: FakeMaster,
    made: list[InitParams],
    monkeypatch: pytest.MonkeyPatch,
    enabled: bool,
) -> None:
    master.results["OP_CLUSTER_POST_INIT"] = True
    monkeypatch.setattr(type(machine.current()), "runs_systemd", True)
    monkeypatch.setattr(systemd, "starts_with_machine", lambda unit: enabled)
    _, _, err = gnt("cluster init --rapi-require-authentication=no cluster.example.com")
    assert ("systemctl enable --now ganeti.target" in err) != enabled


@pytest.fixture
def no_accounts(monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine has no accounts, so that the first range of user ids is free."""
    monkeypatch.setattr(pwd, "getpwall", list)
    monkeypatch.setattr(grp, "getgrall", list)


@pytest.mark.usefixtures("no_accounts")
@pytest.mark.parametrize(
    ("option", "model"), [("", "pool"), (" -H kvm:security_model=none", "none")]
)
def test_init_with_a_pool_of_users(
    gnt: Gnt, master: FakeMaster, made: list[InitParams], option: str, model: str
) -> None:
    master.results["OP_CLUSTER_POST_INIT"] = True
    assert gnt(f"cluster init --uid-pool=auto{option} cluster.example.com")[0] == 0
    (params,) = made
    assert params.uid_pool == [(1_900_000_000, 1_900_000_999)]
    assert params.hvparams == {"kvm": {"security_model": model}}


@pytest.mark.parametrize(
    ("option", "command"),
    [
        ("", "gnt-cluster modify --uid-pool=auto -H kvm:security_model=pool"),
        (" --uid-pool=10-20", "gnt-cluster modify -H kvm:security_model=pool"),
    ],
)
def test_init_says_that_guests_run_as_root(
    gnt: Gnt, master: FakeMaster, monkeypatch: pytest.MonkeyPatch, option: str, command: str
) -> None:
    monkeypatch.setattr(
        bootstrap,
        "init_cluster",
        lambda params: Initialized([], [], as_root=["-H kvm:security_model=pool"]),
    )
    master.results["OP_CLUSTER_POST_INIT"] = True
    _, _, err = gnt(f"cluster init --rapi-require-authentication=no{option} cluster.example.com")
    assert "guests run as root" in err and command in err


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        (
            "--enabled-hypervisors fake,kvm --enabled-disk-templates file,diskless",
            {
                "enabled_hypervisors": ["fake", "kvm"],
                "enabled_disk_templates": ["file", "diskless"],
            },
        ),
        (
            "-H kvm:acpi=false -H kvm:vnc_tls=true",
            {"hvparams": {"kvm": {"acpi": False, "vnc_tls": True}}},
        ),
        ("-B memory=1g,vcpus=2", {"beparams": {"minmem": 1024, "maxmem": 1024, "vcpus": 2}}),
        ("-B minmem=1g,maxmem=2g", {"beparams": {"minmem": 1024, "maxmem": 2048}}),
        ("-N mode=routed,link=br7", {"nicparams": {"mode": "routed", "link": "br7"}}),
        ("--node-parameters ssh_port=2222", {"ndparams": {"ssh_port": 2222}}),
        ("-D drbd:resync-rate=1024", {"diskparams": {"drbd": {"resync-rate": 1024}}}),
        (
            "-s 127.0.9.1 --primary-ip-version 6",
            {"secondary_ip": "127.0.9.1", "primary_ip_version": 6},
        ),
        (
            "--master-netdev lo --master-netmask 24 --use-external-mip-script yes",
            {"master_netdev": "lo", "master_netmask": 24, "use_external_mip_script": True},
        ),
        (
            "-m aa:bb:cc --vg-name xenvg --drbd-usermode-helper /bin/true",
            {"mac_prefix": "aa:bb:cc", "vg_name": "xenvg", "drbd_helper": "/bin/true"},
        ),
        (
            "--file-storage-dir /f --shared-file-storage-dir /s --gluster-storage-dir /g",
            {
                "file_storage_dir": "/f",
                "shared_file_storage_dir": "/s",
                "gluster_storage_dir": "/g",
            },
        ),
        (
            "-C 3 --maintain-node-health yes --prealloc-wipe-disks yes --user-shutdown yes",
            {
                "candidate_pool_size": 3,
                "maintain_node_health": True,
                "prealloc_wipe_disks": True,
                "enabled_user_shutdown": True,
            },
        ),
        ("--rapi-require-authentication yes", {"rapi_require_authentication": True}),
        ("--uid-pool 1000-1010,2000", {"uid_pool": [(1000, 1010), (2000, 2000)]}),
        (
            "-I hail --default-iallocator-params a=1",
            {"default_iallocator": "hail", "default_iallocator_params": {"a": "1"}},
        ),
        (
            "--no-etc-hosts --no-ssh-init --ssh-key-type ecdsa --ssh-key-bits 521",
            {
                "modify_etc_hosts": False,
                "modify_ssh_setup": False,
                "ssh_key_type": "ecdsa",
                "ssh_key_bits": 521,
            },
        ),
        (
            "--compression-tools gzip,lzop --install-image /i --zeroing-image /z",
            {"compression_tools": ["gzip", "lzop"], "install_image": "/i", "zeroing_image": "/z"},
        ),
        (
            "--hypervisor-state kvm:cpu_total=2 --disk-state plain/xenvg:disk_total=5",
            {
                "hv_state": {"kvm": {"cpu_total": 2}},
                "disk_state": {"plain": {"xenvg": {"disk_total": 5}}},
            },
        ),
        (
            "--ipolicy-bounds-specs min:memory-size=4,disk-size=1g/max:memory-size=1g"
            " --ipolicy-std-specs memory-size=128 --ipolicy-disk-templates file"
            " --ipolicy-vcpu-ratio 2 --ipolicy-spindle-ratio default",
            {
                "ipolicy": {
                    "minmax": [
                        {"min": {"memory-size": 4, "disk-size": 1024}, "max": {"memory-size": 1024}}
                    ],
                    "std": {"memory-size": 128},
                    "disk-templates": ["file"],
                    "vcpu-ratio": 2.0,
                }
            },
        ),
        (
            "--defaults hypervisor=kvm,disksize=4g,bridge=br1 --hypervisor-defaults kvm:acpi=false",
            {
                "enabled_hypervisors": ["kvm"],
                "ipolicy": {"std": {"disk-size": 4096}},
                "nicparams": {"mode": "bridged", "link": "br1"},
                "hvparams": {"kvm": {"acpi": False}},
            },
        ),
    ],
)
def test_init_options(
    options: str, wanted: dict[str, Any], gnt: Gnt, master: FakeMaster, made: list[InitParams]
) -> None:
    assert gnt(f"cluster init {options} cluster.example.com").code == 0
    assert {name: getattr(made[0], name) for name in wanted} == wanted


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("", True),
        ("--rapi-require-authentication=no", False),
        ("--rapi-require-authentication=yes", False),
    ],
)
def test_init_says_that_the_rest_interface_is_open(
    options: str, said: bool, gnt: Gnt, master: FakeMaster, made: list[InitParams]
) -> None:
    """Unless the administrator has chosen."""
    ended = gnt(f"cluster init {options} cluster.example.com")
    assert ended.code == 0 and ended.out == ""
    assert ("gnt-cluster modify --rapi-require-authentication=yes" in ended.err) is said


def test_init_single_bounds_keep_the_other_defaults(
    gnt: Gnt, master: FakeMaster, made: list[InitParams]
) -> None:
    assert (
        gnt(
            "cluster init --specs-mem-size min=64,max=1g,std=128 --specs-disk-count max=4"
            " cluster.example.com"
        ).code
        == 0
    )
    (bounds,) = made[0].ipolicy["minmax"]
    assert (bounds["min"]["memory-size"], bounds["max"]["memory-size"]) == (64, 1024)
    assert (bounds["min"]["disk-count"], bounds["max"]["disk-count"]) == (1, 4)
    assert made[0].ipolicy["std"]["memory-size"] == 128


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ("-H nosuch:a=1", "unknown hypervisor 'nosuch'"),
        ("-H no_kvm", "cannot be removed"),
        ("-H kvm:nosuch=1", "Parameter Error: unknown parameter 'nosuch'"),
        ("-D nosuch:a=1", "unknown disk template 'nosuch'"),
        ("-B memory=1g,minmem=2g", "either memory, or minmem and maxmem"),
        ("-B vcpus=default", "Parameter Error"),
        ("--uid-pool 5-1", "range '5-1' is empty"),
        ("--uid-pool x", "not a range of user IDs"),
        ("--primary-ip-version 5", "neither 4 nor 6"),
        ("--master-netmask x", "netmask"),
        ("--ipolicy-bounds-specs min:cpu-count=1", "needs min:... and max:..."),
        ("--ipolicy-std-specs cpu-count=1 --specs-mem-size min=1", "give either"),
        ("--ipolicy-std-specs nosuch=1", "Parameter Error"),
    ],
)
def test_init_mistakes(options: str, text: str, gnt: Gnt, made: list[InitParams]) -> None:
    ended = gnt(f"cluster init {options} cluster.example.com")
    assert ended.code == 1
    assert text in ended.err
    assert made == []


@pytest.mark.usefixtures("made")
def test_init_says_what_was_chosen_and_what_instances_will_need(
    gnt: Gnt, master: FakeMaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    master.results["OP_CLUSTER_POST_INIT"] = True
    done = Initialized(["the bridge br0 for instances"], ["hypervisor kvm: no QEMU"])
    monkeypatch.setattr(bootstrap, "init_cluster", lambda params: done)
    ended = gnt("cluster init --rapi-require-authentication=no cluster.example.com")
    assert (ended.code, ended.out) == (0, "")
    assert ended.err.splitlines() == [
        "Chosen for this machine, because no option says it:",
        "  - the bridge br0 for instances",
        "Warning: instances will need, besides: hypervisor kvm: no QEMU",
    ]


def test_init_refused(gnt: Gnt, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(params: InitParams) -> None:
        raise errors.OpPrereqError("already a cluster", errors.ECODE_STATE)

    monkeypatch.setattr(bootstrap, "init_cluster", refuse)
    ended = gnt("cluster init cluster.example.com")
    assert ended.code == 1
    assert "error type: wrong_state, error details:\nalready a cluster\n" in ended.err


# -- destroy --------------------------------------------------------------------------------------


@pytest.fixture
def finalised(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    done: list[str] = []
    monkeypatch.setattr(bootstrap, "finalize_destroy", lambda: done.append("finalised"))
    return done


def test_destroy_must_be_meant(gnt: Gnt, master: FakeMaster, finalised: list[str]) -> None:
    ended = gnt("cluster destroy")
    assert (ended.code, ended.out) == (1, "")
    assert "--yes-do-it" in ended.err
    assert master.requests == []


@pytest.mark.parametrize("option", ["--yes-do-it", "--ya-rly"])
def test_destroy(option: str, gnt: Gnt, master: FakeMaster, finalised: list[str]) -> None:
    master.results["OP_CLUSTER_DESTROY"] = "master-uuid"
    assert gnt(f"cluster destroy {option}") == (0, "", "")
    assert master.opcode()["OP_ID"] == "OP_CLUSTER_DESTROY"
    assert finalised == ["finalised"]


def test_destroy_refused_leaves_this_node_alone(
    gnt: Gnt, master: FakeMaster, finalised: list[str]
) -> None:
    master.results["OP_CLUSTER_DESTROY"] = errors.OpPrereqError(
        "there are still 2 instances", errors.ECODE_INVAL
    )
    assert gnt("cluster destroy --yes-do-it").code == 1
    assert finalised == []


# -- info, version, getmaster ---------------------------------------------------------------------


@pytest.fixture
def info(master: FakeMaster) -> dict[str, Any]:
    recorded = json.loads((DATA / "cluster-info.json").read_text(encoding="utf-8"))
    master.cluster_info = {**recorded, "rapi_require_authentication": False}
    return master.cluster_info


def test_info(gnt: Gnt, master: FakeMaster, info: dict[str, Any]) -> None:
    # Six lines are ours.
    wanted = (DATA / "cluster-info.txt").read_text(encoding="utf-8")
    place = "  modify ssh setup:"
    wanted = wanted.replace(
        place,
        f"  execution of jobs: in threads\n"
        f"  REST requires authentication: False\n  automatic master failover: off\n"
        f"  witness: none\n{place}",
    )
    place = "  enabled user shutdown:"
    wanted = wanted.replace(
        place, f"  automatic instance failover: off\n  watchdogs of nodes: off\n{place}"
    )
    assert gnt("cluster info") == (0, wanted, "")
    # The second one is for the reason of a pause.
    assert master.requests == [
        ("QueryClusterInfo", []),
        ("QueryConfigValues", [["queue_pause"]]),
    ]
    master.answers["QueryConfigValues"] = lambda _names: ["no process"]
    assert "\nJob queue: pauses: no process\n" in gnt("cluster info").out


def test_info_roman(gnt: Gnt, info: dict[str, Any]) -> None:
    text = gnt("cluster info --roman").out
    assert "  candidate pool size: X\n" in text
    assert "    vcpus: I\n" in text


@pytest.mark.parametrize(
    ("output_format", "load"), [("json", json.loads), ("yaml", yaml.safe_load)]
)
def test_info_for_programs(output_format: str, load: Any, gnt: Gnt, info: dict[str, Any]) -> None:
    assert load(gnt(f"cluster info --output {output_format}").out) == info


def test_info_takes_no_arguments(gnt: Gnt) -> None:
    ended = gnt("cluster info nosucharg")
    assert ended.code == 1
    assert "Command info expects no arguments" in ended.err


def test_version(gnt: Gnt, info: dict[str, Any]) -> None:
    info.update(
        software_version="3.1.0",
        protocol_version=3010000,
        config_version=3010000,
        vcs_version="3.1.0",
    )
    assert gnt("cluster version").out == (
        "Software version: 3.1.0\nInternode protocol: 3010000\nConfiguration format: 3010000\n"
        "OS api version: 20\nExport interface: 0\nVCS version: 3.1.0\n"
    )
    assert json.loads(gnt("cluster version --output json").out)["os_api_version"] == 20


def test_getmaster_needs_no_daemon(gnt: Gnt, here: paths.Paths) -> None:
    assert gnt("cluster getmaster") == (0, "node1.example.com\n", "")
    assert gnt("cluster getmaster --output yaml") == (0, "master: node1.example.com\n", "")


def test_getmaster_without_a_cluster(gnt: Gnt, here: paths.Paths) -> None:
    Path(here.ssconf_file("master_node")).unlink()
    ended = gnt("cluster getmaster")
    assert (ended.code, ended.out) == (5, "")
    assert "no cluster here" in ended.err


def test_getmaster_with_a_file_that_cannot_be_read(gnt: Gnt, here: paths.Paths) -> None:
    path = Path(here.ssconf_file("master_node"))
    path.unlink()
    path.mkdir()
    assert gnt("cluster getmaster").code == 2


# -- verify ---------------------------------------------------------------------------------------


def verify_with(master: FakeMaster, *results: Any) -> None:
    """``CLUSTER_VERIFY`` submits a job per result."""
    master.results["OP_CLUSTER_VERIFY"] = lambda op: {
        "jobs": [
            [True, master._submit([{"OP_ID": f"OP_PART_{number}"}])]
            for number in range(len(results))
        ]
    }
    for number, result in enumerate(results):
        master.results[f"OP_PART_{number}"] = result
        master.logs[f"OP_PART_{number}"] = [f"* part {number}"]
    kinds = {"name": "text", "pinst_cnt": "number", "offline": "bool"}
    master.fields["node"] = [
        {"name": name, "title": name, "kind": kind, "doc": name} for name, kind in kinds.items()
    ]
    master.rows["node"] = [
        {"name": f"node{number}.example.com", "pinst_cnt": number, "offline": False}
        for number in range(3)
    ]


def test_verify(gnt: Gnt, master: FakeMaster) -> None:
    verify_with(master, True, True)
    steps = (
        "Submitted jobs 2, 3\n"
        "Waiting for job 2 ...\nFri Nov 20 22:16:50 2026 * part 0\n"
        "Waiting for job 3 ...\nFri Nov 20 22:16:50 2026 * part 1\n"
    )
    assert gnt("cluster verify --error-codes") == (0, steps, "")
    sent = master.jobs[1].ops[0]
    wanted = {
        "OP_ID": "OP_CLUSTER_VERIFY",
        "verbose": False,
        "error_codes": True,
        "debug_simulate_errors": False,
        "skip_checks": [],
        "ignore_errors": [],
        "group_name": None,
        "verify_clutter": False,
        "dry_run": False,
        "priority": 0,
    }
    assert {name: sent[name] for name in wanted} == wanted


def test_verify_options(gnt: Gnt, master: FakeMaster) -> None:
    verify_with(master, True)
    assert (
        gnt(
            "cluster verify -v --error-codes --debug-simulate-errors --no-nplus1-mem"
            " --no-hv-param-assessment -I ENODESSH -I ENODEOS -g rack2 --verify-ssh-clutter"
            " --priority low"
        ).code
        == 0
    )
    sent = master.jobs[1].ops[0]
    wanted = {
        "verbose": True,
        "error_codes": True,
        "debug_simulate_errors": True,
        "skip_checks": ["nplusone_mem", "hvparam_assessment"],
        "ignore_errors": ["ENODESSH", "ENODEOS"],
        "group_name": "rack2",
        "verify_clutter": True,
        "priority": 10,
    }
    assert {name: sent[name] for name in wanted} == wanted


VERDICT = "3 nodes, 3 instances: no errors, no warnings\n"


def test_verify_without_findings_is_one_line(gnt: Gnt, master: FakeMaster) -> None:
    verify_with(master, True, True)
    assert gnt("cluster verify") == (0, VERDICT, "")


def test_verify_shows_each_finding_once_errors_first(gnt: Gnt, master: FakeMaster) -> None:
    verify_with(master, True, False)
    master.logs["OP_PART_0"] = [
        "* Checking the configuration",
        "  - NOTICE: the REST interface can be read",
        "  - WARNING:ENODEN1:node:node2.example.com:no memory: 3 GiB",
    ]
    master.logs["OP_PART_1"] = [
        "* Checking nodes",
        "  - ERROR:ENODEHOOKS:node:node10.example.com:hook x failed",
        "      what the hook printed",
        "  - ERROR:ENODERPC:node:node2.example.com:no answer",
        "  - ERROR:ENODERPC:node:node2.example.com:no answer",
        "  - ERROR:ECLUSTERCFG:cluster::a wrong value",
    ]
    ended = gnt("cluster verify")
    assert ended == (
        1,
        "ERROR: cluster: a wrong value [ECLUSTERCFG]\n"
        "ERROR: node node2.example.com: no answer [ENODERPC]\n"
        "ERROR: node node10.example.com: hook x failed [ENODEHOOKS]\n"
        "      what the hook printed\n"
        "WARNING: node node2.example.com: no memory: 3 GiB [ENODEN1]\n"
        "NOTICE: the REST interface can be read\n"
        "3 nodes, 3 instances: 3 errors, 1 warning\n",
        "",
    )


def test_verify_with_steps(gnt: Gnt, master: FakeMaster) -> None:
    verify_with(master, True)
    master.logs["OP_PART_0"].append("  - NOTICE: ENODERPC: 3 check(s), none failed")
    assert gnt("cluster verify -v").out == (
        "Submitted jobs 2\nWaiting for job 2 ...\nFri Nov 20 22:16:50 2026 * part 0\n"
        "Fri Nov 20 22:16:50 2026   - NOTICE: ENODERPC: 3 check(s), none failed\n" + VERDICT
    )


def test_verify_says_which_nodes_were_not_checked(gnt: Gnt, master: FakeMaster) -> None:
    verify_with(master, True)
    master.rows["node"][1]["offline"] = True
    assert gnt("cluster verify").out == (
        "3 nodes (1 offline, not checked), 3 instances: no errors, no warnings\n"
    )


def test_verify_of_a_group_counts_its_nodes(gnt: Gnt, master: FakeMaster) -> None:
    verify_with(master, True)
    master.rows["group"] = [{"name": "rack2"}]
    gnt("cluster verify -g rack2")
    wanted = ["|", ["==", "group", "rack2"]]
    assert ("Query", ["node", ["pinst_cnt", "offline"], wanted]) in master.requests


def test_verify_on_a_terminal_has_colours_and_fits(
    gnt: Gnt, master: FakeMaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    verify_with(master, False)
    master.logs["OP_PART_0"] = [
        "  - ERROR:ENODELVM:node:node2.example.com:the volume group xenvg has less free space than"
        " its volumes need"
    ]
    monkeypatch.setattr(terminal, "is_terminal", lambda stream: True)
    monkeypatch.setattr(terminal, "width", lambda stream, otherwise=80: 60)
    monkeypatch.setenv("TERM", "xterm")
    assert gnt("cluster verify").out.endswith(
        "\033[31mERROR\033[0m: node node2.example.com: the volume group xenvg has\n"
        "    less free space than its volumes need [ENODELVM]\n"
        "\033[31m3 nodes, 3 instances: 1 error, no warnings\033[0m\n"
    )


@pytest.mark.parametrize("results", [(True, False), (False, True)])
def test_verify_finds_something(results: tuple[bool, ...], gnt: Gnt, master: FakeMaster) -> None:
    verify_with(master, *results)
    assert gnt("cluster verify").code == 1


def test_verify_whose_job_fails(gnt: Gnt, master: FakeMaster) -> None:
    verify_with(master, errors.OpExecError("no"), True)
    ended = gnt("cluster verify")
    assert ended.code == 1
    assert "Job 2 has failed: Failure: command execution error:\nno\n" in ended.err
    assert ended.out == (
        "3 nodes, 3 instances: no errors, no warnings; not everything was checked\n"
        "1 job(s) failed while verifying the cluster.\n"
    )


def test_verify_dry_run(gnt: Gnt, master: FakeMaster) -> None:
    assert gnt("cluster verify --dry-run") == (0, "", "")


def test_verify_unknown_code(gnt: Gnt) -> None:
    ended = gnt("cluster verify -I NOSUCH")
    assert ended.code == 2
    assert "invalid choice: 'NOSUCH'" in ended.err
