"""Node calls about the cluster: master role, credentials, configuration, job queue, allocator."""

from __future__ import annotations

import re

from ganeti import ht
from ganeti.objects.transfer import MasterNetworkParameters, MasterVote
from ganeti.wire.calls.base import (
    COMPRESSED,
    PLAIN,
    TEXTS,
    Arg,
    Call,
    CompressedResult,
    ObjectEncoding,
    ObjectResult,
    ResultCodec,
)

#: Connection class of the job queue: a process which waits for the disk serves no other calls.
QUEUE_CONNECTIONS = "queue"
_HISTORY_FILE = ht.Type(
    "file of the history",
    lambda value: (
        isinstance(value, str) and re.fullmatch("commits-[0-9]{12,18}", value) is not None
    ),
)
_KIND = Arg("kind", PLAIN, ht.OneOf("ssh-key-type", ("dsa", "ecdsa", "ed25519", "rsa")))
_BITS = Arg("bits", PLAIN, ht.PositiveInt)

# -- daemons and address of the master -------------------------------------------------------------
#: Start the daemons of the master.
NODE_START_MASTER_DAEMONS = Call(
    "node_start_master_daemons", (Arg("no_voting", PLAIN, ht.Bool),), timeout_s=300
)
#: Stop the daemons of the master.
NODE_STOP_MASTER = Call("node_stop_master", (), timeout_s=300)
#: Start (``run``) or stop one of the daemons which only some clusters need.
NODE_ENSURE_DAEMON = Call(
    "node_ensure_daemon",
    (
        Arg("daemon", PLAIN, ht.NonEmptyString),
        Arg("run", PLAIN, ht.Bool),
    ),
    timeout_s=60,
    many=True,
)
#: Bring up the master address on the node.
NODE_ACTIVATE_MASTER_IP = Call(
    "node_activate_master_ip",
    (
        Arg("master_params", ObjectEncoding(MasterNetworkParameters)),
        Arg("use_external_mip_script", PLAIN, ht.Bool),
    ),
    timeout_s=300,
)
#: Take down the master address on the node.
NODE_DEACTIVATE_MASTER_IP = Call(
    "node_deactivate_master_ip", NODE_ACTIVATE_MASTER_IP.args, timeout_s=300
)

# -- votes about the master ------------------------------------------------------------------------
#: Ask a node for its vote: which copies of the configuration and the job queue it has, and which
#: master it knows. This call and ``master_claim`` are not among the published ones. -> MasterVote
MASTER_VOTE = Call(
    "master_vote",
    (),
    ObjectResult(MasterVote),
    timeout_s=10,
    many=True,
    offline_ok=True,
    any_epoch=True,
)
#: Let a node promise to refuse calls with an epoch below ``epoch`` ("NUMBER OWNER"), then vote.
#: Fails when the node has promised a higher one. -> MasterVote
MASTER_CLAIM = Call(
    "master_claim",
    (Arg("epoch", PLAIN, ht.NonEmptyString),),
    ObjectResult(MasterVote),
    timeout_s=40,
    many=True,
    offline_ok=True,
    any_epoch=True,
)
#: Read the document of the witness from a node, with the credentials which the node has.
#: -> its text
WITNESS_READ = Call(
    "witness_read",
    (Arg("url", PLAIN, ht.NonEmptyString),),
    ResultCodec(ht.Str),
    timeout_s=15,
    many=True,
)
#: Remove the copies of the configuration and the job queue from a node which was a master
#: candidate.
NODE_DEMOTE_FROM_MC = Call("node_demote_from_mc", (), timeout_s=300)

# -- client certificates, leaving the cluster ------------------------------------------------------
#: Make, read or delete the digest of the client certificate (``token``).
#: ``requests``: list of [token type "ssl", action get/create/delete, options dict or None].
#: -> list of [token type, token]; an ssl token is the SHA1 digest of the client certificate
NODE_CRYPTO_TOKENS = Call(
    "node_crypto_tokens",
    (Arg("requests", PLAIN, ht.ListOf(ht.ListOf(ht.Any))),),
    ResultCodec(ht.ListOf(ht.ListOf(ht.Str))),
    timeout_s=3600,
)
#: Remove the files of the cluster from the machine; the node daemon stops afterwards.
#: -> a text, or None
NODE_LEAVE_CLUSTER = Call(
    "node_leave_cluster",
    (Arg("modify_ssh_setup", PLAIN, ht.Bool),),
    ResultCodec(ht.Maybe(ht.Str)),
    timeout_s=900,
)

# -- renewal of certificates -----------------------------------------------------------------------
#: Ask which certificates the node uses, and which server certificates it trusts.
#: -> {"server": digest, "trust": [digests], "client": digest or None, "next": digest or None,
#: "next_pin": pin of the key of the latter, or None (older nodes leave it out)}
NODE_CRYPTO_STATE = Call(
    "node_crypto_state",
    (),
    ResultCodec(ht.DictOf(ht.NonEmptyString, ht.Any)),
    timeout_s=60,
    many=True,
)
#: Set the server certificates which the node trusts, for the calls which it gets and makes.
#: ``certificates``: in PEM; an empty list stands for the node's own one only.
NODE_CRYPTO_TRUST = Call(
    "node_crypto_trust",
    (Arg("certificates", PLAIN, ht.ListOf(ht.NonEmptyString)),),
    timeout_s=60,
    many=True,
)
#: Replace the key and certificate of the node daemon. ``pem``: both in one text.
NODE_CRYPTO_IDENTITY = Call(
    "node_crypto_identity", (Arg("pem", PLAIN, ht.NonEmptyString),), timeout_s=60, many=True
)
#: Use the client certificate in ``client.pem.tmp`` from now on. -> its digest
NODE_CRYPTO_ACTIVATE = Call(
    "node_crypto_activate", (), ResultCodec(ht.NonEmptyString), timeout_s=60, many=True
)

# -- SSH keys and /etc/hosts -----------------------------------------------------------------------
#: Ask for the SSH keys of the node. ``make``: "nothing"; "missing" makes a key when the node has
#: none of this kind; "new" makes another one, to be activated later. -> {"root": lines of public
#: keys, the one in use first, "hosts": lines of the host's public keys}
NODE_SSH_KEYS = Call(
    "node_ssh_keys",
    (_KIND, _BITS, Arg("make", PLAIN, ht.OneOf("make", ("nothing", "missing", "new")))),
    ResultCodec(ht.DictOf(ht.NonEmptyString, ht.ListOf(ht.NonEmptyString))),
    timeout_s=300,
    many=True,
)
#: Write the files which say who may log in. ``authorized``: public keys which may log in;
#: ``known_hosts``: content of the file; ``public_keys``: content of ``ganeti_pub_keys``, None
#: removes it.
NODE_SSH_TRUST = Call(
    "node_ssh_trust",
    (
        Arg("authorized", PLAIN, ht.ListOf(ht.NonEmptyString)),
        Arg("known_hosts", PLAIN, ht.Str),
        Arg("public_keys", PLAIN, ht.Maybe(ht.Str)),
    ),
    timeout_s=60,
    many=True,
)
#: Use the key which ``node_ssh_keys`` made as "new", if there is one. -> line of the public key in
#: use
NODE_SSH_ACTIVATE = Call(
    "node_ssh_activate", (_KIND, _BITS), ResultCodec(ht.NonEmptyString), timeout_s=60, many=True
)
#: Add a line to ``/etc/hosts``, or remove it.
ETC_HOSTS_MODIFY = Call(
    "etc_hosts_modify",
    (
        Arg("mode", PLAIN, ht.OneOf("mode", ("add", "remove"))),
        Arg("name", PLAIN, ht.NonEmptyString),
        Arg("ip", PLAIN, ht.Maybe(ht.NonEmptyString)),
    ),
    timeout_s=900,
)

# -- ssconf ----------------------------------------------------------------------------------------
#: Ask which node is master, from the ssconf files of the node. -> its name
MASTER_NODE_NAME = Call(
    "master_node_name", (), ResultCodec(ht.NonEmptyString), timeout_s=60, many=True, any_epoch=True
)
#: Write ssconf files. ``values``: ssconf key -> text of the file.
WRITE_SSCONF_FILES = Call(
    "write_ssconf_files",
    (Arg("values", PLAIN, ht.DictOf(ht.NonEmptyString, ht.Str)),),
    timeout_s=900,
    many=True,
    keep=True,
)

# -- configuration file ----------------------------------------------------------------------------
#: An answer to CONFIG_REWRITE.
OTHER_HISTORY = "other history"
# Oldest file, file, its size, state before, text.
_ADDITION = (
    _HISTORY_FILE,
    _HISTORY_FILE,
    ht.NonNegInt,
    ht.Tuple(ht.NonNegInt, ht.Or(ht.Int, ht.Float)),
    ht.Str,
)
#: Read the node's copy of the configuration, for a node which becomes master and has an older one.
#: Not among the published calls. -> the text of the file
CONFIG_READ = Call("config_read", (), CompressedResult(), timeout_s=60)
#: Make the new configuration file from the present one, which must have ``base_bytes`` bytes and
#: end with ``base_end``. ``parts``: in order, text, or [offset, length] in the present file;
#: ``new_bytes``: size of the result; ``ssconf``: values for WRITE_SSCONF_FILES or None; they are
#: written even if the present file is another one. ``history``: records of the change for the
#: history of the configuration, or None: name of the oldest file, name of the file, its size,
#: [serial number, time] of the state before, text. Not among the published calls.
#: -> whether the file was replaced; OTHER_HISTORY if it was, but the records do not belong after
#: those which the node has
CONFIG_REWRITE = Call(
    "config_rewrite",
    (
        Arg("base_bytes", PLAIN, ht.PositiveInt),
        Arg("base_end", PLAIN, ht.NonEmptyString),
        Arg("parts", PLAIN, ht.ListOf(ht.Or(ht.Str, ht.ListOf(ht.NonNegInt)))),
        Arg("new_bytes", PLAIN, ht.PositiveInt),
        Arg("ssconf", PLAIN, ht.Maybe(ht.DictOf(ht.NonEmptyString, ht.Str))),
        Arg("history", PLAIN, ht.Maybe(ht.Tuple(*_ADDITION))),
    ),
    ResultCodec(ht.Or(ht.Bool, ht.OneOf("history", (OTHER_HISTORY,)))),
    timeout_s=60,
    many=True,
    keep=True,
)

#: Tell which files of the history of the configuration the node has. Not among the published calls,
#: like the two below. -> {name: [size in bytes, SHA-256 checksum]}
CONFIG_HISTORY_DIGESTS = Call(
    "config_history_digests",
    (),
    ResultCodec(ht.DictOf(_HISTORY_FILE, ht.Tuple(ht.NonNegInt, ht.Str))),
    timeout_s=60,
    many=True,
)
#: Read a file of the history. -> its text
CONFIG_HISTORY_READ = Call(
    "config_history_read", (Arg("name", PLAIN, _HISTORY_FILE),), CompressedResult(), timeout_s=60
)
#: Replace a file of the history from ``offset`` on, unless ``content`` is empty. ``remove``: names
#: of files which are removed.
CONFIG_HISTORY_WRITE = Call(
    "config_history_write",
    (
        Arg("name", PLAIN, _HISTORY_FILE),
        Arg("offset", PLAIN, ht.NonNegInt),
        Arg("content", COMPRESSED),
        Arg("remove", PLAIN, ht.ListOf(_HISTORY_FILE)),
    ),
    timeout_s=60,
)

#: Add lines to the audit log of the node. ``number`` and ``checksum``: of the line before the first
#: of them; ``apart``: set the present lines of the node aside. Not among the published calls.
#: -> number and checksum of the last line which the node has then
AUDIT_EXTEND = Call(
    "audit_extend",
    (
        Arg("number", PLAIN, ht.NonNegInt),
        Arg("checksum", PLAIN, ht.NonEmptyString),
        Arg("lines", COMPRESSED),
        Arg("apart", PLAIN, ht.Bool),
    ),
    ResultCodec(ht.Tuple(ht.NonNegInt, ht.Str)),
    timeout_s=60,
)

# -- job queue -------------------------------------------------------------------------------------
#: Write a file of the job queue. ``file_name``: virtual path of a file in the queue directory, or
#: its name there.
JOBQUEUE_UPDATE = Call(
    "jobqueue_update",
    (
        Arg("file_name", PLAIN, ht.NonEmptyString),
        Arg("content", COMPRESSED),
    ),
    timeout_s=60,
    many=True,
)
#: Write all files of one commit. ``files``: list of (file name as for JOBQUEUE_UPDATE, text). Not
#: among the published calls.
JOBQUEUE_UPDATE_MANY = Call(
    "jobqueue_update_many",
    (Arg("files", TEXTS),),
    timeout_s=60,
    many=True,
    keep=True,
    connection_class=QUEUE_CONNECTIONS,
)
#: Rename files of the job queue. ``rename``: list of [old file name, new file name].
#: -> list of None
JOBQUEUE_RENAME = Call(
    "jobqueue_rename",
    (Arg("rename", PLAIN, ht.ListOf(ht.ListOf(ht.NonEmptyString))),),
    ResultCodec(ht.ListOf(ht.NoneType)),
    timeout_s=60,
    many=True,
    keep=True,
    connection_class=QUEUE_CONNECTIONS,
)
#: Ask what the node's copy of the job queue contains, to compare it with the master's; see
#: ``jobstore/inventory.py``. ``parts``: numbers of the parts of the archive whose jobs the answer
#: lists. Not among the published calls.
JOBQUEUE_INVENTORY = Call(
    "jobqueue_inventory",
    (Arg("parts", PLAIN, ht.ListOf(ht.NonNegInt)),),
    ResultCodec(ht.DictOf(ht.NonEmptyString, ht.Any)),
    timeout_s=60,
    many=True,
)
#: Read files of the node's copy of the job queue, for a master which has lost them. -> content of
#: those which exist, by name. Not among the published calls.
JOBQUEUE_READ = Call(
    "jobqueue_read",
    (Arg("names", PLAIN, ht.ListOf(ht.NonEmptyString)),),
    ResultCodec(ht.DictOf(ht.NonEmptyString, ht.Str)),
    timeout_s=60,
)
#: Remove all job files from the node's copy of the job queue.
JOBQUEUE_PURGE = Call(
    "jobqueue_purge", (), timeout_s=900, keep=True, connection_class=QUEUE_CONNECTIONS
)
#: Write or remove the file which says that the queue accepts no new jobs.
JOBQUEUE_SET_DRAIN_FLAG = Call(
    "jobqueue_set_drain_flag", (Arg("flag", PLAIN, ht.Bool),), timeout_s=60, many=True
)

# -- instance allocator ----------------------------------------------------------------------------
#: Run an allocator. ``name``: its file name; ``request``: JSON text; ``parameters``: option ->
#: value, None for an option without a value. -> the output of the allocator
IALLOCATOR_RUNNER = Call(
    "iallocator_runner",
    (
        Arg("name", PLAIN, ht.NonEmptyString),
        Arg("request", PLAIN, ht.NonEmptyString),
        Arg("parameters", PLAIN, ht.DictOf(ht.NonEmptyString, ht.Any)),
    ),
    ResultCodec(ht.Str),
    timeout_s=900,
)
