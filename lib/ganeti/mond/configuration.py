"""What the monitoring daemon asks the configuration query daemons (confd)."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ganeti import errors
from ganeti.confd import Client
from ganeti.constants import cluster as cluster_const
from ganeti.constants import confd

_log = logging.getLogger(__name__)

#: Seconds between two questions which collectors are active.
REFRESH_S: Final = 15.0
#: A collector is not asked more often than this, even if the configuration wants it.
_LEAST_INTERVAL_S: Final = 1.0
#: The longest interval that counts (about 32 years): a larger number is a mistake.
_MOST_INTERVAL_US: Final = 10**15


class ConfdQuestions:
    """Asks the configuration query daemons; see :class:`ganeti.mond.report.Questions`.

    :param node: name of this node.
    """

    def __init__(self, node: str) -> None:
        self._node = node

    def drbd_minors(self) -> Mapping[int, str]:
        """Minor of this node -> name of its instance; empty when no daemon answers."""
        rows = self._ask(confd.REQ_NODE_DRBD, self._node)
        return {
            row[1]: str(row[2])
            for row in (rows if isinstance(rows, list) else ())
            if isinstance(row, list) and len(row) > 2 and isinstance(row[1], int)
        }

    def instances(self) -> Sequence[Mapping[str, Any]]:
        """Return the instances whose primary node is this one; empty when no daemon answers."""
        answer = self._ask(confd.REQ_NODE_INSTANCES, self._node)
        if not isinstance(answer, list) or not answer or not isinstance(answer[0], list):
            return []
        return [one for one in answer[0] if isinstance(one, dict) and "name" in one]

    def intervals(self) -> dict[str, float] | None:
        """Return the active collectors, with their intervals in seconds.

        :returns: None when no daemon answers.
        """
        answer = self._ask(confd.REQ_DATA_COLLECTORS)
        return None if answer is None else parse_intervals(answer)

    def _ask(self, kind: int, query: Any = None) -> Any:
        """Return an answer; None when there is none."""
        try:
            client = Client.of_this_node()
            answer = client.query(kind, query)
        except errors.ConfdClientError as err:
            _log.debug("question %d: %s", kind, err)
            return None
        if not answer.ok:
            _log.debug("question %d: error %s", kind, answer.answer)
            return None
        return answer.answer


def parse_intervals(collectors: Any) -> dict[str, float]:
    """Return the active collectors, with their intervals in seconds.

    :param collectors: the object of the configuration: name -> ``active``, ``interval`` in
        microseconds. A collector which it does not have is active, and so are all when the value
        is not an object. An interval which is not a finite number of a sensible size
        counts as not given.
    """
    found = {}
    for name in cluster_const.DATA_COLLECTORS:
        state = collectors.get(name) if isinstance(collectors, Mapping) else None
        state = state if isinstance(state, Mapping) else {}
        if not state.get("active", True):
            continue
        interval_us = state.get("interval", cluster_const.DATA_COLLECTOR_INTERVAL_US)
        if (
            isinstance(interval_us, bool)
            or not isinstance(interval_us, int | float)
            or not 0 <= interval_us <= _MOST_INTERVAL_US
        ):
            interval_us = cluster_const.DATA_COLLECTOR_INTERVAL_US
        found[name] = max(interval_us / 1e6, _LEAST_INTERVAL_S)
    return found
