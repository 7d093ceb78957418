"""Calls about a node as a whole: facts, verification, hooks, master role, credentials."""

from __future__ import annotations

from ganeti import ht
from ganeti.objects.transfer import MasterNetworkParameters, MasterVote
from ganeti.wire.calls.base import PLAIN, Arg, Call, ObjectEncoding, ObjectResult, ResultCodec

_NUMBER = ht.Or(ht.Int, ht.Float)

#: -> protocol version number
VERSION = Call(
    "version", (), ResultCodec(ht.Int), timeout_s=60, many=True, offline_ok=True, any_epoch=True
)
#: ``storage_units``: list of [storage type, key, list of arguments]; ``hv_specs``: list of
#: [hypervisor, hvparams]. -> [boot id, list of {type, name, storage_free, storage_size (MiB)},
#: list of facts per hypervisor (memory_*, MiB; cpu_*)]
NODE_INFO = Call(
    "node_info",
    (
        Arg("storage_units", PLAIN, ht.ListOf(ht.ListOf(ht.Any))),
        Arg("hv_specs", PLAIN, ht.ListOf(ht.ListOf(ht.Any))),
    ),
    ResultCodec(ht.ListOf(ht.Any)),
    timeout_s=60,
    many=True,
    keep=True,
)
#: ``checks``: dict of check name (constants.verify NV_*) -> its argument; ``all_hvparams``: filled
#: parameters per hypervisor. -> dict of check name -> its answer
NODE_VERIFY = Call(
    "node_verify",
    (
        Arg("checks", PLAIN, ht.DictOf(ht.NonEmptyString, ht.Any)),
        Arg("cluster_name", PLAIN, ht.NonEmptyString),
        Arg("all_hvparams", PLAIN, ht.DictOf(ht.NonEmptyString, ht.DictOf(ht.Str, ht.Any))),
    ),
    ResultCodec(ht.DictOf(ht.NonEmptyString, ht.Any)),
    timeout_s=900,
    many=True,
)
#: The same, for nodes that are not yet or no longer in the configuration.
NODE_VERIFY_LIGHT = Call(
    "node_verify_light", NODE_VERIFY.args, NODE_VERIFY.result, timeout_s=900, many=True
)
#: Fails with the names of the missing ones.
BRIDGES_EXIST = Call(
    "bridges_exist", (Arg("bridges", PLAIN, ht.ListOf(ht.NonEmptyString)),), timeout_s=60, keep=True
)
#: ``env``: complete environment (str -> str).
#: -> list of [script, 0 skipped / 1 failed / 2 success, output]
HOOKS_RUNNER = Call(
    "hooks_runner",
    (
        Arg("hpath", PLAIN, ht.NonEmptyString),
        Arg("phase", PLAIN, ht.OneOf("hook phase", ("pre", "post"))),
        Arg("env", PLAIN, ht.DictOf(ht.NonEmptyString, ht.Str)),
    ),
    ResultCodec(ht.ListOf(ht.ListOf(ht.Any))),
    timeout_s=900,
    many=True,
)
#: ``wanted``: list of [hpath, phase] -> for each whether the node has anything for HOOKS_RUNNER to
#: do. Ours alone; it is not among the published calls. Mostly the answer is no, and costs a
#: fraction of the other.
HOOKS_PRESENT = Call(
    "hooks_present",
    (Arg("wanted", PLAIN, ht.ListOf(ht.ListOf(ht.NonEmptyString))),),
    ResultCodec(ht.ListOf(ht.Bool)),
    timeout_s=60,
    many=True,
    keep=True,
)
#: Sleep on the node.
TEST_DELAY = Call(
    "test_delay",
    (Arg("duration_s", PLAIN, _NUMBER),),
    many=True,
    timeout_s=lambda args: args["duration_s"] + 5.0,
)
#: -> name of the master node as this node knows it
MASTER_NODE_NAME = Call(
    "master_node_name", (), ResultCodec(ht.NonEmptyString), timeout_s=60, many=True, any_epoch=True
)
#: A node's vote about who may become master: what it has and whom it knows. Ours alone, as the
#: next; they are not among the published calls. -> MasterVote
MASTER_VOTE = Call(
    "master_vote",
    (),
    ObjectResult(MasterVote),
    timeout_s=10,
    many=True,
    offline_ok=True,
    any_epoch=True,
)
#: Promise not to obey anybody below ``epoch`` ("NUMBER OWNER") and tell what is there from then on.
#: Fails when a higher one was promised. -> MasterVote
MASTER_CLAIM = Call(
    "master_claim",
    (Arg("epoch", PLAIN, ht.NonEmptyString),),
    ObjectResult(MasterVote),
    timeout_s=40,
    many=True,
    offline_ok=True,
    any_epoch=True,
)
NODE_START_MASTER_DAEMONS = Call(
    "node_start_master_daemons", (Arg("no_voting", PLAIN, ht.Bool),), timeout_s=300
)
NODE_STOP_MASTER = Call("node_stop_master", (), timeout_s=300)
#: Start or stop one of the daemons that only some clusters need.
NODE_ENSURE_DAEMON = Call(
    "node_ensure_daemon",
    (
        Arg("daemon", PLAIN, ht.NonEmptyString),
        Arg("run", PLAIN, ht.Bool),
    ),
    timeout_s=60,
    many=True,
)
#: The node is no master candidate any more: its copies of configuration and queue go.
NODE_DEMOTE_FROM_MC = Call("node_demote_from_mc", (), timeout_s=300)
NODE_ACTIVATE_MASTER_IP = Call(
    "node_activate_master_ip",
    (
        Arg("master_params", ObjectEncoding(MasterNetworkParameters)),
        Arg("use_external_mip_script", PLAIN, ht.Bool),
    ),
    timeout_s=300,
)
NODE_DEACTIVATE_MASTER_IP = Call(
    "node_deactivate_master_ip", NODE_ACTIVATE_MASTER_IP.args, timeout_s=300
)
#: ``requests``: list of [token type "ssl", action get/create/delete, options dict or None].
#: -> list of [token type, token]; an ssl token is the SHA1 digest of the client certificate
NODE_CRYPTO_TOKENS = Call(
    "node_crypto_tokens",
    (Arg("requests", PLAIN, ht.ListOf(ht.ListOf(ht.Any))),),
    ResultCodec(ht.ListOf(ht.ListOf(ht.Str))),
    timeout_s=3600,
)
#: Removes what made this machine a node; the daemon stops afterwards. -> a text, or None
NODE_LEAVE_CLUSTER = Call(
    "node_leave_cluster",
    (Arg("modify_ssh_setup", PLAIN, ht.Bool),),
    ResultCodec(ht.Maybe(ht.Str)),
    timeout_s=900,
)
#: -> end of the pause (seconds since the epoch) or None
GET_WATCHER_PAUSE = Call("get_watcher_pause", (), ResultCodec(ht.Maybe(_NUMBER)), timeout_s=60)
#: ``until``: seconds since the epoch, None ends the pause.
SET_WATCHER_PAUSE = Call(
    "set_watcher_pause", (Arg("until", PLAIN, ht.Maybe(_NUMBER)),), timeout_s=60, many=True
)
#: -> whether the node owns the address
NODE_HAS_IP_ADDRESS = Call(
    "node_has_ip_address",
    (Arg("address", PLAIN, ht.NonEmptyString),),
    ResultCodec(ht.Bool),
    timeout_s=300,
)
