"""Calls by which the master learns and distributes the nodes' SSH keys. Ours alone.

Each can be made again; :mod:`ganeti.cmdlib.ops.cluster.ssh_keys` has the order,
``doc/design-ssh-keys.rst`` the reasons.
"""

from __future__ import annotations

from ganeti import ht
from ganeti.wire.calls.base import PLAIN, Arg, Call, ResultCodec

_KIND = Arg("kind", PLAIN, ht.OneOf("ssh-key-type", ("dsa", "ecdsa", "rsa")))
_BITS = Arg("bits", PLAIN, ht.PositiveInt)

#: The node's SSH keys. ``make``: "nothing"; "missing", its own one when there is none of that
#: kind; "new", another one, to be activated later. -> {"root": lines of public keys, the one in use
#: first, "hosts": lines of the host's public keys}
NODE_SSH_KEYS = Call(
    "node_ssh_keys",
    (_KIND, _BITS, Arg("make", PLAIN, ht.OneOf("make", ("nothing", "missing", "new")))),
    ResultCodec(ht.DictOf(ht.NonEmptyString, ht.ListOf(ht.NonEmptyString))),
    timeout_s=300,
    many=True,
)
#: ``authorized``: public keys that may log in; ``public_keys``: content of ``ganeti_pub_keys``,
#: None removes it.
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
#: Use the key that was made with ``renew``, if there is one. -> line of the public key in use
NODE_SSH_ACTIVATE = Call(
    "node_ssh_activate", (_KIND, _BITS), ResultCodec(ht.NonEmptyString), timeout_s=60, many=True
)
#: ``mode``: "add" or "remove"; a line of ``/etc/hosts``.
ETC_HOSTS_MODIFY = Call(
    "etc_hosts_modify",
    (
        Arg("mode", PLAIN, ht.OneOf("mode", ("add", "remove"))),
        Arg("name", PLAIN, ht.NonEmptyString),
        Arg("ip", PLAIN, ht.Maybe(ht.NonEmptyString)),
    ),
    timeout_s=900,
)
