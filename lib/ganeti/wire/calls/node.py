"""Node calls about one node: facts, verification, hooks, files, power and prepared commands."""

from __future__ import annotations

from ganeti import ht
from ganeti.constants import hooks, node_verify
from ganeti.objects.transfer import MasterStatus, NodeWork, WatchdogStatus
from ganeti.wire.calls.base import (
    ALL_HVPARAMS,
    COMPRESSED,
    FACT,
    FACTS,
    FILE,
    HV_SPECS,
    HVPARAMS,
    PLAIN,
    Arg,
    Call,
    NamesEncoding,
    ObjectListResult,
    ObjectResult,
    ResultCodec,
)

_NUMBER = ht.Or(ht.Int, ht.Float)

CHECKS = NamesEncoding(
    "checks", frozenset(value for name, value in vars(node_verify).items() if name.isupper())
)

# What a hypervisor says about its node. The version of QEMU is a list of numbers.
_HYPERVISOR = ht.DictOf(ht.Str, ht.Or(FACT, ht.ListOf(ht.Int)))

# -- facts and the pause of the watcher ------------------------------------------------------------
#: Ask for the version of the protocol. -> its number
VERSION = Call(
    "version", (), ResultCodec(ht.Int), timeout_s=60, many=True, offline_ok=True, any_epoch=True
)
#: Ask for free storage and the state of the hypervisors.
#: ``storage_units``: list of [storage type, key, list of arguments]; ``hv_specs``: list of
#: [hypervisor, hvparams]. -> [boot id, list of {type, name, storage_free, storage_size (MiB)},
#: list of facts per hypervisor (memory_*, MiB; cpu_*)]. A unit or hypervisor which fails does not
#: hide the others: it has ``problem``, and no facts.
NODE_INFO = Call(
    "node_info",
    (
        Arg("storage_units", PLAIN, ht.ListOf(ht.ListOf(ht.Any))),
        Arg("hv_specs", HV_SPECS, ht.ListOf(ht.Tuple(ht.Str, ht.DictOf(ht.Str, ht.Any)))),
    ),
    ResultCodec(
        ht.Tuple(
            ht.Maybe(ht.Str), ht.Maybe(ht.ListOf(FACTS)), ht.Maybe(ht.ListOf(ht.Maybe(_HYPERVISOR)))
        )
    ),
    timeout_s=60,
    many=True,
    keep=True,
)
#: Check that bridges exist. Fails with the names of the missing ones.
BRIDGES_EXIST = Call(
    "bridges_exist", (Arg("bridges", PLAIN, ht.ListOf(ht.NonEmptyString)),), timeout_s=60, keep=True
)
#: Ask until when the watcher pauses. -> seconds since 1970, or None
GET_WATCHER_PAUSE = Call("get_watcher_pause", (), ResultCodec(ht.Maybe(_NUMBER)), timeout_s=60)
#: Let the watcher pause. ``until``: seconds since 1970, None ends the pause.
SET_WATCHER_PAUSE = Call(
    "set_watcher_pause", (Arg("until", PLAIN, ht.Maybe(_NUMBER)),), timeout_s=60, many=True
)
#: Ask whether an address is configured on the node.
NODE_HAS_IP_ADDRESS = Call(
    "node_has_ip_address",
    (Arg("address", PLAIN, ht.NonEmptyString),),
    ResultCodec(ht.Bool),
    timeout_s=300,
)

# -- work in progress ------------------------------------------------------------------------------
#: Ask which calls that change instances or disks the node carries out. ``revoke``: tokens of calls
#: which the caller has given up; when they arrive later, they are refused. Not among the published
#: calls. -> list of NodeWork
NODE_WORK = Call(
    "node_work",
    (Arg("revoke", PLAIN, ht.ListOf(ht.NonEmptyString)),),
    ObjectListResult(NodeWork),
    timeout_s=10,
    many=True,
    keep=True,
)

# -- the master as this node sees it ---------------------------------------------------------------
#: Ask what a node knows about the master daemon: whether that of its own serves, and what its
#: ``ganeti-failoverd`` has seen. The candidates ask the master about once a second. -> MasterStatus
MASTER_STATUS = Call(
    "master_status",
    (),
    ObjectResult(MasterStatus),
    timeout_s=3,
    many=True,
    offline_ok=True,
    any_epoch=True,
    keep=True,
    connection_class="status",
    probe=True,
)

# -- the hardware watchdog -------------------------------------------------------------------------
#: Ask what the node says about its hardware watchdog. -> WatchdogStatus
WATCHDOG_STATUS = Call(
    "watchdog_status", (), ObjectResult(WatchdogStatus), timeout_s=4, many=True, keep=True
)
#: Release the node from a promise about its watchdog. ``token``: UUID of the promise.
WATCHDOG_RELEASE = Call(
    "watchdog_release", (Arg("token", PLAIN, ht.NonEmptyString),), timeout_s=10, keep=True
)

# -- verification ----------------------------------------------------------------------------------
#: Verify the node. ``checks``: dict of check name (constants.verify NV_*) -> its argument;
#: ``all_hvparams``: filled parameters per hypervisor. -> dict of check name -> result
NODE_VERIFY = Call(
    "node_verify",
    (
        Arg("checks", CHECKS, ht.DictOf(ht.NonEmptyString, ht.Any)),
        Arg("cluster_name", PLAIN, ht.NonEmptyString),
        Arg("all_hvparams", ALL_HVPARAMS, ht.DictOf(ht.NonEmptyString, ht.DictOf(ht.Str, ht.Any))),
    ),
    ResultCodec(ht.DictOf(ht.NonEmptyString, ht.Any)),
    timeout_s=900,
    many=True,
)
#: Like NODE_VERIFY, for nodes which are not yet or no longer in the configuration.
NODE_VERIFY_LIGHT = Call(
    "node_verify_light", NODE_VERIFY.args, NODE_VERIFY.result, timeout_s=900, many=True
)

# -- hooks -----------------------------------------------------------------------------------------
#: Run the hooks of an operation. ``hpath``: their directory; ``env``: complete environment.
#: -> list of [script, 0 skipped / 1 failed / 2 success, output]
HOOKS_RUNNER = Call(
    "hooks_runner",
    (
        Arg("hpath", PLAIN, ht.NonEmptyString),
        Arg("phase", PLAIN, ht.OneOf("hook phase", ("pre", "post"))),
        Arg("env", PLAIN, ht.DictOf(ht.NonEmptyString, ht.Str)),
    ),
    ResultCodec(ht.ListOf(ht.Tuple(ht.Str, ht.OneOf("result of a script", hooks.RESULTS), ht.Str))),
    timeout_s=900,
    many=True,
    work="hooks of an operation",
)
#: Ask whether the node has hooks. ``wanted``: list of [hpath, phase]. Mostly it has none, and this
#: call costs a fraction of HOOKS_RUNNER. Not among the published calls.
#: -> for each pair, whether HOOKS_RUNNER would run a script
HOOKS_PRESENT = Call(
    "hooks_present",
    (Arg("wanted", PLAIN, ht.ListOf(ht.ListOf(ht.NonEmptyString))),),
    ResultCodec(ht.ListOf(ht.Bool)),
    timeout_s=60,
    many=True,
    keep=True,
)

# -- files -----------------------------------------------------------------------------------------
#: Write a file. ``file``: a FileDetails.
UPLOAD_FILE = Call("upload_file", (Arg("file", FILE),), timeout_s=900, many=True)
#: Write a file (the published form). ``path``: virtual; ``owner``, ``group``: names; ``atime``,
#: ``mtime``: seconds since 1970.
UPLOAD_FILE_SINGLE = Call(
    "upload_file_single",
    (
        Arg("path", PLAIN, ht.NonEmptyString),
        Arg("content", COMPRESSED),
        Arg("mode", PLAIN, ht.NonNegInt),
        Arg("owner", PLAIN, ht.NonEmptyString),
        Arg("group", PLAIN, ht.NonEmptyString),
        Arg("atime", PLAIN, _NUMBER),
        Arg("mtime", PLAIN, _NUMBER),
    ),
    timeout_s=900,
    many=True,
)

# -- networks of the node --------------------------------------------------------------------------
#: Make an Open vSwitch and connect an interface of the node to it. ``ovs_link``: None for none.
NODE_CONFIGURE_OVS = Call(
    "node_configure_ovs",
    (Arg("ovs_name", PLAIN, ht.NonEmptyString), Arg("ovs_link", PLAIN, ht.Maybe(ht.Str))),
    timeout_s=900,
)
#: Change the netmask of the master address, if the node has that address.
NODE_CHANGE_MASTER_NETMASK = Call(
    "node_change_master_netmask",
    (
        Arg("old_netmask", PLAIN, ht.NonNegInt),
        Arg("netmask", PLAIN, ht.NonNegInt),
        Arg("master_ip", PLAIN, ht.NonEmptyString),
        Arg("master_netdev", PLAIN, ht.NonEmptyString),
    ),
    timeout_s=300,
)

# -- out-of-band management ------------------------------------------------------------------------
#: Run the out-of-band program, on this node, to manage another one. ``timeout_s``: time limit of
#: the program. -> its output
RUN_OOB = Call(
    "run_oob",
    (
        Arg("oob_program", PLAIN, ht.NonEmptyString),
        Arg("command", PLAIN, ht.NonEmptyString),
        Arg("remote_node", PLAIN, ht.NonEmptyString),
        Arg("timeout_s", PLAIN, ht.PositiveInt),
    ),
    ResultCodec(ht.Str),
    timeout_s=lambda args: max(900.0, args["timeout_s"] + 60.0),
)

# -- power -----------------------------------------------------------------------------------------
#: Reset the machine a few seconds after the answer. -> a message for the user
NODE_POWERCYCLE = Call(
    "node_powercycle",
    (
        Arg("hypervisor", PLAIN, ht.NonEmptyString),
        Arg("hvparams", HVPARAMS, ht.DictOf(ht.Str, ht.Any)),
    ),
    ResultCodec(ht.Str),
    timeout_s=900,
    offline_ok=True,
)

# -- restricted commands ---------------------------------------------------------------------------
#: Run one of the commands which the administrator prepared. -> its output
RESTRICTED_COMMAND = Call(
    "restricted_command",
    (Arg("cmd", PLAIN, ht.Str),),
    ResultCodec(ht.Str),
    timeout_s=3600,
    many=True,
)

# -- test ------------------------------------------------------------------------------------------
#: Sleep on the node.
TEST_DELAY = Call(
    "test_delay",
    (Arg("duration_s", PLAIN, _NUMBER),),
    many=True,
    timeout_s=lambda args: args["duration_s"] + 5.0,
)
