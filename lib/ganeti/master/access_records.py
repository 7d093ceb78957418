"""The access records of the cluster: list them, and change several in one commit.

The REST daemon keeps a copy, so the answer to a question has a number which changes whenever a
record does (not only with those of the answer's kind): while it is the same, no record is sent.
The number is not that of the configuration, which changes with every job.

Source: ``doc/design-rest-identities.rst``, *Access records*.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ganeti import errors, ht
from ganeti.config import Config, access_records
from ganeti.config.transaction import Transaction
from ganeti.objects import AccessRecord

PUT, REMOVE, USED = "put", "remove", "used"

_NUMBER: Final = ht.Maybe(ht.Float)
_TYPES: Final[Mapping[str, ht.Type]] = {
    "kind": ht.Str,
    "key": ht.Str,
    "owner": ht.Str,
    "ctime": ht.Float,
    "expires": _NUMBER,
    "used": _NUMBER,
    "data": ht.Dict,
}


class AccessRecords:
    """The table of the access records, as the LUXI service uses it.

    :param clock_us: microseconds which grow from one start of the master to the next.
    """

    def __init__(self, clock_us: Any = lambda: time.time_ns() // 1000) -> None:
        # One commit after the other, so that nothing else changes between two numbers.
        self._changing = threading.Lock()
        self._lock = threading.Lock()
        # Another master, or this one after a restart, counts from another number.
        self._serial = int(clock_us())
        self._seen: Mapping[str, AccessRecord] | None = None

    def listed(self, config: Config, kind: str | None, since: int | None) -> dict[str, Any]:
        """Return the records, those that have ended lately included.

        :param kind: None for all kinds.
        :param since: the number of the last answer; None for none.
        :returns: ``serial`` and ``records``, which is None when nothing has changed since.
        """
        table = config.snapshot().access_records
        serial = self._number(table)
        if since == serial:
            return {"serial": serial, "records": None}
        return {
            "serial": serial,
            "records": [
                _shown(record) for record in table.values() if kind is None or record.kind == kind
            ],
        }

    def changed(self, config: Config, changes: Sequence[Sequence[Any]]) -> dict[str, Any]:
        """Carry out changes in one commit, all or none; none is made when nothing changes.

        :param changes: each ``["put", record]``, which replaces a record with the same kind and
            key, ``["remove", kind, key]``, or ``["used", kind, key, time]``. To remove a record
            which does not exist, or to note its use, changes nothing.
        :returns: ``before`` and ``serial``, the numbers before and after the changes.
        :raises OpPrereqError: wrong_input: a change or a record is not allowed;
            insufficient_resources: there are too many records.
        :raises ConfigurationError: not enough candidates have the change. It may have been made.
        """
        wanted = [parse_change(change) for change in changes]
        with self._changing:
            before = self._number(config.snapshot().access_records)
            with config.transaction() as change:
                _carry_out(change, wanted)
            return {"before": before, "serial": self._number(config.snapshot().access_records)}

    def _number(self, table: Mapping[str, AccessRecord]) -> int:
        """Return the number of a table; a commit which changes no record keeps the table."""
        with self._lock:
            if table is not self._seen:
                self._seen = table
                self._serial += 1
            return self._serial


@dataclasses.dataclass(frozen=True, slots=True)
class Change:
    what: str
    uuid: str
    record: AccessRecord | None = None
    time: float = 0.0


def parse_change(change: Sequence[Any]) -> Change:
    """Check a change which a client sends.

    :raises OpPrereqError: wrong_input: it has another form, or a record is wrong.
    """
    match list(change):
        case ["put", dict() as given]:
            record = _record(given)
            return Change(PUT, record.uuid, record)
        case ["remove", str() as kind, str() as key]:
            return Change(REMOVE, access_records.uuid_of(kind, key))
        case ["used", str() as kind, str() as key, int() | float() as at]:
            return Change(USED, access_records.uuid_of(kind, key), time=float(at))
    raise errors.OpPrereqError(
        "a change of access records is ['put', record], ['remove', kind, key] or"
        " ['used', kind, key, time]",
        errors.ECODE_INVAL,
    )


def _record(given: Mapping[str, Any]) -> AccessRecord:
    """Make a record from what a client sends."""
    values = {"expires": None, "used": None, "data": {}, **given}
    for name in ("ctime", "expires", "used"):
        if isinstance(values.get(name), int) and not isinstance(values[name], bool):
            values[name] = float(values[name])
    for name, wanted in _TYPES.items():
        if name not in values or not wanted.check(values[name]):
            raise errors.OpPrereqError(
                f"'{name}' of an access record must be {ht.describe(wanted)}", errors.ECODE_INVAL
            )
    if set(values) - set(_TYPES):
        raise errors.OpPrereqError("an access record has unknown members", errors.ECODE_INVAL)
    record = AccessRecord(uuid=access_records.uuid_of(values["kind"], values["key"]), **values)
    try:
        access_records.check(record)
    except errors.ParameterError as err:
        raise errors.OpPrereqError(str(err), errors.ECODE_INVAL) from err
    return record


def _carry_out(change: Transaction, wanted: Sequence[Change]) -> None:
    for one in wanted:
        present = change.data.access_records.get(one.uuid)
        if one.what == REMOVE:
            if present is not None:
                change.access.remove(one.uuid)
        elif one.what == USED:
            if present is not None and _is_later(one.time, present.used, change.now):
                change.access.put(dataclasses.replace(present, used=one.time))
        elif one.record != present:
            assert one.record is not None
            change.access.put(one.record)
    if any(one.what == PUT for one in wanted):
        _remove_ended(change)
        _check_number(change.data.access_records, wanted)


def _is_later(time_s: float, noted: float | None, now: float) -> bool:
    """Return whether a use is later than the noted one, which a wrong clock may have written."""
    return noted is None or noted < time_s or noted > now + access_records.SKEW_S


def _remove_ended(change: Transaction) -> None:
    for uuid, record in list(change.data.access_records.items()):
        if access_records.ended(record, change.now):
            change.access.remove(uuid)


def _check_number(table: Mapping[str, AccessRecord], wanted: Sequence[Change]) -> None:
    if len(table) > access_records.MAX_RECORDS:
        raise errors.OpPrereqError(
            f"the cluster has {access_records.MAX_RECORDS} sessions, tokens and other access"
            " records, which is the limit; end some of them",
            errors.ECODE_NORES,
        )
    numbers = Counter((record.kind, record.owner) for record in table.values())
    for one in wanted:
        if one.record is None:
            continue
        kind, owner = one.record.kind, one.record.owner
        if numbers[kind, owner] > access_records.MAX_OF_OWNER:
            raise errors.OpPrereqError(
                f"user {owner} has {access_records.MAX_OF_OWNER} access records of the kind"
                f" '{kind}', which is the limit; remove some of them",
                errors.ECODE_NORES,
            )


def _shown(record: AccessRecord) -> dict[str, Any]:
    return {name: getattr(record, name) for name in _TYPES}
