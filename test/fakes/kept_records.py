"""The access records as the REST daemon keeps them, in memory, without a master."""

from __future__ import annotations

from typing import Any

from fakes.rest_master import FakeMaster
from ganeti.objects import AccessRecord
from ganeti.rapi.kept_records import KeptRecords


class Kept(KeptRecords):
    """Access records of a test.

    :ivar records: by kind and key.
    :ivar noted: kind and key of each use.
    """

    def __init__(self, now: float = 1_800_000_000.0) -> None:
        super().__init__(FakeMaster())
        self.time = now
        self.records: dict[tuple[str, str], AccessRecord] = {}
        self.noted: list[tuple[str, str]] = []
        self.failure: Exception | None = None

    def now(self) -> float:
        return self.time

    async def get(self, kind: str, key: str) -> AccessRecord | None:
        self._fail()
        return self.records.get((kind, key))

    async def known(self, kind: str, key: str) -> AccessRecord | None:
        return await self.get(kind, key)

    async def every(self, kind: str) -> list[AccessRecord]:
        self._fail()
        return [one for (found, _key), one in self.records.items() if found == kind]

    async def change(self, *changes: Any) -> None:
        self._fail()
        for one in changes:
            if one[0] == "put":
                self.records[one[1].kind, one[1].key] = one[1]
            else:
                self.records.pop((one[1], one[2]), None)

    def used(self, kind: str, key: str) -> None:
        self.noted.append((kind, key))

    def _fail(self) -> None:
        if self.failure is not None:
            raise self.failure
