"""Learning the keys of nodes which the configuration does not have yet.

A node gets its key into the configuration when it is added, and when keys are renewed. Other nodes
lack it: those of a cluster which was just upgraded, and nodes whose daemon was of an older version
until now. This module asks them, in a thread, and writes down what they show: from then on no other
machine can take the place of the node.

The key of the master itself is compared with its own files at each start.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import Counter
from collections.abc import Mapping
from typing import Final

from ganeti import errors
from ganeti.config import Config
from ganeti.constants.cluster import CERT_RENEWAL_SUFFIX
from ganeti.objects import ConfigData, updated
from ganeti.platform import paths
from ganeti.rpc import AddressRunner, RpcRunner, key_pins
from ganeti.rpc.results import Result
from ganeti.utils import shortage
from ganeti.wire.calls import VERSION

_log = logging.getLogger(__name__)

#: Seconds between two questions to nodes whose keys are not known.
PAUSE_S: Final = 300.0


class KeyLearning:
    """Completes the keys of nodes in the configuration."""

    def __init__(self, config: Config, rpc: RpcRunner) -> None:
        self._config = config
        self._rpc = rpc
        self._ended = threading.Event()

    def adopt_own(self, runner: AddressRunner) -> None:
        """Write down the key of this node when its files have another one than the configuration.

        A machine trusts its own files. So a master whose files were restored or replaced can be
        started, without another node.

        :param runner: calls the node daemon beside this process.
        """
        me = self._config.master_node()
        expected = key_pins.expected([me]).get(me.primary_ip, ())
        if set(expected) <= set(me.key_pins or ()):
            return
        answer = runner.first_contact(VERSION, {me.name: me.primary_ip})[me.name]
        pin = _pin(answer)
        if pin is not None and pin not in (me.key_pins or ()) and pin in expected:
            _log.warning("this node has another key than in the configuration: %s", pin)
            self._write({me.uuid: pin})

    def start(self) -> None:
        """Ask the nodes whose keys are not known, now and again and again."""
        threading.Thread(target=self._run, name="node-keys", daemon=True).start()

    def stop(self) -> None:
        """End the thread of :meth:`start`."""
        self._ended.set()

    def _run(self) -> None:
        while True:
            try:
                with shortage.as_error():
                    self.poll()
            except errors.GenericError as err:
                _log.error("the keys of nodes could not be written into the configuration: %s", err)
            if self._ended.wait(PAUSE_S):
                return

    def poll(self) -> list[str]:
        """Ask the online nodes whose keys are not known; return the UUIDs of those which said it.

        :raises ConfigurationError: the keys could not be written.
        """
        unknown = [node.uuid for node in self._config.online_nodes() if not node.key_pins]
        if not unknown or _renewal(self._config.snapshot()):
            return []
        found = {uuid: _pin(answer) for uuid, answer in self._rpc.show_keys(unknown).items()}
        pins = {uuid: pin for uuid, pin in found.items() if pin is not None}
        return self._write(pins, unknown_only=True) if pins else []

    def _write(self, pins: Mapping[str, str], *, unknown_only: bool = False) -> list[str]:
        written = []
        with self._config.transaction() as change:
            data = change.data
            used = Counter(pin for node in data.nodes.values() for pin in node.key_pins or ())
            used.update(pins.values())
            for uuid, pin in pins.items():
                node = data.nodes.get(uuid)
                if node is None or (unknown_only and (node.key_pins or _renewal(data))):
                    continue
                if used[pin] > 1:
                    _log.warning("node %s shows the key of another node, too: %s", node.name, pin)
                    continue
                change.nodes.update(updated(node, key_pins=(pin,)))
                _log.info("node %s has the key %s", node.name, pin)
                written.append(uuid)
        return written


def _pin(answer: Result) -> str | None:
    """Return the key which a node has shown; None when it has none of its own."""
    if answer.failure is not None:
        return None
    try:
        return key_pins.pin_of(answer.certificate)
    except errors.X509CertError as err:
        _log.error("node %s: %s", answer.node_name, err)
        return None


def _renewal(data: ConfigData) -> bool:
    """Tell whether keys are being renewed, which writes them down at its end."""
    return os.path.exists(paths.current().server_ca_file) or any(
        key.endswith(CERT_RENEWAL_SUFFIX) for key in data.cluster.candidate_certs
    )
