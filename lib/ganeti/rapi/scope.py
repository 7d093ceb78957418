"""What a limited user may see and do: the objects of his rights, and nothing else.

A user with rights for some instances asks the master through a :class:`Limits`. It knows two areas
(:class:`ganeti.rapi.rights.Area`): the instances that he sees, which are those of all his rights,
and the instances on which he may do the operation of this request. What he does not see is answered
as if it did not exist (404); what he sees, but may not do, is refused (403).

Areas are decided with the data that the master has at the time of the request. The opcodes of a job
name the instance by its UUID, so a job never works on another instance than the one which was
checked. A job that was accepted runs, also if the right ends before it starts: a right decides on
requests.

Jobs of a limited user are those which he has submitted over REST, and those whose opcodes name
instances, all of which he sees.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from ganeti.constants import query as query_const
from ganeti.http.messages import Refused
from ganeti.opcodes import subjects
from ganeti.rapi import console_field, selectors
from ganeti.rapi.event_scope import EventScope
from ganeti.rapi.master import Master
from ganeti.rapi.rights import Area
from ganeti.rapi.roles import Rules
from ganeti.rapi.selectors import GROUP, Facts, Selector
from ganeti.rapi.users import User
from ganeti.utils import author, text

#: The answer to a request for objects which no right for some instances covers.
NOT_COVERED: Final = "your rights are for some instances only, and do not cover this request"
#: Operations about the interface itself, or the user himself: no object of the cluster.
OPEN: Final = frozenset(
    {
        "batch",
        "R_root",
        "R_2",
        "R_version",
        "features",
        "doc",
        "openapi",
        "query_fields",
        "quota",
        "tokens",
        "tokens_id",
        "certificates",
        "certificates_id",
        "login",
        "logout",
        "session",
        "sessions",
        "sessions_id",
        "login_oidc",
        "login_oidc_callback",
        "login_oidc_logout",
        "login_passkey",
        "login_passkey_challenge",
        "totp",
        "passkeys",
        "passkeys_challenge",
        "passkeys_id",
    }
)
#: Operations which serve a limited user what he may see, with all methods or one; all others need
#: a right for the whole cluster.
SERVED: Final = frozenset(
    {
        "events",
        "events_log",
        "groups:GET",
        "info:GET",
        "instances",
        "instances_multi_alloc",
        "instances_name",
        "instances_name_activate_disks",
        "instances_name_console",
        "instances_name_console_log",
        "instances_name_copy",
        "instances_name_deactivate_disks",
        "instances_name_disk_grow",
        "instances_name_failover",
        "instances_name_info",
        "instances_name_migrate",
        "instances_name_modify",
        "instances_name_reboot",
        "instances_name_recreate_disks",
        "instances_name_reinstall",
        "instances_name_rename",
        "instances_name_replace_disks",
        "instances_name_shutdown",
        "instances_name_snapshots",
        "instances_name_snapshots_name",
        "instances_name_snapshots_name_restore",
        "instances_name_startup",
        "instances_name_tags",
        "jobs",
        "jobs_id",
        "jobs_id_wait",
        "nodes:GET",
        "os:GET",
        "query",
        "run_query",
    }
)
EVERYTHING, SOME, NOTHING = "everything", "some", "nothing"
_REST: Final = "REST"
_JOB_DIGITS: Final = 18
# The subjects of so many jobs are kept.
_MOST_JOBS: Final = 100_000


class JobSubject(NamedTuple):
    """Whose job it is, and what it works on; both never change.

    :ivar person: the user who submitted it over REST; empty for none.
    :ivar instances: the names in its opcodes.
    """

    person: str
    instances: frozenset[str]


class JobSubjects:
    """The subjects of jobs; the master is asked once for each job."""

    def __init__(self, master: Master) -> None:
        self._master = master
        self._known: dict[int, JobSubject] = {}

    async def of(self, ids: Iterable[int] | None) -> dict[int, JobSubject]:
        """Return the subjects of jobs, of all for None; a job that does not exist is left out."""
        if ids is None:
            rows = await self._master.call("QueryJobs", None, ["id"])
            ids = [int(row[0]) for row in rows if row is not None]
        ids = list(ids)
        missing = [number for number in ids if number not in self._known]
        if len(self._known) + len(missing) > _MOST_JOBS:
            self._known.clear()
            missing = ids
        if missing:
            rows = await self._master.call("QueryJobs", missing, ["id", "ops"])
            for row in rows:
                if row is not None:
                    self._known[int(row[0])] = _subject(row[1])
        return {number: self._known[number] for number in ids if number in self._known}


def _subject(ops: Sequence[dict[str, Any]]) -> JobSubject:
    trail = ops[0].get("reason") if ops else None
    person = author.person(trail) if author.program(trail) == _REST else ""
    names = [name for kind, name in subjects.named_objects(ops) if kind == subjects.INSTANCE]
    return JobSubject(person, frozenset(names))


class _Names:
    """Names of instances, of which others may be short forms."""

    def __init__(self, instances: Collection[Facts]) -> None:
        self._all = {one.name for one in instances} | {one.uuid for one in instances}
        for one in instances:
            parts = one.name.split(".")
            self._all.update(".".join(parts[:count]) for count in range(1, len(parts)))

    def has_all(self, names: Collection[str]) -> bool:
        """Return whether these are names of some of the instances, and not of others."""
        return bool(names) and self._all.issuperset(names)


class Limits:
    """One request of a user who has rights for some instances.

    :ivar area: the instances on which he may do the operation of the request.
    :ivar seen: the instances that he sees; None for all.
    :param console: the instances whose consoles he may open; None for all.
    :param special: the tags that give rights to somebody.
    """

    def __init__(
        self,
        master: Master,
        user: User,
        area: Area,
        *,
        rules: Rules,
        special: Collection[str],
        jobs: JobSubjects,
        console: Area | None = None,
    ) -> None:
        self.master = master
        self.user = user
        self.area = area
        self.seen = user.rights.seen(user.name)
        self.console = console
        self.rules = rules
        self.special = special
        self._jobs = jobs
        self._required: dict[str, Facts] = {}

    # -- instances -------------------------------------------------------------------------------

    def has(self, facts: Facts) -> bool:
        """Return whether the user may do the operation on an instance."""
        return self.area.has(facts, self.rules.pools)

    def filter_of(self, area: Area | None, condition: Any = None) -> Any:
        """Return a filter for the instances of an area which fulfil a condition.

        The area comes first: the condition is not even compared with other instances, because an
        error of a comparison would name their values.
        """
        if area is None:
            return condition
        own = area.as_filter(self.rules.pools)
        return own if condition is None else ["&", own, condition]

    async def instances(self, area: Area | None, condition: Any = None) -> list[Facts]:
        """Return the instances of an area which fulfil a condition."""
        answer = await self.master.call(
            "Query",
            query_const.INSTANCE,
            list(selectors.FIELDS),
            self.filter_of(area, condition),
        )
        found = [Facts.of_row(row) for row in answer["data"]]
        # A value that is not known passes every filter, and gives no right.
        return [one for one in found if area is None or area.has(one, self.rules.pools)]

    async def find(self, name: str) -> Facts | None:
        """Return the instance of a name, a short name or a UUID; None if the user sees none."""
        by = "uuid" if text.is_uuid(name) else "name"
        found = await self.instances(self.seen, ["=", by, name])
        exact = [one for one in found if name in (one.name, one.uuid)]
        return exact[0] if exact else found[0] if len(found) == 1 else None

    async def require(self, name: str) -> Facts:
        """Return the instance on which the user may do the operation.

        :raises Refused: 404 if he does not see it, 403 if he may not do this.
        """
        facts = self._required.get(name) or await self.find(name)
        if facts is None:
            raise missing(name)
        if not self.has(facts):
            raise Refused(403, f"user {self.user.name} may not do this with instance {facts.name}")
        # The name in the path comes again in the opcode.
        self._required.update({facts.name: facts, facts.uuid: facts})
        return facts

    async def admit(self, uri: Mapping[str, str]) -> dict[str, str]:
        """Check the objects in a path, and return it with the full name of the instance.

        :param uri: name in the path -> value.
        :raises Refused: 404 for an object which the user does not see, 403 if he may not do this.
        """
        found = dict(uri)
        if "instance_name" in uri:
            found["instance_name"] = (await self.require(uri["instance_name"])).name
        if "job_id" in uri:
            number = uri["job_id"]
            if len(number) > _JOB_DIGITS:
                raise Refused(404, f"job {number[:_JOB_DIGITS]}... does not exist")
            await self.require_job(int(number))
        return found

    # -- jobs ------------------------------------------------------------------------------------

    async def visible_jobs(self, ids: Iterable[int] | None) -> list[int]:
        """Return those of the jobs, or of all jobs, which the user sees."""
        found = await self._jobs.of(ids)
        if self.seen is None:
            return list(found)
        names: _Names | None = None
        visible = []
        for number, subject in found.items():
            if subject.person != self.user.name:
                if not subject.instances:
                    continue
                if names is None:
                    names = _Names(await self.instances(self.seen))
                if not names.has_all(subject.instances):
                    continue
            visible.append(number)
        return visible

    async def require_job(self, number: int) -> None:
        """Check that the user may do the operation on a job.

        :raises Refused: 404 if he does not see it, 403 if he may not do this.
        """
        if not await self.visible_jobs([number]):
            raise missing_job(number)
        subject = (await self._jobs.of([number]))[number]
        if subject.person == self.user.name:
            return
        if not _Names(await self.instances(self.area)).has_all(subject.instances):
            raise Refused(403, f"user {self.user.name} may not do this with job {number}")

    # -- nodes and groups ------------------------------------------------------------------------

    async def nodes(self) -> set[str]:
        """Return the names of the nodes where the user's instances are, and of his groups."""
        answer = await self.master.call(
            "Query", query_const.INSTANCE, ["pnode", "snodes"], self.filter_of(self.seen)
        )
        found: set[str] = set()
        for (_status, primary), (_status2, others) in answer["data"]:
            found.update(name for name in (primary, *(others or ())) if name)
        groups = self._groups_of(self.seen)
        if groups:
            parts = [
                ["==", field, group] for group in sorted(groups) for field in _GROUP_FIELDS_OF_NODE
            ]
            answer = await self.master.call("Query", query_const.NODE, ["name"], ["|", *parts])
            found.update(row[0][1] for row in answer["data"])
        return found

    async def groups(self) -> set[str]:
        """Return the names of the groups where the user's instances are, and of his rights."""
        answer = await self.master.call(
            "Query", query_const.INSTANCE, ["pnode.group"], self.filter_of(self.seen)
        )
        found = {row[0][1] for row in answer["data"] if row[0][0] == query_const.RS_NORMAL}
        groups = self._groups_of(self.seen)
        if groups:
            parts = [["==", field, one] for one in sorted(groups) for field in ("name", "uuid")]
            answer = await self.master.call("Query", query_const.GROUP, ["name"], ["|", *parts])
            found.update(row[0][1] for row in answer["data"])
        return found

    async def groups_of_node(self, name: str) -> frozenset[str]:
        """Return name and UUID of the group of a node on which the user may place instances.

        :raises Refused: 403 if his right is not for a group, or for another one.
        """
        groups = self._groups_of(self.area)
        if groups:
            answer = await self.master.call(
                "Query", query_const.NODE, ["group", "group.uuid"], ["=", "name", name]
            )
            for row in answer["data"]:
                found = frozenset(value for status, value in row if status == 0 and value)
                if not groups.isdisjoint(found) and len(answer["data"]) == 1:
                    return found
        raise Refused(
            403,
            f"user {self.user.name} may not choose node {name[:100]}: that needs a right for its"
            " node group",
        )

    def _groups_of(self, area: Area | None) -> set[str]:
        if area is None:
            return set()
        return {one.value for one in area.simple(self.rules.pools) if one.kind == GROUP}

    def event_scope(self) -> EventScope:
        """Return which events the user gets."""
        return EventScope.of(self.area, self.rules.pools)

    def own_tag(self, tag: str) -> bool:
        """Return whether a tag alone makes an instance belong to the area of the operation."""
        return Selector(selectors.TAG, tag) in self.area.simple(self.rules.pools)


_GROUP_FIELDS_OF_NODE: Final = ("group", "group.uuid")


def missing(name: str) -> Refused:
    """Make the answer for an instance that does not exist, or that the user does not see."""
    return Refused(404, f"instance {name[:255]} does not exist")


def missing_job(number: int) -> Refused:
    """Make the answer for a job that does not exist, or that the user does not see."""
    return Refused(404, f"job {number} does not exist")


def reach(area: Area | None, handler: str, method: str) -> str:
    """Return on which objects an operation may be used: everything, some, or nothing.

    :param area: as :meth:`ganeti.rapi.rights.Rights.area` returns it.
    """
    if area is None or (handler in OPEN and area.choices):
        return EVERYTHING
    return SOME if area.choices and _serves(handler, method) else NOTHING


def _serves(handler: str, method: str) -> bool:
    return handler in SERVED or f"{handler}:{method}" in SERVED


class Source(Protocol):
    """What says who may do what: the users and the roles file."""

    @property
    def rules(self) -> Rules:
        """Return what the roles file says."""

    @property
    def tags_with_rights(self) -> Collection[str]:
        """Return the tags that give a right to a user, or count for a quota."""


class Scopes:
    """Makes the limits of requests.

    :param source: None if there is no roles file.
    """

    def __init__(self, master: Master, source: Source | None = None) -> None:
        self._master = master
        self._source = source
        self._jobs = JobSubjects(master)

    def of(
        self, user: User | None, needed: Collection[str], handler: str, method: str
    ) -> Limits | None:
        """Return the limits for an operation; None if the user may do it with everything.

        :param needed: the rights of which the operation needs one.
        :raises Refused: 403 if he may do it with nothing.
        """
        if user is None:
            return None
        area = user.rights.area(user.name, needed, handler, method)
        if area is None or reach(area, handler, method) == EVERYTHING:
            return None
        if not area.choices:
            raise Refused(403)
        if not _serves(handler, method):
            raise Refused(403, NOT_COVERED)
        return Limits(
            self._master,
            user,
            area,
            rules=Rules() if self._source is None else self._source.rules,
            special=() if self._source is None else self._source.tags_with_rights,
            jobs=self._jobs,
            console=console_field.area(user),
        )
