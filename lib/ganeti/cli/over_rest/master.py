"""The requests of commands to the master, as requests to resources of the REST interface.

A :class:`RestMaster` has the methods of :class:`ganeti.luxi.client.Client`, and returns and raises
the same. Each request of LUXI is answered by one or several resources (:data:`REQUESTS`). What
only root may ask, such as an earlier configuration with its secrets, has no resource, and is
refused.

All requests use one connection, so only the first one pays for the TLS handshake.

Source: ``doc/design-commands-over-rest.rst``; ``doc/rapi.rst``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

from ganeti import errors
from ganeti.cli.over_rest.address import (
    AUTHORITY_VARIABLE,
    PIN_VARIABLE,
    TOKEN_VARIABLE,
    VARIABLE,
    Address,
)
from ganeti.constants import query as const
from ganeti.constants.events import DEFAULT_KINDS
from ganeti.luxi import client as luxi
from ganeti.luxi import protocol as wire
from ganeti.rapi import client as rapi
from ganeti.utils import retry
from ganeti.wire import errors as wire_errors

_CONNECT_S: Final = 15
# Longer than any answer may take: the slowest one measures all guests.
_ANSWER_S: Final = 600
# Seconds between questions for a job whose user may not wait for it: first, factor, most.
_POLL: Final = (0.1, 1.5, 2.0)
# The position before the oldest event, for which commands have the number 0.
_OLDEST: Final = "oldest"
# Largest number of entries of one page of the history.
_PAGE: Final = 1000
# The explanation of the status without a reason.
_FORBIDDEN: Final = HTTPStatus.FORBIDDEN.description


class NeedsMaster(errors.OpPrereqError):
    """The command needs something which only the master gives to root."""


class RestMaster(luxi.Client):
    """The master of a cluster, over its REST interface.

    :param where: address and credentials.
    """

    def __init__(self, where: Address) -> None:
        super().__init__("")
        self._where = where
        self._connection = rapi.KeptConnection()
        self._rapi = rapi.GanetiRapiClient(
            where.host,
            where.port or rapi.GANETI_RAPI_PORT,
            username=where.user or None,
            password=where.password or None,
            token=where.token or None,
            curl_config_fn=rapi.GenericCurlConfig(
                use_curl_cabundle=not (where.pin or where.authority),
                cafile=None if where.pin else where.authority or None,
                verify_hostname=not where.pin,
                pinned_key=where.pin or None,
                compressed=True,
                connect_timeout=_CONNECT_S,
                timeout=_ANSWER_S,
            ),
            curl_factory=self._connection.begin,
        )

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def call(self, method: str, *args: Any) -> Any:
        """Send one request and return its result.

        :raises errors.LuxiError: the REST interface cannot be reached, or its certificate is not
            trusted.
        :raises NeedsMaster: no resource answers this request.
        :raises errors.GenericError: the error of the master, or the refusal of the request.
        """
        request = REQUESTS.get(method)
        if request is None:
            raise NeedsMaster(
                "this command needs the master daemon itself, which gives root what it gives to"
                f" nobody else; run it on the master, without {VARIABLE}",
                errors.ECODE_ENVIRON,
            )
        try:
            return request(self._rapi, *args)
        except rapi.GanetiApiError as err:
            raise self._error(err) from err

    def _error(self, err: rapi.GanetiApiError) -> errors.GenericError:
        """Return the error of the master which an answer describes."""
        if isinstance(err, rapi.PinnedKeyError):
            return errors.LuxiError(
                f"{err}. The server has another key than {PIN_VARIABLE} says; if the certificate"
                " was renewed, 'rapi-passwd --pin' on the master prints the new value"
            )
        if isinstance(err, rapi.CertificateError):
            return errors.LuxiError(f"{err}. {_TRUST}")
        if err.code is None:
            return errors.LuxiError(str(err))
        name, ecode = err.kind
        if name:
            found = wire_errors.decode([name, [err.reason, *([ecode] if ecode else [])]])
            if isinstance(found, errors.GenericError):
                return found
        if err.code == 401:
            given = self._where.user or self._where.token
            hint = "" if given else f". Give a token in {TOKEN_VARIABLE}."
            return errors.OpPrereqError(f"{err.reason}{hint}", "")
        if err.code == 403:
            return errors.OpPrereqError(
                err.reason
                if err.reason != _FORBIDDEN
                else f"this user may not use {err.request}, which the command needs",
                "",
            )
        if err.code == 404:
            return errors.OpPrereqError(err.reason, errors.ECODE_NOENT)
        if err.code in (400, 409, 429):
            return errors.OpPrereqError(err.reason, errors.ECODE_INVAL)
        return errors.LuxiError(f"the REST interface of {self._where.host} answers: {err}")


_TRUST: Final = (
    f"The certificate of a new cluster is signed by itself: give its authority in"
    f" {AUTHORITY_VARIABLE}, or the hash of its key, which 'rapi-passwd --pin' on the master"
    f" prints, in {PIN_VARIABLE}"
)


def _query(to: rapi.GanetiRapiClient, what: str, fields: Sequence[str], qfilter: Any) -> Any:
    return to.Query(what, list(fields), qfilter)


def _values(what: str) -> Callable[..., Any]:
    """Make the function which answers one of the older queries: plain values of named objects."""

    def values(
        to: rapi.GanetiRapiClient, names: Sequence[str], fields: Sequence[str], _lock: bool = False
    ) -> Any:
        return _plain(to.Query(what, list(fields), names=list(names or ())))

    return values


def _plain(answer: Mapping[str, Any]) -> list[list[Any]]:
    return [
        [value if status == const.RS_NORMAL else None for status, value in row]
        for row in answer["data"]
    ]


def _jobs(to: rapi.GanetiRapiClient, ids: Sequence[int] | None, fields: Sequence[str]) -> Any:
    condition = ["|", *(["==", "id", int(job)] for job in ids)] if ids else None
    rows = _plain(to.Query("job", ["id", *fields], condition))
    if not ids:
        return [row[1:] for row in rows]
    known = {int(row[0]): row[1:] for row in rows}
    return [known.get(int(job)) for job in ids]


def _wait(
    to: rapi.GanetiRapiClient,
    job_id: int,
    fields: Sequence[str],
    info: Any,
    serial: int | None,
    timeout_s: float,
) -> Any:
    try:
        answer = to.WaitForJobChange(job_id, list(fields), info, serial, timeout=int(timeout_s))
    except rapi.GanetiApiError as err:
        if err.code != HTTPStatus.FORBIDDEN:
            raise
        # The resource which waits needs a right to change; the user may see the job all the same.
        return _poll(to, job_id, fields, (info, serial or 0), timeout_s)
    if answer is None:
        return wire.NO_CHANGE
    return [answer["job_info"], answer["log_entries"]]


def _poll(
    to: rapi.GanetiRapiClient, job_id: int, fields: Sequence[str], known: Any, timeout_s: float
) -> Any:
    """Ask for a job until it changes: the answer of ``_wait`` for a user who may only read.

    :param known: the values of the fields and the number of the log entry that the command knows.
    """
    info, serial = known

    def ask() -> Any:
        (row,) = _jobs(to, [job_id], [*fields, "oplog"])
        if row is None:
            raise errors.JobLost(f"job {job_id} does not exist")
        *now, logs = row
        entries = sorted(line for log in logs for line in log if line[0] > serial)
        if now == info and not entries:
            raise retry.Again
        return [now, entries]

    try:
        return retry.until(ask, timeout_s=timeout_s, delay=_POLL)
    except errors.RetryTimeout:
        return wire.NO_CHANGE


def _events(
    to: rapi.GanetiRapiClient,
    place: Sequence[Any] | None,
    wait_s: float,
    kinds: Sequence[str] | None = None,
) -> Any:
    after = None
    if place is not None:
        epoch, number = place
        after = f"{epoch}-{number}" if number else _OLDEST
    short, complete = (sorted(DEFAULT_KINDS), ()) if kinds is None else ((), kinds)
    answer = to.GetEvents(after, int(wait_s), kinds=short, kind=complete)
    epoch, _, last = answer["last"].rpartition("-")
    return {
        "epoch": epoch,
        "last": int(last),
        "events": [
            [int(one["id"].rpartition("-")[2]), one["kind"], one["data"], one["data"]]
            for one in answer["events"]
        ],
        "lost": answer["lost"],
    }


def _exports(to: rapi.GanetiRapiClient, nodes: Sequence[str], _lock: bool = False) -> Any:
    wanted = {row[0] for row in _values(const.NODE)(to, nodes, ["name"])} if nodes else set()
    rows = _plain(to.Query(const.EXPORT, ["node", "export"]))
    return [row for row in rows if not wanted or row[0] in wanted]


def _filters(to: rapi.GanetiRapiClient, uuids: Sequence[str] | None, fields: Sequence[str]) -> Any:
    rules = [to.GetFilter(uuid) for uuid in uuids] if uuids else to.GetFilters(bulk=True)
    return [[rule.get(field) for field in fields] for rule in rules]


def _replace_filter(
    to: rapi.GanetiRapiClient,
    uuid: str | None,
    priority: int,
    predicates: Sequence[Any],
    action: Any,
    reason: Sequence[Any],
) -> Any:
    if uuid is None:
        return to.AddFilter(priority, predicates, action, reason)
    return to.ReplaceFilter(uuid, priority, predicates, action, reason)


def _tags(to: rapi.GanetiRapiClient, kind: str, name: str) -> Any:
    if kind == "cluster":
        return to.GetClusterTags()
    return {
        "instance": to.GetInstanceTags,
        "node": to.GetNodeTags,
        "nodegroup": to.GetGroupTags,
        "network": to.GetNetworkTags,
    }[kind](name)


def _explain(to: rapi.GanetiRapiClient, job: Any) -> Any:
    if job is None:
        return to.GetQueue(limit=1)["queue"]
    return to.ExplainJobs(job) if isinstance(job, list) else to.ExplainJob(job)


def _history(to: rapi.GanetiRapiClient, limit: int | None) -> list[Any]:
    found: list[Any] = []
    before = None
    while limit is None or len(found) < limit:
        wanted = _PAGE if limit is None else min(_PAGE, limit - len(found))
        page = to.GetHistory(wanted, before)
        found += page["commits"]
        before = page["next"]
        if before is None:
            break
    return found


def _watcher_pause(to: rapi.GanetiRapiClient, until: float | None) -> Any:
    return to.EndWatcherPause() if until is None else to.PauseWatcher(until)


#: Name of the request in LUXI -> the function which asks the resources.
REQUESTS: Final[Mapping[str, Callable[..., Any]]] = {
    "SubmitJob": lambda to, ops: to.SubmitJob(ops),
    "SubmitManyJobs": lambda to, jobs: to.SubmitManyJobs(jobs),
    "WaitForJobChange": _wait,
    "WaitForEvents": _events,
    "CancelJob": lambda to, job, kill=False: to.CancelJob(job, kill=kill or None),
    "ChangeJobPriority": lambda to, job, priority: to.SetJobPriority(job, priority),
    "ArchiveJob": lambda to, job: to.ArchiveJob(job),
    "AutoArchiveJobs": lambda to, age, _timeout: to.ArchiveOldJobs(age),
    "ExplainJob": _explain,
    "QueryConfigHistory": _history,
    "FindAuditLines": lambda to, chosen, limit, before: to.GetAudit(limit, before, **chosen),
    "SetDrainFlag": lambda to, drained: to.DrainQueue() if drained else to.UndrainQueue(),
    "QueryFilters": _filters,
    "ReplaceFilter": _replace_filter,
    "DeleteFilter": lambda to, uuid: to.DeleteFilter(uuid),
    "Query": _query,
    "RunQuery": lambda to, op: to.RunQuery(op),
    "QueryFields": lambda to, what, fields: to.QueryFields(what, fields or None),
    "QueryJobs": _jobs,
    "QueryInstances": _values(const.INSTANCE),
    "QueryNodes": _values(const.NODE),
    "QueryGroups": _values(const.GROUP),
    "QueryNetworks": _values(const.NETWORK),
    "QueryExports": _exports,
    "QueryTags": _tags,
    "QueryClusterInfo": lambda to: to.GetInfo(),
    "QueryConfigValues": lambda to, fields: to.GetConfigValues(fields),
    "SetWatcherPause": _watcher_pause,
    "ReadConsoleLog": lambda to, name, lines, position: to.GetInstanceConsoleLog(
        name, lines, position or None
    ),
    "QueryImages": lambda to: to.GetImages(),
    "QueryFailoverStatus": lambda to: to.GetFailoverStatus(),
    "QueryGuestsUsage": lambda to: to.GetGuestsUsage(),
}
