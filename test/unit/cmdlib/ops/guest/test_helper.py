"""Helper guests from the master's side: steps, times, failures, and that all is taken back."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from fakes.config import GROUP, cluster_of, commit, disk_of, instance_of
from fakes.master import Master
from ganeti import errors
from ganeti.cmdlib.base import LuContext
from ganeti.cmdlib.ops.guest import helper
from ganeti.objects import Network, Nic
from ganeti.objects.address_pool import empty
from ganeti.opcodes.backup import OpBackupExport
from ganeti.opcodes.instance import OpInstanceCreate, OpInstanceReinstall
from ganeti.rpc import Result

IMAGE = "/srv/helper.img"
NETWORK = "network-1"
ROUTED = {"mode": "routed", "link": "communication_rt", "vlan": ""}
UP = {"running": True, "known": True, "contact": True, "started": True, "exit_code": None}
BOOTING = {**UP, "contact": False, "started": False}
DONE = {**UP, "running": False, "exit_code": 0}
TOLD = {"lines": ["first", "last"], "log_file": "/log/os/add.log"}


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(helper, "POLL_S", 0.0)
    monkeypatch.setattr(helper, "POLL_MAX_S", 0.0)


def master_of(
    *instances: Any,
    network: bool = True,
    image: str = IMAGE,
    states: tuple[dict[str, Any], ...] = (BOOTING, UP, UP, DONE),
) -> Master:
    """Three nodes which take OS debian for untrusted; a helper guest has these states in turn."""
    data = cluster_of(
        3, instances, tuple(disk_of("web") for instance in instances for _ in instance.disks)
    )
    cluster = dataclasses.replace(
        data.cluster,
        install_image=image,
        zeroing_image=image,
        instance_communication_network="communication" if network else "",
    )
    groups, networks = data.nodegroups, {}
    if network:
        networks[NETWORK] = empty(
            Network(
                name="communication",
                network="169.254.0.0/16",
                network6="fe80::/10",
                mac_prefix="52:54:00",
                uuid=NETWORK,
                serial_no=1,
            )
        )
        groups = {GROUP: dataclasses.replace(groups[GROUP], networks={NETWORK: ROUTED})}
    master = Master(
        dataclasses.replace(data, cluster=cluster, nodegroups=groups, networks=networks)
    )
    left = list(states)
    master.rpc.answers.update(
        helper_status=lambda _node, _args: left.pop(0) if len(left) > 1 else left[0],
        helper_stop=TOLD,
    )
    ask = master.rpc._answer

    def answer(call: Any, node: str, args: dict[str, Any]) -> Result:
        found = ask(call, node, args)
        if call.name == "os_validate" and "trusted" in args["checks"] and args["name"] == "debian":
            return Result(node, failure=errors.NodeCallFailed(node, call.name, "not trusted"))
        return found

    master.rpc._answer = answer  # type: ignore[method-assign]
    return master


def create(**changes: Any) -> OpInstanceCreate:
    values = {
        "instance_name": "web.example.com",
        "mode": "create",
        "disk_template": "sharedfile",
        "disks": [{"size": 1024}],
        "nics": [{}],
        "os_type": "debian",
        "pnode": "node2",
        "hypervisor": "kvm",
        "start": True,
        "osparams": {"size": "1"},
        "osparams_private": {"user": "joe"},
        "osparams_secret": {"password": "hush"},
    }
    return OpInstanceCreate(**{**values, **changes})


def reinstall(**changes: Any) -> OpInstanceReinstall:
    return OpInstanceReinstall(**{"instance_name": "web", **changes})


def stopped(**changes: Any) -> Any:
    return instance_of(
        "web",
        os="debian",
        admin_state="down",
        disks=(disk_of("web").uuid,),
        hypervisor="kvm",
        **changes,
    )


def names(master: Master) -> list[str]:
    return master.rpc.acting()


# -- what happens ----------------------------------------------------------------


def test_an_untrusted_os_is_installed_in_a_helper_guest():
    master = master_of()
    assert master.run(create()) == ["node2.example.com"]
    assert names(master) == [
        "file_storage_dir_create",
        "blockdev_create_multi",
        "blockdev_assemble_multi",
        "helper_start",
        "helper_stop",
        "blockdev_assemble_multi",
        "instance_start",
    ]
    ((node, args),) = master.rpc.of("helper_start")
    assert node == "node2.example.com"
    assert (args["task"], args["image"], args["reinstall"]) == ("install", IMAGE, False)
    assert args["parameters"] == {
        "size": ["1", "public"],
        "user": ["joe", "private"],
        "password": ["hush", "secret"],
    }
    # A guest that cannot talk to its node can for the time of the installation.
    _lan, nic = args["instance"].nics
    assert args["own_nic"] and nic.name == "ganeti:communication:web.example.com"
    assert nic.ip == "169.254.0.1" and nic.mac.startswith("52:54:00:")
    assert nic.nicparams["mode"] == "routed"
    (stored,) = master.config.instances()
    assert len(stored.nics) == 1 and stored.osparams_private == {"user": "joe"}
    assert master.job.said("the helper guest is up")
    assert master.job.said("/log/os/add.log")
    assert not any("hush" in line for line in master.job.log)


def test_its_own_interface_is_used_when_there_is_one():
    master = master_of()
    master.run(create(instance_communication=True))
    ((_node, args),) = master.rpc.of("helper_start")
    assert len(args["instance"].nics) == 2 and not args["own_nic"]


def test_a_trusted_os_needs_nothing_of_this():
    master = master_of(network=False, image="")
    master.run(create(os_type="noop"))
    assert "instance_os_add" in names(master) and "helper_start" not in names(master)
    assert len(master.rpc.of("os_validate")) == 1


def test_reinstallation():
    master = master_of(stopped())
    master.run(reinstall(osparams_secret={"password": "hush"}))
    assert names(master) == [
        "blockdev_assemble_multi",
        "helper_start",
        "helper_stop",
        "blockdev_shutdown_multi",
    ]
    ((_node, args),) = master.rpc.of("helper_start")
    assert args["reinstall"] and args["parameters"]["password"] == ["hush", "secret"]


def test_the_address_of_a_helper_is_free_again_afterwards():
    master = master_of(stopped())
    for _ in range(2):
        master.run(reinstall())
    addresses = [args["instance"].nics[-1].ip for _node, args in master.rpc.of("helper_start")]
    assert addresses == ["169.254.0.1", "169.254.0.1"]


# -- refused ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "fragment"),
    [
        ({"image": ""}, "--install-image"),
        ({"network": False}, "--instance-communication-network"),
    ],
)
def test_what_the_cluster_lacks_is_said_before_anything_is_made(changes, fragment):
    master = master_of(**changes)
    text = master.refused(create(), errors.ECODE_STATE)
    assert fragment in text and "not trusted" in text
    assert names(master) == []


def test_a_hypervisor_that_runs_nothing_is_refused_at_once():
    assert "only simulates" in master_of().refused(create(hypervisor="fake"), errors.ECODE_INVAL)


def test_a_definition_with_another_fault_says_that_one():
    master = master_of(image="")
    master.rpc.errors["os_validate"] = "no variant small"
    assert "no variant small" in master.refused(create(), errors.ECODE_INVAL)


def test_a_network_that_is_not_connected_to_the_group():
    master = master_of()
    commit(master.config).groups.update(
        dataclasses.replace(master.config.group(GROUP), networks={})
    )
    assert "gnt-network connect" in master.refused(create(), errors.ECODE_STATE)


@pytest.mark.parametrize("name", ["helper_startup_timeout", "helper_shutdown_timeout"])
def test_times_are_above_zero(name):
    assert "at least 1 s" in master_of().refused(create(**{name: 0}), errors.ECODE_INVAL)


def test_a_helper_needs_memory_also_when_the_instance_is_not_started():
    master = master_of()
    master.rpc.free_mib["node2.example.com"] = 1
    assert "memory" in master.refused(create(start=False), errors.ECODE_NORES)


# -- it fails --------------------------------------------------------------------


def failed_creation(master: Master, **changes: Any) -> str:
    """The error; nothing is left of the instance, and the guest is ended."""
    text = master.failed(create(**changes))
    assert names(master)[-1] != "helper_start" and "helper_stop" in names(master)
    assert list(master.config.instances()) == [] and master.rpc.files == set()
    return text


@pytest.mark.parametrize(
    ("last", "fragment"),
    [
        ({"exit_code": 3}, "failed with exit code 3"),
        ({"exit_code": None}, "without reporting a result"),
        ({"exit_code": None, "contact": False}, "before it asked for its task"),
    ],
)
def test_how_a_helper_ends(last, fragment):
    text = failed_creation(master_of(states=(BOOTING, {**DONE, **last})))
    assert fragment in text
    assert text.endswith("Last lines of /log/os/add.log:\nfirst\nlast")


def test_a_daemon_that_has_forgotten_the_helper():
    text = failed_creation(master_of(states=(UP, {**BOOTING, "known": False})))
    assert "the metadata daemon of the node was restarted meanwhile" in text


def test_a_helper_that_does_not_start():
    master = master_of()
    master.rpc.errors["helper_start"] = "no such image"
    assert "no such image" in failed_creation(master)


def test_canceling_the_job_ends_the_helper():
    master = master_of(states=(UP,))
    status = master.rpc.answers["helper_status"]

    def cancel(node: str, args: dict[str, Any]) -> Any:
        master.job.cancel = True
        return status(node, args)

    master.rpc.answers["helper_status"] = cancel
    with pytest.raises(errors.JobCanceled):
        master.run(create())
    assert "helper_stop" in names(master) and list(master.config.instances()) == []


def test_a_helper_that_cannot_be_ended_is_named():
    master = master_of(states=({**DONE, "exit_code": 1},))
    master.rpc.errors["helper_stop"] = "it does not end"
    text = master.failed(create())
    assert "the helper guest of instance web.example.com on node node2.example.com" in text


class Clock:
    """A minute passes with each look."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        self.seconds += 60
        return self.seconds


def run_helper(master: Master, **changes: Any) -> str:
    """What is wrong with a helper guest that runs by a clock of its own."""
    ctx = LuContext(master.context, master.new_job())
    instance = master.config.expand_instance("web")
    values = {
        "task": "install",
        "what": "install OS debian",
        "image": IMAGE,
        "nic": None,
        "startup_s": 300,
        "shutdown_s": 7200,
    }
    with pytest.raises(errors.OpExecError) as caught:
        helper.run(
            ctx,
            instance,
            helper.HelperTask(**{**values, **changes}),
            sleep=lambda _s: None,
            now=Clock(),
        )
    assert "helper_stop" in master.rpc.names() or "helper_stop" in master.rpc.errors
    return str(caught.value)


@pytest.mark.parametrize(
    ("states", "changes", "fragment", "looks"),
    [
        ((BOOTING,), {}, "did not ask for its task within 300 s (--helper-startup-timeout)", 6),
        (
            (BOOTING, UP),
            {"shutdown_s": 600},
            "did not switch itself off within 600 s (--helper-shutdown-timeout)",
            12,
        ),
        (
            ({**UP, "exit_code": 0},),
            {"shutdown_s": 60},
            "although it had ended with exit code 0",
            2,
        ),
        (
            (BOOTING,),
            {"task": "zero", "shutdown_s": 120, "reports_result": False},
            "did not switch itself off within 120 s (--zeroing-timeout-fixed)",
            3,
        ),
        (
            (BOOTING,),
            {"task": "zero"},
            "(--zeroing-timeout-fixed); check that the image is a helper image",
            6,
        ),
    ],
)
def test_a_guest_that_hangs_is_ended(states, changes, fragment, looks):
    master = master_of(stopped(), states=states)
    assert fragment in run_helper(master, **changes)
    assert abs(len(master.rpc.of("helper_status")) - looks) <= 1


def test_a_node_that_falls_silent_is_given_up():
    master = master_of(stopped())
    master.rpc.errors["helper_status"] = errors.NodeUnreachable("node1", "helper_status", "gone")
    assert "did not report the state of the helper guest" in run_helper(master)


# -- interrupted -----------------------------------------------------------------


@pytest.mark.parametrize("os_type", ["debian", "noop"])
def test_a_helper_that_was_left_does_not_keep_from_installing_again(os_type):
    master = master_of(stopped(), states=(UP, UP, DONE))
    master.rpc.run("web", "node1")
    master.run(reinstall(os_type=os_type))
    assert names(master)[0] == "helper_stop"


def test_an_instance_that_really_runs_is_refused():
    master = master_of(stopped(), states=({**UP, "running": False},))
    master.rpc.run("web", "node1")
    assert "it runs on node" in master.refused(reinstall(), errors.ECODE_STATE)


# -- free space ------------------------------------------------------------------


def export(**changes: Any) -> OpBackupExport:
    values = {
        "instance_name": "web",
        "target_node": "node2",
        "long_sleep": True,
        "zero_free_space": True,
    }
    return OpBackupExport(**{**values, **changes})


def zeroing(master: Master) -> dict[str, Any]:
    """What the helper was started with; how the export goes on is tested elsewhere."""
    with pytest.raises(errors.GenericError):
        master.rpc.errors["export_start"] = "enough"
        master.rpc.errors["import_start"] = "enough"
        master.run(export())
    ((_node, args),) = master.rpc.of("helper_start")
    return args


def test_free_space_is_overwritten_before_the_export():
    args = zeroing(master_of(stopped()))
    assert (args["task"], args["image"], args["parameters"]) == ("zero", IMAGE, {})
    assert args["own_nic"]


def test_without_a_network_its_end_is_enough():
    master = master_of(stopped(), network=False, states=(BOOTING, {**BOOTING, "running": False}))
    assert not zeroing(master)["own_nic"]


@pytest.mark.parametrize(
    ("image", "changes", "ecode", "fragment"),
    [
        ("", {}, errors.ECODE_STATE, "--zeroing-image"),
        (IMAGE, {"zeroing_timeout_fixed": -1}, errors.ECODE_INVAL, "is negative"),
        (
            IMAGE,
            {"zero_free_space": False, "zeroing_timeout_per_mib": 1.0},
            errors.ECODE_INVAL,
            "without --zero-free-space",
        ),
    ],
)
def test_zeroing_is_refused(image, changes, ecode, fragment):
    assert fragment in master_of(stopped(), image=image).refused(export(**changes), ecode)


def test_a_running_guest_cannot_be_zeroed():
    master = master_of(stopped())
    master.rpc.run("web", "node1")
    assert "shut down" in master.refused(export(shutdown=False), errors.ECODE_STATE)


def test_nics_with_the_name_of_another_instance_count():
    nic = Nic(
        mac="52:54:00:00:00:01",
        ip="169.254.0.9",
        name="ganeti:communication:old",
        network=NETWORK,
        nicparams={},
        uuid="nic-uuid",
    )
    assert not zeroing(master_of(stopped(nics=(nic,))))["own_nic"]
