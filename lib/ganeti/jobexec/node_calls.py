"""Node calls of a job process.

The process calls the nodes itself, under the epoch of the master daemon to which it is connected.
After a restart of the master daemon the nodes obey a newer epoch of the same node, and refuse the
one which the process has. A refused call was not carried out: the process waits until it is
connected to the new daemon, and makes the call again. An epoch of another node ends the process.

A process has a client for longer than a job. When the certificates of the cluster are renewed
meanwhile, by another job, nobody tells it: :class:`Trust` looks at the files before each call.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from typing import Any

from ganeti import errors
from ganeti.jobexec import methods
from ganeti.jobexec.link import Link
from ganeti.objects import ConfigData
from ganeti.platform import master_epoch
from ganeti.rpc.results import Result
from ganeti.rpc.runner import Fanout, OnResult, RpcRunner, Transport, Until
from ganeti.wire.calls.base import Call


class Trust:
    """Notices that the certificates of this node are not those with which the client was made.

    :param state_of_files: returns something which differs when the files do.
    """

    def __init__(self, state_of_files: Callable[[], object]) -> None:
        self._state_of_files = state_of_files
        self._seen = state_of_files()

    def changed(self) -> bool:
        """Return True if the files were replaced since the last question, or since the
        beginning.
        """
        before, self._seen = self._seen, self._state_of_files()
        return self._seen != before


class JobRunner(RpcRunner):
    """Calls nodes for the job of this process.

    :param token: the name of this process, with which the names of its calls begin.
    :param trust: about the certificates with which the client was made.
    """

    def __init__(
        self,
        config_snapshot: Callable[[], ConfigData],
        client: Transport,
        link: Link,
        token: str,
        trust: Trust,
        **options: Any,
    ) -> None:
        super().__init__(config_snapshot, client, **options)
        self._link = link
        self._token = token
        self._trust = trust

    def trust_changed(self) -> None:
        """Use the new certificates of this node, in the master daemon, too."""
        super().trust_changed()
        methods.proxies(self._link.ask).calls.trust_changed()

    def _present_epoch(self) -> master_epoch.Epoch:
        return self._link.epoch

    def _new_token(self) -> str:
        return self._token + secrets.token_hex(8)

    def _ask_all(
        self,
        asks: Sequence[Fanout],
        on_result: OnResult | None = None,
        until: Until | None = None,
        *,
        show: bool = False,
    ) -> list[dict[str, Result]]:
        """Send all requests at the same time; repeat those which only the old epoch failed."""

        def note(call: Call, key: str, result: Result) -> None:
            assert on_result is not None
            if self._newer(call, result) is None:
                on_result(call, key, result)

        if self._trust.changed():
            super().trust_changed()
        given = None if on_result is None else note
        found = super()._ask_all(asks, given, until, show=show)
        while True:
            left: list[Fanout] = []
            places: list[int] = []
            newest = master_epoch.NONE
            for place, (ask, results) in enumerate(zip(asks, found, strict=True)):
                known = {one.key: self._newer(ask.call, results[one.key]) for one in ask.targets}
                newest = max([newest, *(epoch for epoch in known.values() if epoch is not None)])
                targets = [one for one in ask.targets if known[one.key] is not None]
                if targets:
                    left.append(ask._replace(targets=targets))
                    places.append(place)
            if not left:
                return found
            if newest.owner != self._link.epoch.owner:
                self._link.fenced(f"a node obeys epoch {newest}")
            if newest > self._link.epoch:
                self._link.renew()
            for place, results in zip(
                places, super()._ask_all(left, given, until, show=show), strict=True
            ):
                found[place].update(results)

    @staticmethod
    def _newer(call: Call, result: Result) -> master_epoch.Epoch | None:
        """Return the epoch because of which a node refused a call; None for any other result."""
        failure = result.failure
        if call.any_epoch or not isinstance(failure, errors.NodeRefused):
            return None
        known = getattr(failure, "known_epoch", "")
        return master_epoch.parse(known) if known else None
