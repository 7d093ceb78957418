"""Calls that renew the certificates of the node daemons, step by step. Ours alone.

Each does one step and may be made again; none of them can cut a node off by itself, because the
node refuses a step for which the one before is missing. :mod:`ganeti.cmdlib.cluster.renew_crypto`
has the order.
"""

from __future__ import annotations

from ganeti import ht
from ganeti.wire.calls.base import PLAIN, Arg, Call, ResultCodec

#: -> {"server": digest, "trust": [digests], "client": digest or None, "next": digest or None}
NODE_CRYPTO_STATE = Call(
    "node_crypto_state",
    (),
    ResultCodec(ht.DictOf(ht.NonEmptyString, ht.Any)),
    timeout_s=60,
    many=True,
)
#: ``certificates``: PEMs of all server certificates that count from now on, for calls and callers
#: alike; none means the node's own one only.
NODE_CRYPTO_TRUST = Call(
    "node_crypto_trust",
    (Arg("certificates", PLAIN, ht.ListOf(ht.NonEmptyString)),),
    timeout_s=60,
    many=True,
)
#: ``pem``: key and certificate that the node daemon shows from now on.
NODE_CRYPTO_IDENTITY = Call(
    "node_crypto_identity", (Arg("pem", PLAIN, ht.NonEmptyString),), timeout_s=60, many=True
)
#: Use the client certificate that was made as ``client.pem.tmp``. -> its digest
NODE_CRYPTO_ACTIVATE = Call(
    "node_crypto_activate", (), ResultCodec(ht.NonEmptyString), timeout_s=60, many=True
)
