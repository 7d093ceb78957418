"""Creating instances: checks, order of the work, and that nothing is left when something fails."""

from __future__ import annotations

import dataclasses

import pytest

from fakes.config import cluster_of, instance_of
from fakes.master import Master
from ganeti import errors
from ganeti.locking import Level
from ganeti.opcodes.instance import OpInstanceCreate
from ganeti.platform import hosts, machine, paths
from ganeti.platform.base import Machine
from ganeti.platform.virtual import VirtualNode
from ganeti.utils import net


def create(**changes):
    values = {
        "instance_name": "web.example.com",
        "mode": "create",
        "disk_template": "sharedfile",
        "disks": [{"size": 1024}, {"size": "2048", "name": "data", "mode": "ro"}],
        "nics": [{}],
        "os_type": "noop",
        "pnode": "node2",
        "start": True,
    }
    return OpInstanceCreate(**{**values, **changes})


@pytest.fixture
def master():
    return Master(cluster_of(3, (instance_of("other"),)))


def only(master):
    (found,) = [i for i in master.config.instances() if i.name == "web.example.com"]
    return found


# -- what happens ----------------------------------------------------------------


def test_creation_writes_first_then_makes_then_installs_then_starts(master):
    assert master.run(create()) == ["node2.example.com"]
    assert master.config.writes == [
        "instances.add",
        "instances.mark up",
        "instances.set_disks_active",
    ]
    assert master.rpc.acting() == [
        "file_storage_dir_create",
        "blockdev_create_multi",
        "blockdev_assemble_multi",
        "instance_os_add",
        "instance_start",
    ]
    assert {node for name, node, _args in master.rpc.calls if name in master.rpc.acting()} == {
        "node2.example.com"
    }
    assert master.rpc.where("web") == ["node2"]


def test_the_stored_instance(master):
    op = create(
        beparams={"memory": "256M", "vcpus": 2, "auto_balance": "default"},
        tags=["b", "a", "b"],
        nics=[{"ip": "192.0.2.77", "mac": "AA-00-00-12-34-56", "name": "lan", "link": "br7"}],
        osparams={"flavour": "plain"},
        start=False,
    )
    master.run(op)
    instance = only(master)
    assert instance.admin_state == "down"
    assert instance.beparams == {"minmem": 256, "maxmem": 256, "vcpus": 2}
    assert instance.tags == ("a", "b")
    assert instance.osparams == {"flavour": "plain"}
    (nic,) = instance.nics
    assert (nic.mac, nic.ip, nic.name) == ("aa:00:00:12:34:56", "192.0.2.77", "lan")
    assert nic.nicparams == {"link": "br7"}
    first, second = master.config.instance_disks(instance)
    assert (first.size, first.mode, first.iv_name) == (1024, "rw", "disk/0")
    assert (second.size, second.mode, second.name) == (2048, "ro", "data")
    driver, path = first.logical_id
    assert driver == "loop"
    directory, _slash, name = path.rpartition("/")
    assert directory == "/srv/ganeti/shared-file-storage/web.example.com"
    assert name.endswith(".sharedfile.disk0")
    assert first.nodes == ()


def test_file_disks_belong_to_their_node_and_may_lie_deeper(master):
    op = create(disk_template="file", file_storage_dir="team/a", file_driver="loop", start=False)
    master.run(op)
    disk = master.config.instance_disks(only(master))[0]
    assert disk.logical_id[1].startswith("/srv/ganeti/file-storage/team/a/web.example.com/")
    assert disk.nodes == ("uuid-node2",)


def test_a_diskless_instance_is_not_installed(master):
    master.run(create(disk_template="diskless", disks=[]))
    assert master.rpc.acting() == ["instance_start"]


def test_no_installation_disables_the_start(master):
    master.run(create(no_install=True, os_type=None))
    assert "instance_os_add" not in master.rpc.names()
    assert only(master).admin_state == "down"


def test_every_instance_gets_its_own_mac_and_kvm_its_own_port(master):
    for name in ("a", "b"):
        master.run(
            create(
                instance_name=name,
                hypervisor="kvm",
                start=False,
                hvparams={"kernel_path": "/boot/vmlinuz"},
            )
        )
    macs = {nic.mac for instance in master.config.instances() for nic in instance.nics}
    assert len(macs) == 3
    ports = [i.network_port for i in master.config.instances() if i.hypervisor == "kvm"]
    assert ports == [11001, 11002]


def test_without_a_free_port_nothing_is_begun():
    used = {"highest_used_port": 14998, "tcpudp_port_pool": ()}
    templates = {"enabled_disk_templates": ("sharedfile", "drbd"), "volume_group_name": "xenvg"}
    master = Master(cluster_of(3, (instance_of("other"),), **used, **templates))
    drbd = {"disk_template": "drbd", "snode": "node3", "start": False}
    text = master.refused(create(**drbd), errors.ECODE_NORES)
    assert "ports up to 14999 are all in use" in text
    assert master.config.writes == [] and master.rpc.acting() == []
    # One is free, for a console or for one disk.
    wanted = {"hypervisor": "kvm", "hvparams": {"kernel_path": "/boot/vmlinuz"}}
    text = master.refused(create(**drbd, **wanted, disks=[{"size": 1024}]), errors.ECODE_NORES)
    assert "are all in use" in text
    master.run(create(**wanted, start=False))
    assert only(master).network_port == 14999


def test_uefi_needs_a_disk_of_its_own(master):
    wanted = {
        "hypervisor": "kvm",
        "start": False,
        "hvparams": {"kernel_path": "", "firmware": "uefi"},
    }
    text = master.refused(create(**wanted), errors.ECODE_INVAL)
    assert "firmware=uefi needs a small disk named efivars" in text
    # Small ones are no matter of the policy, which wants disks of 1 GiB at least.
    large = [{"size": 1024}, {"size": 68, "name": "efivars"}]
    assert "disk 1 asks for 68 MiB" in master.refused(
        create(**wanted, disks=large), errors.ECODE_INVAL
    )
    master.run(create(**wanted, disks=[{"size": 1024}, {"size": 4, "name": "efivars"}]))


def test_the_disk_of_cloud_init_may_be_small_and_another_one_not(master):
    """The policy wants disks of 1 GiB at least."""

    def with_second(size: int, name: str) -> object:
        return create(start=False, disks=[{"size": 1024}, {"size": size, "name": name}])

    for size, name in ((4, "data"), (68, "cidata")):
        text = master.refused(with_second(size, name), errors.ECODE_INVAL)
        assert f"disk 1 asks for {size} MiB" in text
    master.run(with_second(4, "cidata"))


def test_secret_os_parameters_reach_the_script_and_are_not_stored(master):
    op = create(
        osparams={"a": "1"}, osparams_private={"b": "2"}, osparams_secret={"c": "3"}, start=False
    )
    master.run(op)
    _node, args = master.rpc.of("instance_os_add")[0]
    assert {key: args["instance"].osparams[key] for key in "abc"} == {"a": "1", "b": "2", "c": "3"}
    instance = only(master)
    assert instance.osparams == {"a": "1"}
    assert dict(instance.osparams_private) == {"b": "2"}


def test_hooks_see_a_planned_instance(master):
    master.run(create())
    pre, post = (
        args["env"]
        for _node, args in master.rpc.of("hooks_runner")
        if args["hpath"] == "instance-add" and _node == "node2.example.com"
    )
    assert pre["GANETI_ADD_MODE"] == "create"
    assert pre["GANETI_INSTANCE_STATUS"] == "True"
    assert pre["GANETI_INSTANCE_DISK0_SIZE"] == "1024"
    assert pre["GANETI_INSTANCE_DISK0_UUID"] == ""
    assert "GANETI_INSTANCE_DISK0_DEV_TYPE" not in pre
    assert pre["GANETI_INSTANCE_DISK1_NAME"] == "data"
    assert post["GANETI_POST_INSTANCE_DISK0_DEV_TYPE"] == "sharedfile"
    assert post["GANETI_POST_INSTANCE_DISK0_DRIVER"] == "loop"


def test_the_new_lock_stays_and_the_node_is_free_while_installing(master):
    held = {}

    def install(node, args):
        held[node] = master.locks.owned(master.job.owner, Level.NODE_RES)

    master.rpc.answers["instance_os_add"] = install
    master.run(create())
    assert held == {"node2.example.com": {}}
    assert only(master).uuid in master.locks.keys(Level.INSTANCE)


def test_a_dry_run_changes_nothing(master):
    assert master.run(create(dry_run=True)) == ["node2.example.com"]
    assert master.config.writes == []
    assert master.rpc.acting() == []
    assert master.locks.keys(Level.INSTANCE) == {"uuid-other"}


# -- names -----------------------------------------------------------------------


def test_a_checked_name_must_resolve(master, monkeypatch):
    def unknown(self, name):
        raise errors.ResolverError(name, -2, "name not known")

    monkeypatch.setattr(Machine, "lookup", unknown)
    text = master.refused(create(name_check=True), errors.ECODE_RESOLVER)
    assert "web.example.com does not resolve" in text


def test_a_checked_name_is_completed_and_gives_the_address(master, monkeypatch):
    monkeypatch.setattr(
        Machine, "lookup", lambda self, name: hosts.Hostname("web.example.com", "192.0.2.88")
    )
    master.run(create(instance_name="web", name_check=True, nics=[{"ip": "auto"}], start=False))
    assert only(master).nics[0].ip == "192.0.2.88"


def test_an_address_in_use_is_refused(master, monkeypatch):
    monkeypatch.setattr(
        Machine, "lookup", lambda self, name: hosts.Hostname("web.example.com", "192.0.2.88")
    )
    monkeypatch.setattr(net, "tcp_ping", lambda *args, **kwargs: True)
    text = master.refused(create(name_check=True, ip_check=True), errors.ECODE_NOTUNIQUE)
    assert "192.0.2.88" in text


def test_two_creations_of_one_name_at_once(master):
    master.config.reserving_for("another job").reserve_instance_name("web.example.com")
    master.refused(create(), errors.ECODE_EXISTS)


# -- refusals --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "ecode", "fragment"),
    [
        ({"instance_name": "other.example.com"}, errors.ECODE_EXISTS, "already in the cluster"),
        ({"instance_name": "a..b"}, errors.ECODE_INVAL, "not a valid host name"),
        ({"pnode": None}, errors.ECODE_INVAL, "--node"),
        ({"iallocator": "chooser"}, errors.ECODE_INVAL, "not both"),
        ({"pnode": None, "iallocator": "."}, errors.ECODE_INVAL, "no default instance allocator"),
        ({"pnode": "nosuch"}, errors.ECODE_NOENT, "nosuch"),
        ({"mode": "import"}, errors.ECODE_INVAL, "no node has an export"),
        ({"mode": "import", "compress": "bzip3"}, errors.ECODE_INVAL, "bzip3"),
        ({"forthcoming": True, "commit": True}, errors.ECODE_INVAL, "not both at once"),
        ({"opportunistic_locking": True}, errors.ECODE_INVAL, "allocator"),
        ({"ip_check": True}, errors.ECODE_INVAL, "check of the name"),
        ({"os_type": None}, errors.ECODE_INVAL, "no operating system"),
        ({"hypervisor": "xen-pvm"}, errors.ECODE_STATE, "xen-pvm is not enabled"),
        ({"disk_template": "plain"}, errors.ECODE_INVAL, "plain is not enabled"),
        ({"disk_template": "diskless"}, errors.ECODE_INVAL, "cannot have disks"),
        ({"disks": []}, errors.ECODE_INVAL, "at least one disk"),
        ({"disks": [{"size": 0}]}, errors.ECODE_INVAL, "at least 1 MiB"),
        ({"disks": [{"size": "big"}]}, errors.ECODE_INVAL, "disk 0: 'big'"),
        ({"disks": [{}]}, errors.ECODE_INVAL, "disk 0"),
        ({"disks": [{"size": 9, "mode": "wo"}]}, errors.ECODE_INVAL, "'wo'"),
        ({"disks": [{"size": 9, "vg": "xenvg"}]}, errors.ECODE_INVAL, "no parameter vg"),
        ({"disks": [{"size": 1024, "dev_type": "file"}]}, errors.ECODE_INVAL, "contradict"),
        ({"disks": [{"size": 2048, "name": "x"}] * 2}, errors.ECODE_NOTUNIQUE, "two disks"),
        ({"disks": [{"size": 1024}] * 17}, errors.ECODE_INVAL, "at most 16"),
        ({"file_storage_dir": "../elsewhere"}, errors.ECODE_INVAL, "below"),
        ({"file_storage_dir": "/etc"}, errors.ECODE_INVAL, "below"),
        ({"nics": [{}] * 9}, errors.ECODE_INVAL, "at most 8"),
        ({"nics": [{"mode": "user"}]}, errors.ECODE_INVAL, "mode 'user'"),
        ({"nics": [{"mode": "routed"}]}, errors.ECODE_INVAL, "needs an IP address"),
        ({"nics": [{"ip": "300.1.1.1"}]}, errors.ECODE_INVAL, "not an IP address"),
        ({"nics": [{"ip": "auto"}]}, errors.ECODE_INVAL, "name check"),
        ({"nics": [{"mac": "01:00:00:00:00:01"}]}, errors.ECODE_INVAL, "unicast"),
        ({"nics": [{"mac": "aa:00:00:00:00:05"}]}, errors.ECODE_NOTUNIQUE, "already in use"),
        ({"nics": [{"network": "net1"}]}, errors.ECODE_NOENT, "net1"),
        ({"nics": [{"name": "x"}, {"name": "x"}]}, errors.ECODE_NOTUNIQUE, "two network"),
        (
            {"nics": [{"mode": "routed", "ip": "192.0.2.5", "vlan": "7"}]},
            errors.ECODE_INVAL,
            "VLAN",
        ),
        ({"beparams": {"nosuch": 1}}, errors.ECODE_INVAL, "nosuch"),
        ({"beparams": {"minmem": 512, "maxmem": 256}}, errors.ECODE_INVAL, "more than the maximum"),
        ({"beparams": {"vcpus": 0}}, errors.ECODE_INVAL, "vcpus"),
        ({"beparams": {"memory": 8000}}, errors.ECODE_NORES, "4 GiB free"),
        ({"beparams": {"memory": 64}}, errors.ECODE_INVAL, "--ignore-ipolicy"),
        ({"hvparams": {"nosuch": 1}}, errors.ECODE_INVAL, "nosuch"),
        ({"hvparams": {"migration_mode": "live"}}, errors.ECODE_INVAL, "whole cluster"),
        ({"group_name": "nosuch"}, errors.ECODE_NOENT, "nosuch"),
        ({"tags": ["bad tag"]}, errors.ECODE_INVAL, "bad tag"),
        ({"osparams": {"a": "1"}, "osparams_secret": {"a": "2"}}, errors.ECODE_INVAL, "visibility"),
    ],
)
def test_creation_is_refused(master, changes, ecode, fragment):
    assert fragment in master.refused(create(**changes), ecode)
    assert master.locks.keys(Level.INSTANCE) == {"uuid-other"}


@pytest.mark.parametrize(
    ("node", "fragment"),
    [
        ({"offline": True}, "offline"),
        ({"drained": True}, "drained"),
        ({"vm_capable": False}, "vm_capable"),
    ],
)
def test_the_node_must_take_instances(node, fragment):
    master = Master(cluster_of(3, node_changes={2: node}))
    assert fragment in master.refused(create(), errors.ECODE_STATE)


@pytest.mark.parametrize(
    ("call", "ecode"),
    [
        ("os_validate", errors.ECODE_INVAL),
        ("hypervisor_validate_params", errors.ECODE_INVAL),
        ("bridges_exist", errors.ECODE_ENVIRON),
    ],
)
def test_what_the_node_refuses_is_said(master, call, ecode):
    master.rpc.errors[call] = "the reason is 42"
    text = master.refused(create(), ecode)
    assert "the reason is 42" in text
    assert "node2.example.com" in text


def test_a_policy_violation_on_a_named_node_says_the_limit_and_the_way_out(master):
    text = master.refused(create(beparams={"memory": 102400}), errors.ECODE_INVAL)
    assert (
        "violates the policy of group default: the policy of group default allows at most 32 GiB of"
        " memory for an instance; this one asks for 100 GiB: gnt-group modify"
        " --ipolicy-bounds-specs=min:.../max:... default [FailMem]"
    ) in text
    assert "gnt-instance add --ignore-ipolicy" in text


def test_policy_violations_may_be_ignored(master):
    master.run(create(beparams={"memory": 64}, ignore_ipolicy=True))
    assert master.job.said("violates the policy of group default")


def test_user_networking_exists_in_virtual_clusters_only(master, monkeypatch):
    here = VirtualNode(paths.Paths("/v/node1"))
    with machine.override(here):
        master.run(create(nics=[{"mode": "user"}]))
    assert only(master).nics[0].nicparams == {"mode": "user"}


# -- failures --------------------------------------------------------------------


@pytest.mark.parametrize(
    "call",
    [
        "file_storage_dir_create",
        "blockdev_create_multi",
        "blockdev_assemble_multi",
        "instance_os_add",
    ],
)
def test_a_failure_takes_everything_back(master, call):
    master.rpc.errors[call] = "no space left on device"
    text = master.failed(create())
    assert "no space left on device" in text
    assert [i.name for i in master.config.instances()] == ["other.example.com"]
    assert not master.config.snapshot().disks
    assert master.rpc.files == set()
    assert master.locks.keys(Level.INSTANCE) == {"uuid-other"}
    del master.rpc.errors[call]
    master.run(create())


def test_a_failing_os_script_shows_its_output(master):
    master.rpc.errors["instance_os_add"] = "script create failed: mkfs: bad superblock"
    text = master.failed(create())
    assert "mkfs: bad superblock" in text
    assert "node2.example.com" in text


def test_disks_which_cannot_be_removed_keep_the_instance(master):
    """Else nobody could remove them any more."""
    master.rpc.errors["instance_os_add"] = "script failed"
    master.rpc.errors["blockdev_remove_multi"] = "device is busy"
    text = master.failed(create())
    assert "script failed" in text
    assert "device is busy" in text
    assert "gnt-instance remove --ignore-failures web.example.com" in text
    instance = only(master)
    assert instance.admin_state == "down"
    assert instance.uuid in master.locks.keys(Level.INSTANCE)


def test_the_cause_is_not_hidden_by_what_follows(master):
    master.rpc.errors["instance_os_add"] = "script failed"
    master.rpc.errors["blockdev_shutdown_multi"] = "device is busy"
    text = master.failed(create())
    assert text.startswith("could not install OS noop")
    assert "script failed" in text
    assert "active disks" in text


def test_a_port_is_given_back_when_the_instance_cannot_be_added(master):
    master.config.errors["instances.add"] = errors.ConfigurationError("disk full")
    with pytest.raises(errors.ConfigurationError):
        master.run(create(hypervisor="kvm", hvparams={"kernel_path": "/boot/vmlinuz"}))
    assert master.config.cluster().tcpudp_port_pool == (11001,)


def test_a_failing_start_keeps_the_complete_instance(master):
    master.rpc.errors["instance_start"] = "QEMU: no such file"
    text = master.failed(create())
    assert "QEMU: no such file" in text
    assert "gnt-instance remove" in text
    assert only(master).admin_state == "up"
    assert len(master.rpc.files) == 2


def test_a_configuration_that_cannot_be_written_leaves_nothing(master):
    master.config.errors["instances.add"] = errors.ConfigurationError("disk full")
    with pytest.raises(errors.ConfigurationError, match="disk full"):
        master.run(create())
    assert master.rpc.acting() == []
    assert master.locks.keys(Level.INSTANCE) == {"uuid-other"}


def test_a_guest_which_could_never_start_is_refused(master):
    wanted = {"hypervisor": "kvm", "start": False, "hvparams": {"kernel_path": ""}}
    text = master.refused(
        create(**wanted, instance_name=f"{'x' * 50}.{'y' * 49}"), errors.ECODE_INVAL
    )
    assert "the paths of its sockets are too long" in text
    # No hypervisor can have names of which no files can be made.
    longest = ".".join(["x" * 49] * 4)
    text = master.refused(create(instance_name=f"{longest}.yy"), errors.ECODE_INVAL)
    assert "the name of the instance has 202 bytes" in text
    ide = {**wanted["hvparams"], "disk_type": "ide"}
    op = create(**{**wanted, "hvparams": ide}, disks=[{"size": 4}] * 5, ignore_ipolicy=True)
    assert "the IDE controller of its machine has 4 places" in master.refused(
        op, errors.ECODE_INVAL
    )
    assert master.rpc.acting() == []


# -- names of which one is the short form of another ---------------------------


def test_a_name_which_is_the_uuid_of_another_instance_is_refused(master):
    """A UUID counts before a name, so the removal of one would destroy the other."""
    text = master.refused(
        create(instance_name="uuid-other", exact_name=True), errors.ECODE_NOTUNIQUE
    )
    assert "it is the UUID of another instance" in text


def test_a_name_which_shortens_another_one_is_refused(master):
    text = master.refused(create(instance_name="other"), errors.ECODE_NOTUNIQUE)
    assert "other is the short form of other.example.com" in text
    assert "--exact-name" in text


def test_a_name_which_another_one_shortens_is_refused():
    master = Master(cluster_of(3, (dataclasses.replace(instance_of("web"), name="web"),)))
    text = master.refused(create(), errors.ECODE_NOTUNIQUE)
    assert "web is the short form of web.example.com" in text
    # Not a component of the name.
    assert master.run(create(instance_name="web-2.example.com")) == ["node2.example.com"]


def test_a_similar_name_is_accepted_by_option(master):
    assert master.run(create(instance_name="other", exact_name=True)) == ["node2.example.com"]


def test_a_similar_name_which_another_job_has_reserved_is_refused(master):
    master.config.reserving_for("another job").reserve_instance_name("web")
    master.refused(create(), errors.ECODE_NOTUNIQUE)
    # The refused job does not keep its name.
    master.config.reserving_for("a third job").reserve_instance_name("web.example.com")
