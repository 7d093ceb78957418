"""Parameters which no environment can have are refused before anything is done, with their name."""

from __future__ import annotations

import pytest

from fakes.config import cluster_of, disk_of, instance_of
from fakes.master import Master
from ganeti import errors
from ganeti.opcodes import cluster as cluster_ops
from ganeti.opcodes import instance as ops
from ganeti.utils import process

BAD = ["a\0b", "a\ud800b"]


def create(**changes):
    values = {
        "instance_name": "new.example.com",
        "mode": "create",
        "disk_template": "file",
        "disks": [{"size": 1024}],
        "nics": [{}],
        "os_type": "noop",
        "pnode": "node1",
    }
    return ops.OpInstanceCreate(**{**values, **changes})


def modify(**changes):
    return ops.OpInstanceSetParams(instance_name="web", **changes)


def reinstall(**changes):
    return ops.OpInstanceReinstall(instance_name="web", **changes)


def set_cluster(**changes):
    return cluster_ops.OpClusterSetParams(**changes)


@pytest.mark.parametrize("value", BAD)
@pytest.mark.parametrize(
    ("make", "fragment"),
    [
        (lambda bad: create(osparams={"seed": bad}), "OS parameter 'seed': its value has"),
        (lambda bad: create(osparams_private={"seed": bad}), "OS parameter 'seed': its value has"),
        (lambda bad: create(osparams_secret={"seed": bad}), "OS parameter 'seed': its value has"),
        (lambda bad: create(osparams={bad: "x"}), "its name has"),
        (
            lambda bad: create(hvparams={"kernel_args": bad}, hypervisor="kvm"),
            "parameter kernel_args: its value has",
        ),
        (lambda bad: create(disks=[{"size": 1024, "name": bad}]), "disk 0: name: its value has"),
        (lambda bad: create(nics=[{"name": bad}]), "name: its value has"),
        (
            lambda bad: create(
                disk_template="ext", disks=[{"size": 1024, "provider": "san", "pool": bad}]
            ),
            "disk 0: parameter 'pool': its value has",
        ),
        (lambda bad: modify(osparams={"seed": bad}), "OS parameter 'seed': its value has"),
        (lambda bad: modify(osparams_private={"seed": bad}), "OS parameter 'seed': its value has"),
        (lambda bad: modify(hvparams={"kernel_args": bad}), "parameter kernel_args: its value"),
        (lambda bad: modify(disks=[[0, {"name": bad}]]), "name: its value has"),
        (lambda bad: modify(nics=[[0, {"name": bad}]]), "name: its value has"),
        (lambda bad: reinstall(osparams={"seed": bad}), "OS parameter 'seed': its value has"),
        (lambda bad: reinstall(osparams_secret={"seed": bad}), "OS parameter 'seed': its value"),
        (
            lambda bad: set_cluster(osparams={"noop": {"seed": bad}}),
            "OS noop: parameter 'seed': its value has",
        ),
        (
            lambda bad: set_cluster(osparams_private_cluster={"noop": {"seed": bad}}),
            "OS noop: parameter 'seed': its value has",
        ),
        (
            lambda bad: set_cluster(os_hvp={"noop": {"kvm": {"kernel_args": bad}}}),
            "parameter kernel_args: its value has",
        ),
    ],
)
def test_a_parameter_which_no_script_can_get(make, fragment, value):
    disk = disk_of("web", 0, "file")
    web = instance_of("web", disks=(disk.uuid,), hypervisor="kvm")
    master = Master(
        cluster_of(
            3,
            (web,),
            (disk,),
            enabled_disk_templates=("file", "ext"),
            enabled_hypervisors=("fake", "kvm"),
        )
    )
    text = master.refused(make(value), errors.ECODE_INVAL)
    assert fragment in text
    assert value not in text
    assert master.rpc.acting() == []


def test_a_name_which_no_variable_can_have():
    master = Master(cluster_of(3, ()))
    text = master.refused(create(osparams={"a=b": "x"}), errors.ECODE_INVAL)
    assert "OS parameter 'a=b': its name cannot be the one of a variable" in text


@pytest.mark.programs
@pytest.mark.parametrize("env", [{"OSP_SEED": "se\0cret"}, {"OSP_SEED": "se\ud800cret"}])
def test_what_an_older_version_has_accepted(env):
    """The failure names the variable; its value may be secret."""
    with pytest.raises(errors.CommandError, match="variable 'OSP_SEED': its value has") as caught:
        process.run(["true"], timeout_s=60, env=env)
    assert "cret" not in str(caught.value)
    with pytest.raises(errors.CommandError, match="an argument: its value has"):
        process.run(["true", "a\0b"], timeout_s=60)
