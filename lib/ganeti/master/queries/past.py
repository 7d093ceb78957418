"""Objects as an earlier state of the configuration has them (``QueryObjectsAt``).

The answers have the fields and forms of those about the present. What only a node or the running
master knows, such as the memory of a guest, is None: nobody kept it.

To go back costs time and memory with each commit, so one thread at a time does it, and the last
state is kept: a program which looks at a state reads several kinds of objects of it.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ganeti import errors
from ganeti.config.view import View as ConfigView
from ganeti.constants import query as query_c
from ganeti.luxi.answers import PastObjects
from ganeti.master.queries import cluster, service
from ganeti.objects import ConfigData, codec

if TYPE_CHECKING:
    from ganeti.config import Config
    from ganeti.utils.effort import Effort

#: The kinds of objects which the configuration has, and the cluster.
KINDS = (
    query_c.CLUSTER,
    query_c.GROUP,
    query_c.INSTANCE,
    query_c.NETWORK,
    query_c.NODE,
)


class PastStates:
    """Reads earlier states of one configuration."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._lock = threading.Lock()
        self._last: ConfigData | None = None

    def query(
        self, serial: int, what: str, names: Sequence[str], fields: Sequence[str], effort: Effort
    ) -> PastObjects:
        """Answer ``QueryObjectsAt``.

        :param serial: serial number of the state.
        :param what: one of :data:`KINDS`.
        :param names: names or UUIDs of the wanted objects; none means all.
        :param fields: fields of the query of this kind; for the cluster, keys of its description.
        :raises errors.OpPrereqError: there was no such state, the history does not reach it, there
            was no such object (unknown_entity), or no such kind or field (wrong_input).
        """
        if what not in KINDS:
            raise errors.OpPrereqError(
                f"the history has no objects of kind '{what}'. Known are {', '.join(KINDS)}.",
                errors.ECODE_INVAL,
            )
        data = self._state(serial)
        if what == query_c.CLUSTER:
            info = cluster.stored_info(ConfigView(data))
            rows = [[info.get(name) for name in fields]]
        else:
            rows = service.past_values(data, what, names, fields, effort)
        return {"serial": data.serial_no, "time": data.mtime, "rows": rows}

    def _state(self, serial: int) -> ConfigData:
        present = self._config.snapshot()
        if serial == present.serial_no:
            return present
        with self._lock:
            if self._last is None or self._last.serial_no != serial:
                # The state before is not needed any more; two at a time would cost twice as much.
                self._last = None
                self._last = codec.from_dict(ConfigData, self._config.at(serial).whole())
            return self._last
