"""Parts of several resources: reading objects, lists of objects, their tags."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from ganeti import ht
from ganeti.http.messages import Refused
from ganeti.opcodes.tags import OpTagsDel, OpTagsSet
from ganeti.rapi import declare
from ganeti.rapi.call import Call
from ganeti.rapi.declare import DELETE, GET, PUT, Job, Query, Read, Resource, Result
from ganeti.rapi.resources import lists
from ganeti.utils.digits import is_number

Adjust = Callable[[dict[str, Any]], None]

_TAG: Final = Query("tag", "a tag; may be given several times", declare.MANY, param="tags")
TAGS: Final = Result(ht.ListOf(ht.NonEmptyString), "the tags")
NULL: Final = Result(ht.NoneType, "null")
# Length of a text from the path which an error repeats.
_SHOWN: Final = 100


def _same(_values: dict[str, Any]) -> None:
    """Leave an object unchanged."""


class Table:
    """One kind of object: how to list and to show it.

    :param method: the LUXI method, whose arguments are names, fields and a flag.
    :param path: the resource of the list.
    :param id_name: the name of the identifier in the short list.
    :param adjust: changes an object before it is shown.
    """

    def __init__(
        self,
        kind: str,
        method: str,
        path: str,
        fields: Sequence[str],
        *,
        id_name: str = "name",
        adjust: Adjust = _same,
    ) -> None:
        self.kind = kind
        self._method = method
        self._path = path
        self.fields = tuple(fields)
        self._id_name = id_name
        self._adjust = adjust

    def read_list(self, doc: str, *query: Query) -> Read:
        """Declare the operation which returns names and paths, or whole objects.

        :param query: further arguments.
        """
        return Read(
            self._list,
            doc,
            self._list_result(),
            (declare.BULK, *query, *lists.ARGUMENTS),
            headers=lists.HEADERS,
        )

    def read_object(self, doc: str) -> Read:
        """Declare the operation which returns the object in the path."""
        result = Result(ht.Dict, f"the {self.kind}", self.fields)
        return Read(self.show, doc, result, (declare.LOCK,))

    def _list_result(self) -> Result:
        what = f"[{{{self._id_name}, uri}}], or with bulk whole objects"
        return Result(ht.ListOf(ht.Dict), what, self.fields)

    async def _list(self, call: Call) -> list[dict[str, Any]]:
        if lists.wanted(call):
            return await lists.objects(
                call,
                self.kind,
                self._path,
                self.fields,
                id_name=self._id_name,
                adjust=self._adjust,
            )
        if call.query["bulk"]:
            rows = await call.master.call(self._method, [], self.fields, False)
            return [self._object(row) for row in rows]
        rows = await call.master.call(self._method, [], ["name"], False)
        return uris(self._path, self._id_name, [row[0] for row in rows])

    async def show(self, call: Call) -> dict[str, Any]:
        """Return the object which the path names.

        :raises Refused: 404 when there is none.
        """
        (name,) = call.uri.values()
        rows = await call.master.call(self._method, [name], self.fields, False)
        if not rows:
            raise self._missing(name)
        found = self._object(rows[0])
        call.etag = etag(found["uuid"], found["serial_no"])
        return found

    # -- earlier states ----------------------------------------------------------------------------

    def at_resources(self, handler: str) -> tuple[Resource, Resource]:
        """Declare the resources of the list and of an object, as an earlier state has them."""
        names = f"{self.kind}s"
        of = "of an earlier state of the configuration"
        whole = Result(ht.Dict, f"the {self.kind}", self.fields)
        path = self._path.replace("/2/", "/2/at/{serial}/", 1)
        return (
            Resource(
                path,
                f"at_{handler}",
                {
                    GET: Read(
                        self._list_at,
                        f"List the {names} {of}. Null stands for what it does not say.",
                        self._list_result(),
                        (declare.BULK,),
                        access=declare.READERS,
                    )
                },
            ),
            Resource(
                f"{path}/{{{self.kind}_name}}",
                f"at_{handler}_name",
                {
                    GET: Read(
                        self._show_at,
                        f"Show {_A[self.kind]} {of}. Null stands for what it does not say.",
                        whole,
                        access=declare.READERS,
                    )
                },
            ),
        )

    async def _list_at(self, call: Call) -> list[dict[str, Any]]:
        if call.query["bulk"]:
            return [self._object(row) for row in await rows_at(call, self.kind, [], self.fields)]
        names = [row[0] for row in await rows_at(call, self.kind, [], ["name"])]
        return uris(self._path.replace("/2/", f"/2/at/{serial_of(call)}/", 1), self._id_name, names)

    async def _show_at(self, call: Call) -> dict[str, Any]:
        name = call.uri[f"{self.kind}_name"]
        rows = await rows_at(call, self.kind, [name], self.fields)
        return self._object(rows[0])

    def _object(self, row: Sequence[Any]) -> dict[str, Any]:
        found = dict(zip(self.fields, row, strict=True))
        self._adjust(found)
        return found

    async def current_etag(self, call_master: Any, name: str) -> str:
        """Return the tag of the present state of the object.

        :raises Refused: 404 when there is none.
        """
        rows = await call_master.call(self._method, [name], ["uuid", "serial_no"], False)
        if not rows:
            raise self._missing(name)
        return etag(*rows[0])

    def _missing(self, name: str) -> Refused:
        return Refused(404, f"{self.kind} {name} does not exist")


def job_number(call: Call) -> int:
    """Return the number of the job in the path.

    :raises Refused: 404 when no job can have it.
    """
    number = job_number_of(call.uri["job_id"])
    if number is None:
        raise Refused(404, f"job {call.uri['job_id'][:_SHOWN]} does not exist")
    return number


def job_number_of(text: str) -> int | None:
    """Return the number of a job; None for a text which no job can have as its number."""
    found = int(text) if is_number(text) else ht.MAX_JOB_ID + 1
    return found if found <= ht.MAX_JOB_ID else None


def serial_of(call: Call) -> int:
    """Return the serial number in the path.

    :raises Refused: 404 when no configuration can have it.
    """
    text = call.uri["serial"]
    if not is_number(text):
        raise Refused(404, f"there is no serial number {text[:_SHOWN]}")
    return int(text)


async def rows_at(
    call: Call, what: str, names: Sequence[str], fields: Sequence[str]
) -> list[list[Any]]:
    """Return fields of objects as the state in the path has them.

    :param what: kind of the objects, as in queries.
    """
    found = await call.master.call("QueryObjectsAt", serial_of(call), what, names, fields)
    rows: list[list[Any]] = found["rows"]
    return rows


def etag(uuid: str, serial_no: int) -> str:
    """Make the tag of a state of an object."""
    return f'"{uuid}-{serial_no}"'


def uris(path: str, id_name: str, names: Sequence[Any]) -> list[dict[str, Any]]:
    """Return the short form of a list, sorted."""
    return [{id_name: name, "uri": f"{path}/{name}"} for name in sorted(names)]


# The objects with tags, in sentences.
_A: Final = {
    "nodegroup": "a node group",
    "group": "a node group",
    "instance": "an instance",
    "network": "a network",
    "node": "a node",
}


def tags_resource(path: str, handler: str, kind: str, question: str) -> Resource:
    """Declare the resource of the tags of the object in the path, or of the cluster.

    :param question: the kind of the object in LUXI.
    """
    of = "of the cluster" if kind == "cluster" else f"of {_A[question]}"

    async def read(call: Call) -> Any:
        name = next(iter(call.uri.values()), "")
        return await call.master.call("QueryTags", question, name)

    def change(opcode: type[OpTagsSet] | type[OpTagsDel], doc: str) -> Job:
        def build(call: Call, _body: Mapping[str, Any]) -> list[Any]:
            if not call.query["tag"]:
                raise Refused(
                    400,
                    "query argument 'tag' is missing. It names a tag, and may be"
                    " given several times.",
                )
            return [
                opcode(
                    kind=kind,
                    name=next(iter(call.uri.values()), None),
                    tags=call.query["tag"],
                    dry_run=call.query["dry-run"],
                )
            ]

        return Job(opcode, doc, (_TAG, declare.DRY_RUN), fields={}, build=build)

    return Resource(
        path,
        handler,
        {
            GET: Read(read, f"List the tags {of}.", TAGS),
            PUT: change(OpTagsSet, f"Add tags {of}."),
            DELETE: change(OpTagsDel, f"Remove tags {of}."),
        },
        tagged="" if kind == "cluster" else question,
    )
