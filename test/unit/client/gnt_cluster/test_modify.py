"""``gnt-cluster modify`` and ``show-ispecs-cmd``: from options to the opcode."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fakes.luxi_master import FakeMaster
from ganeti import errors
from ganeti.objects import ipolicy
from ganeti.platform import paths
from ganeti.utils import x509

from ..conftest import Gnt


def sent(master: FakeMaster) -> dict[str, Any]:
    """What the last job asks for, without what was left out."""
    op = master.opcode()
    assert op["OP_ID"] == "OP_CLUSTER_SET_PARAMS"
    plain = ("OP_ID", "reason", "debug_level", "priority", "force", "dry_run")
    return {key: value for key, value in op.items() if key not in plain and value is not None}


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        (
            "-C 3 --max-running-jobs 7 --max-tracked-jobs 9",
            {"candidate_pool_size": 3, "max_running_jobs": 7, "max_tracked_jobs": 9},
        ),
        ("--vg-name '' --drbd-usermode-helper ''", {"vg_name": "", "drbd_helper": ""}),
        (
            "--enabled-hypervisors kvm,fake --enabled-disk-templates plain,file",
            {"enabled_hypervisors": ["kvm", "fake"], "enabled_disk_templates": ["plain", "file"]},
        ),
        (
            "-H kvm:acpi=false -H kvm:kernel_args=ro",
            {"hvparams": {"kvm": {"acpi": False, "kernel_args": "ro"}}},
        ),
        ("-B memory=1g,vcpus=2", {"beparams": {"minmem": 1024, "maxmem": 1024, "vcpus": 2}}),
        ("-B memory=1g,maxmem=1024", {"beparams": {"minmem": 1024, "maxmem": 1024}}),
        ("-N link=br0", {"nicparams": {"link": "br0"}}),
        (
            "--node-parameters spindle_count=2,oob_program=default",
            {"ndparams": {"spindle_count": 2, "oob_program": "default"}},
        ),
        ("-D drbd:resync-rate=1024", {"diskparams": {"drbd": {"resync-rate": 1024}}}),
        (
            "--hypervisor-state kvm:mem_total=1 --disk-state plain/xenvg:disk_total=2",
            {
                "hv_state": {"kvm": {"mem_total": 1}},
                "disk_state": {"plain": {"xenvg": {"disk_total": 2}}},
            },
        ),
        ("--uid-pool 10-20,30", {"uid_pool": [[10, 20], [30, 30]]}),
        ("--add-uids 1-2 --remove-uids 3", {"add_uids": [[1, 2]], "remove_uids": [[3, 3]]}),
        ("--uid-pool ''", {"uid_pool": []}),
        ("--reserved-lvs 'xenvg/a.*,b'", {"reserved_lvs": ["xenvg/a.*", "b"]}),
        ("--reserved-lvs ''", {"reserved_lvs": []}),
        (
            "--master-netdev eth1 --master-netmask 24 --use-external-mip-script yes",
            {"master_netdev": "eth1", "master_netmask": 24, "use_external_mip_script": True},
        ),
        (
            "--mac-prefix aa:00:01 --prealloc-wipe-disks yes --maintain-node-health no",
            {"mac_prefix": "aa:00:01", "prealloc_wipe_disks": True, "maintain_node_health": False},
        ),
        (
            "-I hail --default-iallocator-params a=b",
            {"default_iallocator": "hail", "default_iallocator_params": {"a": "b"}},
        ),
        ("-I ''", {"default_iallocator": ""}),
        (
            "--file-storage-dir /a --shared-file-storage-dir ''",
            {"file_storage_dir": "/a", "shared_file_storage_dir": ""},
        ),
        (
            "--install-image /i --zeroing-image '' --user-shutdown yes --modify-etc-hosts no",
            {
                "install_image": "/i",
                "zeroing_image": "",
                "enabled_user_shutdown": True,
                "modify_etc_hosts": False,
            },
        ),
        ("--auto-balance no", {"auto_balance": {}}),
        ("--auto-balance yes", {"auto_balance": {"moves_per_hour": 4, "min_gain": 0.01}}),
        ("--auto-balance moves=2", {"auto_balance": {"moves_per_hour": 2}}),
        (
            "--auto-balance gain=0.5,moves=1",
            {"auto_balance": {"moves_per_hour": 1, "min_gain": 0.5}},
        ),
        ("--job-execution processes", {"job_execution": "processes"}),
        ("--rapi-require-authentication yes", {"rapi_require_authentication": True}),
        ("--auto-instance-failover yes", {"auto_instance_failover": 15}),
        ("--auto-instance-failover no", {"auto_instance_failover": 0}),
        ("--auto-instance-failover 1m", {"auto_instance_failover": 60}),
        ("--node-watchdog yes", {"node_watchdog": 10}),
        ("--node-watchdog no", {"node_watchdog": 0}),
        ("--node-watchdog 20s", {"node_watchdog": 20}),
        ("--witness https://w/d", {"witness": "https://w/d"}),
        ("--witness=none", {"witness": "none"}),
        ("--auto-failover yes", {"auto_failover": 5}),
        ("--auto-failover=no", {"auto_failover": 0}),
        ("--auto-failover=2m", {"auto_failover": 120}),
        ("--compression-tools gzip,lzop", {"compression_tools": ["gzip", "lzop"]}),
        ("--instance-communication-network talk", {"instance_communication_network": "talk"}),
        (
            "--enabled-data-collectors drbd=no,lv=1,no_diskstats",
            {"enabled_data_collectors": {"drbd": False, "lv": True, "diskstats": False}},
        ),
        ("--data-collector-interval lv=2.5", {"data_collector_interval": {"lv": 2_500_000}}),
        (
            "--ipolicy-std-specs disk-count=2 --ipolicy-vcpu-ratio 3 --ipolicy-spindle-ratio default",
            {"ipolicy": {"std": {"disk-count": 2}, "vcpu-ratio": 3.0, "spindle-ratio": "default"}},
        ),
    ],
)
def test_options(gnt: Gnt, master: FakeMaster, line: str, wanted: dict[str, Any]) -> None:
    assert gnt(f"cluster modify {line}") == (0, "", "")
    assert sent(master) == wanted


@pytest.mark.parametrize(
    ("line", "fragment"),
    [
        ("-H nosuch:a=b", "unknown hypervisor 'nosuch'"),
        ("-H fake:nosuch=b", "nosuch"),
        ("-B vcpus=default", "vcpus"),
        ("-D nosuch:a=b", "unknown disk template"),
        ("--enabled-disk-templates file,nosuch", "no disk template 'nosuch'"),
        ("--enabled-hypervisors nosuch", "no hypervisor 'nosuch'"),
        ("--uid-pool 20-10", "range '20-10' is empty"),
        ("--master-netmask x", "netmask"),
        ("--witness-ca /x", "need --witness=URL"),
        ("--witness none --witness-auth /x", "need --witness=URL"),
        ("--witness https://w/d --witness-auth /no-such-file", "cannot read /no-such-file"),
        ("--witness https://w/d --witness-auth /dev/null", "expected 'user = NAME'"),
        ("--witness https://w/d --witness-ca /dev/null", "--witness-ca: /dev/null"),
        ("--auto-failover=soon", "'soon' is neither yes nor no nor a time span"),
        ("--enabled-data-collectors lv=perhaps", "data collector lv"),
        ("--data-collector-interval lv=soon", "data collector lv"),
        ("--ipolicy-bounds-specs min:memory-size=1", "needs min:... and max:..."),
    ],
)
def test_wrong_options(gnt: Gnt, master: FakeMaster, line: str, fragment: str) -> None:
    ended = gnt(f"cluster modify {line}")
    assert ended.code == 1
    assert fragment in ended.err
    assert not master.jobs


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        (
            "--hypervisor-defaults fake:migration_mode=live",
            {"hvparams": {"fake": {"migration_mode": "live"}}},
        ),
        (
            "--hypervisor-defaults kvm:acpi=true -H kvm:use_chroot=false",
            {"hvparams": {"kvm": {"acpi": True, "use_chroot": False}}},
        ),
        ("--defaults disksize=2g", {"ipolicy": {"std": {"disk-size": 2048}}}),
        (
            "--defaults disksize=20,bridge=br7",
            {
                "ipolicy": {"std": {"disk-size": 20}},
                "nicparams": {"mode": "bridged", "link": "br7"},
            },
        ),
        (
            "--defaults bridge=br7 -N mode=openvswitch",
            {"nicparams": {"mode": "openvswitch", "link": "br7"}},
        ),
        ("--defaults hypervisor=kvm", {"enabled_hypervisors": ["kvm", "fake"]}),
        (
            "--defaults hypervisor=kvm --enabled-hypervisors xen-pvm,kvm",
            {"enabled_hypervisors": ["kvm", "xen-pvm"]},
        ),
    ],
)
def test_spelling_of_the_first_version(
    gnt: Gnt, master: FakeMaster, line: str, wanted: dict[str, Any]
) -> None:
    master.cluster_info = {"enabled_hypervisors": ["fake", "kvm"]}
    assert gnt(f"cluster modify {line}") == (0, "", "")
    assert sent(master) == wanted


@pytest.mark.parametrize(
    ("line", "fragment"),
    [
        (
            "--defaults nosuch=1",
            "unknown default 'nosuch'. Known are: bridge, disksize, hypervisor.",
        ),
        ("--defaults bridge", "default bridge needs a value"),
        ("--defaults bridge=br0 -N link=br1", "either with --defaults or with --nic-parameters"),
        ("--defaults disksize=big", "default disksize"),
        ("--defaults disksize=1g --ipolicy-std-specs disk-size=1", "--ipolicy-std-specs"),
        ("--defaults hypervisor=xen-pvm", "Enabled are: fake, kvm"),
    ],
)
def test_slips_in_it(gnt: Gnt, master: FakeMaster, line: str, fragment: str) -> None:
    master.cluster_info = {"enabled_hypervisors": ["fake", "kvm"]}
    ended = gnt(f"cluster modify {line}")
    assert ended.code == 1 and fragment in ended.err
    assert not master.jobs


def test_nothing_to_change(gnt: Gnt, master: FakeMaster) -> None:
    assert gnt("cluster modify") == (1, "", "Please give at least one of the parameters.\n")


def test_jobs_that_follow_are_awaited(gnt: Gnt, master: FakeMaster) -> None:
    follower = master.add_job({"OP_ID": "OP_NETWORK_ADD"})
    master.results["OP_CLUSTER_SET_PARAMS"] = {"jobs": [[True, follower], [False, "queue full"]]}
    ended = gnt("cluster modify --instance-communication-network talk")
    assert ended.code == 1
    assert f"Waiting for job {follower}" in ended.out
    assert "queue full" in ended.err


def test_sizes_as_a_command(gnt: Gnt, master: FakeMaster) -> None:
    policy = ipolicy.defaults()
    master.cluster_info = {"ipolicy": policy, "name": "cluster.example.com"}
    ended = gnt("cluster show-ispecs-cmd")
    assert ended.code == 0
    words = ended.out.split()
    assert words[:2] == ["gnt-cluster", "init"]
    assert words[2:4] == [
        "--ipolicy-std-specs",
        "cpu-count=1,disk-count=1,disk-size=1024,memory-size=128,nic-count=1,spindle-use=1",
    ]
    assert words[4] == "--ipolicy-bounds-specs"
    assert words[5].startswith("min:cpu-count=1,")
    assert "/max:cpu-count=8," in words[5]
    assert words[6:] == ["cluster.example.com"]


def test_a_key_for_a_witness_must_belong_to_its_certificate(
    gnt: Gnt, master: FakeMaster, here: paths.Paths, tmp_path: Path
) -> None:
    one, other = x509.create_self_signed("one"), x509.create_self_signed("other")
    path = tmp_path / "auth"
    path.write_text(one[: one.index("-----BEGIN CERTIFICATE-----")] + x509.certificate_part(other))
    ended = gnt(f"cluster modify --witness=https://w/d --witness-auth {path}")
    assert ended.code == 1 and "the key is not the one of the certificate" in ended.err
    assert "PRIVATE" not in ended.err
    assert not master.jobs and not Path(here.witness_auth_file).exists()
    path.write_text(one)
    assert gnt(f"cluster modify --witness=https://w/d --witness-auth {path}") == (0, "", "")
    assert Path(here.witness_auth_file).read_text() == one


def test_files_for_a_witness_are_no_parameters(
    gnt: Gnt, master: FakeMaster, here: paths.Paths, tmp_path: Path
) -> None:
    """The command copies them; a job which fails leaves the former ones."""
    first, second = tmp_path / "first", tmp_path / "second"
    for path, secret in ((first, "one"), (second, "two")):
        path.write_text(f"user = a\npassword = {secret}\n")
    modify = "cluster modify --witness=https://w/d --witness-auth"
    assert gnt(f"{modify} {first}") == (0, "", "")
    assert sent(master) == {"witness": "https://w/d"}
    installed = Path(here.witness_auth_file)
    assert installed.read_text() == first.read_text()
    assert installed.stat().st_mode & 0o777 == 0o440
    master.errors["SubmitJob"] = errors.OpPrereqError("refused", errors.ECODE_STATE)
    assert gnt(f"{modify} {second}").code == 1
    assert installed.read_text() == first.read_text()
