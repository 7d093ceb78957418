"""A kernel module of DRBD 9 that is a dictionary, with the rules which version 8.4 does not have.

A resource has a numbered node, which its metadata keep; a connection is an object which stays when
it is down, has a path, and must be removed before another one can be made; the state is asked of
``drbdsetup``. The forms of its answers are those of drbd-utils 9.22.
"""

from __future__ import annotations

import json

from ganeti import errors
from ganeti.utils.process import Completed

from .drbd_kernel import Kernel

PROC = "version: 9.1.4 (api:2/proto:110-121)\nGIT-hash: 0 build by x@y, 2021-09-01 00:00:00\n"
_CONNECTIONS = {"WFConnection": "Connecting"}
_LINKED = ("StandAlone", "WFConnection")


class _Refused(Exception):
    """The module refuses a command."""


class Kernel9(Kernel):
    """DRBD 9 with one minor. Attributes which version 8.4 has, too, have its names."""

    def __init__(self):
        super().__init__()
        self.node_id = None
        #: In the metadata; None as long as no node has used them.
        self.meta_node_id = None
        #: A connection exists, which may be down.
        self.linked = False

    def run(self, words, *, timeout_s, check=True, **options):
        try:
            done = super().run(words, timeout_s=timeout_s, check=check, **options)
        except _Refused as err:
            words = self.commands[-1]
            if check:
                raise errors.CommandError(words, 10, f"Failure: {err}") from err
            done = Completed(tuple(words), 10, f"Failure: {err}", "", None)
        return done

    # -- commands ------------------------------------------------------------------

    def _ours(self, words):
        if words[2] != self.resource:
            raise _Refused("(158) Unknown resource")

    def _peer(self, words):
        self._ours(words)
        assert int(words[3]) == 1 - self.node_id, "the number of this node, or of no node"
        if not self.linked:
            raise _Refused("(162) Invalid configuration request")

    def do_new_resource(self, words):
        assert "--auto-promote=no" in words
        if self.resource is None:
            self.resource, self.node_id = words[2], int(words[3])

    def do_new_minor(self, words):
        if words[2] != self.resource:
            raise _Refused("(161) Minor or volume exists already (delete it first)")
        assert words[3:] == ["0", "0"]

    def do_attach(self, words):
        if self.meta_node_id not in (None, self.node_id):
            raise _Refused("(165) ambiguous node id")
        super().do_attach(words)
        self.meta_node_id = self.node_id

    def do_new_peer(self, words):
        self._ours(words)
        assert int(words[3]) == 1 - self.node_id
        if self.linked:
            raise _Refused("(174) Already exists")
        if not any(word.startswith("--_name=") for word in words):
            raise _Refused("(126) UnknownMandatoryTag")
        self.linked, self.peer = True, None
        self.secret = words[words.index("--shared-secret") + 1]
        self.dual = "--allow-two-primaries=yes" in words
        self.protocol = next(word[-1] for word in words if word.startswith("--protocol="))
        self.connection = "StandAlone"

    def do_new_path(self, words):
        self._peer(words)
        assert words[4] == "ipv4:192.0.2.1:11000"
        self.peer = words[5].partition(":")[2]

    def do_peer_device_options(self, words):
        self._peer(words)
        assert words[4] == "0" and "--resync-rate" in words

    def do_connect(self, words):
        self._peer(words)
        if self.peer is None:
            raise _Refused("(162) connection endpoint(s) missing")
        self.connection = "WFConnection"

    def do_disconnect(self, words):
        self._peer(words)
        self.connection = "StandAlone"

    def do_del_peer(self, words):
        self._peer(words)
        assert self.connection == "StandAlone", "it must be disconnected before"
        self.peer = self.secret = None
        self.linked = self.dual = False

    def do_net_options(self, words):
        self._peer(words)
        assert words[4:] == ["--allow-two-primaries=no"]
        assert not (self.primary and self.remote_role == "Primary")
        self.dual = False

    def do_primary(self, words):
        self._ours(words)
        super().do_primary(words)

    def do_secondary(self, words):
        self._ours(words)
        super().do_secondary(words)

    def do_pause_sync(self, words):
        self._peer(words)
        assert words[4:] == ["0"]

    do_resume_sync = do_pause_sync

    def do_down(self, words):
        if words[2] == self.resource:
            super().do_down(words)
            self.linked, self.connection = False, "StandAlone"

    def do_show(self, words):
        return self.show() if words[2] == self.resource else ""

    def do_status(self, words):
        assert words[2:] == ["all", "--json"]
        return self.state()

    # -- answers -------------------------------------------------------------------

    def state(self):
        if self.resource is None:
            return "[]"
        found = {
            "name": self.resource,
            "node-id": self.node_id,
            "role": "Primary" if self.primary else "Secondary",
            "suspended": self.suspended,
            "devices": [
                {
                    "volume": 0,
                    "minor": 0,
                    "disk-state": self.local if self.data else "Diskless",
                }
            ],
            "connections": [],
        }
        if self.linked:
            up = self.connection not in _LINKED
            found["connections"].append(
                {
                    "peer-node-id": 1 - self.node_id,
                    "name": "node1",
                    "connection-state": "Connected"
                    if up
                    else _CONNECTIONS.get(self.connection, self.connection),
                    "peer-role": self.remote_role,
                    "peer_devices": [
                        {
                            "volume": 0,
                            "replication-state": {"Connected": "Established"}.get(
                                self.connection, self.connection
                            )
                            if up
                            else "Off",
                            "peer-disk-state": self.remote if up else "DUnknown",
                            "out-of-sync": 0,
                            "percent-in-sync": 100.0 if self.connection == "Connected" else 0.0,
                        }
                    ],
                }
            )
        return json.dumps([found])

    def show(self):
        disk = ""
        if self.data:
            disk = f'disk "{self.data}"; meta-disk "{self.meta}"; disk {{ size 2097152s; }}'
        connection = ""
        if self.linked:
            path = (
                f"path {{ _this_host ipv4 192.0.2.1:11000; _remote_host ipv4 {self.peer}; }}"
                if self.peer
                else ""
            )
            down = "_is_standalone;" if self.connection == "StandAlone" else ""
            dual = "allow-two-primaries yes;" if self.dual else ""
            connection = (
                f"connection {{ _peer_node_id {1 - self.node_id}; {path} {down} net {{ {dual}"
                f' cram-hmac-alg "md5"; shared-secret "{self.secret}"; _name "node1"; }}'
                " volume 0 { disk { c-plan-ahead 0; resync-rate 61440k; } } }"
            )
        return (
            f'resource "{self.resource}" {{ options {{ auto-promote no; }} _this_host {{'
            f" node-id {self.node_id}; volume 0 {{ device minor 0; {disk} }} }} {connection} }}"
        )

    def verbs(self):
        return [verb for verb in super().verbs() if verb != "status"]

    def ours(self, *, connected=True):
        super().ours(connected=connected)
        self.node_id = self.meta_node_id = 0
        self.linked = connected
