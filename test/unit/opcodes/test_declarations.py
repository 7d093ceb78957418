"""Every opcode is declared exactly as programs by others know it (test/data/opcodes.json)."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from ganeti import errors, ht, opcodes
from ganeti.opcodes.base import COMMON_PARAMS, OpCode
from ganeti.opcodes.instance import OpInstanceCreate, OpInstanceStartup
from ganeti.opcodes.test import OpTestAllocator, OpTestDelay

#: Opcodes which nobody else has.
OWN = {
    "OP_NODE_AUTO_FAILOVER": "automatic failover of instances",
    "OP_NODE_MAINTENANCE_CHECK": "maintenance of a node as one command",
    "OP_NODE_MAINTENANCE_END": "maintenance of a node as one command",
    "OP_NODE_MAINTENANCE_START": "maintenance of a node as one command",
    "OP_INSTANCE_COPY": "a clone of an instance, or of a snapshot",
    "OP_INSTANCE_SNAPSHOT": "snapshots that stay",
    "OP_INSTANCE_SNAPSHOT_LIST": "snapshots that stay",
    "OP_INSTANCE_SNAPSHOT_REMOVE": "snapshots that stay",
    "OP_INSTANCE_SNAPSHOT_RESTORE": "snapshots that stay",
}
# Parameters of all opcodes which only our version has, with the reason.
OWN_COMMON = {"plan": "programs and pages get what a dry run found as data"}
PUBLISHED = json.loads((Path(__file__).parents[2] / "data/opcodes.json").read_text())


def declared_params(params):
    return [[p.name, str(p.type), p.required, p.default] for p in params]


# Parameters of published opcodes which only our version has, with the reason.
OWN_PARAMS = {
    "OP_CLUSTER_SET_PARAMS": {
        "auto_instance_failover": "automatic failover of instances",
        "node_watchdog": "hardware watchdogs of nodes",
        "auto_failover": "whether the role of a lost master moves by itself",
        "witness": "the third voter of two candidates",
        "auto_balance": "automatic balance by the watcher",
        "job_execution": "whether jobs are threads or processes",
        "rapi_require_authentication": "a password for reading is a choice of the administrator",
    },
    "OP_GROUP_ADD": {"enabled_hypervisors": "clusters whose nodes have different hypervisors"},
    "OP_GROUP_SET_PARAMS": {
        "enabled_hypervisors": "the same",
        "force": "a volume group may be made on the nodes later",
    },
    "OP_INSTANCE_SET_PARAMS": {"hypervisor": "a stopped instance changes its hypervisor"},
    "OP_INSTANCE_CREATE": {
        "explain": "the reasons for the choice of nodes",
        "exact_name": "a name which is the short form of another one",
        "accept_from_description": "texts from outside are read, and not obeyed",
    },
    "OP_INSTANCE_QUERY_DATA": {"with_guest": "one screen has the state of the guest"},
    "OP_INSTANCE_RENAME": {"exact_name": "as for a new instance"},
    "OP_TEST_ALLOCATOR": {"explain": "the reasons for the choice of nodes"},
    "OP_INSTANCE_REMOVE": {
        "unfinished_import": "the watcher removes only what is left of an import"
    },
    "OP_INSTANCE_STARTUP": {
        "wanted_only": "a shutdown by a user counts more than a start by the watcher",
        "continue_paused": "a guest which somebody has paused goes on only when that is asked for",
    },
    "OP_INSTANCE_FAILOVER": {
        "new_secondary": "design 2.0: the administrator chooses which replica stays",
        "wait_for_sync": "design 2.0: the restart may be postponed until the replicas are in sync",
    },
    "OP_NETWORK_CONNECT": {"more_groups": "a command about several groups does all or nothing"},
    "OP_NETWORK_DISCONNECT": {"more_groups": "a command about several groups does all or nothing"},
    "OP_NETWORK_ADD": {"add_reserved_ips6": "networks give IPv6 addresses"},
    "OP_NETWORK_SET_PARAMS": {
        "conflicts_check": "old networks can be declared isolated",
        "add_reserved_ips6": "networks give IPv6 addresses",
        "remove_reserved_ips6": "the same",
    },
    "OP_NODE_ADD": {"certificate": "a machine which joins with a token reports its certificate"},
}


@pytest.mark.parametrize("op_id", sorted(PUBLISHED["opcodes"]))
def test_opcode_is_declared_as_published(op_id):
    wanted = PUBLISHED["opcodes"][op_id]
    cls = opcodes.lookup(op_id)
    assert (cls.__name__, cls.OP_ID, cls.KIND, cls.SUMMARY_FIELD, str(cls.RESULT)) == (
        wanted["class"],
        op_id,
        wanted["kind"],
        wanted["summary"],
        wanted["result"],
    )
    own = [p for name, p in cls.PARAMS.items() if name not in COMMON_PARAMS]
    added = OWN_PARAMS.get(op_id, {})
    assert declared_params(p for p in own if p.name not in added) == wanted["params"]
    # An opcode of other programs does not have them.
    assert all(cls.PARAMS[name].default is None for name in added)
    assert {p.name for p in own if p.added} == set(added)
    assert list(cls.PARAMS)[-len(COMMON_PARAMS) :] == list(COMMON_PARAMS)
    assert cls.__doc__ and "Result:" in cls.__doc__
    for parameter in own:
        assert parameter.doc and not parameter.doc.endswith("."), parameter.name


@pytest.mark.parametrize("op_id", sorted(OWN_PARAMS))
def test_a_parameter_of_ours_is_written_only_with_a_value(op_id):
    """Ganeti refuses a job file with a parameter that it does not know."""
    cls = opcodes.lookup(op_id)
    op = object.__new__(cls)
    op.__dict__.update((name, None) for name in cls.PARAMS)
    written = op.to_dict()
    own = {*OWN_PARAMS[op_id], *OWN_COMMON}
    assert set(cls.PARAMS) - set(written) == own
    for name in own:
        setattr(op, name, False)
        assert op.to_dict()[name] is False
    assert opcodes.from_dict(written).to_dict() == written


def test_common_parameters_are_as_published():
    published = [one for one in COMMON_PARAMS.values() if one.name not in OWN_COMMON]
    assert declared_params(published) == PUBLISHED["common"]
    assert {one.name for one in COMMON_PARAMS.values() if one.added} == set(OWN_COMMON)


def test_an_opcode_whose_plan_is_wanted_changes_nothing():
    op = opcodes.from_dict({"OP_ID": "OP_TAGS_SET", "kind": "cluster", "tags": ["a"], "plan": True})
    assert op.validate().dry_run is True
    assert op.replace(plan=False, dry_run=None).validate().dry_run is None


def test_lookup_knows_every_opcode_and_no_other():
    assert list(opcodes.op_ids()) == sorted({*PUBLISHED["opcodes"], *OWN})
    assert not set(OWN) & set(PUBLISHED["opcodes"]) and all(OWN.values())
    found = set()
    for module in (
        "backup",
        "cluster",
        "group",
        "instance",
        "misc",
        "network",
        "node",
        "os",
        "query",
        "tags",
        "test",
    ):
        for _, cls in inspect.getmembers(
            import_module(f"ganeti.opcodes.{module}"), inspect.isclass
        ):
            if issubclass(cls, OpCode) and cls is not OpCode:
                found.add(cls.OP_ID)
    assert found == {*PUBLISHED["opcodes"], *OWN}


@pytest.mark.parametrize("op_id", sorted(OWN))
def test_own_opcodes_are_declared_as_the_others_are(op_id):
    cls = opcodes.lookup(op_id)
    assert list(cls.PARAMS)[-len(COMMON_PARAMS) :] == list(COMMON_PARAMS)
    assert cls.__doc__ and "Result:" in cls.__doc__
    for parameter in cls.PARAMS.values():
        assert parameter.doc and not parameter.doc.endswith("."), parameter.name


@pytest.mark.parametrize("name", ["OP_NO_SUCH", "", None, 5, ["OP_QUERY"]])
def test_unknown_opcode(name):
    with pytest.raises(errors.OpCodeUnknown):
        opcodes.lookup(name)


@pytest.mark.parametrize("value", [None, [], "OP_QUERY", {}, {"instance_name": "web1"}])
def test_not_an_opcode(value):
    with pytest.raises(errors.OpPrereqError):
        opcodes.from_dict(value)


def test_unknown_parameter_is_refused_and_named():
    with pytest.raises(errors.OpPrereqError, match="sudden") as caught:
        opcodes.from_dict({"OP_ID": "OP_TEST_DELAY", "duration": 1.0, "sudden": True})
    assert caught.value.ecode == errors.ECODE_INVAL


def test_round_trip_fills_defaults_and_keeps_order():
    op = OpInstanceStartup(instance_name="web1", force=True).validate()
    state = op.to_dict()
    published = [name for name, one in OpInstanceStartup.PARAMS.items() if not one.added]
    assert list(state) == ["OP_ID", *published]
    assert state["shutdown_timeout"] == 120 and state["force"] is True
    assert opcodes.from_dict(state) == op


def test_defaults_are_not_shared():
    first = OpInstanceStartup(instance_name="a")
    first.hvparams["acpi"] = True
    assert OpInstanceStartup(instance_name="b").hvparams == {}


def test_missing_parameter():
    with pytest.raises(errors.OpPrereqError, match="'instance_name' is missing"):
        OpInstanceStartup().validate()


@pytest.mark.parametrize(
    ("op_id", "values"),
    [
        ("OP_TEST_DELAY", {"duration": "1"}),
        ("OP_TEST_DELAY", {"duration": True}),
        ("OP_TEST_DELAY", {"duration": float("nan")}),
        ("OP_TEST_DELAY", {"duration": 10**400}),
        ("OP_TEST_DELAY", {"duration": 1.0, "repeat": -1}),
        ("OP_TEST_DELAY", {"duration": 1.0, "priority": 5}),
        ("OP_TEST_DELAY", {"duration": 1.0, "priority": True}),
        ("OP_TEST_DELAY", {"duration": 1.0, "depends": [[1, ["running"]]]}),
        ("OP_TEST_DELAY", {"duration": 1.0, "depends": [1]}),
        ("OP_INSTANCE_STARTUP", {"instance_name": None}),
        ("OP_INSTANCE_REBOOT", {"instance_name": "a", "reboot_type": ["hard"]}),
        ("OP_INSTANCE_GROW_DISK", {"instance_name": "a", "disk": 16, "amount": 1}),
        ("OP_NETWORK_ADD", {"network_name": "n", "network": "10.0.0.0"}),
        ("OP_NETWORK_ADD", {"network_name": "n", "network": "10.0.0.0/24", "gateway": "::1"}),
        ("OP_INSTANCE_SET_PARAMS", {"instance_name": "a", "nics": [["add", {"nosuch": "x"}]]}),
        ("OP_CLUSTER_VERIFY", {"ignore_errors": ["ENOSUCH"]}),
    ],
)
def test_wrong_values_are_refused(op_id, values):
    with pytest.raises(errors.OpPrereqError) as caught:
        opcodes.from_dict({"OP_ID": op_id, **values}).validate()
    assert caught.value.ecode == errors.ECODE_INVAL
    assert op_id in str(caught.value)


@pytest.mark.parametrize(
    ("op_id", "values"),
    [
        ("OP_TEST_DELAY", {"duration": 1.0, "depends": [[-1, []], [5, ["success", "error"]]]}),
        (
            "OP_NETWORK_ADD",
            {"network_name": "n", "network": "10.0.0.0/24", "network6": "fe80::/64"},
        ),
        (
            "OP_INSTANCE_SET_PARAMS",
            {
                "instance_name": "a",
                "nics": [["add", -1, {"mode": "bridged", "ip": None}]],
                "disks": [[0, {"size": 5}]],
            },
        ),
        ("OP_INSTANCE_RECREATE_DISKS", {"instance_name": "a", "disks": [[0, {"size": 5}]]}),
        (
            "OP_BACKUP_EXPORT",
            {
                "instance_name": "a",
                "target_node": [["h", 1, "m"]],
                "mode": "remote",
                "zeroing_timeout_per_mib": 1,
            },
        ),
    ],
)
def test_right_values_are_accepted(op_id, values):
    opcodes.from_dict({"OP_ID": op_id, **values}).validate()


def test_integer_becomes_float_where_only_a_float_fits():
    op = OpTestDelay(duration=2).validate()
    assert op.duration == 2.0 and isinstance(op.duration, float)


def test_flags_of_older_clients():
    """Ganeti 3.0 sends both flags with every change of an instance."""
    values = {"OP_ID": "OP_INSTANCE_SET_PARAMS", "instance_name": "web1", "hotplug": False}
    for old, hotplug in ((True, True), (False, False)):
        op = opcodes.from_dict({**values, "hotplug_if_possible": old}).validate()
        assert op.hotplug is hotplug
        assert "hotplug_if_possible" not in op.to_dict()
    with pytest.raises(errors.OpPrereqError, match="hotplug_if_possible.* must be true or false"):
        opcodes.from_dict({**values, "hotplug_if_possible": "yes"})
    with pytest.raises(errors.OpPrereqError, match="unknown parameter"):
        opcodes.from_dict({"OP_ID": "OP_INSTANCE_REBOOT", "hotplug_if_possible": True})


def test_summaries():
    assert OpInstanceStartup(instance_name="web1").summary() == "INSTANCE_STARTUP(web1)"
    assert OpInstanceStartup().summary() == "INSTANCE_STARTUP(None)"
    assert OpTestDelay(duration=1.5).summary() == "TEST_DELAY(1.5)"
    assert OpTestDelay(duration=1).validate().summary() == "TEST_DELAY(1.0)"
    assert opcodes.from_dict({"OP_ID": "OP_CLUSTER_VERIFY"}).summary() == "CLUSTER_VERIFY"
    assert OpTestAllocator(iallocator="hail").summary() == "TEST_ALLOCATOR(hail)"


def test_secrets_do_not_show():
    op = OpInstanceCreate(
        instance_name="web1",
        disks=[],
        nics=[],
        mode="create",
        osparams_private={"key": "hush1"},
        osparams_secret={"pass": "hush2"},
    ).validate()
    assert op.osparams_secret["pass"] == "hush2"
    assert "hush" not in repr(op) + repr(op.osparams_private) + str(op.osparams_secret)
    assert op.to_dict()["osparams_secret"] == {"pass": "hush2"}
    assert op.to_dict(redact="secret")["osparams_secret"] == {"pass": ht.REDACTED}
    assert op.to_dict(redact="secret")["osparams_private"] == {"key": "hush1"}
    assert op.to_dict(redact=True)["osparams_private"] == {"key": ht.REDACTED}


def test_a_wrong_secret_is_not_shown_in_the_refusal():
    op = OpInstanceCreate(
        instance_name="web1", disks=[], nics=[], mode="create", osparams_secret="hush"
    )
    with pytest.raises(errors.OpPrereqError) as caught:
        op.validate()
    assert "hush" not in str(caught.value)


def test_reason_trail_grows():
    op = OpTestDelay(duration=0.0)
    op.add_reason("gnt:client:gnt-debug", "delay", 5)
    op.add_reason(op.reason_source(), "job=1;index=0", 6)
    assert op.reason == [
        ["gnt:client:gnt-debug", "delay", 5],
        ["gnt:opcode:test_delay", "job=1;index=0", 6],
    ]
    assert OpTestDelay(duration=0.0).reason == []


def test_undeclared_attribute_cannot_be_set():
    with pytest.raises(AttributeError, match="OP_TEST_DELAY"):
        OpTestDelay(duration=0.0).durration = 1


def test_opcodes_import_nothing_heavy():
    """Commands have 100 ms to their first request, so opcodes must not pull in big modules."""
    done = subprocess.run(
        [
            sys.executable,
            "-S",
            "-c",
            "import sys; from ganeti.opcodes.instance import OpInstanceStartup\n"
            "print([m for m in ('dataclasses', 'typing', 're', 'inspect', 'ipaddress',"
            " 'simplejson')"
            " if m in sys.modules])",
        ],
        env={"PYTHONPATH": str(Path(__file__).parents[3] / "lib")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"
