"""A master in unit tests which keeps access records, as the real one does."""

from __future__ import annotations

from typing import Any

from fakes.rest_master import FakeMaster
from ganeti import errors


class AccessMaster(FakeMaster):
    """Keeps access records.

    :ivar failure: raised by every question about them.
    :ivar lose_answer: the next change is made, and its answer is lost.
    """

    def __init__(self) -> None:
        super().__init__()
        self.records: dict[tuple[str, str], dict[str, Any]] = {}
        self.serial = 1
        self.failure: errors.GenericError | None = None
        self.lose_answer = False
        self.answers["QueryAccessRecords"] = self._query
        self.answers["ChangeAccessRecords"] = self._change

    def _query(self, kind: str | None, since: int | None) -> dict[str, Any]:
        if self.failure is not None:
            raise self.failure
        if since == self.serial:
            return {"serial": self.serial, "records": None}
        found = [dict(one) for one in self.records.values() if kind in (None, one["kind"])]
        return {"serial": self.serial, "records": found}

    def _change(self, changes: list[list[Any]]) -> dict[str, Any]:
        if self.failure is not None:
            raise self.failure
        before = self.serial
        for what, *rest in changes:
            if what == "put":
                self.records[rest[0]["kind"], rest[0]["key"]] = dict(rest[0])
            elif what == "remove":
                self.records.pop((rest[0], rest[1]), None)
            elif (rest[0], rest[1]) in self.records:
                self.records[rest[0], rest[1]]["used"] = rest[2]
        self.serial += 1
        if self.lose_answer:
            self.lose_answer = False
            raise errors.LuxiTimeout("no answer from the master for 60 s")
        return {"before": before, "serial": self.serial}
