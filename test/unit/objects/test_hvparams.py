"""Hypervisor parameters and policies are those published, and bad values are refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ganeti import errors
from ganeti.constants import hv, instance, net, node, verify
from ganeti.objects import disk_templates, hvparams, ipolicy
from ganeti.objects.hypervisors import cpu_masks

PUBLISHED = json.loads((Path(__file__).parents[2] / "data/published.json").read_text())


# Beyond the published ones; their defaults change nothing that a guest sees.
OURS = {
    hv.KVM: ("firmware", "firmware_path", "firmware_vars_path", "migration_tls", "tpm_version"),
    hv.XEN_PVM: ("type",),
}


@pytest.mark.parametrize("name", hv.ALL)
def test_tables_are_as_published(name):
    mine = {
        p.name: [p.type, p.default, p.required, sorted(p.one_of) or None, bool(p.node_check)]
        for p in hvparams.TABLES[name].values()
    }
    wanted = {key: list(value) for key, value in PUBLISHED["hvparams"][name].items()}
    if "migration_mode" in wanted:
        wanted["migration_mode"][3] = sorted(hv.MIGRATION_MODES)
    for parameter in OURS.get(name, ()):
        del mine[parameter]
    assert mine == wanted


def test_every_default_is_legal():
    # Cross checks hold too; a kernel of the site is a default like any other.
    for name in hv.ALL:
        hvparams.check_parameter_syntax(name, hvparams.defaults(name))


def test_other_defaults_are_as_published():
    assert [instance.BE_DEFAULTS, instance.BE_PARAM_TYPES] == PUBLISHED["beparams"]
    assert [node.ND_DEFAULTS, node.ND_PARAM_TYPES] == PUBLISHED["ndparams"]
    assert [net.NIC_DEFAULTS, net.NIC_PARAM_TYPES] == PUBLISHED["nicparams"]
    assert [disk_templates.all_defaults(), disk_templates.parameter_types()] == PUBLISHED[
        "diskparams"
    ][:2]
    assert ipolicy.defaults() == PUBLISHED["ipolicy"]
    assert verify.OBJECT_OF == PUBLISHED["verify"]
    assert {name: disk_templates.of(name).storage_type for name in disk_templates.ALL} == PUBLISHED[
        "template_to_storage"
    ]
    assert sorted(errors.PUBLISHED) == PUBLISHED["exceptions"]
    assert sorted(errors.ECODE_ALL) == PUBLISHED["ecodes"]


@pytest.mark.parametrize(
    ("mine", "name"),
    [
        (disk_templates.LVM_BASED, "DTS_LVM"),
        (disk_templates.FILE_BASED, "DTS_FILEBASED"),
        (disk_templates.EXT_MIRRORED, "DTS_EXT_MIRROR"),
        (disk_templates.INT_MIRRORED, "DTS_INT_MIRROR"),
        (disk_templates.MIRRORED, "DTS_MIRRORED"),
        (disk_templates.COPYABLE, "DTS_COPYABLE"),
        (disk_templates.GROWABLE, "DTS_GROWABLE"),
        (disk_templates.EXCLUSIVE_STORAGE, "DTS_EXCL_STORAGE"),
        (disk_templates.MAY_ADOPT, "DTS_MAY_ADOPT"),
        (disk_templates.MUST_ADOPT, "DTS_MUST_ADOPT"),
        (disk_templates.HAVE_ACCESS, "DTS_HAVE_ACCESS"),
        (disk_templates.SNAPSHOT_CAPABLE, "DTS_SNAPSHOT_CAPABLE"),
        (disk_templates.INSTANCE_DEPENDENT_PATH, "DTS_INSTANCE_DEPENDENT_PATH"),
        (disk_templates.NOT_CONVERTIBLE_FROM, "DTS_NOT_CONVERTIBLE_FROM"),
        (disk_templates.NOT_CONVERTIBLE_TO, "DTS_NOT_CONVERTIBLE_TO"),
    ],
)
def test_sets_of_templates(mine, name):
    assert sorted(mine) == PUBLISHED["disk_template_sets"][name]


@pytest.mark.parametrize(
    ("hypervisor", "change", "text"),
    [
        ("kvm", {"nosuch": 1}, "no parameter 'nosuch'"),
        ("kvm", {"disk_type": "floppy"}, "disk_type: must be one of"),
        ("kvm", {"disk_type": ""}, "disk_type: must not be empty"),
        ("kvm", {"kernel_path": "boot/vmlinuz"}, "kernel_path: must be an absolute path"),
        ("kvm", {"kernel_path": "/boot/../vmlinuz"}, "kernel_path: must be a normalised path"),
        ("kvm", {"root_path": ""}, "root_path: must be set"),
        ("kvm", {"migration_port": 0}, "migration_port: must be from 1 to 65534"),
        ("kvm", {"migration_downtime": -1}, "migration_downtime: must not be negative"),
        ("kvm", {"cpu_mask": "1:2-x"}, "cpu_mask"),
        ("kvm", {"cpu_mask": "1::2"}, "cpu_mask"),
        ("kvm", {"cpu_mask": "3-1"}, "cpu_mask"),
        ("kvm", {"spice_ip_version": 5}, "spice_ip_version"),
        ("kvm", {"vnc_x509_verify": True}, "vnc_x509_path: must be set"),
        ("kvm", {"serial_speed": 12345}, "serial_speed"),
        ("kvm", {"boot_order": "cdrom"}, "cdrom_image_path"),
        ("kvm", {"security_model": "user"}, "security_domain"),
        ("kvm", {"security_domain": "kvm"}, "security_domain"),
        ("kvm", {"virtio_net_queues": 33}, "virtio_net_queues"),
        (
            "kvm",
            {"kvm_extra": "-msg 'timestamp"},
            "kvm_extra: must be arguments as",
        ),
        ("kvm", {"vnc_bind_address": "300.1.1.1"}, "vnc_bind_address: must be an IP address or"),
        ("kvm", {"vnc_bind_address": "/run/../vnc"}, "vnc_bind_address: must be a normalised path"),
        ("xen-hvm", {"boot_order": "cz"}, "boot_order"),
        ("xen-hvm", {"vnc_bind_address": "300.1.1.1"}, "IPv4"),
        ("fake", {"migration_mode": "sideways"}, "migration_mode"),
    ],
)
def test_bad_parameters_are_named(hypervisor, change, text):
    params = {**hvparams.defaults(hypervisor), **change}
    with pytest.raises(errors.HypervisorError, match=text):
        hvparams.check_parameter_syntax(hypervisor, params)


def test_unknown_hypervisor_and_missing_parameter():
    with pytest.raises(errors.HypervisorError, match="vbox"):
        hvparams.check_parameter_syntax("vbox", {})
    with pytest.raises(errors.HypervisorError, match="kvm_path is missing"):
        params = hvparams.defaults("kvm")
        del params["kvm_path"]
        hvparams.check_parameter_syntax("kvm", params)


def test_a_node_learns_which_paths_to_check():
    params = {
        **hvparams.defaults("kvm"),
        "cdrom_image_path": "http://host/cd.iso",
        "mem_path": "/hugepages",
    }
    assert sorted(hvparams.paths_to_check("kvm", params)) == [
        ("kernel_path", "/boot/vmlinuz-3-kvmU", "file"),
        ("kvm_path", "/usr/bin/kvm", "file"),
        ("mem_path", "/hugepages", "directory"),
    ]


def test_cpu_masks():
    assert cpu_masks.parse_cpu_mask("0-2,5") == [0, 1, 2, 5]
    assert cpu_masks.parse_cpu_mask("") == []
    assert cpu_masks.parse_cpu_masks("0-1:all:5") == [[0, 1], [-1], [5]]
    assert cpu_masks.parse_cpu_masks("") == []


@pytest.mark.parametrize(
    ("kind", "value", "result"),
    [
        ("string", "x", "x"),
        ("string", False, ""),
        ("maybe-string", None, None),
        ("bool", "True", True),
        ("bool", "false", False),
        ("bool", 1, True),
        ("bool", True, True),
        ("int", "12", 12),
        ("int", 3.0, 3),
        ("float", "1.5", 1.5),
        ("float", 2, 2.0),
        ("size", "1g", 1024),
        ("size", 512, 512),
        ("int", "default", "default"),
    ],
)
def test_force_types(kind, value, result):
    forced = hvparams.force_types({"p": value}, {"p": kind}, allowed_values=("default",))["p"]
    assert forced == result and type(forced) is type(result)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("string", 5),
        ("string", None),
        ("bool", "maybe"),
        ("bool", 7),
        ("int", "x"),
        ("int", 1.5),
        ("int", True),
        ("int", float("inf")),
        ("float", "nan"),
        ("size", "1x"),
        ("size", None),
        ("int", []),
        ("size", {}),
        ("string", ["default"]),
    ],
)
def test_force_types_refuses(kind, value):
    with pytest.raises(errors.TypeEnforcementError, match="p"):
        hvparams.force_types({"p": value}, {"p": kind}, allowed_values=("default",))
    with pytest.raises(errors.TypeEnforcementError, match="unknown"):
        hvparams.force_types({"q": value}, {"p": kind})


def test_policy_defaults_are_legal():
    ipolicy.check_syntax(ipolicy.defaults(), filled=True)
    ipolicy.check_syntax({}, filled=False)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"colour": 1}, "unknown key colour"),
        ({"vcpu-ratio": 0}, "vcpu-ratio"),
        ({"spindle-ratio": "x"}, "spindle-ratio"),
        ({"disk-templates": []}, "disk-templates"),
        ({"disk-templates": ["tape"]}, "tape"),
        ({"minmax": []}, "minmax"),
        ({"minmax": [{"min": {}}]}, "minmax/0"),
        ({"std": {"legs": 2}}, "std"),
        ({"std": {"cpu-count": -1}}, "std"),
        ({"std": {**ipolicy.defaults()["std"], "cpu-count": 99}}, "outside"),
        (
            {
                "minmax": [
                    {
                        "min": {**ipolicy.defaults()["std"], "cpu-count": 9},
                        "max": ipolicy.defaults()["minmax"][0]["max"],
                    }
                ]
            },
            "above maximum 8",
        ),
    ],
)
def test_bad_policies_are_refused(change, text):
    with pytest.raises(errors.ConfigurationError, match=text):
        ipolicy.check_syntax({**ipolicy.defaults(), **change}, filled=True)


def test_policy_lacking_a_key():
    policy = ipolicy.defaults()
    del policy["std"]
    with pytest.raises(errors.ConfigurationError, match="std is missing"):
        ipolicy.check_syntax(policy, filled=True)
    ipolicy.check_syntax(policy, filled=False)


def test_violations():
    policy = ipolicy.defaults()
    good = {
        "memory_mib": 512,
        "vcpus": 1,
        "disk_sizes_mib": [2048],
        "nic_count": 1,
        "spindle_use": 1,
        "disk_template": "plain",
    }
    assert ipolicy.check(policy, **good) == []
    bad = ipolicy.check(policy, **{**good, "vcpus": 99, "disk_sizes_mib": [2048, 4]})
    assert bad == [
        "cpu-count value 99 is not in range [1, 8]",
        "disk-size/1 value 4 is not in range [1024, 1048576]",
    ]
    policy["disk-templates"] = ["drbd"]
    assert "plain is not allowed" in ipolicy.check(policy, **good)[0]
    assert ipolicy.check(policy, vcpus=1) == []


def test_diskless_has_no_number_of_disks_to_violate():
    assert ipolicy.check(ipolicy.defaults(), disk_sizes_mib=[], disk_template="diskless") == []
    assert ipolicy.check(ipolicy.defaults(), disk_sizes_mib=[], disk_template="plain") != []


def test_the_alternative_violated_least_counts():
    policy = ipolicy.defaults()
    small = policy["minmax"][0]
    big = {"min": {**small["max"]}, "max": {key: 10**9 for key in small["max"]}}
    policy["minmax"] = [small, big]
    assert ipolicy.check(policy, vcpus=100, memory_mib=10**6) == []


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"memory": 512, "vcpus": 2}, {"minmem": 512, "maxmem": 512, "vcpus": 2}),
        # The limits keep the form in which they are given.
        ({"memory": 1024, "minmem": "1g", "maxmem": "1024"}, {"minmem": "1g", "maxmem": "1024"}),
        ({"memory": "1g", "maxmem": 1024}, {"minmem": "1g", "maxmem": 1024}),
        ({"memory": "default"}, {"minmem": "default", "maxmem": "default"}),
        ({"memory": "x", "maxmem": "x"}, {"minmem": "x", "maxmem": "x"}),
        ({"memory": None, "minmem": 1}, {"minmem": 1}),
        ({"maxmem": 2, "minmem": 1}, {"maxmem": 2, "minmem": 1}),
    ],
)
def test_memory_stands_for_two_limits(given, wanted):
    assert hvparams.split_memory(given) == wanted


@pytest.mark.parametrize(
    "given",
    [
        {"memory": 512, "maxmem": 1024},
        {"memory": 512, "minmem": 256, "maxmem": 512},
        {"memory": 512, "minmem": "default"},
        {"memory": "1g", "minmem": "x"},
    ],
)
def test_memory_that_contradicts_a_limit(given):
    with pytest.raises(errors.TypeEnforcementError, match="give either memory, or minmem"):
        hvparams.split_memory(given)
